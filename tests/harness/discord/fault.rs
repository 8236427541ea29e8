//! What a REST request can meet instead of a good answer.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::watch;

use super::model::Request;

/// What happens to a request.
#[derive(Debug, Clone)]
pub enum Fault {
    /// This status with Discord's error body; nothing is done.
    Error {
        /// The HTTP status.
        status: u16,
        /// Discord's code, such as 50013.
        code: u64,
    },
    /// Any answer; nothing is done.
    Answer {
        /// The HTTP status.
        status: u16,
        /// The headers.
        headers: Vec<(String, String)>,
        /// The body.
        body: String,
    },
    /// A 429; nothing is done.
    RateLimit(RateLimit),
    /// A web page with this status, as a proxy in front of Discord sends it; nothing is done.
    Html(u16),
    /// Read, not done, never answered.
    Hang,
    /// Read, not done, the connection is closed.
    Close,
    /// Read, not done, the connection is reset.
    Reset,
    /// Done, but the connection is closed before a byte of the response.
    LoseResponse,
    /// Done, but the connection is reset before a byte of the response.
    ResetResponse,
    /// Done, but the connection is closed after so many bytes of the response, head included.
    CutAfter(usize),
    /// Done, answered with this body instead of Discord's.
    GarbleResponse(String),
    /// Not done before the gate opens.
    HoldRequest(Gate),
    /// Done at once, answered when the gate opens.
    HoldResponse(Gate),
    /// Done, answered as usual, with these headers added.
    Headers(Vec<(String, String)>),
}

/// The kinds of 429.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RateLimit {
    /// The bucket of this bot is empty.
    User {
        /// Seconds, in header and body.
        retry_after: f64,
    },
    /// The bucket that all bots share is empty.
    Shared {
        /// Seconds, in header and body.
        retry_after: f64,
    },
    /// The bot is over its global limit.
    Global {
        /// Seconds, in header and body.
        retry_after: f64,
    },
    /// The channel is in slow mode: code 20016.
    SlowMode {
        /// Seconds, in header and body.
        retry_after: f64,
    },
    /// As `User`, but header and body do not agree.
    Disagreeing {
        /// Seconds in `Retry-After`.
        header: u64,
        /// Seconds in `retry_after`.
        body: f64,
    },
    /// Cloudflare's: a web page with `Retry-After` and nothing else.
    Cloudflare {
        /// Seconds.
        retry_after: u64,
    },
}

impl RateLimit {
    /// Headers and body of the answer.
    pub(super) fn answer(self) -> (Vec<(String, String)>, String) {
        let (scope, header, body) = match self {
            Self::Cloudflare { retry_after } => {
                let headers = vec![
                    ("retry-after".to_owned(), retry_after.to_string()),
                    ("content-type".to_owned(), "text/html; charset=UTF-8".to_owned()),
                ];
                return (headers, page("error code: 1015"));
            }
            Self::User { retry_after } | Self::SlowMode { retry_after } => {
                ("user", retry_after.ceil(), retry_after)
            }
            Self::Shared { retry_after } => ("shared", retry_after.ceil(), retry_after),
            Self::Global { retry_after } => ("global", retry_after.ceil(), retry_after),
            Self::Disagreeing { header, body } => {
                ("user", f64::from(u32::try_from(header).unwrap_or(u32::MAX)), body)
            }
        };
        let global = scope == "global";
        let mut headers = vec![
            ("content-type".to_owned(), "application/json".to_owned()),
            ("retry-after".to_owned(), header.to_string()),
            ("x-ratelimit-scope".to_owned(), scope.to_owned()),
        ];
        if global {
            headers.push(("x-ratelimit-global".to_owned(), "true".to_owned()));
        } else {
            headers.extend(
                [("limit", "5".to_owned()), ("remaining", "0".to_owned())]
                    .into_iter()
                    .chain([
                        ("reset-after", body.to_string()),
                        ("bucket", "fake-bucket".to_owned()),
                    ])
                    .chain([("reset", "1767225600.000".to_owned())])
                    .map(|(name, value)| (format!("x-ratelimit-{name}"), value)),
            );
        }
        let body = match self {
            Self::SlowMode { .. } => {
                let mut error = error_body(20_016);
                error["retry_after"] = json!(body);
                error
            }
            _ => json!({
                "message": "You are being rate limited.", "retry_after": body, "global": global,
            }),
        };
        (headers, body.to_string())
    }
}

/// A web page, as it comes from proxies.
pub(super) fn page(text: &str) -> String {
    format!("<!DOCTYPE html><html><head><title>{text}</title></head><body>{text}</body></html>")
}

/// Discord's error body.
pub(super) fn error_body(code: u64) -> Value {
    let message = match code {
        0 => "401: Unauthorized",
        10_003 => "Unknown Channel",
        10_004 => "Unknown Guild",
        10_007 => "Unknown Member",
        10_008 => "Unknown Message",
        10_014 => "Unknown Emoji",
        10_062 => "Unknown interaction",
        20_016 => "This action cannot be performed due to slowmode rate limit",
        40_001 => "Unauthorized",
        40_060 => "Interaction has already been acknowledged.",
        50_001 => "Missing Access",
        50_005 => "Cannot edit a message authored by another user",
        50_006 => "Cannot send an empty message",
        50_008 => "Cannot send messages in a non-text channel",
        50_013 => "Missing Permissions",
        50_035 => "Invalid Form Body",
        50_083 => "Thread is archived",
        50_109 => "The request body contains invalid JSON.",
        160_005 => "Thread is locked",
        _ => "An error",
    };
    json!({ "message": message, "code": code })
}

/// Holds something until a test opens it. Clones are the same gate.
#[derive(Debug, Clone)]
pub struct Gate {
    open: Arc<watch::Sender<bool>>,
}

impl Default for Gate {
    fn default() -> Self {
        Self { open: Arc::new(watch::Sender::new(false)) }
    }
}

impl Gate {
    /// Opens it, for good.
    pub fn open(&self) {
        self.open.send_replace(true);
    }

    pub(super) async fn passed(&self) {
        let _ = self.open.subscribe().wait_for(|open| *open).await;
    }
}

/// Matches a method and a path below `/api/v10`, in which `*` stands for any one segment, as in
/// `route("POST", "/channels/*/messages")`.
pub fn route(method: &'static str, path: &'static str) -> impl Fn(&Request) -> bool + Send {
    move |request| {
        let (mut want, mut have) = (path.split('/'), request.path.split('/'));
        request.method == method
            && loop {
                match (want.next(), have.next()) {
                    (None, None) => break true,
                    (Some(want), Some(have)) if want == "*" || want == have => {}
                    _ => break false,
                }
            }
    }
}
