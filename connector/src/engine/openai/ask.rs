//! One question to the endpoint, until there is an answer to use or no hope of one.
//!
//! Asking has no effect but its price, and nothing of an answer is acted on or shown before all of it
//! is there. So a failure that another try may mend gets one, and "too many requests" is waited out as
//! the endpoint wishes; the turn's deadline bounds all of it.

use std::time::Duration;

use hyper::StatusCode;
use serde_json::Value;

use super::completion::{Completion, Unusable, error_text};
use super::http::{Http, HttpError, Response};
use super::reading::{MAX_BODY_BYTES, Reading};
use crate::engine::EngineError;
use crate::render::one_line;

/// How often one question is put off by "too many requests".
const MAX_WAITS: u32 = 5;

/// The longest time that an endpoint may ask to be left alone; longer than a turn is no wait but an end.
const LONGEST_WAIT: Duration = Duration::from_secs(600);

/// Before the second try.
const PAUSE: Duration = Duration::from_secs(1);

/// How much of an error's body is read, in bytes, and shown, in characters.
const ERROR_BYTES: usize = 16 * 1024;
const ERROR_CHARS: usize = 300;

/// Why a try gave nothing.
#[derive(Debug)]
enum Trouble {
    /// The endpoint wants to be left alone for so long, if it said how long.
    Later(Option<Duration>, String),
    /// Another try may do.
    Again(String),
    /// No other try would do.
    Final(String),
}

/// Asks, and waits for the whole answer.
pub(super) async fn ask(
    http: &Http,
    body: &[u8],
    most_bytes: usize,
) -> Result<Completion, EngineError> {
    let mut waits = 0;
    let mut tried_again = false;
    loop {
        let reason = match once(http, body, most_bytes).await {
            Ok(completion) => return Ok(completion),
            Err(Trouble::Later(wanted, reason)) => {
                let wait = wanted.unwrap_or(PAUSE * 2_u32.pow(waits + 1));
                if waits == MAX_WAITS || wait > LONGEST_WAIT {
                    reason
                } else {
                    tracing::info!(seconds = wait.as_secs_f64(), "the model's endpoint is busy");
                    waits += 1;
                    tokio::time::sleep(wait).await;
                    continue;
                }
            }
            Err(Trouble::Again(reason)) if !tried_again => {
                tracing::info!("asking the model once more: {}", shown(http, &reason));
                tried_again = true;
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            Err(Trouble::Again(reason) | Trouble::Final(reason)) => reason,
        };
        return Err(EngineError::Model(shown(http, &reason)));
    }
}

/// Asks whether the endpoint is there, takes the key, and knows the model. It says nothing of any
/// conversation and costs nothing.
pub(super) async fn probe(http: &Http, model: &str) -> Result<String, String> {
    let failed = |reason: &str| shown(http, reason);
    let mut response = http.models().await.map_err(|error| failed(&error.to_string()))?;
    if response.status == StatusCode::NOT_FOUND {
        return Ok("the endpoint is there; it lists no models".to_owned());
    }
    if response.status != StatusCode::OK {
        return Err(match refused(&mut response).await {
            Trouble::Later(_, reason) | Trouble::Again(reason) | Trouble::Final(reason) => {
                failed(&reason)
            }
        });
    }
    let body = response.beginning(MAX_BODY_BYTES).await.map_err(|e| failed(&e.to_string()))?;
    let list: Value = serde_json::from_slice(&body).unwrap_or_default();
    let Some(models) = list["data"].as_array() else {
        return Ok("the endpoint is there; it lists no models".to_owned());
    };
    if models.iter().any(|entry| entry["id"] == model) {
        return Ok(format!("the endpoint is there and knows {model}"));
    }
    Err(format!("the endpoint is there and does not list {model}; correct engine.openai.model"))
}

/// A reason on one line, not too long, and without the key.
fn shown(http: &Http, reason: &str) -> String {
    one_line(&http.mask(reason)).chars().take(ERROR_CHARS).collect()
}

async fn once(http: &Http, body: &[u8], most_bytes: usize) -> Result<Completion, Trouble> {
    let mut response = http.post(body.to_vec()).await?;
    if response.status != StatusCode::OK {
        return Err(refused(&mut response).await);
    }
    let completion = if response.is_event_stream() {
        stream(&mut response, most_bytes).await?
    } else {
        let body = response.beginning(MAX_BODY_BYTES).await?;
        let mut completion = Completion::default();
        completion.add(&String::from_utf8_lossy(&body), most_bytes)?;
        if completion.is_nothing() {
            return Err(Unusable::Other("it has no choices".to_owned()).into());
        }
        completion
    };
    match completion.finish.as_deref() {
        Some("content_filter") => {
            Err(Trouble::Final("the model's endpoint withheld the answer (content filter)".into()))
        }
        Some("length") if completion.text.trim().is_empty() && completion.calls.is_empty() => {
            Err(Trouble::Final(
                "the model used up its output before it said anything; raise maxOutputTokens"
                    .into(),
            ))
        }
        _ => Ok(completion),
    }
}

/// Reads a stream to its end.
async fn stream(response: &mut Response, most_bytes: usize) -> Result<Completion, Trouble> {
    let mut reading = Reading::new(most_bytes);
    while let Some(piece) = response.chunk().await? {
        if reading.take(&piece)? {
            break;
        }
    }
    let ended = reading.end()?;
    ended.ok_or_else(|| Trouble::Again("the model's answer ended in the middle".to_owned()))
}

/// What a response other than 200 means.
async fn refused(response: &mut Response) -> Trouble {
    let status = response.status;
    let wait = response.retry_after();
    let body = response.beginning(ERROR_BYTES).await.unwrap_or_default();
    let said = match serde_json::from_slice::<Value>(&body) {
        Ok(body) => error_text(body.get("error").unwrap_or(&body)),
        Err(_) => String::from_utf8_lossy(&body).into_owned(),
    };
    let reason = format!("the model's endpoint answered {status}: {}", said.trim());
    match status {
        StatusCode::TOO_MANY_REQUESTS => Trouble::Later(wait, reason),
        StatusCode::REQUEST_TIMEOUT => Trouble::Again(reason),
        _ if status.is_server_error() && wait.is_some() => Trouble::Later(wait, reason),
        _ if status.is_server_error() => Trouble::Again(reason),
        _ => Trouble::Final(reason),
    }
}

impl From<HttpError> for Trouble {
    fn from(error: HttpError) -> Self {
        match &error {
            HttpError::Connect(_) | HttpError::Cut(_) => Self::Again(error.to_string()),
            HttpError::Silent(_) => Self::Final(error.to_string()),
        }
    }
}

impl From<Unusable> for Trouble {
    fn from(unusable: Unusable) -> Self {
        match &unusable {
            Unusable::Error(_) => Self::Again(unusable.to_string()),
            Unusable::Other(_) | Unusable::TooLong => Self::Final(unusable.to_string()),
        }
    }
}
