//! One process per binding.
//!
//! Two chats on one binding would interleave their journals and count each other's turns wrongly. So
//! the journal can only be opened with a [`Lock`], an exclusive `flock` on `<folder>/lock`.
//!
//! It covers live processes only: the kernel drops it when the process ends, however it ends, so a
//! crash leaves nothing to clean up. It is no brake, tells nothing across reboots, and does not work
//! across machines that share a folder. The pid in the file is for the message to a second process,
//! never for a decision.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The folder of one binding, held by this process.
#[derive(Debug)]
#[must_use]
pub struct Lock {
    folder: PathBuf,
    file: File,
}

/// Why the folder is not ours.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process has it.
    #[error(
        "another sage-connector{holder} works on {folder}; \
         end that one first, or give this one a binding with another name"
    )]
    Held {
        /// ` (pid N)`, or nothing when the holder has not said yet.
        holder: String,
        /// The folder.
        folder: String,
    },
    /// Others could read or write the folder.
    #[error("{folder} has mode {mode:04o}; run: chmod 700 {folder}")]
    Mode {
        /// The folder.
        folder: String,
        /// Its mode.
        mode: u32,
    },
    /// The system said no.
    #[error("cannot use {path}: {source}")]
    Io {
        /// What was opened or made.
        path: String,
        /// What the system said.
        source: io::Error,
    },
}

impl Lock {
    /// Takes the folder, making it when it is not there.
    ///
    /// # Errors
    /// See [`LockError`]; each says what to do next.
    pub fn take(folder: &Path) -> Result<Self, LockError> {
        let io = |path: &Path| {
            let path = path.display().to_string();
            move |source| LockError::Io { path, source }
        };
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(io(folder))?;
        let mode = folder.metadata().map_err(io(folder))?.mode() & 0o7777;
        if mode & 0o077 != 0 {
            return Err(LockError::Mode { folder: folder.display().to_string(), mode });
        }
        let path = folder.join("lock");
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(&path).map_err(io(&path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(LockError::Held {
                    holder: holder(&mut file),
                    folder: folder.display().to_string(),
                });
            }
            Err(TryLockError::Error(source)) => return Err(io(&path)(source)),
        }
        sign(&mut file).map_err(io(&path))?;
        Ok(Self { folder: folder.to_owned(), file })
    }

    /// The folder that is held.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing alone releases only when no child that is about to start holds a copy as well.
        let _ = self.file.unlock();
    }
}

fn sign(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}

fn holder(file: &mut File) -> String {
    let mut text = String::new();
    let read = file.take(32).read_to_string(&mut text);
    match (read, text.trim().parse::<u32>()) {
        (Ok(_), Ok(pid)) => format!(" (pid {pid})"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::{Lock, LockError};

    #[test]
    fn a_second_process_is_told_who_holds_the_binding() {
        let home = tempfile::tempdir().expect("a folder");
        let folder = home.path().join("data/sage");
        let first = Lock::take(&folder).expect("nobody holds it");
        let text = match Lock::take(&folder) {
            Err(error @ LockError::Held { .. }) => error.to_string(),
            other => panic!("{other:?}"),
        };
        assert!(text.contains(&format!("(pid {})", std::process::id())), "{text}");
        drop(first);
        assert!(Lock::take(&folder).is_ok(), "it is free again");
    }

    #[test]
    fn a_folder_that_others_can_enter_is_refused() {
        let home = tempfile::tempdir().expect("a folder");
        let folder = home.path().join("sage");
        drop(Lock::take(&folder).expect("it is made 0700"));
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).expect("chmod");
        match Lock::take(&folder) {
            Err(LockError::Mode { mode: 0o755, .. }) => {}
            other => panic!("{other:?}"),
        }
    }
}
