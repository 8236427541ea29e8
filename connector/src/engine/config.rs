//! The binding's `engine` section: which engine, and what each kind needs.
//!
//! A section for a kind that is not chosen may stand in the binding, so that changing `kind` is all it
//! takes to change engines; it is checked like the one in use. Nothing here opens a file.

use std::path::{Component, Path, PathBuf};

use schemars::JsonSchema;
use serde::Deserialize;

use super::openai::OpenAiConfig;
use super::pi::PiConfig;

/// What thinks.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct EngineConfig {
    /// Which engine.
    pub kind: EngineKind,
    /// For an engine with a model: who it is, in files that the operator wrote.
    #[serde(default)]
    pub context: Option<ContextConfig>,
    /// For `openai`.
    #[serde(default)]
    pub openai: Option<OpenAiConfig>,
    /// For `pi`.
    #[serde(default)]
    pub pi: Option<PiConfig>,
}

/// The engines there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EngineKind {
    /// Fixed phrases; no model and no network.
    Rules,
    /// A model behind an endpoint that speaks OpenAI's chat completions.
    OpenAi,
    /// A model behind `pi --mode rpc`.
    Pi,
}

/// Which files stand before everything else that a model is told.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ContextConfig {
    /// The folder they are in. Absolute.
    pub folder: PathBuf,
    /// The files, relative to the folder, in this order.
    pub files: Vec<String>,
}

impl EngineConfig {
    /// The first key that does not hold, and what to write instead.
    pub(crate) fn first_problem(&self) -> Option<(&'static str, &'static str)> {
        if self.kind == EngineKind::OpenAi && self.openai.is_none() {
            return Some(("engine.openai", "the kind `openai` needs this section"));
        }
        if self.kind == EngineKind::Pi && self.pi.is_none() {
            return Some(("engine.pi", "the kind `pi` needs this section"));
        }
        let context = self.context.as_ref().and_then(ContextConfig::first_problem);
        context
            .or_else(|| self.openai.as_ref().and_then(OpenAiConfig::first_problem))
            .or_else(|| self.pi.as_ref().and_then(PiConfig::first_problem))
    }
}

impl ContextConfig {
    fn first_problem(&self) -> Option<(&'static str, &'static str)> {
        if !self.folder.is_absolute() {
            return Some(("engine.context.folder", "write an absolute path"));
        }
        if self.files.is_empty() {
            return Some((
                "engine.context.files",
                "name at least one file, or leave `context` out",
            ));
        }
        let contained = |file: &String| {
            !file.is_empty()
                && Path::new(file).components().all(|part| matches!(part, Component::Normal(_)))
        };
        (!self.files.iter().all(contained))
            .then_some(("engine.context.files", "write paths below the folder, without `..`"))
    }
}
