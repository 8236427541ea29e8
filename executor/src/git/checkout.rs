//! Undoing a fast-forward that did not get to its end.
//!
//! git writes the work tree file by file. When it is killed on the way, each path that it was about to
//! change holds the old content, the new one, or a beginning of the new one. Those are put back to the
//! old content. A path that holds anything else was changed by somebody, and is left alone.

use std::path::Path;

use policy::path::MAX_PATH_BYTES;
use serde::{Deserialize, Serialize};

use super::parse::RawEntry;
use super::repo::{self, Place, unreadable};
use crate::tools::Failure;
use crate::tools::files::{Here, RootDir};

/// The longest file that is put back, in bytes.
const MAX_FILE: u64 = 64 << 20;

/// One path that a fast-forward changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Moving {
    path: Vec<u8>,
    old: Option<Side>,
    new: Option<Side>,
}

/// What a path holds, on one side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Side {
    hash: String,
    executable: bool,
}

impl Moving {
    /// The entries of a raw diff without renames that are files on both sides that exist. Links and
    /// submodules are git's to bring into place, with the next pull.
    #[must_use]
    pub fn of(entries: &[RawEntry]) -> Vec<Self> {
        let side = |mode: &str, hash: &str| match mode {
            "000000" => Some(None),
            "100644" | "100755" => {
                Some(Some(Side { hash: hash.to_owned(), executable: mode == "100755" }))
            }
            _ => None,
        };
        let moving = |entry: &RawEntry| {
            let old = side(&entry.old_mode, &entry.old_hash)?;
            let new = side(&entry.new_mode, &entry.new_hash)?;
            Some(Self { path: entry.path.clone(), old, new })
        };
        entries.iter().filter_map(moving).collect()
    }
}

/// Puts back what a fast-forward had moved. Runs on a thread that can write the root.
///
/// # Errors
/// When the repository or the work tree cannot be read or written.
pub fn put_back(root: &Path, place: &Place, moving: &[Moving]) -> Result<usize, Failure> {
    let repository = repo::open(place)?;
    let dir = RootDir::open(root)?;
    let blob = |side: &Side| -> Result<Vec<u8>, Failure> {
        let id = gix::ObjectId::from_hex(side.hash.as_bytes()).map_err(unreadable)?;
        Ok(repository.find_object(id).map_err(unreadable)?.data.clone())
    };
    let mut count = 0;
    for path in moving.iter().filter(|moving| moving.path.len() <= MAX_PATH_BYTES) {
        let here = match dir.look_at(&path.path, MAX_FILE)? {
            Here::Nothing => {
                // git may have got as far as the folder.
                if path.old.is_none() {
                    dir.prune(&path.path);
                }
                None
            }
            Here::File(bytes) => Some(bytes),
            Here::Other => continue,
        };
        let new = path.new.as_ref().map(blob).transpose()?;
        let old = path.old.as_ref().map(blob).transpose()?;
        if here == old || !is_on_the_way(here.as_deref(), new.as_deref()) {
            continue;
        }
        match (&path.old, old) {
            (Some(side), Some(bytes)) => dir.put_back(&path.path, &bytes, side.executable)?,
            _ => dir.remove(&path.path)?,
        }
        count += 1;
    }
    Ok(count)
}

/// Whether git could have left this, on the way to the new content.
fn is_on_the_way(here: Option<&[u8]>, new: Option<&[u8]>) -> bool {
    match (here, new) {
        // It removes a path before it writes it, or for good.
        (None, _) => true,
        (Some(here), Some(new)) => new.starts_with(here),
        (Some(_), None) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::is_on_the_way;

    #[test]
    fn only_what_git_itself_leaves_is_put_back() {
        let new = Some(&b"new text"[..]);
        for here in [None, Some(&b""[..]), Some(&b"new"[..]), new] {
            assert!(is_on_the_way(here, new), "{here:?}");
        }
        assert!(!is_on_the_way(Some(b"a person's"), new));
        assert!(!is_on_the_way(Some(b"new text and more"), new));
        assert!(is_on_the_way(None, None));
        assert!(!is_on_the_way(Some(b"back again"), None));
    }
}
