//! The executor is killed with SIGKILL at any instant, many times (E4, E9): each time the clone has
//! the commit with its index, or is as it was; and the same call again does it once.

use std::path::Path;
use std::time::{Duration, Instant};

use harness::calls::{self, ROOT};
use harness::dice::Dice;
use harness::git::installed;
use harness::snapshot::Snapshot;
use harness::world::World;
use protocol::refusal::Outcome;
use protocol::reply::{Committed, Pulled, Pushed, Reply};
use protocol::tool::ToolCall;

use crate::check;

/// Makes a call and kills the executor somewhere on its way; starts it again.
fn killed_on_its_way(world: &mut World, turn: &str, call: ToolCall, after: Duration) {
    std::thread::scope(|scope| {
        let shared = &*world;
        scope.spawn(move || {
            let _ = shared.turn_named(turn, "Owner").try_call_as("c", call);
        });
        // Not to wait for anything: the instant of the kill is what is thrown for.
        std::thread::sleep(after);
        shared.strike();
    });
    world.restart();
}

/// How long a call takes here and now, so that kills fall all over its way.
fn usual(mut call: impl FnMut()) -> Duration {
    call();
    let started = Instant::now();
    call();
    started.elapsed()
}

fn throw(dice: &mut Dice, usual: Duration) -> Duration {
    let most = u64::try_from(usual.as_micros()).expect("it is not that long") * 5 / 4;
    Duration::from_micros(dice.below(most))
}

fn commits_are_all_or_nothing(git: &Path, seed: u64, rounds: u64) {
    let mut world = World::builder().git(git).build();
    let mut n = 0;
    let usual = usual(|| {
        n += 1;
        world.clone_dir().write("plans/one.md", format!("warm-up {n}\n"));
        let call = calls::commit(ROOT, "Warm-up", &["plans/one.md"]);
        world.turn("Owner").reply::<Committed>(call);
    });
    let mut dice = Dice::new(seed);
    world.clone_dir().write("theirs.md", "untracked\n");
    world.clone_dir().write("plans/two.md", "not staged\n");
    for round in 0..rounds {
        world.clone_dir().write("plans/one.md", format!("round {round}\n"));
        world.clone_dir().write(format!("new/{round}.md"), "new\n");
        let work = Snapshot::of(world.clone_dir().dir()).without(".git");
        let before = world.clone_dir().head();
        let paths = ["plans/one.md".to_owned(), format!("new/{round}.md")];
        let paths = paths.each_ref().map(String::as_str);
        let call = || calls::commit(ROOT, "Killed", &paths);
        let name = format!("round-{round}");
        let after = throw(&mut dice, usual);
        killed_on_its_way(&mut world, &name, call(), after);

        let what = format!("round {round} of seed {seed}, killed after {after:?}");
        work.assert_same(&Snapshot::of(world.clone_dir().dir()).without(".git"), &what);
        let head = world.clone_dir().head();
        let committed = head != before;
        if committed {
            assert_eq!(world.git(&["rev-parse", "HEAD~1"]), before, "{what}");
        }
        assert_eq!(world.git(&["diff", "--cached", "--name-only"]), "", "{what}");
        check::sound(&world);
        let again = world.turn_named(&name, "Owner").call_as("c", call());
        let Outcome::Reply(Reply::Committed(done)) = again else { panic!("{what}: {again:?}") };
        assert_eq!(done.hash == head, committed, "{what}");
        assert_eq!(world.git(&["rev-parse", "HEAD~1"]), before, "{what}: a second commit");
        assert_eq!(world.clone_dir().head(), done.hash, "{what}");
        world.turn("Owner").reply::<Pushed>(calls::push(ROOT));
        assert_eq!(world.remote_head(), done.hash, "{what}");
        assert_eq!(world.git(&["status", "--porcelain"]), " M plans/two.md\n?? theirs.md");
    }
}

#[test]
fn a_commit_is_all_or_nothing_with_the_first_git() {
    commits_are_all_or_nothing(&installed()[0], 1, 32);
}

#[test]
fn a_commit_is_all_or_nothing_with_the_last_git() {
    let gits = installed();
    commits_are_all_or_nothing(&gits[gits.len() - 1], 2, 32);
}

#[test]
fn a_pull_is_all_or_nothing() {
    for (git, seed) in installed().iter().zip(3..) {
        let mut world = World::builder().git(git).build();
        let usual = usual(|| {
            for n in 0..20 {
                world
                    .other_clone()
                    .write(format!("many/{n}.md"), format!("{:?}\n", Instant::now()));
            }
            world.others_push("plans/one.md", &format!("{:?}\n", Instant::now()));
            world.turn("Owner").reply::<Pulled>(calls::pull(ROOT));
        });
        let mut dice = Dice::new(seed);
        world.clone_dir().write("theirs.md", "untracked\n");
        world.clone_dir().write("plans/two.md", "not staged\n");
        for round in 0..16 {
            pulled_or_not(&mut world, &mut dice, usual, round);
        }
    }
}

fn pulled_or_not(world: &mut World, dice: &mut Dice, usual: Duration, round: u64) {
    for n in 0..20 {
        world.other_clone().write(format!("many/{n}.md"), format!("round {round}\n"));
    }
    let old = Snapshot::of(world.clone_dir().dir()).without(".git");
    let before = world.clone_dir().head();
    let incoming = world.others_push(&format!("new{round}/deep/file.md"), "new\n");
    let after = throw(dice, usual);
    killed_on_its_way(world, &format!("round-{round}"), calls::pull(ROOT), after);

    let what = format!("round {round}, killed after {after:?}");
    let head = world.clone_dir().head();
    assert!(head == before || head == incoming, "{what}");
    let status = world.git(&["status", "--porcelain"]);
    assert_eq!(status, " M plans/two.md\n?? theirs.md", "{what}");
    if head == before {
        let now = Snapshot::of(world.clone_dir().dir()).without(".git");
        old.assert_same_bytes(&now, &what);
        assert!(
            !world.clone_dir().path(format!("new{round}")).exists(),
            "{what}: a folder is left"
        );
    }
    check::sound(world);
    world.turn("Owner").reply::<Pulled>(calls::pull(ROOT));
    assert_eq!(world.clone_dir().head(), incoming, "{what}");
    assert_eq!(world.git(&["status", "--porcelain"]), " M plans/two.md\n?? theirs.md");
}
