//! The audit: one append-only file of JSON lines, each carrying the hash of the line before it.
//!
//! A call is written down before it acts and again when it is done; one that cannot be written down
//! is refused. Arguments appear as digests and sizes, never as text.
//!
//! What survives: a line is on disk (fdatasync) before the call it announces acts. A crash can tear
//! the last line only: that call never acted. The next start cuts the torn line off and says so in a
//! line of its own.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use protocol::service::Request;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

/// The hash that the first line carries as its predecessor's.
const GENESIS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// The audit file, open for appending.
#[derive(Debug)]
pub struct Audit {
    path: PathBuf,
    tail: Mutex<Tail>,
}

#[derive(Debug)]
struct Tail {
    file: File,
    last: String,
    sequence: u64,
}

impl Audit {
    /// Opens the audit of a state directory, repairing a torn last line.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub fn open(state_dir: &Path) -> io::Result<Self> {
        let path = state_dir.join("audit.jsonl");
        let mut file =
            OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(&path)?;
        let torn = end_torn_line(&mut file)?;
        let (last, sequence) = read_tail(&mut file)?;
        let audit = Self { path, tail: Mutex::new(Tail { file, last, sequence }) };
        if torn {
            audit.append("repaired", json!({"reason": "the last line was torn by a crash"}))?;
        }
        Ok(audit)
    }

    /// Where the file is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
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
        let mut line = Map::new();
        line.insert("seq".to_owned(), json!(tail.sequence + 1));
        line.insert("time".to_owned(), json!(jiff::Timestamp::now().to_string()));
        line.insert("event".to_owned(), json!(event));
        if let Value::Object(fields) = fields {
            line.extend(fields);
        }
        line.insert("prev".to_owned(), json!(tail.last));
        let hash = hash_of(&line);
        line.insert("hash".to_owned(), json!(hash));
        let mut text = Value::Object(line).to_string();
        text.push('\n');
        let length = tail.file.metadata()?.len();
        let written = tail.file.write_all(text.as_bytes()).and_then(|()| tail.file.sync_data());
        if let Err(error) = written {
            // A half line would break the chain for the next one.
            tail.file.set_len(length)?;
            return Err(error);
        }
        tail.last = hash;
        tail.sequence += 1;
        Ok(())
    }
}

/// What is said about a call before it acts.
#[must_use]
pub fn about(peer: u32, request: &Request) -> Value {
    json!({
        "peer": peer,
        "turn": request.turn.id,
        "requester": request.turn.requester,
        "origin": request.turn.origin.as_str(),
        "call": request.id,
        "tool": request.call.name().as_str(),
        "arguments": summary(&request.call.arguments()),
    })
}

/// Arguments without their text: a root by its name, numbers and flags as they are, every other text
/// as a digest and a size.
fn summary(arguments: &Value) -> Value {
    let Value::Object(map) = arguments else { return Value::Null };
    let shorten = |(key, value): (&String, &Value)| {
        let short = if key == "root" { value.clone() } else { digest(value) };
        (key.clone(), short)
    };
    Value::Object(map.iter().filter(|(_, value)| !value.is_null()).map(shorten).collect())
}

fn digest(value: &Value) -> Value {
    match value {
        Value::String(text) => {
            json!({"sha256": hex(&Sha256::digest(text.as_bytes())[..8]), "bytes": text.len()})
        }
        Value::Array(items) => items.iter().map(digest).collect(),
        other => other.clone(),
    }
}

/// Checks the chain of a file.
///
/// # Errors
/// When the file cannot be read.
///
/// # Returns
/// How many lines hold, and the number of the first broken line (from 1) with the reason.
pub fn verify(path: &Path) -> io::Result<(u64, Option<(u64, String)>)> {
    let mut last = GENESIS.to_owned();
    let mut count = 0;
    for line in BufReader::new(File::open(path)?).lines() {
        match check_line(&line?, &last, count + 1) {
            Ok(hash) => last = hash,
            Err(reason) => return Ok((count, Some((count + 1, reason)))),
        }
        count += 1;
    }
    Ok((count, None))
}

/// The hash of a line that holds.
fn check_line(line: &str, last: &str, number: u64) -> Result<String, String> {
    let Ok(Value::Object(mut map)) = serde_json::from_str(line) else {
        return Err("it is not a JSON object".to_owned());
    };
    let Some(Value::String(hash)) = map.remove("hash") else {
        return Err("it has no hash".to_owned());
    };
    if map.get("prev").and_then(Value::as_str) != Some(last) {
        return Err(format!("line {number} does not follow the line before it"));
    }
    if hash_of(&map) != hash {
        return Err("its hash does not match what it says".to_owned());
    }
    Ok(hash)
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

fn read_tail(file: &mut File) -> io::Result<(String, u64)> {
    let length = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(length.saturating_sub(64 * 1024)))?;
    let mut tail = Vec::new();
    file.read_to_end(&mut tail)?;
    let text = String::from_utf8_lossy(&tail);
    let Some(line) = text.lines().last() else { return Ok((GENESIS.to_owned(), 0)) };
    let value: Value = serde_json::from_str(line).unwrap_or_default();
    let last = value["hash"].as_str().unwrap_or(GENESIS).to_owned();
    Ok((last, value["seq"].as_u64().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use serde_json::json;

    use super::{Audit, verify};

    #[test]
    fn the_chain_holds_until_someone_touches_a_line() {
        let dir = tempfile::tempdir().expect("a folder");
        let audit = Audit::open(dir.path()).expect("it opens");
        for n in 0..3 {
            audit.append("call", json!({"n": n})).expect("it appends");
        }
        assert_eq!(verify(audit.path()).expect("it reads"), (3, None));
        let reopened = Audit::open(dir.path()).expect("it opens again");
        reopened.append("call", json!({"n": 3})).expect("it appends");
        assert_eq!(verify(audit.path()).expect("it reads"), (4, None));
        let text = std::fs::read_to_string(audit.path()).expect("it reads");
        std::fs::write(audit.path(), text.replacen("\"n\":1", "\"n\":7", 1)).expect("it writes");
        let (held, broken) = verify(audit.path()).expect("it reads");
        assert_eq!(held, 1);
        assert_eq!(broken.map(|(line, _)| line), Some(2));
    }

    #[test]
    fn a_torn_last_line_is_cut_off_and_said_so() {
        let dir = tempfile::tempdir().expect("a folder");
        let audit = Audit::open(dir.path()).expect("it opens");
        audit.append("call", json!({})).expect("it appends");
        let mut file =
            std::fs::OpenOptions::new().append(true).open(audit.path()).expect("it opens");
        file.write_all(b"{\"seq\":2,\"ti").expect("it tears");
        Audit::open(dir.path()).expect("it opens");
        assert_eq!(verify(audit.path()).expect("it reads"), (2, None));
        let text = std::fs::read_to_string(audit.path()).expect("it reads");
        assert!(text.lines().last().is_some_and(|line| line.contains("\"repaired\"")), "{text}");
    }
}
