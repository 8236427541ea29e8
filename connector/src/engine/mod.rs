//! What thinks: it reads a message, calls tools, and says something.
//!
//! An engine knows no transport, no journal, no limit and no deadline. Whoever runs it hands it a
//! [`ToolRunner`] that counts, dispatches and records, and drops the run when its time is up. So an
//! engine cannot forget a limit, and every engine is under the same ones.

pub mod rules;

pub mod openai;

pub mod pi;

mod any;

pub mod config;

pub mod context;

pub mod launch;

pub use any::{AnyEngine, SetupError};
pub use config::EngineKind;

use protocol::refusal::Outcome;
use protocol::tool::ToolCall;
use protocol::wire::WireError;

use crate::prompt::Prompt;
use crate::record::Usage;

/// What thinks.
pub trait Engine: Send {
    /// Its name, for the record.
    fn name(&self) -> &'static str;

    /// Answers one message. Dropping the future abandons the turn; the engine must be fit for the
    /// next one afterwards.
    fn run_turn<T: ToolRunner>(
        &mut self,
        prompt: &Prompt,
        tools: &mut T,
    ) -> impl Future<Output = Result<Answer, EngineError>> + Send;
}

/// Does an engine's tool calls.
pub trait ToolRunner: Send {
    /// Does one call, or refuses it when the turn has used up its calls.
    fn call(&mut self, call: ToolCall) -> impl Future<Output = Result<Outcome, WireError>> + Send;
}

/// What an engine says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The text for the person.
    pub text: String,
    /// What the model used; absent without a model.
    pub usage: Option<Usage>,
}

/// Why an engine has no answer.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The executor could not be reached, or went away in the middle of a call.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The model did not answer as it must.
    #[error("{0}")]
    Model(String),
    /// The conversation so far cannot be read or kept.
    #[error("the conversation so far cannot be kept in {path}: {source}")]
    Memory {
        /// The file.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
}
