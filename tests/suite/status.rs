//! `sage-executor status` (O2): what a running executor has counted, in numbers and closed words alone.

use harness::calls::{self, ROOT};
use harness::cli::{Run, Said};
use harness::wire::Raw;
use harness::world::World;
use protocol::refusal::Code;
use protocol::reply::{FileText, Roots};
use protocol::status::Status;
use protocol::wire::PROTOCOL_VERSION;

use crate::stop::stop;

fn status(world: &World, more: &[&str]) -> Said {
    let socket = world.socket();
    let socket = socket.to_str().expect("it is UTF-8");
    Run::executor(["status", "--socket", socket].into_iter().chain(more.iter().copied())).piped()
}

fn counted(world: &World) -> Status {
    let said = status(world, &["--json"]);
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    serde_json::from_str(&said.out).expect("it is a status")
}

#[test]
fn calls_refusals_and_connections_are_counted_since_the_start() {
    let world = World::builder().limit("maxCallsPerMinute", 4).build();
    let turn = world.turn("Owner");
    turn.reply::<Roots>(calls::list_roots());
    turn.reply::<FileText>(calls::read(ROOT, "README.md"));
    turn.reply::<FileText>(calls::read(ROOT, "README.md"));
    turn.refused_by(Code::InvalidPath, calls::read(ROOT, "../secret"));
    turn.refused_by(Code::Busy, calls::list_roots());
    assert_eq!(Raw::connect(&world).greet(PROTOCOL_VERSION + 1).1, 1, "another version");

    let told = counted(&world);
    let counters = told.counters;
    let calls: Vec<_> = counters
        .calls
        .iter()
        .map(|(tool, ended)| (tool.as_str(), ended.done, ended.refused, ended.fault))
        .collect();
    assert_eq!(calls, [("list_roots", 1, 1, 0), ("read_file", 2, 1, 0)]);
    let refusals: Vec<_> =
        counters.refusals.iter().map(|(code, count)| (code.as_str(), *count)).collect();
    assert_eq!(refusals, [("busy", 1), ("invalid_path", 1)]);
    assert_eq!((counters.durations.count, counters.under_way), (3, 0));
    assert_eq!(counters.rate_limited.values().copied().collect::<Vec<_>>(), [1]);
    let away: Vec<_> =
        counters.turned_away.iter().map(|(why, count)| (why.as_str(), *count)).collect();
    assert_eq!(away, [("version", 1)]);
    assert!(counters.connections >= 2 && counters.connections_open >= 1, "{counters:?}");

    let told = status_page(&world);
    for line in [
        "sage_executor_stopped 0",
        "sage_executor_calls_total{tool=\"read_file\",outcome=\"done\"} 2",
        "sage_executor_refusals_total{code=\"invalid_path\"} 1",
        "sage_executor_call_duration_milliseconds_count 3",
        "sage_executor_turned_away_total{reason=\"version\"} 1",
    ] {
        assert!(told.lines().any(|told| told == line), "{line}:\n{told}");
    }
    let human = status(&world, &[]);
    assert!(human.out.contains("read_file 2 (and 1 refused, 0 broken)"), "{}", human.out);
}

fn status_page(world: &World) -> String {
    let said = status(world, &["--prometheus"]);
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    said.out
}

#[test]
fn what_is_asked_for_and_who_asks_is_in_no_counter() {
    let canary = "canary-5f1c";
    let world = World::builder().file(&format!("{canary}.md"), canary).build();
    let turn = world.turn("Owner");
    turn.reply::<FileText>(calls::read(ROOT, &format!("{canary}.md")));
    turn.refused_by(Code::UnknownRoot, calls::read(canary, "README.md"));
    world.turn(canary).refused_by(Code::RequesterNotAllowed, calls::list_roots());
    for more in [&[][..], &["--json"], &["--prometheus"]] {
        let said = status(&world, more);
        assert!(said.out.contains("read_file"), "{}", said.out);
        assert!(!said.out.contains(canary) && !said.out.contains("Owner"), "{}", said.out);
    }
}

#[test]
fn a_stop_that_stands_is_said_first_and_without_an_executor_the_next_step_is() {
    let mut world = World::builder().build();
    stop(&world);
    assert!(counted(&world).stopped.is_some());
    let human = status(&world, &[]).out;
    let second = human.lines().nth(1).unwrap_or_default();
    assert!(second.starts_with("stopped by ") && second.contains("resume"), "{human}");
    assert!(status_page(&world).contains("sage_executor_stopped 1\n"));
    world.kill_executor();
    let gone = status(&world, &["--json"]);
    assert_eq!((gone.code, gone.out.as_str()), (5, ""), "{}", gone.err);
    assert!(gone.err.contains("executor.sock"), "{}", gone.err);
}
