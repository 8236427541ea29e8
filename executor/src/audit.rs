//! The audit: append-only files of JSON lines, each line carrying the hash of the line before it.
//!
//! A call is written down before it acts and again when it is done; one that cannot be written down
//! is refused. Arguments appear as digests and sizes, never as text.
//!
//! What survives: a line is on disk (fdatasync) before the call it announces acts. A crash can tear
//! the last line only: that call never acted. The next start cuts the torn line off and says so in a
//! line of its own. A full file is closed under a number (`audit-000001.jsonl`) and the chain goes on
//! in the next one. `audit.head` names the last line, so that lines cut off the end are missed.
//!
//! What it cannot do: whoever can write the state directory can write all of it anew. The head is
//! therefore told to the log at each start and each change of file, where another user keeps it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use policy::git::MAX_COMMIT_PATHS;
use protocol::service::Request;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

pub mod files;

pub mod list;

mod told;

pub mod verify;

pub use told::{ended, with};

use files::Head;

/// The hash that the first line carries as its predecessor's.
const GENESIS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// The longest name of a turn, a call or a requester that is written as it is, in bytes. They come
/// from the peer, who could put anything there.
const MAX_NAME: usize = 128;

/// How long a start waits for a command that has the state directory just now.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);

/// The audit, open for appending. One process at a time has it.
#[derive(Debug)]
pub struct Audit {
    dir: PathBuf,
    max_bytes: u64,
    tail: Mutex<Tail>,
    _lock: File,
}

#[derive(Debug)]
struct Tail {
    file: File,
    head: File,
    last: String,
    sequence: u64,
    /// The number that the current file gets when it is closed.
    number: u64,
}

impl Audit {
    /// Opens the audit of a state directory, repairing a torn last line. A file that would grow over
    /// `max_bytes` is closed, and the next one begun.
    ///
    /// # Errors
    /// When the files cannot be read or written, or another process has them.
    pub fn open(state_dir: &Path, max_bytes: u64) -> io::Result<Self> {
        Self::open_locked(state_dir, max_bytes, files::lock(state_dir, LOCK_PATIENCE)?)
    }

    /// As [`Audit::open`]; nothing, where another process has it.
    ///
    /// # Errors
    /// As [`Audit::open`].
    pub fn open_unless_taken(state_dir: &Path, max_bytes: u64) -> io::Result<Option<Self>> {
        match files::lock(state_dir, Duration::ZERO) {
            Ok(lock) => Self::open_locked(state_dir, max_bytes, lock).map(Some),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn open_locked(state_dir: &Path, max_bytes: u64, lock: File) -> io::Result<Self> {
        let mut file = open_current(state_dir)?;
        let torn = end_torn_line(&mut file)?;
        let closed = files::closed(state_dir)?;
        let mut end = files::end_of(&mut file)?;
        if let (None, Some((_, newest))) = (&end, closed.last()) {
            end = files::end_of(&mut File::open(newest)?)?;
        }
        let end = end.unwrap_or_else(|| Head { sequence: 0, hash: GENESIS.to_owned() });
        let known = files::read_head(state_dir)?;
        let damage = known.as_ref().and_then(|known| known.misses(&end));
        let path = state_dir.join(files::HEAD);
        let head =
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
        let number = closed.last().map_or(1, |(number, _)| number + 1);
        // A gap in the numbers of the lines stays, for whoever verifies.
        let sequence = known.map_or(0, |known| known.sequence).max(end.sequence);
        let tail = Tail { file, head, last: end.hash, sequence, number };
        let audit =
            Self { dir: state_dir.to_path_buf(), max_bytes, tail: Mutex::new(tail), _lock: lock };
        if let Some(reason) = damage {
            tracing::error!(reason, "the audit is not as it was left");
            audit.append("damaged", json!({"reason": reason}))?;
        }
        if torn {
            audit.append("repaired", json!({"reason": "the last line was torn by a crash"}))?;
        }
        Ok(audit)
    }

    /// Where the file is that is written now.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.dir.join(files::CURRENT)
    }

    /// Waits until nobody is writing.
    pub fn pulse(&self) {
        drop(self.tail.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Appends one line and waits until it is on disk.
    ///
    /// # Errors
    /// When it could not be written whole; the caller must then not act.
    pub fn append(&self, event: &str, fields: Value) -> io::Result<()> {
        let mut tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        let (text, hash) = tail.line(event, &fields);
        let length = tail.file.metadata()?.len();
        if length == 0 || length + text.len() as u64 <= self.max_bytes {
            return tail.write(&text, hash);
        }
        let previous = tail.next_file(&self.dir)?;
        let (text, hash) = tail.line("continued", &json!({"previous": previous}));
        tail.write(&text, hash)?;
        let (text, hash) = tail.line(event, &fields);
        tail.write(&text, hash)
    }

    /// Tells the log which line is the last one.
    pub fn tell_head(&self) {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner).tell_head();
    }
}

impl Tail {
    /// The text of the next line, and its hash.
    fn line(&self, event: &str, fields: &Value) -> (String, String) {
        let mut line = Map::new();
        line.insert("seq".to_owned(), json!(self.sequence + 1));
        line.insert("time".to_owned(), json!(jiff::Timestamp::now().to_string()));
        line.insert("event".to_owned(), json!(event));
        if let Value::Object(fields) = fields {
            line.extend(fields.clone());
        }
        line.insert("prev".to_owned(), json!(self.last));
        let hash = hash_of(&line);
        line.insert("hash".to_owned(), json!(hash));
        let mut text = Value::Object(line).to_string();
        text.push('\n');
        (text, hash)
    }

    fn write(&mut self, text: &str, hash: String) -> io::Result<()> {
        let length = self.file.metadata()?.len();
        let written = self.file.write_all(text.as_bytes()).and_then(|()| self.file.sync_data());
        if let Err(error) = written {
            // A half line would break the chain for the next one.
            self.file.set_len(length)?;
            return Err(error);
        }
        self.last = hash;
        self.sequence += 1;
        // After the line and never before it, so that a crash leaves the head behind, not ahead.
        let head = Head { sequence: self.sequence, hash: self.last.clone() };
        if let Err(error) = self.head.write_all_at(head.line().as_bytes(), 0) {
            tracing::warn!(%error, "the audit's head cannot be written");
        }
        Ok(())
    }

    /// Closes the current file under its number, which is returned as a name, and begins the next.
    fn next_file(&mut self, dir: &Path) -> io::Result<String> {
        let name = files::name(self.number);
        let (current, closed) = (dir.join(files::CURRENT), dir.join(&name));
        match fs::rename(&current, &closed) {
            // An earlier attempt came as far as here.
            Err(error) if error.kind() == io::ErrorKind::NotFound && closed.exists() => {}
            other => other?,
        }
        self.file = open_current(dir)?;
        File::open(dir)?.sync_all()?;
        self.number += 1;
        self.tell_head();
        Ok(name)
    }

    fn tell_head(&self) {
        tracing::info!(seq = self.sequence, hash = self.last, "the audit's last line");
    }
}

fn open_current(dir: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).mode(0o600).open(dir.join(files::CURRENT))
}

/// What is said about a call before it acts.
#[must_use]
pub fn about(peer: u32, request: &Request) -> Value {
    json!({
        "peer": peer,
        "turn": named(&request.turn.id),
        "requester": request.turn.requester.as_deref().map(named),
        "origin": request.turn.origin.as_str(),
        "call": named(&request.id),
        "tool": request.call.name().as_str(),
        "arguments": summary(&request.call.arguments()),
    })
}

/// Arguments without their text: a root by its name, numbers and flags as they are, every other text
/// as a digest and a size, a list of too much as a count.
fn summary(arguments: &Value) -> Value {
    let Value::Object(map) = arguments else { return Value::Null };
    let shorten = |(key, value): (&String, &Value)| {
        let root = value.as_str().filter(|_| key == "root");
        (key.clone(), root.map_or_else(|| digest(value), named))
    };
    Value::Object(map.iter().filter(|(_, value)| !value.is_null()).map(shorten).collect())
}

fn digest(value: &Value) -> Value {
    match value {
        Value::String(text) => {
            json!({"sha256": hex(&Sha256::digest(text.as_bytes())[..8]), "bytes": text.len()})
        }
        Value::Array(items) if items.len() <= MAX_COMMIT_PATHS => {
            items.iter().map(digest).collect()
        }
        // More than any tool takes: the call is refused, and its line stays short.
        Value::Array(items) => json!({"items": items.len()}),
        other => other.clone(),
    }
}

/// A name of the peer's choice: as it is, or as a digest when it is too long to be one.
fn named(name: &str) -> Value {
    if name.len() <= MAX_NAME { json!(name) } else { digest(&json!(name)) }
}

fn hash_of(line: &Map<String, Value>) -> String {
    hex(&Sha256::digest(Value::Object(line.clone()).to_string().as_bytes()))
}

/// Bytes in lower-case hex.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Cuts a torn last line off: what it announced never acted, since it was never on disk whole.
fn end_torn_line(file: &mut File) -> io::Result<bool> {
    let length = file.seek(SeekFrom::End(0))?;
    let start = length.saturating_sub(64 * 1024);
    file.seek(SeekFrom::Start(start))?;
    let mut tail = Vec::new();
    file.read_to_end(&mut tail)?;
    if tail.is_empty() || tail.ends_with(b"\n") {
        return Ok(false);
    }
    let whole = tail.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    file.set_len(start + whole as u64)?;
    Ok(true)
}

#[cfg(test)]
mod tests;
