//! The connector as a unit, and both together: a message in a channel ends as a pushed commit.

use harness::discord::{FakeDiscord, Fault, Gate, route};
use harness::systemd::SystemdBox;
use serde_json::{Value, json};

use super::{Instance, users};

/// A guild in the box's network, and the binding of an instance for it.
pub(super) struct Guild {
    pub(super) fake: FakeDiscord,
    channel: u64,
    owner: u64,
}

impl Guild {
    pub(super) fn new(inside: &SystemdBox, instance: &Instance) -> Self {
        let fake = inside.in_network(|| FakeDiscord::start().expect("loopback has ports"));
        fake.clock(|clock| clock.run(1));
        let guild = fake.guild("Guild");
        let (channel, owner) = (fake.channel(guild, "strategy"), fake.user("Owner"));
        let name = &instance.name;
        let binding = json!({
            "name": name,
            "dataRoot": "/var/lib/sage-connector",
            "executor": {"socket": format!("/run/sage/{name}/executor.sock")},
            "engine": {"kind": "rules"},
            "terminal": {"requester": "Owner"},
            "discord": {
                "guild": guild.to_string(),
                "bot": FakeDiscord::BOT.to_string(),
                "channels": {channel.to_string(): "all"},
                "users": {owner.to_string(): "Owner"},
                "token": {"credential": "discord-token"},
                "restUrl": fake.rest_url(),
                "gatewayUrl": fake.gateway_url(),
            },
        });
        let file = inside.shared().join("binding");
        std::fs::write(&file, binding.to_string()).expect("it is ours");
        inside.run(&format!(
            "install -m 0600 -o sage-connector {} /etc/sage/{name}/binding.json
             echo {} > /etc/sage/{name}/discord-token; chmod 0600 /etc/sage/{name}/discord-token",
            file.display(),
            FakeDiscord::TOKEN
        ));
        Self { fake, channel, owner }
    }

    pub(super) fn say(&self, text: &str) -> u64 {
        self.fake.post(self.channel, self.owner, text)
    }

    pub(super) fn answer(&self, message: u64) -> String {
        let answered = |seen: &harness::discord::Seen| -> Option<String> {
            let sent = seen.from_bot().into_iter().find(|sent| sent.reference == Some(message));
            sent.map(|sent| sent.content.clone())
        };
        let seen = self.fake.wait("it is answered", |seen| answered(seen).is_some());
        answered(&seen).expect("it is there")
    }
}

/// A binding that serves a guild, both programs as units; the connector's.
fn serving(inside: &SystemdBox) -> (Instance, Guild, String) {
    users(inside);
    let notes = Instance::new(inside, "notes");
    let guild = Guild::new(inside, &notes);
    notes.start_socket(inside);
    let unit = started(inside, &notes, &guild);
    (notes, guild, unit)
}

fn started(inside: &SystemdBox, instance: &Instance, guild: &Guild) -> String {
    let unit = instance.unit("sage-connector", "service");
    let before = guild.fake.seen().gateway.readies;
    let started = inside.try_run(&format!("systemctl start '{unit}'"));
    assert!(started.status.success(), "{started:?}\n{}", inside.journal(&unit));
    guild.fake.wait("it is ready", |seen| seen.gateway.readies > before);
    unit
}

#[test]
fn a_message_in_a_channel_ends_as_a_pushed_commit_with_both_as_units() {
    message_ends_as_a_commit(&SystemdBox::new());
}

pub(super) fn message_ends_as_a_commit(inside: &SystemdBox) {
    let (notes, guild, unit) = serving(inside);
    assert_eq!(inside.property(&unit, "ActiveState"), "active", "it said that it is ready");
    assert_eq!(inside.property(&unit, "StatusText"), "connected");
    let answer = guild.answer(guild.say("write strategy/plan.md: From Discord"));
    assert!(answer.contains("Created plan.md"), "{answer}");
    let answer = guild.answer(guild.say("commit strategy/plan.md: A plan from Discord"));
    assert!(answer.contains("pushed to origin/main"), "{answer}");
    assert_eq!(notes.remote_subject(inside), "A plan from Discord");

    // Nothing of it is in sight of the other one, and the bot's token is nobody's but its own.
    let pid = inside.property(&unit, "MainPID");
    let sees = |path: &str| inside.try_run(&format!("nsenter -t {pid} -m test -e {path}"));
    for hidden in [
        "/etc/sage/notes/executor.json",
        "/etc/sage/notes/git-token",
        "/srv/sage/notes/strategy/README.md",
        "/var/lib/sage-executor/notes/audit.jsonl",
        "/run/dbus/system_bus_socket",
        "/run/systemd/private",
    ] {
        inside.run(&format!("test -e {hidden}"));
        assert!(!sees(hidden).status.success(), "{hidden}");
    }
    assert!(sees("/run/sage/notes/executor.sock").status.success());
    let said = inside.journal(&unit);
    assert!(!said.contains(FakeDiscord::TOKEN) && !said.contains("From Discord"), "{said}");

    inside.run(&format!("systemctl stop '{unit}'"));
    assert_eq!(inside.property(&unit, "Result"), "success");
}

#[test]
fn a_killed_connector_comes_back_by_itself_and_one_that_a_person_stopped_does_not() {
    is_killed_and_is_stopped(&SystemdBox::new());
}

pub(super) fn is_killed_and_is_stopped(inside: &SystemdBox) {
    let (_notes, guild, unit) = serving(inside);
    let before = guild.fake.seen().gateway.readies;
    inside.run(&format!("kill -KILL {}", inside.property(&unit, "MainPID")));
    // The dead one's lock is cleared on the way.
    guild.fake.wait("it is back", |seen| seen.gateway.readies > before);
    let answer = guild.answer(guild.say("git status of strategy"));
    assert!(answer.contains("Nothing to commit"), "{answer}");

    let binding = "/etc/sage/notes/binding.json";
    // As the user whose binding it is: root is refused, and would leave files that are nobody else's.
    assert!(!inside.try_run(&format!("sage-connector stop --binding {binding}")).status.success());
    let stop = format!("sage-connector stop --binding {binding}");
    let stopped = inside.try_run_as("sage-connector", &stop);
    assert!(stopped.status.success(), "{stopped:?}");
    inside.until("it has ended", |inside| inside.property(&unit, "ActiveState") != "active");
    inside.until("it stays so", |inside| {
        matches!(inside.property(&unit, "ActiveState").as_str(), "failed" | "inactive")
    });
    let started = inside.try_run(&format!("systemctl start '{unit}'"));
    assert!(!started.status.success(), "an operator's STOP stands");
    inside.until("it has failed", |inside| inside.property(&unit, "ActiveState") == "failed");
    assert_eq!(inside.property(&unit, "ExecMainStatus"), "3");
    let restarts = inside.property(&unit, "NRestarts");
    inside.run("rm /var/lib/sage-connector/notes/STOP");
    inside.run(&format!("systemctl reset-failed '{unit}'"));
    assert_eq!(inside.property(&unit, "NRestarts"), "0", "it was {restarts}");
    let before = guild.fake.seen().gateway.readies;
    inside.run(&format!("systemctl start '{unit}'"));
    guild.fake.wait("it serves again", |seen| seen.gateway.readies > before);
}

#[test]
fn a_reload_reads_the_binding_anew_and_a_stop_lets_the_turn_end() {
    let inside = SystemdBox::new();
    let (_notes, guild, unit) = serving(&inside);
    let binding = "/etc/sage/notes/binding.json";
    inside.run(&format!(
        "python3 - <<'EDIT'\nimport json\nwith open('{binding}', 'r+') as f:\n b = json.load(f)\n \
         b['limits'] = {{'turnsPerDay': 1}}\n f.seek(0)\n f.truncate()\n json.dump(b, f)\nEDIT"
    ));
    inside.run(&format!("systemctl reload '{unit}'"));
    inside.until("it was read", |inside| inside.journal(&unit).contains("was read anew"));
    let line = inside.run(&format!(
        "journalctl --no-pager --output=json --unit '{unit}' | grep 'was read anew'"
    ));
    let line: Value = serde_json::from_str(line.trim()).expect("one line of JSON");
    assert_eq!(line["PRIORITY"], "6", "the journal knows how grave a line is");
    let text = line["MESSAGE"].as_str().expect("it is text").trim_start();
    assert!(text.starts_with("INFO"), "the time is the journal's own: {text}");
    let first = guild.say("git status of strategy");
    assert!(guild.answer(first).contains("Nothing to commit"));
    let second = guild.say("git status of strategy");
    assert!(guild.answer(second).contains("all for today"), "the new limit counts");
    inside.run(&format!("systemctl stop '{unit}'"));
    assert_eq!(inside.property(&unit, "Result"), "success");
}

#[test]
fn a_stop_in_the_middle_of_a_turn_lets_its_answer_arrive() {
    let inside = SystemdBox::new();
    let (_notes, guild, unit) = serving(&inside);
    let gate = Gate::default();
    guild.fake.fault(route("POST", "/channels/*/messages"), Fault::HoldRequest(gate.clone()));
    let message = guild.say("git status of strategy");
    guild.fake.wait("the answer is on its way", |seen| {
        !seen.requests_to("POST", "/channels/*/messages").is_empty()
    });
    inside.run(&format!("systemctl stop --no-block '{unit}'"));
    inside.until("it is about to end", |inside| {
        inside.property(&unit, "ActiveState") == "deactivating"
    });
    let late = guild.say("git status of strategy");
    gate.open();
    assert!(guild.answer(message).contains("Nothing to commit"));
    inside.until("it has ended", |inside| inside.property(&unit, "ActiveState") == "inactive");
    assert_eq!(inside.property(&unit, "Result"), "success");
    let folder = "/var/lib/sage-connector/notes";
    inside.run(&format!("test -f {folder}/turns/{message}.json && test ! -e {folder}/run.lock"));
    assert!(!inside.try_run(&format!("test -e {folder}/turns/{late}.json")).status.success());
    assert_eq!(guild.fake.seen().from_bot().len(), 1, "what came after the stop is passed over");
}
