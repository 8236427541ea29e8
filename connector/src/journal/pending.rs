//! What is being said: the text and place of every part that is not settled, one file each.
//!
//! A part can be said again only with the same nonce and the same text, so both have to outlive the
//! process. All parts of an answer are on disk before its turn's record is, so that a crash between two
//! of them loses none. A file goes when its result is known; one that is settled, or whose turn never
//! got its record, is removed at the next start.

use std::collections::HashSet;
use std::fs::DirBuilder;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Intended, JournalError, store};
use crate::delivery::{Destination, Part};
use crate::message::MessageId;

pub(super) const PENDING: &str = "pending";

/// Something that an earlier process may have said, or had still to say.
#[derive(Debug)]
#[must_use]
pub enum Left {
    /// It may have arrived.
    Tried {
        /// To be settled with what becomes of it.
        intended: Intended,
        /// When it was first meant to be said.
        first: Timestamp,
        /// What and where; absent when it was for a place that ended with its process.
        said: Option<(Part, Destination)>,
    },
    /// It was never sent.
    Unsaid {
        /// What.
        part: Part,
        /// Where.
        to: Destination,
    },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Pending {
    part: Part,
    to: Destination,
}

/// Makes the folder, and tells the nonces of what was kept.
pub(super) fn kept(folder: &Path) -> Result<HashSet<String>, JournalError> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed(folder))?;
    let mut nonces = HashSet::new();
    for entry in std::fs::read_dir(folder).map_err(failed(folder))? {
        let name = entry.map_err(failed(folder))?.file_name();
        nonces.extend(nonce(&name.to_string_lossy()).map(str::to_owned));
    }
    Ok(nonces)
}

/// Removes every file but those of the nonces that are needed.
pub(super) fn clear(folder: &Path, needed: impl Fn(&str) -> bool) -> Result<(), JournalError> {
    for entry in std::fs::read_dir(folder).map_err(failed(folder))? {
        let entry = entry.map_err(failed(folder))?;
        if !nonce(&entry.file_name().to_string_lossy()).is_some_and(&needed) {
            std::fs::remove_file(entry.path()).map_err(failed(folder))?;
        }
    }
    store::sync_folder(folder)
}

fn nonce(file_name: &str) -> Option<&str> {
    file_name.strip_suffix(".json")
}

/// The turn that a nonce belongs to.
pub(super) fn turn(nonce: &str) -> Option<MessageId> {
    MessageId::parse(nonce.rsplit_once('-')?.0).ok()
}

/// Orders nonces by message, as their ids grow, and by number in the message.
pub(super) fn order(nonce: &str) -> (usize, String, u64) {
    let (turn, part) = nonce.rsplit_once('-').unwrap_or((nonce, ""));
    (turn.len(), turn.to_owned(), part.parse().unwrap_or(0))
}

/// Writes what is not there yet: a part never changes.
pub(super) fn write(folder: &Path, parts: &[Part], to: &Destination) -> Result<(), JournalError> {
    let mut new = false;
    for part in parts {
        let path = path(folder, &part.nonce);
        let io = failed(&path);
        if std::fs::exists(&path).map_err(&io)? {
            continue;
        }
        let pending = Pending { part: part.clone(), to: to.clone() };
        let json = serde_json::to_vec(&pending).map_err(io::Error::from).map_err(&io)?;
        let mut file = tempfile::Builder::new().tempfile_in(folder).map_err(&io)?;
        file.write_all(&json).and_then(|()| file.as_file().sync_all()).map_err(&io)?;
        file.persist(&path).map_err(|error| io(error.error))?;
        new = true;
    }
    if new { store::sync_folder(folder) } else { Ok(()) }
}

/// Reads one; `None` when it was never sent and is not there.
pub(super) fn read(
    folder: &Path,
    nonce: String,
    first: Option<Timestamp>,
) -> Result<Option<Left>, JournalError> {
    let path = path(folder, &nonce);
    let said = match std::fs::read(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(failed(&path)(error)),
        Ok(json) => {
            let Pending { part, to } =
                serde_json::from_slice(&json).map_err(io::Error::from).map_err(failed(&path))?;
            Some((part, to))
        }
    };
    Ok(match (first, said) {
        (Some(first), said) => Some(Left::Tried { intended: Intended { nonce }, first, said }),
        (None, Some((part, to))) => Some(Left::Unsaid { part, to }),
        (None, None) => None,
    })
}

pub(super) fn remove(folder: &Path, nonce: &str) -> Result<(), JournalError> {
    let path = path(folder, nonce);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(failed(&path)(error)),
        _ => Ok(()),
    }
}

/// A nonce is a message id and a suffix of our own, so it is safe as a name.
fn path(folder: &Path, nonce: &str) -> PathBuf {
    folder.join(format!("{nonce}.json"))
}

fn failed(path: &Path) -> impl Fn(io::Error) -> JournalError + use<> {
    let path = path.display().to_string();
    move |source| JournalError::Io { path: path.clone(), source }
}
