//! The wire as a client speaks it that nobody here would write: bytes of the test's choice.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use protocol::service::{ExecutorRequest, Request};
use protocol::tool::ToolCall;
use protocol::turn::{Origin, Turn};
use protocol::wire::PROTOCOL_VERSION;
use tarpc::{ClientMessage, context};

use crate::world::World;

/// How long the other end may take before a test says that it hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// A connection to the executor.
#[derive(Debug)]
pub struct Raw(UnixStream);

/// A greeting of some version.
#[must_use]
pub fn greeting(version: u32) -> [u8; 8] {
    let mut greeting = *b"SAGE\0\0\0\0";
    greeting[4..].copy_from_slice(&version.to_be_bytes());
    greeting
}

impl Raw {
    /// Connects, and says nothing yet.
    ///
    /// # Panics
    /// When nothing listens.
    #[must_use]
    pub fn connect(world: &World) -> Self {
        Self::open(&world.socket())
    }

    /// As [`Raw::connect`], by the socket's path.
    ///
    /// # Panics
    /// When nothing listens.
    #[must_use]
    pub fn open(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).expect("the executor listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time is a time");
        Self(stream)
    }

    /// Connects and is welcome.
    ///
    /// # Panics
    /// When it is not.
    #[must_use]
    pub fn welcome(world: &World) -> Self {
        let mut raw = Self::connect(world);
        assert_eq!(raw.greet(PROTOCOL_VERSION), (PROTOCOL_VERSION, 0));
        raw
    }

    /// What the server says to a greeting: its version, and what it thinks.
    ///
    /// # Panics
    /// When it does not answer.
    pub fn greet(&mut self, version: u32) -> (u32, u8) {
        self.send(&greeting(version));
        self.greeted()
    }

    /// The server's own greeting.
    ///
    /// # Panics
    /// When there is none.
    pub fn greeted(&mut self) -> (u32, u8) {
        let mut answer = [0; 9];
        self.0.read_exact(&mut answer).expect("the server answers");
        assert_eq!(&answer[..4], b"SAGE");
        (u32::from_be_bytes([answer[4], answer[5], answer[6], answer[7]]), answer[8])
    }

    /// Sends bytes.
    ///
    /// # Panics
    /// When the server has hung up.
    pub fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).expect("it can be written");
    }

    /// Sends bytes to a server that may have hung up, or reads no more for a second; whether it took
    /// them all.
    ///
    /// # Panics
    /// When something else is wrong.
    pub fn offer(&mut self, bytes: &[u8]) -> bool {
        self.0.set_write_timeout(Some(Duration::from_secs(1))).expect("a time is a time");
        match self.0.write_all(bytes) {
            Ok(()) => true,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                false
            }
            Err(error) if error.kind() == ErrorKind::BrokenPipe => false,
            Err(error) => panic!("{error}"),
        }
    }

    /// One frame of the server.
    ///
    /// # Panics
    /// When there is none.
    pub fn frame(&mut self) -> Vec<u8> {
        let mut length = [0; 4];
        self.0.read_exact(&mut length).expect("the server answers");
        let mut frame = vec![0; u32::from_be_bytes(length) as usize];
        self.0.read_exact(&mut frame).expect("a whole frame");
        frame
    }

    /// The other end hangs up, and says nothing before.
    ///
    /// # Panics
    /// When it does not.
    pub fn hung_up(mut self) {
        let mut rest = Vec::new();
        // A reset says so as well as an end.
        if let Err(error) = self.0.read_to_end(&mut rest) {
            assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
        }
        assert!(rest.is_empty(), "{rest:?}");
    }
}

/// A message as a frame: its length, then itself.
#[must_use]
pub fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).expect("a short message");
    [&length.to_be_bytes()[..], message].concat()
}

/// A request of a turn of the Owner.
#[must_use]
pub fn request(turn: &str, id: &str, call: ToolCall) -> Request {
    let requester = Some("Owner".to_owned());
    let turn = Turn { id: turn.to_owned(), requester, origin: Origin::Terminal };
    Request { id: id.to_owned(), turn, call, approved: None }
}

/// A request as it goes over the wire, without its length. `left` is how long the client would wait.
///
/// # Panics
/// When it cannot be written, which cannot be.
#[must_use]
pub fn message(number: u64, request: Request, left: Duration) -> Vec<u8> {
    let mut context = context::current();
    context.deadline = Instant::now() + left;
    let message = ExecutorRequest::Call { request };
    let request = tarpc::Request { context, id: number, message };
    rmp_serde::to_vec(&ClientMessage::Request(request)).expect("it can be written")
}

/// The same bytes with another word in one place.
///
/// # Panics
/// When the word is not in exactly one place, or the lengths differ.
#[must_use]
pub fn reworded(message: &[u8], word: &[u8], other: &[u8]) -> Vec<u8> {
    assert_eq!(word.len(), other.len());
    let places: Vec<_> = (0..message.len()).filter(|at| message[*at..].starts_with(word)).collect();
    let [at] = places[..] else { panic!("{word:?} is at {places:?}") };
    [&message[..at], other, &message[at + word.len()..]].concat()
}
