//! Effects happen once: what became of a writing call is on disk, so that the same call id again,
//! also after a restart, answers with what was done instead of doing it again.
//!
//! Only replies are kept. A refusal changed nothing, so it may be judged anew.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use protocol::refusal::Outcome;
use protocol::reply::Reply;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::audit::hex;

/// The folder of the state directory.
const FOLDER: &str = "outcomes";

/// How long an outcome is kept. Nobody asks again about a call of last week.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// The outcomes of writing calls.
#[derive(Debug)]
pub struct Outcomes(PathBuf);

/// Names one call of one peer.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CallKey(String);

impl CallKey {
    /// The key of a call.
    #[must_use]
    pub fn new(peer: u32, turn: &str, call: &str) -> Self {
        let mut hash = Sha256::new();
        for part in [&peer.to_string(), turn, call] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Self(hex(&hash.finalize()))
    }
}

impl Outcomes {
    /// Opens the folder and forgets what is old.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn open(state_dir: &Path) -> io::Result<Self> {
        let folder = state_dir.join(FOLDER);
        fs::create_dir_all(&folder)?;
        let limit = SystemTime::now().checked_sub(KEPT);
        for entry in fs::read_dir(&folder)?.flatten() {
            let modified = entry.metadata().and_then(|metadata| metadata.modified()).ok();
            if modified.zip(limit).is_some_and(|(modified, limit)| modified < limit) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(Self(folder))
    }

    /// What became of a call, if it was done.
    #[must_use]
    pub fn find(&self, key: &CallKey) -> Option<Outcome> {
        let text = fs::read_to_string(self.file(key)).ok()?;
        serde_json::from_str(&text).ok().map(Outcome::Reply)
    }

    /// Keeps the reply of a call: whole, or as it was before.
    ///
    /// # Errors
    /// When the state directory cannot be written.
    pub fn keep(&self, key: &CallKey, reply: &Reply) -> io::Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(&self.0)?;
        serde_json::to_writer(&mut file, reply)?;
        file.as_file().sync_all()?;
        file.persist(self.file(key)).map(drop).map_err(|error| error.error)
    }

    fn file(&self, key: &CallKey) -> PathBuf {
        self.0.join(format!("{}.json", key.0))
    }
}

#[cfg(test)]
mod tests {
    use protocol::refusal::Outcome;
    use protocol::reply::{Pushed, Reply};

    use super::{CallKey, Outcomes};

    #[test]
    fn a_reply_is_found_again_by_its_own_call_alone() {
        let dir = tempfile::tempdir().expect("a folder");
        let outcomes = Outcomes::open(dir.path()).expect("it opens");
        let key = CallKey::new(1, "turn", "call");
        assert_eq!(outcomes.find(&key), None);
        let reply = Reply::Pushed(Pushed { hash: "a".into(), branch: "main".into(), commits: 1 });
        outcomes.keep(&key, &reply).expect("it keeps");
        let again = Outcomes::open(dir.path()).expect("it opens again");
        assert_eq!(again.find(&key), Some(Outcome::Reply(reply)));
        for other in [CallKey::new(2, "turn", "call"), CallKey::new(1, "turnc", "all")] {
            assert_eq!(again.find(&other), None);
        }
    }
}
