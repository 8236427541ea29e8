//! `check`: is everything there that a conversation needs? One line per fact, and the next step for each
//! that is wrong.
//!
//! It connects, looks and leaves: nothing is said in any channel, no model runs, no tool is called.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use protocol::service::Stopped;
use serde_json::{Value, json};

use crate::binding::{Binding, Discord, Token};
use crate::discord::gateway::{self, Happened};
use crate::discord::rest::{Attempt, Rest};
use crate::engine::AnyEngine;
use crate::owner::{self, Standing};
use crate::render::one_line;
use crate::tools::Tools;

/// How long the gateway may take to be ready, or to say why not.
const PATIENCE: Duration = Duration::from_secs(40);

/// What the bot needs in a channel: Discord's names and bits.
const NEEDED: [(&str, u64); 5] = [
    ("View Channel", 1 << 10),
    ("Send Messages", 1 << 11),
    ("Read Message History", 1 << 16),
    ("Add Reactions", 1 << 6),
    ("Send Messages in Threads", 1 << 38),
];

/// Everything at once.
const ADMINISTRATOR: u64 = 1 << 3;

/// One fact.
#[derive(Debug)]
struct Fact {
    what: String,
    /// Why not and what to do; nothing when it holds.
    wrong: Option<String>,
}

/// The facts as text or JSON, and whether all of them hold.
pub(crate) async fn check(path: &Path, as_json: bool) -> Result<(String, bool)> {
    let binding = Binding::load(path)?;
    let mut facts = vec![holds(format!("the binding {} is valid", path.display()))];
    facts.push(brake(&binding));
    facts.extend(executor(&binding).await);
    facts.push(engine(&binding).await);
    match &binding.discord {
        None => facts.push(holds("no `discord` section: the terminal alone".to_owned())),
        Some(section) => facts.extend(discord(section).await),
    }
    let good = facts.iter().all(|fact| fact.wrong.is_none());
    Ok((if as_json { shown_json(&facts) } else { shown(&facts) }, good))
}

fn holds(what: String) -> Fact {
    Fact { what, wrong: None }
}

fn fails(what: impl Into<String>, why: impl Into<String>) -> Fact {
    Fact { what: what.into(), wrong: Some(why.into()) }
}

fn shown(facts: &[Fact]) -> String {
    let mut text = String::new();
    for fact in facts {
        match &fact.wrong {
            None => writeln!(text, "✓ {}", one_line(&fact.what)),
            Some(why) => writeln!(text, "✗ {}\n  {}", one_line(&fact.what), one_line(why)),
        }
        .unwrap_or_default();
    }
    text
}

fn shown_json(facts: &[Fact]) -> String {
    let fact =
        |fact: &Fact| json!({"what": fact.what, "ok": fact.wrong.is_none(), "next": fact.wrong});
    format!("{:#}\n", Value::from(facts.iter().map(fact).collect::<Vec<_>>()))
}

fn brake(binding: &Binding) -> Fact {
    let folder = binding.folder();
    if owner::is_stopped(&folder) {
        let gate = folder.join("STOP");
        return fails("the brake is on", format!("to release it, run: rm {}", gate.display()));
    }
    match owner::standing(&folder) {
        Ok(Standing::Stale) => fails(
            "a process that is gone left its lock",
            "run: sage-connector unlock (a service with --supervised does it by itself)",
        ),
        Ok(Standing::Unknown(_) | Standing::Invalid) => fails(
            "who holds the binding cannot be told",
            "see `sage-connector status`; end that process, then run: sage-connector unlock",
        ),
        Ok(Standing::Live(owner)) => holds(format!("it runs, as process {}", owner.pid)),
        Ok(Standing::Free | Standing::Claiming) => holds("it is free to start".to_owned()),
        Err(error) => fails("the binding's folder cannot be read", error.to_string()),
    }
}

/// How the executor stands, as seen from here.
#[derive(Debug)]
pub(crate) enum Reach {
    /// It answers.
    Answers,
    /// It answers, and an operator's stop stands.
    Stopped(Stopped),
    /// It does not, and why.
    Away(String),
}

/// Asks the executor how it stands, for not too long.
pub(crate) async fn reach(binding: &Binding) -> Reach {
    let mut tools = Tools::new(binding.executor.socket.clone());
    match tokio::time::timeout(Duration::from_secs(5), tools.describe()).await {
        Ok(Ok(description)) => description.stopped.map_or(Reach::Answers, Reach::Stopped),
        Ok(Err(error)) => Reach::Away(error.to_string()),
        Err(_) => Reach::Away("it does not answer".to_owned()),
    }
}

async fn executor(binding: &Binding) -> Vec<Fact> {
    let socket = binding.executor.socket.display().to_string();
    let described = Tools::new(binding.executor.socket.clone()).describe().await;
    let described = match described {
        Ok(described) => described,
        Err(error) => return vec![fails(format!("no executor at {socket}"), error.to_string())],
    };
    let roots: Vec<&str> = described.roots.iter().map(|root| root.name.as_str()).collect();
    let mut facts = vec![holds(format!("the executor answers; roots: {}", roots.join(", ")))];
    let users = binding.discord.iter().flat_map(|section| section.users.values());
    for name in users.chain([&binding.terminal.requester]) {
        if !described.requesters.contains(name) {
            facts.push(fails(
                format!("the executor lets nobody here speak for {name}"),
                "add it to `requesters` of this user's entry in `peers`, in the executor's \
                 configuration, or correct the name in the binding",
            ));
        }
    }
    if let Some(stop) = &described.stopped {
        facts.push(fails(
            "the executor is stopped: it only reads",
            format!("{} did so at {}; `sage-executor resume` lifts it", stop.by, stop.since),
        ));
    }
    if !described.degraded.is_empty() {
        let missing = described.degraded.join("; ");
        facts.push(fails("the executor is DEGRADED", format!("the kernel lacks: {missing}")));
    }
    facts
}

async fn engine(binding: &Binding) -> Fact {
    let engine = match AnyEngine::new(&binding.engine, &binding.folder()) {
        Ok(engine) => engine,
        Err(error) => return fails("the engine cannot be made", error.to_string()),
    };
    match engine.probe().await {
        Ok(said) => holds(said),
        Err(why) => fails("the engine cannot be used", why),
    }
}

async fn discord(section: &Discord) -> Vec<Fact> {
    let token = match section.token.read() {
        Ok(token) => token,
        Err(error) => return vec![fails("there is no token", error.to_string())],
    };
    let mut facts = vec![holds("the token's file is private".to_owned())];
    let trust = section.ca_file.as_deref();
    let rest = match Rest::new(section.rest_url.as_deref(), token.clone(), trust) {
        Ok(rest) => rest,
        Err(why) => return facts.into_iter().chain([fails("there is no TLS", why)]).collect(),
    };
    let me = myself(section, &rest).await;
    let known = me.wrong.is_none();
    facts.push(me);
    if !known {
        return facts;
    }
    let (guild, base) = guild(section, &rest).await;
    facts.push(guild);
    if let Some(base) = base {
        for channel in section.channels.keys() {
            facts.push(self::channel(section, &rest, channel, &base).await);
        }
    }
    facts.push(connection(section, token, rest).await);
    facts
}

/// What an answer holds; or why there is none.
fn body(attempt: Attempt) -> Result<Value, String> {
    match attempt {
        Attempt::Answered(answer) if answer.status == 200 => Ok(answer.body.unwrap_or_default()),
        Attempt::Answered(answer) => Err(answer.says()),
        Attempt::NotSent(why) | Attempt::Never(why) | Attempt::Unknown(why) => {
            Err(format!("no answer: {why}"))
        }
    }
}

async fn myself(section: &Discord, rest: &Rest) -> Fact {
    match body(rest.get("/users/@me").await) {
        Err(why) => fails(
            format!("Discord does not take the token ({why})"),
            "reset the bot's token in the developer portal, and put it where `discord.token` says",
        ),
        Ok(user) if user["id"].as_str() == Some(&section.bot) => {
            holds(format!("the token is that of the bot {}", section.bot))
        }
        Ok(user) => fails(
            format!("the token is that of another bot, {}", user["id"].as_str().unwrap_or("?")),
            format!("`discord.bot` says {}; correct it, or put the right token", section.bot),
        ),
    }
}

/// The guild, and what the bot may do in it before a channel says otherwise.
async fn guild(section: &Discord, rest: &Rest) -> (Fact, Option<Base>) {
    let Discord { guild, bot, .. } = section;
    let found = match body(rest.get(&format!("/guilds/{guild}")).await) {
        Ok(found) => found,
        Err(why) => {
            let next = "invite the bot to it, or correct `discord.guild`";
            return (fails(format!("the guild {guild} is not in sight ({why})"), next), None);
        }
    };
    let name = found["name"].as_str().unwrap_or_default();
    let fact = holds(format!("the bot is in the guild {name:?}"));
    let member = body(rest.get(&format!("/guilds/{guild}/members/{bot}")).await);
    let member = member.unwrap_or_default();
    let roles: Vec<String> = strings(&member["roles"]);
    let all = found["roles"].as_array().cloned().unwrap_or_default();
    let mine = |role: &&Value| {
        let id = role["id"].as_str().unwrap_or_default();
        id == guild || roles.iter().any(|mine| mine == id)
    };
    let bits = all.iter().filter(mine).map(|role| number(&role["permissions"]));
    let bits = bits.fold(0, |all, bits| all | bits);
    let owner = found["owner_id"].as_str() == Some(bot);
    let bits = if owner || bits & ADMINISTRATOR != 0 { u64::MAX } else { bits };
    (fact, Some(Base { bits, roles }))
}

struct Base {
    bits: u64,
    roles: Vec<String>,
}

fn strings(list: &Value) -> Vec<String> {
    let items = list.as_array().into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Bits as Discord writes them: a number in a string.
fn number(bits: &Value) -> u64 {
    bits.as_str().and_then(|text| text.parse().ok()).unwrap_or(0)
}

async fn channel(section: &Discord, rest: &Rest, id: &str, base: &Base) -> Fact {
    let found = match body(rest.get(&format!("/channels/{id}")).await) {
        Ok(found) => found,
        Err(why) => {
            return fails(
                format!("the channel {id} is not in sight ({why})"),
                "give the bot View Channel there, or correct `discord.channels`",
            );
        }
    };
    let name = found["name"].as_str().unwrap_or_default();
    if found["guild_id"].as_str() != Some(&section.guild) {
        let next = "take it out of `discord.channels`: one binding is for one guild";
        return fails(format!("the channel {name:?} is in another guild"), next);
    }
    let bits = permissions(section, base, &found["permission_overwrites"]);
    let missing: Vec<&str> =
        NEEDED.iter().filter(|(_, bit)| bits & bit == 0).map(|(name, _)| *name).collect();
    if missing.is_empty() {
        holds(format!("the channel {name:?} is in sight, and can be answered in"))
    } else {
        let next = format!("give the bot's role there: {}", missing.join(", "));
        fails(format!("the bot lacks permissions in the channel {name:?}"), next)
    }
}

/// Discord's rule: everyone's overwrite, then those of the bot's roles together, then the bot's own.
fn permissions(section: &Discord, base: &Base, overwrites: &Value) -> u64 {
    if base.bits == u64::MAX {
        return base.bits;
    }
    let of = |wanted: &dyn Fn(&str) -> bool| {
        let listed = overwrites.as_array().into_iter().flatten();
        let mine = listed.filter(|one| wanted(one["id"].as_str().unwrap_or_default()));
        mine.fold((0, 0), |(deny, allow), one| {
            (deny | number(&one["deny"]), allow | number(&one["allow"]))
        })
    };
    let steps = [
        of(&|id| id == section.guild),
        of(&|id| base.roles.iter().any(|role| role == id)),
        of(&|id| id == section.bot),
    ];
    steps.into_iter().fold(base.bits, |bits, (deny, allow)| bits & !deny | allow)
}

async fn connection(section: &Discord, token: Token, rest: Rest) -> Fact {
    let trust = section.ca_file.as_deref();
    let config = match gateway::Config::new(token, section.gateway_url.clone(), trust) {
        Ok(config) => config,
        Err(why) => return fails("there is no TLS", why),
    };
    let mut events = gateway::start(config, rest);
    let ready = tokio::time::timeout(PATIENCE, async {
        let mut last = "nothing came".to_owned();
        loop {
            match events.recv().await {
                Some(Happened::Ready { .. }) => {
                    return holds(
                        "the gateway is ready, with the message content intent".to_owned(),
                    );
                }
                Some(Happened::Fatal { what, .. }) => return fails("no gateway", what),
                Some(Happened::Down { reason, .. }) => last = reason,
                Some(_) => {}
                None => return fails("no gateway", last),
            }
        }
    });
    let late = || fails("no gateway", "it was not ready in time; see https://discordstatus.com");
    ready.await.unwrap_or_else(|_| late())
}
