//! One deadline and one cancellation over everything that a call does.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use confine::cancel::Cancel;
use protocol::refusal::Code;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::tools::Failure;

/// How long is left, and whether the caller still waits.
#[derive(Debug, Clone)]
pub struct Budget {
    start: Instant,
    whole: Duration,
    cancel: Cancel,
}

impl Budget {
    /// A budget that begins now.
    #[must_use]
    pub fn new(whole: Duration, cancel: &Cancel) -> Self {
        Self { start: Instant::now(), whole, cancel: cancel.clone() }
    }

    /// A part of what is left, for one of several attempts.
    #[must_use]
    pub fn part(&self, most: Duration) -> Self {
        Self { start: Instant::now(), whole: self.left().min(most), cancel: self.cancel.clone() }
    }

    /// How long is left.
    #[must_use]
    pub fn left(&self) -> Duration {
        self.whole.saturating_sub(self.start.elapsed())
    }

    /// The cancellation.
    #[must_use]
    pub fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    /// Whether there is time left and the caller still waits.
    ///
    /// # Errors
    /// `timed_out` or `cancelled`.
    pub fn check(&self) -> Result<(), Failure> {
        if self.cancel.is_cancelled() {
            return Err(Failure::cancelled());
        }
        if self.left().is_zero() {
            return Err(Failure::refuse(
                Code::TimedOut,
                format!("It took longer than {} s and was given up.", self.whole.as_secs()),
                "Try again later, or fetch another page.",
            ));
        }
        Ok(())
    }

    /// Waits until a descriptor is ready.
    ///
    /// # Errors
    /// The budget is used up, or the caller is gone: [`Budget::check`] says which.
    pub fn wait(&self, fd: BorrowedFd<'_>, readiness: PollFlags) -> io::Result<()> {
        loop {
            let left = self.left();
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let mut both = [
                PollFd::from_borrowed_fd(fd, readiness),
                PollFd::from_borrowed_fd(self.cancel.as_fd(), PollFlags::IN),
            ];
            let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
            match poll(&mut both, Some(&timeout)) {
                Ok(_) if !both[1].revents().is_empty() => {
                    return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "cancelled"));
                }
                Ok(_) if !both[0].revents().is_empty() => return Ok(()),
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
