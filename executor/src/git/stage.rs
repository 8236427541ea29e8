//! A private index, and git's own index lock around it: how a commit, and a pull, is all or nothing.
//!
//! The order of things on disk:
//!
//! 1. `state/pending/NONCE.json` says that a commit begins.
//! 2. `.git/sage-NONCE.lock` is made, and linked to `.git/index.lock`: now no other git writes the
//!    index. A lock that is there already belongs to somebody and is never touched.
//! 3. `.git/sage-NONCE.index` is a second name of the index; git stages into it, which makes it a file
//!    of its own.
//! 4. Tree and commit objects are written. `pending` learns the commit's hash.
//! 5. git moves the branch, if it is where it was. **This is the commit.**
//! 6. The private index is renamed over the index, and the lock is removed.
//!
//! A fast-forward takes the same way: the work tree and the private index move in step 3, after
//! `pending` learned which paths that touches, and what it had moved is put back when it does not get
//! to 5.
//!
//! A crash before 5 leaves HEAD and index as they were; after 5, the next start does 6. Which of the
//! two it was is read from the branch, not guessed.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use protocol::refusal::Code;
use protocol::reply::{Committed, Reply};
use serde::{Deserialize, Serialize};

use super::checkout::{self, Moving};
use super::repo::{self, Place};
use crate::audit::hex;
use crate::outcomes::{CallKey, Outcomes};
use crate::tools::Failure;
use crate::workplace::{Root, Workplace};

/// The folder of the state directory that records commits under way.
pub const FOLDER: &str = "pending";

/// What is recorded of a commit under way.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Pending {
    root: String,
    git_dir: PathBuf,
    common_dir: PathBuf,
    work_tree: PathBuf,
    nonce: String,
    branch: String,
    /// The commit, once it exists and before the branch moves.
    commit: Option<Made>,
    /// The fast-forward, before the work tree moves.
    forward: Option<Forward>,
    /// The refs that git is about to move, and so to lock.
    #[serde(default)]
    moving: Vec<String>,
}

/// A fast-forward under way.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Forward {
    to: String,
    moving: Vec<Moving>,
}

/// A commit that exists, and the call that asked for it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Made {
    call: CallKey,
    done: Committed,
}

/// A private index under git's index lock. Dropped without [`Stage::finish`], it leaves no trace.
#[derive(Debug)]
pub struct Stage<'a> {
    root: &'a Root,
    state_dir: &'a Path,
    pending: Pending,
    finished: bool,
}

struct Names {
    lock: PathBuf,
    marker: PathBuf,
    index: PathBuf,
    private: PathBuf,
    private_lock: PathBuf,
}

impl Pending {
    fn new(root: &Root, place: &Place, branch: &str) -> Result<Self, Failure> {
        let mut nonce = [0; 8];
        rustix::rand::getrandom(&mut nonce, rustix::rand::GetRandomFlags::empty())
            .map_err(|error| Failure::io(error.into()))?;
        Ok(Self {
            root: root.name.clone(),
            git_dir: place.git_dir.clone(),
            common_dir: place.common_dir.clone(),
            work_tree: place.work_tree.clone(),
            nonce: hex(&nonce),
            branch: branch.to_owned(),
            commit: None,
            forward: None,
            moving: Vec::new(),
        })
    }

    fn names(&self) -> Names {
        let at = |name: String| self.git_dir.join(name);
        Names {
            lock: at("index.lock".to_owned()),
            marker: at(format!("sage-{}.lock", self.nonce)),
            index: at("index".to_owned()),
            private: at(format!("sage-{}.index", self.nonce)),
            private_lock: at(format!("sage-{}.index.lock", self.nonce)),
        }
    }

    fn place(&self) -> Place {
        Place {
            work_tree: self.work_tree.clone(),
            git_dir: self.git_dir.clone(),
            common_dir: self.common_dir.clone(),
            filters: Vec::new(),
        }
    }

    fn file(&self, state_dir: &Path) -> PathBuf {
        state_dir.join(FOLDER).join(format!("{}.json", self.nonce))
    }

    /// Written aside, synced, renamed, and the folder synced: whole or not at all.
    fn save(&self, state_dir: &Path) -> Result<(), Failure> {
        let folder = state_dir.join(FOLDER);
        let mut file = tempfile::NamedTempFile::new_in(&folder).map_err(Failure::io)?;
        serde_json::to_writer(&mut file, self).map_err(|e| Failure::io(e.into()))?;
        file.as_file().sync_all().map_err(Failure::io)?;
        file.persist(self.file(state_dir)).map_err(|e| Failure::io(e.error))?;
        fs::File::open(&folder).and_then(|folder| folder.sync_all()).map_err(Failure::io)
    }
}

impl<'a> Stage<'a> {
    /// Takes git's index lock and copies the index.
    ///
    /// # Errors
    /// `index_locked`.
    pub fn begin(
        workplace: &'a Workplace,
        root: &'a Root,
        place: &Place,
        branch: &str,
    ) -> Result<Self, Failure> {
        let pending = Pending::new(root, place, branch)?;
        pending.save(&workplace.state_dir)?;
        let stage = Self { root, state_dir: &workplace.state_dir, pending, finished: false };
        let names = stage.pending.names();
        root.write(|| take_lock(&names))?;
        Ok(stage)
    }

    /// The private index.
    #[must_use]
    pub fn private_index(&self) -> PathBuf {
        self.pending.names().private
    }

    /// Records the commit that the branch is about to move to.
    ///
    /// # Errors
    /// When the state directory cannot be written; the branch must then not move.
    pub fn about_to_move(&mut self, call: &CallKey, done: &Committed) -> Result<(), Failure> {
        self.pending.commit = Some(Made { call: call.clone(), done: done.clone() });
        self.pending.moving = vec!["HEAD".to_owned(), self.pending.branch.clone()];
        self.pending.save(self.state_dir)
    }

    /// Records the fast-forward that the work tree is about to make.
    ///
    /// # Errors
    /// When the state directory cannot be written; the work tree must then not move.
    pub fn about_to_forward(&mut self, to: &str, moving: Vec<Moving>) -> Result<(), Failure> {
        self.pending.forward = Some(Forward { to: to.to_owned(), moving });
        self.pending.moving = vec!["HEAD".to_owned(), self.pending.branch.clone()];
        self.pending.save(self.state_dir)
    }

    /// The branch has moved: the private index becomes the index.
    ///
    /// # Errors
    /// A fault; the next start will finish it.
    pub fn finish(mut self) -> Result<(), Failure> {
        // From here on there is a commit, and nothing may be undone.
        self.finished = true;
        let names = self.pending.names();
        self.root.write(|| install(&names))?;
        fs::remove_file(self.pending.file(self.state_dir)).map_err(Failure::io)
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        // What cannot be undone now is undone at the next start: the record stays with it.
        if self.root.write(|| undo(&self.pending)).is_ok() {
            let _ = fs::remove_file(self.pending.file(self.state_dir));
        }
    }
}

fn take_lock(names: &Names) -> Result<(), Failure> {
    fs::File::create_new(&names.marker).map_err(Failure::io)?;
    match fs::hard_link(&names.marker, &names.lock) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(Failure::refuse(
                Code::IndexLocked,
                "Another program holds git's index lock (`.git/index.lock`).",
                "Try again when it is done. If no git is running, a person removes the file.",
            ));
        }
        Err(error) => return Err(Failure::io(error)),
    }
    // A link, not a copy: git writes a new file beside it, and what it knows of files that changed in
    // the same second hangs on the index's own time.
    match fs::hard_link(&names.index, &names.private) {
        Ok(()) => Ok(()),
        // Before the first commit there may be none.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Failure::io(error)),
    }
}

fn install(names: &Names) -> Result<(), Failure> {
    if let Ok(index) = fs::File::open(&names.private) {
        index.sync_all().map_err(Failure::io)?;
        fs::rename(&names.private, &names.index).map_err(Failure::io)?;
    }
    remove(names)
}

/// Makes it as if nothing had begun.
fn undo(pending: &Pending) -> Result<(), Failure> {
    if let Some(forward) = &pending.forward {
        checkout::put_back(&pending.work_tree, &pending.place(), &forward.moving)?;
    }
    remove(&pending.names())
}

/// Removes what is ours: the lock only if it is the file that we linked.
fn remove(names: &Names) -> Result<(), Failure> {
    for path in [&names.private, &names.private_lock] {
        gone(fs::remove_file(path))?;
    }
    if holds_lock(names) {
        gone(fs::remove_file(&names.lock))?;
    }
    gone(fs::remove_file(&names.marker))
}

fn holds_lock(names: &Names) -> bool {
    let identity = |path: &Path| fs::symlink_metadata(path).map(|m| (m.dev(), m.ino())).ok();
    identity(&names.marker).is_some_and(|ours| identity(&names.lock) == Some(ours))
}

fn gone(result: io::Result<()>) -> Result<(), Failure> {
    match result {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Failure::io(error)),
        _ => Ok(()),
    }
}

/// Lets git move one ref alone, on record, so that a lock it leaves when it is killed can be told from
/// anybody else's.
///
/// # Errors
/// When the state directory cannot be written; the ref then does not move.
pub fn moving_ref<T>(
    workplace: &Workplace,
    root: &Root,
    place: &Place,
    name: &str,
    work: impl FnOnce() -> T,
) -> Result<T, Failure> {
    let mut pending = Pending::new(root, place, name)?;
    pending.moving = vec![name.to_owned()];
    pending.save(&workplace.state_dir)?;
    let result = work();
    fs::remove_file(pending.file(&workplace.state_dir)).map_err(Failure::io)?;
    Ok(result)
}

/// How far the times of two files of one moment can lie apart.
const TICK: Duration = Duration::from_millis(20);

/// How long a ref's lock must stay as it is to be taken for one that nobody holds.
const STALE: Duration = Duration::from_secs(2);

/// Removes the ref locks that our git left: they appeared after it was on record that it would take
/// them, and nobody has released them since.
fn remove_ref_locks(pending: &Pending, recorded: SystemTime) -> Result<(), Failure> {
    let lock = |name: &String| {
        let folder = if name == "HEAD" { &pending.git_dir } else { &pending.common_dir };
        folder.join(format!("{name}.lock"))
    };
    let seen = |path: PathBuf| {
        let metadata = fs::symlink_metadata(&path).ok()?;
        // Two files' clocks can differ by a tick.
        let since = recorded.checked_sub(TICK)?;
        (metadata.modified().ok()? >= since).then_some((path, metadata.ino()))
    };
    let found: Vec<_> = pending.moving.iter().map(lock).filter_map(seen).collect();
    if !found.is_empty() {
        std::thread::sleep(STALE);
    }
    for (path, inode) in found {
        if fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.ino() == inode) {
            gone(fs::remove_file(&path))?;
        }
    }
    Ok(())
}

/// What was found of a commit that a killed process left.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Recovered {
    /// The root.
    pub root: String,
    /// The commit, when the branch holds it; nothing when the commit never was.
    pub commit: Option<String>,
}

/// Finishes or removes what a killed process left, by what the branch says.
///
/// # Errors
/// When a record cannot be read, or a clone cannot be put right.
pub fn recover(workplace: &Workplace, outcomes: &Outcomes) -> Result<Vec<Recovered>, String> {
    let folder = workplace.state_dir.join(FOLDER);
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut found = Vec::new();
    for entry in fs::read_dir(&folder).map_err(|error| error.to_string())?.flatten() {
        let path = entry.path();
        let text =
            fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        // A name without `.json` is a record that was never renamed into place: nothing began.
        if path.extension().is_some_and(|extension| extension == "json") {
            let pending: Pending = serde_json::from_str(&text).map_err(|error| {
                format!("{}: {error}; a person looks at it and removes it", path.display())
            })?;
            let Some(root) = workplace.roots.iter().find(|root| root.name == pending.root) else {
                continue;
            };
            let recorded = entry.metadata().and_then(|metadata| metadata.modified());
            let recorded = recorded.map_err(|error| format!("{}: {error}", path.display()))?;
            let made = put_right(root, &pending, recorded)
                .map_err(|failure| format!("{}: {failure:?}", path.display()))?;
            if let Some(made) = &made {
                let reply = Reply::Committed(made.done.clone());
                outcomes.keep(&made.call, &reply).map_err(|error| error.to_string())?;
            }
            let commit = made.map(|made| made.done.hash);
            if pending.branch.starts_with("refs/heads/") {
                found.push(Recovered { root: pending.root, commit });
            }
        }
        fs::remove_file(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(found)
}

fn put_right(
    root: &Root,
    pending: &Pending,
    recorded: SystemTime,
) -> Result<Option<Made>, Failure> {
    root.write(|| remove_ref_locks(pending, recorded))?;
    let moved = root.read(|| Ok(branch_holds(&pending.place(), pending)))?;
    let names = pending.names();
    root.write(|| match moved {
        true if holds_lock(&names) => install(&names),
        true => remove(&names),
        false => undo(pending),
    })?;
    Ok(pending.commit.clone().filter(|_| moved))
}

fn branch_holds(place: &Place, pending: &Pending) -> bool {
    let commit = pending.commit.as_ref().map(|made| &made.done.hash);
    let forward = pending.forward.as_ref().map(|forward| &forward.to);
    let Some(target) = commit.or(forward) else { return false };
    let Ok(repository) = repo::open(place) else { return false };
    let tip = repository.find_reference(&pending.branch).ok().and_then(|mut r| r.peel_to_id().ok());
    let Some(tip) = tip.map(|id| id.detach().to_string()) else { return false };
    let distance = repo::distance(&repository, &tip, target);
    matches!(distance, Ok(Some(distance)) if distance.behind == 0)
}
