//! The records of turns: one file each, written once.
//!
//! A record appears under its name only when all of it is on disk: it is written to a temporary file
//! in the same folder, synced, and renamed to a name that must not exist yet; then the folder is
//! synced. So a record is complete or absent, and never replaced. Temporary files that a crash left
//! are removed at the next start; nothing was said on their account.

use std::fs::{DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::JournalError;
use crate::message::MessageId;
use crate::record::TurnRecord;

const TEMPORARY: &str = ".writing-";

/// A record that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The turn's id.
    pub id: MessageId,
    /// When the record was written.
    pub written: SystemTime,
}

/// Makes the folder ready and tells which turns have a record.
pub(super) fn prepare(turns: &Path) -> Result<Vec<MessageId>, JournalError> {
    let io = |source| JournalError::Io { path: turns.display().to_string(), source };
    DirBuilder::new().recursive(true).mode(0o700).create(turns).map_err(io)?;
    let mut ids = Vec::new();
    for entry in std::fs::read_dir(turns).map_err(io)? {
        let entry = entry.map_err(io)?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(TEMPORARY) {
            std::fs::remove_file(entry.path()).map_err(io)?;
        }
        ids.extend(id_of(&name));
    }
    Ok(ids)
}

/// Writes a record that was not there before.
pub(super) fn write_once(turns: &Path, record: &TurnRecord) -> Result<(), JournalError> {
    let path = path_of(turns, &record.id);
    let io = |source| JournalError::Io { path: path.display().to_string(), source };
    let mut json = serde_json::to_vec_pretty(record).map_err(|error| io(error.into()))?;
    json.push(b'\n');
    let mut file = tempfile::Builder::new().prefix(TEMPORARY).tempfile_in(turns).map_err(io)?;
    file.write_all(&json).and_then(|()| file.as_file().sync_all()).map_err(io)?;
    match file.persist_noclobber(&path) {
        Ok(_) => sync_folder(turns),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => {
            Err(JournalError::AlreadyRecorded(record.id.clone()))
        }
        Err(error) => Err(io(error.error)),
    }
}

/// Makes the names in a folder durable.
pub(super) fn sync_folder(folder: &Path) -> Result<(), JournalError> {
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(|source| JournalError::Io { path: folder.display().to_string(), source })
}

/// The records in a folder of turns, oldest first.
///
/// # Errors
/// When the folder cannot be read; one that is not there has no records.
pub fn stored(turns: &Path) -> io::Result<Vec<Stored>> {
    let entries = match std::fs::read_dir(turns) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        if let Some(id) = id_of(&entry.file_name().to_string_lossy()) {
            found.push(Stored { id, written: entry.metadata()?.modified()? });
        }
    }
    found.sort_by(|a, b| (a.written, &a.id).cmp(&(b.written, &b.id)));
    Ok(found)
}

/// Reads one record.
///
/// # Errors
/// When it is not there or is not a record.
pub fn read_record(turns: &Path, id: &MessageId) -> io::Result<TurnRecord> {
    let json = std::fs::read(path_of(turns, id))?;
    serde_json::from_slice(&json).map_err(io::Error::from)
}

fn path_of(turns: &Path, id: &MessageId) -> PathBuf {
    turns.join(format!("{id}.json"))
}

fn id_of(file_name: &str) -> Option<MessageId> {
    MessageId::parse(file_name.strip_suffix(".json")?).ok()
}
