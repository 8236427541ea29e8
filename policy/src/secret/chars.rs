//! What a credential is spelled with, and what makes a run of such characters look random.

/// How much of a run is looked at when judging it. It bounds the price of a wrong guess, so that
/// the whole search stays linear on hostile text.
const JUDGED: usize = 256;

/// A set of ASCII characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// Digits and small a-f.
    Hex,
    /// Capital letters and digits.
    Upper,
    /// Letters and digits.
    Alnum,
    /// Letters, digits and `_`.
    Word,
    /// Letters, digits, `_` and `-`.
    Url,
    /// As `Url`, with dots between.
    Dotted,
    /// Base64 of either alphabet.
    Base64,
    /// A path of a URL.
    Path,
}

impl Class {
    /// Whether a byte belongs to the set.
    pub(super) fn has(self, byte: u8) -> bool {
        let alnum = byte.is_ascii_alphanumeric();
        match self {
            Self::Hex => byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte),
            Self::Upper => byte.is_ascii_digit() || byte.is_ascii_uppercase(),
            Self::Alnum => alnum,
            Self::Word => alnum || byte == b'_',
            Self::Url => alnum || matches!(byte, b'_' | b'-'),
            Self::Dotted => alnum || matches!(byte, b'_' | b'-' | b'.'),
            Self::Base64 => alnum || matches!(byte, b'_' | b'-' | b'+' | b'/' | b'=' | b'%'),
            Self::Path => alnum || matches!(byte, b'_' | b'-' | b'/' | b'@' | b'.' | b'%'),
        }
    }

    /// Where the run that begins at `from` ends. A dot that ends it belongs to the sentence.
    pub(super) fn run(self, text: &[u8], from: usize) -> usize {
        let rest = text.get(from..).unwrap_or_default();
        let mut end = from + rest.iter().take_while(|&&byte| self.has(byte)).count();
        while end > from && text[end - 1] == b'.' {
            end -= 1;
        }
        end
    }

    /// As [`Class::run`], but stops once the run is long enough to be judged.
    pub(super) fn glance(self, text: &[u8], from: usize) -> usize {
        let until = text.len().min(from.saturating_add(JUDGED));
        self.run(&text[..until], from)
    }

    /// Where the run that ends at `to` begins, at most `limit` bytes earlier.
    pub(super) fn run_back(self, text: &[u8], to: usize, limit: usize) -> usize {
        to - text[..to].iter().rev().take(limit).take_while(|&&byte| self.has(byte)).count()
    }
}

/// Whether the byte before `at` is a letter or digit, so that a word goes on there.
pub(super) fn glued(text: &[u8], at: usize) -> bool {
    at > 0 && text[at - 1].is_ascii_alphanumeric()
}

/// Whether the text at `at` goes on with `what`.
pub(super) fn starts_at(text: &[u8], at: usize, what: &[u8]) -> bool {
    text.get(at..).is_some_and(|rest| rest.starts_with(what))
}

/// Counts that tell random strings from words.
#[derive(Debug, Default)]
pub(super) struct Look {
    length: usize,
    lower: usize,
    upper: usize,
    digits: usize,
    distinct: usize,
    /// Neighbours of different kinds: lower, upper, digit, anything else.
    changes: usize,
    /// Neighbours of which one is a letter and one a digit.
    mixes: usize,
}

impl Look {
    /// Looks at the beginning of a run.
    pub(super) fn at(run: &[u8]) -> Self {
        let run = &run[..run.len().min(JUDGED)];
        let mut look = Self { length: run.len(), ..Self::default() };
        let (mut seen, mut before) = (0u128, None);
        for &byte in run {
            let kind = kind(byte);
            match kind {
                Kind::Lower => look.lower += 1,
                Kind::Upper => look.upper += 1,
                Kind::Digit => look.digits += 1,
                Kind::Other => {}
            }
            if kind != Kind::Other {
                seen |= 1 << (byte & 0x7f);
            }
            if let Some(before) = before {
                look.changes += usize::from(kind != before);
                let other = kind == Kind::Other || before == Kind::Other;
                look.mixes +=
                    usize::from(!other && (kind == Kind::Digit) != (before == Kind::Digit));
            }
            before = Some(kind);
        }
        look.distinct = seen.count_ones() as usize;
        look
    }

    /// Not a placeholder of one repeated letter.
    pub(super) fn varied(&self) -> bool {
        self.distinct >= 2
    }

    /// Not words: digits or capitals are in it.
    pub(super) fn coded(&self) -> bool {
        self.distinct >= 4 && (self.digits > 0 || (self.upper > 0 && self.lower > 0))
    }

    /// Letters and digits change often, as they do in no name.
    pub(super) fn mixed(&self) -> bool {
        self.distinct >= 6 && self.mixes >= 3
    }

    /// Random enough to be taken for a secret where only the name beside it says so.
    pub(super) fn random(&self) -> bool {
        let every_kind = self.lower > 0 && self.upper > 0 && self.digits > 0;
        let neighbours = self.length.saturating_sub(1);
        let restless = every_kind && self.changes * 5 >= neighbours * 2;
        // One long random string in two hundred has no digit at all.
        let letters = self.length >= 32 && self.lower > 0 && self.upper > 0;
        let wild = letters && self.changes * 2 >= neighbours;
        let mixed = self.digits > 0 && self.mixes >= 4;
        self.distinct >= 8 && (mixed || restless || wild)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Lower,
    Upper,
    Digit,
    Other,
}

fn kind(byte: u8) -> Kind {
    match byte {
        b'a'..=b'z' => Kind::Lower,
        b'A'..=b'Z' => Kind::Upper,
        b'0'..=b'9' => Kind::Digit,
        _ => Kind::Other,
    }
}
