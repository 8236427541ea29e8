//! What a test does in a world: calls as the owner, commits as other people.

use std::fs;
use std::path::Path;

use anyhow::Result;
use protocol::refusal::Outcome;
use protocol::service::Request;
use protocol::tool::ToolCall;
use protocol::turn::{Origin, Turn};
use protocol::wire::Client;
use serde_json::{Value, json};

use super::server::Connections;
use super::watch::Process;
use super::world::{ROOT, World, path_text};

/// How a caller gives a call up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GivingUp {
    /// It says so, and stays connected.
    Cancel,
    /// It is gone, as when it is killed.
    HangUp,
}

impl World {
    /// The executor's process number.
    ///
    /// # Panics
    /// When it does not run.
    #[must_use]
    pub fn executor_pid(&self) -> u32 {
        self.executor.as_ref().expect("the executor runs").child.id()
    }

    /// The executor's living and unreaped descendants, and strays that work for it.
    #[must_use]
    pub fn children(&self) -> Vec<Process> {
        let state = self.folder().join("state");
        let executor = self.executor_pid();
        Process::all()
            .filter(|process| process.pid != executor)
            .filter(|process| process.parent == executor || process.concerns(&state))
            .collect()
    }

    /// Calls a tool for the owner, in a turn of its own.
    ///
    /// # Panics
    /// When the call does not fit its schema, or the connection ends before an answer.
    pub fn call(&mut self, tool: &str, arguments: Value) -> Outcome {
        let request = self.request(tool, arguments);
        let socket = self.folder().join("run/executor.sock");
        let outcome = self.client.block_on(async {
            let client = Client::connect(&socket).await.expect("the executor listens");
            client.call(request).await.expect("the executor answers")
        });
        self.replies.push(format!("{outcome:?}"));
        outcome
    }

    /// Begins a call and gives it up once the server was connected to. Returns when every
    /// connection to the server is over.
    ///
    /// # Panics
    /// When the call does not fit its schema, or is answered before.
    pub fn call_and_give_up(&mut self, tool: &str, arguments: Value, how: GivingUp) {
        let request = self.request(tool, arguments);
        let socket = self.folder().join("run/executor.sock");
        let (server, over) = (&self.server, |now: &Connections| now.closed == now.opened);
        // A runtime of its own: when it goes, so does the connection, without a word.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime can be made");
        runtime.block_on(async {
            let client = Client::connect(&socket).await.expect("the executor listens");
            tokio::select! {
                outcome = client.call(request) => panic!("it was answered: {outcome:?}"),
                () = server.reached(|now| now.opened > 0) => {}
            }
            if how == GivingUp::Cancel {
                server.reached(over).await;
            }
        });
        drop(runtime);
        self.client.block_on(server.reached(over));
    }

    /// Calls a tool, and does something once the server was connected to while the call is under way.
    ///
    /// # Panics
    /// When the call does not fit its schema, or the connection ends before an answer.
    pub fn call_meanwhile(
        &mut self,
        tool: &str,
        arguments: Value,
        meanwhile: impl FnOnce(&Self),
    ) -> Outcome {
        let request = self.request(tool, arguments);
        let socket = self.folder().join("run/executor.sock");
        let call = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime can be made").block_on(async {
                let client = Client::connect(&socket).await.expect("the executor listens");
                client.call(request).await.expect("the executor answers")
            })
        });
        self.client.block_on(self.server.reached(|now| now.opened > 0));
        meanwhile(self);
        call.join().expect("it was answered")
    }

    fn request(&mut self, tool: &str, arguments: Value) -> Request {
        self.calls += 1;
        Request {
            id: format!("call-{}", self.calls),
            turn: Turn {
                id: format!("turn-{}", self.calls),
                requester: Some("Owner".to_owned()),
                origin: Origin::Terminal,
            },
            call: ToolCall::from_json(tool, arguments).expect("the call fits its schema"),
            approved: None,
        }
    }

    /// Writes a file in the clone and commits it through the executor.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn commit(&mut self, file: &str, text: &[u8]) -> Outcome {
        fs::write(self.clone_path().join(file), text).expect("the clone is writable");
        let arguments = json!({"root": ROOT, "message": format!("Write {file}"), "paths": [file]});
        self.call("git_commit", arguments)
    }

    /// `git_push` through the executor.
    pub fn push(&mut self) -> Outcome {
        self.call("git_push", json!({"root": ROOT}))
    }

    /// `git_pull` through the executor.
    pub fn pull(&mut self) -> Outcome {
        self.call("git_pull", json!({"root": ROOT}))
    }

    /// Commits in the clone as a person does, past the executor.
    ///
    /// # Errors
    /// git's.
    pub fn commit_by_hand(&self, file: &str) -> Result<()> {
        self.commit_in(&self.clone_path(), file)
    }

    /// Commits in another person's clone and pushes it to the bare repository directly.
    ///
    /// # Errors
    /// git's.
    pub fn commit_elsewhere(&self, file: &str) -> Result<()> {
        let (other, bare) = (self.folder().join("elsewhere"), self.bare());
        self.git(&["-C", path_text(&other)?, "pull", "--quiet", "--ff-only"])?;
        self.commit_in(&other, file)?;
        self.git(&["-C", path_text(&other)?, "push", "--quiet", path_text(&bare)?, "main"])?;
        Ok(())
    }

    fn commit_in(&self, clone: &Path, file: &str) -> Result<()> {
        fs::write(clone.join(file), format!("{file}\n"))?;
        let clone = path_text(clone)?;
        self.git(&["-C", clone, "add", "--", file])?;
        self.git(&["-C", clone, "commit", "--quiet", "-m", file])?;
        Ok(())
    }
}
