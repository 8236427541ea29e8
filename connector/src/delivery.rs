//! The way out: what is said back, and what became of it.
//!
//! The turn decides what to say and journals the intent; a [`Delivery`] is the transport's one job of
//! saying it. It never retries by itself and never invents text.

use protocol::reply::Plan;
use serde::{Deserialize, Serialize};

use crate::message::MessageId;

/// A transport's way of answering one message.
pub trait Delivery: Send {
    /// Where the answer goes, when it may have to be sent again after a restart.
    fn destination(&self) -> Option<Destination> {
        None
    }

    /// The turn was admitted and is about to begin. A courtesy: it may be shown, and never waits.
    fn begun(&mut self) {}

    /// Cuts a text into what the transport can send at once.
    fn split(&self, text: &str) -> Vec<String> {
        vec![text.to_owned()]
    }

    /// The sign that a message was received, for a transport that gives one.
    fn receipt(&self, _id: &MessageId) -> Option<Part> {
        None
    }

    /// The question about a plan; none when the person would not see all of it.
    fn question(&self, plan: &Plan) -> Option<String>;

    /// Asks the person whom the plan names, once, and says what became of the question.
    fn ask(&mut self, question: &Part) -> impl Future<Output = Sent> + Send;

    /// Waits for the word on what was asked. Only a clear yes is one.
    fn answered(&mut self) -> impl Future<Output = bool> + Send;

    /// Sends one part, once, and says what became of it.
    fn send(&mut self, part: &Part) -> impl Future<Output = Sent> + Send;
}

/// A place that outlives the process that answers there.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Destination {
    /// The channel's or thread's id.
    pub channel: String,
    /// The id of the message that is answered.
    pub reply_to: String,
}

/// What kind of thing is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    /// The engine's answer.
    Reply,
    /// A plan with its buttons.
    Question,
    /// The sign that a message was received.
    Receipt,
    /// The fixed line of a turn that failed.
    Failed,
    /// The fixed line for a message that is too long.
    TooLong,
    /// The fixed line for a message without text.
    NoText,
    /// The fixed line, once a day, when the day's turns are used up.
    OverCeiling,
}

/// One thing to send.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Part {
    /// Names this part for as long as the journal lasts. The same one is never sent for two texts.
    pub nonce: String,
    /// What kind of thing it is.
    pub kind: Kind,
    /// The text.
    pub text: String,
}

impl Part {
    /// The parts of an answer: `<message id>-1`, `<message id>-2`, …
    pub(crate) fn of_reply(id: &MessageId, texts: Vec<String>) -> Vec<Self> {
        texts
            .into_iter()
            .zip(1..)
            .map(|(text, n)| Self { nonce: format!("{id}-{n}"), kind: Kind::Reply, text })
            .collect()
    }

    /// A question about a plan: `<message id>-q1`, …
    pub(crate) fn question(id: &MessageId, number: usize, text: String) -> Self {
        Self { nonce: format!("{id}-q{number}"), kind: Kind::Question, text }
    }

    /// The sign that a message was received: `<message id>-e`.
    pub(crate) fn receipt(id: &MessageId) -> Self {
        Self { nonce: format!("{id}-e"), kind: Kind::Receipt, text: "\u{1f440}".to_owned() }
    }

    /// A fixed line: the nonce ends in a letter, so that it can never be taken for an answer's.
    pub(crate) fn fixed(id: &MessageId, kind: Kind, text: String) -> Self {
        let letter = match kind {
            Kind::Failed => "f",
            Kind::TooLong => "b",
            Kind::NoText => "a",
            Kind::OverCeiling => "c",
            Kind::Reply | Kind::Question | Kind::Receipt => "r",
        };
        Self { nonce: format!("{id}-{letter}"), kind, text }
    }
}

/// What became of a part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "state")]
pub enum Sent {
    /// It arrived.
    Confirmed,
    /// It did not arrive, and will not.
    Refused {
        /// Why.
        reason: String,
    },
    /// It may have arrived.
    Unknown {
        /// What is known.
        reason: String,
    },
}
