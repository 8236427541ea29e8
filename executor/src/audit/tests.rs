use std::fs;
use std::io::Write as _;
use std::path::Path;

use serde_json::json;

use super::verify::{Verdict, verify};
use super::{Audit, files};

const WIDE: u64 = 1 << 20;

fn open(dir: &Path) -> Audit {
    Audit::open(dir, WIDE).expect("it opens")
}

fn checked(dir: &Path) -> Verdict {
    verify(dir, false).expect("it reads")
}

/// What is said to be wrong, and how many lines hold before it.
fn broken(dir: &Path) -> (u64, String) {
    let verdict = checked(dir);
    let broken = verdict.broken.expect("something is wrong");
    (verdict.lines, format!("{}:{}: {}", broken.file, broken.line, broken.reason))
}

/// An audit of several files.
fn several(dir: &Path) -> Vec<String> {
    let audit = Audit::open(dir, 1000).expect("it opens");
    for n in 0..20 {
        audit.append("call", json!({"n": n})).expect("it appends");
    }
    files::closed(dir)
        .expect("it lists")
        .into_iter()
        .map(|(number, _)| files::name(number))
        .collect()
}

#[test]
fn the_chain_holds_until_someone_touches_a_line() {
    let dir = tempfile::tempdir().expect("a folder");
    let audit = open(dir.path());
    for n in 0..3 {
        audit.append("call", json!({"n": n})).expect("it appends");
    }
    assert_eq!(checked(dir.path()), Verdict { lines: 3, files: 1, broken: None });
    drop(audit);
    let reopened = open(dir.path());
    reopened.append("call", json!({"n": 3})).expect("it appends");
    assert_eq!(checked(dir.path()).lines, 4);
    let text = fs::read_to_string(reopened.path()).expect("it reads");
    fs::write(reopened.path(), text.replacen("\"n\":1", "\"n\":7", 1)).expect("it writes");
    let (held, said) = broken(dir.path());
    assert_eq!(held, 1);
    assert!(said.starts_with("audit.jsonl:2: its hash"), "{said}");
}

#[test]
fn a_torn_last_line_is_cut_off_and_said_so() {
    let dir = tempfile::tempdir().expect("a folder");
    let audit = open(dir.path());
    audit.append("call", json!({})).expect("it appends");
    let mut file = fs::OpenOptions::new().append(true).open(audit.path()).expect("it opens");
    file.write_all(b"{\"seq\":2,\"ti").expect("it tears");
    drop(audit);
    assert!(broken(dir.path()).1.contains("torn"));
    let audit = open(dir.path());
    assert_eq!(checked(dir.path()), Verdict { lines: 2, files: 1, broken: None });
    let text = fs::read_to_string(audit.path()).expect("it reads");
    assert!(text.lines().last().is_some_and(|line| line.contains("\"repaired\"")), "{text}");
}

#[test]
fn one_process_at_a_time_has_the_audit() {
    let dir = tempfile::tempdir().expect("a folder");
    let audit = open(dir.path());
    assert!(Audit::open_unless_taken(dir.path(), WIDE).expect("it looks").is_none());
    drop(audit);
    assert!(Audit::open_unless_taken(dir.path(), WIDE).expect("it looks").is_some());
}

#[test]
fn a_full_file_is_closed_and_the_chain_goes_on_in_the_next() {
    let dir = tempfile::tempdir().expect("a folder");
    let closed = several(dir.path());
    assert!(closed.len() > 2, "{closed:?}");
    for name in &closed {
        let length = fs::metadata(dir.path().join(name)).expect("it is there").len();
        assert!(length <= 1000, "{name} has {length} bytes");
    }
    let verdict = checked(dir.path());
    assert_eq!((verdict.files, verdict.broken), (closed.len() + 1, None));
    assert_eq!(
        verdict.lines,
        20 + closed.len() as u64,
        "a line of each file says what it continues"
    );
    // It also goes on after a crash between closing one file and beginning the next.
    fs::rename(
        dir.path().join(files::CURRENT),
        dir.path().join(files::name(closed.len() as u64 + 1)),
    )
    .expect("it is ours");
    assert_eq!(checked(dir.path()).broken, None);
    open(dir.path()).append("call", json!({})).expect("it appends");
    let again = checked(dir.path());
    assert_eq!((again.lines, again.broken), (verdict.lines + 1, None));
}

#[test]
fn a_removed_a_reordered_and_a_truncated_file_are_found() {
    type Harm = fn(&Path, &[String]);
    let harms: [(Harm, &str); 6] = [
        (
            |dir, names| fs::remove_file(dir.join(&names[0])).expect("ours"),
            "audit-000001.jsonl:0: the file is missing",
        ),
        (
            |dir, names| fs::remove_file(dir.join(&names[1])).expect("ours"),
            "audit-000002.jsonl:0: the file is missing",
        ),
        (
            |dir, names| {
                fs::rename(dir.join(&names[0]), dir.join("aside")).expect("ours");
                fs::rename(dir.join(&names[1]), dir.join(&names[0])).expect("ours");
                fs::rename(dir.join("aside"), dir.join(&names[1])).expect("ours");
            },
            "audit-000001.jsonl:1: it does not follow",
        ),
        (
            |dir, names| cut_last_line(&dir.join(&names[1])),
            "audit-000003.jsonl:1: it does not follow",
        ),
        (|dir, _| cut_last_line(&dir.join(files::CURRENT)), "and was written up to line"),
        (|dir, _| fs::write(dir.join(files::CURRENT), "").expect("ours"), "are gone"),
    ];
    for (harm, said) in harms {
        let dir = tempfile::tempdir().expect("a folder");
        let names = several(dir.path());
        assert_eq!(checked(dir.path()).broken, None, "{said}: before");
        harm(dir.path(), &names);
        let found = broken(dir.path()).1;
        assert!(found.contains(said), "{said}: {found}");
        // A start does not hide it.
        open(dir.path()).append("call", json!({})).expect("it appends");
        assert!(checked(dir.path()).broken.is_some(), "{said}: after a start");
    }
}

fn cut_last_line(path: &Path) {
    let text = fs::read_to_string(path).expect("it reads");
    let cut = text.trim_end().rfind('\n').map_or(0, |at| at + 1);
    fs::write(path, &text[..cut]).expect("it writes");
}

#[test]
fn the_oldest_files_may_be_moved_away_when_that_is_said() {
    let dir = tempfile::tempdir().expect("a folder");
    let names = several(dir.path());
    fs::remove_file(dir.path().join(&names[0])).expect("it is ours");
    assert!(checked(dir.path()).broken.is_some());
    let verdict = verify(dir.path(), true).expect("it reads");
    assert_eq!((verdict.broken, verdict.files), (None, names.len()));
    fs::remove_file(dir.path().join(&names[2])).expect("it is ours");
    assert!(verify(dir.path(), true).expect("it reads").broken.is_some(), "a gap is a gap");
}
