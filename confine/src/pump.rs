//! Moving a child's streams while watching for its end, a cancellation and the deadline, in one
//! loop on one thread. Nothing in it blocks but the one `poll`.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

use super::cancel::Cancel;

/// How much is read at once. A pipe holds as much.
const CHUNK: usize = 64 * 1024;

/// Why the loop ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Exited,
    TimedOut,
    Cancelled,
}

/// The beginning of a stream.
#[derive(Debug, Default)]
pub(crate) struct Capture {
    pub(crate) kept: Vec<u8>,
    pub(crate) truncated: bool,
    limit: usize,
}

impl Capture {
    fn take(&mut self, bytes: &[u8]) {
        let room = self.limit - self.kept.len();
        self.kept.extend_from_slice(&bytes[..room.min(bytes.len())]);
        self.truncated |= bytes.len() > room;
    }
}

/// One output stream; no source once it ended.
struct Output {
    source: Option<OwnedFd>,
    capture: Capture,
}

/// The three streams of one child.
pub(crate) struct Pump {
    input: Option<OwnedFd>,
    pending: Vec<u8>,
    sent: usize,
    outputs: [Output; 2],
    chunk: Vec<u8>,
}

impl Pump {
    /// Takes over the child's streams.
    pub(crate) fn new(
        child: &mut Child,
        pending: Vec<u8>,
        max_stdout: usize,
        max_stderr: usize,
    ) -> io::Result<Self> {
        let input = child.stdin.take().map(OwnedFd::from);
        let stdout = child.stdout.take().map(OwnedFd::from);
        let stderr = child.stderr.take().map(OwnedFd::from);
        for descriptor in [&input, &stdout, &stderr].into_iter().flatten() {
            fcntl_setfl(descriptor, fcntl_getfl(descriptor)? | OFlags::NONBLOCK)?;
        }
        let output =
            |source, limit| Output { source, capture: Capture { limit, ..Capture::default() } };
        let outputs = [output(stdout, max_stdout), output(stderr, max_stderr)];
        Ok(Self { input, pending, sent: 0, outputs, chunk: vec![0; CHUNK] })
    }

    /// Moves bytes until the child has ended, the deadline has passed, or someone cancels.
    pub(crate) fn run(
        &mut self,
        child: &OwnedFd,
        cancel: &Cancel,
        deadline: Instant,
    ) -> io::Result<End> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(End::TimedOut);
            }
            let ready = self.wait(child, cancel, left)?;
            if ready.cancelled {
                return Ok(End::Cancelled);
            }
            if ready.input {
                self.send();
            }
            for (output, ready) in self.outputs.iter_mut().zip(ready.outputs) {
                if ready {
                    output.receive(&mut self.chunk)?;
                }
            }
            if ready.exited {
                return Ok(End::Exited);
            }
        }
    }

    /// Reads what is left once every writer is gone, and gives the captures away.
    pub(crate) fn finish(mut self) -> io::Result<(Capture, Capture)> {
        for output in &mut self.outputs {
            while output.source.is_some() && output.receive(&mut self.chunk)? {}
        }
        let [stdout, stderr] = self.outputs;
        Ok((stdout.capture, stderr.capture))
    }

    fn wait(&self, child: &OwnedFd, cancel: &Cancel, left: Duration) -> io::Result<Ready> {
        // What is absent is replaced by a descriptor that is asked for nothing.
        let watched = |descriptor: &Option<OwnedFd>, flags| match descriptor {
            Some(_) => flags,
            None => PollFlags::empty(),
        };
        let [stdout, stderr] = &self.outputs;
        let source = |descriptor: &'_ Option<OwnedFd>| descriptor.is_some();
        let mut wanted = [
            PollFd::new(child, PollFlags::IN),
            PollFd::new(cancel, PollFlags::IN),
            PollFd::from_borrowed_fd(
                self.input.as_ref().map_or(child.as_fd(), AsFd::as_fd),
                watched(&self.input, PollFlags::OUT),
            ),
            PollFd::from_borrowed_fd(
                stdout.source.as_ref().map_or(child.as_fd(), AsFd::as_fd),
                watched(&stdout.source, PollFlags::IN),
            ),
            PollFd::from_borrowed_fd(
                stderr.source.as_ref().map_or(child.as_fd(), AsFd::as_fd),
                watched(&stderr.source, PollFlags::IN),
            ),
        ];
        let left = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        match poll(&mut wanted, Some(&left)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready = |index: usize| !wanted[index].revents().is_empty();
        Ok(Ready {
            exited: ready(0),
            cancelled: ready(1),
            input: source(&self.input) && ready(2),
            outputs: [source(&stdout.source) && ready(3), source(&stderr.source) && ready(4)],
        })
    }

    /// Writes what the pipe takes. A child that closed its input has read enough.
    fn send(&mut self) {
        let Some(input) = &self.input else { return };
        match rustix::io::write(input, &self.pending[self.sent..]) {
            Ok(written) => self.sent += written,
            Err(Errno::AGAIN | Errno::INTR) => return,
            Err(_) => self.sent = self.pending.len(),
        }
        if self.sent == self.pending.len() {
            self.input = None;
        }
    }
}

struct Ready {
    exited: bool,
    cancelled: bool,
    input: bool,
    outputs: [bool; 2],
}

impl Output {
    /// Reads once. Returns whether another read may give more.
    fn receive(&mut self, chunk: &mut [u8]) -> io::Result<bool> {
        let Some(source) = &self.source else { return Ok(false) };
        match rustix::io::read(source, &mut *chunk) {
            Ok(0) => {
                self.source = None;
                Ok(false)
            }
            Ok(length) => {
                self.capture.take(&chunk[..length]);
                Ok(true)
            }
            Err(Errno::INTR) => Ok(true),
            Err(Errno::AGAIN) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
