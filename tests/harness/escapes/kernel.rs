//! Namespaces, mounts, and the calls that Landlock has no word for.

use std::io;

use nix::errno::Errno;
use nix::mqueue::{MQ_OFlag, MqAttr};
use nix::sched::{CloneFlags, unshare};
use rustix::mount::{FsOpenFlags, MountFlags, OpenTreeFlags, UnmountFlags};

use super::Barrier::Filter;
use super::{Attempt, attempt};

const CONTAINER: &str = "a container may withhold it";
const WITHHELD: &[Errno] = &[Errno::EPERM, Errno::EACCES, Errno::ENOSPC];

pub(super) const TABLE: &[Attempt] = &[
    attempt("user-namespace", Filter, |_| Ok(unshare(CloneFlags::CLONE_NEWUSER)?))
        .answers(WITHHELD, CONTAINER),
    attempt("mount-namespace", Filter, |_| Ok(unshare(CloneFlags::CLONE_NEWNS)?))
        .answers(WITHHELD, CONTAINER),
    attempt("network-namespace", Filter, |_| Ok(unshare(CloneFlags::CLONE_NEWNET)?))
        .answers(WITHHELD, CONTAINER),
    attempt("process-namespace", Filter, |_| Ok(unshare(CloneFlags::CLONE_NEWPID)?))
        .answers(WITHHELD, CONTAINER),
    attempt("ipc-namespace", Filter, |_| Ok(unshare(CloneFlags::CLONE_NEWIPC)?))
        .answers(WITHHELD, CONTAINER),
    attempt("host-name-namespace", Filter, |_| Ok(unshare(CloneFlags::CLONE_NEWUTS)?))
        .answers(WITHHELD, CONTAINER),
    attempt("control-group-namespace", Filter, |_| Ok(unshare(CloneFlags::CLONE_NEWCGROUP)?))
        .answers(WITHHELD, CONTAINER),
    attempt("clock-namespace", Filter, |_| Ok(unshare(CloneFlags::from_bits_retain(0x80))?))
        .answers(WITHHELD, CONTAINER),
    attempt("join-a-namespace", Filter, |_| {
        Ok(nix::sched::setns(io::stdin(), CloneFlags::CLONE_NEWNET)?)
    })
    .answers(&[Errno::EINVAL], "standard input is no namespace"),
    attempt("mount", Filter, |_| {
        Ok(rustix::mount::mount("none", "/nonexistent", "tmpfs", MountFlags::empty(), None)?)
    })
    .answers(&[Errno::ENOENT, Errno::EPERM], "there is no such folder"),
    attempt("mount-bind", Filter, |_| Ok(rustix::mount::mount_bind("/", "/nonexistent")?))
        .answers(&[Errno::ENOENT, Errno::EPERM], "there is no such folder"),
    attempt("unmount", Filter, |_| {
        Ok(rustix::mount::unmount("/nonexistent", UnmountFlags::DETACH)?)
    })
    .answers(&[Errno::ENOENT, Errno::EPERM], "there is no such folder"),
    attempt("open-a-file-system", Filter, |_| {
        Ok(rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC).map(drop)?)
    })
    .answers(&[Errno::EPERM], "only root may"),
    attempt("clone-a-mount", Filter, |aim| {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        Ok(rustix::mount::open_tree(rustix::fs::CWD, &aim.elsewhere, flags).map(drop)?)
    })
    .answers(&[Errno::EPERM], "only root may"),
    attempt("new-root", Filter, |aim| Ok(nix::unistd::pivot_root(&aim.elsewhere, &aim.elsewhere)?))
        .answers(&[Errno::EINVAL, Errno::EPERM, Errno::EBUSY], "it is no mount point"),
    attempt("change-root", Filter, |_| Ok(rustix::process::chroot("/nonexistent")?))
        .answers(&[Errno::ENOENT, Errno::EPERM], "there is no such folder"),
    attempt("memory-file", Filter, |_| {
        Ok(nix::sys::memfd::memfd_create(c"x", nix::sys::memfd::MFdFlags::empty()).map(drop)?)
    }),
    attempt("message-queue", Filter, |_| {
        let flags = MQ_OFlag::O_RDONLY | MQ_OFlag::O_CREAT | MQ_OFlag::O_EXCL;
        let name = std::ffi::CString::new(format!("/sage-test-{}", std::process::id()))?;
        let small = MqAttr::new(0, 1, 8, 0);
        let mode = nix::sys::stat::Mode::S_IRWXU;
        nix::mqueue::mq_open(name.as_c_str(), flags, mode, Some(&small))?;
        Ok(nix::mqueue::mq_unlink(name.as_c_str())?)
    }),
    attempt("personality", Filter, |_| {
        let now = nix::sys::personality::get()?;
        let more = now | nix::sys::personality::Persona::READ_IMPLIES_EXEC;
        Ok(nix::sys::personality::set(more).map(drop)?)
    }),
    attempt("lock-all-memory", Filter, |_| {
        Ok(nix::sys::mman::mlockall(nix::sys::mman::MlockAllFlags::MCL_CURRENT)?)
    })
    .answers(&[Errno::ENOMEM, Errno::EPERM], "a limit stands before it"),
    attempt("quota", Filter, |_| {
        use nix::sys::quota::{QuotaType, quotactl_off};
        Ok(quotactl_off(QuotaType::USRQUOTA, "/nonexistent")?)
    })
    .answers(
        &[Errno::ENOENT, Errno::EPERM, Errno::ENOSYS, Errno::ENOTBLK],
        "there is no such device",
    ),
    attempt("host-name", Filter, |_| Ok(nix::unistd::sethostname(nix::unistd::gethostname()?)?))
        .answers(&[Errno::EPERM], CONTAINER),
    attempt("accounting", Filter, |_| Ok(nix::unistd::acct::enable("/nonexistent")?))
        .answers(&[Errno::ENOENT, Errno::EPERM, Errno::ENOSYS], "there is no such file"),
];
