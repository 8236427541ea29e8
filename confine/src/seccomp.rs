//! seccomp filters: what Landlock cannot refuse.
//!
//! Landlock has no word for UDP, Unix sockets by path, multipath TCP, TCP fast open, io_uring, user
//! namespaces, memfd, keyrings, metadata, or limits of other processes. Each profile is an allow list
//! (a call nobody thought of is refused), but for [`Profile::Thread`], which lies on top of
//! [`Profile::Daemon`] and only takes away. A refused call fails with `EPERM`; a call of another
//! architecture ends the process. Filters stack and the strictest answer wins, so a child is bound by
//! the daemon's too.

use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::sync::OnceLock;

use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};

use super::ConfineError;
use super::syscalls;

/// Every `CLONE_NEW*` that `clone` takes.
const NAMESPACES: u64 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u64;
/// `unshare` takes this one too. For `clone` the bit means something else.
const CLONE_NEWTIME: u64 = 0x80;
const CLONE_THREAD: u64 = libc::CLONE_THREAD as u64;
const MSG_FASTOPEN: u64 = libc::MSG_FASTOPEN as u64;
const AT_EMPTY_PATH: u64 = libc::AT_EMPTY_PATH as u64;
/// The low bits of a socket's type; the others are flags.
const SOCKET_TYPE: u64 = 0xf;
const TCP: u64 = libc::IPPROTO_TCP as u64;
const STREAM: u64 = libc::SOCK_STREAM as u64;
const UNIX: u64 = libc::AF_UNIX as u64;
const INTERNET: [u64; 2] = [libc::AF_INET as u64, libc::AF_INET6 as u64];
/// `TIOCSTI` and `TIOCLINUX`, which type or paste for whoever else uses the terminal. By number, as
/// the libcs disagree on their type.
const TERMINAL_INJECTION: [u64; 2] = [0x5412, 0x541c];
/// What programs ask of `prctl` about themselves.
const HARMLESS_PRCTL: [i32; 5] = [
    libc::PR_SET_NAME,
    libc::PR_GET_NAME,
    libc::PR_GET_DUMPABLE,
    libc::PR_CAPBSET_READ,
    libc::PR_SET_VMA,
];
/// What a thread must not change, because it would change it for the whole process.
const PROCESS_WIDE_PRCTL: [i32; 3] =
    [libc::PR_SET_DUMPABLE, libc::PR_SET_CHILD_SUBREAPER, libc::PR_SET_PDEATHSIG];

/// What the filtered code is, and so what it may call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// The whole daemon. It makes Unix sockets and TCP streams and starts its own children.
    Daemon,
    /// A thread in a [`super::domain::Domain`], over the daemon's filter.
    Thread {
        /// Whether it may make TCP streams.
        network: bool,
    },
    /// A child that becomes one program and can start none: no process, no socket, no mode change.
    NoExec {
        /// The descriptor of the program, which only the launcher role uses.
        exec_fd: RawFd,
    },
    /// As [`Profile::NoExec`], but it may make TCP streams: a runtime that talks to one service.
    ///
    /// Setting timestamps seems to succeed and does nothing. Landlock does not govern them, so that
    /// allowing it would reach every file of its user; and refusing it stops programs that guard a
    /// file with a lock of their own, as node's `proper-lockfile` does.
    NoExecNetwork {
        /// The descriptor of the program, which only the launcher role uses.
        exec_fd: RawFd,
    },
    /// A child that may start the programs that its domain lets it execute.
    Exec {
        /// Whether it may make TCP streams.
        network: bool,
    },
}

/// Installs a profile on the calling thread, for good, for all that it starts.
///
/// # Errors
/// The filter cannot be compiled, or the kernel refuses it.
pub fn install(profile: Profile) -> Result<(), ConfineError> {
    static QUIET_THREAD: OnceLock<BpfProgram> = OnceLock::new();
    static NETWORK_THREAD: OnceLock<BpfProgram> = OnceLock::new();
    let cache = match profile {
        Profile::Thread { network: false } => &QUIET_THREAD,
        Profile::Thread { network: true } => &NETWORK_THREAD,
        _ => {
            apply(&unknown_calls()?)?;
            if matches!(profile, Profile::NoExecNetwork { .. }) {
                apply(&pretended_calls()?)?;
            }
            return apply(&compile(profile)?);
        }
    };
    if let Some(program) = cache.get() {
        return apply(program);
    }
    let program = compile(profile)?;
    apply(cache.get_or_init(|| program))
}

fn apply(program: &BpfProgram) -> Result<(), ConfineError> {
    apply_filter(program).map_err(|error| ConfineError::Seccomp(error.to_string()))
}

/// Compiles the one filter that makes a profile.
fn compile(profile: Profile) -> Result<BpfProgram, ConfineError> {
    let rules = match profile {
        Profile::Daemon => daemon(),
        Profile::Thread { network } => thread_refusals(network),
        Profile::NoExec { exec_fd } => no_exec(exec_fd),
        Profile::NoExecNetwork { exec_fd } => no_exec_network(exec_fd),
        Profile::Exec { network } => exec(network),
    };
    let refuse = SeccompAction::Errno(libc::EPERM as u32);
    let (listed, others) = match profile {
        Profile::Thread { .. } => (refuse, SeccompAction::Allow),
        _ => (SeccompAction::Allow, refuse),
    };
    rules?.compile(listed, others)
}

/// The filter under which [`syscalls::UNKNOWN`] do not exist.
fn unknown_calls() -> Result<BpfProgram, ConfineError> {
    let missing = SeccompAction::Errno(libc::ENOSYS as u32);
    Rules::default().all(syscalls::UNKNOWN).compile(missing, SeccompAction::Allow)
}

/// The filter under which [`syscalls::PRETENDED`] succeed and do nothing.
fn pretended_calls() -> Result<BpfProgram, ConfineError> {
    let nothing = SeccompAction::Errno(0);
    Rules::default().all(syscalls::PRETENDED).compile(nothing, SeccompAction::Allow)
}

/// What everyone with an allow list may do, each within the same bounds.
fn common() -> Result<Rules, ConfineError> {
    let not_injecting: Vec<Test> =
        TERMINAL_INJECTION.iter().map(|request| differs(1, *request)).collect();
    Rules::default()
        .all(syscalls::ONESELF)
        .all(syscalls::READING)
        .all(syscalls::WRITING)
        .all(syscalls::OLDER)
        .when(libc::SYS_ioctl, &not_injecting)?
        .when(libc::SYS_prlimit64, &[equals(0, 0)])
}

fn daemon() -> Result<Rules, ConfineError> {
    internet_streams(common()?)?
        .all(syscalls::STREAMS)
        .all(syscalls::DAEMON)
        .all(syscalls::FORKING)
        .when(libc::SYS_socket, &[equals(0, UNIX)])?
        .when(libc::SYS_clone, &[masked(0, NAMESPACES, 0)])?
        .when(libc::SYS_unshare, &[masked(0, NAMESPACES | CLONE_NEWTIME, 0)])
}

fn no_exec(exec_fd: RawFd) -> Result<Rules, ConfineError> {
    let exec_fd = u64::try_from(exec_fd)
        .map_err(|_| ConfineError::Seccomp("the program's descriptor is negative".to_owned()))?;
    child()?
        .when(libc::SYS_execveat, &[equals(0, exec_fd), equals(4, AT_EMPTY_PATH)])?
        .when(libc::SYS_clone, &[masked(0, NAMESPACES | CLONE_THREAD, CLONE_THREAD)])
}

fn no_exec_network(exec_fd: RawFd) -> Result<Rules, ConfineError> {
    // What is pretended is listed, so that the other filter's answer is what programs see.
    let rules = internet_streams(no_exec(exec_fd)?)?;
    Ok(rules.all(syscalls::STREAMS).all(syscalls::PRETENDED))
}

fn exec(network: bool) -> Result<Rules, ConfineError> {
    let rules = child()?
        .all(syscalls::FORKING)
        .all(&[libc::SYS_execve])
        .when(libc::SYS_clone, &[masked(0, NAMESPACES, 0)])?;
    if !network {
        return Ok(rules);
    }
    // libcurl wakes itself up through a pair, which reaches nobody else.
    internet_streams(rules)?.all(syscalls::STREAMS).when(libc::SYS_socketpair, &[equals(0, UNIX)])
}

/// What every child may do beyond the common part.
fn child() -> Result<Rules, ConfineError> {
    let mut rules = common()?
        // Asking whether a process lives. Anything louder is refused, on any kernel.
        .when(libc::SYS_kill, &[equals(1, 0)])?
        // A program may end itself by a signal.
        .when(libc::SYS_tgkill, &[equals(0, u64::from(std::process::id()))])?;
    for option in HARMLESS_PRCTL {
        rules = rules.when(libc::SYS_prctl, &[equals(0, option as u64)])?;
    }
    Ok(rules)
}

/// TCP over the internet families, and no other protocol: multipath TCP would pass Landlock's port
/// rule, and so would data sent along with the opening packet.
fn internet_streams(mut rules: Rules) -> Result<Rules, ConfineError> {
    for family in INTERNET {
        for protocol in [0, TCP] {
            let stream = masked(1, SOCKET_TYPE, STREAM);
            rules =
                rules.when(libc::SYS_socket, &[equals(0, family), stream, equals(2, protocol)])?;
        }
    }
    rules
        .when(libc::SYS_sendto, &[masked(3, MSG_FASTOPEN, 0)])?
        .when(libc::SYS_sendmsg, &[masked(2, MSG_FASTOPEN, 0)])?
        .when(libc::SYS_sendmmsg, &[masked(3, MSG_FASTOPEN, 0)])
}

/// What a domain's thread may not do.
fn thread_refusals(network: bool) -> Result<Rules, ConfineError> {
    let mut rules = Rules::default()
        .all(syscalls::NOT_IN_THREADS)
        .all(syscalls::FORKING)
        .when(libc::SYS_clone, &[masked(0, CLONE_THREAD, 0)])?
        .when(libc::SYS_tgkill, &[differs(0, u64::from(std::process::id()))])?
        // Limits are the whole process's. Asking for them passes no new value.
        .when(libc::SYS_prlimit64, &[Test { wide: true, ..differs(2, 0) }])?;
    for option in PROCESS_WIDE_PRCTL {
        rules = rules.when(libc::SYS_prctl, &[equals(0, option as u64)])?;
    }
    #[cfg(target_arch = "x86_64")]
    {
        rules = rules.all(&[libc::SYS_chmod]);
    }
    if network {
        // No new socket is a Unix one; the daemon's filter sees to the rest.
        return rules.when(libc::SYS_socket, &[equals(0, UNIX)]);
    }
    Ok(rules.all(&[libc::SYS_socket, libc::SYS_connect]))
}

/// One condition on an argument. Compared as 32 bits unless `wide`, as the kernel does with an int.
#[derive(Clone, Copy)]
struct Test {
    argument: u8,
    operator: Operator,
    value: u64,
    wide: bool,
}

#[derive(Clone, Copy)]
enum Operator {
    Equals,
    Differs,
    Masked(u64),
}

const fn equals(argument: u8, value: u64) -> Test {
    Test { argument, operator: Operator::Equals, value, wide: false }
}

const fn differs(argument: u8, value: u64) -> Test {
    Test { argument, operator: Operator::Differs, value, wide: false }
}

const fn masked(argument: u8, mask: u64, value: u64) -> Test {
    Test { argument, operator: Operator::Masked(mask), value, wide: false }
}

/// System calls with the conditions under which they are meant. Several conditions in one `when`
/// must all hold; of several `when`s for one call, any.
#[derive(Default)]
struct Rules(BTreeMap<i64, Vec<SeccompRule>>);

impl Rules {
    /// Lists calls without a condition. That wins over any condition on the same call.
    fn all(mut self, calls: &[i64]) -> Self {
        self.0.extend(calls.iter().map(|call| (*call, Vec::new())));
        self
    }

    fn when(mut self, call: i64, tests: &[Test]) -> Result<Self, ConfineError> {
        let conditions = tests.iter().map(condition).collect::<Result<Vec<_>, _>>();
        let rule = conditions.and_then(SeccompRule::new).map_err(failed)?;
        // An empty list means "always", which a condition must not narrow by accident.
        match self.0.get_mut(&call) {
            Some(rules) if rules.is_empty() => {}
            Some(rules) => rules.push(rule),
            None => {
                self.0.insert(call, vec![rule]);
            }
        }
        Ok(self)
    }

    fn compile(
        self,
        listed: SeccompAction,
        others: SeccompAction,
    ) -> Result<BpfProgram, ConfineError> {
        let architecture = TargetArch::try_from(std::env::consts::ARCH).map_err(failed)?;
        let filter = SeccompFilter::new(self.0, others, listed, architecture).map_err(failed)?;
        BpfProgram::try_from(filter).map_err(failed)
    }
}

fn condition(test: &Test) -> Result<SeccompCondition, seccompiler::BackendError> {
    let length = if test.wide { SeccompCmpArgLen::Qword } else { SeccompCmpArgLen::Dword };
    let operator = match test.operator {
        Operator::Equals => SeccompCmpOp::Eq,
        Operator::Differs => SeccompCmpOp::Ne,
        Operator::Masked(mask) => SeccompCmpOp::MaskedEq(mask),
    };
    SeccompCondition::new(test.argument, length, operator, test.value)
}

fn failed(error: seccompiler::BackendError) -> ConfineError {
    ConfineError::Seccomp(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROFILES: [Profile; 7] = [
        Profile::Daemon,
        Profile::Thread { network: false },
        Profile::Thread { network: true },
        Profile::NoExec { exec_fd: 3 },
        Profile::NoExecNetwork { exec_fd: 3 },
        Profile::Exec { network: false },
        Profile::Exec { network: true },
    ];

    #[test]
    fn every_profile_fits_the_kernel_and_threads_pay_little() {
        for profile in PROFILES {
            let length = compile(profile).expect("a filter").len();
            let most = if matches!(profile, Profile::Thread { .. }) { 250 } else { 4096 };
            assert!(length <= most, "{profile:?}: {length}");
        }
    }

    #[test]
    fn what_children_may_call_the_daemon_may_call() {
        let daemon = daemon().expect("rules").0;
        for child in [no_exec(3), no_exec_network(3), exec(false), exec(true)] {
            for call in child.expect("rules").0.keys() {
                assert!(daemon.contains_key(call), "the daemon's filter would refuse {call}");
            }
        }
    }

    #[test]
    fn a_call_listed_without_a_condition_is_not_narrowed_by_one() {
        let rules = Rules::default().all(&[libc::SYS_kill]).when(libc::SYS_kill, &[equals(1, 0)]);
        assert!(rules.expect("rules").0[&libc::SYS_kill].is_empty());
    }

    #[test]
    fn a_negative_descriptor_is_refused() {
        assert!(no_exec(-1).is_err());
    }
}
