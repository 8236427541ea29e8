//! Which process runs a binding, in a form that outlives it, and the brake.
//!
//! | in the binding's folder | is                                                              |
//! |-------------------------|-----------------------------------------------------------------|
//! | `run.lock/owner.json`   | who runs it: pid, start in ticks since boot, boot id            |
//! | `STOP`                  | the brake: while it is there nothing starts                     |
//! | `stop.lock`             | an `flock` held for the moment in which `STOP` is changed       |
//!
//! What must stay true: a process that is alive, or may be, never loses its lock to another. Making
//! the folder is atomic, so that one of several starts wins. A lock that was left is never taken
//! over; [`unlock`] removes it, after it has closed the gate: it writes `STOP` before it looks, and a
//! claim looks for `STOP` after its record is there. So a claim that survives came first, and unlock
//! sees it alive.
//!
//! An owner is told apart in three ways: surely gone, surely alive, or not to be told. The last
//! refuses everything. A value that the kernel never prints counts as absent, not as different.
//! (The journal's own `flock`, in [`crate::lock`], covers the chat and these moments as well, and is
//! the last line: nothing here can make two writers of one journal.)

mod identity;

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use self::identity::{identity, is_boot, is_ticks};

const LOCK: &str = "run.lock";
const RECORD: &str = "owner.json";
const STOP: &str = "STOP";
/// How long a lock without a record may be a start in progress.
const CLAIMING: Duration = Duration::from_secs(30);

/// Who runs a binding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Its process id.
    pub pid: i32,
    /// When it started, in clock ticks since boot, as the kernel prints it.
    #[serde(default)]
    pub start: String,
    /// Which boot that was.
    #[serde(default)]
    pub boot: String,
}

/// How a lock stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// There is none.
    Free,
    /// Somebody is about to write their record.
    Claiming,
    /// Its owner is alive.
    Live(Owner),
    /// Its owner is surely gone, or died before it wrote its record.
    Stale,
    /// A process of that id is alive, and whether it is the owner cannot be told.
    Unknown(Owner),
    /// The record cannot be read as one.
    Invalid,
}

/// Why a binding cannot be run, stopped or unlocked.
#[derive(Debug, thiserror::Error)]
pub enum OwnerError {
    /// The brake is on.
    #[error("{0} is there, so nothing starts; remove it when you want Sage to run again: rm {0}")]
    Stopped(String),
    /// Somebody runs it.
    #[error("process {pid} runs {folder}; end it first: sage-connector stop --binding FILE")]
    Live {
        /// The process.
        pid: i32,
        /// The binding's folder.
        folder: String,
    },
    /// Somebody is starting.
    #[error("{0} is being claimed by another start; try again in half a minute")]
    Claiming(String),
    /// It was left behind.
    #[error("{0} was left by a process that is gone; run: sage-connector unlock --binding FILE")]
    Stale(String),
    /// It cannot be told.
    #[error(
        "process {pid} is alive, and whether it runs {folder} cannot be told; nothing was changed. \
         Look at it with: ps -fp {pid}; when it is gone, run: sage-connector unlock --binding FILE"
    )]
    Unknown {
        /// The process.
        pid: i32,
        /// The binding's folder.
        folder: String,
    },
    /// The record is damaged.
    #[error(
        "{0} is not an owner's record; nothing was changed. Make sure that no sage-connector runs, \
         then remove that file's folder by hand"
    )]
    Invalid(String),
    /// The system said no.
    #[error("cannot use {path}: {source}; nothing was claimed")]
    Io {
        /// The file.
        path: String,
        /// What the system said.
        source: io::Error,
    },
}

impl OwnerError {
    /// Whether somebody holds the binding or its brake, rather than something being broken.
    #[must_use]
    pub fn is_held(&self) -> bool {
        !matches!(self, Self::Io { .. })
    }
}

/// A binding that this process runs; let go when dropped.
#[derive(Debug)]
#[must_use]
pub struct Claim {
    folder: PathBuf,
    owner: Owner,
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Only a record that is still ours: anything else is for a person to look at.
        if read_owner(&self.folder).ok().flatten().as_ref() == Some(&self.owner) {
            let _ = remove(&self.folder);
        }
    }
}

/// Takes a binding for this process.
///
/// # Errors
/// When the brake is on, anything holds the binding, or this process cannot tell its own identity.
pub fn claim(folder: &Path) -> Result<Claim, OwnerError> {
    let owner = myself().map_err(failed(Path::new("/proc")))?;
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed(folder))?;
    refuse_stopped(folder)?;
    let lock = folder.join(LOCK);
    match DirBuilder::new().mode(0o700).create(&lock) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Err(held(folder)?),
        Err(error) => return Err(failed(&lock)(error)),
    }
    publish(&lock, &owner).map_err(failed(&lock))?;
    let claim = Claim { folder: folder.to_owned(), owner };
    // After the record, so that an unlock either sees it or has closed the gate before this look.
    refuse_stopped(folder)?;
    Ok(claim)
}

fn held(folder: &Path) -> Result<OwnerError, OwnerError> {
    let lock = folder.join(LOCK).display().to_string();
    let shown = folder.display().to_string();
    Ok(match standing(folder)? {
        Standing::Free | Standing::Claiming => OwnerError::Claiming(lock),
        Standing::Live(owner) => OwnerError::Live { pid: owner.pid, folder: shown },
        Standing::Stale => OwnerError::Stale(lock),
        Standing::Unknown(owner) => OwnerError::Unknown { pid: owner.pid, folder: shown },
        Standing::Invalid => OwnerError::Invalid(format!("{lock}/{RECORD}")),
    })
}

/// How the lock of a binding stands. Changes nothing.
///
/// # Errors
/// When it cannot be read.
pub fn standing(folder: &Path) -> Result<Standing, OwnerError> {
    let lock = folder.join(LOCK);
    match read_owner(folder) {
        Ok(Some(owner)) if owner.pid <= 0 => Ok(Standing::Invalid),
        Ok(Some(owner)) => Ok(tell(owner)),
        Ok(None) => {
            let made = match std::fs::symlink_metadata(&lock) {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Standing::Free),
                other => other.and_then(|meta| meta.modified()).map_err(failed(&lock))?,
            };
            let age = SystemTime::now().duration_since(made).unwrap_or_default();
            Ok(if age < CLAIMING { Standing::Claiming } else { Standing::Stale })
        }
        Err(error) if error.kind() == ErrorKind::InvalidData => Ok(Standing::Invalid),
        Err(error) => Err(failed(&lock)(error)),
    }
}

/// Tells whether an owner is alive.
fn tell(owner: Owner) -> Standing {
    if kill(Pid::from_raw(owner.pid), None) == Err(Errno::ESRCH) {
        return Standing::Stale;
    }
    let recorded = (is_ticks(&owner.start) && is_boot(&owner.boot)).then_some(());
    let found = recorded.and_then(|()| identity(owner.pid).ok());
    match found {
        None => Standing::Unknown(owner),
        Some((start, boot)) if start == owner.start && boot == owner.boot => Standing::Live(owner),
        Some(_) => Standing::Stale,
    }
}

/// Removes a lock whose owner is gone. Leaves `STOP` behind, also when it refuses, for that is the
/// gate: remove it to start again.
///
/// # Errors
/// When the owner is alive, may be alive, or its record is damaged; the lock is then untouched.
pub fn unlock(folder: &Path) -> Result<(), OwnerError> {
    stop_if_none(folder, "unlock")?;
    remove_stale(folder)
}

fn remove_stale(folder: &Path) -> Result<(), OwnerError> {
    match standing(folder)? {
        Standing::Free => Ok(()),
        Standing::Stale => remove(folder).map_err(failed(&folder.join(LOCK))),
        _ => Err(held(folder)?),
    }
}

/// Puts the brake on, as an operator, and asks the process to end, when there is one. Tells which.
///
/// # Errors
/// When `STOP` cannot be written, or the owner cannot be told; `STOP` stands in the second case.
pub fn stop(folder: &Path) -> Result<Option<i32>, OwnerError> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed(folder))?;
    let gate = gate(folder)?;
    write_stop(folder, "operator", true)?;
    drop(gate);
    match standing(folder)? {
        Standing::Live(owner) => {
            let signalled = signal(&owner).map_err(failed(Path::new("/proc")))?;
            Ok(signalled.then_some(owner.pid))
        }
        Standing::Free | Standing::Stale | Standing::Claiming => Ok(None),
        Standing::Unknown(_) | Standing::Invalid => Err(held(folder)?),
    }
}

/// Asks exactly that process to end: the descriptor is taken before the identity is compared, so that
/// the id cannot have gone to another in between.
fn signal(owner: &Owner) -> io::Result<bool> {
    let Some(pid) = rustix::process::Pid::from_raw(owner.pid) else { return Ok(false) };
    let process = match pidfd_open(pid, PidfdFlags::empty()) {
        Err(rustix::io::Errno::SRCH) => return Ok(false),
        other => other?,
    };
    if !matches!(tell(owner.clone()), Standing::Live(_)) {
        return Ok(false);
    }
    match pidfd_send_signal(process, Signal::TERM) {
        Err(rustix::io::Errno::SRCH) => Ok(false),
        other => other.map(|()| true).map_err(io::Error::from),
    }
}

/// Whether the brake is on.
#[must_use]
pub fn is_stopped(folder: &Path) -> bool {
    std::fs::symlink_metadata(folder.join(STOP)).is_ok()
}

/// Whether a person put it on. The one that a supervisor writes for a moment while it clears a lock is
/// no reason for a process that runs to pass a message over.
#[must_use]
pub fn is_braked(folder: &Path) -> bool {
    is_stopped(folder) && !is_recovery(folder)
}

/// For a supervisor: clears a lock whose owner is gone, and takes away only the `STOP` that it wrote
/// for that itself, or that such a recovery left when it was killed.
///
/// # Errors
/// When an operator's `STOP` is there, or the binding is held.
pub fn recover(folder: &Path) -> Result<(), OwnerError> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed(folder))?;
    let gate = gate(folder)?;
    if is_braked(folder) {
        refuse_stopped(folder)?;
    }
    write_stop(folder, RECOVERY, true)?;
    // The gate is held all along, so that an operator's STOP comes before all of this or after it.
    let removed = remove_stale(folder);
    std::fs::remove_file(folder.join(STOP)).map_err(failed(&folder.join(STOP)))?;
    drop(gate);
    removed
}

const RECOVERY: &str = "recovery";

fn is_recovery(folder: &Path) -> bool {
    std::fs::read_to_string(folder.join(STOP)).is_ok_and(|text| text.trim() == RECOVERY)
}

fn stop_if_none(folder: &Path, who: &str) -> Result<(), OwnerError> {
    let _gate = gate(folder)?;
    // A recovery's STOP becomes a person's: it stays.
    if is_braked(folder) {
        return Ok(());
    }
    write_stop(folder, who, true)
}

/// Held while `STOP` is changed. The kernel lets go of it with the process.
fn gate(folder: &Path) -> Result<File, OwnerError> {
    let path = folder.join("stop.lock");
    let mut options = OpenOptions::new();
    let open = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
    open.and_then(|file| file.lock().map(|()| file)).map_err(failed(&path))
}

fn write_stop(folder: &Path, who: &str, replace: bool) -> Result<(), OwnerError> {
    write_whole(folder, STOP, format!("{who}\n").as_bytes(), replace)
        .map_err(failed(&folder.join(STOP)))
}

fn publish(lock: &Path, owner: &Owner) -> io::Result<()> {
    let json = serde_json::to_vec(owner).map_err(io::Error::from)?;
    write_whole(lock, RECORD, &json, false)
}

/// Writes a file that is there whole or not at all.
fn write_whole(folder: &Path, name: &str, bytes: &[u8], replace: bool) -> io::Result<()> {
    let mut file = tempfile::Builder::new().prefix(".writing-").tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    let path = folder.join(name);
    let kept = if replace { file.persist(path) } else { file.persist_noclobber(path) };
    kept.map_err(|error| error.error)?;
    File::open(folder)?.sync_all()
}

fn remove(folder: &Path) -> io::Result<()> {
    let lock = folder.join(LOCK);
    for entry in std::fs::read_dir(&lock)? {
        std::fs::remove_file(entry?.path())?;
    }
    std::fs::remove_dir(&lock)
}

fn refuse_stopped(folder: &Path) -> Result<(), OwnerError> {
    if is_stopped(folder) {
        return Err(OwnerError::Stopped(folder.join(STOP).display().to_string()));
    }
    Ok(())
}

fn read_owner(folder: &Path) -> io::Result<Option<Owner>> {
    match std::fs::read(folder.join(LOCK).join(RECORD)) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
        Ok(json) => serde_json::from_slice(&json)
            .map(Some)
            .map_err(|error| io::Error::new(ErrorKind::InvalidData, error)),
    }
}

fn myself() -> io::Result<Owner> {
    let pid = Pid::this().as_raw();
    let (start, boot) = identity(pid)?;
    Ok(Owner { pid, start, boot })
}

fn failed(path: &Path) -> impl Fn(io::Error) -> OwnerError + use<> {
    let path = path.display().to_string();
    move |source| OwnerError::Io { path: path.clone(), source }
}

#[cfg(test)]
mod tests;
