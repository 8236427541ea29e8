//! A message as it comes in, whatever brought it.
//!
//! A transport makes an [`Incoming`] only of a message it has authorised. From here on nothing knows
//! Discord from a terminal, and every text in it is data, never an instruction to this program.

use std::fmt;

use jiff::Timestamp;
use protocol::turn::Origin;
use serde::{Deserialize, Serialize};

/// Names a message, its turn and its record. Safe as a file name, because it is parsed once.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct MessageId(String);

/// An id that cannot name a record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a message id is 1 to 64 letters, digits, `-` and `_`, not {0:?}")]
pub struct InvalidId(String);

impl MessageId {
    /// Parses an id.
    ///
    /// # Errors
    /// When it has other characters than letters, digits, `-` and `_`, or not 1 to 64 of them.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        let fits = (1..=64).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
        if fits { Ok(Self(text.to_owned())) } else { Err(InvalidId(text.to_owned())) }
    }

    /// The id of the `count`-th message that process `pid` reads from a terminal. The time makes it
    /// unique across runs and lets records sort by when they were asked for.
    #[must_use]
    pub fn for_terminal(now: Timestamp, pid: u32, count: u64) -> Self {
        Self(format!("{}-{pid}-{count}", now.strftime("%Y%m%dT%H%M%S%3fZ")))
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for MessageId {
    type Error = InvalidId;

    fn try_from(text: String) -> Result<Self, InvalidId> {
        Self::parse(&text)
    }
}

impl From<MessageId> for String {
    fn from(id: MessageId) -> Self {
        id.0
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A message from someone who may talk to Sage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incoming {
    /// Its id, which is also its turn's.
    pub id: MessageId,
    /// Which kind of transport brought it.
    pub origin: Origin,
    /// The person the turn acts for, by role name.
    pub requester: Option<String>,
    /// The channel's name.
    pub channel: String,
    /// The thread's name, when it was said in one.
    pub thread: Option<String>,
    /// Who wrote it, as the transport shows them.
    pub author: String,
    /// What was said.
    pub text: String,
}

#[cfg(test)]
mod tests {
    use super::MessageId;

    #[test]
    fn an_id_that_could_leave_the_folder_of_records_is_refused() {
        for id in ["", "..", "a/b", "a.json", "ü", &"1".repeat(65)] {
            assert!(MessageId::parse(id).is_err(), "{id:?}");
        }
        for id in ["1159876543210987654", "20260102T030405678Z-12-1", &"1".repeat(64)] {
            assert_eq!(MessageId::parse(id).map(String::from).as_deref(), Ok(id));
        }
    }

    #[test]
    fn an_id_read_from_a_file_is_parsed_too() {
        assert!(serde_json::from_str::<MessageId>("\"../x\"").is_err());
        assert!(serde_json::from_str::<MessageId>("\"x\"").is_ok());
    }

    #[test]
    fn ids_from_a_terminal_parse_and_differ() {
        let now = jiff::Timestamp::UNIX_EPOCH;
        let one = MessageId::for_terminal(now, 7, 1);
        assert_eq!(one.as_str(), "19700101T000000000Z-7-1");
        assert_eq!(MessageId::parse(one.as_str()).as_ref(), Ok(&one));
        assert_ne!(one, MessageId::for_terminal(now, 7, 2));
    }
}
