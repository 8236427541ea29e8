//! The time, as something that is handed in.
//!
//! The ceiling turns over at midnight UTC; a test of that must not wait for midnight. Only wall-clock
//! time comes from here: how long a turn took is measured on the monotonic clock.

use jiff::Timestamp;

/// Tells the time.
pub trait Clock: Send + Sync {
    /// Now.
    fn now(&self) -> Timestamp;
}

/// The machine's own clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}
