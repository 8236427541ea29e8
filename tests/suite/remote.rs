//! The remote side of the writing verbs (E5, E6, E7): looked at first, never forced, never merged.

use std::os::unix::fs::PermissionsExt;

use harness::calls::{self, ROOT};
use harness::git::installed;
use harness::world::World;
use protocol::refusal::Code;
use protocol::reply::{Committed, Pulled, PushState, Pushed};

use crate::check::{self, commit_works, refused_and_unchanged};

#[test]
fn a_remote_that_is_ahead_is_pulled_first() {
    for git in installed() {
        let world = World::builder().git(&git).build();
        let turn = world.turn("Owner");
        world.clone_dir().write("plans/one.md", "changed\n");
        let theirs = world.others_push("theirs.md", "theirs\n");
        for call in [calls::commit(ROOT, "Mine", &["plans/one.md"]), calls::push(ROOT)] {
            let refusal = refused_and_unchanged(&world, &turn, Code::RemoteAhead, call);
            assert!(refusal.hint.contains("git_pull"), "{refusal}");
        }
        let pulled: Pulled = turn.reply(calls::pull(ROOT));
        assert_eq!(pulled.to, theirs);
        let done: Committed = turn.reply(calls::commit(ROOT, "Mine", &["plans/one.md"]));
        assert_eq!(done.push, PushState::Pushed);
        assert_eq!(world.git(&["rev-parse", "HEAD~1"]), theirs);
    }
}

#[test]
fn nothing_is_merged_when_both_sides_have_commits() {
    for git in installed() {
        let world = World::builder().git(&git).build();
        let turn = world.turn("Owner");
        let theirs = world.others_push("theirs.md", "theirs\n");
        world.others_push("theirs.md", "theirs, more\n");
        world.clone_dir().commit_file("mine.md", "mine\n", "Mine");
        // The remote's commits are not here yet; then they are.
        let refusal = refused_and_unchanged(&world, &turn, Code::Diverged, calls::pull(ROOT));
        assert!(refusal.message.contains('1') && refusal.message.contains('2'), "{refusal}");
        world.clone_dir().git(&["fetch", "-q"]);
        world.clone_dir().write("plans/one.md", "changed\n");
        let commit = calls::commit(ROOT, "Mine, too", &["plans/one.md"]);
        for call in [commit, calls::pull(ROOT), calls::push(ROOT)] {
            let refusal = refused_and_unchanged(&world, &turn, Code::Diverged, call);
            assert!(refusal.message.contains("1 commits only here"), "{refusal}");
            assert!(refusal.message.contains("2 only there"), "{refusal}");
        }
        assert_ne!(world.remote_head(), theirs);
        let restore = ["checkout", "-q", "--", "plans/one.md"];
        world.clone_dir().git(&restore);
        world.clone_dir().git(&["rebase", "-q", "origin/main"]);
        turn.reply::<Pushed>(calls::push(ROOT));
        commit_works(&world, &turn, "plans/one.md");
    }
}

#[test]
fn incoming_paths_that_are_changed_here_are_named_and_stay() {
    for git in installed() {
        let world = World::builder().git(&git).build();
        let turn = world.turn("Owner");
        let clone = world.clone_dir();
        world.others_push("plans/one.md", "theirs\n");
        world.others_push("new.md", "theirs\n");
        world.others_push("deep/er/new.md", "theirs\n");
        let other = world.other_clone();
        other.write("noise.log", "theirs\n");
        other.git(&["add", "--force", "noise.log"]);
        other.commit_all("An ignored file is tracked");
        other.git(&["push", "-q", "origin", "HEAD:main"]);

        clone.write("plans/one.md", "mine\n");
        clone.write("new.md", "mine\n");
        clone.write("noise.log", "mine\n");
        clone.write("deep/er", "a file where a folder comes\n");
        let refusal = refused_and_unchanged(&world, &turn, Code::IncomingDirty, calls::pull(ROOT));
        for path in ["plans/one.md", "\"new.md\"", "noise.log", "deep/er/new.md"] {
            assert!(refusal.message.contains(path), "{path}: {refusal}");
        }
        // One at a time, each stops it.
        let clear: [(&str, &dyn Fn()); 4] = [
            ("new.md", &|| drop(clone.git(&["checkout", "-q", "--", "plans/one.md"]))),
            ("noise.log", &|| std::fs::remove_file(clone.path("new.md")).expect("it is ours")),
            ("deep/er", &|| std::fs::remove_file(clone.path("noise.log")).expect("it is ours")),
            ("", &|| std::fs::remove_file(clone.path("deep/er")).expect("it is ours")),
        ];
        for (still, remove) in clear {
            remove();
            if still.is_empty() {
                continue;
            }
            let refusal =
                refused_and_unchanged(&world, &turn, Code::IncomingDirty, calls::pull(ROOT));
            assert!(refusal.message.contains(still), "{still}: {refusal}");
        }
        let done: Pulled = turn.reply(calls::pull(ROOT));
        assert_eq!((done.to, done.commits), (world.remote_head(), 4));
        assert_eq!(clone.text("deep/er/new.md"), "theirs\n");
        check::sound(&world);
    }
}

#[test]
fn staged_incoming_paths_stop_a_pull_too() {
    let world = World::new_plain();
    let turn = world.turn("Owner");
    world.others_push("plans/one.md", "theirs\n");
    world.clone_dir().write("plans/one.md", "mine\n");
    world.clone_dir().git(&["add", "plans/one.md"]);
    let refusal = refused_and_unchanged(&world, &turn, Code::IncomingDirty, calls::pull(ROOT));
    assert!(refusal.message.contains("plans/one.md"), "{refusal}");
    world.clone_dir().git(&["reset", "-q", "--hard"]);
    turn.reply::<Pulled>(calls::pull(ROOT));
}

#[test]
fn a_remote_that_is_gone_is_said() {
    let world = World::new_plain();
    let turn = world.turn("Owner");
    let (here, away) = (world.base().join("remote.git"), world.base().join("away.git"));
    std::fs::rename(&here, &away).expect("it can be moved");
    turn.refused_by(Code::RemoteUnreachable, calls::pull(ROOT));
    turn.refused_by(Code::RemoteUnreachable, calls::push(ROOT));
    std::fs::rename(&away, &here).expect("it can be moved");
    turn.reply::<Pulled>(calls::pull(ROOT));
    turn.reply::<Pushed>(calls::push(ROOT));
}

#[test]
fn a_remote_that_declines_is_quoted_and_the_commit_kept() {
    for git in installed() {
        let world = World::builder().git(&git).build();
        let turn = world.turn("Owner");
        // Somebody holds the branch at the remote.
        let remote = world.repo("remote.git");
        let before = world.remote_head();
        std::fs::write(remote.path("refs/heads/main.lock"), "").expect("it is ours");
        world.clone_dir().write("plans/one.md", "changed\n");
        let done: Committed = turn.reply(calls::commit(ROOT, "Declined", &["plans/one.md"]));
        let PushState::Failed { code, message } = done.push else { panic!("{done:?}") };
        assert_eq!(code, Code::RemoteRejected, "{message}");
        assert_eq!(world.clone_dir().head(), done.hash);
        assert_eq!(world.remote_head(), before);
        turn.refused_by(Code::RemoteRejected, calls::push(ROOT));
        std::fs::remove_file(remote.path("refs/heads/main.lock")).expect("it is there");
        let pushed: Pushed = turn.reply(calls::push(ROOT));
        assert_eq!((pushed.commits, pushed.hash), (1, done.hash));
    }
}

#[test]
fn a_hook_of_a_local_remote_never_runs_and_the_push_is_declined() {
    let world = World::new_plain();
    let turn = world.turn("Owner");
    let hook = world.base().join("remote.git/hooks/pre-receive");
    let marker = world.markers().join("pre-receive");
    std::fs::create_dir_all(hook.parent().expect("it has one")).expect("it can be made");
    let script = format!("#!/bin/sh\ntouch {}\necho no thanks >&2\nexit 1\n", marker.display());
    std::fs::write(&hook, script).expect("it can be written");
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    world.clone_dir().write("plans/one.md", "changed\n");
    let before = world.remote_head();
    let done: Committed = turn.reply(calls::commit(ROOT, "Declined", &["plans/one.md"]));
    let PushState::Failed { code, .. } = done.push else { panic!("{done:?}") };
    assert_eq!(code, Code::RemoteRejected);
    assert_eq!(world.remote_head(), before);
    assert!(!marker.exists(), "the hook ran");
    std::fs::remove_file(hook).expect("it is there");
    turn.reply::<Pushed>(calls::push(ROOT));
}

#[test]
fn the_first_push_makes_the_remotes_branch() {
    let world = World::new_plain();
    let turn = world.turn("Owner");
    world.repo("remote.git").git(&["update-ref", "-d", "refs/heads/main"]);
    turn.refused_by(Code::UnknownRevision, calls::pull(ROOT));
    let pushed: Pushed = turn.reply(calls::push(ROOT));
    assert_eq!((pushed.commits, pushed.hash), (1, world.remote_head()));
}

#[test]
fn tags_and_other_branches_are_never_pushed() {
    let world = World::new_plain();
    let turn = world.turn("Owner");
    let clone = world.clone_dir();
    clone.git(&["tag", "-a", "v1", "-m", "One"]);
    clone.git(&["branch", "side"]);
    clone.git(&["config", "push.followTags", "true"]);
    clone.git(&["config", "push.default", "matching"]);
    commit_works(&world, &turn, "plans/one.md");
    turn.reply::<Pushed>(calls::push(ROOT));
    let refs = world.repo("remote.git").git(&["for-each-ref", "--format=%(refname)"]);
    assert_eq!(refs, "refs/heads/main");
}
