//! The end of a connection, each way it can come, and what is left of the session.

use std::time::Duration;

use harness::discord::{Channel, Command, Fault, Gate, OnConnect, OnResume, route};
use harness::model::{ModelServer, Reply};
use harness::service::Place;
use serde_json::json;

use super::{alone, counted, each, logged, place};

const QUESTION: &str = "git status of strategy";

#[test]
fn after_these_codes_the_session_is_resumed() {
    each([1000, 1001, 4000, 4001, 4002, 4005, 4006, 4008, 4099], |code| {
        let (_folder, place) = alone();
        let _sage = place.start();
        place.fake.command(&Command::Close(code));
        let seen = counted(&place, "it resumes", |gateway| gateway.resumed == 1);
        let gateway = seen.gateway;
        assert_eq!((gateway.identifies, gateway.resumes, gateway.most_open), (1, 1, 1), "{code}");
    });
}

#[test]
fn after_these_codes_a_new_session_is_begun() {
    each([4003, 4007, 4009], |code| {
        let (_folder, place) = alone();
        let _sage = place.start();
        place.fake.command(&Command::Close(code));
        let seen = counted(&place, "a new session", |gateway| gateway.readies == 2);
        let gateway = seen.gateway;
        assert_eq!((gateway.identifies, gateway.resumes, gateway.most_open), (2, 0, 1), "{code}");
        logged(&place, "a new session", 1);
    });
}

#[test]
fn after_these_codes_the_program_ends_and_says_what_to_do() {
    let finals = [
        (4004, "reset it in the developer portal"),
        (4010, "report it"),
        (4011, "use a bot of its own"),
        (4012, "install a newer sage-connector"),
        (4013, "install a newer sage-connector"),
        (4014, "switch it on in the developer portal"),
    ];
    each(finals, |(code, next)| {
        let (_folder, place) = alone();
        let mut sage = place.start();
        place.fake.command(&Command::Close(code));
        assert_eq!(sage.ended(), Some(2), "{code}: {}", place.log());
        let log = place.log();
        assert!(log.contains(&format!("({code})")) && log.contains(next), "{log}");
        assert_eq!(place.fake.seen().gateway.connections, 1, "{code}: it is tried once");
    });
}

#[test]
fn what_discord_refuses_by_itself_ends_the_program_too() {
    each([4004, 4014], |code| {
        let (_folder, place) = alone();
        match code {
            4004 => place.fake.token_valid(false),
            _ => place.fake.gateway(|script| script.message_content = false),
        }
        let mut sage = place.launch(&["run"]);
        assert_eq!(sage.ended(), Some(2), "{}", place.log());
        assert!(place.log().contains(&format!("({code})")), "{}", place.log());
    });
}

#[test]
fn frames_that_say_nothing_are_passed_over() {
    let (_world, place) = place();
    let _sage = place.start();
    let odd = [
        "{{{",
        "",
        "null",
        "[]",
        "7",
        "\"op\"",
        "{}",
        "{\"op\":\"0\"}",
        "{\"op\":-1}",
        "{\"op\":0}",
        "{\"op\":99,\"d\":{}}",
        "{\"op\":0,\"t\":7,\"s\":\"x\",\"d\":null}",
        "{\"op\":0,\"t\":\"MESSAGE_CREATE\",\"d\":null}",
        "{\"op\":0,\"t\":\"MESSAGE_CREATE\",\"d\":{\"id\":7,\"author\":[]}}",
        "{\"op\":0,\"t\":\"INTERACTION_CREATE\",\"d\":{\"type\":3}}",
        "{\"op\":0,\"t\":\"GUILD_CREATE\",\"d\":{\"channels\":{\"id\":1}}}",
    ];
    for text in odd {
        place.fake.command(&Command::Text(text.to_owned()));
    }
    let message = place.say(QUESTION);
    assert_eq!(place.answers(message).len(), 1);
    assert_eq!(place.fake.seen().gateway.connections, 1, "the connection stays");
}

#[test]
fn frames_that_cannot_be_end_the_connection_and_nothing_is_missed() {
    let frames = [
        // The beginning of a packed message, which the next one makes whole.
        Command::Binary(vec![0xff; 64]),
        // The end of a packed message, after what cannot be unpacked.
        Command::Binary(b"no stream\x00\x00\xff\xff".to_vec()),
        Command::CutFrame,
        // Longer than anything that is read.
        Command::Text("x".repeat((16 << 20) + 1)),
        Command::Binary(vec![7; (16 << 20) + 1]),
    ];
    each(frames, |frame| {
        let (_world, place) = place();
        let _sage = place.start();
        place.fake.command(&frame);
        let message = place.say(QUESTION);
        counted(&place, "it resumes", |gateway| gateway.resumed >= 1);
        assert_eq!(place.answers(message).len(), 1);
        let gateway = place.fake.seen().gateway;
        assert_eq!((gateway.identifies, gateway.most_open), (1, 1));
    });
}

#[test]
fn a_gateway_that_acknowledges_nothing_is_left_though_its_events_still_come() {
    let (_world, place) = place();
    let stranger = place.fake.user("Stranger");
    place.fake.gateway(|script| script.heartbeat_interval = Duration::from_millis(400));
    let _sage = place.start();
    counted(&place, "it beats", |gateway| gateway.heartbeats >= 2);
    place.fake.gateway(|script| script.acks = false);
    while place.fake.seen().gateway.resumes == 0 {
        place.fake.post(place.channel, stranger, "Is anybody there?");
        std::thread::sleep(Duration::from_millis(20));
        assert!(place.fake.seen().messages.len() < 6000, "{}", place.log());
    }
    place.fake.gateway(|script| script.acks = true);
    let message = place.say(QUESTION);
    assert_eq!(place.answers(message).len(), 1);
    let seen = place.fake.seen();
    assert!(place.log().contains("heartbeat was not acknowledged"), "{}", place.log());
    assert!(seen.client_closes.iter().all(|code| *code == Some(4900)), "{:?}", seen.client_closes);
    assert_eq!((seen.gateway.identifies, seen.gateway.most_open), (1, 1));
}

#[test]
fn a_message_that_comes_over_the_old_socket_and_the_new_one_is_answered_once() {
    let (_world, place) = place();
    let _sage = place.start();
    let message = place.say(QUESTION);
    let event = place.fake.message_event(message).expect("it is there");
    place.fake.command(&Command::Reconnect);
    counted(&place, "it resumes", |gateway| gateway.resumed == 1);
    place.fake.dispatch("MESSAGE_CREATE", &event);
    let after = place.say(QUESTION);
    for message in [message, after] {
        assert_eq!(place.answers(message).len(), 1);
    }
    let seen = place.fake.seen();
    assert_eq!((seen.from_bot().len(), seen.gateway.most_open), (2, 1));
}

#[test]
fn a_resume_url_where_nothing_is_costs_one_try_and_not_the_session() {
    each(["closed", "no gateway"], |kind| {
        let (_folder, place) = alone();
        let url = match kind {
            "closed" => "ws://127.0.0.1:1".to_owned(),
            _ => place.fake.rest_url().replace("http:", "ws:"),
        };
        place.fake.gateway(|script| script.resume_url = Some(url));
        let _sage = place.start();
        place.fake.command(&Command::Close(4000));
        let seen = counted(&place, "it resumes", |gateway| gateway.resumed == 1);
        assert_eq!((seen.gateway.identifies, seen.gateway.connections), (1, 2));
        logged(&place, "not connected", 2);
        assert_eq!(place.log().matches("not connected").count(), 2, "{}", place.log());
    });
}

#[test]
fn a_session_that_is_not_resumed_three_times_is_given_up() {
    let refusals = [OnResume::Close(4000), OnResume::Invalid { resumable: true }];
    each(refusals, |refusal| {
        let (_folder, place) = alone();
        place.fake.gateway(|script| script.on_resume.extend([refusal; 9]));
        let _sage = place.start();
        place.fake.command(&Command::Cut);
        let seen = counted(&place, "a new session", |gateway| gateway.readies == 2);
        assert_eq!((seen.gateway.resumes, seen.gateway.identifies), (3, 2));
        logged(&place, "could not be resumed", 1);
    });
}

#[test]
fn a_port_that_refuses_is_tried_more_and_more_rarely_and_the_session_outlives_it() {
    let (_world, place) = place();
    let _sage = place.start();
    place.fake.refuse_gateway();
    place.fake.command(&Command::Cut);
    // More tries than a session that Discord refuses is given.
    logged(&place, "not connected", 5);
    let message = place.say(QUESTION);
    place.fake.accept_gateway().expect("the port is ours");
    let seen = counted(&place, "it resumes", |gateway| gateway.resumed == 1);
    assert_eq!((seen.gateway.identifies, seen.gateway.resumes), (1, 1));
    assert_eq!(place.answers(message).len(), 1, "what was said meanwhile is replayed");
}

#[test]
fn a_port_that_refuses_at_the_start_is_waited_for() {
    let (_folder, place) = alone();
    place.fake.refuse_gateway();
    let _sage = place.launch(&["run"]);
    logged(&place, "not connected", 2);
    place.fake.accept_gateway().expect("the port is ours");
    counted(&place, "it is ready", |gateway| gateway.readies == 1);
}

#[test]
fn when_the_session_is_gone_the_log_says_for_how_long_nobody_listened() {
    let (_world, place) = place();
    let _sage = place.start();
    let before = place.say(QUESTION);
    assert_eq!(place.answers(before).len(), 1);
    place.fake.refuse_gateway();
    place.fake.gateway(|script| {
        script.on_resume.push_back(OnResume::Invalid { resumable: false });
    });
    place.fake.command(&Command::Cut);
    let lost = place.say(QUESTION);
    logged(&place, "not connected", 2);
    place.fake.accept_gateway().expect("the port is ours");
    counted(&place, "a new session", |gateway| gateway.readies == 2);
    let after = place.say(QUESTION);
    assert_eq!(place.answers(after).len(), 1);
    let log = place.log();
    let line = log.lines().find(|line| line.contains("is not made up for")).expect("it is said");
    let seconds = line.split("seconds=").nth(1).expect("how long").trim();
    let seconds: u64 = seconds.parse().expect("a number");
    assert!(seconds >= 3, "two waits lie in it, of one and two seconds at least: {line}");
    assert!(!place.folder().join(format!("turns/{lost}.json")).exists(), "there is no backfill");
}

#[test]
fn an_engine_that_is_busy_keeps_no_heartbeat_back() {
    let (_world, mut place) = place();
    let model = ModelServer::start([Reply::silent()]);
    place.change(|binding| {
        binding["engine"] =
            json!({"kind": "openai", "openai": {"baseUrl": model.base_url(), "model": "m1"}});
    });
    place.fake.gateway(|script| script.heartbeat_interval = Duration::from_millis(200));
    let _sage = place.start();
    let message = place.say("Think about it.");
    model.wait_for(|connections| connections.opened == 1);
    let beats = place.fake.seen().gateway.heartbeats;
    for _ in 0..50 {
        let _ = place.say("And about this.");
    }
    let seen = counted(&place, "it beats on", |gateway| gateway.heartbeats >= beats + 20);
    assert_eq!((seen.gateway.connections, seen.from_bot().len()), (1, 0));
    assert!(!place.folder().join(format!("turns/{message}.json")).exists(), "it still thinks");
}

/// A message in a thread that the gateway has not told of, whose look-up waits at this gate.
fn asked_in_a_thread(place: &Place, gate: &Gate) -> u64 {
    let parent = Some(place.channel);
    let thread =
        Channel { kind: 11, guild: Some(place.guild), parent, hidden: true, ..Channel::default() };
    let thread = place.fake.add(thread);
    place.fake.change_channel(thread, |channel| channel.hidden = false);
    place.fake.fault(route("GET", "/channels/*"), Fault::HoldRequest(gate.clone()));
    let asked = place.fake.post(thread, place.owner, QUESTION);
    place.fake.wait("it is looked up", |seen| !seen.requests_to("GET", "/channels/*").is_empty());
    asked
}

#[test]
fn a_look_up_that_hangs_keeps_no_heartbeat_and_no_answer_to_a_press_back() {
    let (_world, place) = place();
    place.fake.gateway(|script| script.heartbeat_interval = Duration::from_millis(200));
    let _sage = place.start();
    let gate = Gate::default();
    let asked = asked_in_a_thread(&place, &gate);
    let beats = place.fake.seen().gateway.heartbeats;
    let message = place.say(QUESTION);
    let press = place.fake.press(message, place.owner, "sage:1-q1:yes");
    place.fake.wait("the press is answered", |seen| {
        seen.callbacks.iter().any(|callback| callback.interaction == press)
    });
    counted(&place, "it beats on", |gateway| gateway.heartbeats >= beats + 5);
    gate.open();
    for message in [asked, message] {
        assert_eq!(place.answers(message).len(), 1);
    }
    assert_eq!(place.fake.seen().gateway.connections, 1);
}

#[test]
fn a_flood_during_a_look_up_that_hangs_costs_the_connection_and_no_message() {
    let (_world, place) = place();
    let stranger = place.fake.user("Stranger");
    let _sage = place.start();
    let gate = Gate::default();
    let asked = asked_in_a_thread(&place, &gate);
    for _ in 0..1500 {
        place.fake.post(place.channel, stranger, "Hello?");
    }
    let message = place.say(QUESTION);
    counted(&place, "the connection is dropped", |gateway| gateway.open == 0);
    gate.open();
    for message in [asked, message] {
        assert_eq!(place.answers(message).len(), 1);
    }
    let seen = place.fake.seen();
    assert_eq!((seen.from_bot().len(), seen.gateway.identifies, seen.gateway.most_open), (2, 1, 1));
}

#[test]
fn a_connection_that_ends_before_hello_leaves_the_session_as_it_was() {
    let ends = [OnConnect::Cut, OnConnect::Reset, OnConnect::Close(4000)];
    each(ends, |end| {
        let (_folder, place) = alone();
        let _sage = place.start();
        place.fake.gateway(|script| script.on_connect.push_back(end.clone()));
        place.fake.command(&Command::Reset);
        let seen = counted(&place, "it resumes", |gateway| gateway.resumed == 1);
        assert_eq!((seen.gateway.identifies, seen.gateway.resumes), (1, 1), "{end:?}");
    });
}

#[test]
fn when_rest_refuses_the_token_the_program_ends_and_says_what_to_do() {
    let (_world, place) = place();
    let mut sage = place.start();
    let refusal = Fault::Error { status: 401, code: 0 };
    place.fake.fault(route("POST", "/channels/*/messages"), refusal);
    let message = place.say(QUESTION);
    assert_eq!(sage.ended(), Some(2), "{}", place.log());
    assert!(place.log().contains("reset it in the developer portal"), "{}", place.log());
    assert_eq!(place.record(message)["outcome"]["state"], "answered");
    assert_eq!(place.outbox(&format!("{message}-1")), ["intent", "refused"]);
    let sent = place.fake.seen().requests_to("POST", "/channels/*/messages").len();
    assert_eq!(sent, 1, "with a token that is refused nothing more is tried");
}
