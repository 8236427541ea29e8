//! A world: a temporary folder with a clone, its bare remote, and the executor that serves them.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use protocol::explain::Explanation;
use protocol::refusal::{Fault, Outcome};
use protocol::service::{Description, Request};
use protocol::wire::{Client, WireError};
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::builder::Builder;
use crate::cli::{Run, Said};
use crate::git::Repo;
use crate::programs::program;
use crate::turn::Turn;

/// How long the executor may take to be ready before a test says that it hangs.
const PATIENCE: Duration = Duration::from_secs(90);

/// The folder of everything; removed with the world.
#[derive(Debug)]
pub(crate) struct Folders {
    pub(crate) base: PathBuf,
    pub(crate) _temporary: TempDir,
}

/// A clone, its remote, and the executor.
#[derive(Debug)]
pub struct World {
    clone: Repo,
    environment: Vec<(String, String)>,
    start_in: PathBuf,
    runtime: Runtime,
    client: Mutex<Option<Client>>,
    executor: Option<Executor>,
    turns: AtomicU64,
    // Last, so that the folder goes after the executor.
    folders: Folders,
}

/// The executor's process; killed when dropped.
#[derive(Debug)]
struct Executor(Child);

impl Drop for Executor {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl World {
    /// A world that is still to be described.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// The plainest world.
    #[must_use]
    pub fn new_plain() -> Self {
        Self::builder().build()
    }

    pub(crate) fn new(
        folders: Folders,
        clone: Repo,
        environment: Vec<(String, String)>,
        start_in: PathBuf,
    ) -> Self {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime can be made");
        let (client, executor, turns) = (Mutex::new(None), None, AtomicU64::new(0));
        Self { clone, environment, start_in, runtime, client, executor, turns, folders }
    }

    /// The folder of everything.
    #[must_use]
    pub fn base(&self) -> &Path {
        &self.folders.base
    }

    /// A folder in which a trap may leave a mark.
    #[must_use]
    pub fn markers(&self) -> PathBuf {
        self.base().join("markers")
    }

    /// The executor's socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.base().join("run/executor.sock")
    }

    /// The executor's state directory.
    #[must_use]
    pub fn state(&self) -> PathBuf {
        self.base().join("state")
    }

    /// The clone that is the root `strategy`.
    #[must_use]
    pub fn clone_dir(&self) -> &Repo {
        &self.clone
    }

    /// Another folder of the world, for plain git.
    #[must_use]
    pub fn repo(&self, folder: &str) -> Repo {
        self.clone.beside(self.base().join(folder))
    }

    /// Another clone of the remote: somebody else's.
    #[must_use]
    pub fn other_clone(&self) -> Repo {
        let other = self.repo("other");
        if !other.dir().exists() {
            self.repo("").git(&["clone", "--quiet", "remote.git", "other"]);
        }
        other
    }

    /// Somebody else commits a file and pushes it; the commit.
    pub fn others_push(&self, path: &str, text: &str) -> String {
        let other = self.other_clone();
        other.git(&["pull", "--quiet", "--ff-only"]);
        let head = other.commit_file(path, text, &format!("Somebody changes {path}"));
        other.git(&["push", "--quiet", "origin", "HEAD:main"]);
        head
    }

    /// Plain git in the clone.
    pub fn git<A: AsRef<OsStr>>(&self, arguments: &[A]) -> String {
        self.clone.git(arguments)
    }

    /// Where the remote's branch is.
    #[must_use]
    pub fn remote_head(&self) -> String {
        self.repo("remote.git").git(&["rev-parse", "refs/heads/main"])
    }

    /// The audit, line by line.
    ///
    /// # Panics
    /// When a line is not JSON.
    #[must_use]
    pub fn audit_lines(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.audit()).expect("there is an audit");
        text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
    }

    /// The audit's file.
    #[must_use]
    pub fn audit(&self) -> PathBuf {
        self.state().join("audit.jsonl")
    }

    /// Runs a command of `sage-executor` with this world's configuration.
    #[must_use]
    pub fn command<A: AsRef<OsStr>>(&self, name: &str, arguments: &[A]) -> Said {
        let config = self.config_file();
        let words = [OsStr::new(name), OsStr::new("--config"), config.as_os_str()];
        Run::executor(words.into_iter().chain(arguments.iter().map(AsRef::as_ref))).piped()
    }

    /// The executor's configuration.
    #[must_use]
    pub fn config_file(&self) -> PathBuf {
        self.base().join("executor.json")
    }

    /// What the executor said on standard error.
    #[must_use]
    pub fn executor_log(&self) -> String {
        std::fs::read_to_string(self.base().join("executor.log")).unwrap_or_default()
    }

    /// The executor's process id.
    ///
    /// # Panics
    /// When it is not running.
    #[must_use]
    pub fn executor_pid(&self) -> u32 {
        self.executor.as_ref().expect("the executor runs").0.id()
    }

    /// Starts the executor and waits until it serves.
    ///
    /// # Panics
    /// When it ends instead, with what it said.
    pub fn start(&mut self) {
        let log = File::options().create(true).append(true).open(self.base().join("executor.log"));
        let child = Command::new(program("sage-executor"))
            .args(["serve", "--config"])
            .arg(self.base().join("executor.json"))
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(&self.start_in)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.expect("the log can be written"))
            .spawn()
            .expect("the executor starts");
        self.executor = Some(Executor(child));
        let client = self.wait_until_ready();
        *self.client.lock().expect("nobody panicked") = Some(client);
    }

    fn wait_until_ready(&mut self) -> Client {
        let deadline = Instant::now() + PATIENCE;
        let socket = self.socket();
        loop {
            let executor = self.executor.as_mut().expect("it was started");
            if let Some(status) = executor.0.try_wait().expect("it is our child") {
                panic!("the executor ended ({status}) and said:\n{}", self.executor_log());
            }
            // The socket is there before it is served: a greeting is the proof.
            let client = async {
                let client = Client::connect(&socket).await?;
                client.describe().await.map(|_| client)
            };
            match self.runtime.block_on(client) {
                Ok(client) => return client,
                Err(error) if Instant::now() > deadline => {
                    panic!("the executor is not ready: {error}; it said:\n{}", self.executor_log())
                }
                Err(_) => std::thread::yield_now(),
            }
        }
    }

    /// Starts the executor, which must refuse to; what it said.
    ///
    /// # Panics
    /// When it serves.
    pub fn start_refused(&mut self) -> String {
        let output = Command::new(program("sage-executor"))
            .args(["serve", "--config"])
            .arg(self.base().join("executor.json"))
            .env_clear()
            .output()
            .expect("the executor starts");
        assert!(!output.status.success(), "the executor should not have started");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// Kills the executor with SIGKILL and waits until it is gone.
    pub fn kill_executor(&mut self) {
        *self.client.lock().expect("nobody panicked") = None;
        self.executor = None;
    }

    /// Kills the executor with SIGKILL, from beside a call that is under way. [`World::restart`]
    /// comes next.
    ///
    /// # Panics
    /// When it is not running.
    pub fn strike(&self) {
        let pid = i32::try_from(self.executor_pid()).expect("a pid is small");
        let pid = nix::unistd::Pid::from_raw(pid);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).expect("it is our child");
    }

    /// Kills the executor and starts it again.
    pub fn restart(&mut self) {
        self.kill_executor();
        self.start();
    }

    /// Runs `sage-executor` with other arguments; status and standard output.
    ///
    /// # Panics
    /// When it does not start.
    pub fn executor_command<A: AsRef<OsStr>>(&self, arguments: &[A]) -> (bool, String) {
        let mut command = Command::new(program("sage-executor"));
        let output = command.args(arguments).env_clear().output().expect("it starts");
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// A new turn for a person.
    #[must_use]
    pub fn turn(&self, requester: &str) -> Turn<'_> {
        Turn::new(self, self.next_turn(), Some(requester))
    }

    /// A new turn for nobody.
    #[must_use]
    pub fn turn_for_nobody(&self) -> Turn<'_> {
        Turn::new(self, self.next_turn(), None)
    }

    /// A turn with an id of the test's choice.
    #[must_use]
    pub fn turn_named(&self, id: &str, requester: &str) -> Turn<'_> {
        Turn::new(self, id.to_owned(), Some(requester))
    }

    fn next_turn(&self) -> String {
        format!("turn-{}", self.turns.fetch_add(1, Ordering::Relaxed))
    }

    /// What the executor offers.
    ///
    /// # Panics
    /// When it does not answer.
    #[must_use]
    pub fn describe(&self) -> Description {
        let client = self.client();
        self.runtime.block_on(client.describe()).expect("the executor answers")
    }

    fn client(&self) -> Client {
        let client = self.client.lock().expect("nobody panicked");
        client.clone().expect("the executor runs")
    }

    /// Sends a request on a connection of its own, and leaves after a while without an answer.
    pub(crate) fn send_and_leave(&self, request: Request, patience: Duration) {
        let socket = self.socket();
        self.runtime.block_on(async move {
            let client = Client::connect(&socket).await.expect("the executor is there");
            let _ = tokio::time::timeout(patience, client.call(request)).await;
        });
    }

    pub(crate) fn explain(
        &self,
        request: Request,
    ) -> Result<Result<Explanation, Fault>, WireError> {
        let client = self.client();
        self.runtime.block_on(client.explain(request))
    }

    pub(crate) fn send(&self, request: Request) -> Result<Outcome, WireError> {
        let client = self.client();
        self.runtime.block_on(client.call(request))
    }
}
