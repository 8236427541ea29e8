//! What a test holds.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio_rustls::rustls::ServerConfig;

use super::clock::Clock;
use super::fault::Fault;
use super::model::{Channel, Message, Request, Seen};
use super::script::{Command, GatewayScript};
use super::state::{Guild, Interaction, Order, Shared, State, User};
use super::{front, gateway, rest};

/// How long [`FakeDiscord::wait`] waits before it gives up.
const LIMIT: Duration = Duration::from_secs(60);

/// A fake Discord. Dropping it ends every connection.
pub struct FakeDiscord {
    shared: Arc<Shared>,
    runtime: Option<Runtime>,
    gateway: Port,
    rest: Port,
}

/// A port that stays ours while nobody listens on it.
struct Port {
    _reserved: TcpSocket,
    address: SocketAddr,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Port {
    fn new() -> Result<Self> {
        let reserved = TcpSocket::new_v4()?;
        reserved.set_reuseaddr(true)?;
        reserved.bind((Ipv4Addr::LOCALHOST, 0).into())?;
        let address = reserved.local_addr()?;
        Ok(Self { _reserved: reserved, address, task: Mutex::default() })
    }

    fn listen(&self) -> Result<TcpListener> {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind(self.address)?;
        socket.listen(128).context("the port can be listened on")
    }

    fn task(&self) -> std::sync::MutexGuard<'_, Option<JoinHandle<()>>> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FakeDiscord {
    /// The id of the bot's user and of its application.
    pub const BOT: u64 = 100_000_000_000_000_001;

    /// The bot's token.
    pub const TOKEN: &'static str = "fake-discord-token";

    /// Starts both servers.
    ///
    /// # Errors
    /// When loopback has no port left.
    pub fn start() -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("fake-discord")
            .enable_all()
            .build()?;
        let (gateway, rest) = {
            let _inside = runtime.enter();
            (Port::new()?, Port::new()?)
        };
        let fake = Self { shared: Arc::new(Shared::new()), runtime: Some(runtime), gateway, rest };
        let url = fake.gateway_url();
        fake.shared.with(|state| state.gateway_url = url);
        fake.accept_gateway()?;
        fake.accept_rest()?;
        Ok(fake)
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("the runtime goes with the fake")
    }

    /// Where the gateway is: `ws://127.0.0.1:port`.
    #[must_use]
    pub fn gateway_url(&self) -> String {
        format!("ws://{}", self.gateway.address)
    }

    /// Where REST is: `http://127.0.0.1:port/api/v10`.
    #[must_use]
    pub fn rest_url(&self) -> String {
        format!("http://{}/api/v10", self.rest.address)
    }

    /// Host and port of REST.
    #[must_use]
    pub fn rest_authority(&self) -> String {
        self.rest.address.to_string()
    }

    /// Puts TLS in front of both servers, on one port of loopback, and has the gateway named there.
    /// Returns host and port.
    ///
    /// # Errors
    /// When loopback has no port left.
    pub fn front(&self, tls: Arc<ServerConfig>) -> Result<String> {
        let listener = self.runtime().block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
        let authority = listener.local_addr()?.to_string();
        self.shared.with(|state| state.gateway_url = format!("wss://{authority}"));
        let backends = front::Backends { gateway: self.gateway.address, rest: self.rest.address };
        self.runtime().spawn(front::serve(listener, tls.into(), backends));
        Ok(authority)
    }

    /// The gateway accepts connections (again).
    ///
    /// # Errors
    /// When the port cannot be listened on.
    pub fn accept_gateway(&self) -> Result<()> {
        self.refuse_gateway();
        let listener = {
            let _inside = self.runtime().enter();
            self.gateway.listen()?
        };
        let task = self.runtime().spawn(gateway::serve(listener, Arc::clone(&self.shared)));
        *self.gateway.task() = Some(task);
        Ok(())
    }

    /// New connections to the gateway are refused by the kernel; open ones stay.
    pub fn refuse_gateway(&self) {
        self.stop(&self.gateway);
    }

    /// REST accepts connections (again).
    ///
    /// # Errors
    /// When the port cannot be listened on.
    pub fn accept_rest(&self) -> Result<()> {
        self.refuse_rest();
        let listener = {
            let _inside = self.runtime().enter();
            self.rest.listen()?
        };
        let task = self.runtime().spawn(rest::serve(listener, Arc::clone(&self.shared)));
        *self.rest.task() = Some(task);
        Ok(())
    }

    /// New connections to REST are refused by the kernel; open ones stay.
    pub fn refuse_rest(&self) {
        self.stop(&self.rest);
    }

    /// Ends accepting; the listener is closed when this returns.
    fn stop(&self, port: &Port) {
        let Some(task) = port.task().take() else { return };
        task.abort();
        while !task.is_finished() {
            std::thread::yield_now();
        }
    }

    /// The next `count` connections to REST are reset before anything is read.
    pub fn reset_rest_connections(&self, count: u64) {
        self.shared.with(|state| state.reset_connections = count);
    }

    /// Sets the clock: `discord.clock(|clock| clock.advance(...))`.
    pub fn clock<R>(&self, change: impl FnOnce(&mut Clock) -> R) -> R {
        self.shared.with(|state| change(&mut state.clock))
    }

    /// Changes the gateway's script.
    pub fn gateway<R>(&self, change: impl FnOnce(&mut GatewayScript) -> R) -> R {
        self.shared.with(|state| change(&mut state.script))
    }

    /// Does this to every open gateway connection; returns to how many.
    pub fn command(&self, command: &Command) -> usize {
        self.shared.with(|state| {
            let all = state.connections.values();
            all.filter(|one| one.send(Order::Do(command.clone())).is_ok()).count()
        })
    }

    /// How long `enforce_nonce` finds an earlier message. Five minutes at first.
    pub fn nonce_window(&self, window: Duration) {
        self.shared.with(|state| state.nonce_window = window);
    }

    /// So many requests in this time fit in each bucket, by the fake's clock; more meet a 429.
    pub fn bucket(&self, limit: u64, window: Duration) {
        self.shared.with(|state| state.buckets.set(limit, window));
    }

    /// The token is refused from now on (false), or good again.
    pub fn token_valid(&self, valid: bool) {
        self.shared.with(|state| state.token_valid = valid);
    }

    /// The next request that matches meets this.
    pub fn fault(&self, matches: impl Fn(&Request) -> bool + Send + 'static, fault: Fault) {
        self.faults(1, matches, fault);
    }

    /// The next `times` requests that match meet this. Earlier orders come first.
    pub fn faults(
        &self,
        times: u64,
        matches: impl Fn(&Request) -> bool + Send + 'static,
        fault: Fault,
    ) {
        if times > 0 {
            self.shared.with(|state| state.faults.push_back((Box::new(matches), fault, times)));
        }
    }

    /// Forgets the faults that were not met.
    pub fn no_faults(&self) {
        self.shared.with(|state| state.faults.clear());
    }

    /// A guild that the bot is in, whose @everyone may see, write, reply, react and write in threads.
    pub fn guild(&self, name: &str) -> u64 {
        let permissions = 1 << 6 | 1 << 10 | 1 << 11 | 1 << 16 | 1 << 38;
        let guild = Guild { name: name.to_owned(), permissions, joined: true };
        self.shared.with(|state| {
            let id = state.snowflake();
            state.guilds.insert(id, guild);
            let event = state.guild_json(id, true);
            state.dispatch("GUILD_CREATE", &event, 1);
            id
        })
    }

    /// Sets @everyone's permissions, and whether the bot is a member.
    pub fn change_guild(&self, id: u64, permissions: u64, joined: bool) {
        self.shared.with(|state| {
            if let Some(guild) = state.guilds.get_mut(&id) {
                (guild.permissions, guild.joined) = (permissions, joined);
            }
        });
    }

    /// A text channel.
    pub fn channel(&self, guild: u64, name: &str) -> u64 {
        self.add(Channel { guild: Some(guild), name: name.to_owned(), ..Channel::default() })
    }

    /// A public thread in a text channel.
    pub fn thread(&self, parent: u64, name: &str) -> u64 {
        let guild = self.shared.lock().channels.get(&parent).and_then(|one| one.guild);
        let (name, parent) = (name.to_owned(), Some(parent));
        self.add(Channel { kind: 11, guild, parent, name, ..Channel::default() })
    }

    /// Any channel; its id is given. THREAD_CREATE or CHANNEL_CREATE is dispatched if it is seen.
    pub fn add(&self, mut channel: Channel) -> u64 {
        self.shared.with(|state| {
            channel.id = state.snowflake();
            let id = channel.id;
            let thread = matches!(channel.kind, 10..=12);
            let event = state.channel_json(&channel);
            let seen = !channel.hidden && channel.guild.is_some();
            state.channels.insert(id, channel);
            if seen {
                let name = if thread { "THREAD_CREATE" } else { "CHANNEL_CREATE" };
                state.dispatch(name, &event, 1);
            }
            id
        })
    }

    /// Changes a channel, without an event.
    pub fn change_channel(&self, id: u64, change: impl FnOnce(&mut Channel)) {
        self.shared.with(|state| state.channels.get_mut(&id).map(change));
    }

    /// Deletes a channel or thread, with its event.
    pub fn delete_channel(&self, id: u64) {
        self.shared.with(|state| {
            let Some(channel) = state.channels.remove(&id) else { return };
            let thread = matches!(channel.kind, 10..=12);
            let event = state.channel_json(&channel);
            state.dispatch(if thread { "THREAD_DELETE" } else { "CHANNEL_DELETE" }, &event, 1);
        });
    }

    /// A person.
    pub fn user(&self, name: &str) -> u64 {
        self.add_user(name, false)
    }

    /// Another bot.
    pub fn other_bot(&self, name: &str) -> u64 {
        self.add_user(name, true)
    }

    fn add_user(&self, name: &str, bot: bool) -> u64 {
        self.shared.with(|state| {
            let id = state.snowflake();
            state.users.insert(id, User { name: name.to_owned(), bot });
            id
        })
    }

    /// Somebody writes a message. Returns its id.
    pub fn post(&self, channel: u64, author: u64, text: &str) -> u64 {
        self.post_with(channel, author, text, |_| {})
    }

    /// The same, with MESSAGE_CREATE's data changed before it is sent: `webhook_id`, `type`,
    /// `attachments`, `mentions`, anything.
    pub fn post_with(
        &self,
        channel: u64,
        author: u64,
        text: &str,
        change: impl FnOnce(&mut Value),
    ) -> u64 {
        self.shared.with(|state| {
            let message = person_message(state, channel, author, text);
            let id = message.id;
            let mut event = state.message_event(&message);
            let direct = state.channels.get(&channel).is_some_and(|one| one.guild.is_none());
            change(&mut event);
            state.seen.messages.push(message);
            state.dispatch("MESSAGE_CREATE", &event, if direct { 1 << 12 } else { 1 << 9 });
            id
        })
    }

    /// Somebody edits a message.
    pub fn edit(&self, message: u64, text: &str) {
        self.shared.with(|state| state.change(message, |one| text.clone_into(&mut one.content)));
    }

    /// A message is deleted, with its event.
    pub fn delete_message(&self, id: u64) {
        self.shared.with(|state| {
            let found = state.seen.messages.iter_mut().find(|one| one.id == id);
            let Some(message) = found else { return };
            message.deleted = true;
            let channel = message.channel;
            let event = json!({ "id": id.to_string(), "channel_id": channel.to_string() });
            state.dispatch("MESSAGE_DELETE", &event, 1 << 9);
        });
    }

    /// Dispatches any event to all sessions, as it is.
    pub fn dispatch(&self, name: &str, data: &Value) {
        self.shared.with(|state| state.dispatch(name, data, 0));
    }

    /// A message as MESSAGE_CREATE has it, to be changed and dispatched again.
    #[must_use]
    pub fn message_event(&self, id: u64) -> Option<Value> {
        let state = self.shared.lock();
        state.message(id).map(|message| state.message_event(message))
    }

    /// Somebody presses a button of a message. Returns the interaction's id.
    pub fn press(&self, message: u64, user: u64, custom_id: &str) -> u64 {
        self.shared.with(|state| {
            let id = state.snowflake();
            let token = format!("interaction-token-{id}");
            let at = state.clock.now();
            let event = press(state, (id, &token), message, user, custom_id);
            state.interactions.insert(id, Interaction { token, at, acknowledged: false });
            state.dispatch("INTERACTION_CREATE", &event, 0);
            id
        })
    }

    /// Everything that was seen so far.
    #[must_use]
    pub fn seen(&self) -> Seen {
        self.shared.lock().seen.clone()
    }

    /// Waits until something was seen. It blocks: in async tests use a runtime of several threads.
    ///
    /// # Panics
    /// When it was not within a minute; says what was awaited.
    pub fn wait(&self, what: &str, mut holds: impl FnMut(&Seen) -> bool) -> Seen {
        let held = self.shared.wait(LIMIT, |state| holds(&state.seen));
        let seen = self.seen();
        assert!(held, "waited in vain for {what}; seen: {seen:#?}");
        seen
    }
}

impl Drop for FakeDiscord {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn person_message(state: &mut State, channel: u64, author: u64, text: &str) -> Message {
    Message {
        id: state.snowflake(),
        channel,
        author,
        content: text.to_owned(),
        nonce: None,
        enforce_nonce: false,
        reference: None,
        allowed_mentions: None,
        components: Value::Null,
        at: state.clock.now(),
        deleted: false,
        edits: 0,
    }
}

fn press(state: &State, (id, token): (u64, &str), message: u64, user: u64, custom: &str) -> Value {
    let message = state.message(message);
    let channel = message.and_then(|one| state.channels.get(&one.channel));
    let mut event = json!({
        "id": id.to_string(), "application_id": FakeDiscord::BOT.to_string(), "type": 3,
        "token": token, "version": 1, "locale": "en-US", "guild_locale": "en-US",
        "data": { "custom_id": custom, "component_type": 2, "id": 1 },
        "channel_id": message.map(|one| one.channel.to_string()),
        "channel": channel.map(|one| json!({ "id": one.id.to_string(), "type": one.kind })),
        "message": message.map(|one| state.message_json(one)),
        "app_permissions": "2147483647", "entitlements": [], "attachment_size_limit": 10_485_760,
        "authorizing_integration_owners": {}, "context": 0,
    });
    if let Some(guild) = channel.and_then(|one| one.guild) {
        event["guild_id"] = json!(guild.to_string());
        event["member"] = state.member_json(user);
        event["member"]["permissions"] = json!("2147483647");
    } else {
        event["user"] = state.user_json(user);
    }
    event
}
