//! Cancelling work from outside, in a form that a poll loop can wait for.
//!
//! A pipe, because the loop that drives a child already waits on descriptors. Dropping the guard
//! cancels: a caller that goes away, panics or is aborted needs no code for it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};

/// The side that may be cancelled. Clones observe the same cancellation.
#[derive(Debug, Clone)]
pub struct Cancel(Arc<OwnedFd>);

/// The side that cancels, by [`CancelGuard::cancel`] or by being dropped.
#[derive(Debug)]
pub struct CancelGuard(Arc<OwnedFd>);

/// Another hand on the same cancellation, for somebody beside the caller. Dropping it cancels
/// nothing.
#[derive(Debug, Clone)]
pub struct Canceller(Arc<OwnedFd>);

/// Makes the two sides of one cancellation.
///
/// # Errors
/// The process has no descriptor left.
pub fn pair() -> io::Result<(CancelGuard, Cancel)> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    Ok((CancelGuard(Arc::new(write)), Cancel(Arc::new(read))))
}

impl Cancel {
    /// Whether it was cancelled. Once true, it stays true.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        let mut wait = [PollFd::new(&*self.0, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        // A descriptor that cannot be polled cannot be waited for either: stop the work.
        poll(&mut wait, Some(&now)).map_or(true, |ready| ready > 0)
    }
}

impl AsFd for Cancel {
    /// Readable, or hung up, once cancelled. Nobody reads from it.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl CancelGuard {
    /// Cancels.
    pub fn cancel(self) {}

    /// A hand on this cancellation for somebody else.
    #[must_use]
    pub fn canceller(&self) -> Canceller {
        Canceller(Arc::clone(&self.0))
    }
}

impl Canceller {
    /// Cancels; a second time changes nothing.
    pub fn cancel(&self) {
        tell(&self.0);
    }
}

/// When the byte cannot be written the readers are gone or were told before.
fn tell(pipe: &OwnedFd) {
    let _ = rustix::io::write(pipe, &[1]);
}

impl Drop for CancelGuard {
    fn drop(&mut self) {
        // Closing would do, were there not moments in which a thread that is just leaving the
        // shared descriptor table holds a copy. A byte needs no last copy.
        tell(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_cancelled_until_someone_cancels() {
        let (guard, cancel) = pair().expect("descriptors");
        let copy = cancel.clone();
        assert!(!cancel.is_cancelled() && !copy.is_cancelled());
        guard.cancel();
        assert!(cancel.is_cancelled() && copy.is_cancelled() && cancel.is_cancelled());
    }

    #[test]
    fn somebody_beside_the_caller_can_cancel_too_and_need_not() {
        let (guard, cancel) = pair().expect("descriptors");
        drop(guard.canceller());
        assert!(!cancel.is_cancelled());
        let canceller = guard.canceller();
        canceller.cancel();
        canceller.cancel();
        assert!(cancel.is_cancelled());
    }

    #[test]
    fn a_dropped_guard_cancels_even_while_a_copy_of_its_descriptor_lives() {
        let (guard, cancel) = pair().expect("descriptors");
        let copy = guard.0.try_clone().expect("descriptors");
        drop(guard);
        assert!(cancel.is_cancelled());
        drop(copy);
    }
}
