//! The token is in its file, in the memory of git's https helper while it talks, and nowhere else.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use harness::https::server::{Answer, Gate};
use harness::https::watch::{ASKPASS, HELPER, Marker, Process, Report, Watch};
use harness::https::world::{Setup, World};
use protocol::refusal::Code;
use protocol::reply::PushState;

use super::{committed, gits, pulled, push_failed, pushed, refused};

/// How often to pull, at most, until the watch has caught askpass in its short life.
const MOST_PULLS: usize = 200;

#[test]
fn a_marker_is_recognised_in_every_form() {
    let marker = Marker::new();
    let token = marker.token();
    assert_eq!(marker.find(b"nothing of it"), None);
    assert_eq!(marker.find(Marker::new().token().as_bytes()), None);
    assert!(marker.find(format!("x{token}y").as_bytes()).is_some());
    assert!(marker.find(&token.as_bytes()[..token.len() - 5]).is_some(), "cut");
    for before in ["", "a", "ab", "x-access-token:", "oauth2:"] {
        let text = STANDARD.encode(format!("{before}{token}\n"));
        let form = marker.find(text.as_bytes());
        assert!(form.is_some_and(|form| form.starts_with("base64")), "{before:?}: {form:?}");
    }
}

#[test]
fn the_watch_finds_a_marker_that_is_in_arguments_or_environment() {
    let (in_arguments, in_environment) = (Marker::new(), Marker::new());
    let mut leaky = Command::new("/bin/sh")
        .args(["-c", "read line", in_arguments.token()])
        .env("LEAK", in_environment.token())
        .stdin(Stdio::piped())
        .spawn()
        .expect("a shell");
    let nowhere = Path::new("/nonexistent");
    let reports =
        [&in_arguments, &in_environment].map(|marker| Watch::start(marker, nowhere, None).finish());
    let holds = Process::memory_holds(leaky.id(), in_environment.token().as_bytes());
    drop(leaky.stdin.take());
    leaky.wait().expect("the shell ends");
    let [arguments, environment] = reports;
    assert!(arguments.found.iter().any(|found| found.starts_with("arguments of sh")));
    assert!(environment.found.iter().any(|found| found.starts_with("environment of sh")));
    assert!(holds.expect("its memory can be looked into"));
    let clean = Watch::start(&in_arguments, nowhere, None).finish();
    assert!(clean.found.is_empty() && clean.passes > 0, "{clean:?}");
}

/// Everything that git over https does, well and badly, while the watch looks on.
fn busy_day(world: &mut World) -> Report {
    let gate = Arc::new(Gate::default());
    world.server.answer(Answer::GitBehind(Arc::clone(&gate)));
    let watch = Watch::start(&world.marker, world.folder(), Some(Arc::clone(&gate)));
    assert_eq!(committed(world.commit("a.md", b"one\n")).push, PushState::Pushed);
    world.commit_by_hand("by-hand.md").expect("git commits");
    assert_eq!(pushed(world.push()).commits, 1);
    world.commit_elsewhere("theirs.md").expect("git pushes");
    refused(world.push(), Code::RemoteAhead);
    assert_eq!(pulled(world.pull()).commits, 1);
    world.hook("pre-receive", "env; exit 1").expect("a hook");
    push_failed(&committed(world.commit("b.md", b"two\n")), Code::RemoteRejected);
    for status in [401, 403, 500] {
        world.server.answer(Answer::Status(status));
        assert!(matches!(world.push(), protocol::refusal::Outcome::Refusal(_)));
    }
    watch.finish()
}

/// Askpass lives for a moment: pull until the watch has caught it.
fn until_askpass_was_seen(world: &mut World) -> Report {
    world.server.answer(Answer::Git);
    let mut last = Report::default();
    for _ in 0..MOST_PULLS {
        let watch = Watch::start(&world.marker, world.folder(), None);
        pulled(world.pull());
        last = watch.finish();
        assert_eq!(last.found, [""; 0]);
        if last.seen.contains_key(ASKPASS) {
            break;
        }
    }
    last
}

#[test]
fn the_token_is_in_no_arguments_environment_file_log_audit_or_reply() {
    for git in gits() {
        let mut world = Setup::new(&git).start().expect("a world starts");
        let report = busy_day(&mut world);
        assert_eq!(report.found, [""; 0], "{report:?}");
        assert!(report.passes > 4 && report.seen.contains_key("git"), "{report:?}");
        assert!(report.seen.contains_key(HELPER), "the helper was looked at: {report:?}");
        assert_eq!(report.blind, None);
        assert!(report.helper_held_token, "the token was near: {report:?}");
        assert!(!report.could_dump, "it leaves no core dump");

        let report = until_askpass_was_seen(&mut world);
        assert!(report.seen.contains_key(ASKPASS), "askpass was looked at: {report:?}");

        let token = world.marker.token().as_bytes().to_vec();
        let daemon = Process::memory_holds(world.executor_pid(), &token);
        assert!(!daemon.expect("its memory can be looked into"), "the daemon never reads it");
        world.stop().expect("it ends");
        let found = world.marker.find_below(world.folder()).expect("all of it can be read");
        assert_eq!(found, [world.token_file()], "only its own file holds it");
        for reply in world.replies() {
            assert_eq!(world.marker.find(reply.as_bytes()), None, "{reply}");
        }
        let sent = STANDARD.encode(format!("x-access-token:{}", world.marker.token()));
        let kept =
            world.server.seen().iter().any(|seen| {
                seen.authorization.as_deref().is_some_and(|text| text.ends_with(&sent))
            });
        assert!(kept, "the server got it, and the search would know it: {sent}");
        assert!(world.marker.find(sent.as_bytes()).is_some());
        for needed in ["state/audit.jsonl", "executor.log"] {
            let length = world.folder().join(needed).metadata().expect("it is there").len();
            assert!(length > 0, "{needed} was searched");
        }
    }
}
