//! A secret in a file: a model endpoint's key.
//!
//! The binding names the file and never holds the secret. The file must be regular, of mode 0600 and
//! ours, and not a link; a systemd credential, which systemd guards its own way, is accepted below the
//! folder that systemd names. What was read is shown to nobody: [`Secret`] has no text in its `Debug`.

use std::fmt;
use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::fcntl::OFlag;

/// The longest secret that is read, in bytes.
const MAX_BYTES: u64 = 8192;

/// A secret that was read.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The secret itself, for the one request that needs it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// A text without the secret, should it hold it.
    #[must_use]
    pub fn mask(&self, text: &str) -> String {
        text.replace(&self.0, "[key]")
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Why a key file is refused. It says what is wrong and what to do, and nothing of what is in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the key file {path} {problem}")]
pub struct KeyFileError {
    /// The file.
    pub path: String,
    /// What is wrong with it, and what to do.
    pub problem: String,
}

/// Reads a key file: one line of printable ASCII.
///
/// # Errors
/// See [`KeyFileError`].
pub fn read(path: &Path) -> Result<Secret, KeyFileError> {
    let credentials = std::env::var_os("CREDENTIALS_DIRECTORY");
    read_beside(path, credentials.as_deref().map(Path::new))
}

fn read_beside(path: &Path, credentials: Option<&Path>) -> Result<Secret, KeyFileError> {
    let shown = path.display().to_string();
    let refuse = |problem: String| KeyFileError { path: shown.clone(), problem };
    let file = OpenOptions::new()
        .read(true)
        .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
        .open(path)
        .map_err(|error| match error.raw_os_error() {
            Some(errno) if errno == nix::Error::ELOOP as i32 => {
                refuse("is a symbolic link; name the file itself".to_owned())
            }
            _ => refuse(format!("cannot be read: {error}")),
        })?;
    let meta = file.metadata().map_err(|error| refuse(format!("cannot be read: {error}")))?;
    let mode = meta.mode() & 0o7777;
    let me = nix::unistd::geteuid().as_raw();
    let is_credential = credentials.is_some() && path.parent() == credentials;
    let ours = meta.uid() == me || (is_credential && meta.uid() == 0);
    // An ACL for the service shows as the group's bits.
    let private = if is_credential { mode & 0o037 == 0 } else { mode == 0o600 };
    if !meta.is_file() {
        return Err(refuse("is not a regular file; name the file itself".to_owned()));
    }
    if !private {
        return Err(refuse(format!("has mode {mode:04o}; run: chmod 600 {shown}")));
    }
    if !ours {
        return Err(refuse(format!("belongs to user {}; run: chown {me} {shown}", meta.uid())));
    }
    let mut text = Vec::new();
    file.take(MAX_BYTES + 1)
        .read_to_end(&mut text)
        .map_err(|error| refuse(format!("cannot be read: {error}")))?;
    let line = text.trim_ascii();
    let fits = !line.is_empty() && line.len() as u64 <= MAX_BYTES;
    if !fits || !line.iter().all(u8::is_ascii_graphic) {
        return Err(refuse("does not hold one key on one line; write the key alone".to_owned()));
    }
    Ok(Secret(String::from_utf8_lossy(line).into_owned()))
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    use super::{read, read_beside};

    fn write(path: &Path, text: &str, mode: u32) {
        let _ = std::fs::remove_file(path);
        std::fs::write(path, text).expect("written");
        std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("chmod");
    }

    #[test]
    fn only_a_private_regular_file_that_is_no_link_is_read() {
        let home = tempfile::tempdir().expect("a folder");
        let path = home.path().join("key");
        write(&path, "  the-key\n", 0o600);
        let key = read(&path).expect("it is fit");
        assert_eq!(key.expose(), "the-key");
        for mode in [0o644, 0o640, 0o604, 0o400, 0o700] {
            write(&path, "the-key", mode);
            let refused = read(&path).expect_err("others read it").to_string();
            assert!(refused.contains("chmod 600") && !refused.contains("the-key"), "{refused}");
        }
        write(&path, "the-key", 0o600);
        let link = home.path().join("link");
        symlink(&path, &link).expect("a link");
        assert!(read(&link).expect_err("a link").to_string().contains("symbolic link"));
        assert!(read(home.path()).expect_err("a folder").to_string().contains("regular file"));
        let fifo = home.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRUSR).expect("a fifo");
        assert!(read(&fifo).expect_err("a fifo").to_string().contains("regular file"));
        assert!(read(&home.path().join("none")).is_err());
    }

    #[test]
    fn a_systemd_credential_may_be_readable_by_its_group_and_nothing_else() {
        let home = tempfile::tempdir().expect("a folder");
        let path = home.path().join("key");
        for (mode, fits) in [(0o400, true), (0o440, true), (0o444, false), (0o460, false)] {
            write(&path, "the-key", mode);
            assert_eq!(read_beside(&path, Some(home.path())).is_ok(), fits, "{mode:o}");
            assert!(read_beside(&path, Some(Path::new("/nonexistent"))).is_err(), "{mode:o}");
        }
    }

    #[test]
    fn a_file_without_exactly_one_key_is_refused() {
        let home = tempfile::tempdir().expect("a folder");
        let path = home.path().join("key");
        for text in ["", "\n", "two keys", "two\nlines", "bell\u{7}", "schlüssel"] {
            write(&path, text, 0o600);
            assert!(read(&path).expect_err(text).to_string().contains("one key on one line"));
        }
        write(&path, &"k".repeat(8193), 0o600);
        assert!(read(&path).is_err());
    }

    #[test]
    fn a_secret_is_in_no_debug_output_and_is_masked_in_texts() {
        let home = tempfile::tempdir().expect("a folder");
        let path = home.path().join("key");
        write(&path, "sk-one", 0o600);
        let key = read(&path).expect("it is fit");
        assert_eq!(format!("{key:?}"), "Secret");
        assert_eq!(key.mask("bad key sk-one!"), "bad key [key]!");
    }
}
