//! The bot's token: in one header and two payloads, and nowhere that stays.

use std::path::Path;

use harness::discord::{Command, FakeDiscord, Fault, route};
use harness::service::Place;
use harness::world::World;

/// Every file below a folder, with what it holds.
fn files(folder: &Path, found: &mut Vec<(String, Vec<u8>)>) {
    for entry in std::fs::read_dir(folder).expect("it can be read") {
        let entry = entry.expect("it can be read");
        let kind = entry.file_type().expect("it has a kind");
        if kind.is_dir() {
            files(&entry.path(), found);
        } else if kind.is_file() {
            let text = std::fs::read(entry.path()).expect("it can be read");
            found.push((entry.path().display().to_string(), text));
        }
    }
}

fn holds(text: &[u8]) -> bool {
    String::from_utf8_lossy(text).contains(FakeDiscord::TOKEN)
}

#[test]
fn the_token_is_in_no_log_no_journal_no_error_and_no_answer() {
    let world = World::builder().build();
    let mut place = Place::new(world.base(), &world.socket());
    place.log_all();
    let mut sage = place.start();
    for fault in [Fault::Html(502), Fault::Reset, Fault::Error { status: 403, code: 50_013 }] {
        place.fake.fault(route("POST", "/channels/*/messages"), fault);
        let message = place.say("git status of strategy");
        let _ = place.record(message);
    }
    place.fake.command(&Command::Cut);
    place.fake.wait("it resumes", |seen| seen.gateway.resumed == 1);
    // It repeats what it is told of; and Discord could tell it the token.
    place.fake.fault(route("POST", "/channels/*/messages"), Fault::Error { status: 401, code: 0 });
    let message = place.say("git status of strategy");
    let _ = place.record(message);
    place.fake.command(&Command::Close(4004));
    assert_eq!(sage.ended(), Some(2));
    place.fake.token_valid(false);
    let message = message.to_string();
    for arguments in [
        &["check"][..],
        &["check", "--json"],
        &["status", "--json"],
        &["turns"],
        &["why", &message],
    ] {
        let said = place.command(arguments);
        assert!(!holds(&said.stdout) && !holds(&said.stderr), "{arguments:?}");
    }
    let mut found = Vec::new();
    files(world.base(), &mut found);
    let holding: Vec<_> =
        found.iter().filter(|(_, text)| holds(text)).map(|(path, _)| path.as_str()).collect();
    assert_eq!(holding.len(), 1, "{holding:?}");
    assert!(holding[0].ends_with("discord-token"), "{holding:?}");
    let log = place.log();
    assert!(log.contains("TRACE"), "everything was logged that can be");
    assert!(found.iter().any(|(path, text)| path.ends_with("connector.log") && text.len() > 1000));
}
