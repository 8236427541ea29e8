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
//! | `pending/<nonce>.json` | the text of a part that is not settled   | before its intent; then removed |
//! | `outbox.jsonl`    | every intent to say something, and its result | before and after sending     |
//!
//! What survives: a line or record whose writing returned is on disk, also after a power cut. One
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

mod pending;

mod stages;

mod store;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, BufRead as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::Offset;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::binding::Limits;
use crate::delivery::{Destination, Kind, Part, Sent};
use crate::lock::Lock;
use crate::message::{Incoming, MessageId};
use crate::record::{RECORD_VERSION, Source, TextDigest, TurnOutcome, TurnRecord};
pub use lines::Damage;
use lines::Lines;
pub use pending::Unsettled;
pub use stages::{Accepted, Admission, Admitted, DropReason, Dropped, Intended, Recorded};
pub use store::{Stored, read_record, stored};

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

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct InboxLine {
    id: MessageId,
    at: Timestamp,
    #[serde(flatten)]
    source: Source,
    text: TextDigest,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct DropLine {
    id: MessageId,
    at: Timestamp,
    reason: DropReason,
    /// Whether a fixed line is sent for it.
    told: bool,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AdmissionLine {
    id: MessageId,
    at: Timestamp,
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
        let folder = lock.folder().to_owned();
        let turns = folder.join(TURNS);
        let ended: HashSet<MessageId> = store::prepare(&turns)?.into_iter().collect();
        let (mut damage, mut dropped, mut last_told) = (Vec::new(), HashSet::new(), None);
        let drops = Lines::open(&folder.join("drops.jsonl"), &mut damage, |line: DropLine| {
            if line.told && line.reason == DropReason::OverCeiling {
                last_told = last_told.max(Some(day(line.at)));
            }
            // An edit, or what came while stopping, is passed over under the id of a message that may
            // have been accepted before: that one still needs its end.
            if !matches!(line.reason, DropReason::Rule(_) | DropReason::Stopping) {
                dropped.insert(line.id);
            }
        })?;
        let (mut known, mut open) = (HashSet::new(), HashMap::new());
        let inbox = Lines::open(&folder.join("inbox.jsonl"), &mut damage, |line: InboxLine| {
            known.insert(digest(&line.id));
            if !ended.contains(&line.id) && !dropped.contains(&line.id) {
                let (source, received) = (line.source, line.at);
                open.insert(line.id, Pending { source, received, admitted: false });
            }
        })?;
        let mut admitted = BTreeMap::new();
        let path = folder.join("admissions.jsonl");
        let admissions = Lines::open(&path, &mut damage, |line: AdmissionLine| {
            *admitted.entry(day(line.at)).or_insert(0) += 1;
            if let Some(pending) = open.get_mut(&line.id) {
                pending.admitted = true;
            }
        })?;
        let mut unsettled = BTreeMap::new();
        let outbox = Lines::open(&folder.join(OUTBOX), &mut damage, |line: OutboxLine| {
            match line.entry {
                // The window is measured from the first line, whatever was tried since.
                OutboxEntry::Intent { .. } => {
                    unsettled.entry(line.nonce).or_insert(line.at);
                }
                OutboxEntry::Result(Sent::Unknown { .. }) => {}
                OutboxEntry::Result(_) => {
                    unsettled.remove(&line.nonce);
                }
            }
        })?;
        let pending = folder.join(pending::PENDING);
        pending::prepare(&pending, &unsettled)?;
        store::sync_folder(&folder)?;
        let books = Books {
            inbox,
            drops,
            admissions,
            outbox,
            turns,
            known,
            open,
            admitted,
            last_told,
            unsettled,
            pending,
            _lock: lock,
        };
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
            pending::write(&books.pending, part, to)?;
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

    /// What an earlier process may have said. Taken once, before anything new is said: each is to be
    /// settled.
    ///
    /// # Errors
    /// When what was to be said cannot be read.
    pub fn unsettled(&mut self) -> Result<Vec<Unsettled>, JournalError> {
        let mut books = self.books();
        let left = std::mem::take(&mut books.unsettled);
        left.into_iter().map(|(nonce, first)| pending::read(&books.pending, nonce, first)).collect()
    }

    /// Notes a message that nobody may know was seen: one line, and nothing is said.
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
        self.books().drops.append(&line)
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

/// Reads the outbox of a folder that another process may be writing; a torn last line is left alone.
pub(crate) fn read_outbox(folder: &Path) -> io::Result<Vec<OutboxLine>> {
    let mut lines = Vec::new();
    each(folder, OUTBOX, |line| lines.push(line))?;
    Ok(lines)
}

/// What the journal knows of one message.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Trace {
    /// When it was taken in.
    pub(crate) accepted: Option<Timestamp>,
    /// When and why it got no turn.
    pub(crate) dropped: Option<(Timestamp, DropReason)>,
    /// When it got one.
    pub(crate) admitted: Option<Timestamp>,
}

/// Follows one message through the journal. Takes no lock.
pub(crate) fn trace(folder: &Path, id: &MessageId) -> io::Result<Trace> {
    let mut trace = Trace::default();
    each(folder, "inbox.jsonl", |line: InboxLine| {
        if line.id == *id {
            trace.accepted = Some(line.at);
        }
    })?;
    each(folder, "drops.jsonl", |line: DropLine| {
        if line.id == *id {
            trace.dropped = Some((line.at, line.reason));
        }
    })?;
    each(folder, "admissions.jsonl", |line: AdmissionLine| {
        if line.id == *id {
            trace.admitted = Some(line.at);
        }
    })?;
    Ok(trace)
}

/// How many turns were admitted on a day, by UTC. Takes no lock.
pub(crate) fn admitted_on(folder: &Path, now: Timestamp) -> io::Result<u32> {
    let mut count = 0;
    each(folder, "admissions.jsonl", |line: AdmissionLine| {
        count += u32::from(day(line.at) == day(now));
    })?;
    Ok(count)
}

/// How many parts may or may not have arrived. Takes no lock.
pub(crate) fn open_intents(folder: &Path) -> io::Result<usize> {
    let mut open = HashSet::new();
    each(folder, OUTBOX, |line: OutboxLine| {
        match line.entry {
            OutboxEntry::Intent { .. } | OutboxEntry::Result(Sent::Unknown { .. }) => {
                open.insert(line.nonce)
            }
            OutboxEntry::Result(_) => open.remove(&line.nonce),
        };
    })?;
    Ok(open.len())
}

/// Hands on each whole line of a file, one at a time; a file that is not there has none.
fn each<T: DeserializeOwned>(folder: &Path, name: &str, mut take: impl FnMut(T)) -> io::Result<()> {
    let file = match std::fs::File::open(folder.join(name)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    for line in io::BufReader::new(file).split(b'\n') {
        if let Ok(line) = serde_json::from_slice(&line?) {
            take(line);
        }
    }
    Ok(())
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
