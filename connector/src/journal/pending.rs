//! What is being said: the text and place of every part that is not settled, one file each.
//!
//! A part can be said again only with the same nonce and the same text, so both have to outlive the
//! process. The file is on disk before the intent is, and goes when the result is known; one that has
//! no unsettled intent was never sent, or is settled, and is removed at the next start.

use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Intended, JournalError, store};
use crate::delivery::{Destination, Part};

pub(super) const PENDING: &str = "pending";

/// Something that an earlier process may have said.
#[derive(Debug)]
#[must_use]
pub struct Unsettled {
    /// To be settled with what becomes of it.
    pub intended: Intended,
    /// When it was first meant to be said.
    pub first: Timestamp,
    /// What and where; absent when it was for a place that ended with its process.
    pub said: Option<(Part, Destination)>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Pending {
    part: Part,
    to: Destination,
}

/// Makes the folder and removes what no unsettled intent needs.
pub(super) fn prepare(
    folder: &Path,
    unsettled: &BTreeMap<String, Timestamp>,
) -> Result<(), JournalError> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed(folder))?;
    for entry in std::fs::read_dir(folder).map_err(failed(folder))? {
        let entry = entry.map_err(failed(folder))?;
        let name = entry.file_name();
        let nonce = name.to_str().and_then(|name| name.strip_suffix(".json"));
        if !nonce.is_some_and(|nonce| unsettled.contains_key(nonce)) {
            std::fs::remove_file(entry.path()).map_err(failed(folder))?;
        }
    }
    Ok(())
}

pub(super) fn write(folder: &Path, part: &Part, to: Destination) -> Result<(), JournalError> {
    let path = path(folder, &part.nonce);
    let io = failed(&path);
    let json = serde_json::to_vec(&Pending { part: part.clone(), to }).map_err(io::Error::from);
    let json = json.map_err(&io)?;
    let mut file = tempfile::Builder::new().tempfile_in(folder).map_err(&io)?;
    file.write_all(&json).and_then(|()| file.as_file().sync_all()).map_err(&io)?;
    file.persist(&path).map_err(|error| io(error.error))?;
    store::sync_folder(folder)
}

pub(super) fn read(
    folder: &Path,
    nonce: String,
    first: Timestamp,
) -> Result<Unsettled, JournalError> {
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
    Ok(Unsettled { intended: Intended { nonce }, first, said })
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
