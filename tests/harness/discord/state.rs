//! What the servers and the test share.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedSender;

use super::buckets::Buckets;
use super::clock::{Clock, DISCORD_EPOCH};
use super::fault::Fault;
use super::model::{Channel, Message, Request, Seen};
use super::script::{Command, GatewayScript};

/// Whether a fault is for a request.
pub(super) type Predicate = Box<dyn Fn(&Request) -> bool + Send>;

/// A person or a bot.
#[derive(Debug, Clone)]
pub(super) struct User {
    pub(super) name: String,
    pub(super) bot: bool,
}

/// A guild.
#[derive(Debug, Clone)]
pub(super) struct Guild {
    pub(super) name: String,
    /// Permissions of @everyone.
    pub(super) permissions: u64,
    /// The bot is a member.
    pub(super) joined: bool,
}

/// A gateway session with everything that was dispatched in it.
#[derive(Debug, Default)]
pub(super) struct Session {
    pub(super) events: Vec<String>,
    pub(super) connection: Option<u64>,
    pub(super) intents: u64,
}

/// What a connection's task is told.
#[derive(Debug)]
pub(super) enum Order {
    /// A payload of the gateway.
    Send(String),
    /// By order of the test.
    Do(Command),
}

/// An interaction that can be answered.
#[derive(Debug, Clone)]
pub(super) struct Interaction {
    pub(super) token: String,
    pub(super) at: u64,
    pub(super) acknowledged: bool,
}

/// Everything.
pub(super) struct State {
    pub(super) clock: Clock,
    pub(super) seen: Seen,
    pub(super) script: GatewayScript,
    pub(super) nonce_window: Duration,
    pub(super) token_valid: bool,
    pub(super) faults: VecDeque<(Predicate, Fault, u64)>,
    pub(super) reset_connections: u64,
    pub(super) buckets: Buckets,
    pub(super) guilds: BTreeMap<u64, Guild>,
    pub(super) channels: BTreeMap<u64, Channel>,
    pub(super) users: BTreeMap<u64, User>,
    pub(super) interactions: BTreeMap<u64, Interaction>,
    pub(super) sessions: BTreeMap<String, Session>,
    pub(super) connections: BTreeMap<u64, UnboundedSender<Order>>,
    pub(super) identified_at: Vec<u64>,
    pub(super) gateway_url: String,
    next: u64,
}

impl State {
    pub(super) fn new() -> Self {
        let mut users = BTreeMap::new();
        users.insert(super::FakeDiscord::BOT, User { name: "sage".to_owned(), bot: true });
        Self {
            clock: Clock::default(),
            seen: Seen::default(),
            script: GatewayScript::default(),
            nonce_window: Duration::from_secs(300),
            token_valid: true,
            faults: VecDeque::new(),
            reset_connections: 0,
            buckets: Buckets::default(),
            guilds: BTreeMap::new(),
            channels: BTreeMap::new(),
            users,
            interactions: BTreeMap::new(),
            sessions: BTreeMap::new(),
            connections: BTreeMap::new(),
            identified_at: Vec::new(),
            gateway_url: String::new(),
            next: 0,
        }
    }

    /// A snowflake above every one before.
    pub(super) fn snowflake(&mut self) -> u64 {
        self.next += 1;
        let by_clock = (self.clock.now() - DISCORD_EPOCH) << 22;
        self.next = self.next.max(by_clock);
        self.next
    }

    /// Dispatches an event to every session whose intents have one of `intents` (0: all).
    pub(super) fn dispatch(&mut self, name: &str, data: &Value, intents: u64) {
        let State { sessions, connections, .. } = self;
        for session in sessions.values_mut() {
            if intents != 0 && session.intents & intents == 0 {
                continue;
            }
            let mut data = data.clone();
            if name.starts_with("MESSAGE_") && session.intents & (1 << 15) == 0 {
                hide_content(&mut data);
            }
            let seq = session.events.len() + 1;
            let text = json!({ "op": 0, "t": name, "s": seq, "d": data }).to_string();
            session.events.push(text.clone());
            let sender = session.connection.and_then(|id| connections.get(&id));
            if let Some(sender) = sender {
                let _ = sender.send(Order::Send(text));
            }
        }
    }

    /// The first fault that is for this request.
    pub(super) fn fault_for(&mut self, request: &Request) -> Option<Fault> {
        let index = self.faults.iter().position(|(matches, ..)| matches(request))?;
        let (_, fault, times) = &mut self.faults[index];
        let fault = fault.clone();
        *times -= 1;
        if *times == 0 {
            self.faults.remove(index);
        }
        Some(fault)
    }

    pub(super) fn message(&self, id: u64) -> Option<&Message> {
        self.seen.messages.iter().find(|message| message.id == id && !message.deleted)
    }
}

/// Without the message content intent a message is empty, unless it is the bot's or mentions it.
fn hide_content(data: &mut Value) {
    let bot = super::FakeDiscord::BOT.to_string();
    let own = data["author"]["id"] == bot.as_str();
    let mentions = data["mentions"].as_array().cloned().unwrap_or_default();
    let mentioned = mentions.iter().any(|one| one["id"] == bot.as_str());
    if !own && !mentioned && data["guild_id"].is_string() {
        data["content"] = json!("");
        for key in ["embeds", "attachments", "components"] {
            data[key] = json!([]);
        }
    }
}

/// The state behind its lock, with a bell that rings at each change.
pub(super) struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    pub(super) fn new() -> Self {
        Self { state: Mutex::new(State::new()), changed: Condvar::new() }
    }

    /// Changes the state and rings.
    pub(super) fn with<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let result = change(&mut self.lock());
        self.changed.notify_all();
        result
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `holds`; false when it did not within `limit`.
    pub(super) fn wait(&self, limit: Duration, mut holds: impl FnMut(&State) -> bool) -> bool {
        let waited = self.changed.wait_timeout_while(self.lock(), limit, |state| !holds(state));
        let (guard, result) = waited.unwrap_or_else(PoisonError::into_inner);
        drop(guard);
        !result.timed_out()
    }
}
