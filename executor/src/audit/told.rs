//! What became of a call, as the audit tells it.

use protocol::refusal::Outcome;
use protocol::reply::{PushState, Reply};
use serde_json::{Value, json};

/// More about a call.
#[must_use]
pub fn with(mut about: Value, more: Value) -> Value {
    if let (Value::Object(about), Value::Object(more)) = (&mut about, more) {
        about.extend(more);
    }
    about
}

/// What became of a call, for the audit.
#[must_use]
pub fn ended(outcome: &Outcome) -> (&'static str, Value) {
    match outcome {
        Outcome::Reply(reply) => ("done", effects(reply)),
        Outcome::Refusal(refusal) => ("refused", json!({"code": refusal.code.as_str()})),
        Outcome::Fault(_) => ("fault", json!({})),
    }
}

/// What a reply did, for the audit.
fn effects(reply: &Reply) -> Value {
    let push = |state: &PushState| match state {
        PushState::Pushed => "pushed",
        PushState::Failed { .. } => "failed",
    };
    match reply {
        Reply::Committed(done) => json!({"commit": done.hash, "push": push(&done.push)}),
        Reply::Pulled(done) => json!({"commit": done.to}),
        Reply::Page(page) => {
            json!({"status": page.status, "bytes": page.bytes, "digest": page.digest})
        }
        Reply::Found(found) => json!({"bytes": found.bytes, "digest": found.digest}),
        Reply::Pushed(done) => json!({"commit": done.hash, "push": "pushed"}),
        _ => json!({}),
    }
}
