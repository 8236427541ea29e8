//! A file of whole lines that only grows.
//!
//! Each append is one `write` of one line, synced before it returns: a line that was appended
//! survives a crash of the process and of the machine. A line whose append did not return may be
//! there whole, in part, or not at all. A part is given a line end of its own, so that it is never
//! glued to the next record, and is reported; its bytes are never removed.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::JournalError;

/// The file, open for appending.
#[derive(Debug)]
pub(super) struct Lines {
    file: File,
    path: PathBuf,
    /// Whether the file ends in the middle of a line.
    torn: bool,
    /// How often it waited for the disk.
    #[cfg(test)]
    pub(super) syncs: u32,
}

/// A line that is not a whole record. It was kept, and set apart from its neighbours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The file's name.
    pub file: String,
    /// The line, counted from 1.
    pub line: u64,
    /// Its length in bytes.
    pub bytes: usize,
    /// Whether only its line end was missing, so that it was read all the same.
    pub read: bool,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, bytes, read } = self;
        let what = if *read {
            "lacked its line end; it was read, and given one"
        } else {
            "is not a whole record; it was kept and set apart, and counts for nothing"
        };
        write!(f, "{file} line {line} ({bytes} bytes) {what}")
    }
}

impl Lines {
    /// Opens the file, making it when it is not there, and hands on each record in it.
    pub(super) fn open<T: DeserializeOwned>(
        path: &Path,
        damage: &mut Vec<Damage>,
        each: impl FnMut(T),
    ) -> Result<Self, JournalError> {
        let io = |source| JournalError::Io { path: path.display().to_string(), source };
        let mut options = OpenOptions::new();
        let file =
            options.read(true).append(true).create(true).mode(0o600).open(path).map_err(io)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let torn = read(BufReader::new(&file), &name, damage, each).map_err(io)?;
        let mut lines = Self {
            file,
            path: path.to_owned(),
            torn,
            #[cfg(test)]
            syncs: 0,
        };
        if torn {
            write_line(&mut lines.file, b"", &mut lines.torn).map_err(io)?;
            lines.sync().map_err(io)?;
        }
        Ok(lines)
    }

    /// Appends one record.
    pub(super) fn append<T: Serialize>(&mut self, record: &T) -> Result<(), JournalError> {
        self.add(record, Self::sync)
    }

    /// Appends one record that a power cut may take away.
    pub(super) fn append_unsynced<T: Serialize>(&mut self, record: &T) -> Result<(), JournalError> {
        self.add(record, |_| Ok(()))
    }

    fn add<T: Serialize>(
        &mut self,
        record: &T,
        after: impl FnOnce(&mut Self) -> io::Result<()>,
    ) -> Result<(), JournalError> {
        let line = serde_json::to_vec(record).map_err(io::Error::from);
        line.and_then(|mut line| {
            line.push(b'\n');
            write_line(&mut self.file, &line, &mut self.torn)?;
            after(self)
        })
        .map_err(|source| JournalError::Io { path: self.path.display().to_string(), source })
    }

    fn sync(&mut self) -> io::Result<()> {
        #[cfg(test)]
        {
            self.syncs += 1;
        }
        self.file.sync_data()
    }
}

/// Reads every line; tells whether the last one lacks its end.
fn read<T: DeserializeOwned>(
    mut file: impl BufRead,
    name: &str,
    damage: &mut Vec<Damage>,
    mut each: impl FnMut(T),
) -> io::Result<bool> {
    let mut line = Vec::new();
    let mut number = 0;
    loop {
        line.clear();
        if file.read_until(b'\n', &mut line)? == 0 {
            return Ok(false);
        }
        number += 1;
        let ended = line.last() == Some(&b'\n');
        let body = line.trim_ascii();
        let record = serde_json::from_slice::<T>(body).ok();
        let whole = record.is_some();
        if let Some(record) = record {
            each(record);
        }
        if !ended || !(whole || body.is_empty()) {
            let file = name.to_owned();
            damage.push(Damage { file, line: number, bytes: line.len(), read: whole });
        }
        if !ended {
            return Ok(true);
        }
    }
}

/// One write of one line. When only a part fits, the file is torn, and the next line starts with a
/// line end.
fn write_line(file: &mut impl Write, line: &[u8], torn: &mut bool) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(line.len() + 1);
    if *torn {
        bytes.push(b'\n');
    }
    bytes.extend_from_slice(line);
    let written = loop {
        match file.write(&bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => break other?,
        }
    };
    if written == bytes.len() {
        *torn = false;
        return Ok(());
    }
    *torn = *torn || written > 0;
    Err(io::Error::new(io::ErrorKind::WriteZero, "only a part of the line could be written"))
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};

    use super::{Damage, Lines, write_line};

    fn reopen(path: &std::path::Path) -> (Lines, Vec<u32>, Vec<Damage>) {
        let (mut found, mut damage) = (Vec::new(), Vec::new());
        let lines = Lines::open(path, &mut damage, |n: u32| found.push(n)).expect("it opens");
        (lines, found, damage)
    }

    #[test]
    fn a_torn_last_line_is_kept_set_apart_and_reported() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("n.jsonl");
        std::fs::write(&path, "1\n2\n{\"tor").expect("written");
        let (mut lines, found, damage) = reopen(&path);
        assert_eq!(found, [1, 2]);
        assert_eq!(damage, [Damage { file: "n.jsonl".into(), line: 3, bytes: 5, read: false }]);
        lines.append(&4).expect("appended");
        assert_eq!(std::fs::read_to_string(&path).expect("read"), "1\n2\n{\"tor\n4\n");
        assert_eq!(reopen(&path).1, [1, 2, 4]);
    }

    #[test]
    fn a_last_line_that_lacks_only_its_end_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("n.jsonl");
        std::fs::write(&path, "1\n2").expect("written");
        let (mut lines, found, damage) = reopen(&path);
        assert_eq!(found, [1, 2]);
        assert!(damage[0].read && damage[0].line == 2, "{damage:?}");
        lines.append(&3).expect("appended");
        let (_, found, damage) = reopen(&path);
        assert_eq!((found, damage), (vec![1, 2, 3], vec![]));
    }

    #[test]
    fn a_last_line_that_is_no_record_but_has_its_end_is_reported() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("n.jsonl");
        std::fs::write(&path, "1\n\0\0\0\n").expect("written");
        let (_, found, damage) = reopen(&path);
        assert_eq!(found, [1]);
        assert_eq!(damage[0].line, 2);
    }

    /// Takes a few bytes and then no more, like a full disk.
    struct Full(Vec<u8>, usize);

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let fits = bytes.len().min(self.1);
            self.0.extend_from_slice(&bytes[..fits]);
            self.1 -= fits;
            Ok(fits)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_that_a_full_disk_cut_is_never_glued_to_the_next() {
        let (mut disk, mut torn) = (Full(Vec::new(), 3), false);
        assert!(write_line(&mut disk, b"12345\n", &mut torn).is_err());
        assert!(torn);
        disk.1 = 100;
        write_line(&mut disk, b"6\n", &mut torn).expect("there is room again");
        assert_eq!(disk.0, b"123\n6\n");
        assert!(!torn);
    }
}
