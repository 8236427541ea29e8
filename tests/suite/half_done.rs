//! Each step of a commit, as a process that was killed there would leave it (the list at the head of
//! `executor/src/git/stage.rs`), made by hand; then the executor starts on it.

use std::path::{Path, PathBuf};

use harness::calls::{self, ROOT};
use harness::git::{Repo, installed};
use harness::snapshot::Snapshot;
use harness::world::World;
use protocol::reply::Committed;
use serde_json::{Value, json};

use crate::check::{self, commit_works};

const NONCE: &str = "0123456789abcdef";

/// A clone in which a commit of plans/one.md and new.md stopped half way.
struct HalfDone {
    world: World,
    before: String,
    /// The commit that was about to be.
    made: String,
    /// What a real commit answered: the shape of what is on record.
    done: Committed,
}

impl HalfDone {
    fn new(git: &Path) -> Self {
        let mut world = World::builder().git(git).build();
        let done = commit_works(&world, &world.turn("Owner"), "plans/two.md");
        world.kill_executor();
        let clone = world.clone_dir();
        clone.write("plans/one.md", "half done\n");
        clone.write("new.md", "half done\n");
        clone.write("theirs.md", "theirs\n");
        let before = clone.head();
        Self { world, before, made: String::new(), done }
    }

    fn git_dir(&self, name: &str) -> PathBuf {
        self.world.clone_dir().path(".git").join(name)
    }

    fn private(&self) -> PathBuf {
        self.git_dir(&format!("sage-{NONCE}.index"))
    }

    fn marker(&self) -> PathBuf {
        self.git_dir(&format!("sage-{NONCE}.lock"))
    }

    fn lock(&self) -> PathBuf {
        self.git_dir("index.lock")
    }

    /// Step 1, and again in step 4.
    fn record(&self, commit: Value) {
        let clone = self.world.clone_dir().dir();
        let moving = if commit.is_null() { json!([]) } else { json!(["HEAD", "refs/heads/main"]) };
        let pending = json!({
            "moving": moving,
            "root": ROOT,
            "gitDir": clone.join(".git"),
            "commonDir": clone.join(".git"),
            "workTree": clone,
            "nonce": NONCE,
            "branch": "refs/heads/main",
            "commit": commit,
            "forward": null,
        });
        let file = self.world.state().join("pending").join(format!("{NONCE}.json"));
        std::fs::write(file, pending.to_string()).expect("it is ours");
    }

    /// Step 2.
    fn take_lock(&self) {
        std::fs::write(self.marker(), "").expect("it is ours");
        std::fs::hard_link(self.marker(), self.lock()).expect("it is free");
    }

    /// Step 3.
    fn stage(&self) {
        std::fs::copy(self.git_dir("index"), self.private()).expect("it is there");
        self.with_private_index(&["update-index", "--add", "plans/one.md", "new.md"]);
    }

    fn with_private_index(&self, arguments: &[&str]) -> String {
        let clone: &Repo = self.world.clone_dir();
        let mut command = clone.command(arguments);
        let output = command.env("GIT_INDEX_FILE", self.private()).output().expect("git starts");
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Step 4.
    fn make_commit(&mut self) {
        let tree = self.with_private_index(&["write-tree"]);
        let arguments = ["commit-tree", &tree, "-p", &self.before, "-m", "Half done"];
        self.made = self.world.git(&arguments);
        let done = Committed { hash: self.made.clone(), ..self.done.clone() };
        self.record(json!({"call": "00".repeat(32), "done": done}));
    }

    /// Step 5.
    fn move_branch(&self) {
        self.world.git(&["update-ref", "refs/heads/main", &self.made, &self.before]);
    }

    /// Step 6, first half.
    fn install(&self) {
        std::fs::rename(self.private(), self.git_dir("index")).expect("it is ours");
    }

    /// Starts the executor, which puts it right.
    fn put_right(mut self, committed: bool, what: &str) {
        let work = Snapshot::of(self.world.clone_dir().dir()).without(".git");
        self.world.start();
        work.assert_same(&Snapshot::of(self.world.clone_dir().dir()).without(".git"), what);
        let clone = self.world.clone_dir();
        assert_eq!(clone.head(), if committed { &self.made } else { &self.before }.as_str());
        assert_eq!(clone.git(&["diff", "--cached", "--name-only"]), "", "{what}");
        let expected =
            if committed { "?? theirs.md" } else { " M plans/one.md\n?? new.md\n?? theirs.md" };
        assert_eq!(clone.git(&["status", "--porcelain"]), expected, "{what}");
        check::sound(&self.world);
        let lines = self.world.audit_lines();
        let line = lines.iter().find(|line| line["event"] == "recovered").expect("it is said");
        let commit = if committed { json!(self.made) } else { Value::Null };
        assert_eq!((&line["root"], &line["commit"]), (&ROOT.into(), &commit), "{what}");
        commit_works(&self.world, &self.world.turn("Owner"), "plans/one.md");
    }
}

type Step = fn(&mut HalfDone);

/// Takes the first so many steps.
fn after_steps(git: &Path, steps: &[Step]) -> HalfDone {
    let mut half = HalfDone::new(git);
    for step in steps {
        step(&mut half);
    }
    half
}

/// The steps in their order, each with its name.
const STEPS: &[(&str, Step)] = &[
    ("the record", |half| half.record(Value::Null)),
    ("the lock", |half| half.take_lock()),
    ("the private index", |half| half.stage()),
    ("the commit's objects", HalfDone::make_commit),
    ("the branch", |half| half.move_branch()),
    ("the index", |half| half.install()),
    ("the lock's end", |half| std::fs::remove_file(half.lock()).expect("it is ours")),
    ("the marker's end", |half| std::fs::remove_file(half.marker()).expect("it is ours")),
];

/// How many steps come before the branch moves.
const BEFORE_COMMIT: usize = 4;

#[test]
fn killed_after_any_step_the_clone_has_the_commit_or_is_as_before() {
    for git in installed() {
        for last in 0..STEPS.len() {
            let steps: Vec<_> = STEPS[..=last].iter().map(|(_, step)| *step).collect();
            let what = format!("killed after {}", STEPS[last].0);
            after_steps(&git, &steps).put_right(last >= BEFORE_COMMIT, &what);
        }
    }
}

#[test]
fn killed_within_a_step_the_clone_is_as_before() {
    let git = &installed()[0];
    let within: &[(&str, usize, Step)] = &[
        ("the marker is not linked yet", 1, |half| {
            std::fs::write(half.marker(), "").expect("it is ours");
        }),
        ("the private index is torn", 2, |half| {
            std::fs::write(half.private(), b"DIRC\0\0").expect("it is ours");
        }),
        ("git holds the private index's lock", 3, |half| {
            let lock = half.private().with_extension("index.lock");
            std::fs::write(lock, b"DIRC").expect("it is ours");
        }),
        ("the record of the commit is torn", 3, |half| {
            let torn = half.world.state().join("pending/.tmpAbCdEf");
            std::fs::write(torn, "{\"root\":").expect("it is ours");
        }),
        ("git had locked the branch", 4, |half| {
            std::fs::write(half.git_dir("refs/heads/main.lock"), format!("{}\n", half.made))
                .expect("it is ours");
            std::fs::write(half.git_dir("HEAD.lock"), "").expect("it is ours");
        }),
    ];
    for (what, done, torn) in within {
        let steps: Vec<_> = STEPS[..*done].iter().map(|(_, step)| *step).collect();
        let mut half = after_steps(git, &steps);
        torn(&mut half);
        half.put_right(false, what);
    }
}

#[test]
fn a_lock_that_somebody_took_meanwhile_stays() {
    let git = &installed()[0];
    let mut half = after_steps(git, &[STEPS[0].1, STEPS[1].1, STEPS[2].1]);
    std::fs::remove_file(half.lock()).expect("it is ours");
    std::fs::write(half.lock(), "somebody's").expect("it is free");
    half.world.start();
    assert_eq!(std::fs::read(half.lock()).expect("it is there"), b"somebody's");
    assert!(!half.private().exists() && !half.marker().exists());
    std::fs::remove_file(half.lock()).expect("it is there");
    commit_works(&half.world, &half.world.turn("Owner"), "plans/one.md");
    check::sound(&half.world);
}

#[test]
fn a_record_of_an_index_in_the_clone_of_a_person_is_left_to_the_person() {
    // A commit by hand between the kill and the start: the branch has moved on, past the record.
    let git = &installed()[0];
    let steps: Vec<_> = STEPS[..BEFORE_COMMIT].iter().map(|(_, step)| *step).collect();
    let mut half = after_steps(git, &steps);
    std::fs::remove_file(half.lock()).expect("a person removes the stale lock");
    half.world.git(&["add", "theirs.md"]);
    half.world.git(&["commit", "-q", "-m", "By hand"]);
    let head = half.world.clone_dir().head();
    half.world.start();
    assert_eq!(half.world.clone_dir().head(), head);
    assert_eq!(half.world.git(&["status", "--porcelain"]), " M plans/one.md\n?? new.md");
    check::sound(&half.world);
    let call = calls::commit(ROOT, "After all", &["plans/one.md", "new.md"]);
    half.world.turn("Owner").reply::<Committed>(call);
}
