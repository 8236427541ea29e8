//! The demo's executor: the program beside this one, started, awaited, and ended for certain.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use protocol::service::Description;
use protocol::wire::{Client, WireError};

use super::world::World;
use crate::render::printable;

/// How long the executor may take to become ready.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// How long it may take to end by itself when asked to.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// How often to look.
const POLL: Duration = Duration::from_millis(20);

/// A running executor. Dropping it ends and reaps the process.
pub(super) struct Daemon {
    child: Child,
    log: PathBuf,
}

impl Daemon {
    /// Starts the executor that is beside this program.
    pub(super) fn start(world: &World) -> Result<Self> {
        let program = beside_this_program()?;
        let log = world.folder().join("executor.log");
        let child = Command::new(&program)
            .arg("serve")
            .arg("--config")
            .arg(world.executor_config())
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?)
            // A group of its own: Ctrl-C stops a turn here and must not reach the executor.
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        Ok(Self { child, log })
    }

    /// Its process id.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it answers.
    pub(super) async fn ready(&mut self, socket: &Path) -> Result<Description> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            if let Some(status) = self.child.try_wait()? {
                bail!("the executor could not start ({status}). It says:\n{}", self.log());
            }
            match Client::connect(socket).await {
                Ok(client) => return Ok(client.describe().await?),
                Err(WireError::Connect { .. }) if Instant::now() < deadline => {
                    tokio::time::sleep(POLL).await;
                }
                Err(error) => {
                    return Err(error)
                        .with_context(|| format!("the executor is not ready; {}", self.log()));
                }
            }
        }
    }

    /// The end of what it wrote to standard error.
    pub(super) fn log(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let tail = &text[text.len().saturating_sub(8192)..];
        printable(String::from_utf8_lossy(tail).trim())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Nothing below can be reported from here; the kill and the wait are what must happen.
        // A process that was reaped already has no pid of its own any more.
        if matches!(self.child.try_wait(), Ok(None))
            && let Ok(pid) = i32::try_from(self.child.id())
            && kill(Pid::from_raw(pid), Signal::SIGTERM).is_ok()
        {
            let deadline = Instant::now() + STOP_TIMEOUT;
            while Instant::now() < deadline {
                match self.child.try_wait() {
                    Ok(None) => std::thread::sleep(POLL),
                    Ok(Some(_)) | Err(_) => break,
                }
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn beside_this_program() -> Result<PathBuf> {
    let this = std::env::current_exe().context("cannot tell where this program is")?;
    let program = this.with_file_name("sage-executor");
    if !program.is_file() {
        bail!("there is no {}; build both programs with: cargo build", program.display());
    }
    Ok(program)
}
