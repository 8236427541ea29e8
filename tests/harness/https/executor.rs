//! The real executor as a child of the test.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread::JoinHandle;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::programs::program;

/// A running executor. Dropping it kills and reaps it.
pub(super) struct Executor {
    pub(super) child: Child,
    log: Option<JoinHandle<()>>,
}

impl Executor {
    /// Starts it, and waits for the line that says it is ready.
    pub(super) fn start(config: &Path, log: &Path, credentials: Option<&Path>) -> Result<Self> {
        let program = program("sage-executor");
        let mut command = Command::new(&program);
        command.env_clear().env("PATH", "/usr/bin:/bin").arg("serve").arg("--config").arg(config);
        command.envs(credentials.map(|folder| ("CREDENTIALS_DIRECTORY", folder)));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child =
            command.spawn().with_context(|| format!("{} does not start", program.display()))?;
        let stderr = child.stderr.take().context("standard error is a pipe")?;
        let (mut file, log_path) = (fs::File::create(log)?, log.to_owned());
        let (ready, is_ready) = mpsc::channel();
        let log = std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                // Written before it is told, so that whoever is told can read it.
                let _ = writeln!(file, "{line}");
                if line.contains(": ready") {
                    let _ = ready.send(());
                }
            }
        });
        let mut executor = Self { child, log: Some(log) };
        if is_ready.recv().is_err() {
            let status = executor.child.wait()?;
            bail!("the executor ended ({status}): {}", fs::read_to_string(log_path)?);
        }
        Ok(executor)
    }

    pub(super) fn stop(mut self) -> Result<()> {
        kill(Pid::from_raw(i32::try_from(self.child.id())?), Signal::SIGTERM)?;
        let status = self.child.wait()?;
        if let Some(log) = self.log.take() {
            let _ = log.join();
        }
        ensure!(status.success(), "the executor ended with {status}");
        Ok(())
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(log) = self.log.take() {
            let _ = log.join();
        }
    }
}
