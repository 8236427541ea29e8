//! Other processes, and what this one is and may do.

use std::fs::{self, File};
use std::io::{self, IoSlice, IoSliceMut};

use nix::errno::Errno;
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
use nix::unistd::{Gid, Pid, Uid};
use rustix::process::{DumpableBehavior, PidfdFlags, PidfdGetfdFlags, Resource, Rlimit};

use super::Barrier::{Domain, Filter, Row};
use super::{ALLOWED, Aim, Attempt, EPERM, attempt};

pub(super) const TABLE: &[Attempt] = &[
    attempt("environment-of-another", Domain, |aim| fs::read(aim.victim("environ")).map(drop)),
    attempt("memory-map-of-another", Domain, |aim| fs::read(aim.victim("maps")).map(drop)),
    attempt("memory-of-another", Domain, |aim| File::open(aim.victim("mem")).map(drop)),
    attempt("write-memory-of-another", Domain, |aim| {
        File::options().write(true).open(aim.victim("mem")).map(drop)
    }),
    attempt("descriptors-of-another", Domain, |aim| fs::read_dir(aim.victim("fd")).map(drop)),
    attempt("files-by-root-of-another", Domain, |aim| {
        fs::read_dir(aim.victim("root/etc")).map(drop)
    }),
    attempt("files-by-folder-of-another", Domain, |aim| fs::read_dir(aim.victim("cwd")).map(drop)),
    attempt("own-environment", Domain, |_| fs::read("/proc/self/environ").map(drop)),
    attempt("own-memory", Domain, |_| File::open("/proc/self/mem").map(drop)),
    attempt("own-descriptors", Domain, |_| fs::read_dir("/proc/self/fd").map(drop)),
    attempt("own-importance", Domain, |_| {
        File::options().write(true).open("/proc/self/oom_score_adj").map(drop)
    }),
    attempt("process-list", Domain, |_| fs::read_dir("/proc").map(drop)),
    attempt("trace", Filter, |aim| {
        ptrace::attach(victim(aim))?;
        nix::sys::wait::waitpid(victim(aim), None)?;
        Ok(ptrace::detach(victim(aim), None)?)
    }),
    attempt("seize", Filter, |aim| Ok(ptrace::seize(victim(aim), ptrace::Options::empty())?)),
    attempt("be-traced", Filter, |_| Ok(ptrace::traceme()?)),
    attempt("read-memory", Filter, |aim| {
        let mut buffer = [0; 1];
        let remote = [RemoteIoVec { base: 0x1000, len: 1 }];
        let read = process_vm_readv(victim(aim), &mut [IoSliceMut::new(&mut buffer)], &remote);
        Ok(read.map(drop)?)
    })
    .answers(&[Errno::EFAULT], "nothing is mapped at the address"),
    attempt("write-memory", Filter, |aim| {
        let remote = [RemoteIoVec { base: 0x1000, len: 1 }];
        Ok(process_vm_writev(victim(aim), &[IoSlice::new(b"x")], &remote).map(drop)?)
    })
    .answers(&[Errno::EFAULT], "nothing is mapped at the address"),
    attempt("process-descriptor", Filter, |aim| pidfd(aim).map(drop)),
    attempt("take-a-descriptor", Filter, |aim| {
        Ok(rustix::process::pidfd_getfd(pidfd(aim)?, 0, PidfdGetfdFlags::empty()).map(drop)?)
    }),
    attempt("take-a-descriptor-directly", Filter, |_| {
        Ok(rustix::process::pidfd_getfd(io::stdin(), 0, PidfdGetfdFlags::empty()).map(drop)?)
    })
    .answers(&[Errno::EBADF], "standard input is no process"),
    attempt("signal-by-descriptor", Filter, |aim| {
        Ok(rustix::process::pidfd_send_signal(pidfd(aim)?, rustix::process::Signal::CONT)?)
    }),
    attempt("signal", Filter, |aim| Ok(nix::sys::signal::kill(victim(aim), Signal::SIGCONT)?)),
    attempt("signal-a-group", Filter, |aim| {
        Ok(nix::sys::signal::killpg(victim(aim), Signal::SIGCONT)?)
    }),
    attempt("ask-for-another", Filter, |aim| Ok(nix::sys::signal::kill(victim(aim), None)?)),
    attempt("ask-for-the-first", Filter, |_| Ok(nix::sys::signal::kill(Pid::from_raw(1), None)?)),
    attempt("importance-of-another", Filter, |aim| {
        Ok(rustix::process::setpriority_process(process(aim), 1)?)
    }),
    attempt("own-priority", Filter, |_| Ok(rustix::process::setpriority_process(None, 0)?)),
    attempt("processors-of-another", Filter, |aim| {
        let own = rustix::thread::sched_getaffinity(None)?;
        Ok(rustix::thread::sched_setaffinity(process(aim), &own)?)
    }),
    attempt("limits-of-another", Filter, |aim| limit_of(process(aim))),
    attempt("own-limits", Row(own_limits), |_| limit_of(None)),
    attempt("core-file", Filter, |_| {
        let all = Rlimit { current: None, maximum: None };
        Ok(rustix::process::setrlimit(Resource::Core, all)?)
    }),
    attempt("be-dumpable", Filter, |_| {
        Ok(rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)?)
    }),
    attempt("outlive-the-parent", Filter, |_| {
        Ok(rustix::process::set_parent_process_death_signal(None)?)
    }),
    attempt("adopt", Filter, |_| Ok(rustix::process::set_child_subreaper(None)?)),
    attempt("leave-the-session", Filter, |_| Ok(nix::unistd::setsid().map(drop)?)),
    attempt("leave-the-group", Filter, |_| {
        Ok(nix::unistd::setpgid(Pid::from_raw(0), Pid::from_raw(0))?)
    }),
    attempt("become-root", Filter, |_| Ok(nix::unistd::setuid(Uid::from_raw(0))?)),
    attempt("become-nobody", Filter, |_| Ok(nix::unistd::setuid(Uid::from_raw(65534))?)),
    attempt("become-a-group", Filter, |_| Ok(nix::unistd::setgid(Gid::from_raw(0))?)),
    attempt("join-groups", Filter, |_| Ok(nix::unistd::setgroups(&[Gid::from_raw(0)])?)),
    attempt("become-by-all-ids", Filter, |_| {
        let root = Uid::from_raw(0);
        Ok(nix::unistd::setresuid(root, root, root)?)
    }),
    attempt("regain-capabilities", Filter, |_| {
        let mut own = rustix::thread::capabilities(None)?;
        own.permitted = rustix::thread::CapabilitySet::SYS_ADMIN;
        own.effective = own.permitted;
        own.inheritable = rustix::thread::CapabilitySet::empty();
        Ok(rustix::thread::set_capabilities(None, own)?)
    }),
];

fn victim(aim: &Aim) -> Pid {
    Pid::from_raw(aim.victim)
}

fn process(aim: &Aim) -> Option<rustix::process::Pid> {
    rustix::process::Pid::from_raw(aim.victim)
}

fn pidfd(aim: &Aim) -> io::Result<rustix::fd::OwnedFd> {
    let process = process(aim).expect("a process id");
    Ok(rustix::process::pidfd_open(process, PidfdFlags::empty())?)
}

/// Sets a limit to what it is.
fn limit_of(process: Option<rustix::process::Pid>) -> io::Result<()> {
    let now = rustix::process::getrlimit(Resource::Core);
    let same = Rlimit { current: now.current, maximum: now.maximum };
    Ok(rustix::process::prlimit(process, Resource::Core, same).map(drop)?)
}

/// A child may lower its own limits, and hurts itself.
fn own_limits(row: &policy::authority::Row) -> i32 {
    if row.exec == policy::authority::Exec::None { EPERM } else { ALLOWED }
}
