use protocol::reply::RootInfo;
use protocol::service::Description;
use protocol::tool::ToolName;
use serde_json::{Value, json};

use super::{Command, PHRASES, Part, find_ignoring_case, help, parts, read};
use crate::fake::offer;

/// The tool and arguments of a message that is one call.
fn call(message: &str) -> (&'static str, Value) {
    call_with(message, &offer())
}

fn call_with(message: &str, offer: &Description) -> (&'static str, Value) {
    match read(message, offer) {
        Ok(Command::Call(call)) => (call.name().as_str(), without_nulls(call.arguments())),
        other => panic!("{message:?}: {other:?}"),
    }
}

fn without_nulls(mut arguments: Value) -> Value {
    if let Some(map) = arguments.as_object_mut() {
        map.retain(|_, value| !value.is_null());
    }
    arguments
}

fn with_home() -> Description {
    let mut offer = offer();
    offer.roots.push(RootInfo { name: "home".to_owned(), ..offer.roots[0].clone() });
    offer
}

#[test]
fn each_phrase_makes_its_call() {
    let cases = [
        ("list roots", "list_roots", json!({})),
        ("List Roots", "list_roots", json!({})),
        ("list strategy", "list_files", json!({"root": "strategy"})),
        ("list strategy/vault/", "list_files", json!({"root": "strategy", "path": "vault"})),
        ("read strategy/a b.md", "read_file", json!({"root": "strategy", "path": "a b.md"})),
        ("git status of strategy", "git_status", json!({"root": "strategy"})),
        ("git status of ~/strategy?", "git_status", json!({"root": "strategy"})),
        ("what is staged in strategy?", "git_diff", json!({"root": "strategy", "spec": "staged"})),
        ("git log of strategy/docs", "git_log", json!({"root": "strategy", "path": "docs"})),
        ("show HEAD~1 in strategy", "git_show", json!({"root": "strategy", "rev": "HEAD~1"})),
        ("branches of strategy", "git_branches", json!({"root": "strategy"})),
        (
            "reserve dec in strategy: \"Launch\" in spring: why",
            "reserve_id",
            json!({"root": "strategy", "prefix": "DEC", "title": "\"Launch\" in spring: why"}),
        ),
        ("pull strategy", "git_pull", json!({"root": "strategy"})),
        ("push strategy", "git_push", json!({"root": "strategy"})),
        ("fetch https://a.example/x?y=z", "web_fetch", json!({"url": "https://a.example/x?y=z"})),
        ("Search the web for pears in winter", "web_search", json!({"query": "pears in winter"})),
        (
            "search the web in strategy",
            "search_files",
            json!({"root": "strategy", "pattern": "the web"}),
        ),
    ];
    for (message, tool, arguments) in cases {
        assert_eq!(call(message), (tool, arguments), "{message}");
    }
    let changes = Command::Changes { root: "strategy".to_owned(), path: Some("docs".to_owned()) };
    assert_eq!(read("what changed in strategy/docs?", &offer()), Ok(changes));
    assert_eq!(read(" HELP ", &offer()), Ok(Command::Help));
}

#[test]
fn a_path_below_the_tilde_is_in_the_home_root_when_there_is_one() {
    let home = with_home();
    let cases = [
        ("git status of ~/project", json!({"root": "home", "path": "project"})),
        ("git status of ~", json!({"root": "home"})),
        ("git status of ~someone/x", json!({"root": "~someone", "path": "x"})),
    ];
    for (message, arguments) in cases {
        assert_eq!(call_with(message, &home), ("git_status", arguments), "{message}");
    }
    let without = call("git status of ~/project/docs");
    assert_eq!(without, ("git_status", json!({"root": "project", "path": "docs"})));
}

#[test]
fn a_text_to_write_is_the_rest_of_the_message_byte_for_byte() {
    let cases = [
        ("write strategy/a.md: one", "one\n"),
        ("write strategy/a.md:one", "one\n"),
        ("write strategy/a.md:\none\n\n  two: \"three\"\n", "one\n\n  two: \"three\"\n"),
        ("write strategy/a.md: \none", "one\n"),
        ("write strategy/a.md:  indented", " indented\n"),
        ("write strategy/a.md: \"quoted\" and more", "\"quoted\" and more\n"),
        ("write strategy/a.md:", "\n"),
    ];
    for (message, text) in cases {
        let wanted = json!({"root": "strategy", "path": "a.md", "text": text});
        assert_eq!(call(message), ("write_file", wanted), "{message}");
    }
    let quoted = call(r#"write "strategy/a: b, c.md": x"#);
    let wanted = json!({"root": "strategy", "path": "a: b, c.md", "text": "x\n"});
    assert_eq!(quoted, ("write_file", wanted));
}

#[test]
fn a_path_that_is_not_allowed_goes_to_the_executor_as_it_was_typed() {
    let (_, arguments) = call("write strategy/../outside.md: x");
    assert_eq!(arguments["path"], "../outside.md");
    let (_, arguments) = call("read strategy//etc/passwd");
    assert_eq!(arguments["path"], "/etc/passwd");
}

#[test]
fn texts_to_replace_are_quoted_and_can_hold_anything() {
    let (tool, arguments) =
        call(r#"replace "a \" with \"b\" in c\n" with "$1 \\ é" in strategy/a.md"#);
    assert_eq!(tool, "edit_file");
    assert_eq!(arguments["old"], "a \" with \"b\" in c\n");
    assert_eq!(arguments["new"], "$1 \\ é");
    assert_eq!(arguments["path"], "a.md");
    let unquoted = read("replace a with b in strategy/a.md", &offer()).expect_err("no quotes");
    assert!(unquoted.contains("replace \"OLD\" with \"NEW\" in FILE"), "{unquoted}");
}

#[test]
fn a_commit_names_its_files_and_its_message() {
    let commit = |message: &str| match read(message, &offer()) {
        Ok(Command::Commit(commit)) => (commit.root, commit.paths, commit.message),
        other => panic!("{message:?}: {other:?}"),
    };
    let one = |path: &str| vec![path.to_owned()];
    let root = "strategy".to_owned();
    assert_eq!(
        commit("commit strategy/a.md: Say: hello, all"),
        (root.clone(), one("a.md"), "Say: hello, all".to_owned())
    );
    assert_eq!(
        commit("commit strategy/a.md , \"strategy/b, c: d.md\":\nfirst\n\nsecond"),
        (
            root.clone(),
            vec!["a.md".to_owned(), "b, c: d.md".to_owned()],
            "first\n\nsecond".to_owned()
        )
    );
    assert_eq!(commit("commit strategy/a.md:"), (root, one("a.md"), String::new()));
    let mixed = read("commit strategy/a.md, other/b.md: x", &offer());
    assert_eq!(mixed, Err("A commit takes files of one root.".to_owned()));
}

#[test]
fn what_is_missing_is_named_with_the_phrase() {
    for (message, wanted) in [
        ("read strategy", "a file in a root"),
        ("write strategy: x", "a file in a root"),
        ("commit strategy: x", "a file in a root"),
        ("list  ", "I need PLACE for that: list PLACE"),
        ("pull strategy/docs", "a whole root"),
        ("reserve X in strategy: x", "I need KIND for that"),
    ] {
        let text = read(message, &offer()).expect_err(message);
        assert!(text.contains(wanted), "{message}: {text}");
    }
}

#[test]
fn an_unknown_sentence_is_answered_with_what_it_can_do() {
    for message in ["", "please do something", "listroots", "commit", "git push --force", "ünïcödé"]
    {
        let text = read(message, &offer()).expect_err(message);
        assert!(text.contains("git status of PLACE"), "{message}: {text}");
    }
}

#[test]
fn the_help_lists_exactly_what_is_offered_and_each_form_is_understood() {
    let mut few = offer();
    few.tools = vec![ToolName::ListRoots, ToolName::GitLog];
    let text = help(&few);
    for phrase in PHRASES {
        let listed = text.contains(&format!("  {} ", phrase.form));
        let offered = phrase.tool.is_none_or(|tool| few.tools.contains(&tool));
        assert_eq!(listed, offered, "{}", phrase.form);
    }
    for phrase in PHRASES {
        let mut message = phrase.form.to_owned();
        for (slot, value) in [
            ("FILES", "strategy/a.md"),
            ("FILE", "strategy/a.md"),
            ("PLACE", "strategy"),
            ("ROOT", "strategy"),
            ("KIND", "DEC"),
        ] {
            message = message.replace(slot, value);
        }
        let understood = read(&message, &offer());
        assert!(understood.is_ok(), "{message}: {understood:?}");
    }
}

#[test]
fn a_form_is_cut_into_words_and_slots() {
    let slot = |name, quoted| Part::Slot { name, quoted };
    assert_eq!(
        parts("replace \"OLD\" with \"NEW\" in FILE"),
        [
            Part::Words("replace "),
            slot("OLD", true),
            Part::Words(" with "),
            slot("NEW", true),
            Part::Words(" in "),
            slot("FILE", false)
        ]
    );
}

#[test]
fn looking_for_words_never_splits_a_character() {
    assert_eq!(find_ignoring_case("éé In x", " in "), Some(4));
    assert_eq!(find_ignoring_case("é", "in"), None);
    assert_eq!(find_ignoring_case("", "in"), None);
}
