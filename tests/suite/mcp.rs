//! `sage-executor mcp` (M3), by a client that nobody here wrote: the official Python SDK, in both of
//! its ways to begin (the handshake, and the protocol of 2026-07-28 that has none).

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use harness::programs::program;
use harness::web::server::{Server, answer};
use harness::world::World;
use protocol::tool::ToolName;
use serde_json::{Value, json};

use crate::check;

const MODES: [&str; 2] = ["legacy", "auto"];

/// The python that has the SDK; `tests/mcp/install` puts it there.
fn python() -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache");
    let install = std::fs::read_to_string("mcp/install").expect("tests run in their own folder");
    let version =
        install.lines().find_map(|line| line.strip_prefix("version=")).expect("a version");
    let folder = cache.unwrap_or_else(home).join(format!("sage-tests/mcp-{version}"));
    assert!(
        folder.join("complete").is_file(),
        "the MCP client is not there; install it with `tests/mcp/install`"
    );
    folder.join("bin/python")
}

/// Plays a conversation; what came of it.
fn play(world: &World, mode: &str, elicit: Value, steps: Value) -> Value {
    end(begin(world, mode, &elicit, &steps))
}

fn begin(world: &World, mode: &str, elicit: &Value, steps: &Value) -> Child {
    let server =
        json!([program("sage-executor"), "mcp", "--socket", world.socket(), "--as", "Owner",]);
    let script =
        json!({"server": server, "mode": mode, "elicit": elicit, "roots": true, "steps": steps});
    let mut child = Command::new(python())
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/mcp/client.py"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("python starts");
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin.write_all(script.to_string().as_bytes()).expect("it reads");
    child
}

fn end(child: Child) -> Value {
    let output = child.wait_with_output().expect("it ends");
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{err}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {err}"))
}

fn call(name: &str, arguments: Value) -> Value {
    json!({"call": name, "args": arguments})
}

#[test]
fn a_real_client_shakes_hands_and_lists_exactly_what_is_offered() {
    let world = World::builder().notes().build();
    for (mode, version) in [("legacy", "2025-11-25"), ("auto", "2026-07-28")] {
        let said = play(&world, mode, Value::Null, json!([{"list": true}]));
        assert_eq!(
            (said["version"].as_str(), said["server"].as_str()),
            (Some(version), Some("sage-executor"))
        );
        let instructions = said["instructions"].as_str().expect("there are some");
        assert!(instructions.contains("strategy, notes") && instructions.contains("untrusted"));
        let tools = said["results"][0].as_array().expect("a list");
        let listed: BTreeSet<&str> =
            tools.iter().filter_map(|tool| tool["name"].as_str()).collect();
        let offered: BTreeSet<&str> =
            world.describe().tools.iter().map(|tool| tool.as_str()).collect();
        assert_eq!(listed, offered);
        for tool in tools {
            let read_only = tool["annotations"]["readOnlyHint"].as_bool().expect("a hint");
            let name = ToolName::parse(tool["name"].as_str().expect("a name")).expect("a tool");
            assert_eq!(read_only, !policy::authority::writes(name), "{name}");
            assert!(tool["outputSchema"]["anyOf"].is_array(), "{name}");
        }
        assert_eq!(said["rootsAsked"], 0, "a client's folders are no business of ours");
    }
}

/// One call of each tool that a plain world offers, in an order in which each can be done. The client
/// checks each answer by the tool's output schema.
fn every_tool() -> Vec<(&'static str, Value)> {
    let root = |more: Value| {
        let mut all = json!({"root": "strategy"});
        for (key, value) in more.as_object().expect("an object") {
            all[key] = value.clone();
        }
        all
    };
    vec![
        ("list_roots", json!({})),
        ("list_files", root(json!({}))),
        ("read_file", root(json!({"path": "README.md"}))),
        ("search_files", root(json!({"pattern": "One"}))),
        ("write_file", root(json!({"path": "a.md", "text": "long\n".repeat(200)}))),
        (
            "edit_file",
            root(json!({"path": "plans/two.md", "old": "Two", "new": "Two\n".repeat(400)})),
        ),
        ("git_status", root(json!({}))),
        ("git_diff", root(json!({"maxBytes": 1024}))),
        ("read_output", json!({"handle": "output-1", "offset": 1024})),
        ("git_log", root(json!({}))),
        ("git_show", root(json!({"rev": "HEAD"}))),
        ("git_branches", root(json!({}))),
        ("git_commit", root(json!({"message": "Two files", "paths": ["a.md", "plans/two.md"]}))),
        ("git_pull", root(json!({}))),
        ("git_push", root(json!({}))),
    ]
}

#[test]
fn every_tool_is_called_by_a_real_client_which_checks_the_answers_schema() {
    for mode in MODES {
        let world = World::builder().review().build();
        let calls = every_tool();
        let mut called: BTreeSet<&str> = calls.iter().map(|(name, _)| *name).collect();
        // The client knows no output schema that it has not listed.
        let mut steps = vec![json!({"list": true})];
        steps.extend(calls.iter().map(|(name, arguments)| call(name, arguments.clone())));
        let said = play(&world, mode, Value::Null, json!(steps));
        let results = said["results"].as_array().expect("a list");
        for ((name, _), result) in calls.iter().zip(&results[1..]) {
            assert_ne!(result["isError"], true, "{mode} {name}: {result}");
            assert!(result["structuredContent"].is_object(), "{mode} {name}: {result}");
            let text = result["content"][0]["text"].as_str().expect("text for older clients");
            assert_eq!(
                serde_json::from_str::<Value>(text).ok(),
                Some(result["structuredContent"].clone())
            );
        }
        assert_eq!(world.remote_head(), world.clone_dir().head());
        // These need a root with the record protocol, and the web; see below.
        called.extend(["reserve_id", "web_fetch", "web_search"]);
        let all: BTreeSet<&str> = ToolName::ALL.iter().map(|tool| tool.as_str()).collect();
        assert_eq!(called, all);
        check::sound(&world);
    }
}

#[test]
fn an_id_is_reserved_by_a_real_client() {
    let world = crate::vault::world();
    let step =
        call("reserve_id", json!({"root": "strategy", "prefix": "DEC", "title": "Pick a name"}));
    let said = play(&world, "auto", Value::Null, json!([{"list": true}, step]));
    let id = said["results"][1]["structuredContent"]["id"].as_str().unwrap_or_default();
    assert!(id.starts_with("DEC-"), "{said}");
}

#[test]
fn the_web_is_searched_by_a_real_client_and_what_is_not_public_is_refused_to_it() {
    let instance = Server::start(None, |_| {
        let hit = json!({"url": "https://a.example/", "title": "A", "content": "about pears"});
        answer(200, "Content-Type: application/json\r\n", json!({"results": [hit]}).to_string())
    });
    let base = format!("http://{}", instance.address());
    let world = World::builder().web(json!({"searxng": base})).build();
    let steps = json!([
        {"list": true},
        call("web_search", json!({"query": "pears"})),
        call("web_fetch", json!({"url": "https://127.0.0.1/"})),
    ]);
    for mode in MODES {
        let said = play(&world, mode, Value::Null, steps.clone());
        let [_, found, refused] = said["results"].as_array().expect("a list").as_slice() else {
            panic!("{said}")
        };
        assert_ne!(found["isError"], true, "{found}");
        let hit = &found["structuredContent"]["untrustedResults"][0];
        assert_eq!(hit["url"], "https://a.example/", "{found}");
        assert_eq!(refused["isError"], true);
        assert_eq!(refused["structuredContent"]["refusal"]["code"], "address_refused");
    }
}

#[test]
fn a_refusal_is_a_tool_error_that_says_by_which_rule_and_what_to_do() {
    let world = World::new_plain();
    let steps = json!([
        {"list": true},
        call("read_file", json!({"root": "strategy", "path": ".git/config"})),
        call("git_push", json!({"root": "strategy", "force": true})),
        call("shell", json!({"command": "id"})),
    ]);
    for mode in MODES {
        let said = play(&world, mode, Value::Null, steps.clone());
        let [_, hidden, forced, shell] = said["results"].as_array().expect("a list").as_slice()
        else {
            panic!("{said}")
        };
        for (result, code) in [(hidden, "invalid_path"), (forced, "invalid_arguments")] {
            assert_eq!(result["isError"], true);
            let refusal = &result["structuredContent"]["refusal"];
            assert_eq!(refusal["code"], code);
            for part in ["message", "hint"] {
                assert!(refusal[part].as_str().is_some_and(|text| !text.is_empty()), "{refusal}");
            }
        }
        assert!(shell["error"].as_str().is_some_and(|said| said.contains("shell")), "{shell}");
    }
}

fn commit() -> Value {
    call("git_commit", json!({"root": "strategy", "message": "One", "paths": ["plans/one.md"]}))
}

#[test]
fn approval_is_asked_by_elicitation_and_only_acceptance_commits() {
    for mode in MODES {
        let world = World::builder().approval().build();
        world.clone_dir().write("plans/one.md", "changed\n");
        let head = world.clone_dir().head();
        let said = play(&world, mode, json!("decline"), json!([{"list": true}, commit()]));
        assert_eq!(
            said["results"][1]["structuredContent"]["refusal"]["code"], "approval_needed",
            "{said}"
        );
        assert_eq!(world.clone_dir().head(), head, "{mode}");
        let said = play(&world, mode, json!("accept"), json!([{"list": true}, commit()]));
        let asked = said["asked"][0].as_str().expect("somebody was asked");
        assert!(asked.contains("plans/one.md (+1/−5)") && asked.contains("for Owner"), "{asked}");
        let done = &said["results"][1]["structuredContent"];
        assert_eq!(done["hash"], world.clone_dir().head(), "{said}");
        assert_ne!(world.clone_dir().head(), head);
    }
}

#[test]
fn a_client_that_cannot_ask_is_told_how_the_requester_approves() {
    let world = World::builder().approval().build();
    world.clone_dir().write("plans/one.md", "changed\n");
    for mode in MODES {
        let said = play(&world, mode, Value::Null, json!([{"list": true}, commit()]));
        let refusal = &said["results"][1]["structuredContent"]["refusal"];
        assert_eq!(refusal["code"], "approval_needed", "{said}");
        let hint = refusal["hint"].as_str().expect("a hint");
        let (_, flags) = hint.split_once("with --turn ").expect("how");
        let words: Vec<&str> = flags.trim_end_matches('.').split_whitespace().collect();
        if mode == "auto" {
            let socket = world.socket().display().to_string();
            let said = harness::cli::Run::executor(
                [
                    "call",
                    "git_commit",
                    "--root",
                    "strategy",
                    "--message",
                    "One",
                    "--paths",
                    "plans/one.md",
                ]
                .into_iter()
                .chain(["--as", "Owner", "--socket", &socket, "--turn"])
                .chain(words.iter().copied()),
            )
            .piped();
            assert_eq!(said.code, 0, "{said:?}");
        }
    }
    check::sound(&world);
}

#[test]
fn a_call_that_the_client_cancels_is_stopped() {
    for mode in MODES {
        let forever = "import time\nwhile True:\n    time.sleep(1)\n";
        let world = crate::vault::world_with(Some(("tools/validate_vault.py", forever)));
        world.clone_dir().write("README.md", "changed\n");
        let head = world.clone_dir().head();
        let mut step = call(
            "git_commit",
            json!({"root": "strategy", "message": "One", "paths": ["README.md"]}),
        );
        step["cancelWhen"] = json!([world.audit(), "git_commit"]);
        let after = call("git_status", json!({"root": "strategy"}));
        let said = play(&world, mode, Value::Null, json!([step, after]));
        assert_eq!(said["results"][0]["cancelled"], true);
        assert_ne!(said["results"][1]["isError"], true, "{said}");
        let until = Instant::now() + Duration::from_secs(50);
        let ended =
            || world.audit_lines().iter().any(|line| line.to_string().contains("\"cancelled\""));
        while !ended() {
            assert!(Instant::now() < until, "{mode}: {:#?}", world.audit_lines());
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(world.clone_dir().head(), head);
    }
}

#[test]
fn a_session_outlives_its_turns() {
    let world = World::builder().limit("maxCallsPerTurn", 3).build();
    let steps: Vec<Value> = (0..8).map(|_| call("list_roots", json!({}))).collect();
    let said = play(&world, "auto", Value::Null, json!(steps));
    for result in said["results"].as_array().expect("a list") {
        assert_ne!(result["isError"], true, "{said}");
    }
}

#[test]
fn a_session_outlives_the_executor() {
    let mut world = World::new_plain();
    let pause = world.base().join("pause");
    let roots = || call("list_roots", json!({}));
    let steps = json!([roots(), {"pause": pause}, roots()]);
    let conversation = begin(&world, "auto", &Value::Null, &steps);
    let until = Instant::now() + Duration::from_secs(60);
    while !pause.exists() {
        assert!(Instant::now() < until, "the client has not come so far");
        std::thread::sleep(Duration::from_millis(20));
    }
    world.restart();
    std::fs::remove_file(&pause).expect("it is there");
    let said = end(conversation);
    for step in [0, 2] {
        assert_ne!(said["results"][step]["isError"], true, "{said}");
    }
}

#[test]
fn nothing_but_the_protocol_is_on_standard_output_and_the_end_of_the_input_is_the_end() {
    let world = World::new_plain();
    let socket = world.socket().display().to_string();
    let hello = json!({
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}}
    });
    let run = |input: &str| {
        harness::cli::Run::executor(["mcp", "--socket", &socket]).input(input).piped()
    };
    let said = run(&format!("{hello}\n"));
    assert_eq!((said.code, said.err.as_str()), (0, ""), "{said:?}");
    let answers: Vec<Value> = said
        .out
        .lines()
        .map(|line| serde_json::from_str(line).expect("each line is JSON"))
        .collect();
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0]["result"]["protocolVersion"], "2025-06-18");
    assert_eq!(run("").code, 0);
    let gone = harness::cli::Run::executor(["mcp", "--socket", "/nonexistent/sock"]).piped();
    assert!(
        gone.code == 5 && gone.out.is_empty() && gone.err.contains("is sage-executor running?"),
        "{gone:?}"
    );
}
