//! Approval by buttons (G3), over the wire: who may press, when, how often, and what comes of it.
//!
//! The fake takes an answer to a press for three seconds and no longer, as Discord does.

use harness::discord::{Callback, Fault, Gate, Message, RateLimit, route};
use harness::service::Place;
use harness::world::World;
use serde_json::json;

const COMMIT: &str = "commit strategy/plans/one.md: One change";

/// A world where commits need approval, with something to commit.
fn place() -> (World, Place) {
    let world = World::builder().approval().build();
    world.clone_dir().write("plans/one.md", "changed\n");
    let place = Place::new(world.base(), &world.socket());
    (world, place)
}

/// The owner asks for a commit; the question about it.
fn question(place: &Place) -> (u64, Message) {
    let asked = place.say(COMMIT);
    let nonce = format!("{asked}-q1");
    let seen = place.fake.wait("the plan is shown", |seen| seen.with_nonce(&nonce) == 1);
    let found = seen.from_bot().into_iter().find(|sent| sent.nonce.as_ref() == Some(&nonce));
    (asked, found.expect("it is there").clone())
}

/// The custom id of a button.
fn button(question: &Message, label: &str) -> String {
    let row = question.components[0]["components"].as_array().expect("a row");
    let found = row.iter().find(|button| button["label"] == label).expect("there is one");
    found["custom_id"].as_str().expect("an id").to_owned()
}

/// Somebody presses a button; what they are answered.
fn press(place: &Place, question: &Message, user: u64, label: &str) -> Callback {
    let interaction = place.fake.press(question.id, user, &button(question, label));
    let of = |callback: &&Callback| callback.interaction == interaction;
    let seen =
        place.fake.wait("it is answered in time", |seen| seen.callbacks.iter().any(|it| of(&it)));
    let found = seen.callbacks.iter().find(of).expect("it is there").clone();
    assert_eq!(found.data["allowed_mentions"], json!({"parse": []}));
    found
}

/// Only whoever pressed sees it, and nothing of the question changes.
fn told_alone(callback: &Callback, words: &str) {
    assert_eq!((callback.kind, &callback.data["flags"]), (4, &json!(64)));
    let text = callback.data["content"].as_str().expect("a text");
    assert!(text.contains(words), "{text}");
}

#[test]
fn the_requesters_yes_commits_the_plan_that_was_shown() {
    let (world, place) = place();
    let _sage = place.start();
    let before = world.remote_head();
    let (asked, question) = question(&place);
    assert!(question.content.contains("plans/one.md (+1/"), "{}", question.content);
    assert!(question.content.contains("One change"), "{}", question.content);
    assert_eq!(question.allowed_mentions, Some(json!({"parse": []})));
    assert_eq!((question.reference, question.enforce_nonce), (Some(asked), true));
    assert_eq!(world.remote_head(), before, "nothing is done before the word");

    let callback = press(&place, &question, place.owner, "Commit");
    assert_eq!(
        (callback.kind, &callback.data["components"]),
        (7, &json!([])),
        "no buttons any more"
    );
    assert_eq!(callback.data["content"], "Approved.");
    let answers = place.answers(asked);
    let head = world.remote_head();
    assert_ne!(head, before);
    assert!(answers.iter().any(|text| text.contains(&head[..7])), "{answers:?}");
    assert_eq!(place.outbox(&format!("{asked}-q1")), ["intent", "confirmed"]);
    let record = place.record(asked);
    let said = record["deliveries"].as_array().expect("a list").iter();
    let kinds: Vec<_> = said.filter_map(|said| said["kind"].as_str()).collect();
    assert_eq!(kinds, ["receipt", "question", "reply"]);
}

#[test]
fn a_no_commits_nothing() {
    let (world, place) = place();
    let _sage = place.start();
    let before = world.clone_dir().head();
    let (asked, question) = question(&place);
    let callback = press(&place, &question, place.owner, "Do not");
    assert_eq!((callback.kind, &callback.data["content"]), (7, &json!("Not approved.")));
    let answers = place.answers(asked);
    assert!(answers.iter().any(|text| text.contains("did not approve")), "{answers:?}");
    assert_eq!(world.clone_dir().head(), before);
}

#[test]
fn nobody_else_decides_and_a_second_press_changes_nothing() {
    let (world, mut place) = place();
    let (partner, stranger) = (place.fake.user("Partner"), place.fake.user("Owner"));
    // The partner may talk as well, and still not decide for the owner.
    place.change(|binding| {
        binding["discord"]["users"][partner.to_string()] = json!("Partner");
    });
    let _sage = place.start();
    let before = world.clone_dir().head();
    let (asked, question) = question(&place);
    for other in [partner, stranger] {
        for label in ["Commit", "Do not"] {
            told_alone(&press(&place, &question, other, label), "the person who asked");
        }
    }
    assert_eq!(world.clone_dir().head(), before);
    assert!(!place.folder().join(format!("turns/{asked}.json")).exists(), "it waits on");
    let callback = press(&place, &question, place.owner, "Commit");
    assert_eq!(callback.kind, 7);
    told_alone(&press(&place, &question, place.owner, "Do not"), "no longer open");
    told_alone(&press(&place, &question, place.owner, "Commit"), "no longer open");
    assert_eq!(place.answers(asked).len(), 2, "the question, and the answer");
    let head = world.remote_head();
    assert_ne!(head, before);
    assert_eq!(world.clone_dir().git(&["rev-parse", "HEAD~1"]), before, "one commit");
}

#[test]
fn silence_is_a_no_and_a_press_after_it_does_nothing() {
    let (world, mut place) = place();
    place.change(|binding| binding["discord"]["approvalTimeoutSeconds"] = json!(5));
    let _sage = place.start();
    let before = world.clone_dir().head();
    let (asked, question) = question(&place);
    let answers = place.answers(asked);
    assert!(answers.iter().any(|text| text.contains("did not approve")), "{answers:?}");
    told_alone(&press(&place, &question, place.owner, "Commit"), "no longer open");
    assert_eq!(world.clone_dir().head(), before);
}

#[test]
fn a_question_ends_with_its_turn() {
    let (world, mut place) = place();
    place.change(|binding| binding["limits"] = json!({"turnTimeoutSeconds": 5}));
    let _sage = place.start();
    let before = world.clone_dir().head();
    let (asked, question) = question(&place);
    let answers = place.answers(asked);
    assert!(answers.iter().any(|text| text.contains("took too long")), "{answers:?}");
    told_alone(&press(&place, &question, place.owner, "Commit"), "no longer open");
    assert_eq!(world.clone_dir().head(), before);
}

#[test]
fn a_press_after_a_restart_does_nothing_and_the_question_is_not_asked_again() {
    let (world, place) = place();
    let sage = place.start_supervised();
    let before = world.clone_dir().head();
    // It is there, and the one who sent it dies before it knows.
    let gate = Gate::default();
    place.fake.fault(route("POST", "/channels/*/messages"), Fault::HoldResponse(gate.clone()));
    let (asked, open) = question(&place);
    assert_eq!(place.outbox(&format!("{asked}-q1")), ["intent"]);
    sage.strike();
    gate.open();
    let _sage = place.start_supervised();
    told_alone(&press(&place, &open, place.owner, "Commit"), "no longer open");
    assert_eq!(place.record(asked)["outcome"]["state"], "interrupted");
    assert_eq!(world.clone_dir().head(), before);
    let nonce = format!("{asked}-q1");
    assert_eq!(place.fake.seen().with_nonce(&nonce), 1);
    assert_eq!(place.outbox(&nonce), ["intent", "refused"], "it is settled");
    // Whoever asks again is asked again.
    let (again, open) = question(&place);
    assert_eq!(press(&place, &open, place.owner, "Commit").kind, 7);
    assert_eq!(place.answers(again).len(), 2);
    assert_ne!(world.clone_dir().head(), before);
}

#[test]
fn a_press_is_answered_in_time_while_every_other_request_has_to_wait() {
    let (world, place) = place();
    let _sage = place.start();
    let before = world.clone_dir().head();
    let (asked, question) = question(&place);
    // The next sign of receipt meets the limit that closes the gate for everything.
    let limit = Fault::RateLimit(RateLimit::Global { retry_after: 6.0 });
    place.fake.fault(route("PUT", "/channels/*/messages/*/reactions/*/@me"), limit);
    let second = place.say("git status of strategy");
    place.fake.wait("the gate is closed", |seen| {
        seen.requests_to("PUT", "/channels/*/messages/*/reactions/*/@me").len() >= 2
    });
    assert_eq!(press(&place, &question, place.owner, "Commit").kind, 7);
    assert_eq!(place.answers(asked).len(), 2, "once the gate is open");
    assert_eq!(place.answers(second).len(), 1);
    assert_ne!(world.clone_dir().head(), before);
}

#[test]
fn a_plan_that_one_message_cannot_show_is_not_asked_for() {
    let world = World::builder().approval().build();
    let name = |number: u32| format!("{}-{number}.md", "long".repeat(40));
    let names: Vec<String> = (0..12).map(name).collect();
    for name in &names {
        world.clone_dir().write(name, "new\n");
    }
    let place = Place::new(world.base(), &world.socket());
    let _sage = place.start();
    let before = world.clone_dir().head();
    let files: Vec<String> = names.iter().map(|name| format!("strategy/{name}")).collect();
    let asked = place.say(&format!("commit {}: Many files", files.join(", ")));
    let answers = place.answers(asked).concat();
    assert!(answers.contains("Commit fewer files at a time"), "{answers}");
    assert_eq!(place.fake.seen().with_nonce(&format!("{asked}-q1")), 0);
    assert_eq!(world.clone_dir().head(), before);
}
