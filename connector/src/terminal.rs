//! The terminal as a transport: `sage-connector chat`.
//!
//! A message is one line; a line that ends in a backslash goes on in the next one. At a terminal lines
//! are edited and remembered ([`editor`]); from a pipe or a file they are read as they are. Ctrl-C stops
//! the turn and not the program; Ctrl-D ends. Whoever can open the binding is the person it names, so
//! there is nobody else to authorise here.
//!
//! Everything that is printed has its control characters escaped, whoever wrote it.

pub mod editor;

use std::future::pending;
use std::io::{self, BufRead, IsTerminal as _, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use protocol::reply::Plan;
use protocol::turn::Origin;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::clock::Clock as _;
use crate::clock::SystemClock;
use crate::delivery::{Delivery, Part, Sent};
use crate::engine::Engine;
use crate::journal::{DropReason, JournalError};
use crate::message::{Incoming, MessageId};
use crate::record::TurnOutcome;
use crate::render::{self, printable};
use crate::turn::{self, Ended, Seat};
use editor::Editor;

/// What a person at the keyboard can do beside writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interrupt {
    /// Ctrl-C: stop the turn.
    Turn,
    /// The system wants the program to end.
    Program,
}

/// The two ends of a terminal, and what comes between.
pub struct Console<W> {
    /// Where messages come from.
    pub input: Input,
    /// Interrupts as they come.
    pub interrupts: mpsc::Receiver<Interrupt>,
    /// Where answers go.
    pub out: W,
    /// Whether the program is to end.
    ending: bool,
}

/// Where messages come from.
#[derive(Debug)]
pub enum Input {
    /// Lines as they were written, without their ends. Closed at the end of the input.
    Lines(mpsc::Receiver<String>),
    /// A person, who is invited and asked.
    Person(Editor),
}

impl Input {
    /// Standard input: a person where it and standard output are a terminal, who is reminded of what
    /// was said in this folder.
    ///
    /// # Errors
    /// When the terminal cannot be used.
    pub fn standard(folder: &Path) -> io::Result<Self> {
        if io::stdin().is_terminal() && io::stdout().is_terminal() {
            return Editor::new(folder).map(Self::Person);
        }
        Ok(Self::Lines(lines_of(io::BufReader::new(io::stdin()))))
    }

    /// The next message; nothing at the end.
    async fn message(&mut self) -> Option<String> {
        let lines = match self {
            Self::Person(editor) => return editor.message().await,
            Self::Lines(lines) => lines,
        };
        let mut message = lines.recv().await?;
        while message.ends_with('\\') {
            message.pop();
            message.push('\n');
            match lines.recv().await {
                Some(line) => message.push_str(&line),
                None => break,
            }
        }
        Some(message)
    }

    /// A word, in answer to a question that was shown.
    async fn word(&mut self) -> io::Result<String> {
        match self {
            Self::Person(editor) => editor.word().await,
            Self::Lines(lines) => Ok(lines.recv().await.unwrap_or_default()),
        }
    }
}

/// Lines of an input, read on a thread of its own, because a read cannot be called off. The thread ends
/// with the input or with the program.
pub fn lines_of(input: impl BufRead + Send + 'static) -> mpsc::Receiver<String> {
    let (send, lines) = mpsc::channel(1);
    std::thread::spawn(move || {
        for line in input.split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line);
            let line = line.strip_suffix('\r').unwrap_or(&line);
            if send.blocking_send(line.to_owned()).is_err() {
                return;
            }
        }
    });
    lines
}

/// Ctrl-C, and the signals that end a program, from here on.
///
/// # Errors
/// When the signals cannot be taken over.
pub fn interrupts() -> io::Result<mpsc::Receiver<Interrupt>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let (send, interrupts) = mpsc::channel(4);
    tokio::spawn(async move {
        loop {
            let what = tokio::select! {
                _ = interrupt.recv() => Interrupt::Turn,
                _ = terminate.recv() => Interrupt::Program,
                _ = hangup.recv() => Interrupt::Program,
            };
            if send.send(what).await.is_err() {
                return;
            }
        }
    });
    Ok(interrupts)
}

impl<W: Write + Send> Console<W> {
    /// A terminal.
    pub fn new(input: Input, interrupts: mpsc::Receiver<Interrupt>, out: W) -> Self {
        Self { input, interrupts, out, ending: false }
    }

    /// The next message; nothing at the end. Ctrl-C stops nothing here: nothing goes on.
    async fn next_message(&mut self) -> Option<String> {
        let message = self.input.message();
        tokio::pin!(message);
        loop {
            tokio::select! {
                biased;
                what = next(&mut self.interrupts) => match what {
                    Interrupt::Program => return None,
                    Interrupt::Turn => {}
                },
                message = &mut message => return message,
            }
        }
    }

    fn say(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.out, "{}", printable(text))?;
        self.out.flush()
    }
}

/// The next interrupt. A terminal that can send none never does.
async fn next(interrupts: &mut mpsc::Receiver<Interrupt>) -> Interrupt {
    match interrupts.recv().await {
        Some(what) => what,
        None => pending().await,
    }
}

/// Why the conversation ended before its time.
#[derive(Debug, thiserror::Error)]
pub enum ChatError {
    /// The journal cannot be written.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The terminal went away.
    #[error("cannot write to the terminal: {0}")]
    Terminal(#[from] io::Error),
}

/// Talks until the input ends.
///
/// # Errors
/// When the journal or the terminal can no longer be written.
pub async fn chat<E: Engine, W: Write + Send>(
    seat: &mut Seat<E>,
    requester: &str,
    console: &mut Console<W>,
) -> Result<(), ChatError> {
    let mut ids = Ids::default();
    while !console.ending
        && let Some(text) = console.next_message().await
    {
        if !text.trim().is_empty() {
            answer(ids.incoming(requester, text), seat, console).await?;
        }
    }
    Ok(())
}

/// Numbers the messages of this process.
#[derive(Debug, Default)]
pub(crate) struct Ids(u64);

impl Ids {
    /// A message typed at this terminal.
    pub(crate) fn incoming(&mut self, requester: &str, text: String) -> Incoming {
        self.0 += 1;
        Incoming {
            id: MessageId::for_terminal(SystemClock.now(), std::process::id(), self.0),
            origin: Origin::Terminal,
            requester: Some(requester.to_owned()),
            channel: "terminal".to_owned(),
            thread: None,
            author: requester.to_owned(),
            text,
        }
    }
}

/// Takes one message all the way; Ctrl-C stops it.
///
/// # Errors
/// When the journal or the terminal can no longer be written.
pub async fn answer<E: Engine, W: Write + Send>(
    incoming: Incoming,
    seat: &mut Seat<E>,
    console: &mut Console<W>,
) -> Result<Ended, ChatError> {
    let Console { input, interrupts, out, ending } = console;
    let is_interrupted = AtomicBool::new(false);
    let mut printer = Printer { input, out, is_interrupted: &is_interrupted, broken: None };
    let abort = async {
        *ending = next(interrupts).await == Interrupt::Program;
        is_interrupted.store(true, Ordering::Relaxed);
    };
    let ended = turn::run(incoming, seat, &mut printer, abort).await?;
    if let Some(error) = printer.broken {
        return Err(error.into());
    }
    // A channel gets the fixed line alone; a person at the machine may know why.
    match &ended {
        Ended::Turn(TurnOutcome::Failed { reason }) => console.say(&format!("({reason})"))?,
        Ended::Dropped { reason: DropReason::OverCeiling, told: false } => {
            console.say("(today's turns are used up; nothing was done)")?;
        }
        Ended::Turn(_) | Ended::Dropped { .. } | Ended::Known => {}
    }
    Ok(ended)
}

/// Prints what is said.
struct Printer<'a, W> {
    input: &'a mut Input,
    out: &'a mut W,
    is_interrupted: &'a AtomicBool,
    broken: Option<io::Error>,
}

impl<W: Write> Printer<'_, W> {
    /// Whether somebody is there to be asked in so many words.
    fn is_seen(&self) -> bool {
        matches!(self.input, Input::Person(_))
    }

    fn show(&mut self, question: &str) -> io::Result<()> {
        writeln!(self.out, "{question}")?;
        if self.is_seen() {
            self.out.flush()?;
            // What was typed before the plan was there to be read is no answer to it.
            editor::throw_away_keys()?;
            write!(self.out, "Commit this? [y/N] ")?;
        }
        self.out.flush()
    }

    fn print(&mut self, text: &str) -> io::Result<()> {
        // The terminal has shown `^C`, and whatever was being asked.
        if self.is_seen() && self.is_interrupted.swap(false, Ordering::Relaxed) {
            writeln!(self.out)?;
        }
        writeln!(self.out, "{}", printable(text))?;
        self.out.flush()
    }

    fn sent(&mut self, printed: io::Result<()>) -> Sent {
        match printed {
            Ok(()) => Sent::Confirmed,
            Err(error) => {
                let reason = error.to_string();
                self.broken = Some(error);
                Sent::Unknown { reason }
            }
        }
    }
}

impl<W: Write + Send> Delivery for Printer<'_, W> {
    fn question(&self, plan: &Plan) -> Option<String> {
        Some(render::plan(plan))
    }

    async fn ask(&mut self, question: &Part) -> Sent {
        let shown = self.show(&question.text);
        self.sent(shown)
    }

    async fn answered(&mut self) -> bool {
        match self.input.word().await {
            Ok(word) => matches!(word.trim().to_lowercase().as_str(), "y" | "yes"),
            Err(error) => {
                self.broken = Some(error);
                false
            }
        }
    }

    async fn send(&mut self, part: &Part) -> Sent {
        let printed = self.print(&part.text);
        self.sent(printed)
    }
}

#[cfg(test)]
mod tests;
