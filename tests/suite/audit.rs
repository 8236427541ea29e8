//! The audit (J4) of a running executor: it changes files and keeps the chain, and can be looked
//! through.

use harness::calls::{self, ROOT};
use harness::cli::{Run, Said};
use harness::world::World;
use protocol::refusal::{Code, Outcome};
use protocol::reply::{Committed, FileText, Roots, Written};
use serde_json::Value;

use crate::full_disk::SmallDisk;

fn audit(world: &World, words: &[&str]) -> Said {
    let state = world.state().display().to_string();
    let all = ["audit", words[0], &state];
    Run::executor(all.iter().chain(&words[1..])).piped()
}

fn holds(world: &World) -> String {
    let said = audit(world, &["verify"]);
    assert_eq!(said.code, 0, "{said:?}");
    said.out
}

fn closed(world: &World) -> Vec<String> {
    let entries = std::fs::read_dir(world.state()).expect("it is there").flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| name.starts_with("audit-")).collect();
    names.sort();
    names
}

#[test]
fn a_full_file_is_closed_and_the_chain_goes_on_over_restarts() {
    let mut world = World::builder().limit("maxAuditBytes", 4096).build();
    for round in 0..3 {
        for _ in 0..10 {
            world.turn("Owner").reply::<Roots>(calls::list_roots());
        }
        world.restart();
        assert!(closed(&world).len() > round, "{:?}", closed(&world));
        holds(&world);
    }
    let names = closed(&world);
    let file = |name: &str| world.state().join(name);
    for name in &names {
        assert!(std::fs::metadata(file(name)).expect("it is there").len() <= 4096);
    }
    let last_of = |name: &str| -> Value {
        let text = std::fs::read_to_string(file(name)).expect("it is there");
        serde_json::from_str(text.lines().last().expect("a line")).expect("JSON")
    };
    let second = std::fs::read_to_string(file("audit-000002.jsonl")).expect("it is there");
    let first: Value = serde_json::from_str(second.lines().next().expect("a line")).expect("JSON");
    assert_eq!(first["prev"], last_of("audit-000001.jsonl")["hash"]);
    assert_eq!(
        (&first["event"], &first["previous"]),
        (&"continued".into(), &"audit-000001.jsonl".into())
    );

    // From any file of it, the whole is followed; and what is missing is named.
    let path = file("audit-000002.jsonl").display().to_string();
    assert_eq!(Run::executor(["audit", "verify", &path]).piped().out, holds(&world));
    std::fs::rename(file("audit-000001.jsonl"), world.base().join("archive")).expect("it is ours");
    let said = audit(&world, &["verify"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(
        said.out.contains("audit-000001.jsonl line 0 is broken: the file is missing"),
        "{said:?}"
    );
    assert_eq!(audit(&world, &["verify", "--archived"]).code, 0);
}

#[test]
fn lines_that_were_cut_off_are_missed_before_and_after_the_next_start() {
    let mut world = World::new_plain();
    world.turn("Owner").reply::<Roots>(calls::list_roots());
    world.kill_executor();
    holds(&world);
    let text = std::fs::read_to_string(world.audit()).expect("it is there");
    let cut = text.trim_end().rfind('\n').expect("several lines") + 1;
    std::fs::write(world.audit(), &text[..cut]).expect("it is ours");
    let said = audit(&world, &["verify"]);
    assert!(said.code == 1 && said.out.contains("1 are gone"), "{said:?}");
    world.start();
    assert!(world.executor_log().contains("the audit is not as it was left"));
    assert!(world.audit_lines().iter().any(|line| line["event"] == "damaged"));
    let said = audit(&world, &["verify"]);
    assert!(said.code == 1 && said.out.contains("found the audit damaged"), "{said:?}");
}

#[test]
fn a_torn_last_line_is_cut_off_at_the_next_start_and_said() {
    let mut world = World::new_plain();
    world.kill_executor();
    let mut text = std::fs::read_to_string(world.audit()).expect("it is there");
    text.push_str("{\"seq\":9,\"time\":\"20");
    std::fs::write(world.audit(), text).expect("it is ours");
    world.start();
    let repaired = world.audit_lines().into_iter().find(|line| line["event"] == "repaired");
    assert!(
        repaired
            .is_some_and(|line| line["reason"].as_str().is_some_and(|why| why.contains("torn")))
    );
    holds(&world);
}

#[test]
fn a_call_that_cannot_be_written_down_is_refused_before_it_acts() {
    let mut world = World::new_plain();
    world.kill_executor();
    let disk = SmallDisk::over(&world.state());
    world.start();
    let write = || calls::write(ROOT, "plans/three.md", "three\n");
    let filler = disk.fill();
    // What is left in the file's last page takes some lines more.
    let outcome = loop {
        match world.turn("Owner").call(calls::read(ROOT, "README.md")) {
            Outcome::Reply(_) => {}
            other => break other,
        }
    };
    for outcome in [outcome, world.turn("Owner").call(write())] {
        let Outcome::Fault(fault) = outcome else { panic!("{outcome:?}") };
        assert!(fault.message.contains("the audit cannot be written"), "{fault}");
        assert!(fault.message.contains("nothing was done"), "{fault}");
    }
    assert!(!world.clone_dir().path("plans/three.md").exists(), "it acted");
    std::fs::remove_file(filler).expect("it is ours");
    world.turn("Owner").reply::<Written>(write());
    holds(&world);
    world.kill_executor();
}

#[test]
fn calls_are_listed_with_what_became_of_them_by_filters() {
    let world = World::builder().limit("maxAuditBytes", 4096).build();
    let turn = world.turn("Owner");
    turn.reply::<Written>(calls::write(ROOT, "plans/three.md", "three\n"));
    let done: Committed = turn.reply(calls::commit(ROOT, "Three", &["plans/three.md"]));
    turn.refused_by(Code::NothingToCommit, calls::commit(ROOT, "Again", &["plans/three.md"]));
    let other = world.turn("Partner");
    for _ in 0..8 {
        other.reply::<FileText>(calls::read(ROOT, "README.md"));
    }
    assert!(!closed(&world).is_empty(), "it reads several files");

    let listed = |words: &[&str]| -> Vec<Value> {
        let said = audit(&world, &[&["list", "--json"], words].concat());
        assert_eq!(said.code, 0, "{said:?}");
        said.out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    };
    let commits = listed(&["--tool", "git-commit"]);
    assert_eq!(commits.len(), 2, "{commits:#?}");
    assert_eq!(commits[0]["commit"], done.hash.as_str());
    assert_eq!(commits[1]["code"], "nothing_to_commit");
    assert_eq!(listed(&["--code", "nothing_to_commit"]), commits[1..]);
    assert_eq!(listed(&["--outcome", "refused"]), commits[1..]);
    assert_eq!(listed(&["--requester", "Partner"]).len(), 8);
    assert_eq!(listed(&["--turn", turn.id()]).len(), 3);
    assert_eq!(listed(&["--turn", turn.id(), "--limit", "2"]), commits);
    let me = nix::unistd::geteuid().to_string();
    assert_eq!(listed(&["--peer", &me]).len(), 11);
    assert_eq!(listed(&["--peer", "54321"]).len(), 0);
    assert_eq!(listed(&["--tool", "git_commit", "--since", "1h"]), commits);
    assert_eq!(listed(&["--until", "1h"]).len(), 0);
    assert_eq!(listed(&["--outcome", "started"]).len(), 1);
    let said = audit(&world, &["list", "--tool", "git_commit"]);
    let lines: Vec<&str> = said.out.lines().collect();
    assert_eq!(lines.len(), 2, "{said:?}");
    assert!(lines[0].contains("done") && lines[0].contains(&done.hash), "{}", lines[0]);
    assert!(
        lines[1].contains("nothing_to_commit") && lines[1].contains("for Owner"),
        "{}",
        lines[1]
    );
    for wrong in [["--code", "no_such"], ["--tool", "no_such"], ["--since", "yesterday"]] {
        assert_eq!(audit(&world, &["list", wrong[0], wrong[1]]).code, 2, "{wrong:?}");
    }
}

#[test]
fn names_of_the_peers_choice_are_never_written_whole_when_they_are_long() {
    let world = World::new_plain();
    let long = "x".repeat(5000);
    world.turn_named(&long, "Owner").reply::<Roots>(calls::list_roots());
    world.turn(&long).refused_by(Code::RequesterNotAllowed, calls::list_roots());
    let text = std::fs::read_to_string(world.audit()).expect("there is an audit");
    assert!(!text.contains(&long[..200]), "it was written whole");
    let line = world.audit_lines().into_iter().find(|line| line["event"] == "call");
    assert_eq!(line.expect("a line")["turn"]["bytes"], 5000);
}
