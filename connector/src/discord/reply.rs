//! The way out: an answer as replies in its channel, and the outbox of an earlier process.
//!
//! What must stay true: nothing is sent whose intent is not on disk; a part that may have arrived is
//! sent again at most once per start, under its own nonce, and only while Discord still remembers that
//! nonce; after that it counts as refused, for a second reply is worse than none.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use protocol::reply::Plan;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::approve::{Approvals, Question};
use super::port::Port;
use crate::delivery::{Delivery, Destination, Part, Sent};
use crate::journal::{Journal, JournalError, Left};
use crate::message::MessageId;
use crate::{render, split};

/// How long Discord surely remembers a nonce. It says "a few minutes".
pub const WINDOW: SignedDuration = SignedDuration::from_mins(5);

/// Typing lasts ten seconds.
const TYPING: Duration = Duration::from_secs(8);

/// Answers one message.
pub struct Replies<P> {
    port: P,
    place: Destination,
    /// Who alone may approve.
    author: String,
    approvals: Arc<Approvals>,
    question: Option<Question>,
    typing: Option<JoinHandle<()>>,
}

impl<P: Port> Replies<P> {
    /// For one message.
    #[must_use]
    pub fn new(port: P, place: Destination, author: String, approvals: Arc<Approvals>) -> Self {
        Self { port, place, author, approvals, question: None, typing: None }
    }
}

impl<P> Replies<P> {
    fn stop_typing(&mut self) {
        if let Some(typing) = self.typing.take() {
            typing.abort();
        }
    }
}

impl<P> Drop for Replies<P> {
    fn drop(&mut self) {
        self.stop_typing();
    }
}

impl<P: Port> Delivery for Replies<P> {
    fn destination(&self) -> Option<Destination> {
        Some(self.place.clone())
    }

    fn begun(&mut self) {
        let (port, channel) = (self.port.clone(), self.place.channel.clone());
        self.typing = Some(tokio::spawn(async move {
            loop {
                port.typing(&channel).await;
                tokio::time::sleep(TYPING).await;
            }
        }));
    }

    fn split(&self, text: &str) -> Vec<String> {
        split::split(text)
    }

    fn receipt(&self, id: &MessageId) -> Option<Part> {
        Some(Part::receipt(id))
    }

    fn question(&self, plan: &Plan) -> Option<String> {
        // A person approves what they saw: a plan that does not fit in one message is not asked for.
        let mut parts = split::split(&render::plan(plan));
        if parts.len() == 1 { parts.pop() } else { None }
    }

    async fn ask(&mut self, question: &Part) -> Sent {
        // Open before it is seen, so that no press comes too early.
        let open = self.question.insert(self.approvals.open(&question.nonce, &self.author));
        self.port.ask(&self.place, question, &open.buttons).await
    }

    async fn answered(&mut self) -> bool {
        let Some(question) = self.question.take() else { return false };
        question.answer().await
    }

    async fn send(&mut self, part: &Part) -> Sent {
        self.stop_typing();
        // Whoever was still to answer is late.
        self.question = None;
        self.port.send(&self.place, part, None).await
    }
}

/// Says what an earlier process left unsaid, in order, and settles what it may have said. Before
/// anything new is said.
///
/// Returns how many are still unknown, because Discord could not be asked: nothing may start then.
///
/// # Errors
/// When the journal cannot be written.
pub async fn reconcile<P: Port>(
    journal: &mut Journal,
    port: &P,
    now: impl Fn() -> Timestamp,
) -> Result<usize, JournalError> {
    let mut unknown = 0;
    let mut stuck = HashSet::new();
    for left in journal.left()? {
        let (intended, sent) = match left {
            Left::Unsaid { part, to } => {
                // After a part that may not be there it would be out of order; the next start says it.
                if stuck.contains(&to) {
                    continue;
                }
                let intended = journal.intend(&part, Some(to.clone()), now())?;
                (intended, port.send(&to, &part, None).await)
            }
            Left::Tried { intended, first, said } => {
                let age = now().duration_since(first);
                let sent = match &said {
                    Some((part, to)) if age <= WINDOW => {
                        let by = Instant::now() + (WINDOW - age).unsigned_abs();
                        port.send(to, part, Some(by)).await
                    }
                    Some(_) => {
                        refused("it may have arrived, and is too old to be sent again safely")
                    }
                    None => refused("it may have arrived, and its place ended with its process"),
                };
                if matches!(sent, Sent::Unknown { .. }) {
                    stuck.extend(said.map(|(_, to)| to));
                }
                (intended, sent)
            }
        };
        unknown += usize::from(matches!(sent, Sent::Unknown { .. }));
        journal.settle(intended, sent, now())?;
    }
    Ok(unknown)
}

fn refused(reason: &str) -> Sent {
    Sent::Refused { reason: reason.to_owned() }
}
