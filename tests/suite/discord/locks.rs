//! One process per binding (K7), with real processes: every round in which the contract's lock was
//! broken once is a test here. 3 is the exit code of "somebody holds it, or the brake is on".

use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, SystemTime};

use harness::service::{Place, Service, until};
use harness::world::World;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

const QUESTION: &str = "git status of strategy";

const OTHER_BOOT: &str = "00000000-0000-4000-8000-000000000000";

fn place() -> (World, Place) {
    let world = World::builder().build();
    let place = Place::new(world.base(), &world.socket());
    place.fake.gateway(|script| script.max_concurrency = 1000);
    (world, place)
}

fn record(place: &Place) -> PathBuf {
    place.folder().join("run.lock/owner.json")
}

fn brake(place: &Place) -> PathBuf {
    place.folder().join("STOP")
}

/// A lock with this for its record.
fn leave(place: &Place, text: &str) {
    let record = record(place);
    std::fs::create_dir_all(record.parent().expect("a folder")).expect("it is ours");
    std::fs::write(record, text).expect("it is ours");
    private(place);
}

/// The folder as the connector makes it.
fn private(place: &Place) {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(place.folder(), mode).expect("it is ours");
}

/// A command's exit code and what it said.
fn says(place: &Place, arguments: &[&str]) -> (Option<i32>, String) {
    let output = place.command(arguments);
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

/// Exit code 3, and these words.
fn held(place: &Place, arguments: &[&str], words: &str) {
    let (code, text) = says(place, arguments);
    assert_eq!(code, Some(3), "{arguments:?}: {text}");
    assert!(text.contains(words), "{arguments:?}: {text}");
}

/// Four starts at once.
fn four(place: &Place) -> Vec<Service> {
    (0..4).map(|_| place.launch(&["run"])).collect()
}

/// Exactly one of four starts runs; the others ended with 3.
fn one_of(place: &Place, mut starts: Vec<Service>) -> Service {
    until("three of four starts end", || {
        starts.iter_mut().filter_map(|start| start.runs().then_some(())).count() == 1
    });
    let winner = starts.iter_mut().position(Service::runs).expect("one runs");
    let winner = starts.remove(winner);
    for mut loser in starts {
        assert_eq!(loser.ended(), Some(3), "{}", place.log());
    }
    winner
}

/// A process that has nothing to do with Sage.
struct Bystander(Child);

impl Bystander {
    fn new() -> Self {
        Self(Command::new("sleep").arg("600").spawn().expect("sleep starts"))
    }

    /// Its start in ticks, and the boot, as the kernel prints them.
    fn identity(&self) -> (String, String) {
        let stat =
            std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).expect("it lives");
        let after = stat.rsplit_once(')').expect("a name").1;
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("it is there");
        (after.split_whitespace().nth(19).expect("a field").to_owned(), boot.trim().to_owned())
    }

    fn lives(&mut self) -> bool {
        self.0.try_wait().expect("it is ours").is_none()
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn of_four_starts_at_once_one_runs_and_a_fifth_is_refused_while_it_does() {
    let (_world, place) = place();
    for round in 1..=3 {
        let starts = four(&place);
        let mut sage = one_of(&place, starts);
        place.fake.wait("the winner is ready", |seen| seen.gateway.readies == round);
        held(&place, &["run"], "sage-connector stop");
        held(&place, &["run", "--supervised"], "sage-connector stop");
        sage.signal(Signal::SIGTERM);
        assert_eq!(sage.ended(), Some(0), "{}", place.log());
    }
    assert_eq!(place.fake.seen().gateway.most_open, 1);
}

#[test]
fn a_lock_that_was_left_is_taken_over_by_no_start_and_removed_by_one_unlock() {
    let (_world, place) = place();
    place.start().strike();
    let left = std::fs::read(record(&place)).expect("it was left");
    for mut start in four(&place) {
        assert_eq!(start.ended(), Some(3), "{}", place.log());
    }
    assert!(place.log().contains("sage-connector unlock"), "{}", place.log());
    assert_eq!(std::fs::read(record(&place)).expect("it is there"), left, "untouched");
    let (code, text) = says(&place, &["unlock"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains(&format!("rm {}", brake(&place).display())), "{text}");
    held(&place, &["run"], "rm ");
    std::fs::remove_file(brake(&place)).expect("unlock leaves it");
    let starts = four(&place);
    let sage = one_of(&place, starts);
    place.fake.wait("it is ready", |seen| seen.gateway.readies == 2);
    let message = place.say(QUESTION);
    assert_eq!(place.answers(message).len(), 1);
    drop(sage);
}

#[test]
fn starts_that_race_with_an_unlock_leave_no_owner_and_no_rest_behind_it() {
    let (_world, place) = place();
    let dead = json!({"pid": 4_000_000, "start": "1", "boot": OTHER_BOOT}).to_string();
    for _ in 0..5 {
        leave(&place, &dead);
        let mut starts: Vec<_> = (0..3).map(|_| place.launch(&["run"])).collect();
        let (code, text) = says(&place, &["unlock"]);
        starts.extend((0..3).map(|_| place.launch(&["run"])));
        assert_eq!(code, Some(0), "{text}");
        for start in &mut starts {
            assert_eq!(start.ended(), Some(3), "{}", place.log());
        }
        assert!(brake(&place).exists(), "the gate stands");
        assert!(!place.folder().join("run.lock").exists(), "and nobody is behind it");
        std::fs::remove_file(brake(&place)).expect("the operator lifts it");
    }
    assert_eq!(place.fake.seen().gateway.connections, 0, "nobody ran");
    let _sage = place.start();
}

#[test]
fn a_live_owner_keeps_its_lock_and_unlock_says_to_use_stop() {
    let (_world, place) = place();
    let mut sage = place.start();
    let before = std::fs::read(record(&place)).expect("it is there");
    held(&place, &["unlock"], "sage-connector stop");
    assert_eq!(std::fs::read(record(&place)).expect("it is there"), before);
    assert!(brake(&place).exists(), "the gate was closed before the look");
    // What runs goes on running, and takes no message until the gate is open again.
    let unheard = place.say(QUESTION);
    until("it is passed over", || {
        says(&place, &["why", &unheard.to_string()]).1.contains("the brake was on")
    });
    std::fs::remove_file(brake(&place)).expect("the operator lifts it");
    let message = place.say(QUESTION);
    assert_eq!(place.answers(message).len(), 1);
    sage.signal(Signal::SIGTERM);
    assert_eq!(sage.ended(), Some(0));
}

#[test]
fn the_same_pid_and_ticks_of_another_boot_are_nobody_who_could_be_stopped() {
    let (_world, place) = place();
    let mut other = Bystander::new();
    let (start, _) = other.identity();
    leave(&place, &json!({"pid": other.0.id(), "start": start, "boot": OTHER_BOOT}).to_string());
    let (code, text) = says(&place, &["stop"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("Nothing is running"), "{text}");
    assert!(other.lives(), "nobody was signalled");
    assert_eq!(says(&place, &["unlock"]).0, Some(0));
    assert!(!place.folder().join("run.lock").exists() && other.lives());
}

/// Records that a process of another build, or another hand, may have left.
fn untold(pid: u32, start: &str, boot: &str) -> Vec<Value> {
    let padded = format!("0{start}");
    let starts = ["", "12x", "-1", &padded, "18446744073709551616"];
    let upper = boot.to_uppercase();
    let boots = ["", "not-a-uuid", &upper];
    let mut all = vec![json!({"pid": pid}), json!({"pid": pid, "start": start})];
    all.extend(starts.map(|start| json!({"pid": pid, "start": start, "boot": boot})));
    // An identifier of digits alone has no upper case.
    let boots = boots.into_iter().filter(|other| *other != boot);
    all.extend(boots.map(|boot| json!({"pid": pid, "start": start, "boot": boot})));
    all
}

#[test]
fn an_owner_that_cannot_be_told_refuses_everything_until_its_process_is_gone() {
    let (_world, place) = place();
    let mut other = Bystander::new();
    let (start, boot) = other.identity();
    let all = untold(other.0.id(), &start, &boot);
    for value in &all {
        let text = value.to_string();
        leave(&place, &text);
        for command in [&["run"][..], &["run", "--supervised"], &["stop"], &["unlock"]] {
            held(&place, command, "cannot be told");
            // A brake would be the first reason; here it is the lock that is looked at.
            let _ = std::fs::remove_file(brake(&place));
        }
        assert_eq!(std::fs::read_to_string(record(&place)).expect("it is there"), text);
        assert!(other.lives(), "{text}");
    }
    drop(other);
    assert_eq!(says(&place, &["unlock"]).0, Some(0), "it is gone now");
    assert!(!place.folder().join("run.lock").exists());
}

#[test]
fn a_record_that_is_none_is_removed_by_nothing() {
    let (_world, place) = place();
    for text in ["", "{", "[]", "{\"pid\":\"7\"}", "{\"pid\":0}"] {
        leave(&place, text);
        for command in [&["run"][..], &["run", "--supervised"], &["stop"], &["unlock"]] {
            held(&place, command, "is not an owner's record");
            let _ = std::fs::remove_file(brake(&place));
        }
        assert_eq!(std::fs::read_to_string(record(&place)).expect("it is there"), text);
    }
    let (code, text) = says(&place, &["status"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("damaged"), "{text}");
}

#[test]
fn a_lock_without_a_record_is_a_start_under_way_for_half_a_minute() {
    let (_world, place) = place();
    let lock = place.folder().join("run.lock");
    std::fs::create_dir_all(&lock).expect("it is ours");
    private(&place);
    for command in [&["run"][..], &["run", "--supervised"], &["unlock"]] {
        held(&place, command, "half a minute");
        let _ = std::fs::remove_file(brake(&place));
    }
    let old = SystemTime::now() - Duration::from_secs(31);
    std::fs::File::open(&lock).and_then(|lock| lock.set_modified(old)).expect("it is ours");
    held(&place, &["run"], "sage-connector unlock");
    assert_eq!(says(&place, &["unlock"]).0, Some(0), "only a crash explains it");
    assert!(!lock.exists());
}

#[test]
fn a_supervised_start_clears_what_a_crash_left_and_keeps_a_persons_brake() {
    let (_world, place) = place();
    place.start().strike();
    let mut sage = place.start_supervised();
    assert!(!brake(&place).exists(), "what it wrote for that is gone again");
    let (code, text) = says(&place, &["stop"]);
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(sage.ended(), Some(0), "{}", place.log());
    held(&place, &["run", "--supervised"], "rm ");
    assert!(brake(&place).exists(), "an operator's stays");
    // A recovery that was killed half way leaves its own, which is no person's.
    std::fs::write(brake(&place), "recovery\n").expect("it is ours");
    let _sage = place.start_supervised();
    assert!(!brake(&place).exists());
}

#[test]
fn a_second_supervised_start_costs_the_first_one_no_message() {
    let (_world, mut place) = place();
    place.change(|binding| binding["limits"] = json!({"turnsPerDay": 100_000}));
    let _sage = place.start_supervised();
    let mut said = Vec::new();
    for round in 1..=10 {
        let mut second = place.launch(&["run", "--supervised"]);
        // All the while, but not without end on a machine that is slow to start.
        while second.runs() {
            if said.len() < round * 40 {
                said.push(place.say(QUESTION));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(second.ended(), Some(3));
    }
    for message in said {
        assert_eq!(place.answers(message).len(), 1);
    }
}
