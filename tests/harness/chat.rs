//! `sage-connector chat`, as a person at a terminal uses it: a message in, a turn's record and an
//! answer out.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::programs::program;
use crate::world::World;

/// How long a turn may take before a test says that it hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running chat. Dropping it kills it.
#[derive(Debug)]
pub struct Chat {
    child: Child,
    input: Option<ChildStdin>,
    binding: PathBuf,
    folder: PathBuf,
    output: PathBuf,
    seen: BTreeSet<String>,
    shown: usize,
}

/// How a turn ended.
#[derive(Debug)]
pub struct Told {
    /// The turn's record.
    pub record: Value,
    /// What was printed.
    pub text: String,
}

impl Told {
    /// The tools that were called, each with how it ended.
    #[must_use]
    pub fn calls(&self) -> Vec<(String, String)> {
        let calls = self.record["calls"].as_array().map_or(&[][..], Vec::as_slice);
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        calls.iter().map(|call| (word(&call["tool"]), word(&call["result"]["outcome"]))).collect()
    }

    /// How it ended.
    #[must_use]
    pub fn state(&self) -> &str {
        self.record["outcome"]["state"].as_str().unwrap_or_default()
    }

    /// Why it failed.
    #[must_use]
    pub fn reason(&self) -> &str {
        self.record["outcome"]["reason"].as_str().unwrap_or_default()
    }
}

/// A binding for this world, with this `engine` section.
#[must_use]
pub fn binding(world: &World, engine: Value) -> Value {
    json!({
        "name": "sage",
        "dataRoot": world.base().join("connector"),
        "executor": {"socket": world.socket()},
        "engine": engine,
        "terminal": {"requester": "Owner"},
    })
}

/// Writes a file that only we can read.
///
/// # Panics
/// When it cannot be written.
pub fn write_private(path: &Path, text: &str) {
    let _ = std::fs::remove_file(path);
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).expect("a file can be written");
}

impl Chat {
    /// Starts with this `engine` section.
    #[must_use]
    pub fn start(world: &World, engine: Value) -> Self {
        Self::start_bound(world, &binding(world, engine))
    }

    /// Starts with this binding.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn start_bound(world: &World, binding: &Value) -> Self {
        let path = world.base().join("binding.json");
        write_private(&path, &binding.to_string());
        let folder = world.base().join("connector/sage");
        let output = world.base().join("chat.out");
        let log = |name: &str| {
            let file = File::options().create(true).append(true).open(world.base().join(name));
            file.expect("a file can be made")
        };
        let shown = std::fs::metadata(&output).map_or(0, |meta| meta.len());
        let mut child = Command::new(program("sage-connector"))
            .args(["chat", "--binding"])
            .arg(&path)
            .env_clear()
            // A proxy that is not there: a program that took it would reach nothing.
            .envs(
                ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"].map(|name| (name, "http://127.0.0.1:9")),
            )
            .envs(
                ["http_proxy", "https_proxy", "all_proxy"].map(|name| (name, "http://127.0.0.1:9")),
            )
            .env("PATH", "/usr/bin:/bin")
            .stdin(Stdio::piped())
            .stdout(log("chat.out"))
            .stderr(log("chat.err"))
            .spawn()
            .expect("the connector starts");
        let input = child.stdin.take();
        let mut chat = Self {
            child,
            input,
            binding: path,
            folder,
            output,
            seen: BTreeSet::new(),
            shown: usize::try_from(shown).expect("it is short"),
        };
        chat.seen = chat.records();
        chat
    }

    /// Says something and waits until the turn is over and the answer is out.
    pub fn say(&mut self, message: &str) -> Told {
        self.send(message);
        self.wait()
    }

    /// Says something and does not wait.
    ///
    /// # Panics
    /// When the connector is gone.
    pub fn send(&mut self, message: &str) {
        let line = message.replace('\n', "\\\n");
        let input = self.input.as_mut().expect("the input is open");
        writeln!(input, "{line}").and_then(|()| input.flush()).expect("the connector reads");
    }

    /// Waits for the end of the turn that is under way.
    ///
    /// # Panics
    /// When the connector ends instead, or takes too long.
    pub fn wait(&mut self) -> Told {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let ended = self.child.try_wait().expect("it is our child");
            let new = self.records().difference(&self.seen).next().cloned();
            if let Some(id) = new
                && let Some(told) = self.told(&id)
            {
                self.seen.insert(id);
                // A turn that an earlier process left behind got its record at this start.
                if told.state() == "interrupted" {
                    continue;
                }
                return told;
            }
            assert!(ended.is_none(), "the connector ended ({ended:?}): {}", self.log());
            assert!(Instant::now() < deadline, "the turn does not end: {}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The turn, once everything that was to be said of it is out.
    fn told(&mut self, id: &str) -> Option<Told> {
        let record = std::fs::read(self.folder.join("turns").join(format!("{id}.json"))).ok()?;
        let record: Value = serde_json::from_slice(&record).expect("a record is whole");
        let outbox = std::fs::read_to_string(self.folder.join("outbox.jsonl")).ok()?;
        let lines: Vec<&str> = outbox.lines().collect();
        let deliveries = record["deliveries"].as_array().expect("a record has deliveries");
        let settled = deliveries.iter().all(|delivery| {
            let nonce = delivery["nonce"].as_str().unwrap_or_default();
            lines.iter().filter(|line| line.contains(&format!("\"{nonce}\""))).count() >= 2
        });
        if !settled {
            return None;
        }
        let output = std::fs::read(&self.output).expect("there is an output");
        let text = String::from_utf8_lossy(&output[self.shown..]).into_owned();
        self.shown = output.len();
        Some(Told { record, text })
    }

    fn records(&self) -> BTreeSet<String> {
        let entries = std::fs::read_dir(self.folder.join("turns"));
        let names = entries.into_iter().flatten().flatten().map(|entry| entry.file_name());
        names
            .filter_map(|name| name.to_str()?.strip_suffix(".json").map(str::to_owned))
            .filter(|name| !name.starts_with('.'))
            .collect()
    }

    /// The folder of the binding's data.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it said on standard error.
    #[must_use]
    pub fn log(&self) -> String {
        let log = self.binding.with_file_name("chat.err");
        std::fs::read_to_string(log).unwrap_or_default()
    }

    /// Kills it with SIGKILL.
    pub fn kill(self) {
        drop(self);
    }

    /// Ends the input and waits for the program; its exit code.
    ///
    /// # Panics
    /// When it was killed.
    pub fn end(mut self) -> i32 {
        drop(self.input.take());
        let status = self.child.wait().expect("it is our child");
        status.code().expect("it was not killed")
    }
}

impl Drop for Chat {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
