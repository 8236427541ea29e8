//! What can be read while another process writes: no lock is taken, nothing is changed, and a torn last
//! line is left alone.

use std::collections::HashSet;
use std::io::{self, BufRead as _};
use std::path::Path;

use jiff::Timestamp;
use serde::de::DeserializeOwned;

use super::{AdmissionLine, DropLine, DropReason, InboxLine, OUTBOX, OutboxEntry, OutboxLine, day};
use crate::delivery::Sent;
use crate::message::MessageId;

/// Every line of the outbox.
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
    each(folder, OUTBOX, |line: OutboxLine| match line.entry {
        OutboxEntry::Intent { .. } => {
            open.insert(line.nonce);
        }
        OutboxEntry::Result(Sent::Unknown { .. }) => {}
        OutboxEntry::Result(_) => {
            open.remove(&line.nonce);
        }
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
