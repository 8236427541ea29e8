//! How often one peer may call (J5): so many calls in any minute, and when to try again.
//!
//! The generic cell rate algorithm: one instant per peer says how far its calls reach into the
//! future; a call that would reach further than a minute is refused. The clock is the caller's.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);

/// How often a refusal is written down, at most: a peer that calls in a loop must not fill the disk.
const TOLD_EVERY: Duration = Duration::from_secs(1);

/// The calls of one peer.
#[derive(Debug)]
pub struct Rate {
    interval: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    reaches: Option<Instant>,
    told: Option<Instant>,
    untold: u64,
}

/// A call too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooOften {
    /// How long until the next one is taken.
    pub wait: Duration,
    /// How many refusals there were since one was last written down, this one included; nothing
    /// while that was just now.
    pub tell: Option<u64>,
}

/// A wait in whole seconds, never too short.
#[must_use]
pub fn seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

impl Rate {
    /// So many calls a minute; at least one.
    #[must_use]
    pub fn new(per_minute: u32) -> Self {
        Self { interval: MINUTE / per_minute.max(1), state: Mutex::default() }
    }

    /// Counts a call.
    ///
    /// # Errors
    /// When it is one too many; it is then not counted.
    pub fn take(&self, now: Instant) -> Result<(), TooOften> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Err(wait) = self.room(&state, now) else {
            state.reaches = Some(state.reaches.map_or(now, |at| at.max(now)) + self.interval);
            return Ok(());
        };
        state.untold += 1;
        let due = state.told.is_none_or(|told| now.duration_since(told) >= TOLD_EVERY);
        let tell = due.then(|| std::mem::take(&mut state.untold));
        if due {
            state.told = Some(now);
        }
        Err(TooOften { wait, tell })
    }

    /// How long a call would have to wait, without counting one.
    #[must_use]
    pub fn wait(&self, now: Instant) -> Option<Duration> {
        self.room(&self.state.lock().unwrap_or_else(PoisonError::into_inner), now).err()
    }

    fn room(&self, state: &State, now: Instant) -> Result<(), Duration> {
        let reaches = state.reaches.map_or(now, |at| at.max(now)) + self.interval;
        match (reaches - now).checked_sub(MINUTE) {
            None | Some(Duration::ZERO) => Ok(()),
            Some(wait) => Err(wait),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use proptest::prelude::*;

    use super::{MINUTE, Rate};

    #[test]
    fn so_many_calls_at_once_and_then_one_after_the_other() {
        let (rate, now) = (Rate::new(3), Instant::now());
        for _ in 0..3 {
            assert_eq!(rate.wait(now), None);
            assert_eq!(rate.take(now), Ok(()));
        }
        let refused = rate.take(now).expect_err("a fourth");
        assert_eq!((refused.wait, refused.tell), (Duration::from_secs(20), Some(1)));
        assert_eq!(rate.wait(now), Some(Duration::from_secs(20)), "asking counts nothing");
        let later = now + refused.wait;
        assert_eq!(rate.take(later), Ok(()));
        assert!(rate.take(later).is_err());
        let much_later = later + 2 * MINUTE;
        assert!((0..3).all(|_| rate.take(much_later).is_ok()));
        assert!(rate.take(much_later).is_err(), "nothing is saved up beyond a minute");
    }

    #[test]
    fn refusals_are_told_once_a_second_with_their_number() {
        let (rate, now) = (Rate::new(1), Instant::now());
        rate.take(now).expect("the first");
        let told =
            |after: u64| rate.take(now + Duration::from_millis(after)).expect_err("too many").tell;
        assert_eq!(
            [told(0), told(1), told(999), told(1000), told(1500)],
            [Some(1), None, None, Some(3), None]
        );
    }

    proptest! {
        #[test]
        fn no_minute_holds_twice_the_calls_and_waiting_as_told_is_enough(
            per_minute in 1u32..50,
            steps in proptest::collection::vec(0u64..4000, 1..200),
        ) {
            let rate = Rate::new(per_minute);
            let (start, mut now) = (Instant::now(), Instant::now());
            let mut taken = Vec::new();
            for step in steps {
                now += Duration::from_millis(step);
                match rate.take(now) {
                    Ok(()) => taken.push(now),
                    Err(refused) => {
                        prop_assert!(refused.wait <= MINUTE);
                        prop_assert_eq!(rate.wait(now + refused.wait), None);
                    }
                }
            }
            for from in &taken {
                let within = taken.iter().filter(|at| *at >= from && **at < *from + MINUTE).count();
                prop_assert!(within < 2 * per_minute as usize + 1, "since {:?}", *from - start);
            }
        }
    }
}
