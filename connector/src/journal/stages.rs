//! The stages of a message, each of which only the journal can make.
//!
//! They are how the order of a turn is kept by the compiler: a turn needs an admission, an admission
//! an accepted message, and a part that is sent its intent. None can be copied or read from a file.

use std::time::Instant;

use jiff::Timestamp;
use policy::admission::Rule;
use serde::{Deserialize, Serialize};

use crate::message::{Incoming, MessageId};

/// Why an accepted message gets no turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DropReason {
    /// It is longer than a message may be.
    TooLong,
    /// It has no text: an attachment alone, a sticker.
    NoText,
    /// The day's turns are used up.
    OverCeiling,
    /// The brake is on, or Sage is about to end.
    Stopping,
    /// It was not authorised. Nothing is said of it.
    Rule(Rule),
}

/// A message that is in the inbox and was never there before. Only the journal makes one.
#[derive(Debug)]
#[must_use]
pub struct Accepted {
    pub(super) incoming: Incoming,
    pub(super) received: Timestamp,
    pub(super) since: Instant,
}

/// A message whose turn is in the admissions, and may begin. Only the journal makes one.
#[derive(Debug)]
#[must_use]
pub struct Admitted(pub(super) Accepted);

impl Admitted {
    /// The message.
    #[must_use]
    pub fn incoming(&self) -> &Incoming {
        &self.0.incoming
    }

    /// When it was accepted.
    #[must_use]
    pub fn received(&self) -> Timestamp {
        self.0.received
    }

    /// When it was accepted, by the monotonic clock.
    #[must_use]
    pub fn since(&self) -> Instant {
        self.0.since
    }
}

/// A message that gets no turn, and has its drop line.
#[derive(Debug)]
#[must_use]
pub struct Dropped {
    /// The message's id.
    pub id: MessageId,
    /// Why.
    pub reason: DropReason,
    /// Whether to say so: a ceiling is told of once a day.
    pub tell: bool,
}

/// Whether a message gets a turn.
#[derive(Debug)]
#[must_use]
pub enum Admission {
    /// It does.
    Admitted(Admitted),
    /// It does not.
    Dropped(Dropped),
}

/// A turn whose record is on disk: now, and only now, its answer may be sent.
#[derive(Debug)]
#[must_use]
pub struct Recorded(pub(super) ());

/// An intent that is on disk: now its part may be sent, once.
#[derive(Debug)]
#[must_use]
pub struct Intended {
    pub(super) nonce: String,
}
