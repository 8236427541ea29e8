//! The three outcomes of a call, which are never merged: a [`Reply`] (done), a [`Refusal`] (a rule
//! said no: final, explainable, safe to show) and a [`Fault`] (something broke: perhaps retry).

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::reply::Reply;

/// What became of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[must_use]
pub enum Outcome {
    /// It was done; here is the result.
    Reply(Reply),
    /// A rule said no, and nothing was changed unless the message says so.
    Refusal(Refusal),
    /// Something broke on our side.
    Fault(Fault),
}

/// A rule said no.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Refusal {
    /// Which rule.
    pub code: Code,
    /// What the rule is and what in this call met it. Safe to show to the requester.
    pub message: String,
    /// What to do next.
    pub hint: String,
}

impl Refusal {
    /// A refusal by `code`, saying what met the rule and what to do next.
    pub fn new(code: Code, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: hint.into() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} {}", self.code, self.message, self.hint)
    }
}

impl std::error::Error for Refusal {}

/// Something broke: not the caller's doing, and worth another try once it is mended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// What broke, without paths outside the roots and without secrets.
    pub message: String,
}

impl Fault {
    /// A fault that says what broke.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Fault {}

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $variant:ident => $word:literal,)+) => {
        /// The closed set of rules that can refuse a call.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum Code { $($(#[doc = $doc])+ $variant,)+ }

        impl Code {
            /// Every code, in the order of the documentation.
            pub const ALL: &'static [Code] = &[$(Code::$variant,)+];

            /// The word used in JSON, in the audit and on the terminal.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Code::$variant => $word,)+ }
            }

            /// The rule in one sentence, for the documentation.
            #[must_use]
            pub fn rule(self) -> &'static str {
                match self { $(Code::$variant => concat!($($doc),+).trim_ascii(),)+ }
            }
        }
    };
}

codes! {
    /// The executor speaks another protocol version than its caller.
    VersionMismatch => "version_mismatch",
    /// The user at the other end of the socket is not one of the configured peers.
    UnknownPeer => "unknown_peer",
    /// The peer may not speak for this requester, or the turn names none where one is needed.
    RequesterNotAllowed => "requester_not_allowed",
    /// Too much is under way at once, for this peer or in this root, or the peer calls too often.
    Busy => "busy",
    /// The turn has used up its calls.
    TooManyCalls => "too_many_calls",
    /// The operator has stopped all writing and network tools.
    Stopped => "stopped",
    /// The configuration does not offer this tool, or not for this root.
    NotOffered => "not_offered",
    /// The arguments do not fit the tool's schema.
    InvalidArguments => "invalid_arguments",
    /// No root has this name.
    UnknownRoot => "unknown_root",
    /// The root is not writable.
    ReadOnlyRoot => "read_only_root",
    /// The path is not one of the forms a path may have.
    InvalidPath => "invalid_path",
    /// The path leads through a symbolic link or out of the root.
    OutsideRoot => "outside_root",
    /// The path can be read and is never written by a tool.
    ProtectedPath => "protected_path",
    /// There is nothing at this path.
    NotFound => "not_found",
    /// What is at this path is not of the kind wanted (a regular file, a directory).
    WrongFileType => "wrong_file_type",
    /// The file is not UTF-8 text.
    NotText => "not_text",
    /// The text is longer than the limit.
    TooLarge => "too_large",
    /// The text holds something shaped like a credential.
    CredentialShape => "credential_shape",
    /// The text to replace does not occur.
    NoMatch => "no_match",
    /// The text to replace occurs more than once.
    SeveralMatches => "several_matches",
    /// The file changed since it was read.
    FileChanged => "file_changed",
    /// The path is in no repository below the root.
    NotARepository => "not_a_repository",
    /// The repository is built in a way that leads outside the root, or cannot be trusted.
    UntrustedRepository => "untrusted_repository",
    /// The repository's own configuration runs programs or redirects the remote.
    HostileConfig => "hostile_config",
    /// The revision is not one of the forms a revision may have.
    InvalidRevision => "invalid_revision",
    /// No commit has this name.
    UnknownRevision => "unknown_revision",
    /// HEAD is detached.
    DetachedHead => "detached_head",
    /// Another branch than the configured one is checked out.
    WrongBranch => "wrong_branch",
    /// Paths are in conflict.
    Conflicted => "conflicted",
    /// A merge, rebase, cherry-pick, revert or bisect is under way.
    OperationInProgress => "operation_in_progress",
    /// `origin` is not exactly the configured remote.
    RemoteMismatch => "remote_mismatch",
    /// The commit message is empty, too long, or carries trailers of its own.
    InvalidMessage => "invalid_message",
    /// Someone has staged work that this commit would sweep in.
    AlreadyStaged => "already_staged",
    /// The named paths hold no change.
    NothingToCommit => "nothing_to_commit",
    /// A filter (LFS and the like) would have to rewrite the path.
    FilteredPath => "filtered_path",
    /// A path was not reviewed in this turn at the content that would be committed.
    NotReviewed => "not_reviewed",
    /// A person has to approve the plan first.
    ApprovalNeeded => "approval_needed",
    /// The record protocol's validator, lock or registry said no.
    RecordProtocol => "record_protocol",
    /// Another program holds git's index lock.
    IndexLocked => "index_locked",
    /// The branch moved while the commit was being made.
    Raced => "raced",
    /// The remote has commits that are not here.
    RemoteAhead => "remote_ahead",
    /// Here and the remote each have commits that the other lacks.
    Diverged => "diverged",
    /// Incoming paths are changed or untracked here.
    IncomingDirty => "incoming_dirty",
    /// The remote did not accept the token.
    AuthFailed => "auth_failed",
    /// The remote cannot be reached.
    RemoteUnreachable => "remote_unreachable",
    /// The remote declined the push.
    RemoteRejected => "remote_rejected",
    /// It took longer than its limit and was stopped.
    TimedOut => "timed_out",
    /// The caller went away or asked to stop.
    Cancelled => "cancelled",
    /// The handle is unknown, or of another turn.
    UnknownHandle => "unknown_handle",
    /// The URL is not one that is fetched: https, port 443, no user.
    InvalidUrl => "invalid_url",
    /// The host is not public, or its name leads to an address that is not.
    AddressRefused => "address_refused",
    /// The page redirects too often, or to nowhere.
    BadRedirect => "bad_redirect",
    /// The host cannot be reached: no such name, no connection, or no trusted certificate.
    HostUnreachable => "host_unreachable",
    /// The server's answer is broken or incomplete.
    BadResponse => "bad_response",
    /// The page is not text.
    UnsupportedType => "unsupported_type",
    /// The page cannot be turned into text within its limits.
    UnreadablePage => "unreadable_page",
    /// The search instance does not answer as one that is set up for it.
    SearchUnavailable => "search_unavailable",
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::Code;

    #[test]
    fn every_code_is_spelled_the_same_in_json_and_on_the_terminal() {
        for code in Code::ALL {
            let json = serde_json::to_value(code).expect("a code serialises");
            assert_eq!(json, code.as_str());
            assert!(code.rule().ends_with('.'), "{code} states its rule");
        }
    }
}
