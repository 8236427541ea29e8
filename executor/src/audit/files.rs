//! The audit's files: the one that is written now, the closed ones by number, the head, the lock.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

/// The file that is written now.
pub const CURRENT: &str = "audit.jsonl";

/// Which line is the last one.
pub const HEAD: &str = "audit.head";

/// Who holds this has the state directory.
const LOCK: &str = "lock";

/// The name of a closed file.
#[must_use]
pub fn name(number: u64) -> String {
    format!("audit-{number:06}.jsonl")
}

/// The number of a closed file.
#[must_use]
pub fn number(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("audit-")?.strip_suffix(".jsonl")?;
    digits.parse().ok().filter(|number| self::name(*number) == name)
}

/// The closed files of a state directory, the oldest first.
///
/// # Errors
/// When the folder cannot be read.
pub fn closed(dir: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut closed = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if let Some(number) = entry.file_name().to_str().and_then(number) {
            closed.push((number, entry.path()));
        }
    }
    closed.sort();
    Ok(closed)
}

/// Takes the state directory for this process, waiting for a while.
///
/// # Errors
/// `WouldBlock` when another process has it.
pub(super) fn lock(dir: &Path, patience: Duration) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let path = dir.join(LOCK);
    let file = options.write(true).create(true).truncate(false).mode(0o600).open(path)?;
    let until = Instant::now() + patience;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(fs::TryLockError::Error(error)) => return Err(error),
            Err(fs::TryLockError::WouldBlock) if Instant::now() >= until => {
                return Err(io::Error::new(
                    io::ErrorKind::WouldBlock,
                    "another executor has this state directory; stop it first",
                ));
            }
            Err(fs::TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// A line by its number and its hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// Its number, from 1.
    pub sequence: u64,
    /// Its hash, in hex.
    pub hash: String,
}

impl Head {
    /// As it is on disk: always as long, so that writing it over an older one leaves nothing of that.
    pub(super) fn line(&self) -> String {
        format!("{:020} {}\n", self.sequence, self.hash)
    }

    /// What is wrong with an audit that ends so.
    pub(super) fn misses(&self, end: &Self) -> Option<String> {
        if self.sequence > end.sequence {
            let lost = self.sequence - end.sequence;
            return Some(format!(
                "it ends at line {} and was written up to line {}: {lost} are gone",
                end.sequence, self.sequence
            ));
        }
        (self.sequence == end.sequence && self.hash != end.hash)
            .then(|| format!("line {} is not the one that was written", self.sequence))
    }
}

/// The head, if there is a whole one.
///
/// # Errors
/// When it is there and cannot be read.
pub fn read_head(dir: &Path) -> io::Result<Option<Head>> {
    let text = match fs::read_to_string(dir.join(HEAD)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let parts = text.trim_end().split_once(' ');
    Ok(parts.and_then(|(sequence, hash)| {
        let sequence = sequence.parse().ok()?;
        (hash.len() == 64).then(|| Head { sequence, hash: hash.to_owned() })
    }))
}

/// The last line of a file, if it has one; a line that cannot be read counts as number 0.
pub(super) fn end_of(file: &mut File) -> io::Result<Option<Head>> {
    let lines = last_lines(file)?;
    let Some(line) = lines.last() else { return Ok(None) };
    let hash = line["hash"].as_str().unwrap_or(super::GENESIS).to_owned();
    Ok(Some(Head { sequence: line["seq"].as_u64().unwrap_or(0), hash }))
}

/// The last lines of a file: as many as 64 KiB hold, and at least one.
fn last_lines(file: &mut File) -> io::Result<Vec<Value>> {
    let length = file.seek(SeekFrom::End(0))?;
    let mut room = 64 * 1024;
    loop {
        let start = length.saturating_sub(room);
        file.seek(SeekFrom::Start(start))?;
        let mut tail = Vec::new();
        file.read_to_end(&mut tail)?;
        let text = String::from_utf8_lossy(&tail);
        let mut lines: Vec<&str> = text.lines().collect();
        if start > 0 && !lines.is_empty() {
            // Perhaps only the end of a line.
            lines.remove(0);
        }
        if !lines.is_empty() || start == 0 {
            return Ok(lines.iter().map(|l| serde_json::from_str(l).unwrap_or_default()).collect());
        }
        room *= 2;
    }
}

/// The newest lines of a state directory's audit, the oldest first: enough to see what happened just
/// now, also across a change of file.
///
/// # Errors
/// When a file cannot be read.
pub fn newest(dir: &Path) -> io::Result<Vec<Value>> {
    let mut lines = Vec::new();
    let closed = closed(dir)?.pop().map(|(_, path)| path);
    for path in closed.into_iter().chain([dir.join(CURRENT)]) {
        match File::open(path) {
            Ok(mut file) => lines.extend(last_lines(&mut file)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(lines)
}
