//! The clock of the fake: it stands until a test moves it, or runs at a multiple of real time.

use std::time::{Duration, Instant};

/// 2026-01-01T00:00:00Z in milliseconds since the Unix epoch.
const START: u64 = 1_767_225_600_000;

/// The first millisecond of Discord's snowflakes.
pub(super) const DISCORD_EPOCH: u64 = 1_420_070_400_000;

/// A clock under a test's control. Nonce windows, interaction deadlines and ids follow it.
#[derive(Debug, Clone)]
pub struct Clock {
    base: u64,
    factor: u32,
    since: Instant,
}

impl Default for Clock {
    fn default() -> Self {
        Self { base: START, factor: 0, since: Instant::now() }
    }
}

impl Clock {
    /// Milliseconds since the Unix epoch.
    #[must_use]
    pub fn now(&self) -> u64 {
        let run = self.since.elapsed().saturating_mul(self.factor);
        self.base + u64::try_from(run.as_millis()).unwrap_or(u64::MAX / 2)
    }

    /// Moves it on.
    pub fn advance(&mut self, by: Duration) {
        self.base += u64::try_from(by.as_millis()).unwrap_or(0);
    }

    /// From now on it runs `factor` times as fast as real time; 0 stops it.
    pub fn run(&mut self, factor: u32) {
        self.base = self.now();
        self.since = Instant::now();
        self.factor = factor;
    }
}
