use std::future::pending;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::Timestamp;
use protocol::refusal::{Code, Outcome, Refusal};
use protocol::reply::{
    ChangeKind, Committed, Diff, FileStat, FileText, PathText, Plan, PushState, Reply, Roots, Text,
    Untrusted,
};
use protocol::tool::ToolCall;
use protocol::turn::Origin;

use super::{Ended, Seat, run};
use crate::binding::Limits;
use crate::clock::Clock;
use crate::delivery::{Delivery, Kind, Part, Sent};
use crate::engine::rules::Rules;
use crate::engine::{Answer, Engine, EngineError, ToolRunner};
use crate::fake::{Act, Event, FakeExecutor, broken, offer};
use crate::journal::{
    DropReason, Journal, OutboxEntry, OutboxLine, TURNS, read_outbox, read_record,
};
use crate::lock::Lock;
use crate::message::{Incoming, MessageId};
use crate::prompt::Prompt;
use crate::record::{CallResult, TextDigest, TurnOutcome, TurnRecord};
use crate::tools::Tools;

struct Noon;

impl Clock for Noon {
    fn now(&self) -> Timestamp {
        "2031-05-06T12:00:00Z".parse().expect("a time")
    }
}

/// Keeps what is said, and what was on disk at that moment.
#[derive(Default)]
struct Heard {
    parts: Vec<Part>,
    folder: PathBuf,
    records: Vec<bool>,
    questions: Vec<Part>,
    /// What becomes of a question; it arrives, otherwise.
    asked: Option<Sent>,
    approves: bool,
}

impl Delivery for Heard {
    fn question(&self, plan: &Plan) -> Option<String> {
        Some(format!("{}?", plan.message))
    }

    async fn ask(&mut self, question: &Part) -> Sent {
        let outbox = read_outbox(&self.folder).expect("it is there");
        let last = outbox.last().expect("there is an intent");
        assert!(matches!(last.entry, OutboxEntry::Intent { intent: Kind::Question, .. }));
        self.questions.push(question.clone());
        self.asked.clone().unwrap_or(Sent::Confirmed)
    }

    async fn answered(&mut self) -> bool {
        self.approves
    }

    fn split(&self, text: &str) -> Vec<String> {
        text.split("\n---\n").map(str::to_owned).collect()
    }

    async fn send(&mut self, part: &Part) -> Sent {
        let id = part.nonce.rsplit_once('-').expect("id-n").0;
        self.records.push(self.folder.join(TURNS).join(format!("{id}.json")).exists());
        self.parts.push(part.clone());
        Sent::Confirmed
    }
}

impl Heard {
    fn text(&self) -> &str {
        match self.parts.as_slice() {
            [only] => &only.text,
            other => panic!("one part was expected: {other:?}"),
        }
    }
}

/// A binding's folder, a seat on it, and what was said.
struct Booth<E> {
    home: tempfile::TempDir,
    seat: Seat<E>,
    heard: Heard,
}

fn seat<E>(engine: E, socket: &Path, limits: Limits) -> Booth<E> {
    let home = tempfile::tempdir().expect("a folder");
    let folder = home.path().join("sage");
    let journal = Journal::open(Lock::take(&folder).expect("free")).expect("it opens");
    let tools = Tools::new(socket.to_owned());
    let seat = Seat { journal, engine, tools, limits, clock: Box::new(Noon) };
    Booth { home, seat, heard: Heard { folder, ..Heard::default() } }
}

impl<E: Engine> Booth<E> {
    async fn say(&mut self, id: &str, text: &str) -> Ended {
        self.say_until(id, text, pending()).await
    }

    async fn say_until(
        &mut self,
        id: &str,
        text: &str,
        abort: impl Future<Output = ()> + Send,
    ) -> Ended {
        let incoming = Incoming {
            id: MessageId::parse(id).expect("an id"),
            origin: Origin::Terminal,
            requester: Some("Owner".to_owned()),
            channel: "terminal".to_owned(),
            thread: None,
            author: "Owner".to_owned(),
            text: text.to_owned(),
        };
        run(incoming, &mut self.seat, &mut self.heard, abort).await.expect("the journal works")
    }

    fn folder(&self) -> PathBuf {
        self.home.path().join("sage")
    }

    fn record(&self, id: &str) -> TurnRecord {
        let id = MessageId::parse(id).expect("an id");
        read_record(&self.folder().join(TURNS), &id).expect("the turn has a record")
    }

    fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder().join(name)).expect("it is there")
    }
}

fn answered() -> Ended {
    Ended::Turn(TurnOutcome::Answered)
}

fn roots() -> Act {
    Act::answer(Outcome::Reply(Reply::Roots(Roots { roots: offer().roots })))
}

fn committed() -> Outcome {
    Outcome::Reply(Reply::Committed(Committed {
        hash: "c0ffee".repeat(6) + "c0ff",
        short: "c0ffee0".to_owned(),
        branch: "main".to_owned(),
        trailer: "Requested-by: Owner".to_owned(),
        untrusted_files: vec![FileStat {
            kind: ChangeKind::Added,
            path: PathText::Utf8("vault/a.md".to_owned()),
            from: None,
            added: Some(2),
            removed: Some(0),
            mode: None,
        }],
        push: PushState::Pushed,
    }))
}

fn commits(call: &ToolCall) -> Act {
    match call {
        ToolCall::GitDiff(_) => Act::answer(Outcome::Reply(Reply::Diff(Diff {
            untrusted_files: Vec::new(),
            more_files: 0,
            untrusted_diff: Text::default(),
        }))),
        ToolCall::ReadFile(_) => Act::answer(Outcome::Reply(Reply::File(FileText {
            untrusted_text: Untrusted::from("one\ntwo\n"),
            offset: 0,
            next_offset: None,
            size: 8,
            digest: "d".to_owned(),
        }))),
        ToolCall::GitCommit(_) => Act::answer(committed()),
        _ => broken(),
    }
}

#[tokio::test]
async fn a_commit_is_reviewed_made_recorded_and_told() {
    let fake = FakeExecutor::start(commits);
    let mut it = seat(Rules, &fake.socket, Limits::default());
    assert_eq!(it.say("m1", "commit strategy/vault/a.md: Say hello").await, answered());

    let requests = fake.requests();
    let calls: Vec<_> = requests.iter().map(|r| (r.id.as_str(), r.call.name().as_str())).collect();
    assert_eq!(calls, [("m1-1", "git_diff"), ("m1-2", "read_file"), ("m1-3", "git_commit")]);
    for request in &requests {
        assert_eq!(request.turn.id, "m1");
        assert_eq!(request.turn.requester.as_deref(), Some("Owner"));
        assert_eq!(request.turn.origin, Origin::Terminal);
    }
    assert!(it.heard.text().contains("+one\n+two"), "{}", it.heard.text());
    assert!(it.heard.text().contains("pushed to origin/main"), "{}", it.heard.text());

    let record = it.record("m1");
    assert_eq!(record.outcome, TurnOutcome::Answered);
    assert!(record.calls.iter().all(|call| call.result == CallResult::Reply));
    let commit = record.calls[2].commit.as_ref().expect("it committed");
    assert_eq!((&commit.push, commit.hash.len()), (&PushState::Pushed, 40));
    assert_eq!(
        record.calls[2].arguments["message"]["sha256"],
        TextDigest::of("Say hello").sha256.as_str()
    );
    assert_eq!(record.deliveries[0].nonce, "m1-1");
    assert_eq!(record.deliveries[0].text, TextDigest::of(it.heard.text()));
    assert!(record.envelope.is_some() && record.usage.is_none());
    assert!(!it.file("turns/m1.json").contains("Say hello"));
}

#[tokio::test]
async fn the_journal_is_written_before_each_step_acts() {
    let fake = FakeExecutor::start(|_| roots());
    let mut it = seat(Rules, &fake.socket, Limits::default());
    assert_eq!(it.say("m1", "list roots").await, answered());
    assert_eq!(it.heard.records, [true], "the record was there when the answer was sent");
    assert!(it.file("inbox.jsonl").contains("\"m1\""));
    assert!(it.file("admissions.jsonl").contains("\"m1\""));
    assert!(!it.file("inbox.jsonl").contains("list roots"), "texts are not kept");
    let outbox = read_outbox(&it.folder()).expect("it is there");
    assert!(matches!(outbox[0].entry, OutboxEntry::Intent { intent: Kind::Reply, .. }));
    assert!(matches!(outbox[1].entry, OutboxEntry::Result(Sent::Confirmed)));
    assert_eq!((outbox.len(), outbox[0].nonce.as_str()), (2, "m1-1"));
}

/// Looks at the journal when it runs.
struct Peek(PathBuf, String);

impl Engine for Peek {
    fn name(&self) -> &'static str {
        "peek"
    }

    async fn run_turn<T: ToolRunner>(
        &mut self,
        prompt: &Prompt,
        _: &mut T,
    ) -> Result<Answer, EngineError> {
        self.1 = std::fs::read_to_string(self.0.join("admissions.jsonl")).expect("it is there");
        Ok(Answer { text: format!("a\n---\n{}", prompt.message), usage: None })
    }
}

#[tokio::test]
async fn the_admission_is_on_disk_when_the_engine_runs_and_long_answers_go_in_parts() {
    let fake = FakeExecutor::start(|_| broken());
    let mut it = seat(Peek(PathBuf::new(), String::new()), &fake.socket, Limits::default());
    it.seat.engine.0 = it.folder();
    assert_eq!(it.say("m1", "b").await, answered());
    assert!(it.seat.engine.1.contains("\"m1\""), "{}", it.seat.engine.1);
    let parts: Vec<_> = it.heard.parts.iter().map(|p| (&*p.nonce, &*p.text)).collect();
    assert_eq!(parts, [("m1-1", "a"), ("m1-2", "b")]);
    assert_eq!(it.record("m1").deliveries.len(), 2);
}

#[tokio::test]
async fn a_refusal_is_told_and_recorded_with_its_code() {
    let fake = FakeExecutor::start(|_| {
        Act::answer(Outcome::Refusal(Refusal::new(Code::InvalidPath, "It leads out.", "Stay in.")))
    });
    let mut it = seat(Rules, &fake.socket, Limits::default());
    assert_eq!(it.say("m1", "write strategy/../x: y").await, answered());
    assert_eq!(it.heard.text(), "Refused (invalid_path): It leads out. Stay in.");
    let message = "It leads out.".to_owned();
    let refused = CallResult::Refusal { code: Code::InvalidPath, message };
    assert_eq!(it.record("m1").calls[0].result, refused);
}

#[tokio::test]
async fn a_known_message_is_ignored_also_after_a_restart() {
    let fake = FakeExecutor::start(|_| roots());
    let mut it = seat(Rules, &fake.socket, Limits::default());
    assert_eq!(it.say("m1", "list roots").await, answered());
    assert_eq!(it.say("m1", "list roots").await, Ended::Known);
    let Booth { home, seat: Seat { journal, .. }, .. } = it;
    drop(journal);
    let folder = home.path().join("sage");
    let journal = Journal::open(Lock::take(&folder).expect("free")).expect("it opens");
    let tools = Tools::new(fake.socket.clone());
    let limits = Limits::default();
    let seat = Seat { journal, engine: Rules, tools, limits, clock: Box::new(Noon) };
    let mut it = Booth { home, seat, heard: Heard::default() };
    assert_eq!(it.say("m1", "list roots").await, Ended::Known);
    assert_eq!((fake.requests().len(), it.heard.parts.len()), (1, 0));
}

#[tokio::test]
async fn a_message_that_is_too_long_gets_a_fixed_line_and_no_turn() {
    let fake = FakeExecutor::start(|_| roots());
    let limits = Limits { max_message_chars: 10, ..Limits::default() };
    let mut it = seat(Rules, &fake.socket, limits);
    let told = Ended::Dropped { reason: DropReason::TooLong, told: true };
    assert_eq!(it.say("m1", "list roots!").await, told);
    assert_eq!(it.heard.parts[0].nonce, "m1-b");
    assert!(it.heard.text().contains("10 characters"));
    assert_eq!(it.say("m2", "list roots").await, answered(), "ten characters are not too many");
    assert_eq!(fake.requests().len(), 1);
    assert!(it.file("drops.jsonl").contains("tooLong"));
}

#[tokio::test]
async fn over_the_ceiling_one_line_is_told_and_nothing_is_called() {
    let fake = FakeExecutor::start(|_| roots());
    let limits = Limits { turns_per_day: 1, ..Limits::default() };
    let mut it = seat(Rules, &fake.socket, limits);
    assert_eq!(it.say("m1", "list roots").await, answered());
    for (id, told) in [("m2", true), ("m3", false)] {
        let over = Ended::Dropped { reason: DropReason::OverCeiling, told };
        assert_eq!(it.say(id, "list roots").await, over);
    }
    let nonces: Vec<_> = it.heard.parts.iter().map(|part| part.nonce.as_str()).collect();
    assert_eq!(nonces, ["m1-1", "m2-c"]);
    assert_eq!(fake.requests().len(), 1);
}

#[tokio::test]
async fn a_turn_that_takes_too_long_is_stopped_and_says_one_fixed_line() {
    let fake = FakeExecutor::start(|_| Act::Hang);
    let limits = Limits { turn_timeout_seconds: 0, ..Limits::default() };
    let mut it = seat(Rules, &fake.socket, limits);
    assert_eq!(it.say("m1", "list roots").await, Ended::Turn(TurnOutcome::TimedOut));
    assert_eq!(it.heard.parts[0].nonce, "m1-f");
    assert_eq!(it.heard.text(), super::TIMED_OUT);
    assert_eq!(it.record("m1").outcome, TurnOutcome::TimedOut);
}

#[tokio::test]
async fn a_turn_that_is_stopped_cancels_its_call_in_the_executor() {
    let mut fake = FakeExecutor::start(|_| Act::Hang);
    let mut it = seat(Rules, &fake.socket, Limits::default());
    let events = &mut fake.events;
    let once_it_began = async {
        assert_eq!(events.recv().await, Some(Event::Began("m1-1".to_owned())));
    };
    let ended = it.say_until("m1", "list roots", once_it_began).await;
    assert_eq!(ended, Ended::Turn(TurnOutcome::Aborted));
    assert_eq!(fake.events.recv().await, Some(Event::Dropped("m1-1".to_owned())));
    assert_eq!(it.heard.text(), super::ABORTED);
    let record = it.record("m1");
    assert_eq!(record.calls[0].result, CallResult::Abandoned);
    assert_eq!(record.calls.len(), 1);
}

/// Asks for more than it may.
struct Greedy(usize);

impl Engine for Greedy {
    fn name(&self) -> &'static str {
        "greedy"
    }

    async fn run_turn<T: ToolRunner>(
        &mut self,
        _: &Prompt,
        tools: &mut T,
    ) -> Result<Answer, EngineError> {
        let mut text = String::new();
        for _ in 0..self.0 {
            let call = ToolCall::ListRoots(protocol::tool::ListRoots {});
            text = crate::render::outcome(&tools.call(call).await?);
        }
        Ok(Answer { text, usage: None })
    }
}

#[tokio::test]
async fn a_call_over_the_limit_is_refused_and_never_sent() {
    let fake = FakeExecutor::start(|_| roots());
    let limits = Limits { max_calls_per_turn: 2, ..Limits::default() };
    let mut it = seat(Greedy(3), &fake.socket, limits);
    assert_eq!(it.say("m1", "more").await, answered());
    assert_eq!(fake.requests().len(), 2);
    assert!(it.heard.text().starts_with("Refused (too_many_calls)"), "{}", it.heard.text());
    let record = it.record("m1");
    let codes = record.calls.iter().map(|call| match &call.result {
        CallResult::Refusal { code, .. } => Some(*code),
        _ => None,
    });
    assert_eq!(codes.collect::<Vec<_>>(), [None, None, Some(Code::TooManyCalls)]);
    it.seat.engine.0 = 2;
    assert_eq!(it.say("m2", "again").await, answered(), "each turn has calls of its own");
    assert_eq!(fake.requests().len(), 4);
}

#[tokio::test]
async fn a_call_that_was_lost_is_asked_for_once_more_under_the_same_id() {
    let fake = FakeExecutor::start(|call| match call {
        ToolCall::GitCommit(_) => Act::HangUpAfter(Box::new(committed())),
        other => commits(other),
    });
    let mut it = seat(Rules, &fake.socket, Limits::default());
    assert_eq!(it.say("m1", "commit strategy/vault/a.md: hello").await, answered());
    let ids: Vec<_> = fake.requests().into_iter().map(|request| request.id).collect();
    assert_eq!(ids, ["m1-1", "m1-2", "m1-3", "m1-3"]);
    assert_eq!(fake.effects(), ["m1-1", "m1-2", "m1-3"], "it committed once");
    assert!(it.record("m1").calls[2].commit.is_some());
}

#[tokio::test]
async fn a_call_that_is_lost_twice_fails_the_turn_and_is_not_tried_again() {
    let fake = FakeExecutor::start(|call| match call {
        ToolCall::GitPush(_) => Act::HangUp,
        _ => roots(),
    });
    let mut it = seat(Rules, &fake.socket, Limits::default());
    match it.say("m1", "push strategy").await {
        Ended::Turn(TurnOutcome::Failed { reason }) => {
            assert!(reason.contains("ended"), "{reason}")
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(fake.requests().len(), 2);
    assert_eq!(it.heard.text(), super::FAILED);
    assert!(matches!(it.record("m1").calls[0].result, CallResult::Lost { .. }));
    assert_eq!(it.say("m2", "list roots").await, answered(), "the next turn connects again");
}

#[tokio::test]
async fn without_an_executor_the_turn_fails_with_the_reason_in_its_record() {
    let home = tempfile::tempdir().expect("a folder");
    let mut it = seat(Rules, &home.path().join("none.sock"), Limits::default());
    let ended = it.say("m1", "list roots").await;
    let record = it.record("m1");
    assert_eq!(ended, Ended::Turn(record.outcome.clone()));
    match record.outcome {
        TurnOutcome::Failed { reason } => assert!(reason.contains("is sage-executor running?")),
        other => panic!("{other:?}"),
    }
    assert_eq!(it.heard.text(), super::FAILED, "the channel gets the fixed line, not the reason");
}

/// Answers the first commit with a plan, and the second with the commit.
fn asks_first(call: &ToolCall, asked: &AtomicBool) -> Act {
    match call {
        ToolCall::GitCommit(commit) if !asked.swap(true, Ordering::SeqCst) => {
            Act::answer(Outcome::Reply(Reply::ApprovalNeeded(Plan {
                digest: "d1".to_owned(),
                requester: "Owner".to_owned(),
                message: commit.message.clone(),
                branch: "main".to_owned(),
                remote: "https://git.example.com/o/r.git".to_owned(),
                untrusted_files: Vec::new(),
                good_for_seconds: 600,
            })))
        }
        other => commits(other),
    }
}

#[tokio::test]
async fn a_plan_is_shown_to_the_person_and_a_yes_commits_exactly_it() {
    let asked = AtomicBool::new(false);
    let fake = FakeExecutor::start(move |call| asks_first(call, &asked));
    let mut it = seat(Rules, &fake.socket, Limits::default());
    it.heard.approves = true;
    assert_eq!(it.say("m1", "commit strategy/vault/a.md: hello").await, answered());
    assert_eq!(
        it.heard.questions,
        [Part { nonce: "m1-q1".to_owned(), kind: Kind::Question, text: "hello?".to_owned() }]
    );
    let outbox = read_outbox(&it.folder()).expect("it is there");
    let about: Vec<_> = outbox.iter().filter(|line| line.nonce == "m1-q1").collect();
    assert!(matches!(
        about.as_slice(),
        [
            OutboxLine { entry: OutboxEntry::Intent { intent: Kind::Question, .. }, .. },
            OutboxLine { entry: OutboxEntry::Result(Sent::Confirmed), .. },
        ]
    ));
    let said: Vec<_> = it.record("m1").deliveries.into_iter().map(|said| said.nonce).collect();
    assert_eq!(said, ["m1-q1", "m1-1"], "the record has the question as well");
    let approved: Vec<_> = fake.requests().into_iter().filter_map(|r| r.approved).collect();
    assert_eq!(approved, ["d1"], "one call, with the plan's digest");
    assert!(it.heard.text().contains("Committed c0ffee0"), "{}", it.heard.text());
}

#[tokio::test]
async fn a_no_refuses_the_commit_and_calls_nothing_more() {
    let asked = AtomicBool::new(false);
    let fake = FakeExecutor::start(move |call| asks_first(call, &asked));
    let mut it = seat(Rules, &fake.socket, Limits::default());
    assert_eq!(it.say("m1", "commit strategy/vault/a.md: hello").await, answered());
    assert_eq!(it.heard.questions.len(), 1);
    assert!(fake.requests().iter().all(|request| request.approved.is_none()));
    assert!(it.heard.text().contains("approval_needed"), "{}", it.heard.text());
    assert!(it.record("m1").calls.iter().all(|call| call.commit.is_none()));
}

#[tokio::test]
async fn a_question_that_nobody_saw_is_a_no_and_is_not_waited_for() {
    let asked = AtomicBool::new(false);
    let fake = FakeExecutor::start(move |call| asks_first(call, &asked));
    let mut it = seat(Rules, &fake.socket, Limits::default());
    it.heard.approves = true;
    it.heard.asked = Some(Sent::Refused { reason: "no such channel".to_owned() });
    assert_eq!(it.say("m1", "commit strategy/vault/a.md: hello").await, answered());
    assert!(fake.requests().iter().all(|request| request.approved.is_none()));
    assert!(it.heard.text().contains("approval_needed"), "{}", it.heard.text());
}
