//! `sage-connector run` against the fake Discord.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::chat::write_private;
use crate::discord::FakeDiscord;
use crate::programs::program;

/// How long anything may take before a test says that it hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until something holds.
///
/// # Panics
/// When it does not in two minutes; says what was awaited.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let limit = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < limit, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A guild with a channel, a person, and a binding for them.
pub struct Place {
    /// The fake.
    pub fake: FakeDiscord,
    /// The guild.
    pub guild: u64,
    /// The one channel that is listened to.
    pub channel: u64,
    /// The one person who may talk.
    pub owner: u64,
    base: PathBuf,
    binding: Value,
    /// How much it logs, as `RUST_LOG` has it.
    log: &'static str,
}

impl Place {
    /// In this folder, for an executor at this socket.
    ///
    /// # Panics
    /// When the fake cannot be started.
    #[must_use]
    pub fn new(base: &Path, executor: &Path) -> Self {
        let fake = FakeDiscord::start().expect("loopback has ports");
        fake.clock(|clock| clock.run(1));
        let guild = fake.guild("Guild");
        let channel = fake.channel(guild, "strategy");
        let owner = fake.user("Owner");
        let token = base.join("discord-token");
        write_private(&token, FakeDiscord::TOKEN);
        let binding = json!({
            "name": "sage",
            "dataRoot": base.join("connector"),
            "executor": {"socket": executor},
            "engine": {"kind": "rules"},
            "terminal": {"requester": "Owner"},
            "discord": {
                "guild": guild.to_string(),
                "bot": FakeDiscord::BOT.to_string(),
                "channels": {channel.to_string(): "all"},
                "users": {owner.to_string(): "Owner"},
                "token": {"file": token},
                "restUrl": fake.rest_url(),
                "gatewayUrl": fake.gateway_url(),
            },
        });
        let place = Self {
            fake,
            guild,
            channel,
            owner,
            base: base.to_owned(),
            binding,
            log: "connector=debug",
        };
        place.write();
        place
    }

    fn write(&self) {
        write_private(&self.path(), &self.binding.to_string());
    }

    /// The binding's file.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.base.join("discord.json")
    }

    /// Changes the binding.
    pub fn change(&mut self, change: impl FnOnce(&mut Value)) {
        change(&mut self.binding);
        self.write();
    }

    /// Changes the binding where it is, as somebody who edits it for a reload.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn edit(&mut self, change: impl FnOnce(&mut Value)) {
        change(&mut self.binding);
        std::fs::write(self.path(), self.binding.to_string()).expect("it is ours");
    }

    /// From now on everything is logged that can be.
    pub fn log_all(&mut self) {
        self.log = "trace";
    }

    /// What the outbox says of a nonce, line by line: `intent`, or the state of a result.
    ///
    /// # Panics
    /// When a line is no JSON.
    #[must_use]
    pub fn outbox(&self, nonce: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.folder().join("outbox.jsonl")).unwrap_or_default();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        let about = lines.filter(|line| line["nonce"] == nonce);
        about.map(|line| line["state"].as_str().unwrap_or("intent").to_owned()).collect()
    }

    /// The folder of the binding's data.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.base.join("connector/sage")
    }

    /// A command of `sage-connector` about this binding.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn command(&self, arguments: &[&str]) -> Output {
        self.program(arguments).output().expect("it starts")
    }

    fn program(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(program("sage-connector"));
        command
            .args(arguments)
            .arg("--binding")
            .arg(self.path())
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("RUST_LOG", self.log)
            .stdin(Stdio::null());
        command
    }

    /// Starts it, and waits until Discord has it.
    #[must_use]
    pub fn start(&self) -> Service {
        let before = self.fake.seen().gateway.readies;
        let service = self.launch(&["run"]);
        self.fake.wait("it is ready", |seen| seen.gateway.readies > before);
        service
    }

    /// The same as a service manager does: a lock whose owner is gone is cleared first.
    #[must_use]
    pub fn start_supervised(&self) -> Service {
        let before = self.fake.seen().gateway.readies;
        let service = self.launch(&["run", "--supervised"]);
        self.fake.wait("it is ready", |seen| seen.gateway.readies > before);
        service
    }

    /// Starts it, whatever becomes of it.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn launch(&self, arguments: &[&str]) -> Service {
        let log = self.base.join("connector.log");
        let file = File::options().create(true).append(true).open(&log).expect("a file");
        let child = self.program(arguments).stdout(Stdio::null()).stderr(file).spawn();
        Service { child: child.expect("it starts"), log }
    }

    /// The owner writes in the channel; the message's id.
    #[must_use]
    pub fn say(&self, text: &str) -> u64 {
        self.fake.post(self.channel, self.owner, text)
    }

    /// What Sage answered to a message, in order; waits until its turn has a record and every part its
    /// place in Discord.
    ///
    /// # Panics
    /// When that does not come about.
    #[must_use]
    pub fn answers(&self, message: u64) -> Vec<String> {
        let record = self.record(message);
        let deliveries = record["deliveries"].as_array().map_or(&[][..], Vec::as_slice);
        let parts = deliveries.iter().filter(|said| said["kind"] != "receipt").count();
        let answers = |seen: &crate::discord::Seen| -> Vec<String> {
            let ours = seen.from_bot().into_iter().filter(|sent| sent.reference == Some(message));
            ours.map(|sent| sent.content.clone()).collect()
        };
        let seen = self.fake.wait("the answers are there", |seen| answers(seen).len() >= parts);
        answers(&seen)
    }

    /// The turn's record.
    ///
    /// # Panics
    /// When there is none in two minutes.
    #[must_use]
    pub fn record(&self, message: u64) -> Value {
        let path = self.folder().join(format!("turns/{message}.json"));
        let limit = Instant::now() + PATIENCE;
        loop {
            if let Ok(text) = std::fs::read_to_string(&path) {
                return serde_json::from_str(&text).expect("a record is JSON");
            }
            assert!(Instant::now() < limit, "turn {message} got no record:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// What the program logged so far.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.base.join("connector.log")).unwrap_or_default()
    }
}

/// A running connector. Dropping it kills it.
#[derive(Debug)]
pub struct Service {
    child: Child,
    log: PathBuf,
}

impl Service {
    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal.
    ///
    /// # Panics
    /// When it cannot be sent.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).expect("a pid");
        kill(Pid::from_raw(pid), signal).expect("it is ours");
    }

    /// Whether it is still there.
    ///
    /// # Panics
    /// When that cannot be told.
    pub fn runs(&mut self) -> bool {
        self.child.try_wait().expect("it is ours").is_none()
    }

    /// Waits for its end; the exit code.
    ///
    /// # Panics
    /// When it does not end in two minutes.
    pub fn ended(&mut self) -> Option<i32> {
        let limit = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("it is ours") {
                return status.code();
            }
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            assert!(Instant::now() < limit, "it does not end:\n{log}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Kills it at once, as a power cut would.
    ///
    /// # Panics
    /// When it cannot be killed.
    pub fn strike(mut self) {
        self.child.kill().expect("it is ours");
        self.child.wait().expect("it is ours");
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
