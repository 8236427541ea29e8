//! What can go wrong while a boundary is being put up. Every one of these is final.

use std::io;
use std::path::PathBuf;

/// A boundary could not be put up exactly as asked, so nothing was run behind it.
#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    /// The kernel's Landlock is too old for these grants, and degrading was not allowed.
    #[error(
        "Landlock ABI {found} is too old: these rights need ABI {needed} (Linux {linux}); \
         `allowDegraded` runs without: {missing}"
    )]
    KernelTooOld {
        /// What the kernel has; 0 is none.
        found: u32,
        /// What these grants need.
        needed: u32,
        /// The first kernel release that has it.
        linux: &'static str,
        /// What would not hold.
        missing: String,
    },
    /// A path that a grant names cannot be opened.
    #[error("cannot grant {path} ({reason}): {source}")]
    Path {
        /// The path.
        path: PathBuf,
        /// The reason that the grant states.
        reason: String,
        /// Why it cannot be opened.
        source: io::Error,
    },
    /// Landlock refused a step.
    #[error("landlock, {step}: {detail}")]
    Landlock {
        /// What was being done.
        step: &'static str,
        /// What the kernel or the library said.
        detail: String,
    },
    /// The kernel took the ruleset but does not enforce all of it.
    #[error("landlock is not fully enforced: {0}")]
    NotEnforced(String),
    /// A seccomp filter could not be compiled or installed.
    #[error("seccomp: {0}")]
    Seccomp(String),
    /// A system call of the set-up failed.
    #[error("{step}: {source}")]
    System {
        /// What was being done.
        step: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// Capabilities could not be dropped.
    #[error("capabilities, {step}: {detail}")]
    Capabilities {
        /// What was being done.
        step: &'static str,
        /// What the kernel or the library said.
        detail: String,
    },
    /// The process already has other threads, which would stay outside.
    #[error("the process has {0} threads; confinement must come before the second")]
    NotSingleThreaded(usize),
    /// Something that must now be impossible is not.
    #[error("confinement was entered but does not hold: {0}")]
    Breached(String),
    /// The confined work panicked. Its thread is gone, and nothing else is affected.
    #[error("the confined work panicked: {0}")]
    Panicked(String),
}

impl ConfineError {
    /// Wraps a failed system call.
    pub(crate) fn system(step: &'static str, source: impl Into<io::Error>) -> Self {
        Self::System { step, source: source.into() }
    }

    /// Wraps what the Landlock library said.
    pub(crate) fn landlock(step: &'static str, detail: impl std::fmt::Display) -> Self {
        Self::Landlock { step, detail: detail.to_string() }
    }
}
