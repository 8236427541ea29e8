//! J5: how often one peer may call, in any turn.

use harness::calls::{self, ROOT};
use harness::world::World;
use protocol::refusal::{Code, Outcome};
use protocol::reply::Roots;

#[test]
fn a_peer_that_calls_too_often_is_told_when_to_try_again() {
    let world = World::builder().limit("maxCallsPerMinute", 3).build();
    for _ in 0..3 {
        world.turn("Owner").reply::<Roots>(calls::list_roots());
    }
    // Another turn, another tool and a call that would be refused anyway are the same peer's.
    let no = world.turn("Owner").refused_by(Code::Busy, calls::list_roots());
    assert!(no.message.contains("too often"), "{no}");
    let seconds = no.hint.strip_prefix("Call again in ").and_then(|rest| rest.strip_suffix(" s."));
    let seconds: u64 = seconds.and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{no}"));
    assert!((1..=20).contains(&seconds), "{no}");
    world.turn("Partner").refused_by(Code::Busy, calls::read(ROOT, "README.md"));
    let explained = world.turn("Owner").explain(calls::list_roots());
    assert_eq!(explained.refusal.map(|no| no.code), Some(Code::Busy));
}

#[test]
fn refusals_for_the_rate_do_not_fill_the_audit_and_their_number_is_in_it() {
    let world = World::builder().limit("maxCallsPerMinute", 1).build();
    let turn = world.turn("Owner");
    turn.reply::<Roots>(calls::list_roots());
    let mut refused = 0;
    let busy = |world: &World| {
        let lines = world.audit_lines();
        lines.into_iter().filter(|line| line["code"] == "busy").collect::<Vec<_>>()
    };
    // Until a second line is written, which takes another second.
    while busy(&world).len() < 2 {
        let outcome = turn.call(calls::list_roots());
        assert!(matches!(&outcome, Outcome::Refusal(no) if no.code == Code::Busy), "{outcome:?}");
        refused += 1;
    }
    let lines = busy(&world);
    let times: u64 = lines.iter().map(|line| line["times"].as_u64().expect("a number")).sum();
    assert_eq!(times, refused, "each refusal is counted");
    assert_eq!(lines[0]["times"], 1);
}
