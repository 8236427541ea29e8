//! The pi engine with a pi that behaves badly (L4): it is played by a script that runs in pi's place,
//! under the same launcher and confinement.

use std::future::pending;
use std::path::Path;
use std::time::Duration;

use connector::engine::Engine as _;
use connector::engine::context::Context;
use connector::engine::pi::{Pi, PiConfig};
use connector::record::Usage;
use harness::pi::{self, Home, KEY, Tools, answered, give_up_when, turn};
use protocol::refusal::{Code, Fault, Outcome, Refusal};
use protocol::reply::{Reply, Roots};
use protocol::tool::{ToolCall, ToolName};
use protocol::turn::Origin;
use serde_json::{Value, json};

fn roots() -> Outcome {
    Outcome::Reply(Reply::Roots(Roots { roots: Vec::new() }))
}

/// Why a turn failed.
async fn failed(engine: &mut Pi, tools: &mut Tools, text: &str) -> String {
    turn(engine, tools, text).await.expect_err(text).to_string()
}

#[tokio::test]
async fn a_turn_is_answered_and_says_what_the_model_used() {
    let home = Home::new();
    let (mut engine, mut tools) = (home.engine(home.fake()), Tools::none());
    let answer = turn(&mut engine, &mut tools, "say hello there").await.expect("an answer");
    assert_eq!(answer.text, "hello there");
    assert_eq!(answer.usage, Some(Usage { input_tokens: 10, output_tokens: 2 }));
    let envelope = answered(&mut engine, &mut tools, "envelope").await;
    assert!(envelope.starts_with("channel: \"terminal\"\n"), "{envelope}");
    assert!(envelope.ends_with("\n\nenvelope"), "{envelope}");
    assert_eq!(tools.seen(), [""; 0]);
}

#[tokio::test]
async fn a_line_that_is_no_message_fails_the_turn_and_not_pi() {
    let home = Home::new();
    let (mut engine, mut tools) = (home.engine(home.fake()), Tools::none());
    let pid = answered(&mut engine, &mut tools, "pid").await;
    for (word, why) in [
        ("malformed", "is not of the protocol"),
        ("null", "is not of the protocol"),
        ("endless", "is too long"),
        ("garbled", "the extension's line is no message"),
    ] {
        let reason = failed(&mut engine, &mut tools, word).await;
        assert_eq!(reason, format!("pi said what cannot be read: {why}"), "{word}");
        assert_eq!(answered(&mut engine, &mut tools, "pid").await, pid, "{word}");
    }
}

#[tokio::test]
async fn nine_megabytes_in_one_line_are_read() {
    let home = Home::new();
    let (mut engine, mut tools) = (home.engine(home.fake()), Tools::none());
    let text = answered(&mut engine, &mut tools, "nine-megabytes").await;
    assert_eq!(text, "after nine megabytes");
    let text = answered(&mut engine, &mut tools, "nine-megabyte-answer").await;
    assert!(text.len() == 9 << 20 && text.bytes().all(|byte| byte == b'y'));
}

#[tokio::test]
async fn what_is_not_asked_for_and_what_is_not_known_is_passed_over() {
    let home = Home::new();
    let (mut engine, mut tools) = (home.engine(home.fake()), Tools::none());
    assert_eq!(answered(&mut engine, &mut tools, "odd").await, "after odd lines");
    assert_eq!(answered(&mut engine, &mut tools, "retried").await, "after a retry");
}

#[tokio::test]
async fn a_turn_that_never_settles_is_given_up_and_the_next_one_is_answered() {
    let home = Home::new();
    let (mut engine, mut tools) = (home.engine(home.fake()), Tools::none());
    let pid = answered(&mut engine, &mut tools, "pid").await;
    give_up_when(&mut engine, &mut tools, "unsettled", || home.mark() == "unsettled").await;
    assert_eq!(answered(&mut engine, &mut tools, "pid").await, pid);
}

#[tokio::test]
async fn what_an_abandoned_turn_says_late_is_no_answer_to_the_next_one() {
    let home = Home::new();
    let (mut engine, mut tools) = (home.engine(home.fake()), Tools::none());
    give_up_when(&mut engine, &mut tools, "late", || home.mark() == "late").await;
    assert_eq!(answered(&mut engine, &mut tools, "say mine").await, "mine");
}

#[tokio::test]
async fn a_pi_that_answers_nothing_any_more_is_replaced() {
    let home = Home::new();
    let mut tools = Tools::none();
    let mut engine = home.engine(home.fake());
    let pid = answered(&mut engine, &mut tools, "pid").await;
    give_up_when(&mut engine, &mut tools, "deaf", || home.mark() == "deaf").await;
    engine = engine.with_patience(Duration::from_secs(15));
    assert_ne!(answered(&mut engine, &mut tools, "pid").await, pid);
    assert!(!Path::new("/proc").join(&pid).exists(), "the deaf one is gone");
}

#[tokio::test]
async fn a_crash_fails_its_turn_and_the_next_one_works() {
    let home = Home::new();
    let (mut engine, mut tools) = (home.engine(home.fake()), Tools::none());
    let reason = failed(&mut engine, &mut tools, "crash").await;
    assert!(reason.starts_with("pi crashed: it ended (exit status: 3) and said: "), "{reason}");
    assert!(reason.contains("Error: it crashed on purpose"), "{reason}");
    assert_eq!(answered(&mut engine, &mut tools, "say again").await, "again");
}

#[tokio::test]
async fn a_crash_between_turns_fails_none() {
    let home = Home::new();
    let (mut engine, mut tools) = (home.engine(home.fake()), Tools::none());
    let text = answered(&mut engine, &mut tools, "crash-later").await;
    assert_eq!(text, "before the crash");
    for _ in 0..3 {
        let pid = answered(&mut engine, &mut tools, "pid").await;
        let pid = nix::unistd::Pid::from_raw(pid.parse().expect("a pid"));
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).expect("it is ours");
    }
    assert_eq!(answered(&mut engine, &mut tools, "say still here").await, "still here");
}

#[tokio::test]
async fn a_turn_without_an_answer_says_why_and_never_the_key() {
    let home = Home::new();
    let (mut engine, mut tools) = (home.engine(home.fake()), Tools::none());
    let reason = failed(&mut engine, &mut tools, "silent").await;
    assert_eq!(reason, "pi ended the turn without a message");
    let reason = failed(&mut engine, &mut tools, "error").await;
    assert_eq!(reason, "pi has no answer: 401: no such key [key]");
    let reason = failed(&mut engine, &mut tools, "refuse").await;
    assert_eq!(reason, "pi did not take the message: Agent is already processing.");
    assert_eq!(answered(&mut engine, &mut tools, "say fit").await, "fit");
}

#[tokio::test]
async fn a_refusal_and_a_fault_are_errors_to_the_model_and_a_reply_is_none() {
    let home = Home::new();
    let mut engine = home.engine(home.fake());
    let mut tools = Tools::new(|call| async move {
        match call {
            ToolCall::ListRoots(_) => roots(),
            ToolCall::GitPush(_) => Outcome::Fault(Fault::new("the disk is gone")),
            _ => Outcome::Refusal(Refusal::new(Code::NotFound, "Nothing there.", "Look first.")),
        }
    });
    for (call, told) in [
        (json!(["list_roots", {}]), json!([false, "{\"roots\":[]}"])),
        (
            json!(["git_push", {"root": "r"}]),
            json!([true, "{\"fault\":{\"message\":\"the disk is gone\"}}"]),
        ),
        (
            json!(["read_file", {"root": "r", "path": "p"}]),
            json!([
                true,
                "{\"refusal\":{\"code\":\"not_found\",\"hint\":\"Look first.\",\"message\":\"Nothing there.\"}}"
            ]),
        ),
    ] {
        let text = answered(&mut engine, &mut tools, &format!("call {call}")).await;
        assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON"), told, "{call}");
    }
    for (call, code) in [
        (json!(["bash", {"command": "id"}]), "not_offered"),
        (json!(["git_push", {"root": "r", "force": true}]), "invalid_arguments"),
    ] {
        let text = answered(&mut engine, &mut tools, &format!("call {call}")).await;
        assert!(text.starts_with("[true,") && text.contains(code), "{text}");
    }
    assert_eq!(tools.seen(), ["list_roots", "git_push", "read_file"]);
}

#[tokio::test]
async fn a_call_that_comes_twice_under_one_id_is_done_once() {
    let home = Home::new();
    let mut engine = home.engine(home.fake());
    let mut tools = Tools::new(|_| async { roots() });
    let text = answered(&mut engine, &mut tools, "call-twice-by-one-id").await;
    assert_eq!(text, "2 results");
    assert_eq!(tools.seen(), ["list_roots", "list_roots"], "the second is the other id's");
}

#[tokio::test]
async fn calls_at_once_are_done_one_after_the_other_and_each_gets_its_own_answer() {
    let home = Home::new();
    let mut engine = home.engine(home.fake());
    let mut tools = Tools::new(|call| async move {
        tokio::task::yield_now().await;
        let path = call.arguments()["path"].as_str().unwrap_or_default().to_owned();
        Outcome::Fault(Fault::new(path))
    });
    let text = answered(&mut engine, &mut tools, "call-three-at-once").await;
    let fault = |path| format!("{{\"fault\":{{\"message\":\"{path}\"}}}}");
    assert_eq!(text, [fault("a"), fault("b"), fault("c")].join(" "));
    assert_eq!(tools.seen(), ["read_file"; 3]);
}

#[tokio::test]
async fn a_call_that_pi_takes_back_is_given_up() {
    let home = Home::new();
    let mut engine = home.engine(home.fake());
    let begun = home.data().join("pi/agent/begun");
    let mut tools = Tools::new(move |call| {
        let begun = begun.clone();
        async move {
            if matches!(call, ToolCall::ListRoots(_)) {
                std::fs::write(&begun, "").expect("written");
                pending::<()>().await;
            }
            roots()
        }
    });
    let text = answered(&mut engine, &mut tools, "call-and-take-back").await;
    assert_eq!(text, "taken back");
    assert_eq!(tools.seen(), ["list_roots", "(dropped)", "git_status"]);
}

#[tokio::test]
async fn a_turn_that_is_given_up_gives_up_its_call() {
    let home = Home::new();
    let mut engine = home.engine(home.fake());
    let mut tools = Tools::new(|_| async {
        pending::<()>().await;
        roots()
    });
    let watched = tools.clone();
    let call = format!("call {}", json!(["list_roots", {}]));
    give_up_when(&mut engine, &mut tools, &call, || !watched.seen().is_empty()).await;
    assert_eq!(tools.seen(), ["list_roots", "(dropped)"]);
    assert_eq!(answered(&mut engine, &mut tools, "say fit").await, "fit");
}

#[tokio::test]
async fn no_call_is_done_outside_the_turn_that_it_belongs_to() {
    let home = Home::new();
    let (mut engine, mut tools) = (home.engine(home.fake()), Tools::new(|_| async { roots() }));
    assert_eq!(answered(&mut engine, &mut tools, "call-after-the-end").await, "over");
    assert_eq!(answered(&mut engine, &mut tools, "say next").await, "next");
    let stopped = "call-when-stopped";
    give_up_when(&mut engine, &mut tools, stopped, || home.mark() == stopped).await;
    assert_eq!(answered(&mut engine, &mut tools, "say next").await, "next");
    assert_eq!(tools.seen(), [""; 0]);
    // The same call within a turn is done.
    let call = format!("call {}", json!(["git_push", {"root": "strategy"}]));
    answered(&mut engine, &mut tools, &call).await;
    assert_eq!(tools.seen(), ["git_push"]);
}

#[tokio::test]
async fn pi_gets_exactly_its_environment_and_no_argument_holds_the_key() {
    let home = Home::new();
    let (mut engine, mut tools) = (home.engine(home.fake()), Tools::none());
    let text = answered(&mut engine, &mut tools, "environment").await;
    let (args, env): (Vec<String>, serde_json::Map<String, Value>) =
        serde_json::from_str(&text).expect("arguments and environment");
    assert!(args.iter().all(|arg| !arg.contains(KEY)), "{args:?}");
    assert_eq!(env["SAGE_MODEL_KEY"], KEY);
    let names: Vec<&str> = env.keys().map(String::as_str).collect();
    let expected = [
        "HOME",
        "LANG",
        "NODE_DISABLE_COMPILE_CACHE",
        "OPENSSL_CONF",
        "PI_CODING_AGENT_DIR",
        "PI_OFFLINE",
        "PI_SKIP_VERSION_CHECK",
        "PI_TELEMETRY",
        "RES_OPTIONS",
        "SAGE_MODEL_KEY",
        "SAGE_SOCKET",
        "SAGE_TOOLS",
        "TMPDIR",
        "TZ",
        "UV_USE_IO_URING",
    ];
    let mut names = names;
    names.sort_unstable();
    assert_eq!(names, expected);
    for file in ["given/system.md", "given/tools.json", "agent/models.json", "agent/settings.json"]
    {
        let text = std::fs::read_to_string(home.data().join("pi").join(file)).expect("written");
        assert!(!text.contains(KEY), "{file}");
    }
}

#[tokio::test]
async fn other_tools_start_another_pi_and_the_same_ones_do_not() {
    let home = Home::new();
    let (mut engine, mut tools) = (home.engine(home.fake()), Tools::none());
    let first = answered(&mut engine, &mut tools, "pid").await;
    assert_eq!(answered(&mut engine, &mut tools, "pid").await, first);
    let fewer = pi::prompt_with("pid", vec![ToolName::ListRoots]);
    let other = engine.run_turn(&fewer, &mut tools).await.expect("an answer").text;
    assert_ne!(other, first);
    let given = std::fs::read_to_string(home.data().join("pi/given/tools.json")).expect("written");
    let given: Value = serde_json::from_str(&given).expect("JSON");
    assert_eq!(given.as_array().map(Vec::len), Some(1));
    assert_eq!(given[0]["name"], "list_roots");
}

#[tokio::test]
async fn a_probe_says_whether_pi_comes_up_and_leaves_the_conversation_alone() {
    let home = Home::new();
    let (mut engine, mut tools) = (home.engine(home.fake()), Tools::none());
    let pid = answered(&mut engine, &mut tools, "pid").await;
    let found = engine.probe().await;
    assert_eq!(found.as_deref(), Ok("pi comes up, confined, with m1"));
    assert_eq!(answered(&mut engine, &mut tools, "pid").await, pid);
    std::fs::write(home.path("fake/cli.mjs"), "throw new Error('a bad pi');").expect("written");
    let found = engine.probe().await.expect_err("it is bad");
    assert!(found.contains("Error: a bad pi"), "{found}");
}

#[tokio::test]
async fn what_pi_may_reach_beside_the_folder_of_the_binding_is_known_before_it_starts() {
    let home = Home::new();
    let grants = home.engine(home.fake()).child_grants().expect("node is there");
    assert!(grants.files.iter().any(|grant| grant.path == pi::node()), "{grants:?}");
    assert!(grants.files.iter().all(|grant| !grant.path.starts_with(home.data())), "{grants:?}");
    assert_eq!(grants.connect_ports, [1, 53]);
}

#[tokio::test]
async fn each_transport_has_a_conversation_of_its_own() {
    let home = Home::new();
    let (mut engine, mut tools) = (home.engine(home.fake()), Tools::none());
    let mut prompt = pi::prompt("environment");
    let mut folders = Vec::new();
    for origin in [Origin::Terminal, Origin::Discord] {
        prompt.origin = origin;
        let text = engine.run_turn(&prompt, &mut tools).await.expect("an answer").text;
        let (args, _): (Vec<String>, Value) = serde_json::from_str(&text).expect("arguments");
        let at = args.iter().position(|arg| arg == "--session-dir").expect("it is told");
        folders.push(args[at + 1].clone());
    }
    let folder = |name| home.data().join("pi/sessions").join(name).display().to_string();
    assert_eq!(folders, [folder("terminal"), folder("discord")]);
}

#[tokio::test]
async fn no_pi_outlives_its_engine() {
    let home = Home::new();
    let (mut engine, mut tools) = (home.engine(home.fake()), Tools::none());
    let pid = answered(&mut engine, &mut tools, "pid").await;
    assert_eq!(engine.process().map(|pid| pid.to_string()), Some(pid.clone()));
    assert!(Path::new("/proc").join(&pid).exists());
    drop(engine);
    assert!(!Path::new("/proc").join(&pid).exists());
}

#[tokio::test]
async fn a_pi_that_cannot_start_says_why_at_once() {
    let home = Home::new();
    let mut tools = Tools::none();
    std::fs::write(home.path("fake/cli.mjs"), "throw new Error('a bad pi');").expect("written");
    // Longer than a turn of these tests may take, so that waiting for it would fail.
    let mut engine = home.engine(home.fake()).with_patience(Duration::from_secs(3600));
    let reason = failed(&mut engine, &mut tools, "say x").await;
    assert!(reason.starts_with("pi did not start: it ended (exit status: 1)"), "{reason}");
    assert!(reason.contains("Error: a bad pi"), "{reason}");
}

#[test]
fn what_pi_needs_and_what_it_must_not_see_is_checked_before_the_first_turn() {
    let home = Home::new();
    let refused = |change: Value| {
        let mut section = home.fake();
        let Value::Object(change) = change else { unreachable!("it is an object") };
        section.as_object_mut().expect("an object").extend(change);
        let config: PiConfig = serde_json::from_value(section).expect("a section");
        Pi::new(&config, Context::default(), &home.data()).err().map(|error| error.to_string())
    };
    assert_eq!(refused(json!({})), None);
    let says = |change: Value, what: &str| {
        let text = refused(change.clone()).unwrap_or_else(|| panic!("{change} is accepted"));
        assert!(text.contains(what), "{change}: {text}");
    };
    says(json!({"node": "/nonexistent/node"}), "change `engine.pi.node`");
    says(json!({"cli": home.path("fake/none.js")}), "change `engine.pi.cli`");
    says(json!({"install": home.path("")}), "lies around the data folder");
    let open = home.path("open.key");
    std::fs::write(&open, KEY).expect("written");
    let readable = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(&open, readable).expect("a mode");
    says(json!({"keyFile": open}), "chmod 600");
}
