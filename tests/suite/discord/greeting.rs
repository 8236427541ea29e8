//! The beginning of a connection: what is said, and what happens when nothing is.

use std::time::Duration;

use connector::discord::gateway::Happened;
use harness::discord::{Command, FakeDiscord, OnConnect, OnIdentify, OnResume};
use harness::https::authority::{Authority, Leaf};
use harness::service::Place;
use harness::world::World;
use serde_json::json;
use tempfile::TempDir;

use super::{alone, client, counted, each, gateway_client, logged};

#[test]
fn identify_asks_for_three_intents_and_the_token_is_nowhere_else() {
    let world = World::builder().build();
    let place = Place::new(world.base(), &world.socket());
    let _sage = place.start();
    let message = place.say("git status of strategy");
    assert_eq!(place.answers(message).len(), 1);
    place.fake.command(&Command::Reconnect);
    let seen = counted(&place, "it resumes", |gateway| gateway.resumed == 1);
    // GUILDS, GUILD_MESSAGES, MESSAGE_CONTENT.
    let identify = json!({"op": 2, "d": {
        "token": FakeDiscord::TOKEN,
        "intents": 1 | 1 << 9 | 1 << 15,
        "properties": {"os": "linux", "browser": "sage", "device": "sage"},
    }});
    assert_eq!(seen.greetings[0], identify);
    let resume = &seen.greetings[1];
    assert_eq!((&resume["op"], &resume["d"]["token"]), (&json!(6), &json!(FakeDiscord::TOKEN)));
    assert!(resume["d"]["seq"].as_u64().is_some_and(|seq| seq >= 2), "{resume}");

    for handshake in &seen.handshakes {
        assert_eq!(handshake.query, "v=10&encoding=json&compress=zlib-stream");
        let agent = handshake.header("user-agent").unwrap_or_default();
        assert!(agent.starts_with("DiscordBot (https://"), "{agent}");
        assert_eq!(handshake.header("sec-websocket-extensions"), None, "packed once, not twice");
        assert!(!format!("{handshake:?}").contains(FakeDiscord::TOKEN));
    }
    assert_eq!(seen.handshakes.len(), 2);
    let header = format!("Bot {}", FakeDiscord::TOKEN);
    for request in &seen.requests {
        assert_eq!(request.header("user-agent"), seen.handshakes[0].header("user-agent"));
        assert_eq!(request.header("authorization"), Some(header.as_str()));
        let rest = format!("{} {} {}", request.path, request.query, request.body);
        assert!(!rest.contains(FakeDiscord::TOKEN), "{rest}");
    }
    assert!(seen.requests.len() >= 2, "eyes and an answer");
}

#[test]
fn a_gateway_that_says_nothing_is_left_and_tried_again() {
    let silences: [(OnConnect, &str); 2] = [
        (OnConnect::NoHandshake, "the connection took too long"),
        (OnConnect::Silent, "there was no HELLO"),
    ];
    each(silences, |(silence, word)| {
        let (_folder, place) = alone();
        place.fake.gateway(|script| script.on_connect.push_back(silence));
        let _sage = place.launch(&["run"]);
        let seen = counted(&place, word, |gateway| gateway.readies == 1);
        assert_eq!((seen.gateway.identifies, seen.gateway.most_open), (1, 1));
        logged(&place, word, 1);
    });
}

#[test]
fn an_identify_or_a_resume_that_nobody_answers_is_tried_again() {
    each([false, true], |resume| {
        let (_folder, place) = alone();
        place.fake.gateway(|script| match resume {
            true => script.on_resume.push_back(OnResume::Silent),
            false => script.on_identify.push_back(OnIdentify::Silent),
        });
        let _sage = if resume { place.start() } else { place.launch(&["run"]) };
        if resume {
            place.fake.command(&Command::Cut);
            let seen = counted(&place, "it resumes", |gateway| gateway.resumed == 1);
            assert_eq!((seen.gateway.identifies, seen.gateway.resumes), (1, 2));
        } else {
            let seen = counted(&place, "it is ready", |gateway| gateway.readies == 1);
            assert_eq!((seen.gateway.identifies, seen.gateway.resumes), (2, 0));
        }
        logged(&place, "there was no READY", 1);
    });
}

#[test]
fn a_reconnect_may_be_asked_for_before_hello() {
    let (_folder, place) = alone();
    place.fake.gateway(|script| script.on_connect.push_back(OnConnect::Reconnect));
    let _sage = place.launch(&["run"]);
    counted(&place, "it is ready", |gateway| gateway.readies == 1);
    place.fake.gateway(|script| script.on_connect.push_back(OnConnect::Reconnect));
    place.fake.command(&Command::Reconnect);
    let seen = counted(&place, "it resumes", |gateway| gateway.resumed == 1);
    assert_eq!((seen.gateway.identifies, seen.gateway.most_open), (1, 1), "the session is kept");
    for code in seen.client_closes {
        assert!(!matches!(code, Some(1000 | 1001)), "that would end the session");
    }
}

#[test]
fn a_heartbeat_that_is_asked_for_comes_with_the_last_sequence() {
    let (_folder, place) = alone();
    // By itself it beats in ten minutes or less; that it does so three times now is not to be expected.
    place.fake.gateway(|script| script.heartbeat_interval = Duration::from_secs(600));
    let _sage = place.start();
    for beats in 1..=3 {
        place.fake.command(&Command::Heartbeat);
        counted(&place, "it beats", |gateway| gateway.heartbeats >= beats);
    }
    assert!(place.fake.seen().gateway.last_heartbeat.is_some_and(|seq| seq >= 2));
}

#[test]
fn over_tls_the_gateway_is_the_one_that_rest_names_and_a_used_up_day_is_waited_for() {
    let (folder, mut place) = alone();
    let authority = Authority::new().expect("a key can be made");
    let tls = authority.serve(Leaf::Good).expect("a key can be made");
    let front = place.fake.front(tls).expect("loopback has ports");
    let file = folder.path().canonicalize().expect("it is there").join("ca.pem");
    std::fs::write(&file, authority.pem()).expect("written");
    place.change(|binding| {
        let section = binding["discord"].as_object_mut().expect("an object");
        section.insert("restUrl".to_owned(), json!(format!("https://{front}/api/v10")));
        section.insert("caFile".to_owned(), json!(file));
        section.remove("gatewayUrl");
    });
    place.fake.gateway(|script| {
        script.remaining_identifies = 0;
        script.reset_after = Duration::from_secs(4);
    });
    let _sage = place.launch(&["run"]);
    logged(&place, "no new session begin", 1);
    place.fake.gateway(|script| script.remaining_identifies = 1000);
    let seen = counted(&place, "it is ready", |gateway| gateway.readies == 1);
    assert_eq!(seen.gateway.identifies, 1);
    let asked = seen.requests_to("GET", "/gateway/bot")[0].at;
    let connected = seen.handshakes[0].at;
    assert!(connected >= asked + 4000, "not before the limit's time: {asked} {connected}");
    let names = seen.requests_to("GET", "/gateway/bot").len();
    place.fake.command(&Command::Reconnect);
    let seen = counted(&place, "it resumes", |gateway| gateway.resumed == 1);
    assert_eq!(seen.requests_to("GET", "/gateway/bot").len(), names, "a resume needs no new name");
}

#[test]
fn a_gateway_whose_certificate_is_not_trusted_is_told_nothing() {
    let (_folder, mut place) = alone();
    let tls = Authority::new().and_then(|one| one.serve(Leaf::Good)).expect("a key can be made");
    let front = place.fake.front(tls).expect("loopback has ports");
    place.change(|binding| {
        binding["discord"]["gatewayUrl"] = json!(format!("wss://{front}"));
    });
    let _sage = place.launch(&["run"]);
    logged(&place, "not connected", 2);
    assert!(place.log().contains("certificate"), "{}", place.log());
    assert_eq!(place.fake.seen().gateway.connections, 0);
}

#[test]
fn frames_come_packed_or_as_they_are() {
    for compress in [true, false] {
        let folder = TempDir::with_prefix("sage-test-").expect("a folder can be made");
        let fake = FakeDiscord::start().expect("loopback has ports");
        let guild = fake.guild("Guild");
        let (mut config, rest) = client(&fake, folder.path());
        config.compress = compress;
        let runtime = tokio::runtime::Runtime::new().expect("a runtime can be made");
        let told = runtime.block_on(async {
            let mut events = gateway_client::start(config, rest);
            loop {
                match events.recv().await.expect("it goes on") {
                    Happened::Event { kind, data } if kind == "GUILD_CREATE" => return data,
                    Happened::Down { reason, .. } => panic!("{reason}"),
                    _ => {}
                }
            }
        });
        assert_eq!(told["id"], guild.to_string());
        let query = &fake.seen().handshakes[0].query;
        assert_eq!(query.contains("compress"), compress, "{query}");
    }
}
