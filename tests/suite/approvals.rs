//! Approval (G3): a commit is made only of the plan that its requester approved.

use harness::calls::{self, ROOT};
use harness::snapshot::Snapshot;
use harness::world::World;
use protocol::refusal::{Code, Outcome};
use protocol::reply::{Plan, Reply};
use protocol::tool::ToolCall;

use crate::check;

mod limits;

fn world() -> World {
    let world = World::builder().approval().build();
    world.clone_dir().write("plans/one.md", "changed\n");
    world.clone_dir().write("new.md", "new\n");
    std::fs::remove_file(world.clone_dir().path("plans/two.md")).expect("it is ours");
    world
}

fn commit() -> ToolCall {
    calls::commit(ROOT, "Three changes", &["plans/one.md", "new.md", "plans/two.md"])
}

/// The refusal of an approval that does not fit, and that nothing was committed.
fn does_not_fit(world: &World, requester: &str, call: ToolCall, digest: &str, why: &str) {
    let head = world.clone_dir().head();
    match world.turn(requester).call_approved(call, digest) {
        Outcome::Refusal(refusal) => {
            assert_eq!(refusal.code, Code::ApprovalNeeded);
            assert!(refusal.message.contains(why), "{}", refusal.message);
        }
        other => panic!("{why}: {other:?}"),
    }
    assert_eq!(world.clone_dir().head(), head, "{why}");
    check::sound(world);
}

#[test]
fn the_first_call_answers_with_a_plan_and_changes_nothing() {
    let world = world();
    let before = Snapshot::of_clone(world.clone_dir().dir());
    let plan: Plan = world.turn("Owner").reply(commit());
    before.assert_same_bytes(&Snapshot::of_clone(world.clone_dir().dir()), "a plan");
    check::sound(&world);
    let files: Vec<String> = plan
        .untrusted_files
        .iter()
        .map(|f| format!("{} {}", f.kind.letter(), f.path.as_str()))
        .collect();
    assert_eq!(files, ["A new.md", "M plans/one.md", "D plans/two.md"]);
    assert_eq!((plan.requester.as_str(), plan.branch.as_str()), ("Owner", "main"));
    assert_eq!(plan.message, "Three changes");
}

#[test]
fn an_approved_plan_is_committed_once() {
    let world = world();
    let plan: Plan = world.turn("Owner").reply(commit());
    let outcome = world.turn("Owner").call_approved(commit(), &plan.digest);
    let Outcome::Reply(Reply::Committed(done)) = outcome else { panic!("{outcome:?}") };
    assert_eq!(world.remote_head(), done.hash);
    world.git(&["reset", "-q", "--soft", "HEAD~1"]);
    world.git(&["push", "-q", "-f", "origin", "HEAD:main"]);
    world.git(&["reset", "-q"]);
    does_not_fit(&world, "Owner", commit(), &plan.digest, "no such plan");
}

#[test]
fn what_changed_since_is_said_and_a_new_plan_is_needed() {
    let other_message =
        || calls::commit(ROOT, "Other words", &["plans/one.md", "new.md", "plans/two.md"]);
    let world = world();
    let fresh = || world.turn("Owner").reply::<Plan>(commit()).digest;
    does_not_fit(&world, "Owner", commit(), &"0".repeat(64), "no such plan");
    does_not_fit(&world, "Partner", commit(), &fresh(), "someone else");
    does_not_fit(&world, "Owner", other_message(), &fresh(), "the message changed");
    let digest = fresh();
    world.clone_dir().write("new.md", "new, and more\n");
    does_not_fit(&world, "Owner", commit(), &digest, "the content changed");
    let digest = fresh();
    world.clone_dir().write("by-hand.md", "by hand\n");
    world.git(&["add", "by-hand.md"]);
    world.git(&["commit", "-q", "-m", "By hand"]);
    does_not_fit(&world, "Owner", commit(), &digest, "HEAD moved");
    let outcome = world.turn("Owner").call_approved(commit(), &fresh());
    assert!(matches!(outcome, Outcome::Reply(Reply::Committed(_))), "{outcome:?}");
}

#[test]
fn a_restart_voids_what_was_pending() {
    let mut world = world();
    let plan: Plan = world.turn("Owner").reply(commit());
    world.restart();
    does_not_fit(&world, "Owner", commit(), &plan.digest, "the executor was restarted");
}
