//! The commands over the real program (K8): what each says, and its exit code. 0: done. 1: failed.
//! 2: called wrongly, or a bad binding. 3: somebody holds the binding, or the brake is on.

use harness::discord::{Fault, Gate, route};
use harness::service::{Place, until};
use harness::world::World;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::place;

const QUESTION: &str = "git status of strategy";

/// A command's exit code and what it said.
fn says(place: &Place, arguments: &[&str]) -> (Option<i32>, String) {
    let output = place.command(arguments);
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

/// What a command says that is done.
fn done(place: &Place, arguments: &[&str]) -> String {
    let (code, text) = says(place, arguments);
    assert_eq!(code, Some(0), "{arguments:?}: {text}");
    text
}

fn json_of(place: &Place, arguments: &[&str]) -> Value {
    let output = place.command(arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn what_happened_is_told_while_it_runs_and_afterwards() {
    let (_world, place) = place();
    assert!(done(&place, &["status"]).contains("not running"));
    assert!(done(&place, &["turns"]).contains("no turns yet"));
    let mut sage = place.start();
    let message = place.say(QUESTION);
    assert_eq!(place.answers(message).len(), 1);
    let id = message.to_string();
    let running = done(&place, &["status"]);
    assert!(running.contains(&format!("running (pid {})", sage.pid())), "{running}");
    assert!(running.contains("1 of 200 today"), "{running}");
    let status = json_of(&place, &["status", "--json"]);
    assert_eq!((&status["turnsToday"], &status["stopped"]), (&json!(1), &json!(false)));
    sage.signal(Signal::SIGTERM);
    assert_eq!(sage.ended(), Some(0), "{}", place.log());

    let turns = done(&place, &["turns"]);
    assert!(turns.contains(&id) && turns.contains("answered  "), "{turns}");
    assert_eq!(json_of(&place, &["turns", "--json"])["id"], json!(id));
    let shown = done(&place, &["show", &id]);
    assert!(shown.contains("git_status") && shown.contains("confirmed"), "{shown}");
    let shown = json_of(&place, &["show", &id, "--json"]);
    let said = shown["deliveries"].as_array().expect("a list");
    let states: Vec<_> = said.iter().map(|said| (&said["kind"], &said["sent"]["state"])).collect();
    let confirmed = json!("confirmed");
    assert_eq!(states, [(&json!("receipt"), &confirmed), (&json!("reply"), &confirmed)]);
    assert!(done(&place, &["why", &id]).contains("got a turn, which ended: answered"));
    assert_eq!(json_of(&place, &["why", &id, "--json"])["outcome"]["state"], "answered");
    assert!(done(&place, &["why", "1"]).contains("never seen"));
    assert_eq!(json_of(&place, &["why", "1", "--json"])["accepted"], Value::Null);
}

#[test]
fn what_cannot_be_done_is_1_and_what_is_called_wrongly_is_2() {
    let (_world, mut place) = place();
    for arguments in [&["show", "1"][..], &["show", "../../etc/passwd"], &["why", "a/b"]] {
        let (code, text) = says(&place, arguments);
        assert_eq!(code, Some(1), "{arguments:?}: {text}");
        assert!(text.starts_with("sage-connector: "), "{text}");
    }
    for arguments in [&["walk"][..], &["run", "--fast"], &["status", "--json", "--prometheus"]] {
        let (code, text) = says(&place, arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {text}");
        assert!(text.contains("--help"), "{text}");
    }
    place.change(|binding| binding["limits"] = json!({"turnsPerDay": 0}));
    let all = ["check", "run", "stop", "unlock", "status", "turns"];
    let with = [&["show", "1"][..], &["why", "1"], &["run", "--supervised"]];
    for arguments in all.iter().map(std::slice::from_ref).chain(with) {
        let (code, text) = says(&place, arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {text}");
        assert!(text.contains("limits.turnsPerDay") && text.contains("at least 1"), "{text}");
    }
    assert!(!place.folder().exists(), "nothing was made on the way");
}

#[test]
fn without_its_section_there_is_nothing_to_run() {
    let (_world, mut place) = place();
    place.change(|binding| drop(binding.as_object_mut().expect("an object").remove("discord")));
    let (code, text) = says(&place, &["run"]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("`discord`") || text.contains("discord"), "{text}");
    assert!(text.contains("sage-connector chat"), "{text}");
}

#[test]
fn a_stop_lets_the_turn_end_its_question_be_answered_and_no_other_begin() {
    let world = World::builder().approval().build();
    world.clone_dir().write("plans/one.md", "changed\n");
    let place = Place::new(world.base(), &world.socket());
    let mut sage = place.start();
    let before = world.remote_head();
    let asked = place.say("commit strategy/plans/one.md: One change");
    let nonce = format!("{asked}-q1");
    let seen = place.fake.wait("the turn waits", |seen| seen.with_nonce(&nonce) == 1);
    let stopped = done(&place, &["stop"]);
    assert!(stopped.contains(&format!("process {}", sage.pid())), "{stopped}");
    until("it is told", || place.log().contains("told to end"));
    let late = place.say(QUESTION);
    until("it is passed over", || {
        done(&place, &["why", &late.to_string()]).contains("Sage was about to end")
    });
    assert!(sage.runs(), "the turn is under way");
    let from_bot = seen.from_bot();
    let question = from_bot.iter().find(|sent| sent.nonce.as_ref() == Some(&nonce));
    let question = question.expect("it is there");
    let yes = question.components[0]["components"][0]["custom_id"].as_str().expect("an id");
    place.fake.press(question.id, place.owner, yes);
    assert_eq!(sage.ended(), Some(0), "{}", place.log());
    assert_eq!(place.answers(asked).len(), 2, "the question, and the answer");
    assert_ne!(world.remote_head(), before, "it was approved in time");

    assert!(done(&place, &["status"]).contains("on; release: rm "));
    let (code, text) = says(&place, &["run"]);
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("rm "), "{text}");
    let stopped = done(&place, &["stop"]);
    assert!(stopped.contains("Nothing is running"), "{stopped}");
}

#[test]
fn a_soft_stop_leaves_neither_brake_nor_lock() {
    let (_world, place) = place();
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut sage = place.start();
        let message = place.say(QUESTION);
        assert_eq!(place.answers(message).len(), 1);
        sage.signal(signal);
        assert_eq!(sage.ended(), Some(0), "{}", place.log());
        assert!(!place.folder().join("STOP").exists());
        assert!(!place.folder().join("run.lock").exists());
    }
}

/// A place whose last answer is there, and whose sender died before it knew.
fn of_unknown_fate() -> (World, Place, u64) {
    let (world, place) = place();
    let sage = place.start();
    let gate = Gate::default();
    place.fake.fault(route("POST", "/channels/*/messages"), Fault::HoldResponse(gate.clone()));
    let message = place.say(QUESTION);
    let nonce = format!("{message}-1");
    place.fake.wait("the answer is there", |seen| seen.with_nonce(&nonce) == 1);
    sage.strike();
    gate.open();
    (world, place, message)
}

#[test]
fn a_start_that_cannot_settle_what_was_said_is_refused_and_a_later_one_settles_it() {
    let (_world, place, message) = of_unknown_fate();
    let nonce = format!("{message}-1");
    assert_eq!(place.outbox(&nonce), ["intent"]);
    assert_eq!(json_of(&place, &["status", "--json"])["unsettled"], 1);
    let readies = place.fake.seen().gateway.readies;
    place.fake.faults(10, route("POST", "/channels/*/messages"), Fault::Close);
    let mut refused = place.launch(&["run", "--supervised"]);
    // 1: a service manager tries again, and after five minutes it counts as refused.
    assert_eq!(refused.ended(), Some(1), "{}", place.log());
    assert!(place.log().contains("may or may not have arrived"), "{}", place.log());
    assert!(place.log().contains("start again"), "{}", place.log());
    assert_eq!(place.fake.seen().gateway.readies, readies, "nothing new was let in");
    assert_eq!(place.outbox(&nonce), ["intent", "unknown"]);

    place.fake.no_faults();
    let _sage = place.start_supervised();
    assert_eq!(place.outbox(&nonce), ["intent", "unknown", "confirmed"]);
    assert_eq!(place.fake.seen().with_nonce(&nonce), 1, "it is there once");
    assert_eq!(json_of(&place, &["status", "--json"])["unsettled"], 0);
    let next = place.say(QUESTION);
    assert_eq!(place.answers(next).len(), 1);
}

#[test]
fn a_start_that_waits_for_discord_ends_when_it_is_told_to() {
    let (_world, place, message) = of_unknown_fate();
    place.fake.refuse_rest();
    let mut sage = place.launch(&["run", "--supervised"]);
    until("it tries", || place.log().contains("a message is sent again"));
    sage.signal(Signal::SIGTERM);
    assert_eq!(sage.ended(), Some(0), "{}", place.log());
    place.fake.accept_rest().expect("the port is ours");
    let _sage = place.start_supervised();
    assert_eq!(place.outbox(&format!("{message}-1")), ["intent", "confirmed"]);
    assert_eq!(place.fake.seen().with_nonce(&format!("{message}-1")), 1);
}

/// Sends SIGHUP and waits for the line that says what came of it.
fn reload(place: &Place, sage: &harness::service::Service, line: &str) {
    let before = place.log().matches(line).count();
    sage.signal(Signal::SIGHUP);
    until("the reload is told", || place.log().matches(line).count() > before);
}

#[test]
fn a_reload_takes_people_channels_and_ceilings_at_once() {
    let (_world, mut place) = place();
    let (partner, second) = (place.fake.user("Partner"), place.fake.channel(place.guild, "second"));
    let sage = place.start();
    let unheard = place.fake.post(second, partner, QUESTION);
    let first = place.say(QUESTION);
    assert_eq!(place.answers(first).len(), 1);
    place.edit(|binding| {
        binding["discord"]["users"][partner.to_string()] = json!("Partner");
        binding["discord"]["channels"][second.to_string()] = json!("all");
        binding["limits"] = json!({"turnsPerDay": 2});
    });
    reload(&place, &sage, "was read anew");
    let heard = place.fake.post(second, partner, QUESTION);
    assert_eq!(place.answers(heard).len(), 1);
    assert_eq!(place.record(heard)["source"]["requester"], "Partner");
    let over = place.say(QUESTION);
    let line = format!("{over}-c");
    place.fake.wait("the new ceiling counts", |seen| seen.with_nonce(&line) == 1);
    let text = done(&place, &["why", &unheard.to_string()]);
    assert!(text.contains("`discord.users`"), "what was is not made up for: {text}");
    assert_eq!(place.fake.seen().gateway.identifies, 1, "the connection stayed");
}

#[test]
fn a_reload_of_a_bad_binding_changes_nothing_and_says_why() {
    let (_world, mut place) = place();
    let partner = place.fake.user("Partner");
    let sage = place.start();
    // Each would let the partner in, too: all or nothing.
    place.edit(|binding| {
        binding["discord"]["users"][partner.to_string()] = json!("Partner");
        binding["limits"] = json!({"turnsPerDay": 0});
    });
    let kept = "the binding in force stays as it is";
    reload(&place, &sage, kept);
    assert!(place.log().contains("limits.turnsPerDay"), "{}", place.log());
    let guild = place.guild.to_string();
    place.edit(|binding| {
        binding["limits"] = json!({"turnsPerDay": 5});
        binding["discord"]["bot"] = json!(guild);
    });
    reload(&place, &sage, kept);
    assert!(
        place.log().contains("`discord` has changed, which takes a restart"),
        "{}",
        place.log()
    );
    std::fs::write(place.path(), "{").expect("it is ours");
    reload(&place, &sage, kept);
    // Another file of that name is another file: the process may not read it.
    place.change(|binding| {
        binding["discord"]["bot"] = json!(harness::discord::FakeDiscord::BOT.to_string())
    });
    reload(&place, &sage, kept);
    let unheard = place.fake.post(place.channel, partner, QUESTION);
    let heard = place.say(QUESTION);
    assert_eq!(place.answers(heard).len(), 1);
    let text = done(&place, &["why", &unheard.to_string()]);
    assert!(text.contains("`discord.users`"), "{text}");
}
