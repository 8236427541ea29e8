//! Random choices that a seed repeats.

/// Dice with a seed.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// The dice of a seed: the same seed, the same throws.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03)
    }

    /// The next number (splitmix64).
    pub fn throw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below a bound.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.throw() % bound.max(1)
    }

    /// One of several.
    ///
    /// # Panics
    /// When there is none.
    pub fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        let at = usize::try_from(self.below(from.len() as u64)).expect("it is below the length");
        from[at].clone()
    }

    /// Whether it happened, once in so many times.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}
