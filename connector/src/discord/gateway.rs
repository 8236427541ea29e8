//! The gateway, version 10: one socket at a time, kept up for as long as somebody listens.
//!
//! The task here reads, beats and hands events over; it does nothing with them. What must stay true:
//! there is never a second socket beside the first; whether the connection is healthy is told from
//! acknowledged heartbeats alone; a session is resumed first and given up after [`RESUMES`] tries; every
//! wait has an end, and no failure is followed at once by the next try.

pub mod close;
mod connection;

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use self::connection::{Connection, End, Opening};
use super::rest::{Attempt, Rest};
use crate::binding::Token;
use crate::tls;

/// GUILDS, GUILD_MESSAGES and MESSAGE_CONTENT (which is privileged: 4014 without it).
pub const INTENTS: u64 = 1 | 1 << 9 | 1 << 15;

/// How often a session is resumed in a row, without success, before it is given up.
const RESUMES: u32 = 3;

/// Discord takes one IDENTIFY in this time.
const IDENTIFY_EVERY: Duration = Duration::from_secs(5);

/// The longest wait between two tries, in first waits, but for a jitter of the same length again. A
/// connection that lasted so long was a good one: the next failure is a first one again.
const LONGEST_WAIT: u32 = 60;

/// How many events wait for whoever deals with them. When there are more, the connection is dropped, and
/// resumed once there is room: Discord keeps them meanwhile.
const QUEUE: usize = 1024;

/// How the gateway is talked to.
pub struct Config {
    /// The bot's token.
    pub token: Token,
    /// Another gateway than the one that Discord names; for tests.
    pub url: Option<String>,
    /// Whom it trusts; absent for a plain socket.
    tls: Option<TlsConnector>,
    /// Whether frames come packed (`zlib-stream`).
    pub compress: bool,
    /// How long HELLO, and READY or RESUMED, may take. The same for a connection to come about.
    pub patience: Duration,
    /// The first wait after a failure; each further one is twice as long.
    pub first_wait: Duration,
}

impl Config {
    /// As Discord is talked to. Certificates are read now.
    ///
    /// # Errors
    /// When there are no certificates to trust.
    pub fn new(token: Token, url: Option<String>, ca_file: Option<&Path>) -> Result<Self, String> {
        let plain = url.as_deref().is_some_and(|url| url.starts_with("ws:"));
        let tls = if plain { None } else { Some(tls::connector(ca_file)?) };
        Ok(Self {
            token,
            url,
            tls,
            compress: true,
            patience: Duration::from_secs(20),
            first_wait: Duration::from_secs(1),
        })
    }
}

/// What the gateway tells.
#[derive(Debug)]
pub enum Happened {
    /// A new session. What was said since the one before it ended is lost to us.
    Ready {
        /// The bot's own user id.
        bot: String,
        /// How long nobody listened, when there was a session before.
        gap: Option<Duration>,
    },
    /// The session goes on; what was missed has been told.
    Resumed,
    /// An event.
    Event {
        /// Its kind, such as `MESSAGE_CREATE`.
        kind: String,
        /// Its data.
        data: Value,
    },
    /// The connection is over, and the next try comes after a while.
    Down {
        /// Why.
        reason: String,
        /// How long until then.
        next: Duration,
    },
    /// Discord will not have us; nothing is tried any more.
    Fatal {
        /// The close code; 0 when it was not one.
        code: u16,
        /// What it means and what to do.
        what: String,
    },
}

/// A session that can be resumed.
#[derive(Debug, Clone)]
struct Session {
    id: String,
    url: String,
    seq: u64,
}

/// Connects, and stays connected until the receiver is dropped.
#[must_use]
pub fn start(config: Config, rest: Rest) -> mpsc::Receiver<Happened> {
    let tls = config.tls.clone();
    let (send, receive) = mpsc::channel(QUEUE);
    let gateway = Gateway {
        config,
        rest,
        tls,
        events: send,
        session: None,
        resumes: 0,
        failures: 0,
        identified: None,
        heard: None,
    };
    tokio::spawn(gateway.run());
    receive
}

struct Gateway {
    config: Config,
    rest: Rest,
    tls: Option<TlsConnector>,
    events: mpsc::Sender<Happened>,
    session: Option<Session>,
    /// How often the session was resumed in vain.
    resumes: u32,
    failures: u32,
    identified: Option<Instant>,
    /// When the last connection with a session ended.
    heard: Option<Instant>,
}

impl Gateway {
    async fn run(mut self) {
        while !self.events.is_closed() {
            let (mut wait, mut full) = (None, false);
            let reason = match self.once().await {
                End::Fatal { code, what } => {
                    let _ = self.events.send(Happened::Fatal { code, what }).await;
                    return;
                }
                End::Resume(reason) => reason,
                End::Full => {
                    full = true;
                    "events come faster than they are dealt with".to_owned()
                }
                End::Anew(reason) => {
                    self.session = None;
                    reason
                }
                End::Unreachable(reason) => {
                    if let Some(session) = &mut self.session {
                        session.url.clear();
                    }
                    reason
                }
                End::Later(reason, until) => {
                    wait = Some(until);
                    reason
                }
                End::NobodyListens => return,
            };
            let next = wait.unwrap_or_else(|| self.next_wait());
            self.pause(reason, next).await;
            if full {
                // Otherwise it would be full again at once, until the session is given up. Discord keeps
                // what comes meanwhile.
                let _ = self.events.reserve_many(QUEUE / 2).await;
            }
        }
    }

    /// Says that the connection is over, and waits. Whoever does not listen any more is not waited for.
    async fn pause(&mut self, reason: String, next: Duration) {
        self.failures = self.failures.saturating_add(1);
        if self.events.send(Happened::Down { reason, next }).await.is_err() {
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(next) => {}
            () = self.events.closed() => {}
        }
    }

    /// Twice as long each time, up to a limit, and at random up to that much longer.
    fn next_wait(&self) -> Duration {
        let wait = self.config.first_wait.saturating_mul(1 << self.failures.min(10));
        wait.min(self.config.first_wait * LONGEST_WAIT).mul_f64(1.0 + fastrand::f64())
    }

    /// One connection, from its beginning to its end.
    async fn once(&mut self) -> End {
        if self.session.is_some() && self.resumes >= RESUMES {
            tracing::warn!("the session could not be resumed; a new one is begun");
            self.session = None;
        }
        if self.session.is_none() {
            self.resumes = 0;
        }
        let url = match self.url().await {
            Ok(url) => url,
            Err(end) => return end,
        };
        let resumes = self.session.is_some();
        if let Some(before) = self.identified.filter(|_| !resumes) {
            tokio::time::sleep_until(before + IDENTIFY_EVERY).await;
        }
        let opening = Opening { url: &url, tls: self.tls.as_ref(), config: &self.config };
        let mut connection = match Connection::open(opening).await {
            Ok(connection) => connection,
            Err(reason) => return End::Unreachable(reason),
        };
        let (opened, before) = (Instant::now(), self.heard);
        let seen = self.session.as_ref().map(|session| session.seq);
        let end = connection.serve(self.session.take(), before, &self.events).await;
        match connection.greeted {
            Some(_) if resumes => self.resumes += 1,
            Some(at) => self.identified = Some(at),
            None => {}
        }
        if connection.was_ready {
            self.heard = Some(Instant::now());
            self.resumes = 0;
            if opened.elapsed() >= self.config.first_wait * LONGEST_WAIT {
                self.failures = 0;
            }
        }
        self.session = connection.session.take();
        // A part of what was missed is no failure: it goes on from there.
        if resumes && self.session.as_ref().map(|session| session.seq) > seen {
            self.resumes = 0;
        }
        connection.close(&end).await;
        end
    }

    /// Where to connect: where the session was, or what Discord names now.
    async fn url(&self) -> Result<String, End> {
        if let Some(session) = self.session.as_ref().filter(|session| !session.url.is_empty()) {
            return Ok(session.url.clone());
        }
        if let Some(url) = &self.config.url {
            return Ok(url.clone());
        }
        match self.rest.get("/gateway/bot").await {
            Attempt::Answered(answer) if answer.status == 200 => {
                let body = answer.body.unwrap_or_default();
                let limit = &body["session_start_limit"];
                if self.session.is_none() && limit["remaining"].as_u64() == Some(0) {
                    let wait = Duration::from_millis(limit["reset_after"].as_u64().unwrap_or(0));
                    let reason = "Discord lets no new session begin before that";
                    return Err(End::Later(reason.to_owned(), wait.max(self.next_wait())));
                }
                let url = body["url"].as_str().filter(|url| url.starts_with("wss://"));
                let odd = || End::Resume("Discord named no gateway".to_owned());
                url.map(str::to_owned).ok_or_else(odd)
            }
            Attempt::Answered(answer) if answer.status == 401 => Err(no_token()),
            Attempt::Never(_) => Err(no_token()),
            Attempt::Answered(answer) => Err(End::Resume(answer.says())),
            Attempt::NotSent(reason) | Attempt::Unknown(reason) => Err(End::Resume(reason)),
        }
    }
}

fn no_token() -> End {
    End::Fatal { code: 4004, what: close::NO_TOKEN.to_owned() }
}
