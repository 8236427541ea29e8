//! The review gate (G1, G2): what is committed was seen in the same turn, as it is now.

use harness::calls::{self, ROOT};
use harness::world::World;
use protocol::refusal::Code;
use protocol::reply::{Committed, Diff, FileText, OutputPage, Written};
use protocol::tool::ToolCall;

use crate::check::refused_and_unchanged;

fn world() -> World {
    World::builder().review().build()
}

fn commit(path: &str) -> ToolCall {
    calls::commit(ROOT, "Reviewed?", &[path])
}

#[test]
fn a_change_in_no_diff_is_not_reviewed() {
    let world = world();
    let turn = world.turn("Owner");
    world.clone_dir().write("plans/one.md", "changed\n");
    let refusal = refused_and_unchanged(&world, &turn, Code::NotReviewed, commit("plans/one.md"));
    assert!(refusal.message.contains("plans/one.md") && refusal.hint.contains("git_diff"));
    turn.reply::<Diff>(calls::diff(ROOT, "", ""));
    turn.reply::<Committed>(commit("plans/one.md"));
}

#[test]
fn writing_or_reading_a_tracked_file_is_not_reviewing_it() {
    let world = world();
    let turn = world.turn("Owner");
    turn.reply::<Written>(calls::write(ROOT, "plans/one.md", "written\n"));
    refused_and_unchanged(&world, &turn, Code::NotReviewed, commit("plans/one.md"));
    turn.reply::<FileText>(calls::read(ROOT, "plans/one.md"));
    refused_and_unchanged(&world, &turn, Code::NotReviewed, commit("plans/one.md"));
    // The staged changes and the history are not the work tree.
    turn.reply::<Diff>(calls::diff(ROOT, "staged", ""));
    turn.reply::<Diff>(calls::diff(ROOT, "HEAD..HEAD", ""));
    refused_and_unchanged(&world, &turn, Code::NotReviewed, commit("plans/one.md"));
    turn.reply::<Diff>(calls::diff(ROOT, "worktree", "plans/one.md"));
    turn.reply::<Committed>(commit("plans/one.md"));
}

#[test]
fn a_change_after_the_diff_is_not_reviewed() {
    let world = world();
    let turn = world.turn("Owner");
    let clone = world.clone_dir();
    clone.write("plans/one.md", "changed\n");
    turn.reply::<Diff>(calls::diff(ROOT, "", ""));
    clone.write("plans/one.md", "changed again\n");
    let refusal = refused_and_unchanged(&world, &turn, Code::NotReviewed, commit("plans/one.md"));
    assert!(refusal.message.contains("changed after the diff"), "{refusal}");
    std::fs::remove_file(clone.path("plans/one.md")).expect("it is there");
    refused_and_unchanged(&world, &turn, Code::NotReviewed, commit("plans/one.md"));
    clone.write("plans/one.md", "changed\n");
    turn.reply::<Committed>(commit("plans/one.md"));
}

#[test]
fn a_deletion_is_reviewed_by_its_diff() {
    let world = world();
    let turn = world.turn("Owner");
    std::fs::remove_file(world.clone_dir().path("plans/one.md")).expect("it is there");
    refused_and_unchanged(&world, &turn, Code::NotReviewed, commit("plans/one.md"));
    turn.reply::<Diff>(calls::diff(ROOT, "", ""));
    turn.reply::<Committed>(commit("plans/one.md"));
}

#[test]
fn a_new_file_counts_when_it_was_read_whole() {
    let world = world();
    let turn = world.turn("Owner");
    let clone = world.clone_dir();
    clone.write("new.md", "a new file of some length\n");
    turn.reply::<Diff>(calls::diff(ROOT, "", ""));
    refused_and_unchanged(&world, &turn, Code::NotReviewed, commit("new.md"));
    turn.reply::<FileText>(calls::read_part(ROOT, "new.md", Some(0), Some(10)));
    refused_and_unchanged(&world, &turn, Code::NotReviewed, commit("new.md"));
    turn.reply::<FileText>(calls::read_part(ROOT, "new.md", Some(12), Some(100)));
    refused_and_unchanged(&world, &turn, Code::NotReviewed, commit("new.md"));
    turn.reply::<FileText>(calls::read_part(ROOT, "new.md", Some(10), Some(100)));
    clone.write("new.md", "a new file of some other length\n");
    let refusal = refused_and_unchanged(&world, &turn, Code::NotReviewed, commit("new.md"));
    assert!(refusal.message.contains("changed after it was read"), "{refusal}");
    turn.reply::<FileText>(calls::read(ROOT, "new.md"));
    turn.reply::<Committed>(commit("new.md"));
}

#[test]
fn a_file_that_write_file_made_is_reviewed_until_somebody_touches_it() {
    let world = world();
    let turn = world.turn("Owner");
    turn.reply::<Written>(calls::write(ROOT, "new.md", "mine\n"));
    world.clone_dir().write("new.md", "somebody's\n");
    refused_and_unchanged(&world, &turn, Code::NotReviewed, commit("new.md"));
    turn.reply::<Written>(calls::write(ROOT, "new.md", "mine\n"));
    turn.reply::<Committed>(commit("new.md"));
}

#[test]
fn the_review_of_another_turn_does_not_count() {
    let world = world();
    world.clone_dir().write("plans/one.md", "changed\n");
    world.turn("Owner").reply::<Diff>(calls::diff(ROOT, "", ""));
    let turn = world.turn("Owner");
    refused_and_unchanged(&world, &turn, Code::NotReviewed, commit("plans/one.md"));
    turn.reply::<Diff>(calls::diff(ROOT, "", ""));
    turn.reply::<Committed>(commit("plans/one.md"));
}

#[test]
fn a_commit_uses_the_review_up() {
    let world = world();
    let turn = world.turn("Owner");
    let clone = world.clone_dir();
    clone.write("plans/one.md", "changed\n");
    clone.write("plans/two.md", "changed\n");
    turn.reply::<Diff>(calls::diff(ROOT, "", ""));
    turn.reply::<Committed>(commit("plans/one.md"));
    refused_and_unchanged(&world, &turn, Code::NotReviewed, commit("plans/two.md"));
    turn.reply::<Diff>(calls::diff(ROOT, "", ""));
    turn.reply::<Committed>(commit("plans/two.md"));
}

#[test]
fn a_diff_that_was_cut_counts_once_it_was_paged_through() {
    let world = world();
    let turn = world.turn("Owner");
    let lines: String = (0..500).map(|n| format!("line {n} of a long change\n")).collect();
    world.clone_dir().write("plans/one.md", &lines);
    world.clone_dir().write("plans/two.md", &lines);
    let diff: Diff = turn.reply(calls::short_diff(ROOT, 4096));
    let cut = diff.untrusted_diff.cut.expect("it is longer");
    let mut text = diff.untrusted_diff.text.0;
    assert_eq!((cut.next_offset as usize, text.len()), (text.len(), text.len()));
    let both = || calls::commit(ROOT, "Both", &["plans/one.md", "plans/two.md"]);
    refused_and_unchanged(&world, &turn, Code::NotReviewed, both());
    let mut next = Some(cut.next_offset);
    while let Some(offset) = next {
        refused_and_unchanged(&world, &turn, Code::NotReviewed, both());
        let page: OutputPage = turn.reply(calls::read_output(&cut.handle, offset));
        assert_eq!(page.size, cut.size);
        text.push_str(page.untrusted_text.as_str());
        next = page.next_offset;
    }
    assert_eq!(text.len() as u64, cut.size);
    let git = ["diff", "--full-index"];
    assert_eq!(text, format!("{}\n", world.git(&git)));
    turn.reply::<Committed>(both());
}

#[test]
fn the_rest_of_an_output_belongs_to_its_turn() {
    let world = world();
    let turn = world.turn("Owner");
    let lines: String = (0..500).map(|n| format!("line {n} of a long change\n")).collect();
    world.clone_dir().write("plans/one.md", &lines);
    let diff: Diff = turn.reply(calls::short_diff(ROOT, 4096));
    let cut = diff.untrusted_diff.cut.expect("it is longer");
    let other = world.turn("Owner");
    other.refused_by(Code::UnknownHandle, calls::read_output(&cut.handle, 0));
    for handle in ["output-0", "output-2", "output-", "", "x"] {
        turn.refused_by(Code::UnknownHandle, calls::read_output(handle, 0));
    }
    let page: OutputPage = turn.reply(calls::read_output(&cut.handle, 0));
    assert!(page.untrusted_text.as_str().starts_with("diff --git"));
}

#[test]
fn a_diff_that_failed_reviews_nothing() {
    let world = world();
    let turn = world.turn("Owner");
    world.clone_dir().write("plans/one.md", "changed\n");
    turn.refused_by(Code::InvalidRevision, calls::diff(ROOT, "HEAD", ""));
    turn.refused_by(Code::UnknownRevision, calls::diff(ROOT, "HEAD..nowhere", ""));
    refused_and_unchanged(&world, &turn, Code::NotReviewed, commit("plans/one.md"));
    turn.reply::<Diff>(calls::diff(ROOT, "", ""));
    turn.reply::<Committed>(commit("plans/one.md"));
}
