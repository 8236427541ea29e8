//! Checking the chain, over all files of an audit.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::files::{self, CURRENT, Head};
use super::{GENESIS, hash_of};

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// How many lines hold, up to the first that does not.
    pub lines: u64,
    /// How many files were looked at.
    pub files: usize,
    /// The first thing that does not hold.
    pub broken: Option<Broken>,
}

/// Where a chain breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// The file's name.
    pub file: String,
    /// The line in it, from 1.
    pub line: u64,
    /// What is wrong.
    pub reason: String,
}

/// Checks the chain of a state directory, of the audit that a file belongs to, or of a file that lies
/// elsewhere by itself. `archived` says that the oldest files were moved away.
///
/// # Errors
/// When a file cannot be read.
pub fn verify(path: &Path, archived: bool) -> io::Result<Verdict> {
    let Some(dir) = folder_of(path) else {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut walk = Walk::new(archived);
        walk.file(&name, path)?;
        return Ok(walk.verdict(1));
    };
    loop {
        let (verdict, before) = verify_all(&dir, archived)?;
        // The executor may have gone on to its next file between two looks.
        if verdict.broken.is_none() || files::closed(&dir)?.len() == before {
            return Ok(verdict);
        }
    }
}

/// The state directory that a path means.
#[must_use]
pub fn folder_of(path: &Path) -> Option<PathBuf> {
    if path.is_dir() {
        return Some(path.to_path_buf());
    }
    let name = path.file_name()?.to_str()?;
    let ours = name == CURRENT || files::number(name).is_some();
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    ours.then(|| folder.unwrap_or(Path::new(".")).to_path_buf())
}

fn verify_all(dir: &Path, archived: bool) -> io::Result<(Verdict, usize)> {
    // Before the lines: what is appended meanwhile is no contradiction.
    let head = files::read_head(dir)?;
    let closed = files::closed(dir)?;
    let mut walk = Walk::new(archived);
    let first = closed.first().map_or(1, |(number, _)| *number);
    let numbers = if archived { first } else { 1 }..;
    for (expected, (number, path)) in numbers.zip(&closed) {
        if *number != expected {
            walk.broken(&files::name(expected), 0, "the file is missing".to_owned());
            break;
        }
        walk.file(&files::name(*number), path)?;
    }
    let current = dir.join(CURRENT);
    // After a file is closed the next one may not be begun yet.
    if closed.is_empty() || current.exists() {
        walk.file(CURRENT, &current)?;
    }
    if let Some(reason) = head.and_then(|head| head.misses(&walk.end())) {
        walk.broken(CURRENT, walk.in_file + 1, reason);
    }
    Ok((walk.verdict(closed.len() + usize::from(current.exists())), closed.len()))
}

/// How far the chain was followed.
#[derive(Debug)]
struct Walk {
    last: String,
    sequence: u64,
    /// Whether the next line may follow any other.
    anywhere: bool,
    lines: u64,
    in_file: u64,
    broken: Option<Broken>,
}

impl Walk {
    fn new(anywhere: bool) -> Self {
        let last = GENESIS.to_owned();
        Self { last, sequence: 0, anywhere, lines: 0, in_file: 0, broken: None }
    }

    fn end(&self) -> Head {
        Head { sequence: self.sequence, hash: self.last.clone() }
    }

    /// The first thing that is wrong stays the one that is told.
    fn broken(&mut self, file: &str, line: u64, reason: String) {
        self.broken.get_or_insert_with(|| Broken { file: file.to_owned(), line, reason });
    }

    fn file(&mut self, name: &str, path: &Path) -> io::Result<()> {
        self.in_file = 0;
        let mut reader = BufReader::new(File::open(path)?);
        let mut line = Vec::new();
        while self.broken.is_none() && reader.read_until(b'\n', &mut line)? > 0 {
            match self.line(&line) {
                Ok(()) => {
                    self.lines += 1;
                    self.in_file += 1;
                }
                Err(reason) => self.broken(name, self.in_file + 1, reason),
            }
            line.clear();
        }
        Ok(())
    }

    fn line(&mut self, line: &[u8]) -> Result<(), String> {
        let Some(whole) = line.strip_suffix(b"\n") else {
            return Err("it is torn; the next start of the executor cuts it off".to_owned());
        };
        let Ok(Value::Object(mut map)) = serde_json::from_slice(whole) else {
            return Err("it is not a JSON object".to_owned());
        };
        let Some(Value::String(hash)) = map.remove("hash") else {
            return Err("it has no hash".to_owned());
        };
        let sequence = map.get("seq").and_then(Value::as_u64).unwrap_or(0);
        if hash_of(&map) != hash {
            return Err("its hash does not match what it says".to_owned());
        }
        if !self.anywhere {
            let follows = map.get("prev").and_then(Value::as_str) == Some(self.last.as_str());
            if !follows {
                return Err("it does not follow the line before it".to_owned());
            }
            if map.get("event").and_then(Value::as_str) == Some("damaged") {
                let found = map.get("reason").and_then(Value::as_str).unwrap_or_default();
                return Err(format!("a start of the executor found the audit damaged: {found}"));
            }
            if sequence != self.sequence + 1 {
                return Err(format!(
                    "it is number {sequence} and follows number {}: lines are missing",
                    self.sequence
                ));
            }
        }
        self.anywhere = false;
        self.last = hash;
        self.sequence = sequence;
        Ok(())
    }

    fn verdict(self, files: usize) -> Verdict {
        Verdict { lines: self.lines, files, broken: self.broken }
    }
}
