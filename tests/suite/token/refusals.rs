//! A remote that cannot be used, in every way there is.

use std::fs;
use std::path::Path;

use harness::https::authority::Leaf;
use harness::https::calls::GivingUp;
use harness::https::server::Answer;
use harness::https::world::{ROOT, Setup, World};
use protocol::refusal::{Code, Outcome, Refusal};
use protocol::reply::PushState;
use serde_json::json;

use super::{committed, gits, pulled, push_failed, pushed, refused};

fn good(git: &Path) -> World {
    Setup::new(git).start().expect("a world starts")
}

/// Push and pull are refused alike, and a commit stands though its push failed.
fn all_refused(world: &mut World, code: Code) -> Refusal {
    let before = world.remote_head();
    let refusal = refused(world.push(), code);
    refused(world.pull(), code);
    let done = committed(world.commit("kept.md", b"kept\n"));
    push_failed(&done, code);
    assert_eq!((world.head(), world.remote_head()), (done.hash, before));
    refusal
}

#[test]
fn a_wrong_token_is_refused_as_auth_failed_until_the_file_holds_the_right_one() {
    for git in gits() {
        let wrong = Some("not-the-token".to_owned());
        let setup = Setup { wrong_token: wrong, ..Setup::new(&git) };
        let mut world = setup.start().expect("a world starts");
        let refusal = all_refused(&mut world, Code::AuthFailed);
        assert!(refusal.hint.contains("token file"), "{refusal}");
        fs::write(world.token_file(), world.marker.token()).expect("the file is ours");
        let done = committed(world.commit("b.md", b"two\n"));
        assert_eq!((done.push, world.remote_head()), (PushState::Pushed, done.hash));
    }
}

#[test]
fn a_certificate_that_does_not_hold_is_refused_with_the_reason_before_anything_is_sent() {
    for git in gits() {
        let cases = [
            (Leaf::Expired, true, "certificate verification failed"),
            (Leaf::OtherHost, true, "does not match target host name 'localhost'"),
            (Leaf::Good, false, "certificate verification failed"),
        ];
        for (leaf, trusted, reason) in cases {
            let setup = Setup { leaf, trusted, ..Setup::new(&git) };
            let mut world = setup.start().expect("a world starts");
            let refusal = all_refused(&mut world, Code::RemoteUnreachable);
            assert!(refusal.message.contains(reason), "{leaf:?} {trusted}: {refusal}");
            assert!(world.server.connections().opened > 0, "it was tried");
            assert!(world.server.seen().is_empty(), "{:?}", world.server.seen());
        }
    }
}

#[test]
fn a_server_that_forbids_or_breaks_is_told_apart() {
    for git in gits() {
        let mut world = good(&git);
        for (status, code, said) in [
            (401, Code::AuthFailed, "Authentication failed"),
            (403, Code::AuthFailed, "error: 403"),
            (404, Code::RemoteUnreachable, "not found"),
            (500, Code::RemoteUnreachable, "error: 500"),
            (503, Code::RemoteUnreachable, "error: 503"),
        ] {
            world.server.answer(Answer::Status(status));
            let refusal = refused(world.push(), code);
            assert!(refusal.message.contains(said), "{status}: {refusal}");
            refused(world.pull(), code);
        }
        world.server.answer(Answer::Git);
        assert_eq!(pushed(world.push()).commits, 0);
    }
}

#[test]
fn a_server_that_is_gone_does_not_stop_a_commit() {
    for git in gits() {
        let mut world = good(&git);
        world.end_server();
        let refusal = refused(world.push(), Code::RemoteUnreachable);
        assert!(refusal.message.contains("connect"), "{refusal}");
        let done = committed(world.commit("a.md", b"one\n"));
        push_failed(&done, Code::RemoteUnreachable);
        assert_eq!(world.head(), done.hash);
    }
}

#[test]
fn a_server_that_never_answers_is_given_up_and_nothing_is_left_running() {
    for git in gits() {
        let mut world =
            Setup { git_timeout: 3, ..Setup::new(&git) }.start().expect("a world starts");
        assert_eq!(pushed(world.push()).commits, 0);
        world.server.answer(Answer::Hang);
        world.server.forget();
        let refusal = refused(world.push(), Code::TimedOut);
        assert!(refusal.message.contains("3 s"), "{refusal}");
        assert_eq!(world.children().len(), 0, "{:?}", world.children());
        refused(world.pull(), Code::TimedOut);
        let done = committed(world.commit("a.md", b"one\n"));
        push_failed(&done, Code::TimedOut);
        assert_eq!(world.children().len(), 0, "{:?}", world.children());
        assert_eq!(world.skeletons(), 0);
        assert!(world.server.seen().len() >= 4, "each was asked: {:?}", world.server.seen());
        world.server.answer(Answer::Git);
        assert_eq!(pushed(world.push()).commits, 1);
    }
}

/// Whoever gives up ends the push; then the root is free, and nothing runs.
fn gives_up(how: GivingUp) {
    for git in gits() {
        let mut world = good(&git);
        world.server.answer(Answer::Hang);
        world.call_and_give_up("git_push", json!({"root": ROOT}), how);
        world.server.answer(Answer::Git);
        // The one that was given up has the root for itself until it is wound up.
        let outcome = loop {
            match world.pull() {
                Outcome::Refusal(refusal) if refusal.code == Code::Busy => {}
                other => break other,
            }
        };
        assert_eq!(pulled(outcome).commits, 0);
        assert_eq!(world.children().len(), 0, "{:?}", world.children());
        assert_eq!(world.skeletons(), 0);
        let audit = fs::read_to_string(world.folder().join("state/audit.jsonl"));
        let audit = audit.expect("there is an audit");
        let cancelled = |line: &&str| line.contains("\"code\":\"cancelled\"");
        assert_eq!(audit.lines().filter(cancelled).count(), 1, "{audit}");
    }
}

#[test]
fn a_caller_that_cancels_ends_the_push_that_it_waited_for() {
    gives_up(GivingUp::Cancel);
}

#[test]
fn a_caller_that_is_gone_ends_the_push_that_it_waited_for() {
    gives_up(GivingUp::HangUp);
}
