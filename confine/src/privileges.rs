//! The rights that are given away for good, by the daemon at start and by every child before it
//! becomes a program. Each function is one line of the visible sequences that call it.

use std::io;

use caps::{CapSet, Capability};
use nix::sys::prctl;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::ConfineError;

/// Empties all five capability sets, so that even root is an ordinary user from here on.
///
/// The bounding set can only be emptied by one who may; for anyone else no_new_privs already keeps
/// it from mattering.
pub(crate) fn drop_capabilities() -> Result<(), ConfineError> {
    let may_bound = caps::has_cap(None, CapSet::Effective, Capability::CAP_SETPCAP)
        .map_err(|error| failed("reading", error))?;
    if may_bound {
        caps::clear(None, CapSet::Bounding).map_err(|error| failed("bounding set", error))?;
    }
    caps::clear(None, CapSet::Ambient).map_err(|error| failed("ambient set", error))?;
    // A service manager that left none may also have left no right to call capset.
    if require_no_capabilities().is_ok() {
        return Ok(());
    }
    // In this order: no set may at any time have what the permitted set lacks.
    caps::clear(None, CapSet::Effective).map_err(|error| failed("effective set", error))?;
    caps::clear(None, CapSet::Inheritable).map_err(|error| failed("inheritable set", error))?;
    caps::clear(None, CapSet::Permitted).map_err(|error| failed("permitted set", error))?;
    require_no_capabilities()
}

/// Fails unless the sets that confer or regain anything are empty.
pub(crate) fn require_no_capabilities() -> Result<(), ConfineError> {
    for set in [CapSet::Effective, CapSet::Permitted, CapSet::Inheritable, CapSet::Ambient] {
        let left = caps::read(None, set).map_err(|error| failed("reading", error))?;
        if !left.is_empty() {
            return Err(ConfineError::Breached(format!("{set:?} capabilities remain: {left:?}")));
        }
    }
    Ok(())
}

fn failed(step: &'static str, error: caps::errors::CapsError) -> ConfineError {
    ConfineError::Capabilities { step, detail: error.to_string() }
}

/// No set-user-id program and no file capability adds rights from here on.
pub(crate) fn no_new_privileges() -> Result<(), ConfineError> {
    prctl::set_no_new_privs().map_err(|error| ConfineError::system("no_new_privs", error))
}

/// Others of the same user can neither trace this process nor read its memory, and it leaves no
/// core file.
pub(crate) fn not_dumpable() -> Result<(), ConfineError> {
    prctl::set_dumpable(false).map_err(|error| ConfineError::system("dumpable", error))
}

/// Lowers a resource limit, soft and hard. A limit that is lower already stays.
pub(crate) fn limit(resource: Resource, value: u64) -> Result<(), ConfineError> {
    let value = getrlimit(resource).maximum.map_or(value, |hard| hard.min(value));
    setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value) })
        .map_err(|error| ConfineError::system("resource limit", io::Error::from(error)))
}
