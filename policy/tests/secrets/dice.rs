//! Chance with a fixed seed, so that the corpus is the same on every machine.

/// A small generator (xorshift); nothing here needs a good one.
pub(crate) struct Dice(u64);

pub(crate) const DIGITS: &str = "0123456789";
pub(crate) const HEX: &str = "0123456789abcdef";
pub(crate) const UPPER: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
pub(crate) const ALNUM: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
pub(crate) const URL: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
pub(crate) const BASE64: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % limit
    }

    /// A string of the given letters.
    pub(crate) fn text(&mut self, letters: &str, length: usize) -> String {
        let letters = letters.as_bytes();
        (0..length).map(|_| char::from(letters[self.below(letters.len())])).collect()
    }

    /// The same, with both ends a letter or digit and a digit among them.
    pub(crate) fn token(&mut self, letters: &str, length: usize) -> String {
        let plain: String = letters.chars().filter(char::is_ascii_alphanumeric).collect();
        let inner = self.text(letters, length - 3);
        format!("{}{}{inner}{}", self.text(&plain, 1), self.text("234567", 1), self.text(&plain, 1))
    }
}

/// Base64 of the URL alphabet, without padding.
pub(crate) fn base64(bytes: &[u8]) -> String {
    let letters = URL.as_bytes();
    // The alphabet ends in `-` and `_`; the constant has them the other way round.
    let letter = |n: usize| match n {
        62 => '-',
        63 => '_',
        n => char::from(letters[n]),
    };
    let mut out = String::new();
    for three in bytes.chunks(3) {
        let value = three.iter().fold(0usize, |sum, byte| sum << 8 | usize::from(*byte));
        let value = value << (8 * (3 - three.len()));
        let letters = (0..=three.len()).map(|n| letter(value >> (18 - 6 * n) & 63));
        out.extend(letters);
    }
    out
}
