//! The tools: each takes the fence's permit, runs its steps under their authority, and answers.

pub mod files;

mod rules;

mod beneath;

pub mod edit;

pub mod file_tools;

pub mod search;

pub mod record_tools;

pub mod git_read;

pub mod git_commit;

pub mod git_remote;

pub mod git_pull;

pub mod web;

use std::io;

use protocol::refusal::{Code, Fault, Outcome, Refusal};
use protocol::reply::Reply;

use confine::child::LaunchError;

/// Why a tool did not do what it was asked: a rule said no, or something broke.
#[derive(Debug)]
pub enum Failure {
    /// A rule said no.
    Refusal(Refusal),
    /// Something broke.
    Fault(Fault),
}

impl Failure {
    /// A refusal.
    pub fn refuse(code: Code, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Refusal(Refusal::new(code, message, hint))
    }

    /// A fault.
    pub fn fault(message: impl Into<String>) -> Self {
        Self::Fault(Fault::new(message))
    }

    /// The caller went away or asked to stop.
    #[must_use]
    pub fn cancelled() -> Self {
        Self::refuse(
            Code::Cancelled,
            "The call was cancelled; nothing was changed.",
            "Call again if it is still wanted.",
        )
    }

    /// The system said no.
    #[allow(clippy::needless_pass_by_value)] // for `map_err(Failure::io)`
    #[must_use]
    pub fn io(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(code) if code == rustix::io::Errno::NOSPC.raw_os_error() => {
                Self::fault("the disk is full; nothing was changed")
            }
            _ => Self::fault(format!("the system said: {error}")),
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refusal(refusal)
    }
}

impl From<LaunchError> for Failure {
    fn from(error: LaunchError) -> Self {
        match error {
            LaunchError::Cancelled => Self::cancelled(),
            LaunchError::TimedOut { after } => Self::refuse(
                Code::TimedOut,
                format!("git took longer than {} s and was stopped.", after.as_secs()),
                "Try again; if it stays slow, a person looks at the repository and the remote.",
            ),
            other => Self::fault(other.to_string()),
        }
    }
}

impl From<confine::ConfineError> for Failure {
    fn from(error: confine::ConfineError) -> Self {
        Self::fault(error.to_string())
    }
}

/// The outcome of a tool, as it goes back to the caller.
pub fn outcome(result: Result<Reply, Failure>) -> Outcome {
    match result {
        Ok(reply) => Outcome::Reply(reply),
        Err(Failure::Refusal(refusal)) => Outcome::Refusal(refusal),
        Err(Failure::Fault(fault)) => Outcome::Fault(fault),
    }
}
