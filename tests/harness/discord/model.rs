//! What there is in the fake, and what it saw.

use serde_json::Value;

/// A channel or a thread.
#[derive(Debug, Clone, Default)]
pub struct Channel {
    /// Its id.
    pub id: u64,
    /// Discord's channel type: 0 text, 1 DM, 10/11/12 threads, 4 category, 15 forum.
    pub kind: u8,
    /// The guild; a DM has none.
    pub guild: Option<u64>,
    /// The category, or a thread's channel.
    pub parent: Option<u64>,
    /// Its name.
    pub name: String,
    /// The bot may not see it: 50001.
    pub hidden: bool,
    /// The bot may not write: 50013.
    pub read_only: bool,
    /// A thread that is archived. Sending brings it back unless it is locked.
    pub archived: bool,
    /// A thread that is locked: 160005, or 50083 when archived too.
    pub locked: bool,
    /// `permission_overwrites` as they are sent.
    pub overwrites: Vec<Value>,
}

/// A message that exists or existed.
#[derive(Debug, Clone)]
pub struct Message {
    /// Its id.
    pub id: u64,
    /// The channel or thread.
    pub channel: u64,
    /// The author's id.
    pub author: u64,
    /// The text.
    pub content: String,
    /// The nonce, an integer as its digits.
    pub nonce: Option<String>,
    /// `enforce_nonce` was true.
    pub enforce_nonce: bool,
    /// The message it answers.
    pub reference: Option<u64>,
    /// `allowed_mentions` as they came.
    pub allowed_mentions: Option<Value>,
    /// `components` as they came, or null.
    pub components: Value,
    /// When it was created: milliseconds since the Unix epoch, by the fake's clock.
    pub at: u64,
    /// It is gone.
    pub deleted: bool,
    /// How often it was edited.
    pub edits: u32,
}

/// One REST request as it came.
#[derive(Debug, Clone)]
pub struct Request {
    /// The method.
    pub method: String,
    /// The path below `/api/v10`.
    pub path: String,
    /// What stands behind the question mark.
    pub query: String,
    /// Names in lower case, with values.
    pub headers: Vec<(String, String)>,
    /// The body; null when it is no JSON.
    pub body: Value,
    /// When it came: milliseconds since the Unix epoch, by the fake's clock.
    pub at: u64,
}

/// One websocket handshake as it came.
#[derive(Debug, Clone, Default)]
pub struct Handshake {
    /// What stands behind the question mark.
    pub query: String,
    /// Names in lower case, with values.
    pub headers: Vec<(String, String)>,
    /// When, by the fake's clock.
    pub at: u64,
}

impl Handshake {
    /// A header's value, by its name in lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }
}

impl Request {
    /// A header's value, by its name in lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }
}

fn header<'h>(headers: &'h [(String, String)], name: &str) -> Option<&'h str> {
    headers.iter().find(|(have, _)| have == name).map(|(_, value)| value.as_str())
}

/// One typing call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Typing {
    /// The channel.
    pub channel: u64,
    /// When, by the fake's clock.
    pub at: u64,
}

/// One reaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reaction {
    /// The channel.
    pub channel: u64,
    /// The message.
    pub message: u64,
    /// The emoji, decoded.
    pub emoji: String,
}

/// One accepted interaction callback.
#[derive(Debug, Clone)]
pub struct Callback {
    /// The interaction.
    pub interaction: u64,
    /// The type: 4 message, 6 deferred update, 7 update.
    pub kind: u64,
    /// `data` as it came, or null.
    pub data: Value,
}

/// What the gateway counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// TCP connections accepted.
    pub connections: u64,
    /// Websockets open now.
    pub open: u64,
    /// The most websockets open at once.
    pub most_open: u64,
    /// Op 2 received.
    pub identifies: u64,
    /// Op 6 received.
    pub resumes: u64,
    /// READY sent.
    pub readies: u64,
    /// RESUMED sent.
    pub resumed: u64,
    /// Op 1 received.
    pub heartbeats: u64,
    /// `d` of the last heartbeat.
    pub last_heartbeat: Option<u64>,
    /// IDENTIFYs beyond `max_concurrency` within five seconds of the fake's clock; they were
    /// answered with an invalid session.
    pub crowded_identifies: u64,
}

/// Everything that the fake saw.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// REST requests in order of arrival.
    pub requests: Vec<Request>,
    /// Method and path of those that did not fit in their bucket.
    pub limited: Vec<String>,
    /// All messages, people's too, in order of creation.
    pub messages: Vec<Message>,
    /// Typing calls.
    pub typing: Vec<Typing>,
    /// Reactions.
    pub reactions: Vec<Reaction>,
    /// Interaction callbacks.
    pub callbacks: Vec<Callback>,
    /// The gateway.
    pub gateway: Counts,
    /// Websocket handshakes that came about.
    pub handshakes: Vec<Handshake>,
    /// IDENTIFY and RESUME payloads as they came.
    pub greetings: Vec<Value>,
    /// The codes of the close frames that came from clients.
    pub client_closes: Vec<Option<u16>>,
}

impl Seen {
    /// The bot's messages, in order of creation.
    #[must_use]
    pub fn from_bot(&self) -> Vec<&Message> {
        self.messages.iter().filter(|one| one.author == super::FakeDiscord::BOT).collect()
    }

    /// How many messages were created with this nonce.
    #[must_use]
    pub fn with_nonce(&self, nonce: &str) -> usize {
        self.messages.iter().filter(|one| one.nonce.as_deref() == Some(nonce)).count()
    }

    /// The requests with a method and a path as [`super::route`] takes them.
    #[must_use]
    pub fn requests_to(&self, method: &'static str, path: &'static str) -> Vec<&Request> {
        let matches = super::route(method, path);
        self.requests.iter().filter(|request| matches(request)).collect()
    }
}
