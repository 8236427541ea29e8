//! Opening, reading, listing and writing files of a root.
//!
//! Every function here runs on a confined thread, with the root's folder as its only ground. Paths
//! are opened from the root's descriptor, beneath it and through no symbolic link ([`beneath`]); the
//! kernel's Landlock domain is the second wall, not the first.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use policy::fence;
use policy::path::{PathGlob, RelPath, shown};
use policy::secret;
use protocol::refusal::{Code, Refusal};
use protocol::reply::{FileList, PathText};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use sha2::{Digest, Sha256};

use super::rules::walker;
use super::{Failure, beneath};
use crate::audit::hex;
use confine::cancel::Cancel;

/// How temporary files begin; a killed process leaves them, and the next start removes them.
pub(crate) const TEMP_PREFIX: &str = ".sage-";

/// A root's folder, open for looking below it.
pub(crate) struct RootDir(OwnedFd);

/// What is at a path.
pub(crate) enum Here {
    /// Nothing.
    Nothing,
    /// A regular file, with its bytes.
    File(Vec<u8>),
    /// Something else, or it is reached through a link.
    Other,
}

/// The folder and the name of a path.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&[], path),
    }
}

/// A whole file.
pub(crate) struct Whole {
    /// Its bytes.
    pub(crate) bytes: Vec<u8>,
    /// Its permission bits.
    pub(crate) mode: u32,
}

impl Whole {
    /// SHA-256 of the bytes, in hex.
    pub(crate) fn digest(&self) -> String {
        digest(&self.bytes)
    }
}

pub(crate) fn digest(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

impl RootDir {
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::open(path, flags, Mode::empty())
            .map(Self)
            .map_err(|error| Failure::fault(format!("the root's folder cannot be opened: {error}")))
    }

    fn open_at(&self, path: &str, flags: OFlags) -> Result<OwnedFd, rustix::io::Errno> {
        beneath::open(&self.0, path.as_bytes(), flags)
    }

    /// What is at a path of git's, which may be any bytes.
    pub(crate) fn look_at(&self, path: &[u8], limit: u64) -> Result<Here, Failure> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = match beneath::open(&self.0, path, flags) {
            Ok(fd) => File::from(fd),
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => return Ok(Here::Nothing),
            Err(_) => return Ok(Here::Other),
        };
        if !file.metadata().map_err(Failure::io)?.is_file() {
            return Ok(Here::Other);
        }
        let mut bytes = Vec::new();
        file.take(limit).read_to_end(&mut bytes).map_err(Failure::io)?;
        Ok(Here::File(bytes))
    }

    /// Puts a file of git's back, all or nothing, making the folders that lead to it.
    pub(crate) fn put_back(
        &self,
        path: &[u8],
        bytes: &[u8],
        executable: bool,
    ) -> Result<(), Failure> {
        let (folders, name) = split(path);
        let mut folder = self.0.try_clone().map_err(Failure::io)?;
        for part in folders.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
            match rustix::fs::mkdirat(&folder, part, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(Failure::io(error.into())),
            }
            folder = beneath::open(&folder, part, OFlags::PATH | OFlags::DIRECTORY)
                .map_err(|error| Failure::io(error.into()))?;
        }
        let mut temp = Temp::create(&folder)?;
        temp.fill(bytes, if executable { 0o755 } else { 0o644 })?;
        temp.rename_to(name)
    }

    /// Removes a file of git's, and as git does the folders that are empty without it.
    pub(crate) fn remove(&self, path: &[u8]) -> Result<(), Failure> {
        self.unlink(path, AtFlags::empty()).map_err(|error| Failure::io(error.into()))?;
        self.prune(path);
        Ok(())
    }

    /// Removes the folders that lead to a path, as far as nothing is in them.
    pub(crate) fn prune(&self, path: &[u8]) {
        let (mut folder, _) = split(path);
        while !folder.is_empty() && self.unlink(folder, AtFlags::REMOVEDIR).is_ok() {
            (folder, _) = split(folder);
        }
    }

    fn unlink(&self, path: &[u8], flags: AtFlags) -> Result<(), rustix::io::Errno> {
        let (folders, name) = split(path);
        let folder = if folders.is_empty() { &b"."[..] } else { folders };
        let folder = beneath::open(&self.0, folder, OFlags::PATH | OFlags::DIRECTORY)?;
        rustix::fs::unlinkat(&folder, name, flags)
    }

    /// Opens a folder below the root, or the root itself.
    pub(crate) fn folder(&self, path: Option<&str>) -> Result<OwnedFd, Failure> {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        self.open_at(path.unwrap_or("."), flags).map_err(|error| match error {
            rustix::io::Errno::NOTDIR => wrong_type(path.unwrap_or("."), "not a folder"),
            other => cannot_open(path.unwrap_or("."), other),
        })
    }

    /// What is at a path, without following a link; `None` when nothing is.
    pub(crate) fn kind(&self, path: &RelPath) -> Result<Option<FileType>, Failure> {
        match self.open_at(path.as_str(), OFlags::PATH | OFlags::NOFOLLOW) {
            Ok(fd) => {
                let stat = rustix::fs::fstat(&fd).map_err(|e| cannot_open(path.as_str(), e))?;
                Ok(Some(FileType::from_raw_mode(stat.st_mode)))
            }
            Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => Ok(None),
            Err(error) => Err(cannot_open(path.as_str(), error)),
        }
    }

    /// Opens a regular file for reading. A FIFO, a socket or a device is refused without blocking
    /// and without being opened.
    pub(crate) fn regular_file(&self, path: &RelPath) -> Result<File, Failure> {
        match self.kind(path)? {
            None => return Err(not_found(path)),
            Some(FileType::RegularFile) => {}
            Some(other) => return Err(wrong_type(path.as_str(), describe(other))),
        }
        // NONBLOCK: what is there may have been swapped for a FIFO since.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let fd = self.open_at(path.as_str(), flags).map_err(|e| cannot_open(path.as_str(), e))?;
        let file = File::from(fd);
        let metadata = file.metadata().map_err(Failure::io)?;
        if !metadata.is_file() {
            return Err(wrong_type(path.as_str(), "not a regular file"));
        }
        Ok(file)
    }

    /// Reads a whole file of at most `limit` bytes.
    pub(crate) fn read_whole(&self, path: &RelPath, limit: u64) -> Result<Whole, Failure> {
        use std::os::unix::fs::MetadataExt;
        let file = self.regular_file(path)?;
        let metadata = file.metadata().map_err(Failure::io)?;
        let mut bytes = Vec::new();
        file.take(limit + 1).read_to_end(&mut bytes).map_err(Failure::io)?;
        if bytes.len() as u64 > limit {
            return Err(Failure::refuse(
                Code::TooLarge,
                format!(
                    "{} has {} bytes; the limit is {limit}.",
                    shown(path.as_str()),
                    metadata.len()
                ),
                "A person reads it from the terminal, or the operator raises `limits.maxFileBytes`.",
            ));
        }
        Ok(Whole { bytes, mode: metadata.mode() & 0o777 })
    }
}

/// The text of a whole file.
pub(crate) fn text_of<'a>(path: &RelPath, whole: &'a Whole) -> Result<&'a str, Failure> {
    let why = if whole.bytes.contains(&0) { "is binary" } else { "is not UTF-8 text" };
    let text = std::str::from_utf8(&whole.bytes).map_err(|_| not_text(path, why, whole))?;
    if whole.bytes.contains(&0) {
        return Err(not_text(path, why, whole));
    }
    match secret::find(text) {
        None => Ok(text),
        Some(finding) => Err(Failure::refuse(
            Code::CredentialShape,
            format!("{} holds something shaped like a {}.", shown(path.as_str()), finding.name),
            "Do without this file; if the credential is real, a person moves it out of the root.",
        )),
    }
}

fn not_text(path: &RelPath, why: &str, whole: &Whole) -> Failure {
    Failure::refuse(
        Code::NotText,
        format!("{} {why}; it has {} bytes.", shown(path.as_str()), whole.bytes.len()),
        "Only UTF-8 text can be read and edited.",
    )
}

/// The largest char boundary that is not above `at`.
pub(crate) fn floor_boundary(text: &str, at: u64) -> usize {
    let mut at = usize::try_from(at).unwrap_or(usize::MAX).min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// Lists the files below a folder: sorted, bounded, without what .gitignore leaves out, and without
/// following a link.
pub(crate) fn list(
    root: &Path,
    action: &fence::ListFiles,
    limit: usize,
    cancel: &Cancel,
) -> Result<FileList, Failure> {
    let dir = RootDir::open(root)?;
    let folder = action.folder.as_ref().map(RelPath::as_str);
    drop(dir.folder(folder)?);
    let top = folder.map_or_else(|| root.to_path_buf(), |folder| root.join(folder));
    let mut paths = Vec::new();
    for entry in walker(root, &top).build() {
        if cancel.is_cancelled() {
            return Err(Failure::cancelled());
        }
        // An entry that cannot be read is not there for this user.
        let Ok(entry) = entry else { continue };
        if !entry.file_type().is_some_and(|kind| kind.is_file()) {
            continue;
        }
        let Ok(relative) = entry.path().strip_prefix(root) else { continue };
        if wanted(action.glob.as_ref(), relative) {
            if paths.len() == limit {
                return Ok(FileList { untrusted_paths: paths, truncated: true });
            }
            paths.push(path_text(relative));
        }
    }
    Ok(FileList { untrusted_paths: paths, truncated: false })
}

pub(crate) fn wanted(glob: Option<&PathGlob>, relative: &Path) -> bool {
    match (glob, relative.to_str()) {
        (None, _) => true,
        (Some(glob), Some(path)) => glob.matches(path),
        (Some(_), None) => false,
    }
}

fn path_text(path: &Path) -> PathText {
    use std::os::unix::ffi::OsStrExt;
    PathText::from_bytes(path.as_os_str().as_bytes())
}

/// Puts bytes at a path, all or nothing: a temporary file in the same folder, fsync, rename, fsync of
/// the folder. The mode of a replaced file is kept, a new one gets 0644. A hard link is not written
/// through: the path gets a file of its own.
///
/// Says whether the file is new.
pub(crate) fn put(
    root: &Path,
    path: &RelPath,
    bytes: &[u8],
    mode: Option<u32>,
) -> Result<bool, Failure> {
    let dir = RootDir::open(root)?;
    let folder = dir.folder(path.parent()).map_err(|failure| match failure {
        Failure::Refusal(r) if r.code == Code::NotFound => Failure::refuse(
            Code::NotFound,
            format!("The folder of {} does not exist.", shown(path.as_str())),
            "Write into a folder that exists; a person makes a new one from the terminal.",
        ),
        other => other,
    })?;
    let created = match dir.kind(path)? {
        None => true,
        Some(FileType::RegularFile) => false,
        Some(other) => return Err(wrong_type(path.as_str(), describe(other))),
    };
    let mut temp = Temp::create(&folder)?;
    temp.fill(bytes, mode.unwrap_or(0o644))?;
    temp.rename_to(path.file_name())?;
    Ok(created)
}

/// A temporary file that is removed unless it was renamed.
struct Temp<'a> {
    folder: &'a OwnedFd,
    name: String,
    file: File,
    renamed: bool,
}

impl<'a> Temp<'a> {
    fn create(folder: &'a OwnedFd) -> Result<Self, Failure> {
        let mut nonce = [0; 8];
        rustix::rand::getrandom(&mut nonce, rustix::rand::GetRandomFlags::empty())
            .map_err(|e| Failure::io(e.into()))?;
        let name = format!("{TEMP_PREFIX}{}.tmp", hex(&nonce));
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(folder, name.as_str(), flags, Mode::from_raw_mode(0o600))
            .map_err(|e| Failure::io(e.into()))?;
        Ok(Self { folder, name, file: File::from(fd), renamed: false })
    }

    fn fill(&mut self, bytes: &[u8], mode: u32) -> Result<(), Failure> {
        self.file.write_all(bytes).map_err(Failure::io)?;
        rustix::fs::fchmod(&self.file, Mode::from_raw_mode(mode))
            .map_err(|e| Failure::io(e.into()))?;
        self.file.sync_all().map_err(Failure::io)
    }

    fn rename_to(mut self, name: impl rustix::path::Arg) -> Result<(), Failure> {
        rustix::fs::renameat(self.folder, self.name.as_str(), self.folder, name)
            .map_err(|e| Failure::io(e.into()))?;
        self.renamed = true;
        sync_folder(self.folder)
    }
}

impl Drop for Temp<'_> {
    fn drop(&mut self) {
        if !self.renamed {
            // Best effort: the next start removes what stays.
            let _ = rustix::fs::unlinkat(self.folder, self.name.as_str(), AtFlags::empty());
        }
    }
}

/// The folder was opened O_PATH, which cannot be synced: open it again by itself.
fn sync_folder(folder: &OwnedFd) -> Result<(), Failure> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(folder, ".", flags, Mode::empty())
        .and_then(rustix::fs::fsync)
        .map_err(|e| Failure::io(e.into()))
}

/// Removes what a killed process left below a root. Says how many.
pub(crate) fn remove_leftovers(root: &Path) -> usize {
    let mut walk = ignore::WalkBuilder::new(root);
    walk.standard_filters(false).follow_links(false);
    walk.filter_entry(|entry| entry.file_name() != ".git");
    let leftover = |entry: &ignore::DirEntry| {
        let name = entry.file_name().to_string_lossy();
        entry.file_type().is_some_and(|kind| kind.is_file())
            && name.starts_with(TEMP_PREFIX)
            && name.ends_with(".tmp")
            && name.len() == TEMP_PREFIX.len() + 16 + ".tmp".len()
    };
    walk.build()
        .flatten()
        .filter(leftover)
        .filter(|entry| std::fs::remove_file(entry.path()).is_ok())
        .count()
}

pub(crate) fn not_found(path: &RelPath) -> Failure {
    Failure::refuse(
        Code::NotFound,
        format!("There is nothing at {}.", shown(path.as_str())),
        "list_files shows what there is.",
    )
}

fn wrong_type(path: &str, what: &str) -> Failure {
    Failure::refuse(
        Code::WrongFileType,
        format!("{} is {what}.", shown(path)),
        "Name a regular file (or, for a listing, a folder).",
    )
}

fn describe(kind: FileType) -> &'static str {
    match kind {
        FileType::Directory => "a folder",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a named pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        _ => "not a regular file",
    }
}

fn cannot_open(path: &str, error: rustix::io::Errno) -> Failure {
    use rustix::io::Errno;
    match error {
        Errno::LOOP | Errno::XDEV => Failure::Refusal(Refusal::new(
            Code::OutsideRoot,
            format!("{} leads through a symbolic link.", shown(path)),
            "Name the file itself; links are not followed.",
        )),
        Errno::NOENT | Errno::NOTDIR => Failure::refuse(
            Code::NotFound,
            format!("There is nothing at {}.", shown(path)),
            "list_files shows what there is.",
        ),
        Errno::ACCESS | Errno::PERM => Failure::refuse(
            Code::NotFound,
            format!("{} cannot be read by the executor's user.", shown(path)),
            "A person changes its mode, if it is meant to be read.",
        ),
        other => Failure::io(io::Error::from(other)),
    }
}
