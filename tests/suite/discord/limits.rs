//! REST under its limits: buckets, the global one, slow mode, slow answers.

use std::time::Duration;

use harness::discord::{Fault, Gate, RateLimit, route};
use harness::model::{ModelServer, Reply};
use harness::service::{Place, until};
use serde_json::json;

use super::{logged, place};

const QUESTION: &str = "git status of strategy";

fn messages() -> impl Fn(&harness::discord::Request) -> bool + Send {
    route("POST", "/channels/*/messages")
}

/// When each attempt to send came, by the fake's clock.
fn attempts(place: &Place) -> Vec<u64> {
    let seen = place.fake.seen();
    seen.requests_to("POST", "/channels/*/messages").iter().map(|request| request.at).collect()
}

#[test]
fn an_empty_bucket_is_waited_for_and_no_message_meets_its_end() {
    let (_world, place) = place();
    let _sage = place.start();
    place.fake.bucket(2, Duration::from_secs(2));
    for _ in 0..6 {
        let message = place.say(QUESTION);
        assert_eq!(place.answers(message).len(), 1);
    }
    let seen = place.fake.seen();
    let refused: Vec<_> =
        seen.limited.iter().filter(|request| request.ends_with("/messages")).collect();
    assert_eq!((attempts(&place).len(), refused.len()), (6, 0), "{:?}", seen.limited);
    assert_eq!(seen.from_bot().len(), 6);
}

#[test]
fn a_full_bucket_holds_its_own_route_and_no_other() {
    let (_world, place) = place();
    let _sage = place.start();
    place.fake.fault(messages(), Fault::RateLimit(RateLimit::User { retry_after: 8.0 }));
    let first = place.say(QUESTION);
    logged(&place, "a message is sent again", 1);
    let second = place.say(QUESTION);
    for message in [first, second] {
        assert_eq!(place.answers(message).len(), 1);
    }
    let times = attempts(&place);
    assert!(times[1] >= times[0] + 8000, "{times:?}");
    let seen = place.fake.seen();
    let eyes = seen.requests_to("PUT", "/channels/*/messages/*/reactions/*/@me");
    let eyes = eyes.iter().find(|request| request.path.contains(&second.to_string()));
    assert!(eyes.expect("it was seen").at < times[1], "the eyes did not wait");
}

#[test]
fn a_global_limit_holds_every_route_but_the_answer_to_a_press() {
    for limit in [RateLimit::Global { retry_after: 5.0 }, RateLimit::Cloudflare { retry_after: 5 }]
    {
        let (_world, place) = place();
        let _sage = place.start();
        place.fake.fault(messages(), Fault::RateLimit(limit));
        let first = place.say(QUESTION);
        logged(&place, "a message is sent again", 1);
        let second = place.say(QUESTION);
        let press = place.fake.press(first, place.owner, &format!("sage:{first}-1:yes"));
        for message in [first, second] {
            assert_eq!(place.answers(message).len(), 1);
        }
        place.fake.wait("the press is answered", |seen| !seen.callbacks.is_empty());
        let seen = place.fake.seen();
        assert_eq!(seen.callbacks[0].interaction, press);
        let until = attempts(&place)[0] + 5000;
        let about = |what: u64| {
            let requests = seen.requests.iter().filter(move |one| {
                one.path.contains(&what.to_string()) && !one.path.ends_with("/messages")
            });
            requests.map(|one| one.at).min()
        };
        assert!(about(second).is_some_and(|at| at >= until), "{limit:?}: the eyes waited");
        assert!(about(press).is_some_and(|at| at < until), "{limit:?}: the press did not");
        assert!(attempts(&place)[1] >= until, "{limit:?}");
    }
}

#[test]
fn of_two_lengths_the_longer_is_waited() {
    let (_world, place) = place();
    let _sage = place.start();
    for (limit, least) in [
        (RateLimit::Disagreeing { header: 1, body: 2.5 }, 2500),
        (RateLimit::Disagreeing { header: 3, body: 0.1 }, 3000),
        (RateLimit::SlowMode { retry_after: 1.5 }, 1500),
    ] {
        let before = attempts(&place).len();
        place.fake.fault(messages(), Fault::RateLimit(limit));
        let message = place.say(QUESTION);
        assert_eq!(place.answers(message).len(), 1, "{limit:?}");
        let times = attempts(&place);
        assert_eq!(times.len(), before + 2, "{limit:?}");
        assert!(times[before + 1] >= times[before] + least, "{limit:?}: {times:?}");
    }
    assert_eq!(place.fake.seen().from_bot().len(), 3);
}

#[test]
fn an_answer_that_comes_too_late_is_asked_for_again_and_its_message_is_there_once() {
    let (_world, place) = place();
    let _sage = place.start();
    let gate = Gate::default();
    place.fake.fault(messages(), Fault::HoldResponse(gate.clone()));
    let message = place.say(QUESTION);
    place.fake.wait("it is sent again", |seen| {
        seen.requests_to("POST", "/channels/*/messages").len() == 2
    });
    gate.open();
    assert_eq!(place.answers(message).len(), 1);
    let seen = place.fake.seen();
    let sent = seen.requests_to("POST", "/channels/*/messages");
    assert_eq!(sent[0].body, sent[1].body, "the same nonce and the same text");
    assert_eq!(seen.with_nonce(&format!("{message}-1")), 1);
    let nonce = format!("{message}-1");
    until("it is settled", || place.outbox(&nonce).len() == 2);
    assert_eq!(place.outbox(&nonce), ["intent", "confirmed"]);
}

#[test]
fn a_rest_that_refuses_connections_is_tried_again() {
    let (_world, place) = place();
    let _sage = place.start();
    place.fake.refuse_rest();
    let message = place.say(QUESTION);
    logged(&place, "a message is sent again", 2);
    place.fake.accept_rest().expect("the port is ours");
    assert_eq!(place.answers(message).len(), 1);
    assert_eq!(attempts(&place).len(), 1, "what was refused never came");
}

#[test]
fn a_long_turn_shows_again_and_again_that_it_writes() {
    let (_world, mut place) = place();
    let model = ModelServer::start([Reply::silent()]);
    place.change(|binding| {
        binding["engine"] =
            json!({"kind": "openai", "openai": {"baseUrl": model.base_url(), "model": "m1"}});
    });
    let _sage = place.start();
    let _ = place.say("Think about it.");
    let seen = place.fake.wait("three times", |seen| seen.typing.len() >= 3);
    for pair in seen.typing.windows(2) {
        assert!(pair[1].at + 20 >= pair[0].at + 8000, "{:?}", seen.typing);
        assert_eq!(pair[0].channel, place.channel);
    }
    assert!(seen.from_bot().is_empty());
}
