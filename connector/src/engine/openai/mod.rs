//! The engine with a model behind an endpoint that speaks OpenAI's chat completions.

mod config;

use std::path::{Path, PathBuf};

pub use config::{OpenAiConfig, OutputLimitField, ReasoningEffort};

use super::context::Context;
use super::{Answer, Engine, EngineError, ToolRunner};
use crate::key_file::{self, KeyFileError, Secret};
use crate::prompt::Prompt;

/// The engine.
#[derive(Debug)]
pub struct OpenAi {
    context: Context,
    key: Option<Secret>,
    folder: PathBuf,
}

/// Why the engine cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum OpenAiError {
    /// The key file is not what it must be.
    #[error(transparent)]
    Key(#[from] KeyFileError),
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
        let key = config.key_file.as_deref().map(key_file::read).transpose()?;
        Ok(Self { context, key, folder: folder.to_owned() })
    }
}

impl Engine for OpenAi {
    fn name(&self) -> &'static str {
        "openai"
    }

    async fn run_turn<T: ToolRunner>(
        &mut self,
        _prompt: &Prompt,
        _tools: &mut T,
    ) -> Result<Answer, EngineError> {
        Err(EngineError::Model(format!("{:?}", self)))
    }
}
