//! What a model is given of earlier turns: across restarts, kills and a small context (L3).

use harness::calls::ROOT;
use harness::chat::Chat;
use harness::model::{ModelServer, Reply};
use harness::world::World;
use serde_json::{Value, json};

fn engine(model: &ModelServer) -> Value {
    let section = json!({"baseUrl": model.base_url(), "model": "m1", "contextTokens": 16_000});
    json!({"kind": "openai", "openai": section})
}

fn texts(model: &ModelServer) -> Vec<String> {
    let asked = model.asked().pop().expect("it was asked");
    let text = |message: &Value| message["content"].as_str().unwrap_or_default().to_owned();
    asked.messages().iter().map(text).collect()
}

#[test]
fn the_conversation_goes_on_after_a_restart() {
    let world = World::new_plain();
    let model = ModelServer::start([Reply::say("Noted."), Reply::say("Blue.")]);
    let mut chat = Chat::start(&world, engine(&model));
    chat.say("The colour is blue.");
    assert_eq!(chat.end(), 0);
    let mut chat = Chat::start(&world, engine(&model));
    assert_eq!(chat.say("Which colour?").text.trim(), "Blue.");
    let texts = texts(&model);
    assert_eq!(texts.len(), 4);
    assert!(texts[1].ends_with("The colour is blue.") && texts[2] == "Noted.", "{texts:?}");
    model.assert_played();
}

#[test]
fn after_a_kill_at_any_moment_the_conversation_is_whole_and_knows_of_the_call() {
    let call = Reply::call("write_file", &json!({"root": ROOT, "path": "x.md", "text": "x"}));
    // Killed before any answer, in the middle of one, and after a call was done.
    let scripts = [
        vec![Reply::silent()],
        vec![Reply::say("Half").hang_at(50)],
        vec![call.clone(), Reply::silent()],
        vec![call, Reply::say("Half").hang_at(50)],
    ];
    for script in scripts {
        let world = World::new_plain();
        let requests = script.len();
        let model = ModelServer::start(script);
        let mut chat = Chat::start(&world, engine(&model));
        chat.send("Write x.");
        model.wait_for(|now| now.opened == requests as u64);
        while model.asked().len() < requests {
            std::thread::yield_now();
        }
        chat.kill();

        model.add([Reply::say("Here.")]);
        let mut chat = Chat::start(&world, engine(&model));
        assert_eq!(chat.say("What now?").text.trim(), "Here.");
        let texts = texts(&model);
        assert!(texts[1].ends_with("Write x."), "{texts:?}");
        assert_eq!(texts.iter().any(|text| text.contains("\"created\":true")), requests == 2);
        assert_eq!(texts[texts.len() - 2], "(This turn ended without an answer.)");
        model.assert_played();
    }
}

#[test]
fn a_long_conversation_is_made_shorter_and_keeps_its_last_turns() {
    let big = "line of text\n".repeat(300);
    let world = World::builder().file("big.md", &big).build();
    let model = ModelServer::start([]);
    let mut chat = Chat::start(&world, engine(&model));
    for turn in 0..12 {
        let read = json!({"root": ROOT, "path": "big.md"});
        model.add([Reply::call("read_file", &read), Reply::say(&format!("Read {turn}."))]);
        let told = chat.say(&format!("Read it, time {turn}."));
        assert_eq!(told.state(), "answered", "{}", told.reason());
    }
    model.assert_played();
    let texts = texts(&model);
    let sent: usize = texts.iter().map(String::len).sum();
    assert!(sent < 3 * 16_000, "{sent} bytes");
    let results = texts.iter().filter(|text| text.contains("untrustedText")).count();
    assert!((4..12).contains(&results), "the last turns are whole, the first are not: {results}");
    assert!(texts.iter().any(|text| text.ends_with("Read it, time 8.")));
    let file = chat.folder().join("context/terminal.jsonl");
    let kept = std::fs::metadata(file).expect("it is there").len();
    assert!(kept < 4 * 16_000, "the file is made shorter, too: {kept} bytes");
}

#[test]
fn context_files_come_first_and_one_that_is_a_link_refuses_the_start() {
    let world = World::new_plain();
    let model = ModelServer::start([Reply::say("Calmly.")]);
    let folder = world.base().join("persona");
    std::fs::create_dir(&folder).expect("a folder");
    std::fs::write(folder.join("soul.md"), "You are calm.\n").expect("written");
    let mut section = engine(&model);
    section["context"] = json!({"folder": folder, "files": ["soul.md"]});
    let mut chat = Chat::start(&world, section.clone());
    chat.say("How are you?");
    assert!(model.asked()[0].system().starts_with("You are calm.\n\nYou are Sage."));
    let launches = chat.folder().join("launches");
    assert_eq!(chat.end(), 0);
    let kept: Vec<_> = std::fs::read_dir(launches)
        .expect("there are launches")
        .map(|entry| std::fs::read_to_string(entry.expect("an entry").path()).expect("text"))
        .collect();
    assert!(kept.contains(&"You are calm.\n\n".to_owned()), "{kept:?}");
    assert!(kept.iter().any(|text| text.contains("\"model\": \"m1\"")), "{kept:?}");

    std::os::unix::fs::symlink(folder.join("soul.md"), folder.join("link.md")).expect("a link");
    section["context"]["files"] = json!(["link.md"]);
    let chat = Chat::start(&world, section);
    let log = world.base().join("chat.err");
    assert_eq!(chat.end(), 2);
    let said = std::fs::read_to_string(log).expect("it said something");
    assert!(said.contains("link.md") && said.contains("no link on the way"), "{said}");
    model.assert_played();
}
