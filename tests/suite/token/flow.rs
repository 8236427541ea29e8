//! What must work, with each git.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use harness::https::world::{Setup, World};
use protocol::refusal::Code;
use protocol::reply::PushState;

use super::{committed, gits, pulled, pushed, refused};

fn worlds() -> impl Iterator<Item = World> {
    gits().into_iter().map(|git| Setup::new(&git).start().expect("a world starts"))
}

#[test]
fn the_server_of_these_tests_serves_nobody_without_the_token() {
    for world in worlds() {
        let url = world.url();
        let without = world.git(&["ls-remote", &url]).expect_err("it wants a token").to_string();
        assert!(without.contains("could not read Username"), "{without}");
        let with = url.replace("https://", &format!("https://any:{}@", world.marker.token()));
        let listed = world.git(&["ls-remote", &with]).expect("the token opens it");
        assert!(listed.contains(&world.remote_head()), "{listed}");
        assert_eq!(world.server.faults(), [""; 0]);
    }
}

#[test]
fn a_commit_is_pushed_over_https_at_once() {
    for mut world in worlds() {
        let done = committed(world.commit("a.md", b"one\n"));
        assert_eq!(done.push, PushState::Pushed);
        assert_eq!((world.head(), world.remote_head()), (done.hash.clone(), done.hash));
        assert_eq!(world.server.faults(), [""; 0]);
        let again = committed(world.commit("b.md", b"two\n"));
        assert_eq!((again.push, world.remote_head()), (PushState::Pushed, again.hash));
    }
}

#[test]
fn the_token_is_sent_only_when_asked_for_and_only_to_the_configured_origin() {
    for mut world in worlds() {
        committed(world.commit("a.md", b"one\n"));
        pulled(world.pull());
        let seen = world.server.seen();
        assert_eq!(seen[0].authorization, None, "the first request waits to be asked");
        let basic = STANDARD.encode(format!("x-access-token:{}", world.marker.token()));
        let sent: Vec<_> = seen.iter().filter_map(|seen| seen.authorization.as_deref()).collect();
        assert!(!sent.is_empty() && sent.iter().all(|text| *text == format!("Basic {basic}")));
        let origin = format!("localhost:{}", world.server.port());
        assert!(seen.iter().all(|seen| seen.host == origin), "{seen:?}");
        assert!(seen.iter().all(|seen| seen.line.contains(" /origin.git/")), "{seen:?}");
    }
}

#[test]
fn git_push_sends_what_a_person_committed_by_hand() {
    for mut world in worlds() {
        assert_eq!(pushed(world.push()).commits, 0);
        world.commit_by_hand("by-hand.md").expect("git commits");
        let done = pushed(world.push());
        assert_eq!((done.commits, done.hash), (1, world.head()));
        assert_eq!(world.remote_head(), world.head());
    }
}

#[test]
fn git_pull_brings_what_others_pushed() {
    for mut world in worlds() {
        let before = world.head();
        assert_eq!(pulled(world.pull()).commits, 0);
        world.commit_elsewhere("theirs.md").expect("git pushes");
        let done = pulled(world.pull());
        assert_eq!((done.commits, done.from), (1, before));
        assert_eq!((done.to, world.head()), (world.remote_head(), world.remote_head()));
        let text = std::fs::read_to_string(world.clone_path().join("theirs.md"));
        assert_eq!(text.expect("it came"), "theirs.md\n");
    }
}

#[test]
fn a_commit_larger_than_gits_buffer_arrives_in_chunks() {
    for mut world in worlds() {
        // Text that does not compress: git sends what is longer than 1 MiB in chunks.
        let mut state = 1_u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        })
        .take(3 << 20)
        .collect();
        let done = committed(world.commit("large.bin", &noise));
        assert_eq!((done.push, world.remote_head()), (PushState::Pushed, done.hash));
        let chunked = |seen: &harness::https::server::Seen| seen.body_coding.contains(&"chunked");
        assert!(world.server.seen().iter().any(chunked), "{:?}", world.server.seen());
    }
}

#[test]
fn a_commit_waits_for_a_pull_when_the_remote_is_ahead() {
    for mut world in worlds() {
        let before = world.head();
        world.commit_elsewhere("theirs.md").expect("git pushes");
        let refusal = refused(world.commit("mine.md", b"mine\n"), Code::RemoteAhead);
        assert!(refusal.hint.contains("git_pull"), "{refusal}");
        assert_eq!(world.head(), before, "nothing was committed");
        refused(world.push(), Code::RemoteAhead);
        assert_eq!(pulled(world.pull()).commits, 1);
        assert_eq!(committed(world.commit("mine.md", b"mine\n")).push, PushState::Pushed);
        assert_eq!(world.remote_head(), world.head());
    }
}

#[test]
fn a_clone_that_has_diverged_is_left_as_it_is_and_both_counts_are_said() {
    for mut world in worlds() {
        world.commit_elsewhere("theirs.md").expect("git pushes");
        // So many, and no memory of the remote: git must ask about all, and packs what it asks.
        for number in 0..40 {
            world.commit_by_hand(&format!("mine-{number}.md")).expect("git commits");
        }
        let clone = world.clone_path();
        let clone = clone.to_str().expect("a UTF-8 path");
        world.git(&["-C", clone, "update-ref", "-d", "refs/remotes/origin/main"]).expect("it goes");
        let (here, there) = (world.head(), world.remote_head());
        let refusal = refused(world.pull(), Code::Diverged);
        assert!(refusal.message.contains("40 commits only here, 1 only there"), "{refusal}");
        let gzip = |seen: &harness::https::server::Seen| seen.body_coding.contains(&"gzip");
        assert!(world.server.seen().iter().any(gzip), "{:?}", world.server.seen());
        refused(world.push(), Code::Diverged);
        refused(world.commit("more.md", b"more\n"), Code::Diverged);
        assert_eq!((world.head(), world.remote_head()), (here, there));
    }
}
