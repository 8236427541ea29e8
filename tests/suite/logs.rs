//! The logs of both programs (O2): a call is told by the same ids on both sides, and no line holds what was
//! said, written or read.

use harness::calls::ROOT;
use harness::service::Place;
use harness::world::World;
use serde_json::Value;

/// What is in the message, the file and the commit, and may be in no log.
const CANARY: &str = "canary-9d41";

fn both() -> (World, Place) {
    let world = World::builder()
        .environment("SAGE_LOG", "trace")
        .file("plans/seen.md", format!("{CANARY} read\n"))
        .build();
    let mut place = Place::new(world.base(), &world.socket());
    place.log_all();
    (world, place)
}

#[test]
fn a_call_is_told_by_the_same_ids_on_both_sides_and_without_any_text() {
    let (world, place) = both();
    let _sage = place.start();
    let mut records = Vec::new();
    for line in [
        format!("write {ROOT}/plans/new.md: {CANARY} written"),
        format!("read {ROOT}/plans/seen.md"),
        format!("commit {ROOT}/plans/new.md: {CANARY} committed"),
        format!("read {ROOT}/../{CANARY}.md"),
        format!("{CANARY} {CANARY}"),
    ] {
        let message = place.say(&line);
        assert_eq!(place.answers(message).len(), 1);
        records.push((message, place.record(message)));
    }
    let (connector, executor) = (place.log(), world.executor_log());
    let mut calls = 0;
    for (message, record) in &records {
        assert!(connector.contains(&format!("turn{{id={message}}}")), "{connector}");
        for call in record["calls"].as_array().into_iter().flatten() {
            let (id, tool) = (text(&call["id"]), text(&call["tool"]));
            let there = format!("call{{turn={message} call={id} tool=\"{tool}\"");
            assert!(executor.contains(&there), "{there}:\n{executor}");
            let here = connector.lines().any(|line| line.contains(&format!("call={id} ")));
            assert!(here, "{id}:\n{connector}");
            calls += 1;
        }
    }
    assert!(calls >= 4, "{records:?}");
    for (name, log) in [("connector", connector), ("executor", executor)] {
        assert!(log.contains("TRACE") || log.contains("DEBUG"), "{name}: it says all it can");
        let told: Vec<_> = log.lines().filter(|line| line.contains(CANARY)).collect();
        assert!(told.is_empty(), "{name}: {told:#?}");
    }
}

fn text(value: &Value) -> &str {
    value.as_str().expect("it is text")
}
