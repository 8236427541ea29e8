//! The connection to Discord, as `sage-connector run` keeps it: what ends it, and what then happens.

use std::time::Duration;

use harness::discord::{Command, Fault, OnIdentify, OnResume, RateLimit, route};
use harness::service::{Place, until};

use super::place;

const QUESTION: &str = "git status of strategy";

fn answered(place: &Place) {
    let message = place.say(QUESTION);
    let answers = place.answers(message);
    assert_eq!(answers.len(), 1, "{answers:?}");
}

#[test]
fn whatever_ends_a_connection_it_is_resumed_and_nothing_is_missed() {
    let ends = [
        Command::Close(4000),
        Command::Close(4002),
        Command::CloseWithoutCode,
        Command::Reconnect,
        Command::Cut,
        Command::Reset,
        Command::InvalidSession(true),
    ];
    // Each in a place of its own: ends that follow one another are waited after longer and longer.
    std::thread::scope(|scope| {
        for end in ends {
            scope.spawn(move || resumed_after(&end));
        }
    });
}

fn resumed_after(end: &Command) {
    let (_world, place) = place();
    let _sage = place.start();
    answered(&place);
    place.fake.command(end);
    // Written while nobody is connected: Discord replays it.
    let message = place.say(QUESTION);
    place.fake.wait("it resumes", |seen| seen.gateway.resumed >= 1);
    assert_eq!(place.answers(message).len(), 1, "{end:?}");
    let seen = place.fake.seen().gateway;
    assert_eq!((seen.identifies, seen.most_open), (1, 1), "one session, never two sockets");
}

#[test]
fn a_session_that_is_over_is_begun_anew_and_goes_on() {
    let (_world, place) = place();
    let _sage = place.start();
    place.fake.gateway(|script| {
        script.max_concurrency = 1000;
        script.on_resume.push_back(OnResume::Invalid { resumable: false });
    });
    place.fake.command(&Command::Close(4000));
    place.fake.wait("a new session", |seen| seen.gateway.readies >= 2);
    answered(&place);
    let log = place.log();
    assert!(log.contains("what was written in between is not made up for"), "{log}");
    place.fake.command(&Command::Close(4009));
    place.fake.wait("a third session", |seen| seen.gateway.readies >= 3);
    answered(&place);
    assert_eq!(place.fake.seen().gateway.most_open, 1);
}

#[test]
fn a_code_that_nothing_will_mend_ends_the_program_and_names_the_switch() {
    for (code, word) in [(4014, "Message Content Intent"), (4004, "bot's token"), (4013, "intents")]
    {
        let (_world, place) = place();
        place.fake.gateway(|script| script.on_identify.push_back(OnIdentify::Close(code)));
        let mut sage = place.launch(&["run"]);
        assert_eq!(sage.ended(), Some(2), "{}", place.log());
        assert!(place.log().contains(word), "{}", place.log());
        assert_eq!(place.fake.seen().gateway.identifies, 1, "it is tried once");
    }
}

#[test]
fn heartbeats_that_are_not_acknowledged_mean_that_nobody_is_there() {
    let (_world, place) = place();
    place.fake.gateway(|script| script.heartbeat_interval = Duration::from_millis(300));
    let _sage = place.start();
    place.fake.wait("it beats", |seen| seen.gateway.heartbeats >= 2);
    place.fake.gateway(|script| script.acks = false);
    place.fake.wait("it connects anew", |seen| seen.gateway.resumes >= 1);
    place.fake.gateway(|script| script.acks = true);
    answered(&place);
}

#[test]
fn the_same_message_twice_is_answered_once() {
    let (_world, place) = place();
    let _sage = place.start();
    let message = place.say(QUESTION);
    let event = place.fake.message_event(message).expect("it is there");
    for _ in 0..3 {
        place.fake.dispatch("MESSAGE_CREATE", &event);
    }
    assert_eq!(place.answers(message).len(), 1);
    answered(&place);
    let seen = place.fake.seen();
    let replies = seen.from_bot().iter().filter(|sent| sent.reference == Some(message)).count();
    assert_eq!(replies, 1);
}

#[test]
fn an_answer_is_there_once_whatever_becomes_of_its_request() {
    let (_world, place) = place();
    let _sage = place.start();
    let faults = [
        Fault::LoseResponse,
        Fault::ResetResponse,
        Fault::CutAfter(40),
        Fault::Close,
        Fault::Reset,
        Fault::Html(502),
        Fault::GarbleResponse("<html>".to_owned()),
        Fault::Error { status: 400, code: 20028 },
        Fault::RateLimit(RateLimit::User { retry_after: 0.3 }),
        Fault::RateLimit(RateLimit::Shared { retry_after: 0.3 }),
        Fault::RateLimit(RateLimit::Global { retry_after: 0.3 }),
        Fault::RateLimit(RateLimit::Cloudflare { retry_after: 1 }),
    ];
    for fault in faults {
        let shown = format!("{fault:?}");
        place.fake.fault(route("POST", "/channels/*/messages"), fault);
        let message = place.say(QUESTION);
        assert_eq!(place.answers(message).len(), 1, "{shown}");
        let nonce = format!("{message}-1");
        assert_eq!(place.fake.seen().with_nonce(&nonce), 1, "{shown}");
    }
    for sent in place.fake.seen().from_bot() {
        assert_eq!(sent.allowed_mentions, Some(serde_json::json!({"parse": []})));
    }
}

#[test]
fn what_discord_refuses_for_good_is_asked_for_once_and_the_next_answer_goes_out() {
    let (_world, place) = place();
    let _sage = place.start();
    let sent = || place.fake.seen().requests_to("POST", "/channels/*/messages").len();
    // No permission, no such channel, an archived thread, a thread that exists already.
    for (status, code) in [(403, 50_013), (404, 10_003), (400, 50_083), (400, 160_004)] {
        let before = sent();
        place.fake.fault(route("POST", "/channels/*/messages"), Fault::Error { status, code });
        let message = place.say(QUESTION);
        let nonce = format!("{message}-1");
        until("it is settled", || place.outbox(&nonce).len() == 2);
        assert_eq!(place.outbox(&nonce), ["intent", "refused"], "{code}");
        assert_eq!(sent(), before + 1, "{code}");
        let message = place.say(QUESTION);
        assert_eq!(place.answers(message).len(), 1, "after {code}");
    }
}
