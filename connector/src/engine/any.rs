//! The engine that the binding names: one type for all of them, so that whoever runs turns does not
//! care which it is.

use std::path::Path;

use super::config::{EngineConfig, EngineKind};
use super::context::{Context, ContextError};
use super::openai::{OpenAi, OpenAiError};
use super::pi::{Pi, PiError};
use super::rules::Rules;
use super::{Answer, Engine, EngineError, ToolRunner};
use crate::prompt::Prompt;

/// An engine of any kind.
#[derive(Debug)]
pub enum AnyEngine {
    /// Fixed phrases.
    Rules(Rules),
    /// A model behind an endpoint.
    OpenAi(Box<OpenAi>),
    /// A model behind pi.
    Pi(Box<Pi>),
}

/// Why an engine cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// A context file is not what it must be.
    #[error(transparent)]
    Context(#[from] ContextError),
    /// The `openai` section names something that does not hold.
    #[error(transparent)]
    OpenAi(#[from] OpenAiError),
    /// The `pi` section names something that does not hold.
    #[error(transparent)]
    Pi(#[from] PiError),
}

impl AnyEngine {
    /// The engine of a binding, whose folder is `folder`. It opens the files that the section names
    /// and reaches out to nobody.
    ///
    /// # Errors
    /// When a file that the section names is missing, not private, or not what it must be.
    pub fn new(config: &EngineConfig, folder: &Path) -> Result<Self, SetupError> {
        let context = config.context.as_ref().map(Context::load).transpose()?.unwrap_or_default();
        match (config.kind, &config.openai, &config.pi) {
            (EngineKind::OpenAi, Some(section), _) => {
                Ok(Self::OpenAi(Box::new(OpenAi::new(section, context, folder)?)))
            }
            (EngineKind::Pi, _, Some(section)) => {
                Ok(Self::Pi(Box::new(Pi::new(section, context, folder)?)))
            }
            // The binding was refused when a kind lacks its section.
            (EngineKind::Rules | EngineKind::OpenAi | EngineKind::Pi, ..) => Ok(Self::Rules(Rules)),
        }
    }
}

impl Engine for AnyEngine {
    fn name(&self) -> &'static str {
        match self {
            Self::Rules(engine) => engine.name(),
            Self::OpenAi(engine) => engine.name(),
            Self::Pi(engine) => engine.name(),
        }
    }

    async fn run_turn<T: ToolRunner>(
        &mut self,
        prompt: &Prompt,
        tools: &mut T,
    ) -> Result<Answer, EngineError> {
        match self {
            Self::Rules(engine) => engine.run_turn(prompt, tools).await,
            Self::OpenAi(engine) => engine.run_turn(prompt, tools).await,
            Self::Pi(engine) => engine.run_turn(prompt, tools).await,
        }
    }
}
