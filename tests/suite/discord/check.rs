//! `check`: everything that can be wrong is made wrong once, and its line says what to do.

use harness::discord::{FakeDiscord, OnIdentify};
use harness::service::Place;
use harness::world::World;
use serde_json::{Value, json};

/// The lines that are not good, and the exit code.
fn wrong(place: &Place) -> (Vec<String>, Option<i32>) {
    let said = place.command(&["check", "--json"]);
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    let facts: Vec<Value> = serde_json::from_str(&text)
        .unwrap_or_else(|_| panic!("{text}{}", String::from_utf8_lossy(&said.stderr)));
    let wrong = facts.iter().filter(|fact| fact["ok"] == false);
    let line = |fact: &Value| {
        let part = |key: &str| fact[key].as_str().expect("a text").to_owned();
        format!("{} → {}", part("what"), part("next"))
    };
    (wrong.map(line).collect(), said.status.code())
}

/// Exactly one thing is wrong, and this is said of it.
fn says(place: &Place, parts: &[&str]) {
    let (lines, code) = wrong(place);
    assert_eq!(code, Some(1));
    assert_eq!(lines.len(), 1, "{lines:?}");
    for part in parts {
        assert!(lines[0].contains(part), "{part}: {lines:?}");
    }
}

#[test]
fn what_is_wrong_has_its_line_and_its_next_step_and_nothing_is_said_in_a_channel() {
    let mut world = World::builder().build();
    let mut place = Place::new(world.base(), &world.socket());
    assert_eq!(wrong(&place), (Vec::new(), Some(0)), "all is well to begin with");
    let shown = place.command(&["check"]);
    assert!(String::from_utf8_lossy(&shown.stdout).lines().all(|line| line.starts_with('✓')));

    place.fake.change_channel(place.channel, |channel| channel.hidden = true);
    says(&place, &["not in sight", "View Channel"]);
    place.fake.change_channel(place.channel, |channel| channel.hidden = false);

    let everyone = place.guild.to_string();
    let deny = json!({"id": everyone, "type": 0, "allow": "0", "deny": (1 << 11).to_string()});
    place.fake.change_channel(place.channel, |channel| channel.overwrites = vec![deny.clone()]);
    says(&place, &["lacks permissions", "Send Messages"]);
    let own = json!({
        "id": FakeDiscord::BOT.to_string(), "type": 1, "allow": (1 << 11).to_string(), "deny": "0",
    });
    place.fake.change_channel(place.channel, |channel| channel.overwrites = vec![deny, own]);
    assert_eq!(wrong(&place).0, [""; 0], "the bot's own overwrite counts last");

    place.fake.gateway(|script| script.on_identify.push_back(OnIdentify::Close(4014)));
    says(&place, &["no gateway", "Message Content Intent"]);

    let another = place.fake.other_bot("Another").to_string();
    let bot = FakeDiscord::BOT.to_string();
    place.change(|binding| binding["discord"]["bot"] = json!(another));
    says(&place, &["another bot", "`discord.bot`"]);
    place.change(|binding| binding["discord"]["bot"] = json!(bot));

    let owner = place.owner.to_string();
    place.change(|binding| binding["discord"]["users"][owner.as_str()] = json!("Stranger"));
    says(&place, &["speak for Stranger", "`peers`"]);
    place.change(|binding| binding["discord"]["users"][owner.as_str()] = json!("Owner"));

    place.fake.token_valid(false);
    says(&place, &["does not take the token", "developer portal"]);
    place.fake.token_valid(true);

    assert!(place.command(&["stop"]).status.success());
    says(&place, &["brake", "rm "]);
    std::fs::remove_file(place.folder().join("STOP")).expect("it is there");

    crate::stop::stop(&world);
    says(&place, &["the executor is stopped", "sage-executor resume"]);
    let status = place.command(&["status"]);
    let status = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(status.contains("executor   stopped by ") && status.contains("resume"), "{status}");
    crate::stop::resume(&world);

    world.kill_executor();
    let status = place.command(&["status", "--json"]);
    let status: Value = serde_json::from_slice(&status.stdout).expect("it is JSON");
    assert_eq!(status["executor"], "away");
    says(&place, &["no executor", "is sage-executor running?"]);

    let seen = place.fake.seen();
    assert!(seen.requests.iter().all(|request| request.method == "GET"), "it only looks");
    assert!(seen.from_bot().is_empty());
}
