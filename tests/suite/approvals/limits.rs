//! More of approval (G3): what a plan shows, who can approve it from where, and that no approval
//! does more than it says. The usual way is one module up.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use harness::calls::{self, ROOT};
use harness::snapshot::Snapshot;
use harness::world::World;
use protocol::refusal::{Code, Outcome, Refusal};
use protocol::reply::{Committed, Diff, Plan, Reply, Status};
use protocol::tool::ToolCall;

use crate::check::{self, refused_and_unchanged};

fn world() -> World {
    let world = World::builder().approval().build();
    world.clone_dir().write("plans/one.md", "changed\n");
    world
}

fn commit() -> ToolCall {
    calls::commit(ROOT, "One change", &["plans/one.md"])
}

fn plan(world: &World) -> Plan {
    world.turn("Owner").reply(commit())
}

fn committed(outcome: Outcome) -> Committed {
    match outcome {
        Outcome::Reply(Reply::Committed(done)) => done,
        other => panic!("{other:?} is no commit"),
    }
}

/// The approval does not fit, nothing is committed, and the clone is as it was.
fn does_not_fit(world: &World, requester: &str, digest: &str, why: &str) -> Refusal {
    let before = Snapshot::of_clone(world.clone_dir().dir());
    let outcome = world.turn(requester).call_approved(commit(), digest);
    before.assert_same_bytes(&Snapshot::of_clone(world.clone_dir().dir()), why);
    check::sound(world);
    let Outcome::Refusal(refusal) = outcome else { panic!("{why}: {outcome:?}") };
    assert_eq!(refusal.code, Code::ApprovalNeeded, "{refusal}");
    assert!(refusal.message.contains(why), "{why}: {refusal}");
    assert!(refusal.hint.contains("new plan"), "{}", refusal.hint);
    refusal
}

#[test]
fn a_plan_says_of_each_file_how_much_of_it_changes_and_how() {
    let world = world();
    let clone = world.clone_dir();
    clone.write("new.md", "one\ntwo\nthree\n");
    clone.write("picture.bin", b"\x00\x01\x02\xff");
    std::fs::remove_file(clone.path("plans/two.md")).expect("it is ours");
    std::fs::set_permissions(clone.path("README.md"), Permissions::from_mode(0o755))
        .expect("it is ours");
    let paths = ["plans/one.md", "new.md", "picture.bin", "plans/two.md", "README.md"];
    let call = || calls::commit(ROOT, "Five changes", &paths);
    let plan: Plan = world.turn("Owner").reply(call());
    let shown: Vec<_> = plan
        .untrusted_files
        .iter()
        .map(|f| (f.kind.letter(), f.path.as_str(), f.added, f.removed, f.mode.as_deref()))
        .collect();
    assert_eq!(
        shown,
        [
            ('M', "README.md", Some(0), Some(0), Some("100644 → 100755")),
            ('A', "new.md", Some(3), Some(0), None),
            ('A', "picture.bin", None, None, None),
            ('M', "plans/one.md", Some(1), Some(5), None),
            ('D', "plans/two.md", Some(0), Some(1), None),
        ]
    );
    assert_eq!(plan.remote, world.base().join("remote.git").display().to_string());
    assert!(plan.digest.len() == 64 && plan.good_for_seconds > 0);
    let done = committed(world.turn("Owner").call_approved(call(), &plan.digest));
    assert_eq!(
        done.untrusted_files, plan.untrusted_files,
        "what was approved is what is committed"
    );
}

#[test]
fn exactly_what_was_approved_is_committed() {
    let world = world();
    let head = world.clone_dir().head();
    let plan = plan(&world);
    // Another file that changes meanwhile is none of the plan's business.
    world.clone_dir().write("plans/two.md", "somebody's\n");
    let done = committed(world.turn("Owner").call_approved(commit(), &plan.digest));
    assert_eq!(world.git(&["show", "--format=%P", "-s", &done.hash]), head);
    let message = world.git(&["show", "--format=%B", "-s", &done.hash]);
    assert_eq!(message.trim(), "One change\n\nRequested-by: Owner");
    assert_eq!(world.git(&["show", "--format=", "--name-only", &done.hash]), "plans/one.md");
    assert_eq!(world.git(&["show", &format!("{}:plans/one.md", done.hash)]), "changed");
    assert_eq!(world.git(&["status", "--porcelain"]), " M plans/two.md");
    check::sound(&world);
}

#[test]
fn the_same_content_has_the_same_plan_and_it_is_good_once() {
    let world = world();
    let (first, second) = (plan(&world), plan(&world));
    assert_eq!(first.digest, second.digest);
    let other: Plan =
        world.turn("Owner").reply(calls::commit(ROOT, "Other words", &["plans/one.md"]));
    let partners: Plan = world.turn("Partner").reply(commit());
    assert!(first.digest != other.digest && first.digest != partners.digest);
    committed(world.turn("Owner").call_approved(commit(), &first.digest));
    world.git(&["reset", "-q", "--soft", "HEAD~1"]);
    world.git(&["reset", "-q"]);
    world.git(&["push", "-q", "-f", "origin", "HEAD:main"]);
    does_not_fit(&world, "Owner", &second.digest, "no such plan");
    committed(world.turn("Owner").call_approved(commit(), &plan(&world).digest));
}

#[test]
fn nobody_approves_for_someone_else() {
    let world = world();
    let digest = plan(&world).digest;
    does_not_fit(&world, "Partner", &digest, "someone else");
    // To try uses it up; that is the safe side.
    does_not_fit(&world, "Owner", &digest, "no such plan");
    let partners: Plan = world.turn("Partner").reply(commit());
    does_not_fit(&world, "Owner", &partners.digest, "someone else");
    let partners: Plan = world.turn("Partner").reply(commit());
    let done = committed(world.turn("Partner").call_approved(commit(), &partners.digest));
    assert!(done.trailer.contains("Partner"), "{}", done.trailer);
}

#[test]
fn an_approval_without_a_requester_is_refused_before_it_is_looked_at() {
    let world = world();
    let digest = plan(&world).digest;
    let outcome = world.turn_for_nobody().call_approved(commit(), &digest);
    let Outcome::Refusal(refusal) = outcome else { panic!("{outcome:?}") };
    assert_eq!(refusal.code, Code::RequesterNotAllowed, "{refusal}");
    committed(world.turn("Owner").call_approved(commit(), &digest));
}

#[test]
fn a_made_up_digest_approves_nothing() {
    let world = world();
    let digest = plan(&world).digest;
    let longer = format!("{digest}0");
    let made_up =
        ["", "0", "yes", &digest[..63], &longer, &digest.to_uppercase(), &"x".repeat(100_000)];
    for made_up in made_up {
        does_not_fit(&world, "Owner", made_up, "no such plan");
    }
    committed(world.turn("Owner").call_approved(commit(), &digest));
}

#[test]
fn a_plan_that_did_not_fit_once_is_void_even_when_everything_is_as_it_was() {
    let world = world();
    let digest = plan(&world).digest;
    world.clone_dir().write("plans/one.md", "changed, and more\n");
    does_not_fit(&world, "Owner", &digest, "the content changed");
    world.clone_dir().write("plans/one.md", "changed\n");
    does_not_fit(&world, "Owner", &digest, "no such plan");
    committed(world.turn("Owner").call_approved(commit(), &plan(&world).digest));
}

#[test]
fn a_mode_is_part_of_what_is_approved() {
    let world = world();
    let digest = plan(&world).digest;
    let set = |mode| {
        let one = world.clone_dir().path("plans/one.md");
        std::fs::set_permissions(one, Permissions::from_mode(mode)).expect("it is ours");
    };
    set(0o755);
    does_not_fit(&world, "Owner", &digest, "the content changed");
    set(0o644);
    committed(world.turn("Owner").call_approved(commit(), &plan(&world).digest));
}

#[test]
fn the_same_call_again_answers_with_its_plan_whatever_it_says_was_approved() {
    let world = world();
    let turn = world.turn_named("a-turn", "Owner");
    let head = world.clone_dir().head();
    // The harness names calls by their number in the turn: both of these are call-0.
    let plan: Plan = turn.reply(commit());
    let again = world.turn_named("a-turn", "Owner").call_approved(commit(), &plan.digest);
    assert_eq!(again, Outcome::Reply(Reply::ApprovalNeeded(plan.clone())));
    assert_eq!(world.clone_dir().head(), head);
    committed(turn.call_approved(commit(), &plan.digest));
}

#[test]
fn a_review_comes_before_a_plan_and_serves_its_approval_in_the_same_turn() {
    let world = World::builder().review().approval().build();
    world.clone_dir().write("plans/one.md", "changed\n");
    let turn = world.turn("Owner");
    refused_and_unchanged(&world, &turn, Code::NotReviewed, commit());
    turn.reply::<Diff>(calls::diff(ROOT, "", ""));
    let plan: Plan = turn.reply(commit());
    // An approval is no review: another turn has seen nothing.
    let outcome = world.turn("Owner").call_approved(commit(), &plan.digest);
    let Outcome::Refusal(refusal) = outcome else { panic!("{outcome:?}") };
    assert_eq!(refusal.code, Code::NotReviewed, "{refusal}");
    committed(turn.call_approved(commit(), &plan.digest));
}

#[test]
fn where_no_approval_is_asked_for_one_does_no_harm_and_no_good() {
    let world = World::builder().review().build();
    world.clone_dir().write("plans/one.md", "changed\n");
    let turn = world.turn("Owner");
    let outcome = turn.call_approved(commit(), &"0".repeat(64));
    let Outcome::Refusal(refusal) = outcome else { panic!("{outcome:?}") };
    assert_eq!(refusal.code, Code::NotReviewed, "{refusal}");
    turn.reply::<Diff>(calls::diff(ROOT, "", ""));
    committed(turn.call_approved(commit(), &"0".repeat(64)));
}

#[test]
fn a_plan_is_no_promise_about_the_fences() {
    let world = world();
    let digest = plan(&world).digest;
    world.others_push("theirs.md", "theirs\n");
    let outcome = world.turn("Owner").call_approved(commit(), &digest);
    let Outcome::Refusal(refusal) = outcome else { panic!("{outcome:?}") };
    assert_eq!(refusal.code, Code::RemoteAhead, "{refusal}");
    world.git(&["pull", "-q", "--ff-only"]);
    does_not_fit(&world, "Owner", &digest, "HEAD moved");
    committed(world.turn("Owner").call_approved(commit(), &plan(&world).digest));
    let status: Status = world.turn("Owner").reply(calls::status(ROOT, ""));
    assert!(status.clean);
}
