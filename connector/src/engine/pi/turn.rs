//! One turn with a pi that is idle: the prompt, the calls that come of it, until it has settled.
//!
//! Dropped before that, it stops pi.

use std::collections::{HashSet, VecDeque};
use std::pin::pin;

use protocol::refusal::Outcome;
use protocol::tool::ToolCall;
use protocol::wire::WireError;
use serde_json::{Value, json};

use super::child::{Incoming, Running};
use super::event::{Event, Request, Response, Said};
use crate::engine::ToolRunner;
use crate::record::Usage;

/// How many calls may wait behind the one that is being done.
const MOST_WAITING: usize = 64;

/// Why a turn came to no end of its own.
#[derive(Debug)]
pub(super) enum Broken {
    /// pi is gone.
    Gone,
    /// The executor could not be reached.
    Wire(WireError),
    /// pi said something that is not of the protocol.
    Line(&'static str),
    /// pi did not take the prompt.
    Prompt(String),
}

/// How a turn ended by itself.
#[derive(Debug)]
pub(super) struct Ended {
    /// The model's last message.
    pub(super) last: Option<Said>,
    /// What all of its messages used.
    pub(super) usage: Usage,
}

/// A call that waits to be done.
#[derive(Debug)]
struct Call {
    id: String,
    tool: String,
    arguments: Value,
}

/// The turn.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    running: &'a mut Running,
    id: String,
    /// Whether pi took the prompt: what it says before is of an earlier turn.
    begun: bool,
    settled: bool,
    last: Option<Said>,
    usage: Usage,
    seen: HashSet<String>,
    waiting: VecDeque<Call>,
}

impl<'a> Turn<'a> {
    /// Sends the prompt.
    pub(super) fn begin(running: &'a mut Running, number: u64, message: &str) -> Self {
        let id = format!("prompt-{number}");
        running.command(&json!({"id": id, "type": "prompt", "message": message}));
        Self {
            running,
            id,
            begun: false,
            settled: false,
            last: None,
            usage: Usage { input_tokens: 0, output_tokens: 0 },
            seen: HashSet::new(),
            waiting: VecDeque::new(),
        }
    }

    /// Goes on until pi has settled.
    pub(super) async fn run<T: ToolRunner>(&mut self, tools: &mut T) -> Result<Ended, Broken> {
        while !self.settled {
            let incoming = self.running.next().await;
            self.take(incoming)?;
            while let Some(call) = self.waiting.pop_front() {
                self.perform(call, tools).await?;
            }
        }
        Ok(Ended { last: self.last.take(), usage: self.usage })
    }

    fn take(&mut self, incoming: Incoming) -> Result<(), Broken> {
        match incoming {
            Incoming::Event(Event::Response(response)) if response.answers(&self.id) => {
                self.taken(response)?;
            }
            Incoming::Event(Event::Said(said)) if self.begun => {
                let Usage { input_tokens, output_tokens } = &mut self.usage;
                *input_tokens = input_tokens.saturating_add(said.usage.input_tokens);
                *output_tokens = output_tokens.saturating_add(said.usage.output_tokens);
                self.last = Some(said);
            }
            Incoming::Event(Event::Settled) if self.begun => self.settled = true,
            Incoming::Event(Event::Malformed(what)) => return Err(Broken::Line(what)),
            Incoming::Garbled => return Err(Broken::Line("the extension's line is no message")),
            Incoming::Gone => return Err(Broken::Gone),
            Incoming::Request(Request::Call { id, tool, arguments }) => {
                self.queue(Call { id, tool, arguments });
            }
            Incoming::Request(Request::Cancel { id }) => self.waiting.retain(|call| call.id != id),
            Incoming::Event(_) | Incoming::Request(Request::Turn { .. }) => {}
        }
        Ok(())
    }

    fn taken(&mut self, response: Response) -> Result<(), Broken> {
        if response.success && response.started() {
            self.begun = true;
            return Ok(());
        }
        let why = response.error.unwrap_or_else(|| "it did not begin with it".to_owned());
        Err(Broken::Prompt(why))
    }

    fn queue(&mut self, call: Call) {
        if !self.seen.insert(call.id.clone()) {
            // Answered, or about to be. Doing it again could act twice.
            tracing::warn!(tool = %call.tool, "pi repeated a call; it is not done again");
        } else if self.waiting.len() >= MOST_WAITING {
            self.running.answer(&call.id, "Too many calls at once; make fewer.", true);
        } else {
            self.waiting.push_back(call);
        }
    }

    /// Does a call and answers it, unless pi takes it back meanwhile.
    async fn perform<T: ToolRunner>(&mut self, call: Call, tools: &mut T) -> Result<(), Broken> {
        let Call { id, tool, arguments } = call;
        let call = match ToolCall::from_json(&tool, arguments) {
            Ok(call) => call,
            Err(refusal) => {
                let (text, failed) = told(&Outcome::Refusal(refusal));
                self.running.answer(&id, &text, failed);
                return Ok(());
            }
        };
        let mut work = pin!(tools.call(call));
        let outcome = loop {
            tokio::select! {
                biased;
                outcome = &mut work => break outcome.map_err(Broken::Wire)?,
                incoming = self.running.next() => {
                    match &incoming {
                        // Dropping the work makes the executor stop it.
                        Incoming::Request(Request::Cancel { id: taken_back }) if *taken_back == id => {
                            return Ok(());
                        }
                        _ => self.take(incoming)?,
                    }
                }
            }
        };
        let (text, failed) = told(&outcome);
        self.running.answer(&id, &text, failed);
        Ok(())
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if !self.settled {
            self.running.commands().stop(&format!("stop-{}", self.id));
        }
    }
}

/// What the model is told of an outcome, and whether it is an error to it.
fn told(outcome: &Outcome) -> (String, bool) {
    match outcome {
        Outcome::Reply(reply) => (reply.to_json().to_string(), false),
        Outcome::Refusal(refusal) => (json!({ "refusal": refusal }).to_string(), true),
        Outcome::Fault(fault) => (json!({ "fault": fault }).to_string(), true),
    }
}
