use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::pending;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use policy::admission::{Mode, Rule};
use tempfile::TempDir;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::Instant;

use super::approve::Approvals;
use super::intake::{Current, Intake, Message, Queued, ReloadError, Shared, Taken, reload};
use super::port::Port;
use super::reply::reconcile;
use super::run::turns;
use crate::binding::{Binding, Discord, Limits, TokenRef};
use crate::clock::{Clock, SystemClock};
use crate::delivery::{Destination, Kind, Part, Sent};
use crate::engine::{Answer, Engine, EngineError, ToolRunner};
use crate::fake::{Act, FakeExecutor, broken};
use crate::journal::{DropReason, Journal, OutboxEntry, TURNS, read_outbox, read_record};
use crate::lock::Lock;
use crate::message::MessageId;
use crate::prompt::Prompt;
use crate::record::TurnOutcome;
use crate::tools::Tools;
use crate::turn::Seat;

const GUILD: &str = "100000000000000001";
const BOT: &str = "100000000000000002";
const PLANS: &str = "100000000000000003";
const OWNER: &str = "100000000000000005";

/// Says what it was told; `wait` takes for ever.
struct Echo;

impl Engine for Echo {
    fn name(&self) -> &'static str {
        "echo"
    }

    async fn run_turn<T: ToolRunner>(
        &mut self,
        prompt: &Prompt,
        _tools: &mut T,
    ) -> Result<Answer, EngineError> {
        if prompt.message == "wait" {
            pending::<()>().await;
        }
        Ok(Answer { text: prompt.message.clone(), usage: None })
    }
}

/// Keeps what was asked of Discord, and answers from a list, then with a yes.
#[derive(Clone, Default)]
struct List(Arc<Mutex<Listed>>);

#[derive(Default)]
struct Listed {
    said: Vec<(Destination, Part, bool)>,
    lookups: usize,
    eyes: Vec<String>,
    answers: VecDeque<Sent>,
    /// The sending, counted from 1, that never ends.
    stuck_at: Option<usize>,
    threads: HashMap<String, Option<String>>,
}

impl List {
    fn look<R>(&self, look: impl FnOnce(&mut Listed) -> R) -> R {
        look(&mut self.0.lock().expect("no panic"))
    }

    fn texts(&self) -> Vec<String> {
        self.look(|it| it.said.iter().map(|(_, part, _)| part.text.clone()).collect())
    }
}

impl Port for List {
    async fn send(&self, to: &Destination, part: &Part, again: Option<Instant>) -> Sent {
        let stuck = self.look(|it| {
            it.said.push((to.clone(), part.clone(), again.is_some()));
            it.stuck_at == Some(it.said.len())
        });
        if stuck {
            pending::<()>().await;
        }
        self.look(|it| it.answers.pop_front().unwrap_or(Sent::Confirmed))
    }

    async fn ask(&self, to: &Destination, part: &Part, _: &[String; 2]) -> Sent {
        self.send(to, part, None).await
    }

    async fn typing(&self, _: &str) {}

    async fn eyes(&self, message: &Destination) -> Sent {
        self.look(|it| it.eyes.push(message.reply_to.clone()));
        Sent::Refused { reason: "no reactions here".to_owned() }
    }

    async fn parent(&self, channel: &str) -> Result<Option<String>, ()> {
        self.look(|it| {
            it.lookups += 1;
            it.threads.get(channel).cloned().ok_or(())
        })
    }
}

/// A seat in a channel.
struct Place {
    _home: TempDir,
    folder: PathBuf,
    port: List,
    intake: Intake<List>,
    queue: UnboundedReceiver<Queued>,
    seat: Seat<Echo>,
    current: Shared,
}

fn open(folder: &Path) -> Journal {
    Journal::open(Lock::take(folder).expect("free")).expect("it opens")
}

fn place(socket: &Path, limits: Limits) -> Place {
    let home = tempfile::tempdir().expect("a folder");
    let folder = home.path().join("sage");
    let journal = open(&folder);
    let discord = Discord {
        guild: GUILD.to_owned(),
        bot: BOT.to_owned(),
        channels: BTreeMap::from([(PLANS.to_owned(), Mode::All)]),
        users: BTreeMap::from([(OWNER.to_owned(), "Owner".to_owned())]),
        token: TokenRef::Credential("token".to_owned()),
        approval_timeout_seconds: 120,
        ca_file: None,
        rest_url: None,
        gateway_url: None,
        gateway_pace_milliseconds: None,
    };
    let current = Arc::new(RwLock::new(Current { discord, limits: limits.clone() }));
    let (send, queue) = unbounded_channel();
    let port = List::default();
    let intake = Intake {
        port: port.clone(),
        journal: journal.clone(),
        current: Arc::clone(&current),
        folder: folder.clone(),
        clock: Box::new(SystemClock),
        queue: send,
        parents: HashMap::new(),
        closed: Arc::default(),
    };
    let tools = Tools::new(socket.to_owned());
    let seat = Seat { journal, engine: Echo, tools, limits, clock: Box::new(SystemClock) };
    Place { _home: home, folder, port, intake, queue, seat, current }
}

fn message(id: u64, text: &str) -> Message {
    Message {
        id: id.to_string(),
        guild: Some(GUILD.to_owned()),
        channel: PLANS.to_owned(),
        channel_name: "plans".to_owned(),
        author: OWNER.to_owned(),
        author_name: "Owner".to_owned(),
        text: text.to_owned(),
        ..Message::default()
    }
}

impl Place {
    async fn hear(&mut self, message: Message) -> Taken {
        self.intake.take(message).await.expect("the journal can be written")
    }

    /// Takes every turn that is queued, and ends. Gives back the folder, with nobody in it.
    async fn work(self) -> (TempDir, PathBuf, List) {
        let Self { _home: home, folder, port, intake, queue, mut seat, current } = self;
        drop(intake);
        let approvals = Approvals::new(Duration::from_secs(1));
        turns(&mut seat, &port, &approvals, &current, queue, pending()).await.expect("written");
        (home, folder, port)
    }
}

fn executor() -> FakeExecutor {
    FakeExecutor::start(|_| -> Act { broken() })
}

fn outcome(folder: &Path, id: &str) -> TurnOutcome {
    let id = MessageId::parse(id).expect("an id");
    read_record(&folder.join(TURNS), &id).expect("it has its record").outcome
}

#[tokio::test]
async fn messages_that_come_during_a_turn_are_answered_after_it_each_once() {
    let executor = executor();
    let mut it = place(&executor.socket, Limits::default());
    for id in [1, 2, 3] {
        assert_eq!(it.hear(message(id, &format!("say {id}"))).await, Taken::Queued);
    }
    // The old and the new socket both tell of it.
    assert_eq!(it.hear(message(2, "say 2")).await, Taken::Known);
    let (_home, folder, port) = it.work().await;
    assert_eq!(port.texts(), ["say 1", "say 2", "say 3"]);
    let first = port.look(|it| it.said[0].clone());
    assert_eq!((first.0.reply_to.as_str(), first.1.nonce.as_str(), first.2), ("1", "1-1", false));
    assert_eq!(outcome(&folder, "3"), TurnOutcome::Answered);
}

#[tokio::test]
async fn a_replay_after_a_restart_starts_no_turn() {
    let executor = executor();
    let mut it = place(&executor.socket, Limits::default());
    it.hear(message(1, "hello")).await;
    let (_home, folder, _port) = it.work().await;
    let mut again = place(&executor.socket, Limits::default());
    again.intake.journal = open(&folder);
    assert_eq!(again.hear(message(1, "hello")).await, Taken::Known);
}

#[tokio::test]
async fn a_stranger_costs_a_line_and_no_request() {
    let executor = executor();
    let mut it = place(&executor.socket, Limits::default());
    let stranger = Message { author: "7".to_owned(), channel: "9".to_owned(), ..message(1, "hi") };
    let passed = Taken::Passed(DropReason::Rule(Rule::UnlistedAuthor));
    assert_eq!(it.hear(stranger).await, passed);
    assert_eq!(it.port.look(|it| it.lookups), 0);
    let (_home, folder, port) = it.work().await;
    assert!(port.texts().is_empty() && port.look(|it| it.eyes.is_empty()));
    let drops = std::fs::read_to_string(folder.join("drops.jsonl")).expect("read");
    assert_eq!(drops.lines().count(), 1, "{drops}");
}

#[tokio::test]
async fn a_thread_is_looked_up_once() {
    let executor = executor();
    let mut it = place(&executor.socket, Limits::default());
    let threads = [("20", Some(PLANS.to_owned())), ("21", None)];
    it.port.look(|it| it.threads.extend(threads.map(|(id, of)| (id.to_owned(), of))));
    let there = |id, channel: &str| Message { channel: channel.to_owned(), ..message(id, "hi") };
    for id in [1, 2] {
        assert_eq!(it.hear(there(id, "20")).await, Taken::Queued);
    }
    let passed = Taken::Passed(DropReason::Rule(Rule::UnlistedChannel));
    for id in [3, 4] {
        assert_eq!(it.hear(there(id, "21")).await, passed);
    }
    assert_eq!(it.port.look(|it| it.lookups), 2);
    // One that could not be looked up is passed over, and looked up again the next time.
    assert_eq!(it.hear(there(5, "22")).await, passed);
    assert_eq!(it.port.look(|it| it.lookups), 3);
}

#[tokio::test]
async fn what_gets_no_turn_gets_one_fixed_line_and_no_eyes() {
    let executor = executor();
    let limits = Limits { turns_per_day: 1, max_message_chars: 10, ..Limits::default() };
    let mut it = place(&executor.socket, limits);
    for (id, text) in [(1, "hello"), (2, ""), (3, "hello hello"), (4, "one"), (5, "two")] {
        assert_eq!(it.hear(message(id, text)).await, Taken::Queued);
    }
    let (_home, _folder, port) = it.work().await;
    let nonces = port.look(|it| it.said.iter().map(|it| it.1.nonce.clone()).collect::<Vec<_>>());
    assert_eq!(nonces, ["1-1", "2-a", "3-b", "4-c"]);
    assert_eq!(port.look(|it| it.eyes.clone()), ["1"]);
}

/// A clock that the test sets.
#[derive(Clone)]
struct Hand(Arc<Mutex<Timestamp>>);

impl Clock for Hand {
    fn now(&self) -> Timestamp {
        *self.0.lock().expect("no panic")
    }
}

#[tokio::test]
async fn at_midnight_by_utc_the_turns_are_counted_anew_and_the_line_is_said_once_a_day() {
    let executor = executor();
    let limits = Limits { turns_per_day: 1, ..Limits::default() };
    let mut it = place(&executor.socket, limits);
    let at = |text: &str| text.parse::<Timestamp>().expect("a time");
    let hand = Hand(Arc::new(Mutex::new(at("2031-05-06T23:59:58Z"))));
    it.intake.clock = Box::new(hand.clone());
    for id in [1, 2, 3] {
        it.hear(message(id, "hello")).await;
    }
    *hand.0.lock().expect("no panic") = at("2031-05-07T00:00:00Z");
    for id in [4, 5, 6] {
        it.hear(message(id, "hello")).await;
    }
    // Back over midnight, as a clock that is set right: the first day is still used up.
    *hand.0.lock().expect("no panic") = at("2031-05-06T23:59:59Z");
    it.hear(message(7, "hello")).await;
    let (_home, _folder, port) = it.work().await;
    let nonces = port.look(|it| it.said.iter().map(|it| it.1.nonce.clone()).collect::<Vec<_>>());
    assert_eq!(nonces[..4], ["1-1", "2-c", "4-1", "5-c"]);
    assert!(!nonces.contains(&"7-1".to_owned()), "{nonces:?}");
}

#[tokio::test]
async fn while_the_brake_is_on_nothing_is_let_in() {
    let executor = executor();
    let mut it = place(&executor.socket, Limits::default());
    let brake = it.folder.join("STOP");
    std::fs::write(&brake, "by hand\n").expect("written");
    assert_eq!(it.hear(message(1, "hello")).await, Taken::Passed(DropReason::Stopping));
    std::fs::remove_file(&brake).expect("it is there");
    assert_eq!(it.hear(message(2, "hello")).await, Taken::Queued);
}

#[tokio::test]
async fn a_turn_that_takes_too_long_says_a_fixed_line_and_the_next_has_its_own_time() {
    let executor = executor();
    let limits = Limits { turn_timeout_seconds: 1, ..Limits::default() };
    let mut it = place(&executor.socket, limits);
    it.hear(message(1, "wait")).await;
    it.hear(message(2, "hello")).await;
    let (_home, folder, port) = it.work().await;
    assert_eq!(outcome(&folder, "1"), TurnOutcome::TimedOut);
    assert_eq!(port.texts()[1], "hello");
    assert_eq!(port.look(|it| it.said[0].1.nonce.clone()), "1-f");
}

#[tokio::test]
async fn turns_that_wait_when_it_stops_get_their_record_and_are_not_begun() {
    let executor = executor();
    let mut it = place(&executor.socket, Limits::default());
    it.hear(message(1, "hello")).await;
    let Place { _home, folder, port, mut intake, queue, mut seat, current } = it;
    let approvals = Approvals::new(Duration::from_secs(1));
    turns(&mut seat, &port, &approvals, &current, queue, async {}).await.expect("written");
    assert!(port.texts().is_empty());
    assert_eq!(outcome(&folder, "1"), TurnOutcome::Interrupted { admitted: true });
    let late = intake.take(message(2, "late")).await.expect("written");
    assert_eq!(late, Taken::Passed(DropReason::Stopping));
}

/// Says one part whose fate stays unknown, and starts again so much later.
async fn after_an_unknown(later: SignedDuration, answer: Sent) -> (List, usize, Vec<String>) {
    let executor = executor();
    let mut it = place(&executor.socket, Limits::default());
    it.port.look(|it| it.answers.push_back(Sent::Unknown { reason: "reset".to_owned() }));
    it.hear(message(1, "hello")).await;
    let (_home, folder, port) = it.work().await;
    let mut journal = open(&folder);
    port.look(|it| it.answers.push_back(answer));
    let now = || Timestamp::now() + later;
    let unknown = reconcile(&mut journal, &port, now).await.expect("written");
    drop(journal);
    let left = std::fs::read_dir(folder.join("pending")).expect("read").flatten();
    let left = left.map(|it| it.file_name().to_string_lossy().into_owned()).collect();
    (port, unknown, left)
}

#[tokio::test]
async fn a_part_that_may_have_arrived_is_sent_once_more_under_its_nonce() {
    let (port, unknown, left) = after_an_unknown(SignedDuration::ZERO, Sent::Confirmed).await;
    let said = port.look(|it| it.said.clone());
    assert_eq!(said.len(), 2);
    assert_eq!((&said[0].0, &said[0].1), (&said[1].0, &said[1].1), "the same in all");
    assert!(said[1].2, "and said to be a repetition");
    assert!(unknown == 0 && left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn a_part_that_is_still_unknown_keeps_the_start_from_going_on() {
    let again = Sent::Unknown { reason: "reset".to_owned() };
    let (_, unknown, left) = after_an_unknown(SignedDuration::ZERO, again).await;
    assert_eq!((unknown, left), (1, vec!["1-1.json".to_owned()]));
}

/// A message whose answer has three parts.
fn long() -> Message {
    let paragraph = |letter: &str| letter.repeat(1800);
    message(1, &["a", "b", "c"].map(paragraph).join("\n\n"))
}

/// Ends while the n-th part is on its way, as a crash would; gives back what is left on the disk.
async fn cut_at(part: usize) -> (TempDir, PathBuf) {
    let executor = executor();
    let limits = Limits { max_message_chars: 10_000, ..Limits::default() };
    let mut it = place(&executor.socket, limits);
    it.port.look(|it| it.stuck_at = Some(part));
    it.hear(long()).await;
    let port = it.port.clone();
    let Place { _home: home, folder, intake, queue, mut seat, current, .. } = it;
    drop(intake);
    let approvals = Approvals::new(Duration::from_secs(1));
    let until = async {
        while port.look(|it| it.said.len()) < part {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        _ = turns(&mut seat, &port, &approvals, &current, queue, pending()) => panic!("it ended"),
        () = until => {}
    }
    (home, folder)
}

/// What a start says, by nonce, and whether as a repetition; and how many stay unknown.
async fn started(folder: &Path, answers: &[Sent]) -> (Vec<(String, bool)>, usize) {
    let port = List::default();
    port.look(|it| it.answers.extend(answers.iter().cloned()));
    let mut journal = open(folder);
    journal.recover(Timestamp::now()).expect("written");
    let unknown = reconcile(&mut journal, &port, Timestamp::now).await.expect("written");
    let said = port.look(|it| it.said.clone()).into_iter();
    (said.map(|(_, part, again)| (part.nonce, again)).collect(), unknown)
}

fn said(parts: &[(&str, bool)]) -> Vec<(String, bool)> {
    parts.iter().map(|(nonce, again)| ((*nonce).to_owned(), *again)).collect()
}

#[tokio::test]
async fn an_answer_that_was_cut_between_two_parts_is_said_to_its_end_each_part_once_in_order() {
    let (_home, folder) = cut_at(1).await;
    assert_eq!(outcome(&folder, "1"), TurnOutcome::Answered);
    let all = said(&[("1-1", true), ("1-2", false), ("1-3", false)]);
    assert_eq!(started(&folder, &[]).await, (all, 0));
    assert_eq!(started(&folder, &[]).await, (Vec::new(), 0), "and never again");
    let (_home, folder) = cut_at(2).await;
    assert_eq!(started(&folder, &[]).await, (said(&[("1-2", true), ("1-3", false)]), 0));
}

#[tokio::test]
async fn what_follows_a_part_that_is_still_unknown_waits_for_it() {
    let (_home, folder) = cut_at(1).await;
    let unknown = Sent::Unknown { reason: "reset".to_owned() };
    assert_eq!(started(&folder, &[unknown]).await, (said(&[("1-1", true)]), 1));
    let all = said(&[("1-1", true), ("1-2", false), ("1-3", false)]);
    assert_eq!(started(&folder, &[]).await, (all, 0));
}

#[tokio::test]
async fn what_became_of_the_eyes_is_in_the_outbox_and_the_record_and_holds_nothing_up() {
    let executor = executor();
    let mut it = place(&executor.socket, Limits::default());
    it.hear(message(1, "hello")).await;
    let (_home, folder, port) = it.work().await;
    assert_eq!(port.texts(), ["hello"]);
    let id = MessageId::parse("1").expect("an id");
    let record = read_record(&folder.join(TURNS), &id).expect("it has its record");
    let kinds: Vec<_> = record.deliveries.iter().map(|it| (it.nonce.as_str(), it.kind)).collect();
    assert_eq!(kinds, [("1-e", Kind::Receipt), ("1-1", Kind::Reply)]);
    let outbox = read_outbox(&folder).expect("it is there");
    let about: Vec<_> = outbox.iter().filter(|line| line.nonce == "1-e").collect();
    let [line] = about.as_slice() else { panic!("{about:?}") };
    assert!(matches!(line.entry, OutboxEntry::Result(Sent::Refused { .. })), "{line:?}");
    assert_eq!(started(&folder, &[]).await, (Vec::new(), 0), "eyes are shown once");
}

#[tokio::test]
async fn a_part_that_is_too_old_is_never_sent_again() {
    let (port, unknown, left) =
        after_an_unknown(SignedDuration::from_mins(6), Sent::Confirmed).await;
    assert_eq!(port.look(|it| it.said.len()), 1);
    assert!(unknown == 0 && left.is_empty(), "{left:?}");
}

#[test]
fn a_reload_takes_ceilings_channels_and_users_or_nothing() {
    use std::os::unix::fs::PermissionsExt as _;
    let home = tempfile::tempdir().expect("a folder");
    let path = home.path().join("b.json");
    let binding = serde_json::json!({
        "name": "sage",
        "dataRoot": "/var/lib/sage",
        "executor": {"socket": "/run/sage/executor.sock"},
        "engine": {"kind": "rules"},
        "terminal": {"requester": "Owner"},
        "discord": {
            "guild": GUILD,
            "bot": BOT,
            "channels": {PLANS: "all"},
            "users": {OWNER: "Owner"},
            "token": {"credential": "token"},
        },
    });
    let write = |pointer: &str, value: serde_json::Value| {
        let mut changed = binding.clone();
        let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
        changed.pointer_mut(parent).expect("it is there")[key] = value;
        std::fs::write(&path, changed.to_string()).expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("chmod");
    };
    write("/name", "sage".into());
    let running = Binding::load(&path).expect("it is good");
    let discord = running.discord.clone().expect("it is there");
    let current: Shared =
        Arc::new(RwLock::new(Current { discord, limits: running.limits.clone() }));
    let look = || {
        let now = current.read().expect("no panic");
        (now.limits.turns_per_day, now.discord.users.len())
    };
    write("/limits", serde_json::json!({"turnsPerDay": 0}));
    assert!(matches!(reload(&current, &running, &path), Err(ReloadError::Binding(_))));
    write("/discord/bot", GUILD.into());
    assert!(matches!(reload(&current, &running, &path), Err(ReloadError::NeedsRestart("discord"))));
    write("/name", "other".into());
    assert!(matches!(reload(&current, &running, &path), Err(ReloadError::NeedsRestart("name"))));
    assert_eq!(look(), (200, 1), "nothing has changed");
    write("/limits", serde_json::json!({"turnsPerDay": 7}));
    reload(&current, &running, &path).expect("ceilings change");
    write("/discord/users", serde_json::json!({OWNER: "Owner", BOT: "Partner"}));
    reload(&current, &running, &path).expect("users change");
    assert_eq!(look(), (200, 2));
}
