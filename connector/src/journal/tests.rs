use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use protocol::turn::Origin;

use super::{
    Admission, Admitted, DropReason, Journal, JournalError, Left, TURNS, read_record, store,
};
use crate::binding::Limits;
use crate::delivery::{Destination, Part, Sent};
use crate::lock::Lock;
use crate::message::{Incoming, MessageId};
use crate::record::{TurnOutcome, TurnRecord};

fn id(text: &str) -> MessageId {
    MessageId::parse(text).expect("a good id")
}

fn incoming(text: &str) -> Incoming {
    Incoming {
        id: id(text),
        origin: Origin::Terminal,
        requester: Some("Owner".to_owned()),
        channel: "terminal".to_owned(),
        thread: None,
        author: "Owner".to_owned(),
        text: "hello".to_owned(),
    }
}

fn open(folder: &Path) -> Journal {
    Journal::open(Lock::take(folder).expect("it is free")).expect("it opens")
}

fn noon() -> Timestamp {
    "2031-05-06T12:00:00Z".parse().expect("a time")
}

fn admit(journal: &mut Journal, text: &str, limits: &Limits, now: Timestamp) -> Admission {
    let accepted = journal.accept(incoming(text), now).expect("written").expect("it is new");
    journal.admit(accepted, limits, now).expect("written")
}

fn admitted(journal: &mut Journal, text: &str) -> Admitted {
    match admit(journal, text, &Limits::default(), noon()) {
        Admission::Admitted(admitted) => admitted,
        other @ Admission::Dropped(_) => panic!("{other:?}"),
    }
}

fn record(text: &str) -> TurnRecord {
    TurnRecord {
        version: 1,
        id: id(text),
        source: super::source(&incoming(text)),
        received: noon(),
        finished: noon(),
        latency_ms: Some(1),
        engine: Some("rules".to_owned()),
        envelope: None,
        outcome: TurnOutcome::Answered,
        calls: Vec::new(),
        deliveries: Vec::new(),
        usage: None,
    }
}

#[test]
fn a_known_message_is_ignored_also_after_a_restart() {
    let home = tempfile::tempdir().expect("a folder");
    let folder = home.path().join("sage");
    let mut journal = open(&folder);
    assert!(journal.accept(incoming("1"), noon()).expect("written").is_some());
    assert!(journal.accept(incoming("1"), noon()).expect("read").is_none());
    drop(journal);
    let mut journal = open(&folder);
    assert!(journal.accept(incoming("1"), noon()).expect("read").is_none());
    assert!(journal.accept(incoming("2"), noon()).expect("written").is_some());
}

#[test]
fn a_record_is_written_once_and_never_replaced() {
    let home = tempfile::tempdir().expect("a folder");
    let folder = home.path().join("sage");
    let mut journal = open(&folder);
    let first = admitted(&mut journal, "1");
    let _ = journal.record(first, &record("1")).expect("written");
    let path = folder.join("turns/1.json");
    let before = std::fs::read(&path).expect("it is there");
    let mut other = record("1");
    other.outcome = TurnOutcome::TimedOut;
    match store::write_once(&folder.join(TURNS), &other) {
        Err(JournalError::AlreadyRecorded(again)) => assert_eq!(again, id("1")),
        other => panic!("{other:?}"),
    }
    assert_eq!(std::fs::read(&path).expect("it is there"), before);
    let names = std::fs::read_dir(folder.join(TURNS)).expect("a folder").count();
    assert_eq!(names, 1, "no temporary file stays");
}

#[test]
fn what_a_crash_interrupted_gets_a_record_and_is_not_replayed() {
    let home = tempfile::tempdir().expect("a folder");
    let folder = home.path().join("sage");
    let mut journal = open(&folder);
    let _ = journal.accept(incoming("only-accepted"), noon()).expect("written");
    let _ = admitted(&mut journal, "admitted");
    let ended = admitted(&mut journal, "ended");
    let _ = journal.record(ended, &record("ended")).expect("written");
    let short = Limits { max_message_chars: 2, ..Limits::default() };
    let _ = admit(&mut journal, "dropped", &short, noon());
    drop(journal);

    let mut journal = open(&folder);
    let recovered = journal.recover(noon()).expect("written");
    assert_eq!(recovered, [id("admitted"), id("only-accepted")]);
    for (name, admitted) in [("admitted", true), ("only-accepted", false)] {
        let record = read_record(&folder.join(TURNS), &id(name)).expect("it is there");
        assert_eq!(record.outcome, TurnOutcome::Interrupted { admitted });
        assert_eq!(record.source.requester.as_deref(), Some("Owner"));
        assert!(journal.accept(incoming(name), noon()).expect("read").is_none());
    }
    assert!(read_record(&folder.join(TURNS), &id("dropped")).is_err());
    drop(journal);
    assert_eq!(open(&folder).recover(noon()).expect("read"), []);
}

#[test]
fn the_ceiling_counts_admissions_per_utc_day_across_restarts() {
    let home = tempfile::tempdir().expect("a folder");
    let folder = home.path().join("sage");
    let two = Limits { turns_per_day: 2, ..Limits::default() };
    let mut journal = open(&folder);
    for name in ["1", "2"] {
        assert!(matches!(admit(&mut journal, name, &two, noon()), Admission::Admitted(_)));
    }
    drop(journal);
    let mut journal = open(&folder);
    for (name, told) in [("3", true), ("4", false)] {
        match admit(&mut journal, name, &two, noon()) {
            Admission::Dropped(dropped) => {
                assert_eq!((dropped.reason, dropped.tell), (DropReason::OverCeiling, told));
            }
            other @ Admission::Admitted(_) => panic!("{other:?}"),
        }
    }
    drop(journal);
    let mut journal = open(&folder);
    match admit(&mut journal, "5", &two, noon()) {
        Admission::Dropped(dropped) => assert!(!dropped.tell, "it was told before the restart"),
        other @ Admission::Admitted(_) => panic!("{other:?}"),
    }
    let last_second = noon() + SignedDuration::from_secs(12 * 3600 - 1);
    assert!(matches!(admit(&mut journal, "6", &two, last_second), Admission::Dropped(_)));
    let midnight = noon() + SignedDuration::from_hours(12);
    assert!(matches!(admit(&mut journal, "7", &two, midnight), Admission::Admitted(_)));
}

#[test]
fn a_torn_line_is_reported_and_costs_nothing_but_itself() {
    let home = tempfile::tempdir().expect("a folder");
    let folder = home.path().join("sage");
    let mut journal = open(&folder);
    let _ = admitted(&mut journal, "1");
    drop(journal);
    for name in ["inbox.jsonl", "admissions.jsonl", "drops.jsonl", "outbox.jsonl"] {
        let mut file =
            std::fs::OpenOptions::new().append(true).open(folder.join(name)).expect("it is there");
        file.write_all(br#"{"id":"2","at":"20"#).expect("torn");
    }
    let mut journal = open(&folder);
    let mut files: Vec<_> = journal.damage().iter().map(|torn| torn.file.as_str()).collect();
    files.sort_unstable();
    assert_eq!(files, ["admissions.jsonl", "drops.jsonl", "inbox.jsonl", "outbox.jsonl"]);
    assert!(journal.accept(incoming("1"), noon()).expect("read").is_none());
    let _ = admitted(&mut journal, "2");
    drop(journal);
    let mut journal = open(&folder);
    assert!(journal.accept(incoming("2"), noon()).expect("read").is_none());
    assert_eq!(journal.recover(noon()).expect("written"), [id("1"), id("2")]);
}

#[test]
fn only_this_user_can_read_the_journal() {
    let home = tempfile::tempdir().expect("a folder");
    let folder = home.path().join("sage");
    let mut journal = open(&folder);
    let turn = admitted(&mut journal, "1");
    let _ = journal.record(turn, &record("1")).expect("written");
    let mode = |name: &str| folder.join(name).metadata().expect("it is there").mode() & 0o7777;
    assert_eq!((mode(""), mode("turns")), (0o700, 0o700));
    for name in ["inbox.jsonl", "admissions.jsonl", "drops.jsonl", "outbox.jsonl", "turns/1.json"] {
        assert_eq!(mode(name), 0o600, "{name}");
    }
}

#[test]
fn a_temporary_file_of_a_killed_process_is_removed_at_start() {
    let home = tempfile::tempdir().expect("a folder");
    let folder = home.path().join("sage");
    drop(open(&folder));
    let leftover = folder.join("turns/.writing-abc");
    std::fs::write(&leftover, "{").expect("written");
    drop(open(&folder));
    assert!(!leftover.exists());
}

#[test]
fn an_edit_that_is_passed_over_does_not_take_a_messages_end_away() {
    let home = tempfile::tempdir().expect("a folder");
    let folder = home.path().join("sage");
    let mut journal = open(&folder);
    let turn = admitted(&mut journal, "edited");
    let edit = DropReason::Rule(policy::admission::Rule::Edit);
    journal.pass_over(&id("edited"), edit, noon()).expect("written");
    // A crash: the turn never got its record.
    drop((journal, turn));
    assert_eq!(open(&folder).recover(noon()).expect("written"), [id("edited")]);
}

#[test]
fn a_message_that_is_passed_over_does_not_wait_for_the_disk_and_an_accepted_one_does() {
    let home = tempfile::tempdir().expect("a folder");
    let mut journal = open(&home.path().join("sage"));
    let syncs = |journal: &Journal| {
        let books = journal.books();
        books.inbox.syncs + books.drops.syncs + books.admissions.syncs + books.outbox.syncs
    };
    let before = syncs(&journal);
    let stranger = DropReason::Rule(policy::admission::Rule::UnlistedAuthor);
    for number in 0..100 {
        journal.pass_over(&id(&format!("{number}")), stranger, noon()).expect("written");
    }
    assert_eq!(syncs(&journal), before);
    let _ = admitted(&mut journal, "1000");
    assert_eq!(syncs(&journal), before + 2, "its inbox line and its admission");
}

/// The parts of an answer, and the place it goes to.
fn answer(turn: &str, parts: usize) -> (Vec<Part>, Destination) {
    let texts = (1..=parts).map(|number| format!("part {number}")).collect();
    let to = Destination { channel: "7".to_owned(), reply_to: turn.to_owned() };
    (Part::of_reply(&id(turn), texts), to)
}

fn unsaid(journal: &mut Journal) -> Vec<String> {
    let left = journal.left().expect("read").into_iter();
    left.map(|left| match left {
        Left::Unsaid { part, .. } => part.nonce,
        Left::Tried { .. } => panic!("{left:?}"),
    })
    .collect()
}

#[test]
fn the_whole_answer_is_there_as_soon_as_its_record_is_and_comes_in_order() {
    let home = tempfile::tempdir().expect("a folder");
    let folder = home.path().join("sage");
    let mut journal = open(&folder);
    for name in ["99", "100"] {
        let turn = admitted(&mut journal, name);
        let (parts, to) = answer(name, if name == "99" { 11 } else { 1 });
        journal.keep(&parts, Some(to)).expect("written");
        let _ = journal.record(turn, &record(name)).expect("written");
    }
    drop(journal);
    let mut expected: Vec<_> = (1..=11).map(|number| format!("99-{number}")).collect();
    expected.push("100-1".to_owned());
    assert_eq!(unsaid(&mut open(&folder)), expected, "by number, not by letter");
    assert_eq!(unsaid(&mut open(&folder)), expected, "a start that was cut short loses nothing");
}

#[test]
fn what_a_turn_without_a_record_was_about_to_say_is_not_said() {
    let home = tempfile::tempdir().expect("a folder");
    let folder = home.path().join("sage");
    let mut journal = open(&folder);
    let turn = admitted(&mut journal, "1");
    let (parts, to) = answer("1", 2);
    journal.keep(&parts, Some(to)).expect("written");
    drop((journal, turn));
    let mut journal = open(&folder);
    assert_eq!(journal.recover(noon()).expect("written"), [id("1")]);
    assert_eq!(unsaid(&mut journal), [""; 0]);
    drop(journal);
    assert_eq!(unsaid(&mut open(&folder)), [""; 0], "nor at a later start, when there is a record");
}

#[test]
fn what_is_settled_is_not_said_again_when_its_file_outlived_a_crash() {
    let home = tempfile::tempdir().expect("a folder");
    let folder = home.path().join("sage");
    let mut journal = open(&folder);
    let turn = admitted(&mut journal, "1");
    let (parts, to) = answer("1", 1);
    journal.keep(&parts, Some(to.clone())).expect("written");
    let _ = journal.record(turn, &record("1")).expect("written");
    let file = folder.join("pending/1-1.json");
    let kept = std::fs::read(&file).expect("it is kept");
    let intended = journal.intend(&parts[0], Some(to), noon()).expect("written");
    journal.settle(intended, Sent::Confirmed, noon()).expect("written");
    std::fs::write(&file, kept).expect("the crash came before it was removed");
    drop(journal);
    assert_eq!(unsaid(&mut open(&folder)), [""; 0]);
    assert!(!file.exists());
}
