//! The running pi: its streams as messages, in one queue.
//!
//! Two streams come from it: its lines on standard output, and its extension's lines on the socket.
//! Both are read by tasks of their own, so that pi never waits for a turn that is busy elsewhere for
//! longer than the queue is full. Dropped, it is killed and reaped.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use confine::launcher::{Launcher, LiveChild};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::event::{self, Event, Request};
use super::lines::{self, Line};
use super::place::{Given, Place};
use crate::private_file::Secret;

/// The longest line that is read, in bytes. pi repeats a tool's result three times in one line.
const LONGEST_LINE: usize = 32 << 20;
/// How many messages wait to be dealt with.
const QUEUE: usize = 64;
/// How much of what pi said on standard error is kept: its beginning, in bytes.
const KEPT: usize = 4096;
/// How long the end of standard error is waited for, once pi is gone.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// What comes from pi.
#[derive(Debug)]
pub(super) enum Incoming {
    /// A line on standard output.
    Event(Event),
    /// A line on the socket.
    Request(Request),
    /// A line on the socket that is none of the extension's.
    Garbled,
    /// Its standard output has ended: there is no pi any more.
    Gone,
}

/// A pi that was started.
#[derive(Debug)]
pub(super) struct Running {
    /// What it was told when it started.
    pub(super) given: Given,
    commands: mpsc::UnboundedSender<Vec<u8>>,
    answers: mpsc::UnboundedSender<Vec<u8>>,
    incoming: mpsc::Receiver<Incoming>,
    stderr: Arc<Mutex<Vec<u8>>>,
    last_words: JoinSet<()>,
    _tasks: JoinSet<()>,
    live: LiveChild,
}

impl Running {
    /// Starts it. Whether it came up shows when it first answers.
    ///
    /// # Errors
    /// When its place cannot be made ready or the launcher cannot be started.
    pub(super) fn start(
        place: &Place,
        given: Given,
        key: Option<&Secret>,
        launcher: &Launcher,
    ) -> io::Result<Self> {
        place.prepare(&given, key.is_some())?;
        let (ours, its) = StdUnixStream::pair()?;
        let spec = place.spec(given.conversation, key, its.as_raw_fd())?;
        let mut live = launcher.start(&spec, Some(its.into())).map_err(io::Error::other)?;
        let Some((stdin, stdout, stderr)) = live.take_streams() else {
            return Err(io::Error::other("its streams are not there"));
        };
        ours.set_nonblocking(true)?;
        let (from_socket, to_socket) = UnixStream::from_std(ours)?.into_split();
        let (commands, to_write) = mpsc::unbounded_channel();
        let (answers, to_answer) = mpsc::unbounded_channel();
        let (queue, incoming) = mpsc::channel(QUEUE);
        let kept = Arc::new(Mutex::new(Vec::new()));
        let (mut tasks, mut last_words) = (JoinSet::new(), JoinSet::new());
        let stdout = pipe::Receiver::from_owned_fd(OwnedFd::from(stdout))?;
        let stderr = pipe::Receiver::from_owned_fd(OwnedFd::from(stderr))?;
        tasks.spawn(write_all(pipe::Sender::from_owned_fd(OwnedFd::from(stdin))?, to_write));
        tasks.spawn(write_all(to_socket, to_answer));
        tasks.spawn(read_events(stdout, queue.clone()));
        tasks.spawn(read_requests(from_socket, queue));
        last_words.spawn(keep_beginning(stderr, Arc::clone(&kept)));
        let stderr = kept;
        Ok(Self { given, commands, answers, incoming, stderr, last_words, _tasks: tasks, live })
    }

    /// Its process id.
    pub(super) fn id(&self) -> u32 {
        self.live.id()
    }

    /// Sends a command. When pi is gone, that shows in what comes from it.
    pub(super) fn command(&self, command: &Value) {
        send(&self.commands, command);
    }

    /// Where commands go, for one who may have to send some when it is dropped.
    pub(super) fn commands(&self) -> Commands {
        Commands(self.commands.clone())
    }

    /// Tells the extension that from here on it is this turn.
    pub(super) fn fence(&self, turn: u64) {
        send(&self.answers, &json!({"type": "turn", "turn": turn}));
    }

    /// Answers a call.
    pub(super) fn answer(&self, id: &str, text: &str, failed: bool) {
        let answer = json!({"type": "result", "id": id, "text": text, "failed": failed});
        send(&self.answers, &answer);
    }

    /// What comes next.
    pub(super) async fn next(&mut self) -> Incoming {
        self.incoming.recv().await.unwrap_or(Incoming::Gone)
    }

    /// Why it is gone, in one line. It is killed if it is not.
    pub(super) async fn last_words(mut self) -> String {
        // Its standard error ends with it.
        let _ = tokio::time::timeout(LAST_WORDS, self.last_words.join_next()).await;
        let text = {
            let kept = self.stderr.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            String::from_utf8_lossy(&kept).into_owned()
        };
        if let Some(reason) = self.live.setup_failure(&text) {
            return format!("it could not be confined: {reason}");
        }
        let said = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>();
        let said = said.iter().find(|line| is_error(line)).or(said.last()).copied();
        let status = match self.live.kill() {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        format!("it ended ({status}){}{}", said.map_or("", |_| " and said: "), said.unwrap_or(""))
    }
}

/// Sends commands to a pi that may be gone.
#[derive(Debug, Clone)]
pub(super) struct Commands(mpsc::UnboundedSender<Vec<u8>>);

impl Commands {
    /// Stops what pi is doing, and forgets what it was to do next. The answer to the command `id`
    /// comes when it has stopped.
    pub(super) fn stop(&self, id: &str) {
        send(&self.0, &json!({"id": format!("{id}-queue"), "type": "clear_queue"}));
        send(&self.0, &json!({"id": id, "type": "abort"}));
    }
}

/// Whether a line is what JavaScript says of an error.
fn is_error(line: &str) -> bool {
    line.split_once(':').is_some_and(|(name, _)| name.ends_with("Error"))
}

fn send(to: &mpsc::UnboundedSender<Vec<u8>>, message: &Value) {
    let mut line = message.to_string().into_bytes();
    line.push(b'\n');
    // Whoever wrote for us is gone when pi is, which its reader tells.
    let _ = to.send(line);
}

async fn write_all(mut sink: impl AsyncWrite + Unpin, mut lines: mpsc::UnboundedReceiver<Vec<u8>>) {
    while let Some(line) = lines.recv().await {
        if sink.write_all(&line).await.is_err() {
            return;
        }
    }
}

async fn read_events(source: impl AsyncRead + Unpin, queue: mpsc::Sender<Incoming>) {
    let mut source = BufReader::with_capacity(64 << 10, source);
    while let Ok(Some(line)) = lines::next(&mut source, LONGEST_LINE).await {
        let event = event::read(&line);
        // Most of what pi says is how far the model is.
        if event != Event::Other && queue.send(Incoming::Event(event)).await.is_err() {
            return;
        }
    }
    let _ = queue.send(Incoming::Gone).await;
}

async fn read_requests(source: impl AsyncRead + Unpin, queue: mpsc::Sender<Incoming>) {
    let mut source = BufReader::with_capacity(64 << 10, source);
    while let Ok(Some(line)) = lines::next(&mut source, LONGEST_LINE).await {
        let request = match &line {
            Line::Whole(bytes) => serde_json::from_slice(bytes).ok(),
            Line::TooLong(_) => None,
        };
        let message = request.map_or(Incoming::Garbled, Incoming::Request);
        if queue.send(message).await.is_err() {
            return;
        }
    }
}

async fn keep_beginning(mut source: impl AsyncRead + Unpin, kept: Arc<Mutex<Vec<u8>>>) {
    let mut chunk = [0; 4096];
    while let Ok(length @ 1..) = source.read(&mut chunk).await {
        let mut kept = kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let room = KEPT.saturating_sub(kept.len()).min(length);
        kept.extend_from_slice(&chunk[..room]);
    }
}
