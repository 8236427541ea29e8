//! What this kernel's Landlock can do, what our rows need of it, and who covers the difference.
//!
//! One table, [`COVERAGE`], is the whole argument: it decides the minimum, and `doctor` prints it.
//! An authority row without network needs ABI 3 (Linux 6.2): before that, nothing of ours stops code
//! in a *read* row from emptying a file that it may read and its user may write, because `openat2`
//! takes its flags from memory, where seccomp cannot look. A row with network needs ABI 4 (Linux
//! 6.7): before that, nothing of ours binds a TCP connection to a port. All that later ABIs add is
//! covered by seccomp as well, so they deepen the defence and are used where present, but are not
//! required.

use landlock::{ABI, AccessFs, LandlockStatus, Ruleset, RulesetAttr};
use serde::{Deserialize, Serialize};

use super::ConfineError;
use super::grants::Grants;

/// The newest ABI that the library knows. A newer kernel is used as this one.
const NEWEST_KNOWN: u32 = 10;

/// One thing to be kept in bounds, and which ring keeps it there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Coverage {
    /// What is kept in bounds.
    pub what: &'static str,
    /// The first Landlock ABI that does it.
    pub landlock_since: u32,
    /// Who does it on an older kernel; `None` when nobody does.
    pub otherwise: Option<&'static str>,
    /// Whether only a row with network needs it.
    pub network_only: bool,
}

/// Everything that some ring must hold, oldest Landlock ABI first.
pub const COVERAGE: [Coverage; 9] = [
    held(1, "reading, writing, creating, removing and executing files", None),
    held(
        2,
        "moving files between folders",
        Some("an older Landlock refuses every move; git may then fail, never reach further"),
    ),
    held(3, "emptying files that may only be read", None),
    Coverage {
        what: "which TCP ports a row with network reaches",
        landlock_since: 4,
        otherwise: None,
        network_only: true,
    },
    held(
        5,
        "device controls",
        Some("no row opens a device but /dev/null, and seccomp refuses terminal injection"),
    ),
    held(6, "abstract Unix sockets", Some("seccomp: no row makes a Unix socket")),
    held(6, "signals to other processes", Some("seccomp: no row signals another process")),
    held(9, "Unix sockets by path", Some("seccomp: no row makes a Unix socket")),
    held(10, "UDP", Some("seccomp: every internet socket is a TCP stream")),
];

const fn held(since: u32, what: &'static str, otherwise: Option<&'static str>) -> Coverage {
    Coverage { what, landlock_since: since, otherwise, network_only: false }
}

/// What the kernel enforces, and whether less than needed is acceptable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelSupport {
    abi: u32,
    allow_degraded: bool,
}

impl KernelSupport {
    /// Asks the kernel, by entering a trivial domain on a thread that then ends. The answer is
    /// strict: see [`Self::allow_degraded`]. An unclear answer counts as no Landlock at all.
    #[must_use]
    pub fn detect() -> Self {
        let abi = std::thread::spawn(probe).join().ok().flatten().unwrap_or(0);
        Self { abi, allow_degraded: false }
    }

    /// The same kernel, as if it had no more than this ABI. It can lower the ABI, never raise it.
    #[must_use]
    pub fn limited_to(self, abi: u32) -> Self {
        Self { abi: self.abi.min(abi), ..self }
    }

    /// Accepts a kernel that cannot enforce everything. The caller must make that loud.
    #[must_use]
    pub fn allow_degraded(self, allow: bool) -> Self {
        Self { allow_degraded: allow, ..self }
    }

    /// The Landlock ABI in use; 0 is none.
    #[must_use]
    pub fn abi(self) -> u32 {
        self.abi
    }

    /// The lowest ABI with which these grants hold by some ring.
    #[must_use]
    pub fn needed(grants: &Grants) -> u32 {
        uncovered(grants).map(|row| row.landlock_since).max().unwrap_or(0)
    }

    /// What of these grants no ring would hold on this kernel. Empty on a new enough one.
    #[must_use]
    pub fn missing(self, grants: &Grants) -> Vec<&'static str> {
        uncovered(grants).filter(|row| row.landlock_since > self.abi).map(|row| row.what).collect()
    }

    /// Refuses a kernel that is too old for these grants.
    ///
    /// # Errors
    /// [`ConfineError::KernelTooOld`], unless degrading is allowed.
    pub fn check(self, grants: &Grants) -> Result<(), ConfineError> {
        let missing = self.missing(grants);
        if missing.is_empty() || self.allow_degraded {
            return Ok(());
        }
        let needed = Self::needed(grants);
        Err(ConfineError::KernelTooOld {
            found: self.abi,
            needed,
            linux: first_linux(needed),
            missing: missing.join("; "),
        })
    }

    /// The ABI as the library names it.
    pub(crate) fn landlock_abi(self) -> ABI {
        ABI::from(i32::try_from(self.abi.min(NEWEST_KNOWN)).unwrap_or(0))
    }
}

/// The rows that only Landlock covers and that these grants need.
fn uncovered(grants: &Grants) -> impl Iterator<Item = &'static Coverage> {
    let network = !grants.connect_ports.is_empty();
    COVERAGE.iter().filter(move |row| row.otherwise.is_none() && (network || !row.network_only))
}

/// The release that brought an ABI, for messages.
fn first_linux(abi: u32) -> &'static str {
    match abi {
        0 | 1 => "5.13",
        2 => "5.19",
        3 => "6.2",
        _ => "6.7",
    }
}

/// Runs on a thread of its own, which is confined by it.
fn probe() -> Option<u32> {
    let ruleset = Ruleset::default().handle_access(AccessFs::Execute).ok()?.create().ok()?;
    match ruleset.restrict_self().ok()?.landlock {
        LandlockStatus::Available { effective_abi, .. } => Some(effective_abi as u32),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn networked() -> Grants {
        Grants { files: Vec::new(), connect_ports: vec![443] }
    }

    #[test]
    fn without_network_the_first_abi_that_governs_truncation_is_enough() {
        assert_eq!(KernelSupport::needed(&Grants::default()), 3);
        assert_eq!(KernelSupport::needed(&networked()), 4);
    }

    #[test]
    fn an_old_kernel_is_refused_and_told_what_would_not_hold() {
        let kernel = KernelSupport { abi: 3, allow_degraded: false };
        assert!(kernel.check(&Grants::default()).is_ok());
        let refused = kernel.check(&networked()).expect_err("ABI 3 has no ports");
        assert_eq!(
            refused.to_string(),
            "Landlock ABI 3 is too old: these rights need ABI 4 (Linux 6.7); `allowDegraded` runs \
             without: which TCP ports a row with network reaches"
        );
        assert!(kernel.allow_degraded(true).check(&networked()).is_ok());
    }

    #[test]
    fn a_limit_lowers_the_abi_and_never_raises_it() {
        let kernel = KernelSupport::detect();
        assert!(kernel.abi() >= 1, "the tests need Landlock");
        assert_eq!(kernel.limited_to(99).abi(), kernel.abi());
        assert_eq!(kernel.limited_to(2).abi(), 2.min(kernel.abi()));
    }
}
