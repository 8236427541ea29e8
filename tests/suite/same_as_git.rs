//! The same answers as git (D7): generated repositories, asked through Sage and through the installed
//! git's porcelain.

use std::collections::BTreeSet;

use harness::calls;
use harness::git::{Repo, installed};
use harness::snapshot::Snapshot;
use harness::turn::Turn;
use harness::world::World;
use protocol::reply::{
    Branches, Change, Diff, FileStat, Log, Operation, PathText, ShownCommit, Status, Untrusted,
};

use crate::generated::Generated;

const HOME: &str = "home";

/// How many repositories per git; `SAGE_TEST_REPOSITORIES` says otherwise.
fn repositories() -> u64 {
    let asked = std::env::var("SAGE_TEST_REPOSITORIES").ok();
    asked.map_or(32, |number| number.parse().expect("SAGE_TEST_REPOSITORIES is a number"))
}

#[test]
fn generated_repositories_look_the_same_with_the_first_git() {
    looks_the_same(&installed()[0], 1000);
}

#[test]
fn generated_repositories_look_the_same_with_the_last_git() {
    let gits = installed();
    looks_the_same(&gits[gits.len() - 1], 2000);
}

fn looks_the_same(git: &std::path::Path, seed: u64) {
    let world = World::builder().git(git).home().limit("maxBytes", 1 << 20).build();
    // Seeds that once showed a difference come first.
    let kept = [1026, 1108, 2004];
    let fresh = (seed..seed + repositories()).filter(|n| !kept.contains(n));
    for n in kept.into_iter().chain(fresh) {
        let folder = format!("r{n}");
        let mut made = Generated::new(world.repo(&format!("home/{folder}")), n);
        let turn = world.turn("Owner");
        let folder = made.repo.dir().file_name().expect("it has a name");
        let folder = folder.to_string_lossy().into_owned();
        let ask = Ask { turn: &turn, folder: &folder, repo: made.repo.clone(), seed: n };
        ask.refresh();
        let before = Snapshot::of(ask.repo.dir());
        ask.status();
        // Against our side where a path is in conflict: see docs/git-differences.md.
        ask.diff("", &["diff", "--ours"]);
        ask.diff("staged", &["diff", "--cached"]);
        ask.branches();
        let born = ask.repo.try_git(&["rev-parse", "--verify", "-q", "HEAD"]).status.success();
        if !born {
            let log: Log = turn.reply(calls::log(HOME, "", &folder, 100));
            assert_eq!(log.untrusted_commits.len(), 0, "seed {n}");
            continue;
        }
        ask.log("", "", &[]);
        for _ in 0..3 {
            let (from, to, path) = (made.some_commit(), made.some_commit(), made.some_path());
            let range = format!("{from}..{to}");
            ask.log(&range, "", &[&range]);
            ask.log("", &path, &["--", &path]);
            ask.log(&range, &path, &[&range, "--", &path]);
            ask.diff(&range, &["diff", &from, &to]);
            ask.show(&to);
        }
        before.assert_same(&Snapshot::of(ask.repo.dir()), &format!("reading seed {n}"));
    }
}

/// One repository, asked both ways.
struct Ask<'a> {
    turn: &'a Turn<'a>,
    folder: &'a str,
    repo: Repo,
    seed: u64,
}

type Row = (char, String, Option<String>);

fn rows(changes: &[Change]) -> BTreeSet<Row> {
    let from = |change: &Change| change.from.as_ref().map(|from| from.as_str().to_owned());
    let row = |c: &Change| (c.kind.letter(), c.path.as_str().to_owned(), from(c));
    changes.iter().map(row).collect()
}

fn names(paths: &[PathText]) -> BTreeSet<String> {
    paths.iter().map(|path| path.as_str().to_owned()).collect()
}

fn nul_fields(bytes: &[u8]) -> Vec<String> {
    let text = |field: &[u8]| PathText::from_bytes(field).as_str().to_owned();
    let mut fields: Vec<String> = bytes.split(|byte| *byte == 0).map(text).collect();
    fields.pop();
    fields
}

/// `git diff --numstat -z -M`, as `(path, from, counts)`.
fn numstat(output: &[u8]) -> Vec<(String, Option<String>, String)> {
    let mut fields = nul_fields(output).into_iter();
    let mut found = Vec::new();
    while let Some(field) = fields.next() {
        let mut parts = field.splitn(3, '\t');
        let counts = format!("{:?} {:?}", parts.next(), parts.next());
        let path = parts.next().unwrap_or_default().to_owned();
        if path.is_empty() {
            let from = fields.next();
            found.push((fields.next().unwrap_or_default(), from, counts));
        } else {
            found.push((path, None, counts));
        }
    }
    found
}

fn stats(files: &[FileStat]) -> Vec<(String, Option<String>, String)> {
    let shown = |count: Option<u64>| count.map_or("-".to_owned(), |count| count.to_string());
    let row = |file: &FileStat| {
        let counts = format!("{:?} {:?}", Some(shown(file.added)), Some(shown(file.removed)));
        (file.path.as_str().to_owned(), file.from.as_ref().map(|f| f.as_str().to_owned()), counts)
    };
    files.iter().map(row).collect()
}

/// git 2.39 writes UTC as `+00:00`, later ones as `Z`.
fn as_z(line: &str) -> String {
    line.replace("+00:00", "Z")
}

impl Ask<'_> {
    /// Plain git may refresh the index only before the snapshot.
    fn refresh(&self) {
        self.repo.git(&["status", "--porcelain"]);
    }

    /// Plain git that changes nothing either.
    fn git(&self, arguments: &[&str]) -> Vec<u8> {
        let keep = ["-c", "diff.autoRefreshIndex=false"];
        let mut command = self.repo.command(&[&keep[..], arguments].concat());
        let output = command.env("GIT_OPTIONAL_LOCKS", "0").output().expect("git starts");
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        output.stdout
    }

    fn line(&self, arguments: &[&str]) -> String {
        String::from_utf8_lossy(&self.git(arguments)).trim_end_matches('\n').to_owned()
    }

    fn status(&self) {
        let status: Status = self.turn.reply(calls::status(HOME, self.folder));
        let porcelain = ["status", "--porcelain", "-z", "--untracked-files=all"];
        let mut fields = nul_fields(&self.git(&porcelain)).into_iter();
        let (mut staged, mut unstaged) = (BTreeSet::new(), BTreeSet::new());
        let (mut untracked, mut conflicted) = (BTreeSet::new(), BTreeSet::new());
        while let Some(field) = fields.next() {
            let (letters, path) = field.split_at(3);
            let letters: Vec<char> = letters.chars().collect();
            if letters[0] == '?' {
                untracked.insert(path.to_owned());
                continue;
            }
            if letters.contains(&'U') || letters[..2] == ['A', 'A'] || letters[..2] == ['D', 'D'] {
                conflicted.insert(path.to_owned());
                continue;
            }
            let moved = letters[..2].iter().any(|letter| matches!(letter, 'R' | 'C'));
            let from = moved.then(|| fields.next()).flatten();
            for (letter, list) in [(letters[0], &mut staged), (letters[1], &mut unstaged)] {
                if letter != ' ' {
                    let from = from.clone().filter(|_| matches!(letter, 'R' | 'C'));
                    list.insert((letter, path.to_owned(), from));
                }
            }
        }
        let seed = self.seed;
        assert_eq!(rows(&status.untrusted_staged), staged, "seed {seed}");
        assert_eq!(rows(&status.untrusted_unstaged), unstaged, "seed {seed}");
        assert_eq!(names(&status.untrusted_untracked), untracked, "seed {seed}");
        assert_eq!(names(&status.untrusted_conflicted), conflicted, "seed {seed}");
        let clean = [&untracked, &conflicted].iter().all(|paths| paths.is_empty())
            && [&staged, &unstaged].iter().all(|rows| rows.is_empty());
        assert_eq!(status.clean, clean, "seed {seed}");
        self.heads(&status);
    }

    fn heads(&self, status: &Status) {
        let seed = self.seed;
        let text = |text: &Option<Untrusted>| text.as_ref().map(|text| text.as_str().to_owned());
        let branch = self.if_there_is(&["symbolic-ref", "-q", "--short", "HEAD"]);
        assert_eq!(text(&status.untrusted_branch), branch, "seed {seed}");
        let head = self.if_there_is(&["rev-parse", "-q", "--verify", "HEAD"]);
        assert_eq!(status.head, head, "seed {seed}");
        let upstream = self.if_there_is(&["rev-parse", "--abbrev-ref", "@{u}"]);
        assert_eq!(text(&status.untrusted_upstream), upstream, "seed {seed}");
        let counts = self.if_there_is(&["rev-list", "--left-right", "--count", "HEAD...@{u}"]);
        let shown = status.ahead.zip(status.behind);
        let shown = shown.map(|(ahead, behind)| format!("{ahead}\t{behind}"));
        assert_eq!(shown, counts, "seed {seed}");
        let under_way = |name: &str| self.if_there_is(&["rev-parse", "-q", "--verify", name]);
        // Each leaves a ref of its own; while a rebase is stopped, its commit counts as picked.
        let operation = match status.operation {
            Some(Operation::Merge) => under_way("MERGE_HEAD"),
            Some(Operation::CherryPick) => under_way("CHERRY_PICK_HEAD"),
            Some(Operation::Rebase) => under_way("REBASE_HEAD"),
            other => other.map(|operation| operation.as_str().to_owned()),
        };
        let stopped = !status.untrusted_conflicted.is_empty();
        assert_eq!(operation.is_some(), stopped, "seed {seed}: {:?}", status.operation);
    }

    /// A line that git only has when there is something to say.
    fn if_there_is(&self, arguments: &[&str]) -> Option<String> {
        let output = self.repo.try_git(arguments);
        let line = String::from_utf8_lossy(&output.stdout).trim_end_matches('\n').to_owned();
        output.status.success().then_some(line)
    }

    fn diff(&self, spec: &str, git: &[&str]) {
        let diff: Diff = self.turn.reply(calls::diff(HOME, spec, self.folder));
        let what = format!("seed {}, {spec:?}", self.seed);
        let counts = self.git(&[git, &["--numstat", "-z", "-M"]].concat());
        let mut expected = numstat(&counts);
        // git says of an unmerged path once more that it is one; here that is in the status.
        for path in
            nul_fields(&self.git(&[git, &["--name-only", "--diff-filter=U", "-z"]].concat()))
        {
            let unmerged = (path, None, "Some(\"0\") Some(\"0\")".to_owned());
            let at = expected.iter().position(|row| *row == unmerged);
            expected.remove(at.expect("git counts it"));
        }
        assert_eq!(stats(&diff.untrusted_files), expected, "{what}");
        let unquoted = &["-c", "core.quotePath=false"];
        let patch = self.git(&[unquoted, git, &["--full-index", "-M"]].concat());
        assert_eq!(diff.untrusted_diff.cut, None, "{what}");
        let shown = diff.untrusted_diff.text.as_str();
        assert_eq!(shown, String::from_utf8_lossy(&patch), "{what}");
    }

    fn log(&self, range: &str, path: &str, git: &[&str]) {
        let within = if path.is_empty() {
            self.folder.to_owned()
        } else {
            format!("{}/{path}", self.folder)
        };
        let log: Log = self.turn.reply(calls::log(HOME, range, &within, 100));
        let shown: Vec<String> = log
            .untrusted_commits
            .iter()
            .map(|c| {
                let (author, subject) = (c.author.as_str(), c.subject.as_str());
                format!("{}|{}|{author}|{}|{subject}", c.hash, c.short, c.date)
            })
            .collect();
        let format = ["log", "-n", "100", "--format=%H|%h|%an <%ae>|%aI|%s"];
        let expected = self.line(&[&format, git].concat());
        let expected: Vec<String> = expected.lines().map(as_z).collect();
        assert_eq!(shown, expected, "seed {}, log {range:?} {path:?}", self.seed);
    }

    fn show(&self, rev: &str) {
        let shown: ShownCommit = self.turn.reply(calls::show(HOME, rev, self.folder));
        let what = format!("seed {}, show {rev}", self.seed);
        let format = "--format=%H|%P|%an <%ae>|%aI";
        let expected = self.line(&["show", "--no-patch", format, rev]);
        let parents = shown.parents.join(" ");
        let author = shown.untrusted_author.as_str();
        let got = format!("{}|{parents}|{author}|{}", shown.hash, shown.date);
        assert_eq!(got, as_z(&expected), "{what}");
        let raw = self.git(&["cat-file", "commit", rev]);
        let raw = String::from_utf8_lossy(&raw);
        let (_, message) = raw.split_once("\n\n").expect("a commit has a message");
        assert_eq!(shown.untrusted_message.as_str(), message, "{what}");
        let empty = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";
        let parent = shown.parents.first().map_or(empty, String::as_str);
        let counts = self.git(&["diff", "--numstat", "-z", "-M", parent, rev]);
        assert_eq!(stats(&shown.untrusted_files), numstat(&counts), "{what}");
    }

    fn branches(&self) {
        let branches: Branches = self.turn.reply(calls::branches(HOME, self.folder));
        let shown: Vec<String> = branches
            .untrusted_branches
            .iter()
            .map(|branch| {
                let upstream = branch.upstream.as_ref().map_or("", |upstream| upstream.as_str());
                let (name, subject) = (branch.name.as_str(), branch.subject.as_str());
                format!("{name}|{upstream}|{}|{subject}", branch.hash)
            })
            .collect();
        let format = "--format=%(refname:short)|%(upstream:short)|%(objectname)";
        let listed = self.line(&["for-each-ref", format, "refs/heads"]);
        let subject = |line: &str| {
            let hash = line.rsplit('|').next().unwrap_or_default();
            format!("{line}|{}", self.line(&["show", "--no-patch", "--format=%s", hash]))
        };
        let expected: Vec<String> = listed.lines().map(subject).collect();
        assert_eq!(shown, expected, "seed {}", self.seed);
    }
}
