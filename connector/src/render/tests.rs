use protocol::refusal::{Code, Fault, Outcome, Refusal};
use protocol::reply::{
    Branch, Branches, Change, ChangeKind, Committed, Cut, Diff, Edited, FileList, FileStat,
    FileText, GitAccess, Log, LogEntry, Operation, PathText, Pulled, PushState, Pushed, Reply,
    Reserved, RootInfo, Roots, SearchHit, SearchResults, ShownCommit, Status, Text, WebPage,
    Written,
};

use super::{added_lines, one_line, outcome, printable, reply};

const EVIL: &str = "a\u{1b}[31m\r\n\u{202e}b\u{9b}2J";

fn path(text: &str) -> PathText {
    PathText::Utf8(text.to_owned())
}

fn stat(text: &str) -> FileStat {
    FileStat {
        kind: ChangeKind::Modified,
        path: path(text),
        from: None,
        added: Some(3),
        removed: Some(1),
        mode: None,
    }
}

fn status() -> Status {
    Status {
        untrusted_branch: Some("main".into()),
        head: Some("abc".to_owned()),
        untrusted_upstream: Some("origin/main".into()),
        ahead: Some(2),
        behind: Some(1),
        operation: Some(Operation::Merge),
        untrusted_staged: vec![Change {
            kind: ChangeKind::Renamed,
            path: path("new.md"),
            from: Some(path("old.md")),
        }],
        untrusted_unstaged: vec![Change {
            kind: ChangeKind::Modified,
            path: path("m.md"),
            from: None,
        }],
        untrusted_untracked: vec![path("u.md")],
        untrusted_conflicted: vec![path("c.md")],
        untrusted_reserved: vec!["DEC-0003".into()],
        clean: false,
        truncated: true,
    }
}

fn committed(push: PushState) -> Reply {
    Reply::Committed(Committed {
        hash: "abcdef1234".to_owned(),
        short: "abcdef1".to_owned(),
        branch: "main".to_owned(),
        trailer: "Requested-by: Owner".to_owned(),
        untrusted_files: vec![stat("a.md")],
        push,
    })
}

#[test]
fn nothing_from_the_world_can_drive_a_terminal() {
    assert_eq!(printable(EVIL), "a\\u{1b}[31m\\r\n\\u{202e}b\\u{9b}2J");
    assert_eq!(one_line(EVIL), "a\\u{1b}[31m\\r\\n\\u{202e}b\\u{9b}2J");
    assert_eq!(printable("tab\tCJK 漢字 é 🙂\n"), "tab\tCJK 漢字 é 🙂\n", "what is harmless stays");
    assert_eq!(printable(&printable(EVIL)), printable(EVIL));
    assert_eq!(added_lines("a\n\u{7}\n"), "+a\n+\\u{7}");
}

/// Replies about files, with hostile text wherever the world can put some.
fn hostile_files() -> Vec<Reply> {
    let untrusted = || EVIL.into();
    vec![
        Reply::Roots(Roots {
            roots: vec![RootInfo {
                name: EVIL.to_owned(),
                writable: true,
                git: GitAccess::Read,
                vault: true,
            }],
        }),
        Reply::Files(FileList { untrusted_paths: vec![path(EVIL)], truncated: false }),
        Reply::File(FileText {
            untrusted_text: untrusted(),
            offset: 0,
            next_offset: None,
            size: 9,
            digest: String::new(),
        }),
        Reply::Edited(Edited {
            path: EVIL.to_owned(),
            untrusted_diff: untrusted(),
            written: true,
            digest: String::new(),
        }),
    ]
}

/// Replies about git, likewise.
fn hostile_git() -> Vec<Reply> {
    let untrusted = || EVIL.into();
    let text = || Text { text: untrusted(), cut: None };
    let mut state = status();
    state.untrusted_branch = Some(untrusted());
    state.untrusted_upstream = Some(untrusted());
    state.untrusted_untracked = vec![path(EVIL)];
    state.untrusted_reserved = vec![untrusted()];
    vec![
        Reply::Status(state),
        Reply::Diff(Diff {
            untrusted_files: vec![stat(EVIL)],
            more_files: 0,
            untrusted_diff: text(),
        }),
        Reply::Log(Log {
            untrusted_commits: vec![LogEntry {
                hash: String::new(),
                short: "s".to_owned(),
                author: untrusted(),
                date: "d".to_owned(),
                subject: untrusted(),
            }],
            truncated: false,
        }),
        Reply::Commit(ShownCommit {
            hash: "h".to_owned(),
            short: "s".to_owned(),
            parents: Vec::new(),
            untrusted_author: untrusted(),
            date: "d".to_owned(),
            untrusted_message: untrusted(),
            more_files: 0,
            untrusted_files: vec![stat(EVIL)],
            untrusted_diff: text(),
        }),
        Reply::Branches(Branches {
            more_branches: 0,
            untrusted_current: None,
            untrusted_branches: vec![Branch {
                name: untrusted(),
                upstream: Some(untrusted()),
                hash: "漢字漢字".to_owned(),
                subject: untrusted(),
            }],
        }),
        committed(PushState::Failed { code: Code::AuthFailed, message: EVIL.to_owned() }),
    ]
}

#[test]
fn every_reply_escapes_what_the_world_wrote() {
    for hostile in hostile_files().into_iter().chain(hostile_git()) {
        let text = reply(&hostile);
        assert_eq!(text, printable(&text), "{hostile:?}");
        assert!(text.contains("\\u{1b}"), "the world's text is shown: {text}");
    }
}

#[test]
fn a_name_from_the_world_never_begins_a_line_of_its_own() {
    for hostile in [
        Reply::Files(FileList { untrusted_paths: vec![path("a\nb")], truncated: false }),
        Reply::Diff(Diff {
            untrusted_files: vec![stat("a\nb")],
            more_files: 0,
            untrusted_diff: Text::default(),
        }),
    ] {
        assert!(reply(&hostile).contains("a\\nb"), "{hostile:?}");
    }
}

#[test]
fn a_refusal_and_a_fault_read_differently() {
    let no = Refusal::new(Code::ProtectedPath, "It is protected.", "Ask the operator.");
    let text = "Refused (protected_path): It is protected. Ask the operator.";
    assert_eq!(outcome(&Outcome::Refusal(no)), text);
    assert_eq!(outcome(&Outcome::Fault(Fault::new("no disk"))), "Something broke: no disk");
}

#[test]
fn a_status_reads_like_this() {
    assert_eq!(
        reply(&Reply::Status(status())),
        "On branch main, following origin/main (2 ahead, 1 behind).\n\
         In the middle of a merge.\n\
         Staged:\n  R old.md → new.md\n\
         Changed, not staged:\n  M m.md\n\
         New, unknown to git:\n  u.md\n\
         In conflict:\n  c.md\n\
         Reserved, in no commit yet: DEC-0003\n\
         (there are more)"
    );
    let clean = Status {
        untrusted_branch: None,
        untrusted_upstream: None,
        ahead: None,
        behind: None,
        operation: None,
        untrusted_staged: Vec::new(),
        untrusted_unstaged: Vec::new(),
        untrusted_untracked: Vec::new(),
        untrusted_conflicted: Vec::new(),
        untrusted_reserved: Vec::new(),
        clean: true,
        truncated: false,
        ..status()
    };
    assert_eq!(reply(&Reply::Status(clean)), "HEAD is detached at abc.\nNothing to commit.");
}

#[test]
fn a_commit_reads_like_this() {
    assert_eq!(
        reply(&committed(PushState::Pushed)),
        "  M a.md (+3/−1)\n\
         Committed abcdef1 on main (Requested-by: Owner), pushed to origin/main."
    );
    let failed =
        PushState::Failed { code: Code::RemoteUnreachable, message: "no route".to_owned() };
    assert_eq!(
        reply(&committed(failed)),
        "  M a.md (+3/−1)\n\
         Committed abcdef1 on main (Requested-by: Owner), not pushed (remote_unreachable): no route\n\
         The commit is kept; the next commit or push tries again."
    );
}

#[test]
fn small_replies_read_like_this() {
    let written = |created| {
        reply(&Reply::Written(Written {
            path: "a.md".to_owned(),
            created,
            size: 3,
            digest: String::new(),
        }))
    };
    assert_eq!(written(true), "Created a.md (3 bytes).");
    assert_eq!(written(false), "Replaced a.md (3 bytes).");
    let (id, registry) = ("DEC-0003".to_owned(), "docs/ID-REGISTRY.txt".to_owned());
    assert_eq!(
        reply(&Reply::Reserved(Reserved { id, registry })),
        "Reserved DEC-0003; its line in docs/ID-REGISTRY.txt goes into the next commit by itself."
    );
    let pushed = |commits| {
        reply(&Reply::Pushed(Pushed { hash: "h".to_owned(), branch: "main".to_owned(), commits }))
    };
    assert_eq!(pushed(1), "Pushed 1 commit to origin/main; it is at h.");
    assert_eq!(pushed(0), "origin/main had everything already, up to h.");
    let pulled = |commits, untrusted_files| {
        let (from, to) = ("g".to_owned(), "h".to_owned());
        reply(&Reply::Pulled(Pulled { from, to, commits, untrusted_files, more_files: 0 }))
    };
    assert_eq!(pulled(0, Vec::new()), "Already up to date.");
    assert_eq!(pulled(2, vec![stat("a")]), "Pulled 2 commits; now at h.\n  M a (+3/−1)");
}

#[test]
fn a_text_that_was_cut_says_so() {
    let cut = Some(Cut { handle: "h".to_owned(), next_offset: 4, size: 9 });
    let untrusted_diff = Text { text: "+abc".into(), cut };
    let diff =
        Reply::Diff(Diff { untrusted_files: vec![stat("a")], more_files: 0, untrusted_diff });
    assert_eq!(reply(&diff), "  M a (+3/−1)\n\n+abc\n(cut at byte 4 of 9)");
}

#[test]
fn a_page_and_what_a_search_found_are_shown_with_what_is_to_know_about_them() {
    let page = WebPage {
        untrusted_url: "https://a.example/".into(),
        status: 404,
        untrusted_content_type: None,
        untrusted_title: Some(EVIL.into()),
        untrusted_text: Text {
            text: EVIL.into(),
            cut: Some(Cut { handle: "output-1".to_owned(), next_offset: 9, size: 99 }),
        },
        bytes: 1,
        digest: String::new(),
        truncated: true,
        lossy: true,
        hidden_left_out: true,
        bare: true,
    };
    let shown = reply(&Reply::Page(page));
    assert!(!shown.contains('\u{1b}') && !shown.contains('\u{202e}'), "{shown:?}");
    for said in [
        "status 404",
        "longer than",
        "characters were lost",
        "hidden text",
        "without layout",
        "byte 9 of 99",
    ] {
        assert!(shown.contains(said), "{said}: {shown}");
    }
    let hit =
        SearchHit { url: "https://a.example/".into(), title: EVIL.into(), snippet: EVIL.into() };
    let mut found = SearchResults {
        untrusted_results: vec![hit],
        more: 3,
        skipped: 0,
        bytes: 1,
        digest: String::new(),
    };
    let shown = reply(&Reply::Found(found.clone()));
    assert_eq!(shown.lines().count(), 4, "{shown}");
    assert!(!shown.contains('\u{1b}') && shown.ends_with("(3 more)"), "{shown:?}");
    (found.untrusted_results, found.more) = (Vec::new(), 0);
    assert_eq!(reply(&Reply::Found(found)), "Nothing was found.");
}
