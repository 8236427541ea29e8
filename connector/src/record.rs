//! The record of a turn: what was asked for, what was called, what came of it.
//!
//! A record answers "what did it do, and why?" long after the conversation is gone. It holds no
//! message text, no file text and no commit message: those are digests, so that a record can be shown
//! without showing the conversation. It decides nothing.

use jiff::Timestamp;
use protocol::refusal::{Code, Outcome};
use protocol::reply::{FileStat, PushState, Reply};
use protocol::tool::ToolCall;
use protocol::turn::Origin;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::delivery::{Kind, Part};
use crate::message::MessageId;

/// The shape of a record; changes when its fields do.
pub const RECORD_VERSION: u32 = 1;

/// One turn, from the message to what was said back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct TurnRecord {
    /// [`RECORD_VERSION`] when it was written.
    pub version: u32,
    /// The message's id, which is also the turn's.
    pub id: MessageId,
    /// Where the message came from, and for whom the turn acted.
    pub source: Source,
    /// When the message was accepted.
    pub received: Timestamp,
    /// When the turn ended; for an interrupted one, when that was found.
    pub finished: Timestamp,
    /// From acceptance to the answer, by the monotonic clock; absent for an interrupted turn.
    pub latency_ms: Option<u64>,
    /// Which engine; absent for an interrupted turn.
    pub engine: Option<String>,
    /// The prompt's envelope; absent for an interrupted turn.
    pub envelope: Option<TextDigest>,
    /// How it ended.
    pub outcome: TurnOutcome,
    /// Every tool call, in order.
    pub calls: Vec<CallRecord>,
    /// What was to be said; the outbox tells what became of it, by nonce.
    pub deliveries: Vec<DeliveryRecord>,
    /// What the model used; absent without a model.
    pub usage: Option<Usage>,
}

/// Where a message came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Source {
    /// Which kind of transport.
    pub origin: Origin,
    /// The person the turn acts for.
    pub requester: Option<String>,
    /// The channel's name.
    pub channel: String,
    /// The thread's name.
    pub thread: Option<String>,
    /// Who wrote it.
    pub author: String,
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "state")]
pub enum TurnOutcome {
    /// The engine answered.
    Answered,
    /// The engine or the way to the executor failed.
    Failed {
        /// Why, for the operator.
        reason: String,
    },
    /// It took longer than a turn may.
    TimedOut,
    /// The person stopped it.
    Aborted,
    /// The process ended in the middle of it. What it had done by then stands, and the executor's
    /// audit tells what that was.
    Interrupted {
        /// Whether it was admitted, so that the engine may have begun.
        admitted: bool,
    },
}

impl TurnOutcome {
    /// The word for a list.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Failed { .. } => "failed",
            Self::TimedOut => "timed out",
            Self::Aborted => "aborted",
            Self::Interrupted { .. } => "interrupted",
        }
    }
}

/// A text that is not kept: its digest and length.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct TextDigest {
    /// SHA-256 of its UTF-8 bytes, in hex.
    pub sha256: String,
    /// Its length in bytes.
    pub bytes: u64,
}

impl TextDigest {
    /// Of a text.
    #[must_use]
    pub fn of(text: &str) -> Self {
        Self { sha256: hex(&Sha256::digest(text)), bytes: text.len() as u64 }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What a model used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Usage {
    /// Tokens it read.
    pub input_tokens: u64,
    /// Tokens it wrote.
    pub output_tokens: u64,
}

/// Something that was to be said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct DeliveryRecord {
    /// Finds it in the outbox.
    pub nonce: String,
    /// What kind of thing it was.
    pub kind: Kind,
    /// Its text.
    pub text: TextDigest,
}

impl From<&Part> for DeliveryRecord {
    fn from(part: &Part) -> Self {
        Self { nonce: part.nonce.clone(), kind: part.kind, text: TextDigest::of(&part.text) }
    }
}

/// One tool call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct CallRecord {
    /// The call's id, as the executor has it.
    pub id: String,
    /// The tool.
    pub tool: String,
    /// The arguments, with texts replaced by their digests.
    pub arguments: Value,
    /// What became of it.
    pub result: CallResult,
    /// How long it took.
    pub duration_ms: u64,
    /// The commit it made.
    pub commit: Option<CommitRecord>,
    /// What it brought in from the web.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub web: Option<WebRecord>,
}

/// What became of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "outcome")]
pub enum CallResult {
    /// It was done.
    Reply,
    /// A rule said no.
    Refusal {
        /// Which rule.
        code: Code,
        /// In words.
        message: String,
    },
    /// Something broke.
    Fault {
        /// What.
        message: String,
    },
    /// The connection failed; what became of the call is not known here.
    Lost {
        /// How.
        reason: String,
    },
    /// The turn ended before the call did; the executor was told to stop it.
    Abandoned,
}

impl CallResult {
    /// As a record spells it.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Reply => "reply",
            Self::Refusal { .. } => "refusal",
            Self::Fault { .. } => "fault",
            Self::Lost { .. } => "lost",
            Self::Abandoned => "abandoned",
        }
    }
}

/// What a call brought in from the web: where from and how much, never the text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct WebRecord {
    /// Where the page was in the end; absent for a search, whose instance the operator names.
    pub url: Option<String>,
    /// The server's status; absent for a search.
    pub status: Option<u16>,
    /// How many bytes were read.
    pub bytes: u64,
    /// SHA-256 of those bytes, in hex.
    pub sha256: String,
}

/// A commit that a call made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct CommitRecord {
    /// Its full hash.
    pub hash: String,
    /// The branch it is on.
    pub branch: String,
    /// The trailer that names the requester.
    pub trailer: String,
    /// Which files it holds, with how many lines changed. Records before there was this field have none.
    #[serde(default)]
    pub files: Vec<FileStat>,
    /// Whether it reached the remote.
    pub push: PushState,
}

impl CallRecord {
    /// A call that is about to be made. It reads as abandoned until [`CallRecord::ended`].
    pub(crate) fn begun(id: String, call: &ToolCall) -> Self {
        Self {
            id,
            tool: call.name().as_str().to_owned(),
            arguments: without_texts(call),
            result: CallResult::Abandoned,
            duration_ms: 0,
            commit: None,
            web: None,
        }
    }

    /// Writes down what became of it.
    pub(crate) fn ended(&mut self, outcome: &Outcome) {
        self.result = match outcome {
            Outcome::Reply(_) => CallResult::Reply,
            Outcome::Refusal(no) => {
                CallResult::Refusal { code: no.code, message: no.message.clone() }
            }
            Outcome::Fault(fault) => CallResult::Fault { message: fault.message.clone() },
        };
        let Outcome::Reply(reply) = outcome else { return };
        match reply {
            Reply::Committed(made) => {
                self.commit = Some(CommitRecord {
                    hash: made.hash.clone(),
                    branch: made.branch.clone(),
                    trailer: made.trailer.clone(),
                    files: made.untrusted_files.clone(),
                    push: made.push.clone(),
                });
            }
            Reply::Page(page) => {
                self.web = Some(WebRecord {
                    url: Some(page.untrusted_url.as_str().to_owned()),
                    status: Some(page.status),
                    bytes: page.bytes,
                    sha256: page.digest.clone(),
                });
            }
            Reply::Found(found) => {
                self.web = Some(WebRecord {
                    url: None,
                    status: None,
                    bytes: found.bytes,
                    sha256: found.digest.clone(),
                });
            }
            _ => {}
        }
    }
}

/// The arguments that hold text of the conversation. Exhaustive, so that whoever adds a tool decides.
fn texts(call: &ToolCall) -> &'static [&'static str] {
    match call {
        ToolCall::WriteFile(_) => &["text"],
        ToolCall::EditFile(_) => &["old", "new"],
        ToolCall::ReserveId(_) => &["title"],
        ToolCall::GitCommit(_) => &["message"],
        // Where a fetch went is recorded as it is; what was searched for is the conversation's.
        ToolCall::WebSearch(_) => &["query"],
        ToolCall::ListRoots(_)
        | ToolCall::ListFiles(_)
        | ToolCall::ReadFile(_)
        | ToolCall::SearchFiles(_)
        | ToolCall::GitStatus(_)
        | ToolCall::GitDiff(_)
        | ToolCall::GitLog(_)
        | ToolCall::GitShow(_)
        | ToolCall::GitBranches(_)
        | ToolCall::ReadOutput(_)
        | ToolCall::GitPull(_)
        | ToolCall::GitPush(_)
        | ToolCall::WebFetch(_) => &[],
    }
}

fn without_texts(call: &ToolCall) -> Value {
    let mut arguments = call.arguments();
    for name in texts(call) {
        if let Some(slot) = arguments.get_mut(name) {
            let digest = TextDigest::of(slot.as_str().unwrap_or_default());
            *slot = json!({"sha256": digest.sha256, "bytes": digest.bytes});
        }
    }
    arguments
}

#[cfg(test)]
mod tests {
    use protocol::refusal::Outcome;
    use protocol::reply::{Reply, Text, WebPage};
    use protocol::tool::{
        EditFile, GitCommit, Prefix, ReserveId, ToolCall, WebFetch, WebSearch, WriteFile,
    };

    use super::{CallRecord, CallResult, TextDigest};

    #[test]
    fn a_call_is_recorded_without_any_text_of_the_conversation() {
        let secret = "the launch is in spring";
        let calls = [
            ToolCall::WriteFile(WriteFile {
                root: "r".into(),
                path: "p.md".into(),
                text: secret.into(),
            }),
            ToolCall::EditFile(EditFile {
                old: secret.into(),
                new: secret.into(),
                ..<_>::default()
            }),
            ToolCall::ReserveId(ReserveId {
                root: "r".into(),
                prefix: Prefix::Dec,
                title: secret.into(),
            }),
            ToolCall::GitCommit(GitCommit { message: secret.into(), ..<_>::default() }),
            ToolCall::WebSearch(WebSearch { query: secret.into() }),
        ];
        for call in calls {
            let record = CallRecord::begun("t-1".to_owned(), &call);
            let json = serde_json::to_string(&record).expect("a record serialises");
            assert!(!json.contains(secret), "{json}");
            assert!(json.contains(&TextDigest::of(secret).sha256), "{json}");
            assert_eq!(record.result, CallResult::Abandoned);
        }
    }

    #[test]
    fn a_fetch_is_recorded_by_where_it_went_and_what_came_without_the_text() {
        let call = ToolCall::WebFetch(WebFetch { url: "https://a.example/x".into() });
        let mut record = CallRecord::begun("t-1".to_owned(), &call);
        let page = WebPage {
            untrusted_url: "https://b.example/y".into(),
            status: 200,
            untrusted_content_type: Some("text/html".into()),
            untrusted_title: Some("the title".into()),
            untrusted_text: Text { text: "the text".into(), cut: None },
            bytes: 8,
            digest: "d1".to_owned(),
            truncated: false,
            lossy: false,
            hidden_left_out: false,
            bare: false,
        };
        record.ended(&Outcome::Reply(Reply::Page(page)));
        let json = serde_json::to_value(&record).expect("a record serialises");
        assert_eq!(json["arguments"]["url"], "https://a.example/x");
        assert_eq!(
            json["web"],
            serde_json::json!({"url": "https://b.example/y", "status": 200, "bytes": 8, "sha256": "d1"})
        );
        assert!(!json.to_string().contains("the t"), "{json}");
    }

    #[test]
    fn what_is_no_text_stays_readable() {
        let call = ToolCall::WriteFile(WriteFile {
            root: "r".into(),
            path: "p.md".into(),
            text: String::new(),
        });
        let record = CallRecord::begun("t-1".to_owned(), &call);
        assert_eq!(record.arguments["root"], "r");
        assert_eq!(record.arguments["path"], "p.md");
        assert_eq!(record.arguments["text"]["bytes"], 0);
    }
}
