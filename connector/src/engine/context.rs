//! Context files: who the model is, in the operator's words.
//!
//! They are read from a folder of the operator's, once, at start, and never from a repository: this
//! program has none, and a file that tools can write, or that anybody can push to, must not become
//! part of what the model obeys. A file is opened below the folder with no link followed on the way,
//! and neither folder nor file may be writable for others.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path};

use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use serde::Serialize;

use super::config::ContextConfig;
use crate::record::TextDigest;

/// The longest context file that is read, in bytes.
pub const MAX_FILE_BYTES: u64 = 64 * 1024;

/// What stands before everything else that a model is told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Context {
    text: String,
    files: Vec<ContextFile>,
}

/// A file that was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ContextFile {
    /// Its path, as the binding names it.
    pub path: String,
    /// What it held.
    #[serde(flatten)]
    pub digest: TextDigest,
}

/// Why a context file is refused.
#[derive(Debug, thiserror::Error)]
pub enum ContextError {
    /// It cannot be opened or read.
    #[error(
        "cannot read the context file {path}: {source}; it must lie in the folder, with no link on the way"
    )]
    Read {
        /// The file or folder.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// It is not what it must be.
    #[error("the context file {path} {problem}")]
    Unfit {
        /// The file or folder.
        path: String,
        /// What is wrong with it, and what to do.
        problem: String,
    },
}

impl Context {
    /// Reads the files.
    ///
    /// # Errors
    /// See [`ContextError`]; a file that is missing is no smaller mistake than one that is unsafe.
    pub fn load(config: &ContextConfig) -> Result<Self, ContextError> {
        let shown = config.folder.display().to_string();
        let folder = File::open(&config.folder)
            .map_err(|source| ContextError::Read { path: shown.clone(), source })?;
        check(&folder, &shown, true)?;
        let mut context = Self::default();
        for name in &config.files {
            let text = read(&folder, name, &format!("{shown}/{name}"))?;
            let digest = TextDigest::of(&text);
            context.files.push(ContextFile { path: name.clone(), digest });
            context.text.push_str(text.trim());
            context.text.push_str("\n\n");
        }
        Ok(context)
    }

    /// The files' texts, one after the other.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The files, in order.
    #[must_use]
    pub fn files(&self) -> &[ContextFile] {
        &self.files
    }

    /// What a model is told first: the files, then what every turn says.
    #[must_use]
    pub fn before(&self, system: &str) -> String {
        format!("{}{system}", self.text)
    }
}

fn read(folder: &File, name: &str, shown: &str) -> Result<String, ContextError> {
    let failed = |source| ContextError::Read { path: shown.to_owned(), source };
    let file = open_below(folder, name).map_err(failed)?;
    check(&file, shown, false)?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    let unfit = |problem: String| ContextError::Unfit { path: shown.to_owned(), problem };
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(unfit(format!("is longer than {MAX_FILE_BYTES} bytes; shorten it")));
    }
    String::from_utf8(bytes).map_err(|_| unfit("is not UTF-8 text".to_owned()))
}

/// Opens a file below a folder, one step at a time, none of which may be a link.
fn open_below(folder: &File, name: &str) -> io::Result<File> {
    let mut parts = Path::new(name).components().peekable();
    let mut here = folder.try_clone()?;
    while let Some(part) = parts.next() {
        let Component::Normal(part) = part else { return Err(nix::Error::EXDEV.into()) };
        // Without O_NONBLOCK a FIFO in the file's place would hang the start.
        let flags = OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_RDONLY;
        let more = if parts.peek().is_some() { OFlag::O_DIRECTORY } else { OFlag::O_NONBLOCK };
        here = openat(&here, part, flags | more, Mode::empty())?.into();
    }
    Ok(here)
}

fn check(file: &File, shown: &str, is_folder: bool) -> Result<(), ContextError> {
    let meta =
        file.metadata().map_err(|source| ContextError::Read { path: shown.to_owned(), source })?;
    let kind_fits = if is_folder { meta.is_dir() } else { meta.is_file() };
    let me = nix::unistd::geteuid().as_raw();
    let problem = if !kind_fits {
        let wanted = if is_folder { "folder" } else { "regular file" };
        format!("is not a {wanted}")
    } else if meta.mode() & 0o022 != 0 {
        format!("can be written by others; run: chmod go-w {shown}")
    } else if meta.uid() != me && meta.uid() != 0 {
        format!("belongs to user {}; run: chown {me} {shown}", meta.uid())
    } else {
        return Ok(());
    };
    Err(ContextError::Unfit { path: shown.to_owned(), problem })
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::{Context, ContextConfig, MAX_FILE_BYTES};

    fn load(folder: &std::path::Path, file: &str) -> Result<String, String> {
        let config = ContextConfig { folder: folder.to_owned(), files: vec![file.to_owned()] };
        Context::load(&config).map(|context| context.before("END")).map_err(|e| e.to_string())
    }

    fn folder() -> tempfile::TempDir {
        let private = Permissions::from_mode(0o700);
        tempfile::Builder::new().permissions(private).tempdir().expect("a folder")
    }

    #[test]
    fn the_files_stand_in_order_before_what_every_turn_says() {
        let home = folder();
        std::fs::create_dir(home.path().join("sub")).expect("a folder");
        std::fs::write(home.path().join("soul.md"), "You are calm.\n\n").expect("written");
        std::fs::write(home.path().join("sub/user.md"), "Owner likes brevity.").expect("written");
        let config = ContextConfig {
            folder: home.path().to_owned(),
            files: vec!["soul.md".to_owned(), "sub/user.md".to_owned()],
        };
        let context = Context::load(&config).expect("they are fit");
        assert_eq!(context.before("END"), "You are calm.\n\nOwner likes brevity.\n\nEND");
        assert_eq!(Context::default().before("END"), "END");
    }

    #[test]
    fn a_file_that_is_a_link_or_outside_or_for_others_to_write_is_refused() {
        let home = folder();
        let inside = home.path().join("in");
        std::fs::create_dir(&inside).expect("a folder");
        std::fs::write(inside.join("fit.md"), "fit").expect("written");
        assert_eq!(load(&inside, "fit.md").as_deref(), Ok("fit\n\nEND"), "the control");

        std::fs::write(home.path().join("out.md"), "outside").expect("written");
        symlink("fit.md", inside.join("link.md")).expect("a link");
        symlink(home.path(), inside.join("up")).expect("a link");
        for name in ["link.md", "up/out.md", "../out.md", "none.md"] {
            let refused = load(&inside, name).expect_err(name);
            assert!(refused.contains("cannot read the context file"), "{name}: {refused}");
        }
        let refused = load(home.path(), "in").expect_err("it is a folder");
        assert!(refused.contains("is not a regular file"), "{refused}");

        let chmod = |path: &std::path::Path, mode| {
            std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("chmod");
        };
        chmod(&inside.join("fit.md"), 0o664);
        assert!(load(&inside, "fit.md").expect_err("writable").contains("chmod go-w"));
        chmod(&inside.join("fit.md"), 0o644);
        chmod(&inside, 0o777);
        assert!(load(&inside, "fit.md").expect_err("writable").contains("chmod go-w"));
        chmod(&inside, 0o755);
        assert!(load(&inside, "fit.md").is_ok(), "the control");
    }

    #[test]
    fn a_fifo_does_not_hang_the_start() {
        let home = folder();
        nix::unistd::mkfifo(&home.path().join("fifo"), nix::sys::stat::Mode::S_IRWXU)
            .expect("a fifo");
        assert!(load(home.path(), "fifo").expect_err("no file").contains("not a regular file"));
    }

    #[test]
    fn a_file_that_is_too_long_or_no_text_is_refused() {
        let home = folder();
        let most = usize::try_from(MAX_FILE_BYTES).expect("it is small");
        std::fs::write(home.path().join("long.md"), vec![b'a'; most + 1]).expect("written");
        assert!(load(home.path(), "long.md").expect_err("too long").contains("longer than"));
        std::fs::write(home.path().join("long.md"), vec![b'a'; most]).expect("written");
        assert!(load(home.path(), "long.md").is_ok(), "the control");
        std::fs::write(home.path().join("odd.md"), b"\xff\xfe").expect("written");
        assert!(load(home.path(), "odd.md").expect_err("no text").contains("not UTF-8"));
    }
}
