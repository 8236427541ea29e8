//! The engine that lets pi think: a `pi --mode rpc` child that lives over many turns.
//!
//! pi keeps the conversation and talks to the model; the tools are ours. It runs confined
//! ([`place`]): it starts no program, reads nothing of ours, and reaches nothing but the ports of its
//! model. Its one extension forwards each call over an inherited socket, and each is done here, by the
//! [`ToolRunner`] of the turn that runs.
//!
//! What must stay true: at most one prompt is under way. Before each, pi is stopped and its queue is
//! emptied, and only its answer to that makes the turn begin; so whatever an earlier turn left behind,
//! an event, a call or a queued message, comes before that answer and is dropped. A turn whose future
//! is dropped stops pi at once. A pi that does not answer is killed, and the next turn starts another
//! one, which goes on with the same conversation.

mod child;
mod config;
mod event;
mod lines;
mod place;
mod turn;

use std::io;
use std::path::Path;
use std::time::Duration;

pub use config::{EndpointConfig, PiConfig, Thinking};
use confine::ConfineError;
use confine::grants::Grants;
use confine::kernel::KernelSupport;
use confine::launcher::Launcher;
pub use event::any_arrival_reads_the_same;
use protocol::turn::Origin;

use self::child::{Incoming, Running};
use self::event::{Event, Request};
use self::place::{Given, Place};
use self::turn::{Broken, Ended, Turn};
use super::context::Context;
use super::{Answer, Engine, EngineError, ToolRunner};
use crate::private_file::{self, Kind, PrivateFileError, Secret};
use crate::prompt::Prompt;
use crate::render;

/// How long pi may take to come up, or to stop what it is doing, before it is taken for dead.
const PATIENCE: Duration = Duration::from_secs(30);
/// The longest reason of a failure, in characters.
const MAX_REASON: usize = 300;

/// The engine.
///
/// Its turns must be run by a thread that lives as long as the engine is used: the kernel kills pi when
/// the thread that started it ends.
#[derive(Debug)]
pub struct Pi {
    place: Place,
    context: Context,
    key: Option<Secret>,
    launcher: Launcher,
    patience: Duration,
    running: Option<Running>,
    turns: u64,
}

/// Why the engine cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum PiError {
    /// The key file is not what it must be.
    #[error(transparent)]
    Key(#[from] PrivateFileError),
    /// The kernel cannot hold pi to its bounds.
    #[error("pi cannot be confined here: {0}")]
    Kernel(#[from] ConfineError),
    /// Something that is to run is not there.
    #[error("{path} is not there; install pi (docs/configuration.md), or change `engine.pi.{key}`")]
    Missing {
        /// The file.
        path: String,
        /// Which key names it.
        key: &'static str,
    },
    /// What pi may read would hold what it must not.
    #[error(
        "`engine.pi.install` lies around the data folder {0}, so that pi could read it; install pi elsewhere"
    )]
    Exposes(String),
}

impl Pi {
    /// The engine of a binding, whose data folder is `folder`. pi is started by the first turn.
    ///
    /// # Errors
    /// See [`PiError`].
    pub fn new(config: &PiConfig, context: Context, folder: &Path) -> Result<Self, PiError> {
        let launcher = Launcher::new(KernelSupport::detect());
        Self::with_launcher(config, context, folder, launcher)
    }

    /// As [`Self::new`], with a launcher whose role another binary plays, for tests.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_launcher(
        config: &PiConfig,
        context: Context,
        folder: &Path,
        launcher: Launcher,
    ) -> Result<Self, PiError> {
        let connect_ports = config.connect_ports.clone();
        KernelSupport::detect().check(&Grants { files: Vec::new(), connect_ports })?;
        for (path, key) in [(config.node(), "node"), (config.cli(), "cli")] {
            if !path.is_file() {
                return Err(PiError::Missing { path: path.display().to_string(), key });
            }
        }
        if config.exposes(folder) {
            return Err(PiError::Exposes(folder.display().to_string()));
        }
        let key = config.key_file.as_deref();
        let key = key.map(|path| private_file::read_secret(path, Kind::Key)).transpose()?;
        let place = Place::new(config, folder);
        let (patience, running, turns) = (PATIENCE, None, 0);
        Ok(Self { place, context, key, launcher, patience, running, turns })
    }

    /// How long pi may take to come up, or to stop what it is doing.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// What the operator's files say, which stands before everything else that the model is told.
    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// The model's name.
    pub(crate) fn model(&self) -> &str {
        self.place.model()
    }

    /// The process id of the pi that runs now.
    #[must_use]
    pub fn process(&self) -> Option<u32> {
        self.running.as_ref().map(Running::id)
    }

    /// What this process must itself be able to reach, beside the binding's folder, so that pi can.
    ///
    /// # Errors
    /// When node cannot be read.
    pub fn child_grants(&self) -> io::Result<Grants> {
        self.place.outside()
    }

    /// Whether pi comes up under its confinement and knows the model. It runs in a folder of its own,
    /// beside a conversation that may be going on, and asks no model anything.
    ///
    /// # Errors
    /// Why not, on one line, for the operator.
    pub async fn probe(&self) -> Result<String, String> {
        let why = |what: &str, error: &str| self.failed(what, error).to_string();
        let folder = tempfile::Builder::new().prefix("sage-pi-check-").tempdir();
        let folder = folder.map_err(|error| why("has no folder", &error.to_string()))?;
        let place = self.place.beside(folder.path());
        let conversation = Origin::Terminal;
        let given = Given { conversation, system: String::new(), tools: Vec::new() };
        let mut running = Running::start(&place, given, self.key.as_ref(), &self.launcher)
            .map_err(|error| why("cannot be started", &error.to_string()))?;
        match tokio::time::timeout(self.patience, settle(&mut running, 0)).await {
            Ok(Ok(())) => Ok(format!("pi comes up, confined, with {}", self.place.model())),
            Ok(Err(Gone)) => Err(why("did not start", &running.last_words().await)),
            Err(_) => Err(why("did not come up", "it answered nothing in time")),
        }
    }

    /// Makes sure of a pi that is idle, has an empty queue, and was told this. One that was started
    /// before and does not answer any more is replaced, once.
    async fn make_ready(&mut self, given: Given) -> Result<(), EngineError> {
        self.running = self.running.take().filter(|running| running.given == given);
        if let Some(running) = &mut self.running {
            if let Ok(Ok(())) =
                tokio::time::timeout(self.patience, settle(running, self.turns)).await
            {
                return Ok(());
            }
            tracing::warn!("pi does not answer; another one is started");
            self.running = None;
        }
        let started = Running::start(&self.place, given, self.key.as_ref(), &self.launcher);
        let running =
            started.map_err(|error| self.failed("cannot be started", &error.to_string()))?;
        // Kept from now on, so that a turn that is dropped meanwhile does not waste it.
        let running = self.running.insert(running);
        match tokio::time::timeout(self.patience, settle(running, self.turns)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(Gone)) => Err(self.gone("did not start").await),
            Err(_) => {
                self.running = None;
                Err(self.failed("did not come up", "it answered nothing in time"))
            }
        }
    }

    /// pi is gone: forgets it, and says why.
    async fn gone(&mut self, what: &str) -> EngineError {
        let reason = match self.running.take() {
            Some(running) => running.last_words().await,
            None => String::new(),
        };
        self.failed(what, &reason)
    }

    fn failed(&self, what: &str, why: &str) -> EngineError {
        let masked = self.key.as_ref().map_or_else(|| why.to_owned(), |key| key.mask(why));
        let short: String = render::one_line(&masked).chars().take(MAX_REASON).collect();
        EngineError::Model(format!("pi {what}: {short}"))
    }

    fn answer(&self, ended: Ended) -> Result<Answer, EngineError> {
        let Ended { last, usage } = ended;
        let Some(last) = last else {
            return Err(EngineError::Model("pi ended the turn without a message".to_owned()));
        };
        match last.stop.as_str() {
            "error" | "aborted" => {
                Err(self.failed("has no answer", &last.error.unwrap_or(last.stop)))
            }
            _ => Ok(Answer { text: last.text, usage: Some(usage) }),
        }
    }
}

impl Engine for Pi {
    fn name(&self) -> &'static str {
        "pi"
    }

    async fn run_turn<T: ToolRunner>(
        &mut self,
        prompt: &Prompt,
        tools: &mut T,
    ) -> Result<Answer, EngineError> {
        self.turns += 1;
        let system = self.context.before(&prompt.system);
        let tools_on_offer = prompt.offer.tools.clone();
        let conversation = prompt.origin;
        self.make_ready(Given { conversation, system, tools: tools_on_offer }).await?;
        let Some(running) = &mut self.running else {
            return Err(EngineError::Model("pi is not there".to_owned()));
        };
        let mut turn = Turn::begin(running, self.turns, &prompt.envelope);
        let ended = turn.run(tools).await;
        // A turn that did not end by itself stops pi here.
        drop(turn);
        match ended {
            Ok(ended) => self.answer(ended),
            Err(Broken::Gone) => Err(self.gone("crashed").await),
            Err(Broken::Wire(error)) => Err(error.into()),
            Err(Broken::Line(what)) => Err(self.failed("said what cannot be read", what)),
            Err(Broken::Prompt(why)) => Err(self.failed("did not take the message", &why)),
        }
    }
}

/// pi is not there any more.
struct Gone;

/// Stops whatever pi still does for an earlier turn and empties its queue. When this returns, all that
/// comes from pi is of this turn: both of its streams were followed until they answered.
async fn settle(running: &mut Running, turn: u64) -> Result<(), Gone> {
    let id = format!("settle-{turn}");
    running.commands().stop(&id);
    running.fence(turn);
    let (mut stopped, mut fenced) = (false, false);
    while !(stopped && fenced) {
        match running.next().await {
            Incoming::Event(Event::Response(response)) => {
                stopped |= response.success && response.answers(&id);
                if response.cleared() > 0 {
                    tracing::warn!(messages = response.cleared(), "pi's queue was not empty");
                }
            }
            Incoming::Request(Request::Turn { turn: of }) => fenced |= of == turn,
            Incoming::Gone => return Err(Gone),
            // What an earlier turn left behind.
            Incoming::Event(_) | Incoming::Request(_) | Incoming::Garbled => {}
        }
    }
    Ok(())
}
