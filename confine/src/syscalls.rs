//! The system calls that the filters name, in groups, each with the reason why it may be used.
//!
//! A call in no group is refused everywhere. So are, for everyone, with nothing here to show for it:
//! io_uring, memfd, keyrings, ptrace and its kin, bpf, perf, userfaultfd, modules, kexec, mounting,
//! namespaces, chroot, file handles, System V and POSIX queues and shared memory, quota, swap,
//! accounting, clocks, device nodes, ownership and extended attributes, other processes' priorities,
//! affinities and limits, and whatever later kernels add.

use nix::libc;

/// A call that only newer kernels have, by the number it has on every architecture we build for.
const fn recent(number: i64) -> i64 {
    number
}

/// Memory, clocks, waiting, threads and facts about oneself: no file, nobody else.
pub(crate) const ONESELF: &[i64] = &[
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_msync,
    libc::SYS_mincore,
    libc::SYS_mlock,
    libc::SYS_munlock,
    libc::SYS_membarrier,
    libc::SYS_rseq,
    libc::SYS_mseal,
    recent(453), // map_shadow_stack
    libc::SYS_futex,
    libc::SYS_futex_waitv,
    recent(454), // futex_wake
    recent(455), // futex_wait
    recent(456), // futex_requeue
    libc::SYS_set_robust_list,
    libc::SYS_get_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min,
    libc::SYS_getcpu,
    libc::SYS_getrandom,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_times,
    libc::SYS_getrusage,
    libc::SYS_gettimeofday,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_getitimer,
    libc::SYS_setitimer,
    libc::SYS_getpriority,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getppid,
    libc::SYS_getpgid,
    libc::SYS_getsid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getgroups,
    libc::SYS_getresuid,
    libc::SYS_getresgid,
    libc::SYS_capget,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_rt_sigsuspend,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_exit,
    libc::SYS_exit_group,
    // Waiting reaches own children only.
    libc::SYS_wait4,
    libc::SYS_waitid,
    // Listed so that the other filter's "no such call" is what programs see: see `UNKNOWN`.
    libc::SYS_clone3,
];

/// Descriptors, and reading by path where Landlock allows it.
pub(crate) const READING: &[i64] = &[
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_openat,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_getcwd,
    libc::SYS_chdir,
    libc::SYS_fchdir,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_fcntl,
    libc::SYS_pipe2,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_timerfd_gettime,
    libc::SYS_flock,
    libc::SYS_fadvise64,
    libc::SYS_readahead,
    libc::SYS_copy_file_range,
    libc::SYS_sendfile,
    libc::SYS_splice,
    recent(451), // cachestat
];

/// Changing files, where Landlock allows it.
pub(crate) const WRITING: &[i64] = &[
    libc::SYS_mkdirat,
    libc::SYS_unlinkat,
    libc::SYS_renameat2,
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_truncate,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sync_file_range,
    libc::SYS_syncfs,
    libc::SYS_umask,
];

/// Older forms of the calls above, which this architecture still has.
#[cfg(target_arch = "x86_64")]
pub(crate) const OLDER: &[i64] = &[
    libc::SYS_arch_prctl,
    libc::SYS_getrlimit,
    libc::SYS_time,
    libc::SYS_alarm,
    libc::SYS_pause,
    libc::SYS_getpgrp,
    libc::SYS_open,
    libc::SYS_creat,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_getdents,
    libc::SYS_dup2,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_epoll_create,
    libc::SYS_epoll_wait,
    libc::SYS_eventfd,
    libc::SYS_mkdir,
    libc::SYS_rmdir,
    libc::SYS_unlink,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_link,
    libc::SYS_symlink,
];
/// Older forms of the calls above, which this architecture still has.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) const OLDER: &[i64] = &[libc::SYS_getrlimit, libc::SYS_renameat];

/// Starting processes without threads' shape. Programs are another matter.
#[cfg(target_arch = "x86_64")]
pub(crate) const FORKING: &[i64] = &[libc::SYS_fork, libc::SYS_vfork];
/// Starting processes without threads' shape. Programs are another matter.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) const FORKING: &[i64] = &[];

/// Using an internet stream once it exists. What may exist is decided when it is made.
pub(crate) const STREAMS: &[i64] = &[
    libc::SYS_connect,
    libc::SYS_shutdown,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
];

/// What the daemon does beyond its rows: it serves, confines, starts and stops.
pub(crate) const DAEMON: &[i64] = &[
    // Serving its socket.
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_socketpair,
    libc::SYS_signalfd4,
    // Opening beneath a root.
    libc::SYS_openat2,
    // Keeping the mode of a file that is replaced.
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_utimensat,
    // Confining threads and children.
    libc::SYS_prctl,
    libc::SYS_capset,
    libc::SYS_seccomp,
    libc::SYS_landlock_create_ruleset,
    libc::SYS_landlock_add_rule,
    libc::SYS_landlock_restrict_self,
    // Starting and stopping children.
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_setpgid,
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_tgkill,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
];

/// What a thread in a domain must not do beyond what its domain and the daemon's filter refuse. Kept
/// short, as every call of a tool pays for it.
pub(crate) const NOT_IN_THREADS: &[i64] = &[
    // No row of an in-process tool starts a program.
    libc::SYS_execve,
    libc::SYS_execveat,
    // None serves.
    libc::SYS_socketpair,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    // None stops anyone; kernels before Landlock's scopes would let it.
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_setpgid,
    // Landlock does not govern metadata, and the token's mode is metadata.
    libc::SYS_fchmodat,
    libc::SYS_utimensat,
    // Rulesets and filters are the daemon's business.
    libc::SYS_landlock_create_ruleset,
    libc::SYS_landlock_add_rule,
];

/// Answered with "no such call", upon which every libc uses the older form whose flags a filter can
/// read. Refusing it would be taken for a failure.
pub(crate) const UNKNOWN: &[i64] = &[libc::SYS_clone3];

/// Told to a networked no-exec child to have been done, and not done.
pub(crate) const PRETENDED: &[i64] = &[libc::SYS_utimensat];
