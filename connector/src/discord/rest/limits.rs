//! Rate limits: a gate for each bucket, and one for everything.
//!
//! A bucket that says that it is empty is waited for before the next request of its route goes out. What
//! Discord says of a global limit, and what Cloudflare says without a bucket, closes the one gate.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use ureq::http::{HeaderMap, Method};

use super::Answer;

/// The longest wait that is heeded. Longer ones are somebody's mistake, or a ban that no waiting ends.
const LONGEST: Duration = Duration::from_secs(3600);

/// Seconds as Discord writes them. What is no length of time is none.
#[must_use]
pub fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default().min(LONGEST)
}

/// What shares a bucket, as far as it is known before an answer: the method and the path, with every id
/// but the first one (the channel's or guild's) left out.
#[must_use]
pub fn route(method: &Method, path: &str) -> String {
    let mut major = true;
    let parts = path.split('/').map(|part| {
        let is_id = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if is_id && !std::mem::replace(&mut major, false) { ":id" } else { part }
    });
    format!("{method} {}", parts.collect::<Vec<_>>().join("/"))
}

/// The gates.
#[derive(Debug, Default)]
pub struct Limits {
    state: Mutex<State>,
    /// That the token is refused.
    told: Notify,
}

#[derive(Debug, Default)]
struct State {
    buckets: HashMap<String, Instant>,
    all: Option<Instant>,
    token_refused: bool,
}

impl State {
    /// Never shortens a wait.
    fn hold(&mut self, route: &str, until: Instant) {
        let held = self.buckets.entry(route.to_owned()).or_insert(until);
        *held = until.max(*held);
    }
}

/// Why a request does not go out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// A gate is closed for longer than it may wait.
    TooLong,
    /// Discord does not take the token: none will ever go out.
    ForEver,
}

impl Limits {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a request of this route may go out, which must be before `by`.
    ///
    /// # Errors
    /// When it may not by then, without waiting, or never.
    pub async fn wait(&self, route: &str, by: Option<Instant>) -> Result<(), Held> {
        loop {
            let until = {
                let state = self.state();
                if state.token_refused {
                    return Err(Held::ForEver);
                }
                state.all.max(state.buckets.get(route).copied())
            };
            let now = Instant::now();
            let until = until.filter(|until| *until > now);
            if by.is_some_and(|by| until.unwrap_or(now) > by) {
                return Err(Held::TooLong);
            }
            let Some(until) = until else { return Ok(()) };
            tokio::time::sleep_until(until).await;
        }
    }

    /// Waits until Discord does not take the token any more.
    pub async fn refused(&self) {
        let told = self.told.notified();
        tokio::pin!(told);
        // Before looking, so that it is not missed in between.
        told.as_mut().enable();
        if !self.state().token_refused {
            told.await;
        }
    }

    /// Takes in what an answer says.
    pub fn learn(&self, route: &str, answer: &Answer, headers: &HeaderMap) {
        let now = Instant::now();
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let mut state = self.state();
        if answer.status == 401 {
            state.token_refused = true;
            self.told.notify_waiters();
        }
        if answer.status == 429 {
            let until = now + answer.retry_after.unwrap_or(Duration::from_secs(1));
            // Cloudflare's has no bucket: it is about this address.
            if answer.global || text("x-ratelimit-bucket").is_none() {
                state.all = state.all.max(Some(until));
            } else {
                state.hold(route, until);
            }
        } else if text("x-ratelimit-remaining") == Some("0") {
            let reset = text("x-ratelimit-reset-after").and_then(|text| text.parse().ok());
            let until = now + reset.map_or(Duration::ZERO, duration);
            state.hold(route, until);
        }
        state.buckets.retain(|_, until| *until > now);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;
    use ureq::http::{HeaderMap, HeaderValue, Method};

    use super::{Held, Limits, duration, route};
    use crate::discord::rest::Answer;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (name.parse().expect("a name"), HeaderValue::from_static(value)))
            .collect()
    }

    fn answer(status: u16, seconds: u64, global: bool) -> Answer {
        Answer { status, body: None, retry_after: Some(Duration::from_secs(seconds)), global }
    }

    async fn waited(limits: &Limits, route: &str) -> u64 {
        let before = Instant::now();
        limits.wait(route, None).await.expect("it may go some time");
        before.elapsed().as_secs()
    }

    #[test]
    fn a_route_keeps_its_channel_and_drops_other_ids() {
        let path = "/channels/123/messages/456/reactions/x/@me";
        assert_eq!(route(&Method::PUT, path), "PUT /channels/123/messages/:id/reactions/x/@me");
        assert_ne!(route(&Method::GET, "/channels/1"), route(&Method::GET, "/channels/2"));
    }

    #[tokio::test(start_paused = true)]
    async fn an_empty_bucket_holds_its_route_and_no_other() {
        let limits = Limits::default();
        let empty = headers(&[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset-after", "3.5")]);
        limits.learn("a", &Answer { retry_after: None, ..answer(200, 0, false) }, &empty);
        assert_eq!((waited(&limits, "b").await, waited(&limits, "a").await), (0, 3));
        limits.learn("a", &answer(429, 2, false), &headers(&[("x-ratelimit-bucket", "x")]));
        assert_eq!((waited(&limits, "b").await, waited(&limits, "a").await), (0, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_is_never_shortened_and_one_that_is_too_long_is_not_begun() {
        let limits = Limits::default();
        let bucket = headers(&[("x-ratelimit-bucket", "x")]);
        limits.learn("a", &answer(429, 9, false), &bucket);
        limits.learn("a", &answer(429, 2, false), &bucket);
        let by = |seconds| Some(Instant::now() + Duration::from_secs(seconds));
        assert_eq!(limits.wait("a", by(8)).await, Err(Held::TooLong));
        assert_eq!(limits.wait("b", by(0)).await, Ok(()));
        assert_eq!(waited(&limits, "a").await, 9);
    }

    #[tokio::test(start_paused = true)]
    async fn a_global_limit_holds_everything_and_so_does_cloudflare() {
        let limits = Limits::default();
        limits.learn("a", &answer(429, 5, true), &headers(&[("x-ratelimit-bucket", "x")]));
        assert_eq!(waited(&limits, "b").await, 5);
        limits.learn("a", &answer(429, 7, false), &HeaderMap::new());
        assert_eq!(waited(&limits, "b").await, 7);
    }

    #[tokio::test]
    async fn after_a_401_nothing_goes_out_any_more() {
        let limits = Limits::default();
        limits.learn("a", &answer(401, 0, false), &HeaderMap::new());
        assert_eq!(limits.wait("b", None).await, Err(Held::ForEver));
        limits.refused().await;
    }

    #[test]
    fn what_is_no_length_of_time_is_none() {
        for odd in [f64::NAN, f64::INFINITY, -1.0, 1e300] {
            assert!(duration(odd) <= super::LONGEST, "{odd}");
        }
        assert_eq!(duration(0.25), Duration::from_millis(250));
    }
}
