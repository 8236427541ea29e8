//! What the service manager is told. Without one, nothing.

use std::time::Duration;

use sd_notify::NotifyState;

/// Serving begins.
pub(crate) fn ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// How it goes.
pub(crate) fn status(status: &str) {
    tell(&[NotifyState::Status(status)]);
}

/// The end begins.
pub(crate) fn stopping() {
    tell(&[NotifyState::Stopping, NotifyState::Status("finishing the turn under way")]);
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "the service manager cannot be told");
    }
}

/// The pulse that the watchdog waits for. It beats in the loop that deals with events, and in no other.
#[derive(Debug)]
pub(crate) struct Pulse(Option<tokio::time::Interval>);

impl Pulse {
    /// As often as the manager's watchdog needs it; never, without one.
    pub(crate) fn new() -> Self {
        let every = sd_notify::watchdog_enabled().map(|limit| limit / 3);
        Self(every.map(|every| tokio::time::interval(every.max(Duration::from_millis(50)))))
    }

    /// Waits for the next beat, and tells it.
    pub(crate) async fn next(&mut self) {
        let Some(ticks) = &mut self.0 else { return std::future::pending().await };
        ticks.tick().await;
        tell(&[NotifyState::Watchdog]);
    }
}
