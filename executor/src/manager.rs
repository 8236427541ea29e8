//! The service manager: the socket that it opened for us, and what it is told.
//!
//! Without one (started by hand, in tests) nothing here does anything. What must stay true: the
//! watchdog is pinged by the loop that takes connections, and only after a thread of the pool that
//! does calls went all the way to the audit. A timer that fires proves nothing.

use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use confine::grants::{Grant, Rights};
use sd_notify::NotifyState;
use tokio::task::JoinHandle;

use crate::server::Executor;

/// The socket that the service manager listens on for us, if it does.
///
/// # Errors
/// When it passes something else than the configured socket.
pub fn passed_socket(socket: &Path) -> anyhow::Result<Option<UnixListener>> {
    let mut passed = listenfd::ListenFd::from_env();
    if passed.len() > 1 {
        bail!("the service manager passes {} sockets; one is expected", passed.len());
    }
    let listener = passed.take_unix_listener(0).context("the passed socket is no Unix socket")?;
    let Some(listener) = listener else { return Ok(None) };
    let address = listener.local_addr()?;
    if address.as_pathname() != Some(socket) {
        bail!(
            "the service manager listens on {address:?} and the configuration says {}; \
             make `socket` and ListenStream= the same",
            socket.display()
        );
    }
    Ok(Some(listener))
}

/// What the confined daemon needs to go on telling the manager. Landlock governs it from ABI 9 on.
#[must_use]
pub fn grant() -> Option<Grant> {
    let socket = PathBuf::from(std::env::var_os("NOTIFY_SOCKET")?);
    // An abstract name is no path; the kernel has no rule for it but the scope, which is not used here.
    socket
        .is_absolute()
        .then(|| Grant::optional(socket, Rights::CONNECT_UNIX, "telling the service manager"))
}

/// Serving begins.
pub fn ready() {
    tell(&[NotifyState::Ready, NotifyState::Status("serving")]);
}

/// The end begins.
pub fn stopping() {
    tell(&[NotifyState::Stopping, NotifyState::Status("finishing")]);
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "the service manager cannot be told");
    }
}

/// The pulse that the watchdog waits for.
#[derive(Debug)]
pub struct Pulse {
    ticks: Option<tokio::time::Interval>,
    beat: Option<JoinHandle<()>>,
}

impl Pulse {
    /// As often as the manager's watchdog needs it; never, without one.
    #[must_use]
    pub fn new() -> Self {
        let every = sd_notify::watchdog_enabled().map(|limit| limit / 3);
        let ticks = every.map(|every| tokio::time::interval(every.max(Duration::from_millis(50))));
        Self { ticks, beat: None }
    }

    /// Waits for the next step of the pulse. To be polled by the loop whose life it shows.
    pub async fn next(&mut self, executor: &Arc<Executor>) {
        let Some(ticks) = &mut self.ticks else { return std::future::pending().await };
        match &mut self.beat {
            None => {
                ticks.tick().await;
                let executor = Arc::clone(executor);
                self.beat = Some(tokio::task::spawn_blocking(move || executor.pulse()));
            }
            Some(beat) => {
                let beaten = beat.await;
                self.beat = None;
                if beaten.is_ok() {
                    tell(&[NotifyState::Watchdog]);
                }
            }
        }
    }
}

impl Default for Pulse {
    fn default() -> Self {
        Self::new()
    }
}
