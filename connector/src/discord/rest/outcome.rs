//! What became of a message, from what came of its request (facts of Discord's answers).

use std::time::Duration;

use super::{Answer, Attempt};

/// What became of a message.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// It is there.
    Confirmed,
    /// It is not there, and the same again would not be either.
    Refused(String),
    /// It is not there; the same again may be, after a while.
    NotYet {
        /// Why.
        reason: String,
        /// How long to wait, as far as Discord says.
        after: Option<Duration>,
    },
    /// It may be there.
    Unknown(String),
}

/// Codes of errors that pass by themselves: slow mode, write limits, overload.
const PASSING: [u64; 5] = [20016, 20028, 20029, 130_000, 40062];

/// The message is unknown: on a re-send with an enforced nonce, the one that arrived was deleted.
const UNKNOWN_MESSAGE: u64 = 10008;

/// Judges the creation of a message. `again` says that it is a re-send with the same nonce.
#[must_use]
pub fn created(attempt: Attempt, again: bool) -> Outcome {
    match attempt {
        Attempt::NotSent(reason) => Outcome::NotYet { reason, after: None },
        Attempt::Never(reason) => Outcome::Refused(reason),
        Attempt::Unknown(reason) => Outcome::Unknown(reason),
        Attempt::Answered(answer) => answered(&answer, again),
    }
}

fn answered(answer: &Answer, again: bool) -> Outcome {
    let (code, reason) = (answer.code(), answer.says());
    match answer.status {
        200..=299 => Outcome::Confirmed,
        _ if code.is_some_and(|code| PASSING.contains(&code)) => {
            Outcome::NotYet { reason, after: answer.retry_after }
        }
        429 => Outcome::NotYet { reason, after: answer.retry_after },
        404 if again && code == Some(UNKNOWN_MESSAGE) => Outcome::Confirmed,
        408 => Outcome::Unknown(reason),
        400..=499 => Outcome::Refused(reason),
        _ => Outcome::Unknown(reason),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::{Outcome, created};
    use crate::discord::rest::{Answer, Attempt};

    fn answer(status: u16, body: Option<Value>) -> Attempt {
        let retry_after = (status == 429).then(|| Duration::from_secs(2));
        Attempt::Answered(Answer { status, body, retry_after, global: false })
    }

    fn code(status: u16, code: u64) -> Attempt {
        answer(status, Some(json!({"code": code, "message": "m"})))
    }

    #[test]
    fn the_outcome_table_by_rows() {
        use Outcome::{Confirmed, Refused, Unknown};
        let is_refused = |outcome: &Outcome| matches!(outcome, Refused(_));
        let is_unknown = |outcome: &Outcome| matches!(outcome, Unknown(_));
        let not_yet = |outcome: &Outcome| matches!(outcome, Outcome::NotYet { .. });
        for body in [None, Some(json!({"id": "1"})), Some(json!("odd"))] {
            for status in [200, 201, 204] {
                assert_eq!(created(answer(status, body.clone()), false), Confirmed);
            }
        }
        for (status, number) in [
            (400, 50035),
            (400, 50006),
            (401, 40001),
            (403, 50001),
            (403, 50013),
            (403, 160_002),
            (404, 10003),
            (404, 10008),
            (400, 50083),
            (400, 160_005),
            (401, 0),
        ] {
            assert!(is_refused(&created(code(status, number), false)), "{status} {number}");
        }
        assert_eq!(created(code(404, 10008), true), Confirmed, "it arrived, and was deleted");
        assert!(is_refused(&created(code(404, 10003), true)));
        for number in [20016, 20028, 20029, 130_000, 40062] {
            for status in [400, 403, 429, 500, 503] {
                assert!(not_yet(&created(code(status, number), false)), "{status} {number}");
            }
        }
        assert!(not_yet(&created(Attempt::NotSent("refused".to_owned()), false)));
        assert!(is_refused(&created(Attempt::Never("no token".to_owned()), false)));
        assert_eq!(
            created(answer(429, None), false),
            Outcome::NotYet {
                reason: "status 429".to_owned(),
                after: Some(Duration::from_secs(2))
            }
        );
        for status in [408, 500, 502, 503, 504, 302, 100] {
            assert!(is_unknown(&created(answer(status, None), false)), "{status}");
        }
        assert!(is_unknown(&created(Attempt::Unknown("cut".to_owned()), true)));
    }
}
