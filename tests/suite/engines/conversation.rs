//! One conversation for every engine (L1): a decision is written, reviewed, committed, and is then in
//! the remote.
//!
//! An engine joins by a test that calls [`leads_to_a_pushed_commit`] with its section of the binding
//! and what a person says to it. One with a model is pointed at an endpoint that plays
//! [`model_script`].

use harness::calls::ROOT;
use harness::chat::Chat;
use harness::model::{ModelServer, Reply};
use harness::world::World;
use serde_json::{Value, json};

use crate::check;

const PATH: &str = "plans/three.md";
const TEXT: &str = "# Three\n\nGo, with \"care\" and ü.\n";
const MESSAGE: &str = "Decide on three";

/// What the person says: to write, to look, to commit.
pub(super) type Words = [String; 3];

/// What is said to an engine with a model.
pub(super) fn words_for_a_model() -> Words {
    ["Write down that three is decided.", "What changed?", "Good. Commit it."].map(str::to_owned)
}

/// What a model does in this conversation.
pub(super) fn model_script() -> Vec<Reply> {
    let root = json!({"root": ROOT});
    let file = json!({"root": ROOT, "path": PATH});
    let commit = json!({"root": ROOT, "message": MESSAGE, "paths": [PATH]});
    vec![
        Reply::call("write_file", &json!({"root": ROOT, "path": PATH, "text": TEXT})),
        Reply::say("It is written."),
        Reply::calls(&[("git_status", root.clone()), ("git_diff", root.clone())]),
        Reply::say("One new file."),
        // The gate wants the review in the turn of the commit, and says so.
        Reply::call("git_commit", &commit),
        Reply::calls(&[("git_diff", root), ("read_file", file)]),
        Reply::call("git_commit", &commit),
        Reply::say("It is committed and pushed."),
    ]
}

/// Has the conversation and looks at what came of it.
pub(super) fn leads_to_a_pushed_commit(
    name: &str,
    words: &Words,
    engine: impl FnOnce(&World) -> Value,
) {
    let world = World::builder().review().build();
    let mut chat = Chat::start(&world, engine(&world));

    let written = chat.say(&words[0]);
    assert_eq!(written.state(), "answered", "{}", written.reason());
    assert_eq!(world.clone_dir().text(PATH), TEXT);
    let looked = chat.say(&words[1]);
    assert_eq!(looked.state(), "answered", "{}", looked.reason());
    let mut tools: Vec<String> = looked.calls().into_iter().map(|(tool, _)| tool).collect();
    tools.sort();
    assert_eq!(tools, ["git_diff", "git_status"]);
    let before = world.remote_head();
    let committed = chat.say(&words[2]);
    assert_eq!(committed.state(), "answered", "{}", committed.reason());
    assert!(!committed.text.trim().is_empty());

    let head = world.clone_dir().head();
    assert_ne!(head, before);
    assert_eq!(world.remote_head(), head, "the remote has it");
    let shown = world.git(&["show", "--no-patch", "--format=%an|%B", "HEAD"]);
    assert_eq!(shown, format!("Sage|{MESSAGE}\n\nRequested-by: Owner"));
    assert_eq!(world.git(&["show", &format!("HEAD:{PATH}")]), TEXT.trim_end());
    assert_eq!(world.git(&["status", "--porcelain"]), "");

    let record = &committed.record;
    assert_eq!(record["engine"], name);
    let calls = record["calls"].as_array().expect("calls");
    let last = calls.last().expect("there are calls");
    assert_eq!((&last["tool"], &last["commit"]["hash"]), (&json!("git_commit"), &json!(head)));
    assert_eq!(last["commit"]["push"], json!({"state": "pushed"}));
    assert_eq!(chat.end(), 0);
    check::sound(&world);
}

#[test]
fn with_the_rules_engine_a_decision_ends_in_a_pushed_commit() {
    let words = [
        format!("write {ROOT}/{PATH}: {}", TEXT.trim_end()),
        format!("what changed in {ROOT}"),
        format!("commit {ROOT}/{PATH}: {MESSAGE}"),
    ];
    leads_to_a_pushed_commit("rules", &words, |_| json!({"kind": "rules"}));
}

#[test]
fn with_the_openai_engine_a_decision_ends_in_a_pushed_commit() {
    let model = ModelServer::start(model_script());
    let section = json!({"baseUrl": model.base_url(), "model": "m1"});
    leads_to_a_pushed_commit(
        "openai",
        &words_for_a_model(),
        |_| json!({"kind": "openai", "openai": section}),
    );
    model.assert_played();
    let asked = model.asked();
    let refused = asked[5].last_text();
    assert!(refused.contains(r#""code":"not_reviewed""#), "{refused}");
    let done: Value = serde_json::from_str(&asked[7].last_text()).expect("a result is JSON");
    assert_eq!(done["branch"], "main");
}

#[test]
fn with_the_pi_engine_a_decision_ends_in_a_pushed_commit() {
    let model = ModelServer::start(model_script());
    leads_to_a_pushed_commit("pi", &words_for_a_model(), |world| {
        harness::pi::section(world, model.port())
    });
    model.assert_played();
    let asked = model.asked();
    let refused = asked[5].last_text();
    assert!(refused.contains(r#""code":"not_reviewed""#), "{refused}");
    let done: Value = serde_json::from_str(&asked[7].last_text()).expect("a result is JSON");
    assert_eq!(done["branch"], "main");
}
