//! Who is heard, and what is said back, over the wire: every row of the authorisation table, and every
//! line that is no answer.

use harness::discord::{Channel, FakeDiscord};
use harness::model::{ModelServer, Reply};
use harness::service::{Place, until};
use harness::world::World;
use jiff::{SignedDuration, Timestamp};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::place;

const QUESTION: &str = "git status of strategy";

/// A place whose answers are a model's.
fn scripted(replies: &[&str]) -> (World, Place, ModelServer) {
    let (world, mut place) = place();
    let model = ModelServer::start(replies.iter().map(|text| Reply::say(text)));
    let section = json!({"baseUrl": model.base_url(), "model": "m1"});
    place.change(|binding| binding["engine"] = json!({"kind": "openai", "openai": section}));
    (world, place, model)
}

/// A row: what it is, the message's id, and the rule it falls under, if any.
type Row = (&'static str, u64, Option<&'static str>);

/// People and places beyond the first.
struct Guild {
    _world: World,
    place: Place,
    partner: u64,
    stranger: u64,
    bot: u64,
    /// In mention mode.
    quiet: u64,
    /// Listed nowhere.
    other: u64,
}

impl Guild {
    fn new() -> Self {
        let (world, mut place) = place();
        let fake = &place.fake;
        let (quiet, other) = (fake.channel(place.guild, "quiet"), fake.channel(place.guild, "o"));
        // A name is anybody's: the stranger has the owner's.
        let (partner, stranger) = (fake.user("Partner"), fake.user("Owner"));
        let bot = fake.other_bot("Helper");
        place.change(|binding| {
            binding["discord"]["channels"][quiet.to_string()] = json!("mention");
            binding["discord"]["users"][partner.to_string()] = json!("Partner");
            binding["discord"]["users"][bot.to_string()] = json!("Owner");
        });
        Self { _world: world, place, partner, stranger, bot, quiet, other }
    }

    fn say(&self, channel: u64, author: u64) -> u64 {
        self.place.fake.post(channel, author, QUESTION)
    }

    fn owner_says(&self, channel: u64, change: impl FnOnce(&mut Value)) -> u64 {
        self.place.fake.post_with(channel, self.place.owner, QUESTION, change)
    }

    /// With this in the event.
    fn with(&self, key: &str, value: Value) -> u64 {
        self.owner_says(self.place.channel, |event| event[key] = value)
    }

    fn mentioning(&self, channel: u64, who: Value) -> u64 {
        self.owner_says(channel, |event| event["mentions"] = json!([{"id": who}]))
    }

    /// A thread that the gateway told nothing of.
    fn unseen_thread(&self, parent: u64) -> u64 {
        let (guild, parent) = (Some(self.place.guild), Some(parent));
        let thread = Channel { kind: 11, guild, parent, hidden: true, ..Channel::default() };
        let thread = self.place.fake.add(thread);
        self.place.fake.change_channel(thread, |channel| channel.hidden = false);
        thread
    }

    fn people(&self) -> Vec<Row> {
        let strategy = self.place.channel;
        let me = json!(FakeDiscord::BOT.to_string());
        let system = json!({"id": self.place.owner.to_string(), "system": true});
        vec![
            ("the owner", self.say(strategy, self.place.owner), None),
            ("the partner", self.say(strategy, self.partner), None),
            ("a reply", self.with("type", json!(19)), None),
            ("a stranger with the owner's name", self.say(strategy, self.stranger), UNLISTED),
            ("a bot that is listed", self.say(strategy, self.bot), Some("bot")),
            ("Sage itself", self.say(strategy, FakeDiscord::BOT), Some("bot")),
            ("Sage, under a listed name", self.with("author", json!({"id": me})), Some("bot")),
            ("Discord itself", self.with("author", system), Some("bot")),
            ("a webhook", self.with("webhook_id", json!("77")), Some("webhook")),
            ("no author", self.with("author", Value::Null), UNLISTED),
        ]
    }

    fn places(&self) -> Vec<Row> {
        let (fake, owner) = (&self.place.fake, self.place.owner);
        let strategy = self.place.channel;
        let thread = fake.thread(strategy, "A thread");
        let (guild, parent) = (Some(self.place.guild), Some(strategy));
        let private = fake.add(Channel { kind: 12, guild, parent, ..Channel::default() });
        let elsewhere = fake.thread(self.other, "Another thread");
        let foreign = fake.guild("Another guild");
        let abroad = fake.channel(foreign, "strategy");
        let direct = fake.add(Channel { kind: 1, ..Channel::default() });
        let letter = self.say(direct, owner);
        // The connector does not ask for these; here one comes all the same.
        fake.dispatch("MESSAGE_CREATE", &fake.message_event(letter).expect("it is there"));
        vec![
            ("a thread", self.say(thread, owner), None),
            ("a private thread", self.say(private, owner), None),
            ("another channel", self.say(self.other, owner), Some("unlistedChannel")),
            ("its thread", self.say(elsewhere, owner), Some("unlistedChannel")),
            ("another guild", self.say(abroad, owner), Some("otherGuild")),
            ("a direct message", letter, Some("directMessage")),
            ("quiet, no mention", self.say(self.quiet, owner), Some("notMentioned")),
        ]
    }

    fn mentions(&self) -> Vec<Row> {
        let me = json!(FakeDiscord::BOT.to_string());
        let other = json!(self.bot.to_string());
        let thread = self.place.fake.thread(self.quiet, "A quiet thread");
        let everyone = |event: &mut Value| event["mention_everyone"] = json!(true);
        let role = |event: &mut Value| event["mention_roles"] = json!(["1"]);
        let answer = |event: &mut Value| {
            event["type"] = json!(19);
            event["mentions"] = json!([{"id": FakeDiscord::BOT.to_string()}]);
        };
        vec![
            ("quiet, a mention", self.mentioning(self.quiet, me.clone()), None),
            ("quiet, of another", self.mentioning(self.quiet, other), NOT_MENTIONED),
            ("quiet, of everyone", self.owner_says(self.quiet, everyone), NOT_MENTIONED),
            ("quiet, of a role", self.owner_says(self.quiet, role), NOT_MENTIONED),
            ("quiet, a reply that pings", self.owner_says(self.quiet, answer), None),
            ("quiet's thread", self.owner_says(thread, |_| {}), NOT_MENTIONED),
            ("quiet's thread, a mention", self.mentioning(thread, me.clone()), None),
            ("a mention where none is needed", self.mentioning(self.place.channel, me), None),
        ]
    }

    /// What nobody wrote (C09).
    fn kinds(&self) -> Vec<Row> {
        let kind = |number: u64| self.with("type", json!(number));
        let named =
            self.place.fake.post_with(self.place.channel, self.place.owner, "?help", |it| {
                it["type"] = json!(18);
            });
        let without = self.owner_says(self.place.channel, |event| {
            event.as_object_mut().expect("an object").remove("type");
        });
        vec![
            ("a pin", kind(6), SYSTEM),
            ("a join", kind(7), SYSTEM),
            ("a thread's name", named, SYSTEM),
            ("a thread's stub", kind(21), SYSTEM),
            ("a slash command", kind(20), SYSTEM),
            ("a type of the future", kind(1000), SYSTEM),
            ("no type", without, SYSTEM),
        ]
    }
}

const UNLISTED: Option<&str> = Some("unlistedAuthor");
const SYSTEM: Option<&str> = Some("systemMessage");
const NOT_MENTIONED: Option<&str> = Some("notMentioned");

fn lines(place: &Place, file: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(place.folder().join(file)).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
}

/// The rule that a message fell under, by the drops.
fn rule(place: &Place, message: u64) -> Option<String> {
    let drops = lines(place, "drops.jsonl");
    let line = drops.iter().find(|line| line["id"] == message.to_string().as_str())?;
    assert_eq!(line["told"], false);
    Some(line["reason"]["rule"].as_str().expect("a rule").to_owned())
}

fn replies(place: &Place, message: u64) -> Vec<String> {
    let seen = place.fake.seen();
    let ours = seen.from_bot().into_iter().filter(|sent| sent.reference == Some(message));
    ours.map(|sent| sent.content.clone()).collect()
}

/// Nothing that Sage sent can ping anybody, or be sent twice; each answers a message.
fn sent_with_care(place: &Place) {
    let seen = place.fake.seen();
    for request in seen.requests_to("POST", "/channels/*/messages") {
        let body = &request.body;
        assert_eq!(body["allowed_mentions"], json!({"parse": []}), "{body}");
        assert_eq!(body["enforce_nonce"], true, "{body}");
        let nonce = body["nonce"].as_str().expect("a text");
        let answered = body["message_reference"]["message_id"].as_str().expect("a reference");
        assert!(nonce.len() <= 25 && nonce.starts_with(&format!("{answered}-")), "{body}");
        assert_eq!(body["message_reference"]["fail_if_not_exists"], false, "{body}");
    }
}

#[test]
fn who_is_heard_where_is_what_the_table_says_row_by_row() {
    let it = Guild::new();
    let sage = it.place.start();
    let mut rows = it.people();
    rows.extend(it.places());
    rows.extend(it.mentions());
    rows.extend(it.kinds());
    assert!(rows.len() >= 20);
    let last = it.place.say(QUESTION);
    assert_eq!(it.place.answers(last).len(), 1);
    let heard = 1 + rows.iter().filter(|(.., rule)| rule.is_none()).count();
    it.place.fake.wait("each turn is shown", |seen| seen.reactions.len() >= heard);
    for (what, message, expected) in rows {
        assert_eq!(rule(&it.place, message).as_deref(), expected, "{what}");
        let heard = usize::from(expected.is_none());
        assert_eq!(replies(&it.place, message).len(), heard, "{what}");
        let seen = it.place.fake.seen();
        let eyes = seen.reactions.iter().filter(|reaction| reaction.message == message).count();
        assert_eq!(eyes, heard, "{what}: a drop gets no sign");
    }
    let seen = it.place.fake.seen();
    assert!(seen.requests_to("GET", "/channels/*").is_empty(), "all these places were told of");
    sent_with_care(&it.place);
    drop(sage);
}

#[test]
fn a_place_that_nobody_told_of_is_looked_up_once_and_never_for_a_stranger() {
    let it = Guild::new();
    let _sage = it.place.start();
    let strangers = it.unseen_thread(it.place.channel);
    let theirs = it.say(strangers, it.stranger);
    let ours = it.unseen_thread(it.place.channel);
    let heard = [it.say(ours, it.place.owner), it.say(ours, it.partner)];
    let outside = it.unseen_thread(it.other);
    let unheard = [it.say(outside, it.place.owner), it.say(outside, it.place.owner)];
    for message in heard {
        assert_eq!(it.place.answers(message).len(), 1);
    }
    let last = it.place.say(QUESTION);
    assert_eq!(it.place.answers(last).len(), 1);
    assert_eq!(rule(&it.place, theirs).as_deref(), UNLISTED);
    for message in unheard {
        assert_eq!(rule(&it.place, message).as_deref(), Some("unlistedChannel"));
    }
    let seen = it.place.fake.seen();
    let paths: Vec<_> = seen.requests_to("GET", "/channels/*").iter().map(|it| &it.path).collect();
    assert_eq!(paths, [&format!("/channels/{ours}"), &format!("/channels/{outside}")]);
}

#[test]
fn what_is_no_text_or_too_much_of_it_gets_its_fixed_line_and_no_turn() {
    let (_world, place) = place();
    let _sage = place.start();
    let picture = |event: &mut Value| event["attachments"] = json!([{"filename": "a.png"}]);
    let picture = place.fake.post_with(place.channel, place.owner, "", picture);
    let long = place.say(&"é".repeat(4001));
    let whole = place.say(&format!("help{}", " ".repeat(3996)));
    assert_eq!(place.answers(whole).len(), 1, "4000 characters are read");
    for (message, letter, words) in [(picture, 'a', "attachments"), (long, 'b', "4000 characters")]
    {
        let nonce = format!("{message}-{letter}");
        place.fake.wait("the fixed line is there", |seen| seen.with_nonce(&nonce) == 1);
        let said = replies(&place, message);
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains(words), "{said:?}");
        assert!(!place.folder().join(format!("turns/{message}.json")).exists());
    }
    let seen = place.fake.wait("the turn is shown as received", |it| !it.reactions.is_empty());
    assert!(seen.reactions.iter().all(|reaction| reaction.message == whole), "and nothing else");
    sent_with_care(&place);
}

#[test]
fn an_edit_starts_no_turn_and_a_preview_is_no_edit() {
    let (_world, place) = place();
    let _sage = place.start();
    let message = place.say(QUESTION);
    assert_eq!(place.answers(message).len(), 1);
    // Discord tells of a link's preview in the same words, without a time.
    let preview = place.fake.message_event(message).expect("it is there");
    assert_eq!(preview["edited_timestamp"], Value::Null);
    place.fake.dispatch("MESSAGE_UPDATE", &preview);
    place.fake.edit(message, "list roots");
    let last = place.say(QUESTION);
    assert_eq!(place.answers(last).len(), 1);
    assert_eq!(replies(&place, message).len(), 1, "one turn");
    // Beside Sage's own answers, which come back to it.
    let drops = lines(&place, "drops.jsonl").into_iter().map(|line| line["reason"].clone());
    let drops: Vec<_> = drops.filter(|reason| reason["rule"] != "bot").collect();
    assert_eq!(drops, [json!({"rule": "edit"})], "the edit alone");
}

#[test]
fn what_is_written_during_a_turn_is_received_at_once_and_answered_after_it_in_order() {
    let (world, place) = place();
    let _sage = place.start();
    let held = world.hold();
    let asked = [1, 2, 3].map(|_| place.say(QUESTION));
    place.fake.wait("all are received", |seen| seen.reactions.len() == 3);
    place.fake.wait("somebody writes", |seen| !seen.typing.is_empty());
    assert!(place.fake.seen().from_bot().is_empty(), "the first turn is under way");
    drop(held);
    for message in asked {
        assert_eq!(place.answers(message).len(), 1);
    }
    let order: Vec<_> = place.fake.seen().from_bot().iter().map(|sent| sent.reference).collect();
    assert_eq!(order, asked.map(Some));
}

#[test]
fn a_turn_that_takes_too_long_says_its_line_and_the_next_one_is_answered() {
    let (_world, mut place, model) = scripted(&[]);
    model.add([Reply::silent(), Reply::say("Good day.")]);
    place.change(|binding| binding["limits"] = json!({"turnTimeoutSeconds": 5}));
    let _sage = place.start();
    let slow = place.say("Think.");
    let said = place.answers(slow);
    assert!(said[0].contains("took too long"), "{said:?}");
    assert_eq!(place.record(slow)["outcome"]["state"], "timedOut");
    assert_eq!(place.fake.seen().with_nonce(&format!("{slow}-f")), 1);
    let next = place.say("Again.");
    assert_eq!(place.answers(next), ["Good day."]);
    sent_with_care(&place);
}

/// Makes everything in the journal a day older.
fn a_day_later(place: &Place) {
    for file in ["inbox.jsonl", "admissions.jsonl", "drops.jsonl", "outbox.jsonl"] {
        let older = lines(place, file).into_iter().map(|mut line| {
            let at: Timestamp = line["at"].as_str().expect("a time").parse().expect("a time");
            line["at"] = json!(at - SignedDuration::from_hours(24));
            format!("{line}\n")
        });
        let text: String = older.collect();
        std::fs::write(place.folder().join(file), text).expect("it is ours");
    }
}

fn turns_today(place: &Place) -> Value {
    let said = place.command(&["status", "--json"]);
    let status: Value = serde_json::from_slice(&said.stdout).expect("JSON");
    status["turnsToday"].clone()
}

#[test]
fn over_the_ceiling_one_line_is_said_a_day_and_the_next_day_counts_anew() {
    let (_world, mut place) = place();
    place.change(|binding| binding["limits"] = json!({"turnsPerDay": 2}));
    let mut sage = place.start();
    let [first, second, third, fourth] = [1, 2, 3, 4].map(|_| place.say(QUESTION));
    for message in [first, second] {
        assert!(place.answers(message)[0].contains("Nothing to commit"));
    }
    let line = format!("{third}-c");
    place.fake.wait("the line is said", |seen| seen.with_nonce(&line) == 1);
    assert!(replies(&place, third)[0].contains("2 turns a day"));
    sage.signal(Signal::SIGTERM);
    assert_eq!(sage.ended(), Some(0));
    // A restart forgets neither the count nor that the line was said.
    let mut sage = place.start();
    let fifth = place.say(QUESTION);
    until("the fifth gets its drop line", || {
        lines(&place, "drops.jsonl").iter().any(|line| line["id"] == fifth.to_string().as_str())
    });
    assert_eq!(turns_today(&place), 2);
    sage.signal(Signal::SIGTERM);
    assert_eq!(sage.ended(), Some(0));
    for message in [fourth, fifth] {
        assert!(replies(&place, message).is_empty(), "once a day");
    }
    a_day_later(&place);
    assert_eq!(turns_today(&place), 0);
    let _sage = place.start();
    let next = place.say(QUESTION);
    assert!(place.answers(next)[0].contains("Nothing to commit"));
    assert_eq!(turns_today(&place), 1);
    sent_with_care(&place);
}

#[test]
fn a_long_answer_comes_in_parts_with_whole_fences_and_a_model_can_ping_nobody() {
    let rows: Vec<String> = (0..300).map(|row| format!("let row_{row} = {row};")).collect();
    let block = format!("Here:\n```rust\n{}\n```\nThat was all.", rows.join("\n"));
    let info = format!("```{}\nx = 1\n```", "i".repeat(1500));
    let ping = "@everyone @here <@&1> <@2>";
    let (_world, place, model) = scripted(&[&block, &info, ping]);
    let _sage = place.start();
    let asked = [1, 2, 3].map(|_| place.say("Go on."));
    let parts = place.answers(asked[0]);
    assert!(parts.len() > 2, "{}", parts.len());
    for part in &parts {
        assert!(part.encode_utf16().count() <= 2000);
        assert_eq!(part.matches("```").count() % 2, 0, "{part}");
    }
    let all = parts.join("\n");
    let mut found = all.lines().filter(|line| line.starts_with("let row_"));
    assert!(rows.iter().all(|row| found.next() == Some(row)), "every line, in order: {all}");
    let nonces: Vec<_> = place.fake.seen().from_bot().iter().map(|it| it.nonce.clone()).collect();
    let expected = (1..=parts.len()).map(|number| Some(format!("{}-{number}", asked[0])));
    assert!(nonces.iter().take(parts.len()).cloned().eq(expected), "{nonces:?}");
    let parts = place.answers(asked[1]);
    assert!(parts.iter().all(|part| part.encode_utf16().count() <= 2000), "{parts:?}");
    assert!(parts.concat().contains("x = 1"), "{parts:?}");
    assert_eq!(place.answers(asked[2]), [ping], "said, and without effect");
    sent_with_care(&place);
    model.assert_played();
}

#[test]
fn a_stop_file_that_somebody_makes_by_hand_keeps_every_message_out_until_it_is_gone() {
    let (_world, place) = place();
    let _sage = place.start();
    let brake = place.folder().join("STOP");
    std::fs::write(&brake, "by hand\n").expect("it is ours");
    let message = place.say(QUESTION);
    until("it is passed over", || !lines(&place, "drops.jsonl").is_empty());
    let why = place.command(&["why", &message.to_string()]);
    let why = String::from_utf8_lossy(&why.stdout).into_owned();
    assert!(why.contains("the brake was on"), "{why}");
    std::fs::remove_file(&brake).expect("it is there");
    let next = place.say(QUESTION);
    assert_eq!(place.answers(next).len(), 1);
    assert!(replies(&place, message).is_empty(), "nothing is made up for");
}
