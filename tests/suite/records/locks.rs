//! Locks: two writers, expiry, a crash while holding, and an owner who is alive.

use harness::calls::{self, ROOT};
use harness::turn::Turn;
use harness::world::World;
use protocol::refusal::Code;
use protocol::reply::{Committed, Edited, Reserved, Written};
use protocol::tool::{EditFile, ToolCall};

use super::{DECISION, world_with};
use super::{LOCK_TOOL, RECORD, TEXT, lock_tool, locks, no_script_is_left, shipped, until, world};
use crate::check::{self, refused_and_unchanged};

/// A lock tool whose `unlock` waits as long as there is a file that says so.
fn waiting_tool() -> String {
    let wait = "    import time\n    while os.path.exists('.vault-locks/wait'):\n        time.sleep(0.01)\n";
    let tool = shipped(LOCK_TOOL);
    let start = "def unlock(paths):\n    \"\"\"Gives claims back; what is not claimed is already so.\"\"\"\n";
    assert!(tool.contains(start));
    tool.replacen(start, &format!("{start}{wait}"), 1)
}

fn edit_decision() -> ToolCall {
    calls::edit(ROOT, DECISION, "status: accepted", "status: superseded")
}

/// Every call that needs the path is refused and names the owner; nothing changes.
fn stopped_by(world: &World, turn: &Turn<'_>, owner: &str) {
    let calls =
        [calls::write(ROOT, DECISION, "x"), edit_decision(), calls::commit(ROOT, "X", &[DECISION])];
    for call in calls {
        let refusal = refused_and_unchanged(world, turn, Code::RecordProtocol, call);
        let said = &refusal.message;
        assert!(said.contains(DECISION) && said.contains(&format!("locked by {owner} ")), "{said}");
        assert!(refusal.hint.contains("Wait"), "{}", refusal.hint);
    }
}

fn works(turn: &Turn<'_>) {
    turn.reply::<Edited>(edit_decision());
    turn.reply::<Committed>(calls::commit(ROOT, "Supersede it", &[DECISION]));
}

/// A world in which the lock folder is there already: a refusal is to change nothing.
fn used_world() -> World {
    let world = world();
    world.turn("Owner").reply::<Written>(calls::write(ROOT, "README.md", "# Strategy\n"));
    assert_eq!(locks(world.clone_dir().dir()), [""; 0]);
    world
}

#[test]
fn a_write_and_an_edit_hold_the_lock_of_their_path_and_let_it_go() {
    let world = world_with(&[(LOCK_TOOL, &waiting_tool())]);
    let folder = world.clone_dir().dir();
    world.turn("Owner").reply::<Reserved>(calls::reserve(ROOT, "Pick a name"));
    for (path, call) in [(RECORD, calls::write(ROOT, RECORD, TEXT)), (DECISION, edit_decision())] {
        let wait = world.clone_dir().path(".vault-locks/wait");
        std::fs::write(&wait, "").expect("it can be written");
        std::thread::scope(|scope| {
            let turn = world.turn("Owner");
            let call = scope.spawn(move || turn.call(call));
            until("it holds the lock", || !locks(folder).is_empty());
            let lock = locks(folder).concat();
            assert!(lock.contains(path) && lock.contains("\"owner\": \"sage\""), "{lock}");
            // Who lives and holds it keeps everybody else out.
            lock_tool(folder, "partner", &["lock", path]).no("locked by sage");
            std::fs::remove_file(&wait).expect("it is ours");
            let outcome = call.join().expect("it ends");
            assert!(matches!(outcome, protocol::refusal::Outcome::Reply(_)), "{outcome:?}");
        });
        assert_eq!(locks(folder), [""; 0]);
        assert_eq!(lock_tool(folder, "partner", &["check", path]).fine(), "free: 1");
    }
}

#[test]
fn a_dry_run_takes_no_lock() {
    let world = used_world();
    let folder = world.clone_dir().dir();
    lock_tool(folder, "partner", &["lock", DECISION]).fine();
    let ToolCall::EditFile(edit) = edit_decision() else { unreachable!("it is an edit") };
    let dry = ToolCall::EditFile(EditFile { dry_run: true, ..edit });
    assert!(!world.turn("Owner").reply::<Edited>(dry).written);
    refused_and_unchanged(
        &world,
        &world.turn("Owner"),
        Code::RecordProtocol,
        calls::write(ROOT, DECISION, "x"),
    );
}

#[test]
fn an_owner_who_is_alive_stops_sage_until_the_lock_is_given_back() {
    let world = used_world();
    let (folder, turn) = (world.clone_dir().dir(), world.turn("Owner"));
    lock_tool(folder, "partner", &["lock", DECISION]).fine();
    stopped_by(&world, &turn, "partner");
    // Other paths are free.
    turn.reply::<Written>(calls::write(ROOT, "README.md", "free\n"));
    turn.reply::<Committed>(calls::commit(ROOT, "Free", &["README.md"]));
    lock_tool(folder, "partner", &["unlock", DECISION]).fine();
    works(&turn);
}

#[test]
fn a_lock_of_a_folder_covers_what_is_in_it() {
    let world = used_world();
    let (folder, turn) = (world.clone_dir().dir(), world.turn("Owner"));
    lock_tool(folder, "partner", &["lock", "vault/Decisions"]).fine();
    stopped_by(&world, &turn, "partner");
    lock_tool(folder, "partner", &["unlock", "vault/Decisions"]).fine();
    works(&turn);
}

#[test]
fn a_lock_that_expired_stops_nobody() {
    let world = used_world();
    let (folder, turn) = (world.clone_dir().dir(), world.turn("Owner"));
    lock_tool(folder, "partner", &["lock", DECISION]).fine();
    stopped_by(&world, &turn, "partner");
    let lock = std::fs::read_dir(folder.join(".vault-locks")).expect("it is there").flatten();
    let lock = lock.map(|entry| entry.path()).find(|path| path.extension().is_some());
    let lock = lock.expect("there is one");
    let mut body: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&lock).expect("it is there")).expect("it is JSON");
    body["expires"] = serde_json::json!(1);
    std::fs::write(&lock, body.to_string()).expect("it is ours");
    works(&turn);
    assert_eq!(locks(folder), [""; 0]);
}

#[test]
fn a_damaged_lock_counts_as_somebody_s() {
    let world = used_world();
    let (folder, turn) = (world.clone_dir().dir(), world.turn("Owner"));
    lock_tool(folder, "partner", &["lock", DECISION]).fine();
    let lock = std::fs::read_dir(folder.join(".vault-locks")).expect("it is there").flatten();
    let lock = lock.map(|entry| entry.path()).find(|path| path.extension().is_some());
    let lock = lock.expect("there is one");
    for damaged in ["", "{", "[]", "{\"owner\": 1}", "\u{0}"] {
        std::fs::write(&lock, damaged).expect("it is ours");
        stopped_by(&world, &turn, "unknown");
    }
    std::fs::remove_file(&lock).expect("it is ours");
    works(&turn);
}

#[test]
fn a_crash_while_holding_leaves_a_lock_that_does_not_stop_sage() {
    let mut world = world_with(&[(LOCK_TOOL, &waiting_tool())]);
    world.turn("Owner").reply::<Reserved>(calls::reserve(ROOT, "Pick a name"));
    let wait = world.clone_dir().path(".vault-locks/wait");
    std::fs::write(&wait, "").expect("it can be written");
    std::thread::scope(|scope| {
        let world = &world;
        let call = calls::write(ROOT, RECORD, TEXT);
        let cut = scope.spawn(move || world.turn("Owner").try_call_as("c", call));
        let record = world.clone_dir().path(RECORD);
        until("it is written", || record.exists() && !locks(world.clone_dir().dir()).is_empty());
        world.strike();
        assert!(cut.join().expect("it ends").is_err(), "nobody answers any more");
    });
    world.kill_executor();
    // Its script does not outlive it: it would give the lock back once it may.
    until("its script is gone", || std::panic::catch_unwind(|| no_script_is_left(&world)).is_ok());
    std::fs::remove_file(&wait).expect("it is ours");
    world.start();
    let folder = world.clone_dir().dir();
    let held = locks(folder);
    assert!(held.len() == 1 && held[0].contains("\"owner\": \"sage\""), "{held:?}");
    lock_tool(folder, "partner", &["lock", RECORD]).no("locked by sage");
    let turn = world.turn("Owner");
    turn.reply::<Committed>(calls::commit(ROOT, "Pick a name", &[RECORD]));
    turn.reply::<Written>(calls::write(ROOT, RECORD, &TEXT.replace("proposed", "accepted")));
    assert_eq!(locks(folder), [""; 0]);
    lock_tool(folder, "partner", &["lock", RECORD]).fine();
    check::sound(&world);
}

#[test]
fn two_writers_of_sage_s_own_both_get_through() {
    let world = used_world();
    let texts = ["first\n".repeat(2000), "second\n".repeat(2000)];
    std::thread::scope(|scope| {
        for text in &texts {
            let turn = world.turn("Owner");
            scope.spawn(move || {
                for _ in 0..5 {
                    turn.reply::<Written>(calls::write(ROOT, "README.md", text));
                }
            });
        }
    });
    let text = world.clone_dir().text("README.md");
    assert!(texts.contains(&text), "it is one of both, whole");
    assert_eq!(locks(world.clone_dir().dir()), [""; 0]);
    no_script_is_left(&world);
}
