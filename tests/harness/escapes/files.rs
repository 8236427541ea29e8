//! Files outside the row, by every way in and out, and what lies beside their content.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;

use nix::errno::Errno;
use policy::authority::Files;
use rustix::fs::{
    AtFlags, CWD, FlockOperation, Mode, OFlags, RenameFlags, ResolveFlags, XattrFlags,
};

use super::Barrier::{Domain, Filter, FilterOrDomain, Open, Row};
use super::{Attempt, EACCES, attempt, open, reads_root};

pub(super) const TABLE: &[Attempt] = &[
    attempt("read", Domain, |aim| fs::read(aim.file()).map(drop)),
    attempt("read-dotted", Domain, |aim| fs::read(aim.tree.join("../elsewhere/file")).map(drop)),
    attempt("read-by-planted-link", Domain, |aim| fs::read(aim.tree.join("way-out")).map(drop)),
    attempt("list", Domain, |aim| fs::read_dir(&aim.elsewhere).map(drop)),
    attempt("list-home", Domain, |_| fs::read_dir("/root").map(drop)),
    attempt("read-accounts", Domain, |_| fs::read("/etc/shadow").map(drop)),
    attempt("append", Domain, |aim| File::options().append(true).open(aim.file()).map(drop)),
    attempt("truncate", Domain, |aim| Ok(nix::unistd::truncate(&aim.file(), 0)?)),
    attempt("open-truncating", Domain, |aim| {
        open(&aim.file(), OFlags::RDONLY | OFlags::TRUNC).map(drop)
    }),
    attempt("openat2-truncating", FilterOrDomain, |aim| {
        let flags = OFlags::RDONLY | OFlags::TRUNC;
        Ok(rustix::fs::openat2(CWD, aim.file(), flags, Mode::empty(), ResolveFlags::empty())
            .map(drop)?)
    }),
    attempt("make", Domain, |aim| fs::write(aim.elsewhere.join("new"), "")),
    attempt("make-nameless", Domain, |aim| {
        open(&aim.elsewhere, OFlags::WRONLY | OFlags::TMPFILE).map(drop)
    }),
    attempt("make-folder", Domain, |aim| fs::create_dir(aim.elsewhere.join("folder"))),
    attempt("make-link", Domain, |aim| std::os::unix::fs::symlink("/", aim.elsewhere.join("link"))),
    attempt("make-fifo", Filter, |aim| {
        Ok(nix::unistd::mkfifo(&aim.elsewhere.join("fifo"), nix::sys::stat::Mode::S_IRWXU)?)
    }),
    attempt("make-device", Filter, |aim| {
        use nix::sys::stat::{Mode, SFlag, makedev, mknod};
        Ok(mknod(&aim.elsewhere.join("null"), SFlag::S_IFCHR, Mode::S_IRWXU, makedev(1, 3))?)
    }),
    attempt("remove", Domain, |aim| fs::remove_file(aim.elsewhere.join("doomed"))),
    attempt("remove-folder", Domain, |aim| fs::remove_dir(aim.elsewhere.join("empty"))),
    attempt("rename-out", Domain, |aim| {
        fs::rename(aim.tree.join("leaving"), aim.elsewhere.join("left"))
    }),
    attempt("rename-in", Domain, |aim| {
        fs::rename(aim.elsewhere.join("moved"), aim.tree.join("moved"))
    }),
    attempt("exchange", Domain, |aim| {
        let (theirs, ours) = (aim.elsewhere.join("swapped"), aim.tree.join("swapped-inside"));
        Ok(rustix::fs::renameat_with(CWD, theirs, CWD, ours, RenameFlags::EXCHANGE)?)
    }),
    attempt("link-out", Domain, |aim| fs::hard_link(aim.inside(), aim.elsewhere.join("twin"))),
    attempt("link-in", Row(linking_in), |aim| fs::hard_link(aim.file(), aim.tree.join("twin"))),
    attempt("link-a-descriptor-in", Row(linking_in), |aim| {
        let file = open(&aim.file(), OFlags::PATH)?;
        let twin = aim.tree.join("twin-of-descriptor");
        Ok(rustix::fs::linkat(file, "", CWD, twin, AtFlags::EMPTY_PATH)?)
    }),
    attempt("reopen-a-path-descriptor", Domain, |aim| {
        let file = open(&aim.file(), OFlags::PATH)?;
        fs::read(format!("/proc/self/fd/{}", file.as_raw_fd())).map(drop)
    }),
    attempt("read-by-proc-root", Domain, |aim| {
        let path = aim.file();
        fs::read(Path::new("/proc/self/root").join(path.strip_prefix("/").unwrap_or(&path)))
            .map(drop)
    }),
    attempt("read-by-proc-thread-root", Domain, |aim| {
        let path = aim.file();
        fs::read(Path::new("/proc/thread-self/root").join(path.strip_prefix("/").unwrap_or(&path)))
            .map(drop)
    }),
    attempt("write-tmp", Domain, |_| scratch("/tmp")),
    attempt("write-var-tmp", Domain, |_| scratch("/var/tmp")),
    attempt("write-shared-memory", Domain, |_| scratch("/dev/shm")),
    attempt("terminal-master", Domain, |_| device("/dev/ptmx")),
    attempt("zeroes", Domain, |_| device("/dev/zero")),
    attempt("kernel-log", Domain, |_| device("/dev/kmsg"))
        .answers(&[Errno::EPERM, Errno::ENOENT], "not every container has it"),
    attempt("sysfs", Domain, |_| fs::read_dir("/sys/kernel").map(drop)),
    attempt("control-groups", Domain, |_| fs::read_dir("/sys/fs/cgroup").map(drop)),
    attempt("core-pattern", Domain, |_| {
        File::options().append(true).open("/proc/sys/kernel/core_pattern").map(drop)
    })
    .answers(&[Errno::EROFS, Errno::EACCES], "a container's is read-only"),
    attempt("mode", Filter, |aim| {
        fs::set_permissions(aim.file(), fs::Permissions::from_mode(0o644))
    }),
    attempt("mode-setuid-inside", Filter, |aim| {
        fs::set_permissions(aim.inside(), fs::Permissions::from_mode(0o4755))
    }),
    attempt("owner", Filter, |aim| {
        std::os::unix::fs::chown(aim.file(), Some(nix::unistd::getuid().as_raw()), None)
    }),
    attempt("owner-of-link", Filter, |aim| {
        std::os::unix::fs::lchown(
            aim.tree.join("way-out"),
            Some(nix::unistd::getuid().as_raw()),
            None,
        )
    }),
    attempt("times", Filter, |aim| {
        use nix::sys::time::TimeSpec;
        let now = TimeSpec::new(1, 0);
        Ok(nix::sys::stat::utimensat(
            nix::fcntl::AT_FDCWD,
            &aim.file(),
            &now,
            &now,
            nix::sys::stat::UtimensatFlags::FollowSymlink,
        )?)
    }),
    attempt("attribute-set", Filter, |aim| {
        Ok(rustix::fs::setxattr(aim.file(), "user.x", b"x", XattrFlags::empty())?)
    }),
    attempt("attribute-read", Filter, |aim| {
        Ok(rustix::fs::getxattr(aim.file(), "user.x", &mut [0_u8; 8]).map(drop)?)
    })
    .answers(&[Errno::ENODATA], "there may be none of that name"),
    attempt("attribute-list", Filter, |aim| {
        Ok(rustix::fs::listxattr(aim.file(), &mut [0_u8; 256]).map(drop)?)
    }),
    attempt("attribute-remove", Filter, |aim| Ok(rustix::fs::removexattr(aim.file(), "user.x")?))
        .answers(&[Errno::ENODATA], "there may be none of that name"),
    attempt("watch", Filter, |aim| {
        use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
        let watch = Inotify::init(InitFlags::IN_CLOEXEC)?;
        Ok(watch.add_watch(&aim.file(), AddWatchFlags::IN_ALL_EVENTS).map(drop)?)
    }),
    attempt("watch-all", Filter, |_| {
        use nix::sys::fanotify::{EventFFlags, Fanotify, InitFlags};
        Ok(Fanotify::init(InitFlags::FAN_CLASS_NOTIF, EventFFlags::O_RDONLY).map(drop)?)
    })
    .answers(&[Errno::ENOSYS], "not every kernel has it"),
    attempt("lock-a-readable-file", Row(reads_root), |aim| {
        let file = open(&aim.inside(), OFlags::RDONLY)?;
        Ok(rustix::fs::flock(file, FlockOperation::NonBlockingLockShared)?)
    }),
    attempt("see-size-and-mode", Open, |aim| fs::metadata(aim.file()).map(drop)),
    attempt("see-existence", Open, |aim| {
        Ok(rustix::fs::access(aim.file(), rustix::fs::Access::READ_OK)?)
    }),
    attempt("see-a-links-target", Open, |aim| fs::read_link(aim.tree.join("way-out")).map(drop)),
    attempt("see-the-file-system", Open, |aim| Ok(rustix::fs::statfs(aim.file()).map(drop)?)),
    attempt("see-devices", Open, |_| {
        fs::metadata("/dev/null").map(|meta| assert!(meta.file_type().is_char_device()))
    }),
    attempt("hold-a-path", Open, |aim| open(&aim.file(), OFlags::PATH).map(drop)),
    attempt("stand-elsewhere", Open, |aim| {
        let here = open(Path::new("."), OFlags::PATH)?;
        std::env::set_current_dir(&aim.elsewhere)?;
        Ok(rustix::process::fchdir(here)?)
    }),
];

/// Landlock answers `EXDEV` where the row could make the file but the file would gain rights by it.
fn linking_in(row: &policy::authority::Row) -> i32 {
    if row.files == Files::WriteRoot { Errno::EXDEV as i32 } else { EACCES }
}

fn scratch(folder: &str) -> std::io::Result<()> {
    let path = Path::new(folder).join(format!("sage-test-{}", std::process::id()));
    fs::write(&path, "")?;
    fs::remove_file(path)
}

fn device(path: &str) -> std::io::Result<()> {
    open(Path::new(path), OFlags::RDONLY | OFlags::NOCTTY | OFlags::NONBLOCK).map(drop)
}
