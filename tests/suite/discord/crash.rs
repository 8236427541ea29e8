//! Killed at any point (K10): no second answer, no accepted message without a record, an outbox in
//! order, a count of turns that is right.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use harness::dice::Dice;
use harness::discord::{Command, Fault, route};
use harness::service::{Place, Service};
use harness::world::World;
use nix::sys::signal::Signal;
use serde_json::Value;

/// How often it is killed in each of the days; `SAGE_TEST_KILLS` says otherwise.
fn kills() -> u64 {
    let asked = std::env::var("SAGE_TEST_KILLS").ok();
    asked.map_or(125, |number| number.parse().expect("SAGE_TEST_KILLS is a number"))
}

/// What is written step by step; a day is cut short right after one of them grew.
const STEPS: [&str; 5] = ["inbox.jsonl", "admissions.jsonl", "outbox.jsonl", "pending", "turns"];

fn size(place: &Place, step: &str) -> u64 {
    let path = place.folder().join(step);
    if path.is_dir() {
        return std::fs::read_dir(path).map_or(0, |entries| entries.count() as u64);
    }
    std::fs::metadata(path).map_or(0, |meta| meta.len())
}

/// Kills it once a step was taken, or after a while when it is not taken. Whether it was.
fn killed_after(place: &Place, sage: Service, step: &str, more: Duration) -> bool {
    let before = size(place, step);
    let limit = Instant::now() + Duration::from_millis(700);
    while size(place, step) == before && Instant::now() < limit {
        std::thread::sleep(Duration::from_micros(200));
    }
    let taken = size(place, step) != before;
    std::thread::sleep(more);
    sage.strike();
    taken
}

fn lines(place: &Place, file: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(place.folder().join(file)).unwrap_or_default();
    // A torn line stands by itself for ever; it is skipped by whoever reads.
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn day(seed: u64) {
    let world = World::builder().build();
    let mut place = Place::new(world.base(), &world.socket());
    place.change(|binding| binding["limits"] = serde_json::json!({"turnsPerDay": 100_000}));
    place.fake.gateway(|script| script.max_concurrency = 100_000);
    let mut dice = Dice::new(seed);
    let (mut said, mut struck) = (Vec::new(), BTreeSet::new());
    for _ in 0..kills() {
        let sage = place.start_supervised();
        for _ in 0..=dice.below(2) {
            said.push(place.say("git status of strategy"));
        }
        let post = || route("POST", "/channels/*/messages");
        match dice.below(6) {
            0 => place.fake.fault(post(), Fault::LoseResponse),
            1 => place.fake.fault(post(), Fault::Html(502)),
            2 => place.fake.fault(post(), Fault::Close),
            3 => drop(place.fake.command(&Command::Cut)),
            _ => {}
        }
        let step = dice.pick(&STEPS);
        let more = Duration::from_micros(dice.below(40_000));
        if killed_after(&place, sage, step, more) {
            struck.insert(step);
        }
        place.fake.no_faults();
    }
    assert!(kills() < 60 || struck.len() == STEPS.len(), "every step was struck: {struck:?}");
    // A torn last line does not keep it from starting.
    let inbox = place.folder().join("inbox.jsonl");
    let torn = std::fs::OpenOptions::new().append(true).open(&inbox);
    std::io::Write::write_all(&mut torn.expect("it is there"), b"{\"id\":\"12").expect("it writes");
    let mut sage = place.start_supervised();
    let last = place.say("git status of strategy");
    assert_eq!(place.answers(last).len(), 1, "it goes on as ever");
    sage.signal(Signal::SIGTERM);
    assert_eq!(sage.ended(), Some(0), "{}", place.log());
    in_order(&place, &said, seed);
}

fn in_order(place: &Place, said: &[u64], seed: u64) {
    let seen = place.fake.seen();
    for message in said {
        let answers = seen.from_bot().into_iter().filter(|sent| sent.reference == Some(*message));
        let nonces: Vec<_> = answers.map(|sent| sent.nonce.clone()).collect();
        let apart: BTreeSet<_> = nonces.iter().collect();
        assert_eq!(apart.len(), nonces.len(), "seed {seed}: {message} was answered twice");
        assert!(nonces.len() <= 1, "seed {seed}: {message} has {nonces:?}");
    }
    let accepted = lines(place, "inbox.jsonl");
    assert!(accepted.len() > said.len() / 2, "most were accepted: {}", accepted.len());
    for line in &accepted {
        let id = line["id"].as_str().expect("an id");
        let record = place.folder().join(format!("turns/{id}.json"));
        assert!(record.is_file(), "seed {seed}: {id} was accepted and has no record");
    }
    let admitted = lines(place, "admissions.jsonl");
    let apart: BTreeSet<_> = admitted.iter().map(|line| line["id"].to_string()).collect();
    assert_eq!(apart.len(), admitted.len(), "seed {seed}: no message is admitted twice");
    let status = place.command(&["status", "--json"]);
    let status: Value = serde_json::from_slice(&status.stdout).expect("JSON");
    assert_eq!(status["unsettled"], 0, "seed {seed}: {status}");
    assert_eq!(status["turnsToday"], admitted.len(), "seed {seed}");
}

#[test]
fn a_first_day_with_kills_everywhere_ends_in_order() {
    day(1);
}

#[test]
fn a_second_day_with_kills_everywhere_ends_in_order() {
    day(2);
}

#[test]
fn a_third_day_with_kills_everywhere_ends_in_order() {
    day(3);
}

#[test]
fn a_fourth_day_with_kills_everywhere_ends_in_order() {
    day(4);
}
