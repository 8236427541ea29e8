//! What `explain` answers: whether a call would be allowed, by which rule, with which authority.

use serde::{Deserialize, Serialize};

use crate::refusal::Refusal;
use crate::tool::ToolName;

/// What would become of a call, judged by the fence without doing anything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Explanation {
    /// The tool.
    pub tool: ToolName,
    /// The rule that says no; nothing, where the call would be made.
    pub refusal: Option<Refusal>,
    /// The rules that were passed, in the order in which they are judged.
    pub passed: Vec<String>,
    /// The steps that the call may take, each under its own authority.
    pub steps: Vec<ExplainedStep>,
    /// What is judged only when the call is made, by what it then finds.
    pub later: Vec<String>,
}

/// One step, as the authority table has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ExplainedStep {
    /// Its name.
    pub step: String,
    /// What of the file system it may touch.
    pub files: String,
    /// What it may execute.
    pub exec: String,
    /// What it may reach.
    pub network: String,
    /// Whether it is told where the token is.
    pub token: bool,
}
