//! An executor that takes for ever: stopped by a signal, until it is let go.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::world::World;

/// Dropping it lets the executor go on.
#[derive(Debug)]
#[must_use]
pub struct Held(Pid);

impl World {
    /// Holds the executor up in the middle of whatever it does.
    ///
    /// # Panics
    /// When it is not running.
    pub fn hold(&self) -> Held {
        let pid = Pid::from_raw(i32::try_from(self.executor_pid()).expect("a pid is small"));
        kill(pid, Signal::SIGSTOP).expect("it is our child");
        Held(pid)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = kill(self.0, Signal::SIGCONT);
    }
}
