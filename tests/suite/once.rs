//! Effects happen once (E9), one at a time, and to nobody else's work (E4).

use std::sync::Barrier;
use std::time::Duration;

use harness::calls::{self, ROOT};
use harness::dice::Dice;
use harness::git::installed;
use harness::snapshot::Snapshot;
use harness::world::World;
use protocol::refusal::{Code, Outcome};
use protocol::reply::{Committed, PushState, Reply};

use crate::check::{self, commit_works};

fn count(world: &World) -> u64 {
    world.git(&["rev-list", "--count", "HEAD"]).parse().expect("a number")
}

#[test]
fn the_same_call_again_is_answered_and_not_done_again() {
    let mut world = World::new_plain();
    world.clone_dir().write("plans/one.md", "changed\n");
    let call = || calls::commit(ROOT, "Once", &["plans/one.md"]);
    let first = world.turn_named("t", "Owner").call_as("c", call());
    assert!(matches!(first, Outcome::Reply(Reply::Committed(_))), "{first:?}");
    // More work at the same path would be committed by a call that is done again.
    world.clone_dir().write("plans/one.md", "changed again\n");
    assert_eq!(world.turn_named("t", "Owner").call_as("c", call()), first);
    world.restart();
    assert_eq!(world.turn_named("t", "Owner").call_as("c", call()), first);
    // Whatever is asked under the id that is used up.
    let other = calls::commit(ROOT, "Twice", &["plans/two.md"]);
    assert_eq!(world.turn_named("t", "Owner").call_as("c", other), first);
    assert_eq!(count(&world), 2);
    // The same id in another turn is another call.
    let second = world.turn_named("u", "Owner").call_as("c", call());
    assert!(matches!(second, Outcome::Reply(Reply::Committed(_))), "{second:?}");
    assert_eq!(count(&world), 3);
}

#[test]
fn of_two_commits_of_one_change_exactly_one_is_made() {
    for git in installed() {
        let world = World::builder().git(&git).build();
        for round in 0..8 {
            world.clone_dir().write("plans/one.md", format!("{round}\n"));
            let before = count(&world);
            let start = Barrier::new(2);
            let outcomes = std::thread::scope(|scope| {
                let racer = |name: &'static str| {
                    let (world, start) = (&world, &start);
                    scope.spawn(move || {
                        let turn = world.turn(name);
                        start.wait();
                        turn.call(calls::commit(ROOT, name, &["plans/one.md"]))
                    })
                };
                let racers = [racer("Owner"), racer("Partner")];
                racers.map(|racer| racer.join().expect("it did not panic"))
            });
            let made = outcomes.iter().filter(|o| matches!(o, Outcome::Reply(_))).count();
            assert_eq!(made, 1, "{outcomes:?}");
            let refused = outcomes.iter().find_map(|outcome| match outcome {
                Outcome::Refusal(refusal) => Some(refusal.code),
                _ => None,
            });
            let fair = [Code::Busy, Code::Raced, Code::IndexLocked, Code::NothingToCommit];
            assert!(refused.is_some_and(|code| fair.contains(&code)), "{outcomes:?}");
            assert_eq!(count(&world), before + 1);
            assert_eq!(world.git(&["rev-list", "--count", "--merges", "HEAD"]), "0");
            assert_eq!(world.remote_head(), world.clone_dir().head());
        }
        check::sound(&world);
    }
}

#[test]
fn a_commit_races_with_a_person_and_nothing_is_lost() {
    for git in installed() {
        let world = World::builder().git(&git).build();
        let clone = world.clone_dir();
        let mut made = 0;
        for round in 0..12 {
            clone.write("theirs.md", format!("theirs {round}\n"));
            clone.write("plans/one.md", format!("ours {round}\n"));
            let before = count(&world);
            let start = Barrier::new(2);
            let (person, sage) = std::thread::scope(|scope| {
                let person = scope.spawn(|| {
                    start.wait();
                    let stage = clone.try_git(&["add", "theirs.md"]).status.success();
                    stage && clone.try_git(&["commit", "-q", "-m", "Theirs"]).status.success()
                });
                let turn = world.turn("Owner");
                start.wait();
                let sage = turn.call(calls::commit(ROOT, "Ours", &["plans/one.md"]));
                (person.join().expect("it did not panic"), sage)
            });
            let done = match &sage {
                Outcome::Reply(_) => true,
                Outcome::Refusal(refusal) => {
                    let fair = [Code::Raced, Code::IndexLocked, Code::AlreadyStaged];
                    assert!(fair.contains(&refusal.code), "{refusal}");
                    false
                }
                Outcome::Fault(fault) => panic!("{fault}"),
            };
            made += u32::from(done);
            assert_eq!(count(&world), before + u64::from(person) + u64::from(done));
            assert_eq!(clone.text("theirs.md"), format!("theirs {round}\n"));
            assert_eq!(clone.text("plans/one.md"), format!("ours {round}\n"));
            let ours = clone.git(&["log", "--author=Sage", "--format=", "--name-only"]);
            assert!(!ours.contains("theirs.md"), "theirs was swept in");
            clone.git(&["add", "theirs.md", "plans/one.md"]);
            clone.try_git(&["commit", "-q", "-m", "The rest"]);
            clone.git(&["push", "-q", "origin", "HEAD:main"]);
        }
        assert!(made < 12 || count(&world) > 12, "nothing happened");
        check::sound(&world);
    }
}

#[test]
fn other_peoples_work_survives_byte_for_byte() {
    let world = World::new_plain();
    let turn = world.turn("Owner");
    let clone = world.clone_dir();
    clone.write("plans/two.md", "somebody's change, not staged\r\n");
    clone.write("untracked.bin", b"\0\xff");
    clone.write("deep/er/untracked.md", "x\n");
    std::fs::remove_file(clone.path("README.md")).expect("it is there");
    std::os::unix::fs::symlink("nowhere", clone.path("link")).expect("it can be made");
    let work = || Snapshot::of(clone.dir()).without(".git").without("plans/one.md");
    commit_works(&world, &turn, "plans/one.md");
    let before = work();
    let status = clone.git(&["status", "--porcelain"]);
    for _ in 0..3 {
        clone.write("plans/one.md", format!("{}more\n", clone.text("plans/one.md")));
        let done: Committed = turn.reply(calls::commit(ROOT, "Mine", &["plans/one.md"]));
        assert_eq!(done.untrusted_files.len(), 1);
        assert_eq!(done.push, PushState::Pushed);
    }
    before.assert_same(&work(), "a commit");
    assert_eq!(clone.git(&["status", "--porcelain"]), status);
    check::sound(&world);
}

#[test]
fn a_caller_that_goes_away_leaves_the_commit_or_nothing() {
    let world = World::new_plain();
    let clone = world.clone_dir();
    let mut dice = Dice::new(7);
    for round in 0..16 {
        clone.write("plans/one.md", format!("{round}\n"));
        let before = count(&world);
        let turn = world.turn("Owner");
        let patience = Duration::from_micros(dice.below(250_000));
        let call = calls::commit(ROOT, "Left alone", &["plans/one.md"]);
        turn.call_and_leave("c", call, patience);
        // Once the root is free again, the work has ended.
        let settled = loop {
            match world.turn("Owner").call(calls::push(ROOT)) {
                Outcome::Refusal(refusal) if refusal.code == Code::Busy => {}
                other => break other,
            }
        };
        assert!(matches!(settled, Outcome::Reply(_)), "{settled:?}");
        let after = count(&world);
        assert!(after == before || after == before + 1, "{before} commits became {after}");
        assert_eq!(clone.git(&["diff", "--cached", "--name-only"]), "");
        assert_eq!(clone.git(&["status", "--porcelain"]).is_empty(), after == before + 1);
        check::sound(&world);
    }
    commit_works(&world, &world.turn("Owner"), "plans/one.md");
}
