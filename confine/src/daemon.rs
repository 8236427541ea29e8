//! Confining the whole daemon: once, at start, in full, or not at all.
//!
//! [`enter`] must run while the process has one thread, before the async runtime exists: Landlock
//! and seccomp bind the calling thread and whatever it starts from then on. Whatever must outlive
//! the confinement (the listening socket, the audit, the state) is opened before, or granted. User
//! names are looked up before. Host names can only be resolved over TCP afterwards, since there is
//! no UDP.
//!
//! Afterwards the process can read and write what its rows need in union, make TCP streams and Unix
//! sockets, and start the programs that its grants let it execute. Nothing in it can get more back.

use std::fs::File;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::time::Duration;

use nix::sys::prctl;
use rustix::fs::Mode;
use rustix::process::{Resource, umask};

use super::ConfineError;
use super::domain::Domain;
use super::grants::{Grants, Rights};
use super::kernel::KernelSupport;
use super::seccomp::{self, Profile};
use super::{fds, privileges};

/// How the daemon is to be confined.
#[derive(Debug, Clone)]
pub struct DaemonPlan {
    /// The union of all rows, and what the daemon itself needs: its own binary with its loader
    /// ([`super::grants::program`]), libraries, /dev/null, its state.
    pub grants: Grants,
    /// The kernel, and whether less than needed is acceptable.
    pub kernel: KernelSupport,
    /// How many descriptors the process may have open.
    pub open_files: u64,
}

/// What was reached. Only [`enter`] makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enforced {
    abi: u32,
    degraded: Vec<&'static str>,
}

impl Enforced {
    /// The Landlock ABI in use; 0 is none.
    #[must_use]
    pub fn abi(&self) -> u32 {
        self.abi
    }

    /// What does not hold on this kernel. Empty unless degrading was allowed and needed.
    #[must_use]
    pub fn degraded(&self) -> &[&'static str] {
        &self.degraded
    }
}

/// Confines the process for good.
///
/// # Errors
/// A step failed or does not hold. The process may be partly confined by then and must end.
pub fn enter(plan: &DaemonPlan) -> Result<Enforced, ConfineError> {
    require_one_thread()?;
    plan.kernel.check(&plan.grants)?;
    fds::prepare();
    adopt_orphans()?;
    privileges::drop_capabilities()?;
    privileges::no_new_privileges()?;
    privileges::not_dumpable()?;
    privileges::limit(Resource::Core, 0)?;
    privileges::limit(Resource::Nofile, plan.open_files)?;
    umask(Mode::from_raw_mode(0o077));
    Domain::build(&plan.grants, &plan.kernel)?.restrict_self()?;
    seccomp::install(Profile::Daemon)?;
    verify(plan)?;
    Ok(Enforced { abi: plan.kernel.abi(), degraded: plan.kernel.missing(&plan.grants) })
}

/// A second thread would stay outside. One that was joined may be listed for a moment more.
fn require_one_thread() -> Result<(), ConfineError> {
    const TRIES: u32 = 50;
    let mut threads = 0;
    for _ in 0..TRIES {
        threads = fds::count_threads()
            .map_err(|error| ConfineError::system("counting threads", error))?;
        if threads == 1 {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(ConfineError::NotSingleThreaded(threads))
}

/// Whatever a killed child leaves behind becomes ours to reap, not init's.
fn adopt_orphans() -> Result<(), ConfineError> {
    prctl::set_child_subreaper(true)
        .map_err(|error| ConfineError::system("becoming a subreaper", error))
}

/// Asks the kernel what it holds, and tries what must now fail.
fn verify(plan: &DaemonPlan) -> Result<(), ConfineError> {
    let breached = |what: &str| Err(ConfineError::Breached(what.to_owned()));
    privileges::require_no_capabilities()?;
    if prctl::get_no_new_privs() != Ok(true) {
        return breached("no_new_privs is not set");
    }
    if prctl::get_dumpable() != Ok(false) {
        return breached("the process is dumpable");
    }
    if plan.kernel.abi() > 0 && !grants_reading(&plan.grants, Path::new("/proc")) {
        match File::open("/proc/self/environ") {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {}
            _ => return breached("a file outside every grant can be read"),
        }
    }
    match UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(()),
        _ => breached("a UDP socket can be made"),
    }
}

/// Whether some grant lets everything below this folder be read.
fn grants_reading(grants: &Grants, folder: &Path) -> bool {
    grants
        .files
        .iter()
        .any(|grant| grant.rights.contains(Rights::READ_FILE) && folder.starts_with(&grant.path))
}
