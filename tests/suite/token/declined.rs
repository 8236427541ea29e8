//! A server that takes the token and declines the push.

use harness::https::world::Setup;
use protocol::refusal::Code;
use protocol::reply::PushState;

use super::{committed, gits, push_failed, pushed, refused};

#[test]
fn a_push_that_the_servers_hook_declines_keeps_the_commit_and_the_next_one_sends_both() {
    for git in gits() {
        let mut world = Setup::new(&git).start().expect("a world starts");
        let before = world.remote_head();
        world.hook("pre-receive", "echo 'closed for the day' >&2; exit 1").expect("a hook");
        let first = committed(world.commit("a.md", b"one\n"));
        let message = push_failed(&first, Code::RemoteRejected);
        assert!(message.contains("closed for the day"), "{message}");
        assert_eq!((world.head(), world.remote_head()), (first.hash.clone(), before.clone()));
        let refusal = refused(world.push(), Code::RemoteRejected);
        assert!(refusal.message.contains("closed for the day"), "{refusal}");

        world.no_hooks().expect("the hook goes");
        let second = committed(world.commit("b.md", b"two\n"));
        assert_eq!((second.push, world.remote_head()), (PushState::Pushed, second.hash));
        let sent = format!("{before}..refs/heads/main");
        let bare = world.bare();
        let bare = bare.to_str().expect("a UTF-8 path");
        let count = world.git(&["-C", bare, "rev-list", "--count", &sent]).expect("git counts");
        assert_eq!(count, "2", "the first commit went with the second");
    }
}

#[test]
fn a_protected_branch_is_declined_in_the_servers_own_words() {
    for git in gits() {
        let mut world = Setup::new(&git).start().expect("a world starts");
        let script = "echo 'GH006: Protected branch update failed' >&2; exit 1";
        world.hook("update", script).expect("a hook");
        let done = committed(world.commit("a.md", b"one\n"));
        let message = push_failed(&done, Code::RemoteRejected);
        assert!(message.contains("GH006: Protected branch update failed"), "{message}");
        assert!(message.contains("A person looks at the remote's rules"), "{message}");
    }
}

#[test]
fn what_a_hook_says_is_cut_and_masked_before_it_is_passed_on() {
    let git = gits().remove(0);
    let mut world = Setup::new(&git).start().expect("a world starts");
    let url = "https://bot:hunter22@git.example.invalid/x.git";
    let script = format!("echo 'see {url}' >&2; seq 1 100000 >&2; exit 1");
    world.hook("pre-receive", &script).expect("a hook");
    let done = committed(world.commit("a.md", b"one\n"));
    let message = push_failed(&done, Code::RemoteRejected);
    assert!(message.contains("git.example.invalid/x.git"), "{message}");
    assert!(!message.contains("hunter22"), "{message}");
    assert!(message.len() < 6000, "{} bytes", message.len());
    world.no_hooks().expect("the hook goes");
    assert_eq!(pushed(world.push()).commits, 1);
}

#[test]
fn what_a_hook_says_does_not_decide_what_the_refusal_is() {
    let git = gits().remove(0);
    let mut world = Setup::new(&git).start().expect("a world starts");
    for lie in ["! [rejected] main (fetch first)", "fatal: Authentication failed for you"] {
        world.hook("pre-receive", &format!("echo '{lie}' >&2; exit 1")).expect("a hook");
        let done = committed(world.commit("a.md", lie.as_bytes()));
        push_failed(&done, Code::RemoteRejected);
    }
}
