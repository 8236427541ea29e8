//! Who a call is for, and which call it is.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The turn a call belongs to: one message of a person and all that follows from it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Turn {
    /// Unique per message; the review and the call budget live as long as it does.
    pub id: String,
    /// The person the turn acts for, by role name ("Owner"), never by id. A turn without one can
    /// read and cannot commit.
    pub requester: Option<String>,
    /// Where the message came from. For the audit; it widens nothing.
    pub origin: Origin,
}

/// Where a turn came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// A Discord channel.
    Discord,
    /// `sage-connector chat`, or its demo.
    Terminal,
    /// `sage-executor call`.
    Cli,
    /// An MCP client.
    Mcp,
}

impl Origin {
    /// The word used on the wire, in the audit and in records.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Discord => "discord",
            Self::Terminal => "terminal",
            Self::Cli => "cli",
            Self::Mcp => "mcp",
        }
    }
}
