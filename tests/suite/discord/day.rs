//! The owner's sentence: a message in a channel ends as a pushed commit, and the answer names it.

use harness::service::Place;
use harness::world::World;
use nix::sys::signal::Signal;

#[test]
fn a_message_in_a_channel_ends_as_a_pushed_commit_and_the_answer_names_it() {
    let world = World::builder().review().build();
    let place = Place::new(world.base(), &world.socket());
    let mut sage = place.start();
    let wrote = place.say("write strategy/plan.md: We start in spring.");
    let answers = place.answers(wrote);
    assert!(answers[0].contains("Created plan.md"), "{answers:?}");
    let asked = place.say("commit strategy/plan.md: We start in spring");
    let answers = place.answers(asked);
    let head = world.remote_head();
    assert!(answers.iter().any(|text| text.contains(&head[..7])), "{answers:?}");
    assert_eq!(world.clone_dir().git(&["log", "-1", "--format=%s"]), "We start in spring");
    let body = world.clone_dir().git(&["log", "-1", "--format=%b"]);
    assert!(body.contains("Requested-by: Owner"), "{body}");

    let record = place.record(asked);
    let calls: Vec<&str> = record["calls"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|call| call["tool"].as_str())
        .collect();
    assert_eq!(calls.last(), Some(&"git_commit"), "{record}");
    assert!(record["calls"].to_string().contains(&head), "{record}");
    assert_eq!(record["source"]["origin"], "discord");
    assert_eq!(record["source"]["requester"], "Owner");

    let seen = place.fake.seen();
    for message in [wrote, asked] {
        assert!(seen.reactions.iter().any(|reaction| reaction.message == message), "eyes");
    }
    for sent in seen.from_bot() {
        assert_eq!(sent.allowed_mentions, Some(serde_json::json!({"parse": []})));
        assert!(sent.enforce_nonce && sent.nonce.is_some());
    }
    sage.signal(Signal::SIGTERM);
    assert_eq!(sage.ended(), Some(0), "{}", place.log());
}
