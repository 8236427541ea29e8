//! Rate limits as Discord keeps them: a bucket for each route and top-level id, told in every answer.

use std::collections::BTreeMap;
use std::time::Duration;

use super::fault::RateLimit;
use super::model::Request;
use super::rest::Answer;
use super::state::State;

/// All buckets. So roomy at first that nobody meets an end.
pub(super) struct Buckets {
    limit: u64,
    window: u64,
    /// When a bucket was filled, and what is gone of it.
    used: BTreeMap<String, (u64, u64)>,
}

impl Default for Buckets {
    fn default() -> Self {
        Self { limit: 10_000, window: 5000, used: BTreeMap::new() }
    }
}

/// What a bucket says after a request.
struct Told {
    name: String,
    /// Nothing when the request did not fit.
    remaining: Option<u64>,
    reset: u64,
    reset_after: u64,
}

impl Buckets {
    /// Every bucket is full again, and takes so much.
    pub(super) fn set(&mut self, limit: u64, window: Duration) {
        let window = u64::try_from(window.as_millis()).unwrap_or(u64::MAX);
        *self = Self { limit, window, used: BTreeMap::new() };
    }

    fn take(&mut self, request: &Request, now: u64) -> Told {
        let (name, key) = bucket(request);
        let entry = self.used.entry(key).or_insert((now, 0));
        if now >= entry.0 + self.window {
            *entry = (now, 0);
        }
        let (since, used) = entry;
        let remaining = self.limit.checked_sub(*used + 1);
        *used += u64::from(remaining.is_some());
        let reset = *since + self.window;
        Told { name, remaining, reset, reset_after: reset - now }
    }
}

/// A bucket's name, which is the same for all channels, and what tells it from those.
fn bucket(request: &Request) -> (String, String) {
    let mut major = "";
    let shape: Vec<&str> = request
        .path
        .split('/')
        .map(|part| {
            let id = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
            if id && major.is_empty() {
                major = part;
            }
            if id { "*" } else { part }
        })
        .collect();
    let shape = format!("{} {}", request.method, shape.join("/"));
    let sum = shape.bytes().fold(7_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    (format!("{sum:016x}"), format!("{shape} {major}"))
}

/// Milliseconds as Discord writes seconds.
fn seconds(milliseconds: u64) -> String {
    format!("{}.{:03}", milliseconds / 1000, milliseconds % 1000)
}

impl State {
    /// Does what is asked, and answers.
    pub(super) fn respond(&mut self, request: &Request) -> Answer {
        self.counted(request, |state| state.answer(request))
    }

    /// The same with something else that answers; a bucket that is empty answers first.
    pub(super) fn counted(
        &mut self,
        request: &Request,
        answer: impl FnOnce(&mut Self) -> Answer,
    ) -> Answer {
        if request.path.starts_with("/interactions/") {
            return answer(self);
        }
        let now = self.clock.now();
        let told = self.buckets.take(request, now);
        let reset_after = seconds(told.reset_after);
        let mut answer = if told.remaining.is_some() {
            answer(self)
        } else {
            self.seen.limited.push(format!("{} {}", request.method, request.path));
            let retry_after = reset_after.parse().unwrap_or(0.0);
            let (mut headers, body) = RateLimit::User { retry_after }.answer();
            headers
                .retain(|(name, _)| !name.starts_with("x-ratelimit-") || name.ends_with("scope"));
            Answer { status: 429, headers, body }
        };
        let more = [
            ("limit", self.buckets.limit.to_string()),
            ("remaining", told.remaining.unwrap_or(0).to_string()),
            ("reset", seconds(told.reset)),
            ("reset-after", reset_after),
            ("bucket", told.name),
        ];
        let more = more.map(|(name, value)| (format!("x-ratelimit-{name}"), value));
        answer.headers.extend(more);
        answer
    }
}
