//! The journal: what makes a restart harmless.
//!
//! Everything is written here before it acts, so that after a crash at any point no message is
//! answered twice, none that was accepted is forgotten, and the day's ceiling is still right.
//!
//! | File              | One line, or file, for                        | Written                      |
//! |-------------------|-----------------------------------------------|------------------------------|
//! | `inbox.jsonl`     | every accepted message                        | before anything else         |
//! | `drops.jsonl`     | every accepted message that gets no turn      | before its fixed line is sent|
//! | `admissions.jsonl`| every turn                                    | before the engine runs       |
//! | `turns/<id>.json` | every turn that ended; write-once             | before its answer is sent    |
//! | `pending/<nonce>.json` | the text of a part that is not settled | before its turn's record and its intent; then removed |
//! | `outbox.jsonl`    | every intent to say something, and its result | before and after sending     |
//!
//! What survives: a line or record whose writing returned is on disk, also after a power cut; only the
//! line for a message that was passed over in silence, and a receipt's, may be lost by one. A line
//! whose writing did not return is there whole, in part (a line only; see [`Damage`]), or not at all,
//! and nothing had acted on it. A record is complete or absent, never partial.
//!
//! [`Journal::recover`] gives every accepted message that has neither a drop line nor a record an
//! `interrupted` record. Nothing is replayed: what such a turn had already done stands.
//!
//! Writing blocks the thread on purpose; nothing may go on before it is durable. The texts of
//! messages are not kept, only their digests; what is being said is kept until it is known to have
//! arrived or not, for only then can it be said again under the same nonce.

mod lines;

mod look;

mod open;

mod pending;

mod stages;

mod store;

mod written;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::Offset;
use sha2::{Digest, Sha256};

use crate::binding::Limits;
use crate::delivery::{Destination, Part, Sent};
use crate::lock::Lock;
use crate::message::{Incoming, MessageId};
use crate::record::{RECORD_VERSION, Source, TextDigest, TurnOutcome, TurnRecord};
pub use lines::Damage;
use lines::Lines;
pub(crate) use look::{Trace, admitted_on, open_intents, read_outbox, trace};
pub use pending::Left;
pub use stages::{Accepted, Admission, Admitted, DropReason, Dropped, Intended, Recorded};
pub use store::{Stored, read_record, stored};
use written::{AdmissionLine, DropLine, InboxLine};
pub(crate) use written::{OutboxEntry, OutboxLine};

/// Where the records of turns are, in the binding's folder.
pub const TURNS: &str = "turns";
/// What was said back, in the binding's folder.
pub const OUTBOX: &str = "outbox.jsonl";

/// The journal of one binding, open for writing by this process alone. A clone is the same journal:
/// messages are taken in while a turn goes on.
#[derive(Debug, Clone)]
pub struct Journal {
    books: Arc<Mutex<Books>>,
    damage: Vec<Damage>,
}

#[derive(Debug)]
struct Books {
    inbox: Lines,
    drops: Lines,
    admissions: Lines,
    outbox: Lines,
    turns: PathBuf,
    known: HashSet<IdDigest>,
    /// Accepted, with no drop line and no record: in hand, or interrupted by a crash.
    open: HashMap<MessageId, Pending>,
    admitted: BTreeMap<Date, u32>,
    last_told: Option<Date>,
    /// What may have been said before this process, and was not settled.
    unsettled: BTreeMap<String, Timestamp>,
    /// Parts of answers that were never begun to be said.
    unsaid: HashSet<String>,
    pending: PathBuf,
    _lock: Lock,
}

/// Why the journal cannot be used. Nothing may act then.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The system said no.
    #[error("cannot write the journal at {path}: {source}; nothing was done without it")]
    Io {
        /// The file or folder.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// A turn has its record already.
    #[error("the turn {0} already has its record; records are written once")]
    AlreadyRecorded(MessageId),
}

/// 128 bits of SHA-256: the ids of years fit in memory, and two do not meet by chance.
type IdDigest = [u8; 16];

#[derive(Debug)]
struct Pending {
    source: Source,
    received: Timestamp,
    admitted: bool,
}

impl Journal {
    /// Opens the journal in a folder that this process holds.
    ///
    /// # Errors
    /// When a file cannot be read or made.
    pub fn open(lock: Lock) -> Result<Self, JournalError> {
        let (books, damage) = open::books(lock)?;
        Ok(Self { books: Arc::new(Mutex::new(books)), damage })
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lines that were found torn when the journal was opened.
    #[must_use]
    pub fn damage(&self) -> &[Damage] {
        &self.damage
    }

    /// Gives every message that a crash left without an end its `interrupted` record: before the first
    /// message, and at the end for those whose turn was not begun.
    ///
    /// # Errors
    /// When a record cannot be written.
    pub fn recover(&mut self, now: Timestamp) -> Result<Vec<MessageId>, JournalError> {
        let mut books = self.books();
        let mut left: Vec<_> = std::mem::take(&mut books.open).into_iter().collect();
        left.sort_by(|(a, one), (b, other)| (one.received, a).cmp(&(other.received, b)));
        let mut ids = Vec::with_capacity(left.len());
        for (id, Pending { source, received, admitted }) in left {
            store::write_once(
                &books.turns,
                &TurnRecord {
                    version: RECORD_VERSION,
                    id: id.clone(),
                    source,
                    received,
                    finished: now,
                    latency_ms: None,
                    engine: None,
                    envelope: None,
                    outcome: TurnOutcome::Interrupted { admitted },
                    calls: Vec::new(),
                    deliveries: Vec::new(),
                    usage: None,
                },
            )?;
            ids.push(id);
        }
        Ok(ids)
    }

    /// Takes a message into the inbox; `None` for one that is there already.
    ///
    /// # Errors
    /// When the line cannot be written.
    pub fn accept(
        &mut self,
        incoming: Incoming,
        now: Timestamp,
    ) -> Result<Option<Accepted>, JournalError> {
        let mut books = self.books();
        if !books.known.insert(digest(&incoming.id)) {
            return Ok(None);
        }
        let source = source(&incoming);
        let line = InboxLine {
            id: incoming.id.clone(),
            at: now,
            source: source.clone(),
            text: TextDigest::of(&incoming.text),
        };
        books.inbox.append(&line)?;
        books.open.insert(line.id, Pending { source, received: now, admitted: false });
        Ok(Some(Accepted { incoming, received: now, since: Instant::now() }))
    }

    /// Decides whether a message gets a turn, and writes that down.
    ///
    /// # Errors
    /// When the line cannot be written.
    pub fn admit(
        &mut self,
        accepted: Accepted,
        limits: &Limits,
        now: Timestamp,
    ) -> Result<Admission, JournalError> {
        let mut books = self.books();
        let today = day(now);
        let used = books.admitted.get(&today).copied().unwrap_or(0);
        if accepted.incoming.text.trim().is_empty() {
            return books.drop_message(accepted, DropReason::NoText, true, now);
        }
        if accepted.incoming.text.chars().count() > limits.max_message_chars {
            return books.drop_message(accepted, DropReason::TooLong, true, now);
        }
        if used >= limits.turns_per_day {
            let tell = books.last_told != Some(today);
            books.last_told = Some(today);
            return books.drop_message(accepted, DropReason::OverCeiling, tell, now);
        }
        // Counted first: a line that could not be written whole may still be there.
        books.admitted.insert(today, used + 1);
        let id = accepted.incoming.id.clone();
        books.admissions.append(&AdmissionLine { id: id.clone(), at: now })?;
        if let Some(pending) = books.open.get_mut(&id) {
            pending.admitted = true;
        }
        Ok(Admission::Admitted(Admitted(accepted)))
    }

    /// Writes a turn's record, which ends the turn.
    ///
    /// # Errors
    /// When it cannot be written, or is there already.
    pub fn record(
        &mut self,
        _admitted: Admitted,
        record: &TurnRecord,
    ) -> Result<Recorded, JournalError> {
        let mut books = self.books();
        store::write_once(&books.turns, record)?;
        books.open.remove(&record.id);
        Ok(Recorded(()))
    }

    /// Writes down that a part is about to be sent, and where, when that has to outlive this process.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn intend(
        &mut self,
        part: &Part,
        to: Option<Destination>,
        now: Timestamp,
    ) -> Result<Intended, JournalError> {
        let mut books = self.books();
        if let Some(to) = to {
            pending::write(&books.pending, std::slice::from_ref(part), &to)?;
        }
        let entry = OutboxEntry::Intent { intent: part.kind, text: TextDigest::of(&part.text) };
        books.outbox.append(&OutboxLine { nonce: part.nonce.clone(), at: now, entry })?;
        Ok(Intended { nonce: part.nonce.clone() })
    }

    /// Writes down what became of an intent.
    ///
    /// # Errors
    /// When the line cannot be written.
    pub fn settle(
        &mut self,
        intended: Intended,
        sent: Sent,
        now: Timestamp,
    ) -> Result<(), JournalError> {
        let mut books = self.books();
        let known = !matches!(sent, Sent::Unknown { .. });
        let Intended { nonce } = intended;
        let entry = OutboxEntry::Result(sent);
        books.outbox.append(&OutboxLine { nonce: nonce.clone(), at: now, entry })?;
        if known {
            pending::remove(&books.pending, &nonce)?;
        }
        Ok(())
    }

    /// Keeps what is about to be said, when that has to outlive this process: before the turn's record,
    /// so that whoever has a record has its whole answer.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep(&mut self, parts: &[Part], to: Option<Destination>) -> Result<(), JournalError> {
        let Some(to) = to else { return Ok(()) };
        let books = self.books();
        pending::write(&books.pending, parts, &to)
    }

    /// What an earlier process may have said, or had still to say, in order. Taken once, before
    /// anything new is said: each is to be settled.
    ///
    /// # Errors
    /// When what was to be said cannot be read.
    pub fn left(&mut self) -> Result<Vec<Left>, JournalError> {
        let mut books = self.books();
        let tried = std::mem::take(&mut books.unsettled).into_iter();
        let unsaid = std::mem::take(&mut books.unsaid).into_iter();
        let mut all: Vec<_> = tried.map(|(nonce, first)| (nonce, Some(first))).collect();
        all.extend(unsaid.map(|nonce| (nonce, None)));
        all.sort_by_key(|(nonce, _)| pending::order(nonce));
        let read = |(nonce, first)| pending::read(&books.pending, nonce, first).transpose();
        all.into_iter().filter_map(read).collect()
    }

    /// Writes down what became of a receipt. It has no intent, for it is never sent again, and is not
    /// waited for, for nothing acts on it.
    ///
    /// # Errors
    /// When the line cannot be written.
    pub fn note(&mut self, receipt: &Part, sent: Sent, now: Timestamp) -> Result<(), JournalError> {
        let (nonce, entry) = (receipt.nonce.clone(), OutboxEntry::Result(sent));
        self.books().outbox.append_unsynced(&OutboxLine { nonce, at: now, entry })
    }

    /// Notes a message that nobody may know was seen: one line, and nothing is said. It is not waited
    /// for: nothing acts on it, and a stranger must not be able to keep the disk busy.
    ///
    /// # Errors
    /// When the line cannot be written.
    pub fn pass_over(
        &mut self,
        id: &MessageId,
        reason: DropReason,
        now: Timestamp,
    ) -> Result<(), JournalError> {
        let line = DropLine { id: id.clone(), at: now, reason, told: false };
        self.books().drops.append_unsynced(&line)
    }
}

impl Books {
    fn drop_message(
        &mut self,
        accepted: Accepted,
        reason: DropReason,
        told: bool,
        now: Timestamp,
    ) -> Result<Admission, JournalError> {
        let id = accepted.incoming.id;
        self.drops.append(&DropLine { id: id.clone(), at: now, reason, told })?;
        self.open.remove(&id);
        Ok(Admission::Dropped(Dropped { id, reason, tell: told }))
    }
}

/// What a message's record says of where it came from.
#[must_use]
pub fn source(incoming: &Incoming) -> Source {
    Source {
        origin: incoming.origin,
        requester: incoming.requester.clone(),
        channel: incoming.channel.clone(),
        thread: incoming.thread.clone(),
        author: incoming.author.clone(),
    }
}

fn day(at: Timestamp) -> Date {
    Offset::UTC.to_datetime(at).date()
}

fn digest(id: &MessageId) -> IdDigest {
    let whole = Sha256::digest(id.as_str());
    let mut half = IdDigest::default();
    half.copy_from_slice(&whole[..16]);
    half
}

#[cfg(test)]
mod tests;
