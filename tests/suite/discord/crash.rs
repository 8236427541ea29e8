//! Killed at any point (K10): no second answer, no answer cut short for good, no accepted message
//! without a record, an outbox in order, a count of turns that is right.

mod steps;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use harness::dice::Dice;
use harness::discord::{Command, Fault, Seen, route};
use harness::service::{Place, Service};
use harness::world::World;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::check;

const SHORT: &str = "git status of strategy";

/// Its answer has several parts.
const LONG: &str = "read strategy/long.md";

/// How often it is killed in each of the first four days; `SAGE_TEST_KILLS` says otherwise.
fn kills() -> u64 {
    let asked = std::env::var("SAGE_TEST_KILLS").ok();
    asked.map_or(125, |number| number.parse().expect("SAGE_TEST_KILLS is a number"))
}

/// Whether there are enough kills for what is likely to have come about.
fn is_full() -> bool {
    kills() >= 60
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

fn lines(place: &Place, file: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(place.folder().join(file)).unwrap_or_default();
    // A torn line stands by itself for ever; it is skipped by whoever reads.
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// A day with its people, and what was said in it.
struct Day {
    world: World,
    place: Place,
    dice: Dice,
    seed: u64,
    /// How long a step is waited for.
    within: Duration,
    said: Vec<u64>,
    struck: BTreeSet<&'static str>,
}

impl Day {
    fn new(seed: u64, world: World, limits: &Value) -> Self {
        let text: Vec<String> = (0..120).map(|row| format!("row {row} of a long file")).collect();
        world.clone_dir().write("long.md", text.join("\n\n").repeat(2));
        let mut place = Place::new(world.base(), &world.socket());
        place.change(|binding| {
            binding["limits"] = limits.clone();
            binding["discord"]["approvalTimeoutSeconds"] = json!(5);
        });
        place.fake.gateway(|script| script.max_concurrency = 100_000);
        let (dice, within) = (Dice::new(seed), Duration::from_millis(700));
        Self { world, place, dice, seed, within, said: Vec::new(), struck: BTreeSet::new() }
    }

    fn say(&mut self, text: &str) {
        self.said.push(self.place.say(text));
    }

    /// One life: something is said, something may go wrong, and it is killed.
    fn live(&mut self, talk: impl FnOnce(&mut Self)) {
        let sage = self.place.start_supervised();
        self.go_wrong();
        talk(self);
        self.kill(sage);
        self.place.fake.no_faults();
        self.tear();
    }

    fn go_wrong(&mut self) {
        let fake = &self.place.fake;
        let post = || route("POST", "/channels/*/messages");
        match self.dice.below(6) {
            0 => fake.fault(post(), Fault::LoseResponse),
            1 => fake.fault(post(), Fault::Html(502)),
            2 => fake.fault(post(), Fault::Close),
            3 => drop(fake.command(&Command::Cut)),
            _ => {}
        }
    }

    /// Kills it once a step was taken, or after a while when it is not taken.
    fn kill(&mut self, sage: Service) {
        let step = self.dice.pick(&STEPS);
        let more = Duration::from_micros(self.dice.below(40_000));
        let before = size(&self.place, step);
        let limit = Instant::now() + self.within;
        while size(&self.place, step) == before && Instant::now() < limit {
            std::thread::sleep(Duration::from_micros(200));
        }
        if size(&self.place, step) != before {
            self.struck.insert(step);
        }
        std::thread::sleep(more);
        sage.strike();
    }

    /// Sometimes the kill came in the middle of a line.
    fn tear(&mut self) {
        if self.dice.once_in(10) {
            let files = ["inbox.jsonl", "admissions.jsonl", "outbox.jsonl", "drops.jsonl"];
            let path = self.place.folder().join(self.dice.pick(&files));
            let file = std::fs::OpenOptions::new().append(true).open(path);
            let torn = b"{\"id\":\"12";
            std::io::Write::write_all(&mut file.expect("it is there"), torn).expect("it writes");
        }
    }

    /// A last life without trouble, and what has to hold then.
    fn end(&mut self) {
        let mut sage = self.place.start_supervised();
        sage.signal(Signal::SIGTERM);
        assert_eq!(sage.ended(), Some(0), "{}", self.place.log());
        self.in_order();
    }

    fn in_order(&self) {
        let (place, seed) = (&self.place, self.seed);
        let seen = place.fake.seen();
        for message in &self.said {
            self.answered_once(&seen, *message);
        }
        let accepted = lines(place, "inbox.jsonl");
        assert!(accepted.len() > self.said.len() / 2, "most were accepted: {}", accepted.len());
        let dropped: BTreeSet<_> =
            lines(place, "drops.jsonl").iter().map(|line| line["id"].to_string()).collect();
        for line in &accepted {
            let id = line["id"].as_str().expect("an id");
            let record = place.folder().join(format!("turns/{id}.json"));
            let ended = record.is_file() || dropped.contains(&line["id"].to_string());
            assert!(ended, "seed {seed}: {id} was accepted and has no end");
        }
        let admitted = lines(place, "admissions.jsonl");
        let apart: BTreeSet<_> = admitted.iter().map(|line| line["id"].to_string()).collect();
        assert_eq!(apart.len(), admitted.len(), "seed {seed}: no message is admitted twice");
        let status = place.command(&["status", "--json"]);
        let status: Value = serde_json::from_slice(&status.stdout).expect("JSON");
        assert_eq!(status["unsettled"], 0, "seed {seed}: {status}");
        assert_eq!(status["turnsToday"], admitted.len(), "seed {seed}");
        let pending = std::fs::read_dir(place.folder().join("pending")).expect("it is there");
        assert_eq!(pending.count(), 0, "seed {seed}: nothing is left to be said");
    }

    /// A turn that has its record said all of its answer, each part once and in order; an interrupted
    /// one said nothing.
    fn answered_once(&self, seen: &Seen, message: u64) {
        let seed = self.seed;
        let answers = seen.from_bot().into_iter().filter(|sent| sent.reference == Some(message));
        let nonces: Vec<String> = answers.filter_map(|sent| sent.nonce.clone()).collect();
        let apart: BTreeSet<_> = nonces.iter().collect();
        assert_eq!(apart.len(), nonces.len(), "seed {seed}: {message} was answered twice");
        let said: Vec<&String> = nonces.iter().filter(|nonce| !nonce.contains("-q")).collect();
        let record = self.place.folder().join(format!("turns/{message}.json"));
        let Ok(record) = std::fs::read_to_string(record) else {
            let line = said.iter().all(|nonce| nonce.ends_with("-c"));
            assert!(line && said.len() <= 1, "seed {seed}: {message} has no turn, and {said:?}");
            return;
        };
        let record: Value = serde_json::from_str(&record).expect("a record is JSON");
        let all = record["deliveries"].as_array().expect("a list").iter();
        let all = all.filter(|said| said["kind"] == "reply" || said["kind"] == "failed");
        let all: Vec<&str> = all.filter_map(|said| said["nonce"].as_str()).collect();
        assert_eq!(said, all, "seed {seed}: {message}, {}", record["outcome"]);
    }
}

/// A day of questions with short answers, or long ones as well.
fn day(seed: u64, words: &[&'static str]) {
    let mut day = Day::new(seed, World::new_plain(), &json!({"turnsPerDay": 100_000}));
    for _ in 0..kills() {
        day.live(|day| {
            for _ in 0..=day.dice.below(2) {
                let text = day.dice.pick(words);
                day.say(text);
            }
        });
    }
    assert!(!is_full() || day.struck.len() == STEPS.len(), "{:?}", day.struck);
    day.end();
}

#[test]
fn a_first_day_with_kills_everywhere_ends_in_order() {
    day(1, &[SHORT]);
}

#[test]
fn a_second_day_with_kills_everywhere_ends_in_order() {
    day(2, &[SHORT]);
}

#[test]
fn a_third_day_with_long_answers_and_kills_everywhere_ends_in_order() {
    day(3, &[LONG]);
}

#[test]
fn a_fourth_day_with_answers_of_every_length_ends_in_order() {
    day(4, &[SHORT, LONG]);
}

/// The kills of a day that is about something rarer.
fn some_kills() -> u64 {
    kills().div_ceil(5)
}

#[test]
fn a_day_with_plans_that_wait_for_a_button_commits_each_at_most_once() {
    let world = World::builder().approval().build();
    let mut day = Day::new(5, world, &json!({"turnsPerDay": 100_000}));
    for number in 0..some_kills() {
        day.world.clone_dir().write("plans/one.md", format!("change {number}\n"));
        day.live(|day| {
            day.say(&format!("commit strategy/plans/one.md: Change {number}."));
            let asked = *day.said.last().expect("it was said");
            if day.dice.once_in(4) {
                day.say(SHORT);
            }
            if day.dice.below(4) > 0 {
                press(&day.place, asked, if day.dice.once_in(3) { 1 } else { 0 });
            }
        });
    }
    // A plan that nobody decided ends with its time.
    day.end();
    let log = day.world.clone_dir().git(&["log", "--format=%s"]);
    let subjects: Vec<_> = log.lines().collect();
    let apart: BTreeSet<_> = subjects.iter().collect();
    assert_eq!(apart.len(), subjects.len(), "{log}");
    assert!(!is_full() || subjects.len() > 3, "some were approved: {log}");
    check::sound(&day.world);
}

/// The owner presses a button of the question about a message, when it is shown in a while.
fn press(place: &Place, asked: u64, button: usize) {
    let nonce = format!("{asked}-q1");
    let limit = Instant::now() + Duration::from_secs(3);
    while Instant::now() < limit {
        let seen = place.fake.seen();
        if let Some(sent) = seen.from_bot().iter().find(|sent| sent.nonce.as_ref() == Some(&nonce))
        {
            let id = sent.components[0]["components"][button]["custom_id"].as_str();
            place.fake.press(sent.id, place.owner, id.expect("a button has an id"));
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_day_with_turns_that_take_too_long_says_one_line_for_each() {
    let limits = json!({"turnsPerDay": 100_000, "turnTimeoutSeconds": 1});
    let mut day = Day::new(6, World::new_plain(), &limits);
    day.within = Duration::from_millis(1500);
    for _ in 0..some_kills() {
        let held = day.dice.once_in(2).then(|| day.world.hold());
        day.live(|day| day.say(SHORT));
        drop(held);
    }
    day.end();
    let seen = day.place.fake.seen();
    let late = seen.from_bot().into_iter().filter(|sent| sent.content.contains("took too long"));
    assert!(!is_full() || late.count() > 0, "some took too long");
}

#[test]
fn a_day_over_its_ceiling_admits_no_more_and_says_so_at_most_once() {
    let ceiling = (some_kills() / 2).max(1);
    let mut day = Day::new(7, World::new_plain(), &json!({"turnsPerDay": ceiling}));
    for _ in 0..some_kills() * 2 {
        day.live(|day| day.say(SHORT));
    }
    day.end();
    let admitted = lines(&day.place, "admissions.jsonl").len() as u64;
    assert!(admitted == ceiling || !is_full() && admitted < ceiling, "{admitted} of {ceiling}");
    let seen = day.place.fake.seen();
    let told = seen.from_bot().into_iter().filter(|sent| sent.content.contains("turns a day"));
    assert!(told.count() <= 1, "once a day");
}
