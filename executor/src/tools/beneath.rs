//! Opening below a folder: never above it, and through no symbolic link.
//!
//! `openat2` does it in one step. Where it is hidden, the same rules are kept by walking: systemd's
//! `RestrictSUIDSGID=` answers ENOSYS to it, because its filter cannot see into the arguments. Both ways
//! give the same descriptors and the same errors; a test holds them side by side.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

const BENEATH: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

/// Opens a path below a folder; `.` is the folder itself.
///
/// # Errors
/// `ELOOP` for a symbolic link anywhere in it, `EXDEV` for a path that leads out, and the usual ones.
pub(crate) fn open(folder: impl AsFd, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::CLOEXEC;
    match rustix::fs::openat2(folder.as_fd(), path, flags, Mode::empty(), BENEATH) {
        Err(Errno::NOSYS) => walk(folder, path, flags),
        opened => opened,
    }
}

/// Folder by folder, each opened from the one before and none of them a link.
fn walk(folder: impl AsFd, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    if path.is_empty() {
        return Err(Errno::NOENT);
    }
    if path.starts_with(b"/") {
        return Err(Errno::XDEV);
    }
    let named = |part: &&[u8]| !part.is_empty() && *part != b".";
    let mut parts = path.split(|byte| *byte == b'/').filter(named).peekable();
    let mut at: Option<OwnedFd> = None;
    while let Some(part) = parts.next() {
        // openat2 would let `a/../b` pass; no caller has such a path.
        if part == b".." {
            return Err(Errno::XDEV);
        }
        let here = at.as_ref().map_or(folder.as_fd(), AsFd::as_fd);
        let last = parts.peek().is_none() && !path.ends_with(b"/");
        let through = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let next = step(here, part, if last { flags } else { through })?;
        if last {
            return Ok(next);
        }
        at = Some(next);
    }
    // The folder itself, or one that was named with a slash behind it.
    let here = at.as_ref().map_or(folder.as_fd(), AsFd::as_fd);
    rustix::fs::openat(here, c".", flags, Mode::empty())
}

fn step(here: impl AsFd, part: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let opened = rustix::fs::openat(here.as_fd(), part, flags | OFlags::NOFOLLOW, Mode::empty());
    let is_link = || {
        let found = rustix::fs::statat(here.as_fd(), part, AtFlags::SYMLINK_NOFOLLOW);
        found.is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Symlink)
    };
    match opened {
        // O_DIRECTORY calls a link no folder, and O_PATH alone would open the link itself.
        Err(Errno::NOTDIR) if is_link() => Err(Errno::LOOP),
        Ok(opened) if flags.contains(OFlags::PATH) => {
            let found = rustix::fs::fstat(&opened)?;
            if FileType::from_raw_mode(found.st_mode) == FileType::Symlink {
                return Err(Errno::LOOP);
            }
            Ok(opened)
        }
        opened => opened,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::{MetadataExt, symlink};

    use rustix::fs::{Mode, OFlags};
    use rustix::io::Errno;

    use super::{open, walk};

    #[test]
    fn walking_opens_and_refuses_what_openat2_does() {
        let base = tempfile::tempdir().expect("a folder");
        let root = base.path().join("root");
        fs::create_dir_all(root.join("a/b")).expect("it can be made");
        fs::write(root.join("a/b/file"), "x").expect("it can be written");
        fs::write(root.join("a/file"), "x").expect("it can be written");
        fs::write(base.path().join("outside"), "x").expect("it can be written");
        for (to, name) in [
            ("a/b/file", "to-file"),
            ("a", "to-folder"),
            ("../outside", "to-outside"),
            ("/etc", "to-root"),
            ("nowhere", "to-nowhere"),
            ("/proc/self/fd/0", "to-magic"),
        ] {
            symlink(to, root.join(name)).expect("it can be made");
        }
        rustix::fs::mkfifoat(rustix::fs::CWD, root.join("pipe"), Mode::RUSR).expect("a pipe");
        let folder = File::open(&root).expect("it is there");
        let paths = [
            ".",
            "a",
            "a/",
            "a/.",
            "./a",
            "a//b",
            "a/b/file",
            "a/file",
            "a/file/",
            "a/file/x",
            "",
            "nothing",
            "nothing/x",
            "/",
            "/etc/passwd",
            "..",
            "../outside",
            "a/../../outside",
            "to-file",
            "to-folder",
            "to-folder/file",
            "to-folder/",
            "to-outside",
            "to-root/passwd",
            "to-nowhere",
            "to-magic",
            "pipe",
            "pipe/x",
        ];
        let read = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let through = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut opened = 0;
        for path in paths {
            for flags in [read, through, OFlags::PATH | OFlags::CLOEXEC, read | OFlags::DIRECTORY] {
                let same = |fd: Result<_, Errno>| {
                    let file = File::from(fd?);
                    file.metadata().map(|found| found.ino()).map_err(|_| Errno::IO)
                };
                let (one, other) = (
                    same(open(&folder, path.as_bytes(), flags)),
                    same(walk(&folder, path.as_bytes(), flags)),
                );
                assert_eq!(one, other, "{path:?} {flags:?}");
                opened += usize::from(one.is_ok());
            }
        }
        assert!(opened > 20, "something can be opened: {opened}");
    }
}
