use std::io::Cursor;

use protocol::refusal::Outcome;
use protocol::reply::{Reply, Roots};
use tokio::sync::mpsc;

use super::{Console, Input, Interrupt, answer, chat, lines_of};
use crate::binding::Limits;
use crate::clock::SystemClock;
use crate::engine::rules::Rules;
use crate::fake::{Act, Event, FakeExecutor, offer};
use crate::journal::{Journal, TURNS, stored};
use crate::lock::Lock;
use crate::record::TurnOutcome;
use crate::terminal::Ids;
use crate::tools::Tools;
use crate::turn::{Ended, Seat};

fn roots(_: &protocol::tool::ToolCall) -> Act {
    Act::answer(Outcome::Reply(Reply::Roots(Roots { roots: offer().roots })))
}

fn seat(home: &tempfile::TempDir, fake: &FakeExecutor) -> Seat<Rules> {
    let lock = Lock::take(&home.path().join("sage")).expect("free");
    Seat {
        journal: Journal::open(lock).expect("it opens"),
        engine: Rules,
        tools: Tools::new(fake.socket.clone()),
        limits: Limits::default(),
        clock: Box::new(SystemClock),
    }
}

fn lines(input: &'static str) -> Input {
    Input::Lines(lines_of(Cursor::new(input)))
}

fn console(input: &'static str) -> Console<Vec<u8>> {
    Console::new(lines(input), mpsc::channel(1).1, Vec::new())
}

async fn messages(input: &'static str) -> Vec<String> {
    let mut console = console(input);
    let mut found = Vec::new();
    while let Some(message) = console.next_message().await {
        found.push(message);
    }
    found
}

#[tokio::test]
async fn a_message_is_a_line_and_a_backslash_goes_on() {
    assert_eq!(messages("one\r\ntwo").await, ["one", "two"]);
    assert_eq!(messages("a: \\\nb\\\n\\\nc\nd\n").await, ["a: \nb\n\nc", "d"]);
    assert_eq!(messages("cut off\\").await, ["cut off\n"]);
    assert_eq!(messages("").await, Vec::<String>::new());
}

#[tokio::test]
async fn each_line_gets_a_turn_and_an_answer_until_the_input_ends() {
    let fake = FakeExecutor::start(roots);
    let home = tempfile::tempdir().expect("a folder");
    let mut seat = seat(&home, &fake);
    let mut console = console("list roots\n\n  \nlist roots\n");
    chat(&mut seat, "Owner", &mut console).await.expect("it talks");
    let said = String::from_utf8(console.out).expect("text");
    let line = "strategy  read and write; git: read, commit, pull, push; record protocol\n";
    assert_eq!(said, line.repeat(2), "no prompt where nobody sees one");
    let requests = fake.requests();
    assert_ne!(requests[0].turn.id, requests[1].turn.id);
    assert_eq!(requests[0].turn.requester.as_deref(), Some("Owner"));
    assert_eq!(stored(&home.path().join("sage").join(TURNS)).expect("records").len(), 2);
}

#[tokio::test]
async fn ctrl_c_stops_the_turn_and_not_the_program() {
    let mut fake = FakeExecutor::start(|call| match call {
        protocol::tool::ToolCall::GitPush(_) => Act::Hang,
        other => roots(other),
    });
    let home = tempfile::tempdir().expect("a folder");
    let mut seat = seat(&home, &fake);
    let (press, interrupts) = mpsc::channel(1);
    let lines = lines("push strategy\nlist roots\n");
    let mut console = Console::new(lines, interrupts, Vec::new());
    let ctrl_c = async {
        assert!(matches!(fake.events.recv().await, Some(Event::Began(_))));
        press.send(Interrupt::Turn).await.expect("it listens");
    };
    let (talked, ()) = tokio::join!(chat(&mut seat, "Owner", &mut console), ctrl_c);
    talked.expect("it talks");
    let said = String::from_utf8(console.out).expect("text");
    assert!(said.starts_with("Stopped."), "{said}");
    assert!(said.ends_with("record protocol\n"), "the next message was answered: {said}");
}

#[tokio::test]
async fn a_request_to_end_stops_the_turn_and_the_program() {
    let mut fake = FakeExecutor::start(|_| Act::Hang);
    let home = tempfile::tempdir().expect("a folder");
    let mut seat = seat(&home, &fake);
    let (press, interrupts) = mpsc::channel(1);
    let lines = lines("push strategy\nlist roots\n");
    let mut console = Console::new(lines, interrupts, Vec::new());
    let end = async {
        assert!(matches!(fake.events.recv().await, Some(Event::Began(_))));
        press.send(Interrupt::Program).await.expect("it listens");
    };
    let (talked, ()) = tokio::join!(chat(&mut seat, "Owner", &mut console), end);
    talked.expect("it ends well");
    assert_eq!(fake.requests().len(), 1, "the second message was not begun");
    assert!(String::from_utf8(console.out).expect("text").starts_with("Stopped."));
}

#[tokio::test]
async fn a_person_at_the_machine_is_told_why_a_turn_failed() {
    let fake = FakeExecutor::start(|_| Act::HangUp);
    let home = tempfile::tempdir().expect("a folder");
    let mut seat = seat(&home, &fake);
    let mut console = console("");
    let incoming = Ids::default().incoming("Owner", "push strategy".to_owned());
    let ended = answer(incoming, &mut seat, &mut console).await.expect("it talks");
    let Ended::Turn(TurnOutcome::Failed { reason }) = ended else { panic!("{ended:?}") };
    let said = String::from_utf8(console.out).expect("text");
    assert!(said.ends_with(&format!("({reason})\n")), "{said}");
}
