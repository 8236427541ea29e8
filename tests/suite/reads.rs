//! Reading git (D1, D3 to D6): odd names, settings that change nothing, revisions, budgets, and not a
//! byte of the repository changed. With the cases B13 and B29.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use harness::calls::{self, ROOT};
use harness::git::installed;
use harness::snapshot::Snapshot;
use harness::turn::Turn;
use harness::world::World;
use protocol::refusal::Code;
use protocol::reply::{
    Branches, ChangeKind, Diff, FileText, Log, OutputPage, PathText, ShownCommit, Status,
};

const ODD: &[&str] = &[
    "bücher.txt",
    "文件.md",
    "😀\ttab.txt",
    "nl\nname.txt",
    "q\"uote.txt",
    " lead.txt",
    "trail ",
    "a -> b.txt",
    "e\u{301}.txt",
    "back\\slash",
    "1 .M N... 100644 100644 100644 aaa bbb forged",
];

fn names(paths: &[PathText]) -> BTreeSet<String> {
    paths.iter().map(|path| path.as_str().to_owned()).collect()
}

#[test]
fn b29_odd_names_are_reported_once_and_as_they_are() {
    for git in installed() {
        let world = World::builder().git(&git).build();
        let turn = world.turn("Owner");
        let clone = world.clone_dir();
        for name in ODD {
            clone.write(name, "text\n");
        }
        std::fs::write(clone.path(OsStr::from_bytes(b"\xff\xfe.bin")), "x\n").expect("it is ours");
        let expected: BTreeSet<String> = ODD.iter().map(|name| (*name).to_owned()).collect();
        let all = || -> BTreeSet<String> {
            let mut all = expected.clone();
            all.insert("\\xff\\xfe.bin".to_owned());
            all
        };

        let status: Status = turn.reply(calls::status(ROOT, ""));
        assert_eq!(status.untrusted_untracked.len(), ODD.len() + 1);
        assert_eq!(names(&status.untrusted_untracked), all());
        let escaped = |path: &&PathText| matches!(path, PathText::Escaped { .. });
        assert_eq!(status.untrusted_untracked.iter().filter(escaped).count(), 1);

        clone.commit_all("Odd names");
        for name in ODD {
            clone.write(name, "changed\n");
        }
        let status: Status = turn.reply(calls::status(ROOT, ""));
        let changed: Vec<_> = status.untrusted_unstaged.iter().map(|c| c.path.clone()).collect();
        assert_eq!(names(&changed), expected);
        let diff: Diff = turn.reply(calls::diff(ROOT, "", ""));
        let stats: Vec<_> = diff.untrusted_files.iter().map(|f| f.path.clone()).collect();
        assert_eq!(names(&stats), expected);
        for name in ODD.iter().filter(|name| !name.contains(['\n', '\t'])) {
            let text: FileText = turn.reply(calls::read(ROOT, name));
            assert_eq!(text.untrusted_text.as_str(), "changed\n");
            let one: Diff = turn.reply(calls::diff(ROOT, "", name));
            assert_eq!(names(&[one.untrusted_files[0].path.clone()]).len(), 1);
            let log: Log = turn.reply(calls::log(ROOT, "", name, 20));
            assert_eq!(log.untrusted_commits.len(), 1, "{name:?}");
        }
    }
}

#[test]
fn b29_an_arrow_in_a_name_is_no_rename() {
    for git in installed() {
        let world = World::builder().git(&git).file("a -> b.txt", "text\n").build();
        let turn = world.turn("Owner");
        let clone = world.clone_dir();
        clone.commit_file("trail ", "x\n", "A name that ends in a space");
        clone.git(&["mv", "a -> b.txt", "c -> d.txt"]);
        std::fs::remove_file(clone.path("trail ")).expect("it is there");
        let status: Status = turn.reply(calls::status(ROOT, ""));
        let renamed = &status.untrusted_staged[0];
        assert_eq!(renamed.kind, ChangeKind::Renamed);
        assert_eq!(renamed.path.as_str(), "c -> d.txt");
        assert_eq!(renamed.from.as_ref().expect("it was renamed").as_str(), "a -> b.txt");
        assert_eq!(status.untrusted_unstaged[0].path.as_str(), "trail ");
    }
}

#[test]
fn settings_of_the_repository_change_no_answer() {
    for git in installed() {
        let world = World::builder().git(&git).build();
        let turn = world.turn("Owner");
        let clone = world.clone_dir();
        clone.write("plans/bücher.md", "x\n");
        clone.commit_all("A name");
        clone.git(&["mv", "plans/two.md", "plans/2.md"]);
        clone.write("plans/bücher.md", "y\n\u{20}\u{20}\n");
        clone.write("new/deep/file.md", "x\n");
        let ask = || -> (Status, Diff, Diff, Log, ShownCommit, Branches) {
            (
                turn.reply(calls::status(ROOT, "")),
                turn.reply(calls::diff(ROOT, "", "")),
                turn.reply(calls::diff(ROOT, "staged", "")),
                turn.reply(calls::log(ROOT, "", "", 20)),
                turn.reply(calls::show(ROOT, "HEAD", "")),
                turn.reply(calls::branches(ROOT, "")),
            )
        };
        let expected = ask();
        assert_eq!(names(&expected.0.untrusted_untracked), ["new/deep/file.md".to_owned()].into());
        let config = clone.text(".git/config");
        let settings = [
            "[core]\n\tquotePath = true\n",
            "[core]\n\tquotePath = false\n\tpager = false\n",
            "[status]\n\trelativePaths = false\n\tshowUntrackedFiles = no\n\tshort = true\n\tbranch = true\n\trenames = false\n",
            "[color]\n\tui = always\n\tstatus = always\n\tdiff = always\n\tbranch = always\n",
            "[diff]\n\tnoprefix = true\n\tmnemonicPrefix = true\n\trenames = false\n\tcontext = 0\n\tinterHunkContext = 9\n\talgorithm = patience\n\tcolorMoved = zebra\n\twordRegex = .\n\trelative = true\n\tstatNameWidth = 1\n",
            "[diff]\n\tsrcPrefix = x/\n\tdstPrefix = y/\n\tsuppressBlankEmpty = true\n\tindentHeuristic = false\n\torderFile = .git/order\n\tsubmodule = log\n\twsErrorHighlight = all\n",
            "[log]\n\tdate = relative\n\tabbrevCommit = true\n\tdecorate = full\n\tfollow = true\n\tshowRoot = false\n\texcludeDecoration = x\n",
            "[format]\n\tpretty = oneline\n[branch]\n\tsort = -committerdate\n[tag]\n\tsort = x\n",
            "[core]\n\tcommentChar = x\n\twhitespace = cr-at-eol\n\tnotesRef = refs/notes/x\n[column]\n\tui = always\n",
        ];
        clone.write(".git/order", "*.md\n");
        for text in settings {
            clone.write(".git/config", format!("{config}{text}"));
            assert_eq!(ask(), expected, "{text}");
        }
    }
}

/// Every tool that reads git, on whatever is in the clone.
fn read_everything(turn: &Turn<'_>) {
    turn.reply::<Status>(calls::status(ROOT, ""));
    for spec in ["", "staged", "HEAD~1..HEAD"] {
        turn.reply::<Diff>(calls::diff(ROOT, spec, ""));
        turn.reply::<Diff>(calls::diff(ROOT, spec, "plans"));
    }
    for (range, path) in [("", ""), ("HEAD~1..HEAD", ""), ("", "plans/one.md")] {
        turn.reply::<Log>(calls::log(ROOT, range, path, 20));
    }
    for rev in ["HEAD", "main~1"] {
        turn.reply::<ShownCommit>(calls::show(ROOT, rev, ""));
    }
    turn.reply::<Branches>(calls::branches(ROOT, ""));
}

#[test]
fn reading_changes_not_a_byte_not_even_of_a_stale_index() {
    for git in installed() {
        let world = World::builder().git(&git).build();
        let clone = world.clone_dir();
        clone.commit_file("plans/one.md", "changed\n", "Change");
        clone.write("plans/two.md", "staged\n");
        clone.git(&["add", "plans/two.md"]);
        clone.write("plans/two.md", "not staged\n");
        clone.write("untracked.md", "x\n");
        // The index no longer knows README.md by its time: plain git would write that down.
        let touch = |path: &str| {
            let file = std::fs::File::options().append(true).open(clone.path(path));
            let file = file.expect("it is there");
            file.set_modified(std::time::SystemTime::UNIX_EPOCH).expect("it is ours");
        };
        touch("README.md");
        let before = Snapshot::of(clone.dir());
        read_everything(&world.turn("Owner"));
        before.assert_same(&Snapshot::of(clone.dir()), "reading");
        // The control: plain git does refresh it.
        clone.git(&["status"]);
        let index = |snapshot: Snapshot| snapshot.without("README.md");
        let plain = index(Snapshot::of(clone.dir()));
        let same = std::panic::catch_unwind(|| index(before).assert_same(&plain, "git status"));
        assert!(same.is_err(), "the index was not stale");
    }
}

/// What is no revision here, though git would take some of it.
const INVALID: &[&str] = &[
    "-p",
    "--all",
    "--no-index",
    "-",
    "",
    " ",
    " HEAD",
    "HEAD ",
    "HEAD\0",
    "HEAD\n",
    "HEAD:README.md",
    "HEAD:../../etc/passwd",
    ":README.md",
    ":/Change",
    "HEAD^{/Change}",
    "HEAD^{tree}",
    "HEAD@{1}",
    "@{-1}",
    "@{u}",
    "main@{upstream}",
    "../../../../etc/passwd",
    "^HEAD",
    "HEAD^@",
    "HEAD^!",
    "HEAD...main",
];

#[test]
fn b13_a_revision_is_neither_an_option_nor_a_range_nor_a_path() {
    let world = World::new_plain();
    let turn = world.turn("Owner");
    let clone = world.clone_dir();
    clone.commit_file("plans/one.md", "changed\n", "Change");
    let out = world.markers().join("out");
    let output = format!("--output={}", out.display());
    let before = Snapshot::of(clone.dir());
    for rev in INVALID.iter().copied().chain([output.as_str()]) {
        turn.refused_by(Code::InvalidRevision, calls::show(ROOT, rev, ""));
        if !rev.is_empty() {
            turn.refused_by(Code::InvalidRevision, calls::log(ROOT, rev, "", 20));
            turn.refused_by(Code::InvalidRevision, calls::diff(ROOT, rev, ""));
        }
        for range in [format!("HEAD..{rev}"), format!("{rev}..HEAD")] {
            turn.refused_by(Code::InvalidRevision, calls::log(ROOT, &range, "", 20));
            turn.refused_by(Code::InvalidRevision, calls::diff(ROOT, &range, ""));
        }
    }
    turn.refused_by(Code::InvalidRevision, calls::show(ROOT, "HEAD~1..HEAD", ""));
    turn.refused_by(Code::InvalidRevision, calls::diff(ROOT, "HEAD", ""));
    let blob = clone.git(&["rev-parse", "HEAD:README.md"]);
    for rev in ["nowhere", "HEAD~99", "HEAD^9", "0000000", "deadbeefdeadbeef", blob.as_str()] {
        turn.refused_by(Code::UnknownRevision, calls::show(ROOT, rev, ""));
    }
    before.assert_same(&Snapshot::of(clone.dir()), "a revision");
    assert!(!out.exists());
    clone.git(&["tag", "v1", "HEAD~1"]);
    let short = clone.git(&["rev-parse", "--short", "HEAD"]);
    for rev in ["HEAD", "main", "refs/heads/main", "v1", "HEAD~1", "HEAD^", "main^1~0", &short] {
        let shown: ShownCommit = turn.reply(calls::show(ROOT, rev, ""));
        assert_eq!(shown.hash, clone.git(&["rev-parse", &format!("{rev}^{{commit}}")]));
    }
}

#[test]
fn b13_a_path_is_neither_an_option_nor_a_pattern() {
    let world = World::new_plain();
    let turn = world.turn("Owner");
    world.clone_dir().commit_file("plans/one.md", "changed\n", "Change");
    for path in ["--output=x", "-p", ":(exclude)plans", ":/", "*", "../README.md"] {
        if path.starts_with("..") || path == ":/" {
            turn.refused_by(Code::InvalidPath, calls::log(ROOT, "", path, 20));
            turn.refused_by(Code::InvalidPath, calls::diff(ROOT, "HEAD~1..HEAD", path));
        } else {
            // A path is a path: none of these is there.
            let log: Log = turn.reply(calls::log(ROOT, "", path, 20));
            assert_eq!(log.untrusted_commits, [], "{path}");
            let diff: Diff = turn.reply(calls::diff(ROOT, "HEAD~1..HEAD", path));
            assert_eq!(diff.untrusted_files, [], "{path}");
        }
    }
    let log: Log = turn.reply(calls::log(ROOT, "", "plans", 20));
    assert_eq!(log.untrusted_commits.len(), 2);
}

#[test]
fn what_a_budget_cuts_off_can_be_read_on() {
    let world = World::builder().limit("maxBytes", 2000).build();
    let turn = world.turn("Owner");
    let clone = world.clone_dir();
    let text: String = (0..400).map(|n| format!("Zeile {n}: größer\n")).collect();
    clone.commit_file("long.md", &text, "Long");
    let shown: ShownCommit = turn.reply(calls::show(ROOT, "HEAD", ""));
    let expected = format!("{}\n", clone.git(&["diff", "--full-index", "HEAD~1", "HEAD"]));
    let mut read = shown.untrusted_diff.text.0;
    assert!(read.len() <= 2000, "{}", read.len());
    let cut = shown.untrusted_diff.cut.expect("it is longer");
    assert_eq!((cut.next_offset, cut.size), (read.len() as u64, expected.len() as u64));
    let mut next = Some(cut.next_offset);
    while let Some(offset) = next {
        let page: OutputPage = turn.reply(calls::read_output(&cut.handle, offset));
        assert!(page.untrusted_text.as_str().len() <= 2000);
        read.push_str(page.untrusted_text.as_str());
        next = page.next_offset;
    }
    assert_eq!(read, expected);
    // The statistics are whole in any case.
    assert_eq!(shown.untrusted_files[0].added, Some(400));
}

#[test]
fn a_log_is_bounded() {
    let world = World::new_plain();
    let turn = world.turn("Owner");
    for n in 0..25 {
        world.clone_dir().commit_file("plans/one.md", n.to_string(), &format!("Commit {n}"));
    }
    let log: Log = turn.reply(calls::log(ROOT, "", "", 20));
    assert_eq!((log.untrusted_commits.len(), log.truncated), (20, true));
    let log: Log = turn.reply(calls::log(ROOT, "", "", 1000));
    assert_eq!((log.untrusted_commits.len(), log.truncated), (26, false));
}

#[test]
fn credentials_in_the_history_are_masked() {
    let world = World::new_plain();
    let turn = world.turn("Owner");
    let clone = world.clone_dir();
    let token = format!("ghp_{}", "a1B2c3D4e5F6".repeat(3));
    let text = format!("see https://bot:hunter22@git.example.com/x.git\n{token}\n");
    clone.commit_file("plans/one.md", &text, &format!("Message {token}"));
    clone.write("plans/two.md", &text);
    clone.add_config("[branch \"side\"]\n\tdescription = x\n");
    let shown = [
        format!("{:?}", turn.reply::<Diff>(calls::diff(ROOT, "", ""))),
        format!("{:?}", turn.reply::<Log>(calls::log(ROOT, "", "", 20))),
        format!("{:?}", turn.reply::<ShownCommit>(calls::show(ROOT, "HEAD", ""))),
        format!("{:?}", turn.reply::<Branches>(calls::branches(ROOT, ""))),
    ];
    for shown in shown {
        assert!(!shown.contains(&token) && !shown.contains("hunter22"), "{shown}");
    }
}

#[test]
fn a_repository_before_its_first_commit_can_be_read() {
    let world = World::builder().home().build();
    let turn = world.turn("Owner");
    let home = world.repo("home");
    home.git(&["init", "-q", "-b", "trunk", "."]);
    home.write("a.md", "a\n");
    home.write("b.md", "b\n");
    home.git(&["add", "a.md"]);
    let status: Status = turn.reply(calls::status("home", ""));
    assert_eq!(status.untrusted_branch.as_ref().expect("it has one").as_str(), "trunk");
    assert_eq!((status.head, status.ahead), (None, None));
    assert_eq!(status.untrusted_staged[0].kind, ChangeKind::Added);
    let staged: Diff = turn.reply(calls::diff("home", "staged", ""));
    assert_eq!(staged.untrusted_files[0].added, Some(1));
    assert_eq!(turn.reply::<Log>(calls::log("home", "", "", 20)).untrusted_commits, []);
    assert_eq!(turn.reply::<Branches>(calls::branches("home", "")).untrusted_branches, []);
    turn.refused_by(Code::UnknownRevision, calls::show("home", "HEAD", ""));
}
