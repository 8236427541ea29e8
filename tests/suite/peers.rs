//! A listed peer that means harm (B4, B5): what it sends costs it its own connection at most, and what it
//! makes the executor keep has a bound.

use std::time::Duration;

use harness::calls::{self, ROOT};
use harness::dice::Dice;
use harness::footprint::{descriptors, most_kib, nothing_is_left, resident_kib};
use harness::turn::Turn;
use harness::wire::{Raw, framed, message, request, reworded};
use harness::world::World;
use protocol::refusal::{Code, Outcome};
use protocol::reply::{Roots, Status};
use protocol::tool::ToolCall;
use protocol::wire::PROTOCOL_VERSION;

use crate::check;

const MINUTE: Duration = Duration::from_secs(60);

fn others_are_served(turn: &Turn<'_>) {
    turn.reply::<Status>(calls::status(ROOT, ""));
}

/// The other's connection ends without an answer, and nobody else notices.
fn costs_its_own_connection(world: &World, turn: &Turn<'_>, bytes: &[u8]) {
    let mut raw = Raw::welcome(world);
    raw.send(&framed(bytes));
    raw.hung_up();
    others_are_served(turn);
}

/// As many as each of the limits of an answer lets through, and a good deal for the runtime.
const MOST_KIB: u64 = 96 << 10;

#[test]
fn a_peer_that_calls_and_never_reads_is_read_no_further() {
    let text = "a line of some length\n".repeat(12_000);
    let world = World::builder().file("long.md", &text).build();
    let turn = world.turn("Owner");
    others_are_served(&turn);
    let (before, memory) = (descriptors(&world), resident_kib(&world));
    let mut raw = Raw::welcome(&world);
    let mut taken = 0;
    while taken < 20_000 {
        let call = calls::read(ROOT, "long.md");
        let bytes = message(taken, request("deaf", &format!("call-{taken}"), call), MINUTE);
        if !raw.offer(&framed(&bytes)) {
            break;
        }
        taken += 1;
    }
    assert!(taken < 20_000, "the executor goes on reading what it cannot answer");
    others_are_served(&turn);
    let more = most_kib(&world).saturating_sub(memory);
    assert!(more < MOST_KIB, "{more} KiB more than before, for {taken} calls");
    drop(raw);
    nothing_is_left(&world, before);
    others_are_served(&turn);
}

#[test]
fn a_word_that_the_protocol_does_not_have_ends_its_own_connection() {
    let world = World::new_plain();
    let turn = world.turn("Owner");
    let good = message(1, request("t", "c", calls::status(ROOT, "")), MINUTE);
    let mut raw = Raw::welcome(&world);
    raw.send(&framed(&good));
    assert!(!raw.frame().is_empty(), "the positive control is answered");
    for (word, other) in [
        ("git_status", "git_statue"),
        ("terminal", "terminus"),
        ("Request", "Bequest"),
        ("Call", "Cull"),
    ] {
        let bytes = reworded(&good, word.as_bytes(), other.as_bytes());
        costs_its_own_connection(&world, &turn, &bytes);
    }
    // One field more or less, and a message of no kind.
    costs_its_own_connection(&world, &turn, &good[..good.len() - 1]);
    costs_its_own_connection(&world, &turn, &[0xc0]);
    costs_its_own_connection(&world, &turn, b"\x81\xa5Other\xc0");
}

#[test]
fn a_greeting_that_comes_byte_by_byte_is_one() {
    let world = World::new_plain();
    let mut slow = Raw::connect(&world);
    for byte in harness::wire::greeting(PROTOCOL_VERSION) {
        slow.send(&[byte]);
        std::thread::yield_now();
    }
    assert_eq!(slow.greeted(), (PROTOCOL_VERSION, 0));
    world.turn("Owner").reply::<Roots>(calls::list_roots());
    // One that never ends is hung up on.
    let mut never = Raw::connect(&world);
    never.send(b"SAGE\0");
    never.hung_up();
}

#[test]
fn no_deadline_is_too_far_away() {
    let world = World::new_plain();
    let turn = world.turn("Owner");
    let status = || request("t", "c", calls::status(ROOT, ""));
    let years = Duration::from_secs(0x12_3456_789a);
    let far = message(1, status(), years);
    let mut raw = Raw::welcome(&world);
    raw.send(&framed(&far));
    assert!(!raw.frame().is_empty(), "it is answered");
    // So far that no clock goes there.
    let at = far.windows(7).position(|bytes| bytes == [0xcf, 0, 0, 0, 0x12, 0x34, 0x56]);
    let mut beyond = far;
    let at = at.expect("the seconds stand in the message");
    beyond[at + 1..at + 9].fill(0xff);
    costs_its_own_connection(&world, &turn, &beyond);
    // None at all: the client has given up before it asked.
    let mut raw = Raw::welcome(&world);
    raw.send(&framed(&message(1, status(), Duration::ZERO)));
    others_are_served(&turn);
}

/// The audit's longest line, in bytes.
fn longest_line(world: &World) -> usize {
    let audit = std::fs::read_to_string(world.audit()).expect("there is an audit");
    audit.lines().map(str::len).max().expect("it has lines")
}

#[test]
fn what_is_vast_in_a_call_is_refused_and_small_in_the_audit() {
    let world = World::new_plain();
    let turn = world.turn("Owner");
    let vast = "v".repeat(3 << 20);
    turn.refused_by(Code::UnknownRoot, calls::status(&vast, ""));
    turn.refused_by(Code::InvalidPath, calls::read(ROOT, &vast));
    turn.refused_by(Code::InvalidArguments, calls::search(ROOT, &vast, ""));
    turn.refused_by(Code::UnknownHandle, calls::read_output(&vast, 0));
    let paths = vec![""; 1_000_000];
    turn.refused_by(Code::InvalidArguments, calls::commit(ROOT, "Vast", &paths));
    let more = longest_line(&world);
    assert!(more < 4096, "a line of the audit has {more} bytes");
    others_are_served(&turn);
}

#[test]
fn names_of_turns_and_calls_cost_no_memory_however_long_they_are() {
    let world = World::new_plain();
    others_are_served(&world.turn("Owner"));
    let memory = resident_kib(&world);
    let long = "n".repeat(3 << 19);
    for number in 0..100 {
        let turn = world.turn_named(&format!("{long}{number}"), "Owner");
        let outcome = turn.call_as(&format!("{long}{number}"), calls::list_roots());
        assert!(matches!(outcome, Outcome::Reply(_)), "{outcome:?}");
    }
    let more = resident_kib(&world).saturating_sub(memory);
    assert!(more < MOST_KIB, "{more} KiB more than before");
    assert!(longest_line(&world) < 4096);
}

#[test]
fn what_is_kept_to_be_read_on_has_a_bound_over_all_turns_of_a_peer() {
    let text = "one line and one more\n".repeat(10_000);
    let mut builder = World::builder();
    for number in 0..20 {
        builder = builder.file(&format!("long/{number}.md"), "short\n");
    }
    let world = builder.build();
    for number in 0..20 {
        world.clone_dir().write(format!("long/{number}.md"), &text);
    }
    let first = world.turn("Owner");
    let cut = |turn: &Turn<'_>| {
        let diff: protocol::reply::Diff = turn.reply(calls::short_diff(ROOT, 1000));
        diff.untrusted_diff.cut.expect("it is cut")
    };
    let handle = cut(&first);
    first.reply::<protocol::reply::OutputPage>(calls::read_output(&handle.handle, 1000));
    // More than the bound, all together.
    for _ in 0..16 {
        cut(&world.turn("Owner"));
    }
    let no = first.refused_by(Code::UnknownHandle, calls::read_output(&handle.handle, 1000));
    assert!(no.hint.contains("again"), "{no}");
    // The newest is there.
    let last = world.turn("Owner");
    let handle = cut(&last);
    last.reply::<protocol::reply::OutputPage>(calls::read_output(&handle.handle, 1000));
}

#[test]
fn a_call_that_is_left_at_any_point_leaves_nothing_behind() {
    let world = World::builder().file("long.md", "a line of some length\n".repeat(5_000)).build();
    let clone = world.clone_dir();
    let turn = world.turn("Owner");
    others_are_served(&turn);
    let before = descriptors(&world);
    let calls: [fn() -> ToolCall; 7] = [
        || calls::status(ROOT, ""),
        || calls::diff(ROOT, "", ""),
        || calls::search(ROOT, "length", ""),
        || calls::log(ROOT, "", "", 10),
        || calls::commit(ROOT, "Left alone", &["plans/one.md"]),
        || calls::pull(ROOT),
        || calls::push(ROOT),
    ];
    let mut dice = Dice::new(11);
    for round in 0..12 {
        for call in calls {
            clone.write("plans/one.md", format!("{round}\n"));
            clone.write("long.md", format!("{round}\n").repeat(5_000));
            // As long as the longest of them takes, by and large.
            let patience = Duration::from_micros(dice.below(150_000));
            world.turn("Owner").call_and_leave("c", call(), patience);
        }
        nothing_is_left(&world, before);
        assert!(!clone.dir().join(".git/index.lock").exists(), "round {round}");
        let kept = std::fs::read_dir(world.state().join("skeletons"));
        assert_eq!(kept.map_or(0, Iterator::count), 0, "round {round}");
    }
    check::commit_works(&world, &world.turn("Owner"), "plans/one.md");
    check::sound(&world);
}
