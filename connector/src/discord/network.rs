//! The network as the turns see it.
//!
//! REST makes each request once and tells what came of it; here is decided what to do then. What was
//! certainly not sent is tried again for a while. What may have arrived is sent once more with the same
//! nonce, which Discord keeps apart for some minutes: so it is there once, whatever happened. Anything
//! else is final.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use ureq::http::Method;

use super::port::Port;
use super::rest::outcome::{self, Outcome};
use super::rest::{Attempt, Rest, message};
use crate::delivery::{Destination, Part, Sent};

/// For how long a message that could not be sent is tried again. Less than the nonce's own time, so that
/// a restart may still send it.
const TRYING: Duration = Duration::from_secs(180);

/// The first wait between two tries, when Discord names none.
const FIRST: Duration = Duration::from_secs(1);

/// The longest.
const LONGEST: Duration = Duration::from_secs(20);

/// The eyes, as a path has them.
const EYES: &str = "%F0%9F%91%80";

/// The way to Discord.
#[derive(Clone)]
pub struct Network {
    rest: Rest,
}

impl Network {
    /// Over REST.
    #[must_use]
    pub fn new(rest: Rest) -> Self {
        Self { rest }
    }

    /// Answers an interaction. A repeat that Discord has already (40060) is as good.
    pub async fn answer(&self, id: &str, token: &str, body: Value) {
        match self.rest.answer_interaction(id, token, body).await {
            Attempt::Answered(answer) if answer.status < 300 || answer.code() == Some(40060) => {}
            Attempt::Answered(answer) => {
                tracing::warn!("a press was not answered: {}", answer.says());
            }
            Attempt::NotSent(reason) | Attempt::Never(reason) | Attempt::Unknown(reason) => {
                tracing::warn!("a press was not answered: {reason}");
            }
        }
    }

    async fn create(&self, to: &Destination, body: Value, again: Option<Instant>) -> Sent {
        let path = format!("/channels/{}/messages", to.channel);
        let limit = Instant::now() + TRYING;
        // What may be there already must not be sent once its nonce is forgotten.
        let by = again.map_or(limit, |by| by.min(limit));
        let (mut again, mut wait) = (again.is_some(), FIRST);
        loop {
            let body = Some(body.clone());
            let attempt = self.rest.request_by(Method::POST, &path, body, Some(by)).await;
            let (reason, after) = match outcome::created(attempt, again) {
                Outcome::Confirmed => return Sent::Confirmed,
                Outcome::Refused(reason) => return Sent::Refused { reason },
                Outcome::Unknown(reason) if again => return Sent::Unknown { reason },
                Outcome::Unknown(reason) => {
                    again = true;
                    (reason, None)
                }
                Outcome::NotYet { reason, after } => (reason, after),
            };
            let pause = after.unwrap_or(wait);
            if Instant::now() + pause > by {
                return if again {
                    Sent::Unknown { reason }
                } else {
                    Sent::Refused { reason: format!("it could not be sent: {reason}") }
                };
            }
            tracing::warn!(%reason, pause_ms = pause.as_millis(), "a message is sent again");
            tokio::time::sleep(pause).await;
            wait = (wait * 2).min(LONGEST);
        }
    }

    /// What is asked for once, whatever becomes of it.
    async fn courtesy(&self, method: Method, path: String) -> Sent {
        let sent = match self.rest.request(method, &path, None).await {
            Attempt::Answered(answer) if answer.status < 300 => return Sent::Confirmed,
            Attempt::Answered(answer) => Sent::Refused { reason: answer.says() },
            Attempt::NotSent(reason) | Attempt::Never(reason) => Sent::Refused { reason },
            Attempt::Unknown(reason) => Sent::Unknown { reason },
        };
        tracing::debug!(path, ?sent, "a courtesy");
        sent
    }
}

impl Port for Network {
    async fn send(&self, to: &Destination, part: &Part, again: Option<Instant>) -> Sent {
        self.create(to, message(&part.text, &part.nonce, &to.reply_to, None), again).await
    }

    async fn ask(&self, to: &Destination, part: &Part, buttons: &[String; 2]) -> Sent {
        let [yes, no] = buttons;
        let button = |id: &str, label: &str, style: u8| json!({"type": 2, "style": style, "label": label, "custom_id": id});
        let row = [button(yes, "Commit", 3), button(no, "Do not", 4)];
        let components = json!([{"type": 1, "components": row}]);
        let body = message(&part.text, &part.nonce, &to.reply_to, Some(components));
        self.create(to, body, None).await
    }

    async fn typing(&self, channel: &str) {
        let _ = self.courtesy(Method::POST, format!("/channels/{channel}/typing")).await;
    }

    async fn eyes(&self, message: &Destination) -> Sent {
        let Destination { channel, reply_to } = message;
        let path = format!("/channels/{channel}/messages/{reply_to}/reactions/{EYES}/@me");
        self.courtesy(Method::PUT, path).await
    }

    async fn parent(&self, channel: &str) -> Result<Option<String>, ()> {
        match self.rest.get(&format!("/channels/{channel}")).await {
            Attempt::Answered(answer) if answer.status == 200 => {
                let body = answer.body.unwrap_or_default();
                let thread = matches!(body["type"].as_u64(), Some(10..=12));
                Ok(body["parent_id"].as_str().filter(|_| thread).map(str::to_owned))
            }
            _ => Err(()),
        }
    }
}
