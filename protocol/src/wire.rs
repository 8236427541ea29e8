//! The wire: a greeting, then tarpc over length-delimited MessagePack frames on a Unix socket.
//!
//! The greeting comes first and is not tarpc: eight bytes from the client (`SAGE` and its version as
//! a big-endian `u32`), nine from the server (the same, and what it thinks of the client). So a
//! version mismatch is one clear error instead of a decoding failure, and a peer that is not listed
//! learns just that.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use futures::TryStreamExt;
use serde::{Deserialize, Serialize};
use tarpc::serde_transport::{self, Transport};
use tarpc::{ClientMessage, Response, client};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio_serde::formats::MessagePack;
use tokio_util::codec::{Framed, LengthDelimitedCodec};

use crate::explain::Explanation;
use crate::refusal::{Fault, Outcome};
use crate::service::{Description, ExecutorClient, ExecutorRequest, ExecutorResponse, Request};
use crate::status::Status;

/// Changes with every change of a message. Client and server must agree on it exactly.
pub const PROTOCOL_VERSION: u32 = 3;

/// The longest frame either side reads or sends, in bytes. A longer one ends the connection before
/// anything of its claimed size is allocated.
pub const MAX_FRAME_BYTES: usize = 4 * 1024 * 1024;

/// How long either side waits for the other's greeting.
pub const GREETING_TIMEOUT: Duration = Duration::from_secs(5);

/// How much longer than the server's own limit a client waits for an answer.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(150);

const MAGIC: [u8; 4] = *b"SAGE";

/// What the server thinks of a client that just greeted it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u8)]
pub enum Welcome {
    /// Go on.
    Ok = 0,
    /// The versions differ.
    Version = 1,
    /// The peer's user is not listed.
    UnknownPeer = 2,
    /// There are too many connections already.
    Busy = 3,
}

/// Why no connection came about, or how it ended.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The socket is not there, or nothing listens on it.
    #[error("cannot connect to the executor at {path}: {source}; is sage-executor running?")]
    Connect {
        /// The socket's path.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// What answered is not a Sage executor, or it hung up.
    #[error("the greeting with the executor failed: {0}")]
    Greeting(io::Error),
    /// The two programs are of different versions.
    #[error(
        "this program speaks protocol version {ours} and the executor {theirs}; \
         install the same version of both and restart the executor"
    )]
    Version {
        /// [`PROTOCOL_VERSION`] of this program.
        ours: u32,
        /// That of the executor.
        theirs: u32,
    },
    /// The executor does not list this user.
    #[error(
        "the executor does not list this user as a peer; add it to `peers` in its configuration"
    )]
    UnknownPeer,
    /// The executor has too many connections.
    #[error("the executor has too many connections; try again")]
    Busy,
    /// The connection ended in the middle of a call: the executor went away, or a frame was over the
    /// limit.
    #[error("the connection to the executor ended: {0}")]
    Lost(String),
}

/// Greets a client.
///
/// # Errors
/// When the client sends something else than a greeting, or nothing in time.
pub async fn greet_client(
    stream: &mut UnixStream,
    judge: impl FnOnce() -> Welcome,
) -> io::Result<Welcome> {
    let theirs = within(read_greeting(stream)).await?;
    let welcome = if theirs == PROTOCOL_VERSION { judge() } else { Welcome::Version };
    let mut answer = [0; 9];
    answer[..4].copy_from_slice(&MAGIC);
    answer[4..8].copy_from_slice(&PROTOCOL_VERSION.to_be_bytes());
    answer[8] = welcome as u8;
    within(stream.write_all(&answer)).await?;
    Ok(welcome)
}

async fn greet_server(stream: &mut UnixStream) -> Result<(), WireError> {
    let mut greeting = [0; 8];
    greeting[..4].copy_from_slice(&MAGIC);
    greeting[4..].copy_from_slice(&PROTOCOL_VERSION.to_be_bytes());
    within(stream.write_all(&greeting)).await.map_err(WireError::Greeting)?;
    let theirs = within(read_greeting(stream)).await.map_err(WireError::Greeting)?;
    match within(stream.read_u8()).await.map_err(WireError::Greeting)? {
        0 if theirs == PROTOCOL_VERSION => Ok(()),
        0 | 1 => Err(WireError::Version { ours: PROTOCOL_VERSION, theirs }),
        2 => Err(WireError::UnknownPeer),
        _ => Err(WireError::Busy),
    }
}

async fn read_greeting(stream: &mut UnixStream) -> io::Result<u32> {
    let mut greeting = [0; 8];
    stream.read_exact(&mut greeting).await?;
    let (magic, version) = greeting.split_at(4);
    if magic != MAGIC {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not a Sage greeting"));
    }
    Ok(u32::from_be_bytes([version[0], version[1], version[2], version[3]]))
}

async fn within<T>(step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(GREETING_TIMEOUT, step)
        .await
        .unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "no greeting in time")))
}

/// How frames are told apart: a length of four bytes, big-endian, then as many bytes.
#[must_use]
pub fn codec() -> LengthDelimitedCodec {
    LengthDelimitedCodec::builder().max_frame_length(MAX_FRAME_BYTES).new_codec()
}

fn framed(stream: UnixStream) -> Framed<UnixStream, LengthDelimitedCodec> {
    Framed::new(stream, codec())
}

type Told = ClientMessage<ExecutorRequest>;
type Said = Response<ExecutorResponse>;

/// Turns a greeted connection into the server's end of the service. A caller's deadline counts for
/// [`CALL_TIMEOUT`] at most: timers take no date in a thousand years, and a call has limits of its own.
#[must_use]
pub fn server_transport(
    stream: UnixStream,
) -> impl tarpc::Transport<Said, Told, TransportError = io::Error> {
    let codec: MessagePack<Told, Said> = MessagePack::default();
    let transport: Transport<UnixStream, Told, Said, _> =
        serde_transport::new(framed(stream), codec);
    transport.map_ok(|mut message| {
        if let ClientMessage::Request(request) = &mut message {
            let latest = Instant::now() + CALL_TIMEOUT;
            request.context.deadline = request.context.deadline.min(latest);
        }
        message
    })
}

/// A connection to the executor. Cheap to clone; dropping a call in flight cancels it there.
#[derive(Debug, Clone)]
pub struct Client {
    inner: ExecutorClient,
}

impl Client {
    /// Connects and greets.
    ///
    /// # Errors
    /// See [`WireError`]: each says what to do next.
    pub async fn connect(socket: &Path) -> Result<Self, WireError> {
        let mut stream = UnixStream::connect(socket)
            .await
            .map_err(|source| WireError::Connect { path: socket.display().to_string(), source })?;
        greet_server(&mut stream).await?;
        let transport = serde_transport::new(framed(stream), MessagePack::default());
        let inner = ExecutorClient::new(client::Config::default(), transport).spawn();
        Ok(Self { inner })
    }

    /// What the executor offers to this user.
    ///
    /// # Errors
    /// [`WireError::Lost`] when the connection ends first.
    pub async fn describe(&self) -> Result<Description, WireError> {
        self.inner.describe(deadline()).await.map_err(|error| WireError::Lost(error.to_string()))
    }

    /// How the executor stands.
    ///
    /// # Errors
    /// [`WireError::Lost`] when the connection ends first.
    pub async fn status(&self) -> Result<Status, WireError> {
        self.inner.status(deadline()).await.map_err(|error| WireError::Lost(error.to_string()))
    }

    /// Does one call. A request that is too long for the wire is answered here, as a fault.
    ///
    /// # Errors
    /// [`WireError::Lost`] when the connection ends first; what became of the call is then unknown.
    pub async fn call(&self, request: Request) -> Result<Outcome, WireError> {
        if let Some(fault) = too_long(&request) {
            return Ok(Outcome::Fault(fault));
        }
        self.inner
            .call(deadline(), request)
            .await
            .map_err(|error| WireError::Lost(error.to_string()))
    }

    /// What would become of a call.
    ///
    /// # Errors
    /// [`WireError::Lost`] when the connection ends first.
    pub async fn explain(&self, request: Request) -> Result<Result<Explanation, Fault>, WireError> {
        if let Some(fault) = too_long(&request) {
            return Ok(Err(fault));
        }
        self.inner
            .explain(deadline(), request)
            .await
            .map_err(|error| WireError::Lost(error.to_string()))
    }
}

fn deadline() -> tarpc::context::Context {
    let mut context = tarpc::context::current();
    context.deadline = Instant::now() + CALL_TIMEOUT;
    context
}

/// A frame over the server's limit would end the connection and look like a crash.
fn too_long(request: &Request) -> Option<Fault> {
    let text: usize = match serde_json::to_string(&request.call) {
        Ok(json) => json.len(),
        Err(_) => 0,
    };
    (text + 4096 > MAX_FRAME_BYTES)
        .then(|| Fault::new(format!("the call has {text} bytes; the wire takes {MAX_FRAME_BYTES}")))
}
