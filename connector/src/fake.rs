//! An executor for tests: the real wire and the real service, with answers that the test gives.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use futures::StreamExt;
use protocol::explain::Explanation;
use protocol::refusal::{Fault, Outcome};
use protocol::reply::{GitAccess, RootInfo};
use protocol::service::{Description, Executor, Request};
use protocol::status::{Counters, Status};
use protocol::tool::{ToolCall, ToolName};
use protocol::wire::{PROTOCOL_VERSION, Welcome, greet_client, server_transport};
use tarpc::context::Context;
use tarpc::server::{BaseChannel, Channel};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, mpsc};

/// What the fake does with a call.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    /// Answers.
    Answer(Box<Outcome>),
    /// Does it, keeps the answer under the call's id, and hangs up without a word.
    HangUpAfter(Box<Outcome>),
    /// Hangs up without doing it, every time.
    HangUp,
    /// Never answers.
    Hang,
}

impl Act {
    pub(crate) fn answer(outcome: Outcome) -> Self {
        Self::Answer(Box::new(outcome))
    }
}

/// The call that a call is, to what to do with it.
type Decide = Arc<dyn Fn(&ToolCall) -> Act + Send + Sync>;

/// A running fake. It ends with the runtime.
pub(crate) struct FakeExecutor {
    pub(crate) socket: PathBuf,
    state: Arc<State>,
    /// One entry for each call that began, and one for each that was dropped unanswered.
    pub(crate) events: mpsc::UnboundedReceiver<Event>,
    _folder: tempfile::TempDir,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    Began(String),
    Dropped(String),
}

struct State {
    decide: Decide,
    requests: Mutex<Vec<Request>>,
    /// What was done, by call id: the same id again is answered from here.
    done: Mutex<HashMap<String, Outcome>>,
    effects: Mutex<Vec<String>>,
    events: mpsc::UnboundedSender<Event>,
}

impl FakeExecutor {
    pub(crate) fn start(decide: impl Fn(&ToolCall) -> Act + Send + Sync + 'static) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("executor.sock");
        let (send, events) = mpsc::unbounded_channel();
        let state = Arc::new(State {
            decide: Arc::new(decide),
            requests: Mutex::default(),
            done: Mutex::default(),
            effects: Mutex::default(),
            events: send,
        });
        let listener = UnixListener::bind(&socket).expect("a socket");
        tokio::spawn(listen(listener, Arc::clone(&state)));
        Self { socket, state, events, _folder: folder }
    }

    /// Every request that arrived, repeats included.
    pub(crate) fn requests(&self) -> Vec<Request> {
        locked(&self.state.requests).clone()
    }

    /// The ids of calls that had an effect, once for each time.
    pub(crate) fn effects(&self) -> Vec<String> {
        locked(&self.state.effects).clone()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no test panics while it holds this")
}

async fn listen(listener: UnixListener, state: Arc<State>) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(serve(stream, Arc::clone(&state)));
    }
}

async fn serve(mut stream: UnixStream, state: Arc<State>) {
    if !matches!(greet_client(&mut stream, || Welcome::Ok).await, Ok(Welcome::Ok)) {
        return;
    }
    let hang_up = Arc::new(Notify::new());
    let connection = Connection { state, hang_up: Arc::clone(&hang_up) };
    let calls = BaseChannel::with_defaults(server_transport(stream))
        .execute(connection.serve())
        .for_each_concurrent(None, |call| call);
    tokio::select! {
        () = calls => {}
        () = hang_up.notified() => {}
    }
}

#[derive(Clone)]
struct Connection {
    state: Arc<State>,
    hang_up: Arc<Notify>,
}

/// Tells when a call is dropped unanswered.
struct Watch(String, mpsc::UnboundedSender<Event>);

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.1.send(Event::Dropped(self.0.clone()));
    }
}

impl Executor for Connection {
    async fn describe(self, _: Context) -> Description {
        offer()
    }

    async fn explain(self, _: Context, _: Request) -> Result<Explanation, Fault> {
        Err(Fault::new("no test of the connector asks for an explanation"))
    }

    async fn status(self, _: Context) -> Status {
        Status {
            version: String::new(),
            started: String::new(),
            stopped: None,
            degraded: Vec::new(),
            counters: Counters::default(),
        }
    }

    async fn call(self, _: Context, request: Request) -> Outcome {
        locked(&self.state.requests).push(request.clone());
        let _ = self.state.events.send(Event::Began(request.id.clone()));
        if let Some(done) = locked(&self.state.done).get(&request.id) {
            return done.clone();
        }
        let act = (self.state.decide)(&request.call);
        if let Act::Answer(outcome) | Act::HangUpAfter(outcome) = &act {
            locked(&self.state.effects).push(request.id.clone());
            locked(&self.state.done).insert(request.id.clone(), Outcome::clone(outcome));
        }
        match act {
            Act::Answer(outcome) => *outcome,
            Act::HangUpAfter(_) | Act::HangUp => {
                self.hang_up.notify_one();
                std::future::pending().await
            }
            Act::Hang => {
                let _watch = Watch(request.id, self.state.events.clone());
                std::future::pending().await
            }
        }
    }
}

/// What the fake offers: one writable root and every tool.
pub(crate) fn offer() -> Description {
    Description {
        protocol_version: PROTOCOL_VERSION,
        roots: vec![RootInfo {
            name: "strategy".to_owned(),
            writable: true,
            git: GitAccess::Write,
            vault: true,
        }],
        tools: ToolName::ALL.to_vec(),
        requesters: vec!["Owner".to_owned()],
        degraded: Vec::new(),
        stopped: None,
    }
}

/// An answer that no test looks into.
pub(crate) fn broken() -> Act {
    Act::answer(Outcome::Fault(Fault::new("the fake was not told what to answer")))
}
