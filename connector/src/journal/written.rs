//! The lines of the journal's files.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::DropReason;
use crate::delivery::{Kind, Sent};
use crate::message::MessageId;
use crate::record::{Source, TextDigest};

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct InboxLine {
    pub(super) id: MessageId,
    pub(super) at: Timestamp,
    #[serde(flatten)]
    pub(super) source: Source,
    pub(super) text: TextDigest,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DropLine {
    pub(super) id: MessageId,
    pub(super) at: Timestamp,
    pub(super) reason: DropReason,
    /// Whether a fixed line is sent for it.
    pub(super) told: bool,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AdmissionLine {
    pub(super) id: MessageId,
    pub(super) at: Timestamp,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OutboxLine {
    pub(crate) nonce: String,
    pub(crate) at: Timestamp,
    #[serde(flatten)]
    pub(crate) entry: OutboxEntry,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", untagged)]
pub(crate) enum OutboxEntry {
    Result(Sent),
    Intent { intent: Kind, text: TextDigest },
}
