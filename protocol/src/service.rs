//! The one service of the executor.

use serde::{Deserialize, Serialize};

use crate::explain::Explanation;
use crate::refusal::{Fault, Outcome};
use crate::reply::RootInfo;
use crate::status::Status;
use crate::tool::{ToolCall, ToolName};
use crate::turn::Turn;

/// A call, with the turn it belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Names this call. The same id again returns the recorded outcome instead of acting twice.
    pub id: String,
    /// The turn it belongs to.
    pub turn: Turn,
    /// What to do.
    pub call: ToolCall,
    /// The digest of the plan that the requester approved, for a `git_commit`. It stands outside the
    /// tool's arguments, where no model can put one.
    #[serde(default)]
    pub approved: Option<String>,
}

/// What this executor offers to this peer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Description {
    /// [`crate::wire::PROTOCOL_VERSION`] of the executor.
    pub protocol_version: u32,
    /// The roots.
    pub roots: Vec<RootInfo>,
    /// Exactly the tools that the configuration enables.
    pub tools: Vec<ToolName>,
    /// The requesters that this peer may speak for.
    pub requesters: Vec<String>,
    /// What the kernel does not enforce here, where the configuration allows that; empty otherwise.
    pub degraded: Vec<String>,
    /// The operator's stop of all writing and network tools, while one stands.
    pub stopped: Option<Stopped>,
}

/// A stop that stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Stopped {
    /// Since when: RFC 3339, UTC.
    pub since: String,
    /// Who stopped, in words.
    pub by: String,
}

/// What the executor does for its peers. The connection was greeted and its peer known before the
/// first of these is read.
#[tarpc::service]
pub trait Executor {
    /// What this executor offers to this peer.
    async fn describe() -> Description;
    /// Does one call.
    async fn call(request: Request) -> Outcome;
    /// Says what would become of a call, without doing or counting anything.
    async fn explain(request: Request) -> Result<Explanation, Fault>;
    /// How the executor stands, and what it has counted since it started.
    async fn status() -> Status;
}
