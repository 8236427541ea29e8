//! The queue of turns: one at a time, each with its own budget, until it is time to end.

use std::future::pending;
use std::pin::pin;
use std::sync::{Arc, PoisonError};

use tokio::sync::mpsc::UnboundedReceiver;

use super::approve::Approvals;
use super::intake::{Queued, Shared};
use super::port::Port;
use super::reply::Replies;
use crate::engine::Engine;
use crate::journal::JournalError;
use crate::turn::{self, Seat};

/// Takes turns from the queue until `stopping` or the end of the queue. The turn that goes on then is
/// finished, or times out; those that wait get their record and are not begun.
///
/// # Errors
/// When the journal cannot be written.
pub async fn turns<E: Engine, P: Port>(
    seat: &mut Seat<E>,
    port: &P,
    approvals: &Arc<Approvals>,
    current: &Shared,
    mut queue: UnboundedReceiver<Queued>,
    stopping: impl Future<Output = ()> + Send,
) -> Result<(), JournalError> {
    let mut stopping = pin!(stopping);
    loop {
        let next = tokio::select! {
            biased;
            () = &mut stopping => None,
            next = queue.recv() => next,
        };
        let Some(Queued { admission, place, author }) = next else { break };
        seat.limits = current.read().unwrap_or_else(PoisonError::into_inner).limits.clone();
        let mut replies = Replies::new(port.clone(), place, author, Arc::clone(approvals));
        turn::go_on(admission, seat, &mut replies, pending()).await?;
    }
    queue.close();
    for id in seat.journal.recover(seat.clock.now())? {
        tracing::warn!(turn = %id, "stopped before this turn began; it has its record");
    }
    Ok(())
}
