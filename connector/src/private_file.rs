//! Files that are ours alone: the binding, and the secrets that it names (a model endpoint's key, the
//! bot's token) and never holds.
//!
//! Such a file must be regular, of mode 0600 and ours; a secret is no link either. A systemd credential,
//! which systemd guards its own way, is accepted below the folder that systemd names. What was read is
//! shown to nobody: [`Secret`] has no text in its `Debug`.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::fcntl::OFlag;

/// The longest secret that is read, in bytes.
const MAX_BYTES: u64 = 8192;

/// What kind of file it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The binding. It may be a link.
    Binding,
    /// A model endpoint's key.
    Key,
    /// The bot's token.
    Token,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Binding => "the binding",
            Self::Key => "the key file",
            Self::Token => "the token file",
        })
    }
}

/// A secret that was read.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The secret itself, for the one request that needs it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// A secret that no file holds.
    #[cfg(test)]
    pub(crate) fn for_test(text: &str) -> Self {
        Self(text.to_owned())
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

/// Why a file is refused. It says what is wrong and what to do, and nothing of what is in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {path} {problem}")]
pub struct PrivateFileError {
    /// What kind of file it is.
    pub kind: Kind,
    /// The file.
    pub path: String,
    /// What is wrong with it, and what to do.
    pub problem: String,
}

impl PrivateFileError {
    pub(crate) fn new(kind: Kind, path: &Path, problem: impl Into<String>) -> Self {
        Self { kind, path: path.display().to_string(), problem: problem.into() }
    }
}

/// Opens a file of ours.
///
/// # Errors
/// When it cannot be read, or others may read it or could have written it.
pub fn open(path: &Path, kind: Kind) -> Result<File, PrivateFileError> {
    let credentials = std::env::var_os("CREDENTIALS_DIRECTORY");
    open_beside(path, kind, credentials.as_deref().map(Path::new))
}

fn open_beside(
    path: &Path,
    kind: Kind,
    credentials: Option<&Path>,
) -> Result<File, PrivateFileError> {
    let refuse = |problem: String| Err(PrivateFileError::new(kind, path, problem));
    let unreadable = |error: io::Error| match error.raw_os_error() {
        Some(errno) if errno == nix::Error::ELOOP as i32 && kind != Kind::Binding => {
            "is a symbolic link; name the file itself".to_owned()
        }
        _ => format!("cannot be read: {error}"),
    };
    let link = if kind == Kind::Binding { OFlag::empty() } else { OFlag::O_NOFOLLOW };
    // Without O_NONBLOCK a FIFO in the file's place would hang the start.
    let flags = (link | OFlag::O_NONBLOCK).bits();
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let (file, meta) = match opened.and_then(|file| file.metadata().map(|meta| (file, meta))) {
        Ok(opened) => opened,
        Err(error) => return refuse(unreadable(error)),
    };
    let shown = path.display();
    let mode = meta.mode() & 0o7777;
    let me = nix::unistd::geteuid().as_raw();
    let is_credential = credentials.is_some() && path.parent() == credentials;
    let ours = meta.uid() == me || (is_credential && meta.uid() == 0);
    // An ACL for the service shows as the group's bits.
    let private = if is_credential { mode & 0o037 == 0 } else { mode == 0o600 };
    if !meta.is_file() {
        return refuse("is not a regular file; name the file itself".to_owned());
    }
    if !private {
        return refuse(format!("has mode {mode:04o}; run: chmod 600 {shown}"));
    }
    if !ours {
        return refuse(format!("belongs to user {}; run: chown {me} {shown}", meta.uid()));
    }
    Ok(file)
}

/// Reads a secret: one line of printable ASCII.
///
/// # Errors
/// As [`open`], and when the file holds anything else.
pub fn read_secret(path: &Path, kind: Kind) -> Result<Secret, PrivateFileError> {
    let file = open(path, kind)?;
    let refuse = |problem: String| PrivateFileError::new(kind, path, problem);
    let mut text = Vec::new();
    file.take(MAX_BYTES + 1)
        .read_to_end(&mut text)
        .map_err(|error| refuse(format!("cannot be read: {error}")))?;
    let line = text.trim_ascii();
    let fits = !line.is_empty() && line.len() as u64 <= MAX_BYTES;
    if !fits || !line.iter().all(u8::is_ascii_graphic) {
        return Err(refuse(
            "does not hold one secret on one line; write it alone, in printable ASCII".to_owned(),
        ));
    }
    Ok(Secret(String::from_utf8_lossy(line).into_owned()))
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    use super::{Kind, open_beside, read_secret};

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
        let key = read_secret(&path, Kind::Key).expect("it is fit");
        assert_eq!(key.expose(), "the-key");
        for mode in [0o644, 0o640, 0o604, 0o400, 0o700] {
            write(&path, "the-key", mode);
            let refused = read_secret(&path, Kind::Key).expect_err("others read it").to_string();
            assert!(refused.contains("chmod 600") && !refused.contains("the-key"), "{refused}");
        }
        write(&path, "the-key", 0o600);
        let link = home.path().join("link");
        symlink(&path, &link).expect("a link");
        assert!(
            read_secret(&link, Kind::Key)
                .expect_err("a link")
                .to_string()
                .contains("symbolic link")
        );
        assert!(
            read_secret(home.path(), Kind::Key)
                .expect_err("a folder")
                .to_string()
                .contains("regular file")
        );
        let fifo = home.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRUSR).expect("a fifo");
        assert!(
            read_secret(&fifo, Kind::Key).expect_err("a fifo").to_string().contains("regular file")
        );
        assert!(read_secret(&home.path().join("none"), Kind::Key).is_err());
    }

    #[test]
    fn a_systemd_credential_may_be_readable_by_its_group_and_nothing_else() {
        let home = tempfile::tempdir().expect("a folder");
        let path = home.path().join("key");
        for (mode, fits) in [(0o400, true), (0o440, true), (0o444, false), (0o460, false)] {
            write(&path, "the-key", mode);
            assert_eq!(
                open_beside(&path, Kind::Token, Some(home.path())).is_ok(),
                fits,
                "{mode:o}"
            );
            assert!(
                open_beside(&path, Kind::Token, Some(Path::new("/nonexistent"))).is_err(),
                "{mode:o}"
            );
        }
    }

    #[test]
    fn a_file_without_exactly_one_key_is_refused() {
        let home = tempfile::tempdir().expect("a folder");
        let path = home.path().join("key");
        for text in ["", "\n", "two keys", "two\nlines", "bell\u{7}", "schlüssel"] {
            write(&path, text, 0o600);
            assert!(
                read_secret(&path, Kind::Key)
                    .expect_err(text)
                    .to_string()
                    .contains("one secret on one line")
            );
        }
        write(&path, &"k".repeat(8193), 0o600);
        assert!(read_secret(&path, Kind::Key).is_err());
    }

    #[test]
    fn a_secret_is_in_no_debug_output_and_is_masked_in_texts() {
        let home = tempfile::tempdir().expect("a folder");
        let path = home.path().join("key");
        write(&path, "sk-one", 0o600);
        let key = read_secret(&path, Kind::Key).expect("it is fit");
        assert_eq!(format!("{key:?}"), "Secret");
        assert_eq!(key.mask("bad key sk-one!"), "bad key [key]!");
    }
}
