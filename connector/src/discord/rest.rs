//! REST: one call is one request, and every outcome is seen.
//!
//! Nothing here retries, follows a redirect, or takes a proxy from the environment: what a failure means
//! is decided by [`outcome`], and whether to send again by [`super::live`]. Before a request goes out it
//! waits for its bucket and for the one gate that a global limit closes. A 401 closes it for good: the
//! token is not valid, and asking on would only get this address banned.
//!
//! The token goes into one header and appears in no error, log or `Debug`.

pub mod limits;
pub mod outcome;

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_rustls::rustls::crypto;
use ureq::Agent;
use ureq::http::{HeaderMap, Method, Request};
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};

use self::limits::{Held, Limits};
use crate::binding::Token;
use crate::tls;

/// Discord's own base.
pub const BASE: &str = "https://discord.com/api/v10";

/// Discord asks for this form; Cloudflare blocks others.
pub const USER_AGENT: &str =
    concat!("DiscordBot (https://example.invalid/sage, ", env!("CARGO_PKG_VERSION"), ")");

/// How long a connection may take, TLS included. Less than [`WHOLE`], so that one that never came
/// about is told from an answer that did not come.
const CONNECT: Duration = Duration::from_secs(10);

/// How long a request may take, answer included.
const WHOLE: Duration = Duration::from_secs(20);

/// How much of an answer is read, in bytes.
const MAX_BODY: u64 = 1 << 20;

/// The way to REST. Cheap to clone.
#[derive(Clone)]
pub struct Rest {
    inner: Arc<Inner>,
}

struct Inner {
    agent: Agent,
    base: String,
    token: Token,
    limits: Limits,
}

/// What came of one request.
#[derive(Debug, Clone, PartialEq)]
pub enum Attempt {
    /// It never got to Discord.
    NotSent(String),
    /// It did not, and none like it will.
    Never(String),
    /// It may have.
    Unknown(String),
    /// An answer.
    Answered(Answer),
}

/// An answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The body, where it is JSON.
    pub body: Option<Value>,
    /// How long to wait before anything like it, from header or body, whichever is longer.
    pub retry_after: Option<Duration>,
    /// Whether that holds for everything.
    pub global: bool,
}

impl Answer {
    /// Discord's own error code.
    #[must_use]
    pub fn code(&self) -> Option<u64> {
        self.body.as_ref()?.get("code")?.as_u64()
    }

    /// In a few words, for a log or a reason.
    #[must_use]
    pub fn says(&self) -> String {
        let message = self.body.as_ref().and_then(|body| body.get("message")?.as_str());
        match (self.code(), message) {
            (Some(code), Some(message)) => {
                let message: String = message.chars().take(200).collect();
                format!("status {}, code {code}: {message}", self.status)
            }
            _ => format!("status {}", self.status),
        }
    }
}

impl Rest {
    /// The way to Discord, or to another base in a test.
    ///
    /// # Errors
    /// When there are no certificates to trust.
    pub fn new(base: Option<&str>, token: Token, ca_file: Option<&Path>) -> Result<Self, String> {
        let base = base.unwrap_or(BASE).trim_end_matches('/').to_owned();
        let roots: Vec<Certificate<'static>> = if base.starts_with("https:") {
            let found = tls::authorities(ca_file)?;
            found.iter().map(|cert| Certificate::from_der(cert).to_owned()).collect()
        } else {
            Vec::new()
        };
        let tls = TlsConfig::builder()
            .provider(TlsProvider::Rustls)
            .unversioned_rustls_crypto_provider(Arc::new(crypto::ring::default_provider()))
            .root_certs(RootCerts::Specific(Arc::new(roots)))
            .build();
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .proxy(None)
            .user_agent(USER_AGENT)
            .timeout_connect(Some(CONNECT))
            .timeout_resolve(Some(CONNECT))
            .timeout_global(Some(WHOLE))
            // A connection that was kept could be dead, and a request on it of unknown fate.
            .max_idle_connections(0)
            .tls_config(tls)
            .build()
            .new_agent();
        Ok(Self { inner: Arc::new(Inner { agent, base, token, limits: Limits::default() }) })
    }

    /// One request, once its bucket and the gate let it through.
    pub async fn request(&self, method: Method, path: &str, body: Option<Value>) -> Attempt {
        self.request_by(method, path, body, None).await
    }

    /// The same, unless they would let it through too late; that is told at once.
    pub async fn request_by(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
        by: Option<Instant>,
    ) -> Attempt {
        let route = limits::route(&method, path);
        match self.inner.limits.wait(&route, by).await {
            Ok(()) => {}
            Err(Held::TooLong) => {
                return Attempt::NotSent("a rate limit held it back for too long".to_owned());
            }
            Err(Held::ForEver) => {
                return Attempt::Never("Discord does not take the bot's token any more".to_owned());
            }
        }
        let (inner, path) = (Arc::clone(&self.inner), path.to_owned());
        let sent =
            tokio::task::spawn_blocking(move || inner.send(method, &path, body.as_ref(), true));
        let Ok((attempt, headers)) = sent.await else {
            return Attempt::Unknown("the request's thread ended".to_owned());
        };
        if let Attempt::Answered(answer) = &attempt {
            self.inner.limits.learn(&route, answer, &headers);
        }
        attempt
    }

    /// Reads something; a closed gate is waited for no longer than an answer.
    pub async fn get(&self, path: &str) -> Attempt {
        self.request_by(Method::GET, path, None, Some(Instant::now() + WHOLE)).await
    }

    /// Waits until Discord does not take the token any more.
    pub async fn token_refused(&self) {
        self.inner.limits.refused().await;
    }

    /// Answers an interaction. It has three seconds, a token of its own, and no limit but that.
    pub async fn answer_interaction(&self, id: &str, token: &str, body: Value) -> Attempt {
        let path = format!("/interactions/{id}/{token}/callback");
        let inner = Arc::clone(&self.inner);
        let sent = move || inner.send(Method::POST, &path, Some(&body), false).0;
        let sent = tokio::task::spawn_blocking(sent).await;
        sent.unwrap_or_else(|_| Attempt::Unknown("the request's thread ended".to_owned()))
    }
}

impl Inner {
    fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        signed: bool,
    ) -> (Attempt, HeaderMap) {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        if signed {
            request = request.header("authorization", format!("Bot {}", self.token.secret()));
        }
        let body = body.map(Value::to_string).unwrap_or_default();
        if !body.is_empty() {
            request = request.header("content-type", "application/json");
        }
        let Ok(request) = request.body(body) else {
            let why = "the request cannot be put together".to_owned();
            return (Attempt::NotSent(why), HeaderMap::new());
        };
        match self.agent.run(request) {
            Ok(response) => {
                let (parts, body) = response.into_parts();
                let mut bytes = Vec::new();
                // A body that breaks off changes nothing about the status that came before it.
                let _ = body.into_reader().take(MAX_BODY).read_to_end(&mut bytes);
                let answer = read(parts.status.as_u16(), &parts.headers, &bytes);
                (Attempt::Answered(answer), parts.headers)
            }
            Err(error) => (failed(&error), HeaderMap::new()),
        }
    }
}

fn read(status: u16, headers: &HeaderMap, bytes: &[u8]) -> Answer {
    let body: Option<Value> = serde_json::from_slice(bytes).ok();
    let field = |key: &str| body.as_ref().and_then(|body| body.get(key));
    let waits = [seconds(headers, "retry-after"), field("retry_after").and_then(Value::as_f64)];
    let longest =
        waits.into_iter().flatten().fold(None, |a: Option<f64>, b| Some(a.map_or(b, |a| a.max(b))));
    let global = headers.contains_key("x-ratelimit-global")
        || field("global").and_then(Value::as_bool).unwrap_or(false);
    Answer { status, retry_after: longest.map(limits::duration), global, body }
}

fn seconds(headers: &HeaderMap, name: &str) -> Option<f64> {
    headers.get(name)?.to_str().ok()?.trim().parse().ok()
}

/// What is sure never to have arrived, and what may have.
fn failed(error: &ureq::Error) -> Attempt {
    use std::io::ErrorKind;
    use ureq::{Error, Timeout};
    let reason = error.to_string();
    match error {
        Error::HostNotFound
        | Error::ConnectionFailed
        | Error::Tls(_)
        | Error::Rustls(_)
        | Error::BadUri(_)
        | Error::Timeout(Timeout::Resolve | Timeout::Connect) => Attempt::NotSent(reason),
        Error::Io(io) if io.kind() == ErrorKind::ConnectionRefused => Attempt::NotSent(reason),
        _ => Attempt::Unknown(reason),
    }
}

/// The body of a message: what is said, and nothing that it could set off.
#[must_use]
pub fn message(text: &str, nonce: &str, reply_to: &str, components: Option<Value>) -> Value {
    let mut body = json!({
        "content": text,
        "nonce": nonce,
        "enforce_nonce": true,
        "allowed_mentions": {"parse": []},
        // A message that was deleted meanwhile is still answered.
        "message_reference": {"message_id": reply_to, "fail_if_not_exists": false},
    });
    if let Some(components) = components {
        body["components"] = components;
    }
    body
}

#[cfg(test)]
mod tests;
