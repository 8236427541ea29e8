//! Connections: who is at the other end, what they ask, and that the work stops when they go away.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use confine::cancel;
use futures::StreamExt;
use protocol::explain::Explanation;
use protocol::refusal::{Code, Fault, Outcome, Refusal};
use protocol::service::{Description, Executor as _, Request};
use protocol::status::{Status, TurnedAway};
use protocol::wire::{self, Welcome};
use tarpc::server::{BaseChannel, Channel};
use tokio::io::Interest;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;

use super::Executor;
use crate::manager::Pulse;

/// Serves connections until `shutdown` comes.
///
/// # Errors
/// When the listener breaks.
pub async fn serve(
    listener: UnixListener,
    executor: Arc<Executor>,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    tokio::pin!(shutdown);
    let mut pulse = Pulse::new();
    loop {
        let (stream, _) = tokio::select! {
            () = pulse.next(&executor) => continue,
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Too many open files, or a peer that is gone already: this one is lost, the next may not be.
                    tracing::warn!(%error, "a connection was not accepted");
                    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                    continue;
                }
            },
            () = &mut shutdown => return Ok(()),
        };
        tokio::spawn(connection(stream, Arc::clone(&executor)));
    }
}

/// How many requests of one connection may be without an answer. Whoever sends more before it reads
/// is read no further, so that answers that nobody takes have a bound.
const MAX_UNANSWERED: usize = 64;

/// One connection: greeted, known, then served until it ends.
async fn connection(mut stream: UnixStream, executor: Arc<Executor>) {
    let Ok(credentials) = stream.peer_cred() else { return };
    let uid = credentials.uid();
    let peer = executor.peers.get(&uid);
    let is_known = peer.is_some();
    let seat = peer.and_then(|peer| Arc::clone(&peer.connections).try_acquire_owned().ok());
    // Whoever gets no seat is told so, if they ask before long. Beyond these nobody waits: each costs a
    // descriptor, and calls need some.
    static TURNED_AWAY: Semaphore = Semaphore::const_new(64);
    let place = seat.is_none().then(|| TURNED_AWAY.try_acquire());
    let tally = &executor.tally;
    if matches!(place, Some(Err(_))) {
        return tally.turned_away(TurnedAway::Unheard);
    }
    let judge = || match (is_known, &seat) {
        (false, _) => Welcome::UnknownPeer,
        (true, None) => Welcome::Busy,
        (true, Some(_)) => Welcome::Ok,
    };
    let why = match wire::greet_client(&mut stream, judge).await {
        Ok(Welcome::Ok) => None,
        Ok(Welcome::Version) => Some(TurnedAway::Version),
        Ok(Welcome::UnknownPeer) => Some(TurnedAway::UnknownPeer),
        Ok(Welcome::Busy) => Some(TurnedAway::Busy),
        Err(error) => {
            tracing::debug!(uid, %error, "no greeting");
            return tally.turned_away(TurnedAway::NoGreeting);
        }
    };
    if let Some(why) = why {
        tally.turned_away(why);
        return executor.write_down_turned_away(uid, why);
    }
    let Ok(gone) = hang_up(&stream) else { return };
    let _lasts = tally.connection();
    let service = Service { executor: Arc::clone(&executor), uid }.serve();
    let served = BaseChannel::with_defaults(wire::server_transport(stream))
        .max_concurrent_requests(MAX_UNANSWERED)
        .execute(service)
        .for_each_concurrent(None, |response| response);
    tokio::select! {
        () = served => {}
        // A caller that was killed sends no cancellation, and tarpc would finish its calls first.
        _ = gone.ready(Interest::PRIORITY) => {}
    }
}

/// An answer over the frame's limit would end the connection and look like a crash.
fn fitting(outcome: Outcome) -> Outcome {
    let length = serde_json::to_vec(&outcome).map_or(0, |json| json.len());
    if length < wire::MAX_FRAME_BYTES - 4096 {
        return outcome;
    }
    Outcome::Refusal(Refusal::new(
        Code::TooLarge,
        format!(
            "The answer has {length} bytes, which is more than the wire takes. What the call did stands."
        ),
        "Ask for one path, or for less at once.",
    ))
}

/// A second view of a connection, which becomes ready when the other end is closed and by nothing
/// that it sends.
fn hang_up(stream: &UnixStream) -> io::Result<UnixStream> {
    UnixStream::from_std(stream.as_fd().try_clone_to_owned()?.into())
}

/// The service as one peer sees it.
#[derive(Clone)]
struct Service {
    executor: Arc<Executor>,
    uid: u32,
}

impl protocol::service::Executor for Service {
    async fn describe(self, _: tarpc::context::Context) -> Description {
        self.executor.describe(self.uid)
    }

    async fn status(self, _: tarpc::context::Context) -> Status {
        self.executor.status()
    }

    async fn call(self, _: tarpc::context::Context, request: Request) -> Outcome {
        let in_flight = Arc::clone(&self.executor.peers[&self.uid].in_flight);
        let Ok(seat) = in_flight.try_acquire_owned() else {
            let outcome = Outcome::Refusal(Refusal::new(
                Code::Busy,
                "This peer has too many calls under way.",
                "Wait for one of them, then call again.",
            ));
            self.executor.tally.ended(request.call.name(), &outcome, None);
            return outcome;
        };
        // When the caller goes away or the deadline passes, this future is dropped, and so is the
        // guard: the thread below sees it and stops its child.
        let (guard, cancel) = match cancel::pair() {
            Ok(pair) => pair,
            Err(error) => {
                return Outcome::Fault(Fault::new(format!("no descriptors are left: {error}")));
            }
        };
        let canceller = guard.canceller();
        let (executor, uid) = (Arc::clone(&self.executor), self.uid);
        let work = tokio::task::spawn_blocking(move || {
            // The seat is taken until the work has really ended, cancelled or not.
            let _seat = seat;
            executor.perform(uid, request, &cancel, &canceller)
        });
        work.await
            .map(fitting)
            .unwrap_or_else(|_| Outcome::Fault(Fault::new("the call broke inside the executor")))
    }

    async fn explain(
        self,
        _: tarpc::context::Context,
        request: Request,
    ) -> Result<Explanation, Fault> {
        let in_flight = Arc::clone(&self.executor.peers[&self.uid].in_flight);
        let Ok(seat) = in_flight.try_acquire_owned() else {
            return Err(Fault::new("this peer has too many calls under way"));
        };
        let (executor, uid) = (Arc::clone(&self.executor), self.uid);
        let work = tokio::task::spawn_blocking(move || {
            let _seat = seat;
            executor.explain(uid, request)
        });
        work.await.unwrap_or_else(|_| Err(Fault::new("the call broke inside the executor")))
    }
}
