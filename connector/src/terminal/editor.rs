//! A person at a terminal: lines are edited, and what was said before can be called up again.
//!
//! The editor works on a thread of its own, because a read from a terminal blocks, and it reads only
//! while it is asked: between two questions the terminal is as it was found, so that Ctrl-C is a signal
//! and stops the turn.
//!
//! What must stay true: a plan is approved by what is typed after it was shown, so that keys pressed
//! earlier are thrown away; and the history keeps messages alone, never the word at such a question.

use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::mpsc as blocking;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::termios::{FlushArg, SetArg, Termios, tcflush, tcgetattr, tcsetattr};
use policy::secret;
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Cmd, Config, EventHandler, Helper, KeyCode, KeyEvent, Modifiers};
use tokio::sync::oneshot;

use crate::render::printable;

/// What was said in a binding's folder, for the arrow keys.
const HISTORY: &str = "chat-history";

/// How many messages the history keeps.
const KEPT: usize = 500;

/// What invites to write.
const PROMPT: &str = "> ";

/// The editor's other end.
#[derive(Debug)]
pub struct Editor {
    asks: blocking::Sender<Ask>,
    /// The terminal as it was found.
    found: Option<Termios>,
    /// Whether a message is being written, so that the terminal is not as it was found.
    writing: bool,
}

/// What the thread is to read.
#[derive(Debug)]
enum Ask {
    /// A message; nothing at the end of the input.
    Message(oneshot::Sender<Option<String>>),
    /// A word, until the other end of the pipe goes away.
    Word(oneshot::Sender<String>, PipeReader),
}

impl Editor {
    /// The terminal on standard input, with the history of this folder.
    ///
    /// # Errors
    /// When the terminal cannot be used.
    pub fn new(folder: &Path) -> io::Result<Self> {
        let mut lines = open().map_err(io::Error::other)?;
        let path = folder.join(HISTORY);
        if path.exists()
            && let Err(error) = lines.load_history(&path)
        {
            tracing::warn!(%error, "{} cannot be read; nothing is called up from it", path.display());
        }
        let found = tcgetattr(io::stdin()).ok();
        let (asks, asked) = blocking::channel();
        std::thread::spawn(move || listen(&mut lines, &path, &asked));
        Ok(Self { asks, found, writing: false })
    }

    /// The next message; nothing at the end.
    pub(super) async fn message(&mut self) -> Option<String> {
        let (tell, told) = oneshot::channel();
        self.writing = true;
        self.asks.send(Ask::Message(tell)).ok()?;
        let message = told.await.ok().flatten();
        self.writing = false;
        message
    }

    /// A word. Whoever stops waiting for it calls the reading off.
    ///
    /// # Errors
    /// When no pipe can be had.
    pub(super) async fn word(&mut self) -> io::Result<String> {
        let (until, _wanted): (PipeReader, PipeWriter) = io::pipe()?;
        let (tell, told) = oneshot::channel();
        if self.asks.send(Ask::Word(tell, until)).is_err() {
            return Ok(String::new());
        }
        Ok(told.await.unwrap_or_default())
    }
}

impl Drop for Editor {
    /// A program that ends in the middle of a line leaves the terminal as it was found.
    fn drop(&mut self) {
        if let (true, Some(found)) = (self.writing, &self.found) {
            let _ = tcsetattr(io::stdin(), SetArg::TCSANOW, found);
            let _ = nix::unistd::write(io::stdout(), b"\x1b[?2004l\r\n");
        }
    }
}

type Lines = rustyline::Editor<Keys, DefaultHistory>;

/// What Enter does: a line that ends in a backslash goes on in the next one.
struct Keys;

impl Validator for Keys {
    fn validate(&self, typed: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(match typed.input().ends_with('\\') {
            true => ValidationResult::Incomplete,
            false => ValidationResult::Valid(None),
        })
    }
}

impl Completer for Keys {
    type Candidate = String;
}

impl Hinter for Keys {
    type Hint = String;
}

impl Highlighter for Keys {}

impl Helper for Keys {}

fn open() -> rustyline::Result<Lines> {
    let config = Config::builder()
        .max_history_size(KEPT)?
        .history_ignore_dups(true)?
        .history_ignore_space(true)
        .auto_add_history(false)
        .build();
    let mut lines = Lines::with_config(config)?;
    lines.set_helper(Some(Keys));
    let alt_enter = KeyEvent(KeyCode::Enter, Modifiers::ALT);
    lines.bind_sequence(alt_enter, EventHandler::Simple(Cmd::Newline));
    Ok(lines)
}

/// Reads what is asked for, until nobody can ask any more.
fn listen(lines: &mut Lines, history: &Path, asked: &blocking::Receiver<Ask>) {
    while let Ok(ask) = asked.recv() {
        match ask {
            Ask::Message(tell) => {
                let message = message(lines);
                if let Some(message) = &message {
                    remember(lines, history, message);
                }
                let _ = tell.send(message.map(|message| joined(&message)));
            }
            Ask::Word(tell, until) => {
                // Nothing typed is no yes.
                let _ = tell.send(word(&until).unwrap_or_default());
            }
        }
    }
}

/// A message. Ctrl-C throws away what was typed, as in a shell.
fn message(lines: &mut Lines) -> Option<String> {
    loop {
        match lines.readline(PROMPT) {
            Ok(message) => return Some(message),
            Err(ReadlineError::Interrupted | ReadlineError::Signal(_)) => {}
            Err(ReadlineError::Eof) => return None,
            Err(error) => {
                let error = printable(&error.to_string());
                tracing::error!("the terminal cannot be read: {error}");
                return None;
            }
        }
    }
}

/// Lines that went on become one text.
fn joined(message: &str) -> String {
    message.replace("\\\n", "\n")
}

/// Keeps a message for the arrow keys: not when it begins with a space, is the one before it again, or
/// holds what is shaped like a credential.
fn remember(lines: &mut Lines, history: &Path, message: &str) {
    if message.trim().is_empty() || secret::find(message).is_some() {
        return;
    }
    let kept = lines.add_history_entry(message).and_then(|new| match new {
        true => lines.save_history(history),
        false => Ok(()),
    });
    if let Err(error) = kept {
        tracing::warn!(%error, "{} cannot be written", history.display());
    }
}

/// Throws away what was typed and not read yet.
///
/// # Errors
/// When the terminal is gone.
pub(super) fn throw_away_keys() -> io::Result<()> {
    Ok(tcflush(io::stdin(), FlushArg::TCIFLUSH)?)
}

/// The next line that was typed; none once `until` is closed.
fn word(until: &PipeReader) -> nix::Result<String> {
    let terminal = io::stdin();
    loop {
        let mut ready = [
            PollFd::new(terminal.as_fd(), PollFlags::POLLIN),
            PollFd::new(until.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut ready, PollTimeout::NONE) {
            Err(Errno::EINTR) => continue,
            polled => polled?,
        };
        let [typed, over] = ready.map(|one| one.revents().is_some_and(|events| !events.is_empty()));
        if over {
            return Ok(String::new());
        }
        if typed {
            let mut line = [0; 4096];
            let length = nix::unistd::read(&terminal, &mut line)?;
            return Ok(String::from_utf8_lossy(&line[..length]).into_owned());
        }
    }
}
