//! `sage-connector chat` at a terminal: keys are pressed on a real one, and what it shows is read.

use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use harness::calls::ROOT;
use harness::chat::{binding, write_private};
use harness::model::{ModelServer, Reply};
use harness::terminal::Terminal;
use harness::world::World;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

const UP: &str = "\x1b[A";
const CTRL_C: &str = "\x03";
const CTRL_D: &str = "\x04";
const ALT_ENTER: &str = "\x1b\r";
const ENTER: &str = "\r";
const PASTED: [&str; 2] = ["\x1b[200~", "\x1b[201~"];

/// The end of what `list roots` answers.
const ROOTS: &str = "read, commit, pull, push";

/// What invites, as an editor draws it.
const INVITED: &str = "> ";

fn chat(world: &World, engine: Value) -> Terminal {
    let path = world.base().join("binding.json");
    write_private(&path, &binding(world, engine).to_string());
    let mut terminal = Terminal::start(
        "sage-connector",
        [PathBuf::from("chat"), PathBuf::from("--binding"), path],
    );
    terminal.read_to(INVITED);
    terminal
}

fn rules() -> Value {
    json!({"kind": "rules"})
}

fn history(world: &World) -> String {
    std::fs::read_to_string(world.base().join("connector/sage/chat-history")).unwrap_or_default()
}

/// The state of each turn, the oldest first.
fn turns(world: &World) -> Vec<String> {
    let binding = world.base().join("binding.json");
    let binding = binding.to_str().expect("it is UTF-8");
    let said =
        harness::cli::Run::of("sage-connector", ["turns", "--json", "--binding", binding]).piped();
    let state = |line: &str| -> String {
        let record: Value = serde_json::from_str(line).expect("it is JSON");
        record["outcome"]["state"].as_str().expect("a turn has an outcome").to_owned()
    };
    said.out.lines().map(state).collect()
}

#[test]
fn a_line_is_edited_and_called_up_again_also_by_the_next_chat() {
    let world = World::new_plain();
    let mut terminal = chat(&world, rules());
    terminal.press(&format!("list rootz\x7fs{ENTER}"));
    terminal.read_to(ROOTS);
    terminal.read_to(INVITED);
    terminal.press(&format!("{UP}{ENTER}"));
    terminal.read_to(ROOTS);
    terminal.read_to(INVITED);
    terminal.press(CTRL_D);
    assert_eq!(terminal.ended(), 0);
    assert!(terminal.is_as_usual());
    assert_eq!(turns(&world), ["answered", "answered"]);

    let mut terminal = chat(&world, rules());
    terminal.press(&format!("{UP}{ENTER}"));
    terminal.read_to(ROOTS);
    terminal.read_to(INVITED);
    assert_eq!(history(&world), "#V2\nlist roots\n", "said again is kept once");
}

#[test]
fn the_history_is_private_and_holds_no_credential_and_nothing_that_begins_with_a_space() {
    let world = World::new_plain();
    let mut terminal = chat(&world, rules());
    let token = format!("ghp_{}", "a1B2".repeat(9));
    for (line, kept) in [
        ("help".to_owned(), true),
        (" help me in secret".to_owned(), false),
        (format!("remember {token}"), false),
        ("list roots".to_owned(), true),
    ] {
        terminal.press(&format!("{line}{ENTER}"));
        terminal.read_to("\n");
        terminal.read_to(INVITED);
        assert_eq!(history(&world).contains(&line), kept, "{line}: {}", history(&world));
    }
    let meta = std::fs::metadata(world.base().join("connector/sage/chat-history"));
    assert_eq!(meta.expect("it is there").mode() & 0o7777, 0o600);
    assert!(!history(&world).contains(&token));
}

#[test]
fn ctrl_c_stops_the_turn_and_not_the_program_and_clears_what_is_typed() {
    let world = World::new_plain();
    let model = ModelServer::start([Reply::silent(), Reply::say("Here I am.")]);
    let engine = json!({
        "kind": "openai",
        "openai": {"baseUrl": model.base_url(), "model": "m1"},
    });
    let mut terminal = chat(&world, engine);
    terminal.press(&format!("think for ever{ENTER}"));
    while model.asked().is_empty() {
        std::thread::yield_now();
    }
    terminal.press(CTRL_C);
    terminal.read_to("Stopped.");
    terminal.read_to(INVITED);
    terminal.press("what I did not mean");
    terminal.read_to("mean");
    terminal.press(CTRL_C);
    terminal.read_to(INVITED);
    terminal.press(&format!("are you there{ENTER}"));
    terminal.read_to("Here I am.");
    terminal.read_to(INVITED);
    assert_eq!(turns(&world), ["aborted", "answered"]);
    let asked = model.asked().pop().expect("it was asked").last_text();
    assert!(asked.contains("are you there") && !asked.contains("mean"), "{asked}");
}

/// A world where a commit waits for a person, and a file is there to be committed.
fn to_approve() -> (World, Terminal) {
    let world = World::builder().approval().build();
    let terminal = chat(&world, rules());
    world.clone_dir().write("plans/new.md", "new\n");
    (world, terminal)
}

fn commit() -> String {
    format!("commit {ROOT}/plans/new.md: Add a plan")
}

#[test]
fn y_approves_a_plan_and_the_word_is_not_remembered() {
    let (world, mut terminal) = to_approve();
    let before = world.remote_head();
    terminal.press(&format!("{}{ENTER}", commit()));
    let shown = terminal.read_to("Commit this? [y/N] ");
    assert!(shown.contains("plans/new.md"), "the plan is shown: {shown}");
    terminal.press(&format!("y{ENTER}"));
    terminal.read_to("pushed");
    terminal.read_to(INVITED);
    assert_ne!(world.remote_head(), before);
    assert_eq!(history(&world), format!("#V2\n{}\n", commit()));
}

#[test]
fn anything_but_y_declines_a_plan_and_what_was_typed_before_it_was_shown_is_no_answer() {
    for answer in ["", "n", "yy", "yes please", "\x1b[A"] {
        let (world, mut terminal) = to_approve();
        let before = world.remote_head();
        terminal.press(&format!("{}{ENTER}y{ENTER}", commit()));
        terminal.read_to("Commit this? [y/N] ");
        terminal.press(&format!("{answer}{ENTER}"));
        terminal.read_to("did not approve");
        assert_eq!(world.remote_head(), before, "{answer:?}");
    }
}

#[test]
fn ctrl_c_at_a_plan_declines_it_and_the_next_line_is_a_message() {
    let (world, mut terminal) = to_approve();
    let before = world.remote_head();
    terminal.press(&format!("{}{ENTER}", commit()));
    terminal.read_to("Commit this? [y/N] ");
    terminal.press(CTRL_C);
    terminal.read_to("\nStopped.");
    terminal.read_to(INVITED);
    terminal.press(&format!("list roots{ENTER}"));
    terminal.read_to(ROOTS);
    terminal.read_to(INVITED);
    assert_eq!(turns(&world), ["aborted", "answered"]);
    assert_eq!(world.remote_head(), before);
}

#[test]
fn a_pasted_text_is_one_message_and_so_are_lines_that_go_on() {
    let world = World::new_plain();
    let mut terminal = chat(&world, rules());
    let [begin, end] = PASTED;
    let cases = [
        ("pasted.md", format!("{begin}write {ROOT}/pasted.md:\none\ntwo\n{end}{ENTER}")),
        ("alt.md", format!("write {ROOT}/alt.md:{ALT_ENTER}one{ALT_ENTER}two{ENTER}")),
        ("slash.md", format!("write {ROOT}/slash.md:\\{ENTER}one\\{ENTER}two{ENTER}")),
    ];
    for (file, keys) in cases {
        terminal.press(&keys);
        terminal.read_to("Created");
        terminal.read_to(INVITED);
        let text = world.clone_dir().text(file);
        assert_eq!(text.trim_end(), "one\ntwo", "{file}");
    }
    assert_eq!(turns(&world).len(), 3);
}

#[test]
fn an_answer_cannot_drive_the_terminal() {
    let hostile = "title \x1b]0;owned\x07 clear \x1b[2J cursor \x1b[99A c1 \u{9b}31m";
    let world = World::builder().file("hostile.md", hostile).build();
    let model = ModelServer::start([Reply::say(hostile)]);
    let engine = json!({
        "kind": "openai",
        "openai": {"baseUrl": model.base_url(), "model": "m1"},
    });
    for (engine, says) in [(rules(), format!("read {ROOT}/hostile.md")), (engine, "hi".to_owned())]
    {
        let mut terminal = chat(&world, engine);
        terminal.press(&format!("{says}{ENTER}"));
        let shown = terminal.read_to("31m");
        assert!(shown.contains("\\u{1b}]0;owned\\u{7}"), "it is shown, escaped: {shown:?}");
        for sequence in ["\x1b]0;", "\x1b[2J", "\x1b[99A", "\u{9b}"] {
            assert!(!terminal.all().contains(sequence), "{sequence:?} in {:?}", terminal.all());
        }
        terminal.read_to(INVITED);
        terminal.press(CTRL_D);
        assert_eq!(terminal.ended(), 0);
    }
}

#[test]
fn a_signal_ends_it_and_leaves_the_terminal_as_it_was() {
    let world = World::new_plain();
    let mut terminal = chat(&world, rules());
    assert!(!terminal.is_as_usual(), "keys are read one by one");
    terminal.press("half a mess");
    terminal.read_to("mess");
    terminal.signal(Signal::SIGTERM);
    assert_eq!(terminal.ended(), 0);
    assert!(terminal.is_as_usual());
    assert!(turns(&world).is_empty());
}
