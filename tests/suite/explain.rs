//! `explain` (J7): what would become of a call, by the fence of the calls themselves, and nothing done.

use harness::calls::{self, ROOT};
use harness::cli::Run;
use harness::snapshot::Snapshot;
use harness::world::World;
use protocol::explain::Explanation;
use protocol::refusal::{Code, Outcome};
use protocol::reply::{FileText, Written};
use protocol::tool::ToolCall;
use serde_json::{Value, json};

use crate::stop::stop;
use crate::vault;

fn steps(explanation: &Explanation) -> Vec<&str> {
    explanation.steps.iter().map(|step| step.step.as_str()).collect()
}

#[test]
fn what_is_explained_is_what_the_call_then_gets() {
    let world = vault::builder(None).home().build();
    let secret = format!("token ghp_{}\n", "a1B2".repeat(9));
    let cases: Vec<(ToolCall, Option<Code>)> = vec![
        (calls::read(ROOT, "README.md"), None),
        (calls::write(ROOT, "plans/new.md", "text\n"), None),
        (calls::status(ROOT, ""), None),
        (calls::list_roots(), None),
        (calls::write(ROOT, "../out.md", "text\n"), Some(Code::InvalidPath)),
        (calls::write(ROOT, "AGENTS.md", "text\n"), Some(Code::ProtectedPath)),
        (calls::write("home", "new.md", "text\n"), Some(Code::ReadOnlyRoot)),
        (calls::write("nowhere", "new.md", "text\n"), Some(Code::UnknownRoot)),
        (calls::write(ROOT, "plans/new.md", &secret), Some(Code::CredentialShape)),
        (calls::web_fetch("https://example.invalid/"), Some(Code::NotOffered)),
    ];
    for (call, code) in cases {
        let shown = format!("{call:?}");
        let explained = world.turn("Owner").explain(call.clone());
        assert_eq!(explained.tool, call.name());
        assert_eq!(explained.refusal.as_ref().map(|no| no.code), code, "{shown}: {explained:?}");
        assert_eq!(explained.passed.is_empty(), code.is_some(), "{shown}");
        match (world.turn("Owner").call(call), explained.refusal) {
            (Outcome::Reply(_), None) => {}
            (Outcome::Refusal(no), Some(said)) => assert_eq!(no, said),
            (outcome, said) => panic!("{shown}: {said:?} was said, and then {outcome:?}"),
        }
    }
    let no = world.turn("Nobody").explain(calls::list_roots()).refusal.expect("a refusal");
    assert_eq!(no.code, Code::RequesterNotAllowed);
}

#[test]
fn the_steps_are_those_that_this_root_can_bring_about() {
    let world = World::builder().approval().review().build();
    let commit = world.turn("Owner").explain(calls::commit(ROOT, "One", &["plans/one.md"]));
    assert_eq!(commit.refusal, None);
    let taken = steps(&commit);
    assert!(taken.contains(&"push local") && taken.contains(&"git stage"), "{taken:?}");
    for other in ["push https", "validate", "check locks"] {
        assert!(!taken.contains(&other), "{other}: {taken:?}");
    }
    let push = commit.steps.iter().find(|step| step.step == "push local").expect("a step");
    assert_eq!(
        (push.files.as_str(), push.network.as_str(), push.token),
        ("ReadObjects", "None", false)
    );
    let later = commit.later.join("\n");
    assert!(later.contains("the approval") && later.contains("the review"), "{later}");
    let vault = World::builder().vault().build();
    let reserve = vault.turn("Owner").explain(calls::reserve(ROOT, "A decision"));
    assert!(steps(&reserve).contains(&"reserve id"), "{reserve:?}");
}

#[test]
fn nothing_is_done_and_nothing_is_counted_and_it_is_in_the_audit_as_explained() {
    let world = World::builder().limit("maxCallsPerTurn", 2).build();
    let turn = world.turn("Owner");
    let before = Snapshot::of_clone(world.clone_dir().dir());
    for _ in 0..5 {
        let explained = turn.explain(calls::write(ROOT, "plans/new.md", "text\n"));
        assert_eq!(explained.refusal, None);
        assert!(explained.passed.iter().any(|rule| rule.contains("call 1 of the turn's 2")));
    }
    before.assert_same_bytes(&Snapshot::of_clone(world.clone_dir().dir()), "explained");
    let lines = world.audit_lines();
    let explained: Vec<&Value> = lines.iter().filter(|line| line["event"] == "explained").collect();
    assert_eq!(explained.len(), 5);
    assert_eq!(explained[0]["tool"], "write_file");
    assert_eq!(explained[0]["allowed"], true);
    assert!(!lines.iter().any(|line| line["event"] == "call"), "{lines:#?}");
    turn.reply::<Written>(calls::write(ROOT, "plans/new.md", "text\n"));
    turn.reply::<FileText>(calls::read(ROOT, "plans/new.md"));
    let no = turn.explain(calls::read(ROOT, "plans/new.md")).refusal.expect("the turn is used up");
    assert_eq!(no.code, Code::TooManyCalls);
    stop(&world);
    let no = world.turn("Owner").explain(calls::push(ROOT)).refusal.expect("it is stopped");
    assert_eq!(no.code, Code::Stopped);
}

#[test]
fn at_the_terminal_it_takes_the_flags_of_call_and_says_it_in_words_or_json() {
    let world = World::builder().home().build();
    let socket = world.socket().display().to_string();
    let explain = |words: &[&str]| {
        let all = ["explain", "--socket", &socket, "--as", "Owner"];
        Run::executor(all.iter().chain(words)).piped()
    };
    let said = explain(&["write_file", "--root", ROOT, "--path", "a.md", "--text", "x"]);
    assert_eq!(said.code, 0, "{said:?}");
    for part in [
        "write_file would be allowed",
        "this peer may speak for Owner",
        "the root strategy can be written",
        "  - write files: files WriteRoot, exec None, network None, token no",
        "Judged only when it is made",
    ] {
        assert!(said.out.contains(part), "{part}: {}", said.out);
    }
    assert!(!world.clone_dir().path("a.md").exists());
    let said = explain(&["write_file", "--input", r#"{"root":"home","path":"a","text":"x"}"#]);
    assert_eq!(said.code, 3, "{said:?}");
    assert!(said.out.contains("would be refused by the rule read_only_root"), "{}", said.out);
    assert!(said.out.contains("hint: "), "{}", said.out);
    let said = explain(&["git_push", "--root", ROOT, "--json"]);
    let json: Value = serde_json::from_str(&said.out).unwrap_or_else(|_| panic!("{said:?}"));
    assert_eq!((&json["tool"], &json["refusal"]), (&json!("git_push"), &Value::Null));
    assert!(json["steps"].as_array().is_some_and(|steps| !steps.is_empty()));
}
