use protocol::reply::{
    Change, ChangeKind, Diff, FileStat, Hit, Hits, Log, LogEntry, PathText, Reply, Status, Text,
    Untrusted,
};

use super::{Paper, reply};

const COLOURS: Paper = Paper { colours: true, width: Some(60) };

fn path(text: &str) -> PathText {
    PathText::from_bytes(text.as_bytes())
}

fn status() -> Reply {
    let change = |kind, name: &str| Change { kind, path: path(name), from: None };
    Reply::Status(Status {
        untrusted_branch: Some("main".into()),
        head: Some("a".repeat(40)),
        untrusted_upstream: Some("origin/main".into()),
        ahead: Some(1),
        behind: Some(0),
        operation: None,
        untrusted_staged: vec![change(ChangeKind::Added, "a.md")],
        untrusted_unstaged: vec![change(ChangeKind::Modified, "b.md")],
        untrusted_untracked: vec![path("c\u{1b}[2J.md")],
        untrusted_conflicted: vec![],
        untrusted_reserved: vec![],
        clean: false,
        truncated: false,
    })
}

#[test]
fn a_status_reads_like_gits() {
    let expected = "\
On branch main, following origin/main [ahead 1]
Staged:
  A a.md
Not staged:
  M b.md
Untracked:
  c\\u{1b}[2J.md
";
    assert_eq!(reply(Paper::PLAIN, &status()), expected);
}

#[test]
fn colours_add_nothing_but_colours() {
    let painted = reply(COLOURS, &status());
    assert!(painted.contains("\u{1b}[32mA a.md\u{1b}[0m"), "{painted:?}");
    let plain =
        painted.split('\u{1b}').enumerate().map(|(at, part)| match (at, part.split_once('m')) {
            (0, _) | (_, None) => part,
            (_, Some((_, rest))) => rest,
        });
    assert_eq!(plain.collect::<String>(), reply(Paper::PLAIN, &status()));
}

#[test]
fn a_diff_has_its_statistics_and_each_line_its_colour() {
    let text = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n-old\n+new\n-- dashes\n";
    let stat = FileStat {
        kind: ChangeKind::Modified,
        path: path("x"),
        from: None,
        added: Some(1),
        removed: Some(2),
        mode: None,
    };
    let diff = Reply::Diff(Diff {
        untrusted_files: vec![stat],
        more_files: 0,
        untrusted_diff: Text { text: text.into(), cut: None },
    });
    assert_eq!(reply(Paper::PLAIN, &diff), format!(" M  +1  −2  x\n\n{text}"));
    let painted = reply(COLOURS, &diff);
    for part in [
        "\u{1b}[1m--- a/x",
        "\u{1b}[36m@@ -1",
        "\u{1b}[31m-old",
        "\u{1b}[32m+new",
        "\u{1b}[31m-- dashes",
    ] {
        assert!(painted.contains(part), "{part:?} in {painted:?}");
    }
}

#[test]
fn a_log_fits_the_terminal_and_is_whole_in_a_pipe() {
    let entry = LogEntry {
        hash: "a".repeat(40),
        short: "aaaaaaa".to_owned(),
        author: "Owner <owner@example.invalid>".into(),
        date: "2026-01-02T03:04:05+00:00".to_owned(),
        subject: Untrusted("s".repeat(90)),
    };
    let log = Reply::Log(Log { untrusted_commits: vec![entry], truncated: false });
    let narrow = reply(Paper { colours: false, width: Some(60) }, &log);
    assert_eq!(narrow.trim_end().chars().count(), 60, "{narrow}");
    let whole = reply(Paper::PLAIN, &log);
    assert_eq!(whole, format!("aaaaaaa  2026-01-02 03:04  Owner  {}\n", "s".repeat(90)));
}

#[test]
fn hits_are_in_the_form_that_editors_know() {
    let hit = Hit { path: path("a.md"), line: 7, text: "x\ty".into() };
    let hits = Reply::Hits(Hits { untrusted_hits: vec![hit], truncated: false, skipped: 0 });
    assert_eq!(reply(Paper::PLAIN, &hits), "a.md:7:x\\ty\n");
}
