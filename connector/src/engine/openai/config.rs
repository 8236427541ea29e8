//! The binding's `engine.openai` section, and the address it names.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use hyper::Uri;
use schemars::JsonSchema;
use serde::Deserialize;

/// What the engine needs to reach a model.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct OpenAiConfig {
    /// The endpoint, up to and without `/chat/completions`. `https`, or `http` on this machine.
    pub base_url: String,
    /// The model's name, as the endpoint knows it.
    pub model: String,
    /// The file that holds the key; absent for an endpoint that wants none.
    #[serde(default)]
    pub key_file: Option<PathBuf>,
    /// PEM certificates to trust for this endpoint instead of the system's.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// How many tokens the model takes in all: prompt, tools, conversation and answer.
    #[serde(default = "default_context_tokens")]
    pub context_tokens: u32,
    /// How many tokens one answer may have.
    #[serde(default = "default_max_output_tokens")]
    pub max_output_tokens: u32,
    /// How long the endpoint may say nothing, in seconds.
    #[serde(default = "default_idle_timeout")]
    pub idle_timeout_seconds: u64,
    /// The name under which the endpoint takes `maxOutputTokens`.
    #[serde(default)]
    pub output_limit_field: OutputLimitField,
    /// Whether the endpoint is asked to say what was used; some refuse a request that asks.
    #[serde(default = "default_stream_usage")]
    pub stream_usage: bool,
    /// How much a model that reasons is to reason; absent for one that does not.
    #[serde(default)]
    pub reasoning_effort: Option<ReasoningEffort>,
}

/// The name of the field that limits an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OutputLimitField {
    /// What OpenAI's own endpoint takes now.
    #[default]
    MaxCompletionTokens,
    /// What older compatible endpoints take.
    MaxTokens,
}

impl OutputLimitField {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::MaxCompletionTokens => "max_completion_tokens",
            Self::MaxTokens => "max_tokens",
        }
    }
}

/// How much a model is to reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ReasoningEffort {
    /// As little as it can.
    Minimal,
    /// A little.
    Low,
    /// The usual.
    Medium,
    /// Much.
    High,
}

impl ReasoningEffort {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Minimal => "minimal",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

fn default_context_tokens() -> u32 {
    64_000
}

fn default_max_output_tokens() -> u32 {
    4096
}

fn default_stream_usage() -> bool {
    true
}

fn default_idle_timeout() -> u64 {
    120
}

impl OpenAiConfig {
    /// The first key that does not hold, and what to write instead.
    pub(crate) fn first_problem(&self) -> Option<(&'static str, &'static str)> {
        if let Err(reason) = Endpoint::parse(&self.base_url) {
            return Some(("engine.openai.baseUrl", reason));
        }
        let absolute = |path: &Option<PathBuf>| path.as_ref().is_none_or(|path| path.is_absolute());
        let name_fits = (1..=200).contains(&self.model.len())
            && self.model.bytes().all(|byte| byte.is_ascii_graphic());
        let output_fits = (256..=self.context_tokens / 2).contains(&self.max_output_tokens);
        let checks = [
            (name_fits, "engine.openai.model", "write the model's name, without spaces"),
            (absolute(&self.key_file), "engine.openai.keyFile", "write an absolute path"),
            (absolute(&self.ca_file), "engine.openai.caFile", "write an absolute path"),
            (
                (16_000..=10_000_000).contains(&self.context_tokens),
                "engine.openai.contextTokens",
                "write 16000 to 10000000",
            ),
            (output_fits, "engine.openai.maxOutputTokens", "write 256 to half of contextTokens"),
            (
                (1..=3600).contains(&self.idle_timeout_seconds),
                "engine.openai.idleTimeoutSeconds",
                "write 1 to 3600",
            ),
        ];
        checks.into_iter().find(|(holds, _, _)| !holds).map(|(_, key, reason)| (key, reason))
    }

    pub(super) fn idle_timeout(&self) -> Duration {
        Duration::from_secs(self.idle_timeout_seconds)
    }
}

/// Where requests go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Endpoint {
    /// Whether the connection is TLS. Without it, only an address of this machine is connected to.
    pub(super) tls: bool,
    /// A name or an address, without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    /// `host[:port]` as the request names it.
    pub(super) authority: String,
    /// What comes before each path, without a slash at its end.
    base: String,
}

impl Endpoint {
    pub(super) fn parse(base_url: &str) -> Result<Self, &'static str> {
        let url: Uri = base_url.parse().map_err(|_| "write a URL, like https://host/v1")?;
        let authority = url.authority().ok_or("write a URL with a host, like https://host/v1")?;
        if authority.as_str().contains('@') {
            return Err("the key belongs into keyFile, never into the URL");
        }
        if url.query().is_some() || base_url.contains('#') {
            return Err("write the URL without a query or fragment");
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let tls = match url.scheme_str() {
            Some("https") => true,
            Some("http") if is_this_machine(&host) => false,
            Some("http") => return Err("http is for this machine alone; write https"),
            _ => return Err("write a URL that begins with https://"),
        };
        Ok(Self {
            tls,
            port: authority.port_u16().unwrap_or(if tls { 443 } else { 80 }),
            authority: authority.as_str().to_owned(),
            base: url.path().trim_end_matches('/').to_owned(),
            host,
        })
    }

    /// The path of one of its services.
    pub(super) fn path(&self, service: &str) -> String {
        format!("{}/{service}", self.base)
    }
}

fn is_this_machine(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::Endpoint;

    #[test]
    fn an_address_is_https_or_on_this_machine() {
        for (url, tls, host, port, path) in [
            ("https://api.example.com/v1", true, "api.example.com", 443, "/v1/models"),
            ("https://api.example.com:8443", true, "api.example.com", 8443, "/models"),
            ("http://127.0.0.1:9/v1/", false, "127.0.0.1", 9, "/v1/models"),
            ("http://[::1]:9/v1", false, "::1", 9, "/v1/models"),
            ("http://localhost/v1", false, "localhost", 80, "/v1/models"),
        ] {
            let found = Endpoint::parse(url).unwrap_or_else(|why| panic!("{url}: {why}"));
            let shown = (found.tls, found.host.as_str(), found.port, found.path("models"));
            assert_eq!(shown, (tls, host, port, path.to_owned()), "{url}");
        }
        for url in [
            "http://api.example.com/v1",
            "http://10.0.0.1/v1",
            "http://localhost.example.com/v1",
            "ftp://127.0.0.1/v1",
            "https://key@api.example.com/v1",
            "https://api.example.com/v1?key=x",
            "https://api.example.com/v1#x",
            "/v1",
            "api.example.com",
            "",
        ] {
            assert!(Endpoint::parse(url).is_err(), "{url}");
        }
    }
}
