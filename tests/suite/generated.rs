//! Repositories made by throws of dice, to compare Sage's answers with git's.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt, symlink};

use harness::dice::Dice;
use harness::git::Repo;

/// Names to make files of: plain ones, folders, odd ones, and one that is ignored.
const NAMES: &[&str] = &[
    "a.md",
    "b.md",
    "dir/a.md",
    "dir/b.md",
    "dir/sub/c.md",
    "dir.md",
    "other/a.md",
    "crlf.txt",
    "bücher.txt",
    "文件.md",
    " lead",
    "a -> b",
    "q\"uote",
    "bin.dat",
    "noise.log",
    "-dash",
    "[x]*?",
    "new\nline.md",
    "tab\tin.md",
    "link",
];

/// A name that is not UTF-8.
const RAW_NAME: &[u8] = b"raw-\xff\xfe.md";

const WORDS: &[&str] = &["plan", "goal", "risk", "step", "größer", "", "  indented", "end"];

/// A repository that grows.
pub(crate) struct Generated {
    pub(crate) repo: Repo,
    dice: Dice,
    now: u64,
    branches: u64,
}

impl Generated {
    /// Makes one in an empty folder.
    pub(crate) fn new(repo: Repo, seed: u64) -> Self {
        std::fs::create_dir_all(repo.dir()).expect("it can be made");
        repo.git(&["init", "-q", "-b", "main", "."]);
        repo.write(".gitignore", "*.log\n/other/ignored\n");
        repo.write(".gitattributes", "*.txt text eol=crlf\n*.dat binary\n");
        let mut made = Self { repo, dice: Dice::new(seed), now: 1_700_000_000, branches: 0 };
        for _ in 0..6 {
            made.write();
        }
        made.commit();
        let steps = 8 + made.dice.below(18);
        for _ in 0..steps {
            made.step();
        }
        made.set_upstream();
        made.take_shape();
        // What is left uncommitted.
        for _ in 0..made.dice.below(8) {
            made.change();
        }
        made
    }

    /// What a repository can be beside plain.
    fn take_shape(&mut self) {
        match self.dice.below(14) {
            0 => self.conflict(&["merge", "-q"]),
            1 => self.conflict(&["cherry-pick"]),
            2 => self.conflict(&["rebase", "-q"]),
            3 => self.linked(),
            4 => self.sparse(),
            5 => self.submodule(),
            6 => self.unborn(),
            7 => self.detached(),
            8 => self.intent_to_add(),
            _ => {}
        }
    }

    /// Two sides that change, delete and add the same files, stopped half way.
    fn conflict(&mut self, how: &[&str]) {
        let name = self.repo.git(&["symbolic-ref", "--short", "HEAD"]);
        for path in ["fight.md", "gone.md"] {
            self.repo.write(path, "before\n");
        }
        self.commit();
        self.repo.git(&["checkout", "-q", "-b", "side"]);
        self.repo.write("fight.md", "theirs\n");
        self.repo.write("both.md", "theirs\n");
        std::fs::remove_file(self.repo.path("gone.md")).expect("it is ours");
        self.commit();
        self.repo.git(&["checkout", "-q", &name]);
        self.repo.write("fight.md", "ours\n");
        self.repo.write("both.md", "ours\n");
        self.repo.write("gone.md", "changed\n");
        self.commit();
        let stopped = self.repo.try_git(&[how, &["side"]].concat());
        assert!(!stopped.status.success(), "there is no conflict: {stopped:?}");
    }

    /// From here on, what is looked at is a linked worktree.
    fn linked(&mut self) {
        let name = self.repo.dir().file_name().expect("it has a name").to_owned();
        let beside = format!("{}-linked", name.to_string_lossy());
        let to = self.repo.dir().with_file_name(beside);
        let to_text = to.to_str().expect("it is UTF-8").to_owned();
        self.repo.git(&["worktree", "add", "-q", "-b", "linked", &to_text]);
        self.repo = self.repo.beside(to);
    }

    fn sparse(&mut self) {
        self.repo.git(&["config", "core.sparseCheckout", "true"]);
        self.repo.write(".git/info/sparse-checkout", "/*\n!/dir/\n/dir/sub/\n");
        self.repo.git(&["read-tree", "-m", "-u", "HEAD"]);
    }

    /// An entry of a submodule, with and without its folder.
    fn submodule(&mut self) {
        let commit = self.repo.git(&["rev-parse", "HEAD"]);
        for path in ["sub", "other/sub"] {
            let entry = format!("160000,{commit},{path}");
            self.repo.git(&["update-index", "--add", "--cacheinfo", &entry]);
            std::fs::create_dir_all(self.repo.path(path)).expect("it is ours");
        }
        self.dated(&["commit", "-q", "-m", "Submodules"]);
        let other = self.repo.git(&["rev-parse", "HEAD"]);
        let entry = format!("160000,{other},sub");
        self.repo.git(&["update-index", "--cacheinfo", &entry]);
    }

    fn unborn(&mut self) {
        self.repo.git(&["checkout", "-q", "--orphan", "unborn"]);
    }

    fn detached(&mut self) {
        let commit = self.some_commit();
        self.repo.git(&["checkout", "-q", "--detach", &commit]);
    }

    fn intent_to_add(&mut self) {
        for path in ["intended.md", "dir/intended.md"] {
            self.repo.write(path, "not yet\n");
            self.repo.git(&["add", "--intent-to-add", "--", path]);
        }
    }

    fn step(&mut self) {
        match self.dice.below(12) {
            0 => self.branch(),
            1 => self.merge(),
            2 => self.tag(),
            3..=6 => {
                self.change();
                self.commit();
            }
            _ => self.change(),
        }
    }

    fn change(&mut self) {
        match self.dice.below(10) {
            0 => self.delete(),
            1 => self.rename(),
            2 => self.mode(),
            3 => self.link(),
            4 => self.stage_some(),
            5 => self.append(),
            6 => self.write_raw(),
            _ => self.write(),
        }
    }

    /// A file whose name no tool takes.
    fn write_raw(&mut self) {
        let text = self.text();
        std::fs::write(self.repo.path(OsStr::from_bytes(RAW_NAME)), text).expect("it is ours");
    }

    fn name(&mut self) -> &'static str {
        self.dice.pick(NAMES)
    }

    fn tracked(&mut self) -> Option<String> {
        let listed = self.repo.git_bytes(&["ls-files", "-z"]);
        let listed: Vec<String> = listed
            .split(|byte| *byte == 0)
            .filter(|name| !name.is_empty() && !name.starts_with(b"."))
            .map(|name| String::from_utf8_lossy(name).into_owned())
            .collect();
        (!listed.is_empty()).then(|| self.dice.pick(&listed))
    }

    fn text(&mut self) -> String {
        let lines = self.dice.below(30);
        let end = if self.dice.once_in(5) { "" } else { "\n" };
        let lines: Vec<&str> = (0..lines).map(|_| self.dice.pick(WORDS)).collect();
        lines.join("\n") + end
    }

    fn write(&mut self) {
        let name = self.name();
        let path = self.repo.path(name);
        // A link or a folder in the way is gone first.
        if path.is_symlink() {
            std::fs::remove_file(&path).expect("it is ours");
        }
        if path.is_dir() {
            return;
        }
        let mut bytes = self.text().into_bytes();
        if name == "bin.dat" {
            bytes.push(0);
        }
        if name == "crlf.txt" && self.dice.once_in(2) {
            bytes = String::from_utf8_lossy(&bytes).replace('\n', "\r\n").into_bytes();
        }
        self.repo.write(name, bytes);
    }

    fn append(&mut self) {
        let Some(name) = self.tracked() else { return };
        let path = self.repo.path(&name);
        if path.is_file() && !path.is_symlink() {
            let mut bytes = self.repo.read(&name);
            bytes.extend_from_slice(self.dice.pick(WORDS).as_bytes());
            bytes.push(b'\n');
            self.repo.write(&name, bytes);
        }
    }

    fn delete(&mut self) {
        let Some(name) = self.tracked() else { return };
        let _ = std::fs::remove_file(self.repo.path(name));
    }

    fn rename(&mut self) {
        let (Some(from), n) = (self.tracked(), self.dice.below(1000)) else { return };
        let to = format!("moved/{n}.md");
        if self.repo.path(&from).symlink_metadata().is_ok() {
            std::fs::create_dir_all(self.repo.path("moved")).expect("it is ours");
            self.repo.try_git(&["mv", "--", &from, &to]);
        }
    }

    fn mode(&mut self) {
        let Some(name) = self.tracked() else { return };
        let path = self.repo.path(name);
        if path.is_file() && !path.is_symlink() {
            let bits = if self.dice.once_in(2) { 0o755 } else { 0o644 };
            let to = std::fs::Permissions::from_mode(bits);
            std::fs::set_permissions(path, to).expect("it is ours");
        }
    }

    fn link(&mut self) {
        let path = self.repo.path("link");
        let _ = std::fs::remove_file(&path);
        let to = self.dice.pick(NAMES);
        symlink(to, path).expect("it can be made");
    }

    fn stage_some(&mut self) {
        if let Some(name) = self.tracked() {
            self.repo.try_git(&["add", "--", &name]);
        }
        let name = self.name();
        self.repo.try_git(&["add", "--", name]);
    }

    /// Every commit has a second of its own; now and then the clock was wrong.
    fn dated(&mut self, arguments: &[&str]) {
        self.now += 1 + self.dice.below(1000);
        let skew = if self.dice.once_in(8) { self.dice.below(100_000) } else { 0 };
        let zone = self.dice.pick(&["+0000", "+0200", "-0330"]);
        let date = format!("{} {zone}", self.now - skew);
        let mut command = self.repo.command(arguments);
        command.env("GIT_AUTHOR_DATE", &date).env("GIT_COMMITTER_DATE", &date);
        let output = command.output().expect("git starts");
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }

    fn commit(&mut self) {
        self.repo.git(&["add", "--all"]);
        let n = self.dice.below(1000);
        let message = match self.dice.below(5) {
            0 => format!("One line {n}\nand a second one\n\nThen a body.\n"),
            1 => format!("\n\n  Spaces around {n}  \n\nBody\n\nKey: value\n"),
            2 => format!("Größer {n} 文"),
            _ => format!("Change {n}\n"),
        };
        let cleanup = "--cleanup=verbatim";
        self.dated(&["commit", "-q", "--allow-empty", cleanup, "-m", &message]);
    }

    fn branch(&mut self) {
        self.commit();
        self.branches += 1;
        let name = format!("branch/{}", self.branches);
        self.repo.git(&["branch", &name]);
        if self.dice.once_in(2) {
            self.repo.git(&["checkout", "-q", &name]);
        }
    }

    fn merge(&mut self) {
        self.commit();
        let listed = self.repo.git(&["for-each-ref", "--format=%(refname:short)", "refs/heads"]);
        let names: Vec<&str> = listed.lines().collect();
        let name = self.dice.pick(&names).to_owned();
        self.now += 1;
        let date = format!("{} +0000", self.now);
        let arguments = ["merge", "-q", "--no-ff", "-X", "ours", "-m", "Merge", &name];
        let mut command = self.repo.command(&arguments);
        command.env("GIT_AUTHOR_DATE", &date).env("GIT_COMMITTER_DATE", &date);
        if !command.output().expect("git starts").status.success() {
            self.repo.try_git(&["merge", "--abort"]);
            self.repo.git(&["reset", "-q", "--hard"]);
        }
    }

    fn tag(&mut self) {
        let n = self.dice.below(1000);
        self.repo.git(&["tag", "-f", "-a", "-m", "A tag", &format!("v{n}")]);
    }

    /// The upstream is some commit that is here.
    fn set_upstream(&mut self) {
        self.commit();
        let branch = self.repo.git(&["symbolic-ref", "--short", "HEAD"]);
        let all = self.repo.git(&["rev-list", "--all"]);
        let all: Vec<&str> = all.lines().collect();
        let tracking = format!("refs/remotes/origin/{branch}");
        self.repo.git(&["update-ref", &tracking, self.dice.pick(&all)]);
        self.repo.git(&["config", "remote.origin.url", "/nowhere.git"]);
        let refspec = "+refs/heads/*:refs/remotes/origin/*";
        self.repo.git(&["config", "remote.origin.fetch", refspec]);
        self.repo.git(&["config", &format!("branch.{branch}.remote"), "origin"]);
        let merge = format!("refs/heads/{branch}");
        self.repo.git(&["config", &format!("branch.{branch}.merge"), &merge]);
        if self.dice.once_in(2) {
            self.repo.git(&["pack-refs", "--all"]);
        }
        if self.dice.once_in(3) {
            self.repo.git(&["gc", "-q"]);
        }
    }

    /// A commit that is here.
    pub(crate) fn some_commit(&mut self) -> String {
        let all = self.repo.git(&["rev-list", "--all"]);
        let all: Vec<&str> = all.lines().collect();
        self.dice.pick(&all).to_owned()
    }

    /// A path that can be asked about, whether it is there or not.
    pub(crate) fn some_path(&mut self) -> String {
        let mut file = self.name();
        while file.contains(['\n', '\t']) {
            file = self.name();
        }
        self.dice.pick(&["dir", "dir/sub", "other", "moved", file]).to_owned()
    }
}
