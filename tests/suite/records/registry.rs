//! Ids are reserved in order, ride with the next commit exactly once, and nothing else does.

use std::collections::BTreeSet;

use harness::calls::{self, ROOT};
use harness::turn::Turn;
use harness::world::World;
use protocol::refusal::{Code, Outcome};
use protocol::reply::{Committed, Diff, Reply, Reserved, Status};
use protocol::tool::{Prefix, ReserveId, ToolCall};

use super::{REGISTRY, lock_tool, no_script_is_left, shipped, vault_like, world, world_with};
use crate::check::{self, refused_and_unchanged};

fn pending(turn: &Turn<'_>) -> Vec<String> {
    let status: Status = turn.reply(calls::status(ROOT, ""));
    status.untrusted_reserved.into_iter().map(|id| id.0).collect()
}

fn reserve(turn: &Turn<'_>, title: &str) -> String {
    turn.reply::<Reserved>(calls::reserve(ROOT, title)).id
}

fn paths(done: &Committed) -> Vec<&str> {
    done.untrusted_files.iter().map(|file| file.path.as_str()).collect()
}

fn commit_readme(world: &World, turn: &Turn<'_>, text: &str) -> Committed {
    world.clone_dir().write("README.md", text);
    turn.reply(calls::commit(ROOT, "Words", &["README.md"]))
}

#[test]
fn ids_come_in_order_each_prefix_by_itself_and_each_is_a_line() {
    let world = world();
    let turn = world.turn("Owner");
    let head = world.clone_dir().head();
    let ids = ["One", "Two", "Three"].map(|title| reserve(&turn, title));
    assert_eq!(ids, ["DEC-0003", "DEC-0004", "DEC-0005"]);
    let (root, title) = (ROOT.to_owned(), "A shop".to_owned());
    let call = ToolCall::ReserveId(ReserveId { root, prefix: Prefix::Bus, title });
    assert_eq!(turn.reply::<Reserved>(call).id, "BUS-0001");
    let lines =
        "DEC-0003\tsage\tOne\nDEC-0004\tsage\tTwo\nDEC-0005\tsage\tThree\nBUS-0001\tsage\tA shop\n";
    assert_eq!(world.clone_dir().text(REGISTRY), format!("{}{lines}", shipped(REGISTRY)));
    assert_eq!(pending(&turn), ["DEC-0003", "DEC-0004", "DEC-0005", "BUS-0001"]);
    assert_eq!(world.clone_dir().head(), head);
    check::sound(&world);
    no_script_is_left(&world);
}

#[test]
fn whatever_is_committed_next_carries_the_registry_and_nothing_after_it_does() {
    let world = world();
    let turn = world.turn("Owner");
    assert_eq!(paths(&commit_readme(&world, &turn, "before\n")), ["README.md"]);
    reserve(&turn, "One");
    reserve(&turn, "Two");
    let done = commit_readme(&world, &turn, "with it\n");
    assert_eq!(paths(&done), ["README.md", REGISTRY]);
    assert_eq!(done.untrusted_files[1].added, Some(2));
    assert_eq!(pending(&turn), [""; 0]);
    assert_eq!(world.remote_head(), done.hash);
    assert_eq!(paths(&commit_readme(&world, &turn, "after\n")), ["README.md"]);
    // Naming it changes nothing, and it can go alone.
    assert_eq!(reserve(&turn, "Three"), "DEC-0005");
    let named = calls::commit(ROOT, "Named", &[REGISTRY]);
    assert_eq!(paths(&turn.reply::<Committed>(named)), [REGISTRY]);
    assert_eq!(world.git(&["log", "--format=%s", "--", REGISTRY]).lines().count(), 3);
}

#[test]
fn a_commit_that_is_refused_leaves_the_reservation_for_the_next() {
    let world = vault_like(World::builder().review(), &[]).build();
    let turn = world.turn("Owner");
    reserve(&turn, "One");
    world.clone_dir().write("README.md", "changed\n");
    let call = || calls::commit(ROOT, "Words", &["README.md"]);
    let refusal = refused_and_unchanged(&world, &turn, Code::NotReviewed, call());
    assert!(!refusal.message.contains(REGISTRY), "a reservation needs no review: {refusal}");
    assert_eq!(pending(&turn), ["DEC-0003"]);
    turn.reply::<Diff>(calls::diff(ROOT, "worktree", "README.md"));
    assert_eq!(paths(&turn.reply::<Committed>(call())), ["README.md", REGISTRY]);
    assert_eq!(pending(&turn), [""; 0]);
}

#[test]
fn a_registry_that_changed_in_any_other_way_stops_every_commit() {
    let world = world();
    let turn = world.turn("Owner");
    reserve(&turn, "One");
    let good = world.clone_dir().text(REGISTRY);
    let lines: Vec<&str> = good.split_inclusive('\n').collect();
    let changed = [
        ("a line is gone", [lines[0], lines[2]].concat(), "appending"),
        ("a line between", format!("BUS-0001\tx\ty\n{good}"), "appending"),
        ("another title", good.replacen("editors", "others", 2), "appending"),
        ("no lines at all", String::new(), "DEC-0001"),
        ("a torn line", good.trim_end().to_owned(), "torn"),
        ("an id again", format!("{good}DEC-0001\tx\ty\n"), "already on line 1"),
        ("a glued line", format!("{}DEC-0004\tx\ty\n", good.trim_end()), "expected ID, owner"),
        ("no id", format!("{good}Just words\n"), "does not begin with an id"),
    ];
    world.clone_dir().write("README.md", "changed\n");
    let call = || calls::commit(ROOT, "Words", &["README.md"]);
    for (what, text, said) in changed {
        world.clone_dir().write(REGISTRY, text);
        let refusal = refused_and_unchanged(&world, &turn, Code::RecordProtocol, call());
        assert!(refusal.message.contains(said), "{what}: {refusal}");
        assert!(refusal.message.contains(REGISTRY), "{what}: {refusal}");
    }
    std::fs::remove_file(world.clone_dir().path(REGISTRY)).expect("it is ours");
    refused_and_unchanged(&world, &turn, Code::RecordProtocol, call());
    world.clone_dir().write(REGISTRY, good);
    assert_eq!(paths(&turn.reply::<Committed>(call())), ["README.md", REGISTRY]);
}

#[test]
fn a_reservation_happens_once_and_outlives_the_executor() {
    let mut world = world();
    let reserve = |world: &World| {
        let outcome = world.turn_named("a-turn", "Owner").call_as("c", calls::reserve(ROOT, "One"));
        match outcome {
            Outcome::Reply(Reply::Reserved(reserved)) => reserved.id,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!([reserve(&world), reserve(&world)], ["DEC-0003", "DEC-0003"]);
    world.restart();
    assert_eq!(reserve(&world), "DEC-0003");
    let turn = world.turn("Owner");
    assert_eq!(pending(&turn), ["DEC-0003"]);
    assert_eq!(paths(&commit_readme(&world, &turn, "x\n")), ["README.md", REGISTRY]);
    assert_eq!(super::registry::reserve(&turn, "One"), "DEC-0004", "another call is another id");
}

#[test]
fn a_title_is_one_line_or_is_refused() {
    let world = world();
    let turn = world.turn("Owner");
    let long = "x".repeat(100_000);
    for title in ["a\nDEC-0999\tx\ty", "a\rb", "a\0b", "a\tb", "a\u{2028}b", "a\u{85}b", "", &long]
    {
        let call = calls::reserve(ROOT, title);
        refused_and_unchanged(&world, &turn, Code::InvalidArguments, call);
    }
    // What only looks like options or like a line of the registry is a title.
    for title in ["--help", "-", "DEC-0999 x y", "名前を選ぶ", "a 'b' \"c\" $(d)"] {
        let id = reserve(&turn, title);
        let registry = world.clone_dir().text(REGISTRY);
        assert!(registry.ends_with(&format!("\n{id}\tsage\t{title}\n")), "{registry}");
    }
    assert_eq!(pending(&turn).last().map(String::as_str), Some("DEC-0007"));
    commit_readme(&world, &turn, "the validator likes them\n");
}

#[test]
fn when_no_number_is_left_the_refusal_says_so() {
    let full = format!("{}DEC-999999\teditors\tThe last\n", shipped(REGISTRY));
    let world = world_with(&[(REGISTRY, &full)]);
    let turn = world.turn("Owner");
    world.clone_dir().write("README.md", "changed\n");
    let refusal = turn.refused_by(Code::RecordProtocol, calls::reserve(ROOT, "One more"));
    assert!(refusal.message.contains("no number left"), "{refusal}");
    assert_eq!(world.clone_dir().text(REGISTRY), full);
    let (root, title) = (ROOT.to_owned(), "Another prefix".to_owned());
    let call = ToolCall::ReserveId(ReserveId { root, prefix: Prefix::Ref, title });
    assert_eq!(turn.reply::<Reserved>(call).id, "REF-0001");
}

#[test]
fn sage_and_people_who_reserve_at_once_get_different_ids() {
    let world = world();
    let ids: Vec<String> = std::thread::scope(|scope| {
        let racers: Vec<_> = (0..8)
            .map(|n| {
                let world = &world;
                scope.spawn(move || match n % 2 {
                    0 => reserve(&world.turn("Owner"), "At once"),
                    _ => {
                        let words = ["reserve", "DEC", "At once"];
                        lock_tool(world.clone_dir().dir(), "partner", &words).fine()
                    }
                })
            })
            .collect();
        racers.into_iter().map(|racer| racer.join().expect("it ends")).collect()
    });
    let all: BTreeSet<String> = (3..11).map(|n| format!("DEC-{n:04}")).collect();
    assert_eq!(ids.into_iter().collect::<BTreeSet<_>>(), all);
    let turn = world.turn("Owner");
    assert_eq!(pending(&turn), all.into_iter().collect::<Vec<_>>());
    let done = commit_readme(&world, &turn, "with all of them\n");
    assert_eq!(done.untrusted_files[1].added, Some(8));
}
