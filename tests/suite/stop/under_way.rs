//! A stop while a call is under way: its children are killed and reaped, and the clone is as before.
//! How long that took is said, and asserted nowhere.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Instant;

use harness::calls;
use harness::cli::Run;
use harness::git::installed;
use harness::https::server::{Answer, Gate};
use harness::https::world::{ROOT, Setup, World as HttpsWorld};
use harness::snapshot::Snapshot;
use harness::world::World;
use protocol::refusal::{Code, Outcome, Refusal};
use protocol::reply::{PushState, Reply};
use serde_json::{Value, json};

fn command(world: &HttpsWorld, name: &str) -> String {
    let config = world.folder().join("executor.json");
    let words = [name.as_ref(), "--config".as_ref(), config.as_os_str()];
    let said = Run::executor(words).piped();
    assert_eq!(said.code, 0, "{said:?}");
    said.out
}

/// Stops, and checks that when the command says so nothing runs and nothing is left.
fn stop(world: &HttpsWorld) {
    assert!(!world.children().is_empty(), "the positive control: git is under way");
    let began = Instant::now();
    let said = command(world, "stop");
    let (took, children) = (began.elapsed(), world.children());
    assert!(said.contains("; 1 calls were cancelled"), "{said}");
    assert!(children.is_empty(), "{children:?}");
    assert_eq!(world.skeletons(), 0);
    let audit = std::fs::read_to_string(world.folder().join("state/audit.jsonl"));
    let audit = audit.expect("there is an audit");
    let mut lines = audit.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let halted = lines.rfind(|line| line["event"] == "halted").expect("it halted");
    eprintln!(
        "measured: halted {} µs after the executor saw the stop; the command took {took:?}",
        halted["afterMicros"]
    );
}

fn stopped(outcome: Outcome) -> Refusal {
    match outcome {
        Outcome::Refusal(no) if no.code == Code::Stopped => no,
        other => panic!("{other:?} is not refused as stopped"),
    }
}

#[test]
fn a_push_to_a_server_that_never_answers_is_ended() {
    for git in installed() {
        let mut world = Setup::new(&git).start().expect("a world starts");
        world.commit_by_hand("a.md").expect("it commits");
        let before = Snapshot::of_clone(&world.clone_path());
        world.server.answer(Answer::Hang);
        let outcome = world.call_meanwhile("git_push", json!({"root": ROOT}), stop);
        let no = stopped(outcome);
        assert!(no.message.contains("was cancelled; nothing was changed"), "{no}");
        before.assert_same_bytes(&Snapshot::of_clone(&world.clone_path()), "stopped");
        world.server.answer(Answer::Git);
        stopped(world.push());
        command(&world, "resume");
        assert!(matches!(world.push(), Outcome::Reply(Reply::Pushed(done)) if done.commits == 1));
        assert_eq!(world.remote_head(), world.head());
    }
}

/// Lets every request through but the one that carries the objects; returns when that one waits.
fn until_the_objects_are_sent(world: &HttpsWorld, gate: &Gate) {
    loop {
        let seen = world.server.seen();
        if seen
            .iter()
            .any(|seen| seen.line.starts_with("POST") && seen.line.contains("receive-pack"))
        {
            return;
        }
        // What has come by now is not yet that one, or it would have been seen.
        let come = gate.arrived();
        let still = world.server.seen().len() == seen.len();
        if still {
            gate.release(come);
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_push_in_the_middle_of_its_objects_is_ended_and_the_remote_is_as_before() {
    for git in installed() {
        let mut world = Setup::new(&git).start().expect("a world starts");
        world.commit_by_hand("a.md").expect("it commits");
        let (before, remote) = (Snapshot::of_clone(&world.clone_path()), world.remote_head());
        let gate = Arc::new(Gate::default());
        world.server.answer(Answer::GitBehind(Arc::clone(&gate)));
        let outcome = world.call_meanwhile("git_push", json!({"root": ROOT}), |world| {
            until_the_objects_are_sent(world, &gate);
            stop(world);
        });
        stopped(outcome);
        before.assert_same_bytes(&Snapshot::of_clone(&world.clone_path()), "stopped");
        assert_eq!(world.remote_head(), remote);
    }
}

#[test]
fn a_commit_that_was_made_stands_and_says_that_its_push_was_stopped() {
    for git in installed() {
        let mut world = Setup::new(&git).start().expect("a world starts");
        let gate = Arc::new(Gate::default());
        world.server.answer(Answer::GitBehind(Arc::clone(&gate)));
        std::fs::write(world.clone_path().join("a.md"), "one\n").expect("it is ours");
        let commit = json!({"root": ROOT, "message": "Write a.md", "paths": ["a.md"]});
        let outcome = world.call_meanwhile("git_commit", commit, |world| {
            until_the_objects_are_sent(world, &gate);
            stop(world);
        });
        let Outcome::Reply(Reply::Committed(done)) = outcome else { panic!("{outcome:?}") };
        assert_eq!(done.hash, world.head());
        let PushState::Failed { code, message } = done.push else { panic!("it was pushed") };
        assert_eq!(code, Code::Stopped, "{message}");
        assert!(message.contains("resume"), "{message}");
        assert_eq!(
            world
                .git(&["-C", world.clone_path().to_str().expect("UTF-8"), "status", "--porcelain"])
                .expect("git"),
            ""
        );
    }
}

#[test]
fn a_search_that_is_never_answered_is_ended() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let base = format!("http://{}", listener.local_addr().expect("an address"));
    let world = World::builder().web(json!({"searxng": base})).build();
    std::thread::scope(|scope| {
        let search = scope
            .spawn(|| world.turn("Owner").refused_by(Code::Stopped, calls::web_search("anything")));
        let asked = listener.accept().expect("the positive control: it connects");
        super::stop(&world);
        let no = search.join().expect("it was refused");
        assert!(no.message.contains("under way"), "{no}");
        drop(asked);
    });
}
