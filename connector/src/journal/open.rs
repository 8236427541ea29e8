//! Reads the journal in at a start: what is known, what is open, what was not said or not settled.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::lines::{Damage, Lines};
use super::{
    AdmissionLine, Books, DropLine, DropReason, InboxLine, JournalError, OUTBOX, OutboxEntry,
    OutboxLine, Pending, TURNS, day, digest, pending, store,
};
use crate::delivery::Sent;
use crate::lock::Lock;
use crate::message::MessageId;

pub(super) fn books(lock: Lock) -> Result<(Books, Vec<Damage>), JournalError> {
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
    let pending = folder.join(pending::PENDING);
    let mut unsaid = pending::kept(&pending)?;
    let mut unsettled = BTreeMap::new();
    let outbox = Lines::open(&folder.join(OUTBOX), &mut damage, |line: OutboxLine| {
        unsaid.remove(&line.nonce);
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
    // Without its record a turn was interrupted, and what it was about to say is not said.
    unsaid.retain(|nonce| pending::turn(nonce).is_some_and(|turn| ended.contains(&turn)));
    pending::clear(&pending, |nonce| unsettled.contains_key(nonce) || unsaid.contains(nonce))?;
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
        unsaid,
        pending,
        _lock: lock,
    };
    Ok((books, damage))
}
