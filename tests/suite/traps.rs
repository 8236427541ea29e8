//! A trap in a repository: shown to fire in plain git first, then Sage walks over it.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use harness::calls::{self, ROOT};
use harness::git::{Repo, installed};
use harness::turn::Turn;
use harness::world::World;
use protocol::refusal::{Code, Outcome};
use protocol::tool::ToolCall;

/// What must become of a writing verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is done, and the trap does not fire.
    Done,
    /// It is refused by this rule.
    Refused(Code),
}

/// A trap. In its texts, `SCRIPT` stands for a program that leaves a mark, and `REMOTE` for the
/// remote's path.
pub(crate) struct Trap<'a> {
    /// Added to the repository's configuration.
    pub(crate) config: &'a str,
    /// Files of the clone. Those of the work tree are committed first, those in `.git` are not.
    pub(crate) files: &'a [(&'a str, &'a str)],
    /// Files of the clone that hold the script itself.
    pub(crate) scripts: &'a [&'a str],
    /// What fires it in plain git, in a copy of the clone.
    pub(crate) fires: &'a [&'a [&'a str]],
    /// What becomes of commit, pull and push.
    pub(crate) verdicts: [Verdict; 3],
}

impl Default for Trap<'_> {
    fn default() -> Self {
        Self { config: "", files: &[], scripts: &[], fires: &[], verdicts: [Verdict::Done; 3] }
    }
}

/// Every verb is refused by this rule.
pub(crate) fn refused(code: Code) -> [Verdict; 3] {
    [Verdict::Refused(code); 3]
}

/// A world with a trap in it.
pub(crate) struct Trapped {
    pub(crate) world: World,
    marker: PathBuf,
}

impl Trapped {
    pub(crate) fn new(world: World, trap: &Trap<'_>) -> Self {
        let marker = world.markers().join("fired");
        let trapped = Self { world, marker };
        let script = trapped.world.base().join("script");
        trapped.write_script(&script);
        let remote = trapped.world.base().join("remote.git");
        let put = |text: &str| {
            text.replace("SCRIPT", &script.display().to_string())
                .replace("REMOTE", &remote.display().to_string())
        };
        let clone = trapped.world.clone_dir();
        let (inside, tracked): (Vec<_>, Vec<_>) =
            trap.files.iter().partition(|(path, _)| path.starts_with(".git/"));
        for (path, text) in tracked {
            clone.write(path, put(text));
        }
        for path in trap.scripts {
            clone.write(path, "");
            trapped.write_script(&clone.path(path));
        }
        let quiet = ["-c", "core.hooksPath=/dev/null"];
        clone.git(&[&quiet[..], &["add", "--all"]].concat());
        clone.git(&[&quiet[..], &["commit", "-q", "--allow-empty", "-m", "Plant"]].concat());
        clone.git(&[&quiet[..], &["push", "-q", "origin", "main"]].concat());
        for (path, text) in inside {
            clone.write(path, put(text));
        }
        clone.add_config(&put(trap.config));
        clone.write("plans/one.md", "changed here\n");
        trapped.unfired("planting");
        trapped
    }

    /// The script leaves its mark and ends: one that reads could wait for git, and git for it.
    fn write_script(&self, path: &Path) {
        let text = format!("#!/bin/sh\ntouch '{}'\n", self.marker.display());
        std::fs::write(path, text).expect("it is ours");
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(path, executable).expect("it is ours");
    }

    /// Fires it in plain git, in a copy; then the mark is wiped.
    pub(crate) fn fire(&self, fires: &[&[&str]]) {
        let copy = self.copy();
        for arguments in fires {
            copy.try_git(arguments);
        }
        assert!(self.marker.exists(), "the trap does not even fire in plain git: {fires:?}");
        std::fs::remove_file(&self.marker).expect("it is there");
    }

    /// A copy of the clone, for plain git.
    pub(crate) fn copy(&self) -> Repo {
        self.world.clone_dir().copy(self.world.base().join("copy"))
    }

    pub(crate) fn unfired(&self, what: &str) {
        assert!(!self.marker.exists(), "{what} fired the trap");
    }

    /// Every tool that reads answers, and nothing fires.
    pub(crate) fn read(&self, turn: &Turn<'_>) {
        let reads = [
            calls::status(ROOT, ""),
            calls::diff(ROOT, "", ""),
            calls::diff(ROOT, "staged", ""),
            calls::diff(ROOT, "HEAD~1..HEAD", ""),
            calls::log(ROOT, "", "", 20),
            calls::log(ROOT, "", "plans/one.md", 20),
            calls::show(ROOT, "HEAD", ""),
            calls::branches(ROOT, ""),
        ];
        for call in reads {
            let shown = format!("{call:?}");
            let outcome = turn.call(call);
            assert!(matches!(outcome, Outcome::Reply(_)), "{shown}: {outcome:?}");
            self.unfired(&shown);
        }
    }

    /// A verb that writes is done or refused, and nothing fires.
    pub(crate) fn write(&self, turn: &Turn<'_>, call: ToolCall, verdict: Verdict) {
        let shown = format!("{call:?}");
        let outcome = turn.call(call);
        match (&outcome, verdict) {
            (Outcome::Reply(_), Verdict::Done) => {}
            (Outcome::Refusal(refusal), Verdict::Refused(code)) if refusal.code == code => {}
            _ => panic!("{shown} should be {verdict:?} and is {outcome:?}"),
        }
        self.unfired(&shown);
    }
}

/// Plants a trap, fires it in plain git, and walks over it with every tool, on every git.
pub(crate) fn walk_over(trap: &Trap<'_>) {
    for git in installed() {
        let trapped = Trapped::new(World::builder().git(&git).build(), trap);
        trapped.fire(trap.fires);
        let turn = trapped.world.turn("Owner");
        trapped.read(&turn);
        let [commit, pull, push] = trap.verdicts;
        let call = calls::commit(ROOT, "Over the trap", &["plans/one.md"]);
        trapped.write(&turn, call, commit);
        trapped.world.others_push("plans/two.md", "incoming\n");
        trapped.write(&turn, calls::pull(ROOT), pull);
        trapped.write(&turn, calls::push(ROOT), push);
    }
}
