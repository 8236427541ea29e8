//! The review gate (G1, G2): what is committed was seen in the same turn, as it is now.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use harness::calls::{self, ROOT};
use harness::world::World;
use protocol::refusal::Code;
use protocol::reply::{Committed, Diff, Edited, FileText, OutputPage, Written};
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

#[test]
fn what_the_tools_change_after_the_diff_is_not_reviewed() {
    let world = world();
    let turn = world.turn("Owner");
    world.clone_dir().write("plans/one.md", "changed\n");
    turn.reply::<Diff>(calls::diff(ROOT, "", ""));
    turn.reply::<Edited>(calls::edit(ROOT, "plans/one.md", "changed", "edited"));
    let refusal = refused_and_unchanged(&world, &turn, Code::NotReviewed, commit("plans/one.md"));
    assert!(refusal.message.contains("changed after the diff"), "{refusal}");
    turn.reply::<Diff>(calls::diff(ROOT, "", ""));
    turn.reply::<Written>(calls::write(ROOT, "plans/one.md", "written\n"));
    refused_and_unchanged(&world, &turn, Code::NotReviewed, commit("plans/one.md"));
    // The content that was seen, by whichever hand, is what counts.
    turn.reply::<Edited>(calls::edit(ROOT, "plans/one.md", "written", "edited"));
    turn.reply::<Committed>(commit("plans/one.md"));
}

#[test]
fn what_somebody_staged_after_the_diff_is_not_taken_for_reviewed() {
    let world = world();
    let turn = world.turn("Owner");
    let clone = world.clone_dir();
    clone.write("plans/one.md", "changed\n");
    turn.reply::<Diff>(calls::diff(ROOT, "", ""));
    clone.write("plans/one.md", "somebody's\n");
    world.git(&["add", "plans/one.md"]);
    refused_and_unchanged(&world, &turn, Code::AlreadyStaged, commit("plans/one.md"));
    // Once it is staged, git's diff of the work tree is empty, and an empty diff reviews nothing.
    turn.reply::<Diff>(calls::diff(ROOT, "", ""));
    world.git(&["reset", "-q"]);
    refused_and_unchanged(&world, &turn, Code::NotReviewed, commit("plans/one.md"));
    clone.write("plans/one.md", "changed\n");
    turn.reply::<Committed>(commit("plans/one.md"));
}

#[test]
fn a_mode_change_is_reviewed_by_the_diff_that_shows_it() {
    let world = world();
    let turn = world.turn("Owner");
    let one = world.clone_dir().path("plans/one.md");
    let set = |mode| {
        std::fs::set_permissions(&one, Permissions::from_mode(mode)).expect("it is ours");
    };
    world.clone_dir().write("plans/one.md", "changed\n");
    turn.reply::<Diff>(calls::diff(ROOT, "", ""));
    set(0o755);
    let refusal = refused_and_unchanged(&world, &turn, Code::NotReviewed, commit("plans/one.md"));
    assert!(refusal.message.contains("changed after the diff"), "{refusal}");
    let diff: Diff = turn.reply(calls::diff(ROOT, "", ""));
    assert!(diff.untrusted_diff.text.as_str().contains("new mode 100755"), "{diff:?}");
    set(0o644);
    refused_and_unchanged(&world, &turn, Code::NotReviewed, commit("plans/one.md"));
    set(0o755);
    turn.reply::<Committed>(commit("plans/one.md"));
    // The mode alone, too.
    set(0o644);
    refused_and_unchanged(&world, &turn, Code::NotReviewed, commit("plans/one.md"));
    turn.reply::<Diff>(calls::diff(ROOT, "", ""));
    turn.reply::<Committed>(commit("plans/one.md"));
}

#[test]
fn a_new_executable_is_not_reviewed_by_reading_it() {
    let world = world();
    let turn = world.turn("Owner");
    world.clone_dir().write("run.sh", "true\n");
    let run = world.clone_dir().path("run.sh");
    std::fs::set_permissions(&run, Permissions::from_mode(0o755)).expect("it is ours");
    turn.reply::<FileText>(calls::read(ROOT, "run.sh"));
    let refusal = refused_and_unchanged(&world, &turn, Code::NotReviewed, commit("run.sh"));
    assert!(refusal.message.contains("executable"), "{refusal}");
    std::fs::set_permissions(&run, Permissions::from_mode(0o644)).expect("it is ours");
    turn.reply::<Committed>(commit("run.sh"));
}

#[test]
fn a_rename_is_a_deletion_that_was_diffed_and_a_new_file_that_was_read() {
    let world = world();
    let turn = world.turn("Owner");
    let clone = world.clone_dir();
    std::fs::rename(clone.path("plans/one.md"), clone.path("plans/uno.md")).expect("it moves");
    let both = || calls::commit(ROOT, "Renamed", &["plans/one.md", "plans/uno.md"]);
    let refusal = refused_and_unchanged(&world, &turn, Code::NotReviewed, both());
    let said = &refusal.message;
    assert!(said.contains("\"plans/one.md\" was in no diff"), "{said}");
    assert!(said.contains("\"plans/uno.md\" is new and was not read whole"), "{said}");
    turn.reply::<Diff>(calls::diff(ROOT, "", ""));
    let refusal = refused_and_unchanged(&world, &turn, Code::NotReviewed, both());
    assert!(!refusal.message.contains("plans/one.md"), "{refusal}");
    turn.reply::<FileText>(calls::read(ROOT, "plans/uno.md"));
    let done: Committed = turn.reply(both());
    let shown = world.git(&["show", "--format=", "--name-status", "-M", &done.hash]);
    assert_eq!(shown, "R100\tplans/one.md\tplans/uno.md");
}

#[test]
fn a_refusal_names_each_path_with_its_own_reason_and_what_to_do() {
    let world = world();
    let turn = world.turn("Owner");
    let clone = world.clone_dir();
    clone.write("plans/one.md", "changed\n");
    turn.reply::<Diff>(calls::diff(ROOT, "", ""));
    clone.write("plans/one.md", "changed again\n");
    turn.reply::<Written>(calls::write(ROOT, "plans/two.md", "written\n"));
    clone.write("README.md", "changed\n");
    clone.write("new.md", "new\n");
    let paths = ["plans/one.md", "plans/two.md", "README.md", "new.md"];
    let all = || calls::commit(ROOT, "All of it", &paths);
    let refusal = refused_and_unchanged(&world, &turn, Code::NotReviewed, all());
    for said in [
        "\"plans/one.md\" changed after the diff",
        "\"plans/two.md\" is a tracked file that was written or read, but not diffed",
        "\"README.md\" was in no diff",
        "\"new.md\" is new and was not read whole",
    ] {
        assert!(refusal.message.contains(said), "{said}: {refusal}");
    }
    for tool in ["git_diff", "read_file", "read_output"] {
        assert!(refusal.hint.contains(tool), "{tool}: {}", refusal.hint);
    }
    turn.reply::<Diff>(calls::diff(ROOT, "", ""));
    turn.reply::<FileText>(calls::read(ROOT, "new.md"));
    turn.reply::<Committed>(all());
}

#[test]
fn a_page_that_was_left_out_is_not_reviewed() {
    let world = world();
    let turn = world.turn("Owner");
    // The page that read_output gives is the default budget: three of them.
    let lines: String = (0..2500).map(|n| format!("line {n} of a very long change\n")).collect();
    world.clone_dir().write("plans/one.md", &lines);
    let diff: Diff = turn.reply(calls::short_diff(ROOT, 4096));
    let cut = diff.untrusted_diff.cut.expect("it is longer");
    let page: OutputPage = turn.reply(calls::read_output(&cut.handle, cut.next_offset));
    let last = page.next_offset.expect("there is more");
    turn.reply::<Diff>(calls::short_diff(ROOT, 4096));
    let fresh = "output-2";
    // Of the second output, everything but a part in the middle.
    let mut next = Some(last);
    while let Some(offset) = next {
        next = turn.reply::<OutputPage>(calls::read_output(fresh, offset)).next_offset;
    }
    refused_and_unchanged(&world, &turn, Code::NotReviewed, commit("plans/one.md"));
    next = Some(last);
    while let Some(offset) = next {
        next = turn.reply::<OutputPage>(calls::read_output(&cut.handle, offset)).next_offset;
    }
    turn.reply::<Committed>(commit("plans/one.md"));
}

#[test]
fn what_a_diff_masked_is_not_reviewed() {
    let world = world();
    let turn = world.turn("Owner");
    let secret = format!("key: {}{}\n", "ghp_", "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8");
    world.clone_dir().write("plans/one.md", &secret);
    world.clone_dir().write("plans/two.md", "changed\n");
    let diff: Diff = turn.reply(calls::diff(ROOT, "", ""));
    let text = diff.untrusted_diff.text;
    assert!(!text.as_str().contains("c3D4e5F6"), "it is masked: {text:?}");
    refused_and_unchanged(&world, &turn, Code::NotReviewed, commit("plans/one.md"));
    // The other file of the same diff was seen as it is.
    turn.reply::<Committed>(commit("plans/two.md"));
    world.clone_dir().write("plans/one.md", "key: in the vault\n");
    turn.reply::<Diff>(calls::diff(ROOT, "", ""));
    turn.reply::<Committed>(commit("plans/one.md"));
}

#[test]
fn where_no_review_is_required_none_is_asked_for() {
    let world = World::new_plain();
    let turn = world.turn("Owner");
    world.clone_dir().write("plans/one.md", "changed\n");
    world.clone_dir().write("new.md", "new\n");
    turn.reply::<Committed>(calls::commit(ROOT, "Unseen", &["plans/one.md", "new.md"]));
}
