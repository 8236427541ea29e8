//! The way out: an answer as replies in its channel, and the outbox of an earlier process.
//!
//! What must stay true: nothing is sent whose intent is not on disk; a part that may have arrived is
//! sent again at most once per start, under its own nonce, and only while Discord still remembers that
//! nonce; after that it counts as refused, for a second reply is worse than none.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use protocol::reply::Plan;
use tokio::task::JoinHandle;

use super::approve::Approvals;
use super::port::Port;
use crate::delivery::{Delivery, Destination, Part, Sent};
use crate::journal::{Journal, JournalError, Unsettled};
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
    asked: u32,
    typing: Option<JoinHandle<()>>,
}

impl<P: Port> Replies<P> {
    /// For one message.
    #[must_use]
    pub fn new(port: P, place: Destination, author: String, approvals: Arc<Approvals>) -> Self {
        Self { port, place, author, approvals, asked: 0, typing: None }
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

    async fn approve(&mut self, plan: &Plan) -> bool {
        self.asked += 1;
        let text = render::plan(plan);
        // A person approves what they saw: a plan that does not fit in one message is not asked for.
        let [text] = &split::split(&text)[..] else { return false };
        let question = self.approvals.open(&self.place.reply_to, self.asked, &self.author);
        let part = Part::question(&self.place.reply_to, self.asked, text.clone());
        match self.port.ask(&self.place, &part, &question.buttons).await {
            Sent::Confirmed | Sent::Unknown { .. } => question.answer().await,
            Sent::Refused { .. } => false,
        }
    }

    async fn send(&mut self, part: &Part) -> Sent {
        self.stop_typing();
        self.port.send(&self.place, part, false).await
    }
}

/// Settles what an earlier process may have said. Before anything new is said.
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
    for Unsettled { intended, first, said } in journal.unsettled()? {
        let young = now().duration_since(first) <= WINDOW;
        let sent = match said {
            Some((part, to)) if young => port.send(&to, &part, true).await,
            Some(_) => refused("it may have arrived, and is too old to be sent again safely"),
            None => refused("it may have arrived, and its place ended with its process"),
        };
        unknown += usize::from(matches!(sent, Sent::Unknown { .. }));
        journal.settle(intended, sent, now())?;
    }
    Ok(unknown)
}

fn refused(reason: &str) -> Sent {
    Sent::Refused { reason: reason.to_owned() }
}
