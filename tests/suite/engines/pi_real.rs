//! The pi engine with the real pi and a scripted model, through the real processes (L1, L4).

use std::path::Path;
use std::time::{Duration, Instant};

use connector::engine::openai::parameters;
use harness::calls::ROOT;
use harness::chat::{Chat, Told, binding};
use harness::model::{ModelServer, Reply};
use harness::pi::{self, Home, KEY};
use harness::world::World;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

/// How long something may take that must happen before a test says that it hangs.
const PATIENCE: Duration = Duration::from_secs(120);

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn start(world: &World, model: &ModelServer) -> Chat {
    Chat::start(world, pi::section(world, model.port()))
}

/// The last line of an answer: why an earlier turn failed may stand before it.
fn answered(told: &Told) -> &str {
    assert_eq!(told.state(), "answered", "{}", told.reason());
    told.text.lines().last().unwrap_or_default()
}

/// The pi of a chat.
fn pi_of(chat: &Chat) -> i32 {
    let pid = chat.pid();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.expect("it lives");
    children.trim().parse().unwrap_or_else(|_| panic!("one child: {children:?}"))
}

/// As Ctrl-C does.
fn interrupt(chat: &Chat) {
    let pid = i32::try_from(chat.pid()).expect("a pid");
    kill(Pid::from_raw(pid), Signal::SIGINT).expect("it lives");
}

fn strike(pid: i32) {
    kill(Pid::from_raw(pid), Signal::SIGKILL).expect("it is there");
}

/// What the model was told, as one text.
fn told(model: &ModelServer, request: usize) -> String {
    Value::Array(model.asked()[request].messages().to_vec()).to_string()
}

#[test]
fn the_model_is_offered_exactly_what_describe_lists_and_told_the_system_prompt() {
    let world = World::builder().notes().build();
    let model = ModelServer::start([Reply::say("Hello.")]);
    let mut chat = start(&world, &model);
    let turn = chat.say("Who are you?");
    assert_eq!(answered(&turn), "Hello.");
    assert_eq!(turn.record["usage"], json!({"inputTokens": 100, "outputTokens": 10}));
    model.assert_played();
    let asked = model.asked();
    let offered = asked[0].body["tools"].as_array().expect("tools are offered").clone();
    let described = world.describe().tools;
    assert_eq!(offered.len(), described.len());
    for tool in described {
        let function = offered.iter().find(|one| one["function"]["name"] == tool.as_str());
        let function = &function.unwrap_or_else(|| panic!("{tool} is not offered"))["function"];
        assert_eq!(function["description"], tool.description(), "{tool}");
        assert_eq!(function["parameters"], parameters(tool), "{tool}");
    }
    assert_eq!(asked[0].authorization.as_deref(), Some(format!("Bearer {KEY}").as_str()));
    let system = asked[0].system();
    assert!(system.starts_with("You are Sage."), "{system}");
    assert!(system.contains("untrusted"), "{system}");
    let envelope = told(&model, 0);
    assert!(envelope.contains("requester: \\\"Owner\\\""), "{envelope}");
    assert!(envelope.contains("Who are you?"), "{envelope}");
}

#[test]
fn the_key_of_the_model_is_in_no_file_and_no_argument() {
    let world = World::new_plain();
    let model =
        ModelServer::start([Reply::say("Hello."), Reply::error(401, &format!("bad key {KEY}"))]);
    let mut chat = start(&world, &model);
    answered(&chat.say("Hello."));
    let failed = chat.say("Hello again.");
    assert_eq!(failed.state(), "failed");
    assert!(failed.reason().contains("401"), "{}", failed.reason());
    let arguments = std::fs::read(format!("/proc/{}/cmdline", pi_of(&chat))).expect("it lives");
    assert!(!String::from_utf8_lossy(&arguments).contains(KEY));
    assert!(!failed.record.to_string().contains(KEY) && !failed.text.contains(KEY));
    // What the endpoint says is pi's conversation, so only that may hold what the endpoint repeats.
    let sessions = chat.folder().join("pi/sessions");
    let mut folders = vec![chat.folder().to_owned()];
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        for entry in
            std::fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("an entry"))
        {
            if entry.file_type().expect("a kind").is_dir() {
                folders.push(entry.path());
            } else if !entry.path().starts_with(&sessions) {
                let text = std::fs::read(entry.path()).expect("a file");
                assert!(!String::from_utf8_lossy(&text).contains(KEY), "{:?}", entry.path());
                seen += 1;
            }
        }
    }
    assert!(seen > 5, "there is something to look at: {seen}");
    assert!(!chat.log().contains(KEY), "{}", chat.log());
}

#[tokio::test]
async fn a_probe_of_the_real_pi_tells_a_provider_that_it_knows_from_one_that_it_does_not() {
    let home = Home::new();
    let section = |provider: &str, endpoint: Value| {
        json!({
            "install": pi::install(),
            "provider": provider,
            "model": "m1",
            "keyFile": home.path("model.key"),
            "endpoint": endpoint,
        })
    };
    let known = section("scripted", json!({"baseUrl": "http://127.0.0.1:1/v1"}));
    let found = home.engine(known).probe().await;
    assert_eq!(found.as_deref(), Ok("pi comes up, confined, with m1"));
    let unknown = home.engine(section("nobody-knows", Value::Null)).probe().await;
    let reason = unknown.expect_err("it is not known");
    assert!(reason.starts_with("pi did not start: it ended (exit status: 1)"), "{reason}");
    assert!(reason.contains("nobody-knows"), "{reason}");
    assert!(!home.data().join("pi").exists(), "the conversation's place is left alone");
}

#[test]
fn a_conversation_goes_on_after_a_restart() {
    let world = World::new_plain();
    let model = ModelServer::start([Reply::say("Noted."), Reply::say("Blue.")]);
    let mut chat = start(&world, &model);
    answered(&chat.say("My colour is blue."));
    assert_eq!(chat.end(), 0);
    let mut chat = start(&world, &model);
    assert_eq!(answered(&chat.say("What is my colour?")), "Blue.");
    let memory = told(&model, 1);
    assert!(memory.contains("My colour is blue.") && memory.contains("Noted."), "{memory}");
    model.assert_played();
}

#[test]
fn a_connector_that_is_killed_leaves_no_pi_and_the_conversation_goes_on() {
    let world = World::new_plain();
    let model = ModelServer::start([Reply::say("Noted."), Reply::silent()]);
    let mut chat = start(&world, &model);
    answered(&chat.say("My colour is blue."));
    let child = pi_of(&chat);
    chat.send("And now?");
    until("the model is asked", || model.asked().len() == 2);
    chat.kill();
    until("pi is gone", || !Path::new("/proc").join(child.to_string()).exists());
    model.add([Reply::say("Blue.")]);
    // The first start writes the record of the turn that was interrupted.
    assert_eq!(start(&world, &model).end(), 0);
    let mut chat = start(&world, &model);
    assert_eq!(answered(&chat.say("What is my colour?")), "Blue.");
    assert!(told(&model, 2).contains("My colour is blue."));
}

#[test]
fn a_pi_that_is_killed_in_a_turn_fails_that_turn_and_the_next_one_goes_on() {
    let world = World::new_plain();
    let model = ModelServer::start([Reply::say("Noted."), Reply::silent()]);
    let mut chat = start(&world, &model);
    answered(&chat.say("My colour is blue."));
    let first = pi_of(&chat);
    chat.send("And now?");
    until("the model is asked", || model.asked().len() == 2);
    strike(first);
    let failed = chat.wait();
    assert_eq!(failed.state(), "failed");
    assert_eq!(failed.reason(), "pi crashed: it ended (signal: 9 (SIGKILL))");
    model.add([Reply::say("Blue.")]);
    assert_eq!(answered(&chat.say("What is my colour?")), "Blue.");
    assert_ne!(pi_of(&chat), first);
    assert!(told(&model, 2).contains("My colour is blue."));
}

#[test]
fn a_turn_that_takes_too_long_is_stopped_and_the_same_pi_takes_the_next_one() {
    let world = World::new_plain();
    let model = ModelServer::start([Reply::say("Hello."), Reply::say("Too").hang_at(40)]);
    let mut bound = binding(&world, pi::section(&world, model.port()));
    bound["limits"] = json!({"turnTimeoutSeconds": 20});
    let mut chat = Chat::start_bound(&world, &bound);
    answered(&chat.say("Hello."));
    let child = pi_of(&chat);
    let late = chat.say("Think long.");
    assert_eq!(late.state(), "timedOut", "{}", late.reason());
    model.add([Reply::say("Here.")]);
    assert_eq!(answered(&chat.say("Are you there?")), "Here.");
    assert_eq!(pi_of(&chat), child);
    // What the model had said of the abandoned answer is not taken for one.
    assert!(!told(&model, 2).contains("Here."));
}

#[test]
fn a_turn_that_the_person_stops_is_stopped_in_the_model_too() {
    let world = World::new_plain();
    let model = ModelServer::start([Reply::say("Never heard").hang_at(40)]);
    let mut chat = start(&world, &model);
    chat.send("Go.");
    until("the model is asked", || model.asked().len() == 1);
    let child = pi_of(&chat);
    interrupt(&chat);
    let stopped = chat.wait();
    assert_eq!(stopped.state(), "aborted", "{}", stopped.reason());
    model.wait_for(|connections| connections.closed >= 1);
    model.add([Reply::say("Here.")]);
    assert_eq!(answered(&chat.say("Are you there?")), "Here.");
    assert_eq!(pi_of(&chat), child);
}

#[test]
fn a_turn_that_is_stopped_in_a_call_stops_pi_too_and_the_next_one_goes_on() {
    let world = World::builder().approval().build();
    let commit = json!({"root": ROOT, "message": "Decide", "paths": ["plans/three.md"]});
    let model = ModelServer::start([
        Reply::call(
            "write_file",
            &json!({"root": ROOT, "path": "plans/three.md", "text": "Go.\n"}),
        ),
        Reply::call("git_commit", &commit),
    ]);
    let mut chat = start(&world, &model);
    let before = world.remote_head();
    chat.send("Decide.");
    // The call is in the hands of the person, who is asked.
    let asked = || std::fs::read_to_string(world.base().join("chat.out")).unwrap_or_default();
    until("the plan is shown", || asked().contains("plans/three.md"));
    let child = pi_of(&chat);
    interrupt(&chat);
    let stopped = chat.wait();
    assert_eq!(stopped.state(), "aborted", "{}", stopped.reason());
    assert_eq!(world.remote_head(), before);
    model.add([Reply::say("It is not committed.")]);
    assert_eq!(answered(&chat.say("Did you commit it?")), "It is not committed.");
    assert_eq!(pi_of(&chat), child);
    // The endpoint refuses a call without a result, so the model was told of one.
    assert!(told(&model, 2).contains("The turn was stopped."), "{}", told(&model, 2));
    model.assert_played();
}

#[test]
fn a_pi_that_is_killed_in_a_call_goes_on_with_a_conversation_that_is_whole() {
    let world = World::builder().approval().build();
    let commit = json!({"root": ROOT, "message": "Decide", "paths": ["plans/three.md"]});
    let model = ModelServer::start([
        Reply::call(
            "write_file",
            &json!({"root": ROOT, "path": "plans/three.md", "text": "Go.\n"}),
        ),
        Reply::call("git_commit", &commit),
    ]);
    let mut chat = start(&world, &model);
    chat.send("Decide.");
    let asked = || std::fs::read_to_string(world.base().join("chat.out")).unwrap_or_default();
    until("the plan is shown", || asked().contains("plans/three.md"));
    strike(pi_of(&chat));
    let failed = chat.wait();
    assert_eq!(failed.state(), "failed");
    assert_eq!(failed.reason(), "pi crashed: it ended (signal: 9 (SIGKILL))");
    model.add([Reply::say("I do not know.")]);
    assert_eq!(answered(&chat.say("Did you commit it?")), "I do not know.");
    model.assert_played();
}

#[test]
fn a_refusal_and_a_wrong_call_are_told_to_the_model_as_errors() {
    let world = World::new_plain();
    let model = ModelServer::start([
        Reply::call("read_file", &json!({"root": ROOT, "path": "none.md"})),
        Reply::call("read_file", &json!({"root": ROOT, "nope": true})),
        Reply::call("bash", &json!({"command": "id"})),
        Reply::say("I cannot."),
    ]);
    let mut chat = start(&world, &model);
    let turn = chat.say("Read it.");
    assert_eq!(answered(&turn), "I cannot.");
    model.assert_played();
    let asked = model.asked();
    let refused: Value = serde_json::from_str(&asked[1].last_text()).expect("JSON");
    assert_eq!(refused["refusal"]["code"], "not_found");
    assert!(asked[2].last_text().contains("Validation failed"), "{}", asked[2].last_text());
    assert!(asked[3].last_text().contains("Tool bash not found"), "{}", asked[3].last_text());
    assert_eq!(turn.calls(), [("read_file".to_owned(), "refusal".to_owned())]);
}

#[test]
fn an_endpoint_that_is_busy_is_asked_again_and_the_last_answer_counts() {
    let world = World::new_plain();
    let model = ModelServer::start([Reply::error(503, "busy"), Reply::say("Here.")]);
    let mut chat = start(&world, &model);
    assert_eq!(answered(&chat.say("Are you there?")), "Here.");
    model.assert_played();
}

#[test]
fn a_model_behind_a_name_is_reached_without_udp() {
    let world = World::new_plain();
    let model = ModelServer::start([Reply::say("Here.")]);
    let mut section = pi::section(&world, model.port());
    section["pi"]["endpoint"]["baseUrl"] = json!(format!("http://localhost:{}/v1", model.port()));
    let mut chat = Chat::start(&world, section);
    assert_eq!(answered(&chat.say("Are you there?")), "Here.");
}

#[test]
fn a_model_on_a_port_that_is_not_granted_is_not_reached() {
    let world = World::new_plain();
    let model = ModelServer::start([Reply::say("Here.")]);
    let mut section = pi::section(&world, model.port());
    section["pi"]["connectPorts"] = json!([443]);
    // Without pi's three tries, which take fourteen seconds.
    let mut bound = binding(&world, section);
    bound["limits"] = json!({"turnTimeoutSeconds": 10});
    let mut chat = Chat::start_bound(&world, &bound);
    let failed = chat.say("Are you there?");
    assert_eq!(failed.state(), "timedOut", "{}", failed.reason());
    assert_eq!((model.asked().len(), model.connections().opened), (0, 0));
}

#[test]
fn what_a_person_writes_is_a_message_to_the_model_and_never_a_command_to_pi() {
    let world = World::new_plain();
    let texts = ["/help", "!touch /tmp/x", "@/etc/passwd", "/quit"];
    let model = ModelServer::start(texts.map(|_| Reply::say("Read.")));
    let mut chat = start(&world, &model);
    for (at, text) in texts.iter().enumerate() {
        assert_eq!(answered(&chat.say(text)), "Read.");
        assert!(told(&model, at).contains(&format!("\\n\\n{text}\"")), "{}", told(&model, at));
    }
    model.assert_played();
}
