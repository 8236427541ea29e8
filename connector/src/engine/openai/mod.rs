//! The engine with a model behind an endpoint that speaks OpenAI's chat completions.
//!
//! A turn asks the model, does the calls it wants, one after the other and in its order, tells it what
//! came of them, and asks again, until it answers without a call. What was said so far is on disk
//! ([`memory`]) and what the model is given of it fits a budget ([`budget`]).
//!
//! What must stay true: nothing of an answer is acted on before all of it is there; a call has exactly
//! one result, right behind it; dropping the turn's future closes the connection; the key goes into one
//! header and nowhere else. No proxy, no redirect, no address that the binding does not name.

mod ask;

mod budget;

mod completion;

mod config;

mod dispatch;

mod http;

mod memory;

mod offer;

mod reading;

mod sse;

use std::fmt;
use std::path::{Path, PathBuf};

pub use config::{OpenAiConfig, OutputLimitField, ReasoningEffort};
pub use offer::parameters;
pub use reading::any_split_reads_the_same;
use serde_json::{Value, json};

use self::completion::{Call, Completion};
use self::config::Endpoint;
use self::http::Http;
use self::memory::{Memory, Message, StoredCall};
use super::context::Context;
use super::{Answer, Engine, EngineError, ToolRunner};
use crate::private_file::{self, Kind, PrivateFileError};
use crate::prompt::Prompt;
use crate::record::Usage;

/// How often the model is asked in one turn. In the last of them it has to answer without calls.
const MAX_ROUNDS: u32 = 48;

/// The least room for a conversation beside the system prompt and the tools, in tokens.
const LEAST_ROOM: usize = 2000;

/// The engine.
pub struct OpenAi {
    config: OpenAiConfig,
    context: Context,
    http: Http,
    folder: PathBuf,
}

impl fmt::Debug for OpenAi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenAi").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Why the engine cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum OpenAiError {
    /// The key file is not what it must be.
    #[error(transparent)]
    Key(#[from] PrivateFileError),
    /// The address or the certificates are not what they must be.
    #[error("engine.openai: {0}")]
    Endpoint(String),
}

impl OpenAi {
    /// The engine of a binding, whose data folder is `folder`.
    ///
    /// # Errors
    /// When the key or the certificates cannot be read.
    pub fn new(
        config: &OpenAiConfig,
        context: Context,
        folder: &Path,
    ) -> Result<Self, OpenAiError> {
        let key = config.key_file.as_deref();
        let key = key.map(|path| private_file::read_secret(path, Kind::Key)).transpose()?;
        let endpoint = Endpoint::parse(&config.base_url)
            .map_err(|reason| OpenAiError::Endpoint(reason.to_owned()))?;
        let http = Http::new(endpoint, config.ca_file.as_deref(), key, config.idle_timeout())
            .map_err(OpenAiError::Endpoint)?;
        Ok(Self { config: config.clone(), context, http, folder: folder.to_owned() })
    }

    /// The context files.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The port of the endpoint.
    pub(crate) fn port(&self) -> u16 {
        self.http.port()
    }

    /// The model's name, as the endpoint knows it.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.config.model
    }

    /// Whether the endpoint can be used: reached, with this key, and for this model. Nothing of a
    /// conversation is sent, and no model runs.
    ///
    /// # Errors
    /// Why not, on one line, for the operator.
    pub async fn probe(&self) -> Result<String, String> {
        ask::probe(&self.http, &self.config.model).await
    }

    /// The longest answer in bytes: far more than the tokens it may have, were they all long words.
    fn most_bytes(&self) -> usize {
        16 * self.config.max_output_tokens as usize
    }

    /// What is left for the conversation, in tokens.
    fn room(&self, system: &str, tools: &[Value]) -> Result<usize, EngineError> {
        let tools: usize = tools.iter().map(|tool| tool.to_string().len()).sum();
        let fixed = budget::tokens(system.len() + tools) + self.config.max_output_tokens as usize;
        let room = (self.config.context_tokens as usize).saturating_sub(fixed);
        if room >= LEAST_ROOM {
            return Ok(room);
        }
        Err(EngineError::Model(format!(
            "contextTokens leaves {room} tokens for the conversation; raise it, or shorten the \
             context files"
        )))
    }

    /// The request, as the endpoint takes it.
    fn request(
        &self,
        system: &str,
        messages: &[Message],
        tools: &[Value],
        may_call: bool,
    ) -> Vec<u8> {
        let mut body = json!({
            "model": self.config.model,
            "messages": wire(system, messages),
            "stream": true,
        });
        if self.config.stream_usage {
            body["stream_options"] = json!({"include_usage": true});
        }
        body[self.config.output_limit_field.as_str()] = json!(self.config.max_output_tokens);
        if let Some(effort) = self.config.reasoning_effort {
            body["reasoning_effort"] = json!(effort.as_str());
        }
        if !tools.is_empty() {
            body["tools"] = json!(tools);
            if !may_call {
                body["tool_choice"] = json!("none");
            }
        }
        body.to_string().into_bytes()
    }

    /// Adds the message of this turn; older ones make room for it.
    fn begin(&self, prompt: &Prompt, room: usize) -> Result<Memory, EngineError> {
        let mut memory = Memory::open(&self.folder, prompt.origin.as_str())?;
        let message = Message::User { text: prompt.envelope.clone() };
        let all: Vec<_> = memory.messages().iter().cloned().chain([message.clone()]).collect();
        let fitted = budget::fit(&all, room).ok_or_else(too_long)?;
        if fitted == all {
            memory.append(message)?;
        } else {
            tracing::info!(
                before = budget::total(&all),
                after = budget::total(&fitted),
                "the conversation was made shorter"
            );
            memory.replace(fitted)?;
        }
        Ok(memory)
    }
}

impl Engine for OpenAi {
    fn name(&self) -> &'static str {
        "openai"
    }

    async fn run_turn<T: ToolRunner>(
        &mut self,
        prompt: &Prompt,
        tools: &mut T,
    ) -> Result<Answer, EngineError> {
        let system = self.context.before(&prompt.system);
        let functions = offer::tools(&prompt.offer);
        let room = self.room(&system, &functions)?;
        let mut memory = self.begin(prompt, room)?;
        let mut usage = None;
        for round in 1..=MAX_ROUNDS {
            let messages = budget::fit(memory.messages(), room).ok_or_else(too_long)?;
            let body = self.request(&system, &messages, &functions, round < MAX_ROUNDS);
            let completion = ask::ask(&self.http, &body, self.most_bytes()).await?;
            usage = sum(usage, completion.usage);
            if completion.calls.is_empty() {
                return answer(completion, usage, &mut memory);
            }
            let calls = named(completion.calls);
            memory.append(Message::Assistant { text: completion.text, calls: calls.clone() })?;
            for call in &calls {
                let most = room * 3 / 2;
                let text = dispatch::perform(call, &prompt.offer, tools, most).await?;
                memory.append(Message::Tool { id: call.id.clone(), text })?;
            }
        }
        Err(EngineError::Model(format!("the model wanted more calls after {MAX_ROUNDS} rounds")))
    }
}

fn too_long() -> EngineError {
    EngineError::Model("this turn is longer than the model's context".to_owned())
}

/// The end of a turn. One without a word is not kept: the turn says a fixed line, and the next one
/// finds that this one had no answer.
fn answer(
    completion: Completion,
    usage: Option<Usage>,
    memory: &mut Memory,
) -> Result<Answer, EngineError> {
    let mut text = completion.text.trim().to_owned();
    if !text.is_empty() {
        memory.append(Message::Assistant { text: text.clone(), calls: Vec::new() })?;
        if completion.finish.as_deref() == Some("length") {
            text.push_str("\n\n(This answer was cut at its greatest length.)");
        }
    }
    memory.settle()?;
    Ok(Answer { text, usage })
}

/// The calls, each with an id of its own: some endpoints send none, or the same for all.
fn named(calls: Vec<Call>) -> Vec<StoredCall> {
    let mut named: Vec<StoredCall> = Vec::new();
    for Call { mut id, name, arguments, .. } in calls {
        if id.is_empty() || named.iter().any(|other| other.id == id) {
            id = format!("call-{}-{id}", named.len());
        }
        named.push(StoredCall { id, name, arguments });
    }
    named
}

/// Both together, as far as the endpoint tells.
fn sum(before: Option<Usage>, now: Option<Usage>) -> Option<Usage> {
    let (Some(before), Some(now)) = (before, now) else { return before.or(now) };
    Some(Usage {
        input_tokens: before.input_tokens.saturating_add(now.input_tokens),
        output_tokens: before.output_tokens.saturating_add(now.output_tokens),
    })
}

/// The conversation as the endpoint takes it.
fn wire(system: &str, messages: &[Message]) -> Vec<Value> {
    let gap = messages.contains(&Message::Gap {});
    let note = if gap { "\nEarlier messages of this conversation were left out.\n" } else { "" };
    let mut wire = vec![json!({"role": "system", "content": format!("{system}{note}")})];
    for message in messages {
        match message {
            Message::Gap {} => {}
            Message::User { text } => wire.push(json!({"role": "user", "content": text})),
            Message::Tool { id, text } => {
                wire.push(json!({"role": "tool", "tool_call_id": id, "content": text}));
            }
            Message::Assistant { text, calls } => wire.push(assistant(text, calls)),
        }
    }
    wire
}

/// Endpoints differ over an empty text beside calls, and over an empty list of calls: neither is sent.
fn assistant(text: &str, calls: &[StoredCall]) -> Value {
    let mut message = json!({"role": "assistant"});
    if !text.is_empty() || calls.is_empty() {
        message["content"] = json!(text);
    }
    if !calls.is_empty() {
        let call = |call: &StoredCall| {
            // What was no JSON when the model wrote it must not break the next request.
            let valid = serde_json::from_str::<serde_json::Map<String, Value>>(&call.arguments);
            let arguments = if valid.is_ok() { &call.arguments } else { "{}" };
            let function = json!({"name": call.name, "arguments": arguments});
            json!({"id": call.id, "type": "function", "function": function})
        };
        message["tool_calls"] = calls.iter().map(call).collect();
    }
    message
}

#[cfg(test)]
mod tests;
