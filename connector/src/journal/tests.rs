use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use protocol::turn::Origin;

use super::{Admission, Admitted, DropReason, Journal, JournalError, TURNS, read_record, store};
use crate::binding::Limits;
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
