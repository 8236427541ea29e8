//! Weeks of talk in a minute: two thousand messages and two hundred lost connections, each message
//! answered once, and no more memory at the end than after the first third.

use std::collections::BTreeMap;

use harness::discord::Command;
use harness::service::{Place, Service};
use harness::world::World;
use nix::sys::signal::Signal;
use serde_json::json;

/// Lost connections.
const LOSSES: u64 = 200;

/// Messages for each of them: half before it, half while nobody is connected.
const EACH: u64 = 10;

/// The memory that the program has in RAM, in KiB.
fn resident(sage: &Service) -> u64 {
    let path = format!("/proc/{}/status", sage.pid());
    let status = std::fs::read_to_string(path).expect("it lives");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[test]
fn two_thousand_messages_over_two_hundred_lost_connections_are_answered_once_in_flat_memory() {
    let world = World::builder().build();
    let mut place = Place::new(world.base(), &world.socket());
    // Not on a disk: what a crash leaves is for other tests, and this one writes as fast as it can.
    let shared = tempfile::tempdir_in("/dev/shm").expect("there is shared memory");
    place.change(|binding| {
        binding["dataRoot"] = json!(shared.path());
        binding["limits"] = json!({"turnsPerDay": 100_000});
        binding["discord"]["gatewayPaceMilliseconds"] = json!(1);
    });
    let mut sage = place.start();
    let ends = [
        Command::Close(4000),
        Command::Cut,
        Command::Reconnect,
        Command::Reset,
        Command::CloseWithoutCode,
        Command::InvalidSession(true),
        Command::CutFrame,
    ];
    let (mut said, mut warm) = (Vec::new(), 0);
    for (loss, end) in (1..=LOSSES).zip(ends.iter().cycle()) {
        // One in ten goes to the executor; the others are answered by the connector alone.
        let say =
            |number: u64| place.say(if number == 0 { "git status of strategy" } else { "help" });
        said.extend((0..EACH / 2).map(say));
        assert_eq!(place.fake.command(end), 1, "one connection");
        said.extend((EACH / 2..EACH).map(say));
        let all = said.len();
        place
            .fake
            .wait("all are answered", |seen| seen.gateway.resumed >= loss && answered(seen) >= all);
        if loss == LOSSES / 3 {
            warm = resident(&sage);
        }
    }
    let end = resident(&sage);
    // Sixteen bytes for each id it has seen; the rest is for what an allocator likes to keep.
    assert!(end < warm + warm / 4 + 8 * 1024, "{warm} KiB after a third, {end} KiB at the end");
    sage.signal(Signal::SIGTERM);
    assert_eq!(sage.ended(), Some(0));
    each_once(&place, &said);
}

fn answered(seen: &harness::discord::Seen) -> usize {
    seen.messages.iter().filter(|sent| sent.reference.is_some()).count()
}

fn each_once(place: &Place, said: &[u64]) {
    let seen = place.fake.seen();
    let mut answers: BTreeMap<u64, u64> = BTreeMap::new();
    for sent in seen.from_bot() {
        *answers.entry(sent.reference.expect("each answers something")).or_default() += 1;
    }
    assert!(said.iter().all(|message| answers.get(message) == Some(&1)), "{answers:?}");
    assert_eq!(answers.len(), said.len());
    assert_eq!((seen.gateway.identifies, seen.gateway.most_open), (1, 1));
    assert!(seen.gateway.resumed >= LOSSES);
}
