//! The binding: one strict JSON file, read once, at start.
//!
//! It says who may talk to Sage here, within which limits, with which engine, and where the executor
//! listens. It holds nothing of git: roots, remotes and tokens are the executor's configuration, which
//! this program cannot read. Anything unexpected refuses the start and names the key, because a
//! misread limit or allowlist is worse than no start.

mod discord;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use policy::strict::{self, Problem};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::engine::config::EngineConfig;
use crate::private_file::{self, Kind, PrivateFileError};

pub use discord::{Discord, Token, TokenRef};

/// The longest binding that is read, in bytes.
const MAX_BYTES: u64 = 1024 * 1024;

/// The whole file.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Binding {
    /// The JSON Schema that an editor checks this file by. It is ignored here.
    #[serde(rename = "$schema", default)]
    pub schema: Option<String>,
    /// Names this binding; its data is in `<dataRoot>/<name>`.
    pub name: String,
    /// The folder for everything this program writes. Absolute.
    pub data_root: PathBuf,
    /// Where the executor is.
    pub executor: ExecutorRef,
    /// What thinks.
    pub engine: EngineConfig,
    /// Limits on turns.
    #[serde(default)]
    pub limits: Limits,
    /// Who talks at the terminal.
    pub terminal: Terminal,
    /// Start on a kernel that cannot enforce everything. Loud in the log.
    #[serde(default)]
    pub allow_degraded: bool,
    /// Sage in a guild; without it only the terminal is there.
    pub discord: Option<Discord>,
}

/// Where the executor is.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ExecutorRef {
    /// Its Unix socket. Absolute.
    pub socket: PathBuf,
}

/// Who talks at the terminal.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Terminal {
    /// The person's role name. The executor lists who this program may speak for.
    pub requester: String,
}

/// Limits on turns.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub struct Limits {
    /// Turns that are admitted in one day, by UTC.
    pub turns_per_day: u32,
    /// How long one turn may take, in seconds.
    pub turn_timeout_seconds: u64,
    /// Tool calls in one turn. The executor has its own limit; the lower one counts.
    pub max_calls_per_turn: u32,
    /// The longest message, in characters.
    pub max_message_chars: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            turns_per_day: 200,
            turn_timeout_seconds: 180,
            max_calls_per_turn: 24,
            max_message_chars: 4000,
        }
    }
}

impl Limits {
    /// How long one turn may take.
    #[must_use]
    pub fn turn_timeout(&self) -> Duration {
        Duration::from_secs(self.turn_timeout_seconds)
    }
}

/// Why a binding is refused.
#[derive(Debug, thiserror::Error)]
pub enum BindingError {
    /// The binding or the token is not a private regular file of ours.
    #[error(transparent)]
    File(#[from] PrivateFileError),
    /// A key is unknown, missing, or of the wrong type or value.
    #[error("the binding {path} is not valid at `{key}`: {reason}")]
    Invalid {
        /// The file.
        path: String,
        /// The key's path.
        key: String,
        /// What is wrong and what to write instead.
        reason: String,
    },
}

impl Binding {
    /// Reads and checks a binding.
    ///
    /// # Errors
    /// See [`BindingError`]; nothing was opened but the file itself.
    pub fn load(path: &Path) -> Result<Self, BindingError> {
        let file = private_file::open(path, Kind::Binding)?;
        let mut text = String::new();
        file.take(MAX_BYTES).read_to_string(&mut text).map_err(|error| {
            PrivateFileError::new(Kind::Binding, path, format!("cannot be read: {error}"))
        })?;
        Self::parse(&text, &path.display().to_string())
    }

    /// The folder of this binding's data.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.data_root.join(&self.name)
    }

    /// Parses and checks the text of a binding; `path` is what it is called in a message.
    ///
    /// # Errors
    /// [`BindingError::Invalid`].
    pub(crate) fn parse(text: &str, path: &str) -> Result<Self, BindingError> {
        let invalid = |problem: Problem| BindingError::Invalid {
            path: format!("{path}:{}:{}", problem.line, problem.column),
            key: if problem.key.is_empty() { ".".to_owned() } else { problem.key },
            reason: problem.reason,
        };
        let binding: Self = strict::parse(text).map_err(invalid)?;
        match binding.first_problem() {
            Some((key, reason)) => Err(invalid(strict::found(text, &format!("{key}: {reason}")))),
            None => Ok(binding),
        }
    }

    /// The JSON Schema of a binding, for editors and for the documents.
    #[must_use]
    pub fn json_schema() -> serde_json::Value {
        let mut schema = schemars::schema_for!(Self).to_value();
        schema["title"] = "The binding of sage-connector".into();
        schema
    }

    fn first_problem(&self) -> Option<(String, &'static str)> {
        let name_fits = (1..=32).contains(&self.name.len())
            && self.name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        let checks = [
            (name_fits, "name", "write 1 to 32 lower-case letters, digits and `-`"),
            (self.data_root.is_absolute(), "dataRoot", "write an absolute path"),
            (self.executor.socket.is_absolute(), "executor.socket", "write an absolute path"),
            (self.limits.turns_per_day > 0, "limits.turnsPerDay", "write at least 1"),
            (
                (1..=86_400).contains(&self.limits.turn_timeout_seconds),
                "limits.turnTimeoutSeconds",
                "write 1 to 86400",
            ),
            (self.limits.max_calls_per_turn > 0, "limits.maxCallsPerTurn", "write at least 1"),
            (self.limits.max_message_chars > 0, "limits.maxMessageChars", "write at least 1"),
            (
                !self.terminal.requester.trim().is_empty(),
                "terminal.requester",
                "nobody may talk here; write a role name that the executor lists, like \"Owner\"",
            ),
        ];
        let found = checks.into_iter().find(|(holds, _, _)| !holds);
        found
            .map(|(_, key, reason)| (key.to_owned(), reason))
            .or_else(|| self.engine.first_problem().map(|(key, why)| (key.to_owned(), why)))
            .or_else(|| self.discord.as_ref().and_then(Discord::first_problem))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use serde_json::{Value, json};

    use super::{Binding, BindingError, Limits};

    fn good() -> Value {
        json!({
            "name": "sage",
            "dataRoot": "/var/lib/sage",
            "executor": {"socket": "/run/sage/executor.sock"},
            "engine": {"kind": "rules"},
            "terminal": {"requester": "Owner"},
        })
    }

    fn parse(value: &Value) -> Result<Binding, BindingError> {
        Binding::parse(&value.to_string(), "b.json")
    }

    /// The good binding with one place changed; null takes the key away.
    fn with(pointer: &str, value: Value) -> Value {
        let mut binding = good();
        let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
        let place = binding.pointer_mut(parent).and_then(Value::as_object_mut).expect("it exists");
        if value.is_null() {
            place.remove(key);
        } else {
            place.insert(key.to_owned(), value);
        }
        binding
    }

    #[test]
    fn limits_have_defaults() {
        let binding = parse(&good()).expect("it is good");
        assert_eq!(binding.limits, Limits::default());
        assert_eq!(binding.folder(), std::path::Path::new("/var/lib/sage/sage"));
    }

    #[test]
    fn every_mistake_is_named_by_its_key() {
        let cases = [
            ("/nam", json!("x"), "nam"),
            ("/git", json!({}), "git"),
            ("/name", Value::Null, "name"),
            ("/name", json!("../up"), "name"),
            ("/name", json!(""), "name"),
            ("/dataRoot", json!("relative"), "dataRoot"),
            ("/executor/socket", json!(7), "executor.socket"),
            ("/executor/socket", json!("relative"), "executor.socket"),
            ("/executor/path", json!("/x"), "executor.path"),
            ("/engine/kind", json!("oracle"), "engine.kind"),
            ("/engine/model", json!("x"), "engine.model"),
            ("/engine/kind", json!("openai"), "engine.openai"),
            ("/engine/context", json!({"folder": "a", "files": ["b"]}), "engine.context.folder"),
            ("/engine/context", json!({"folder": "/a", "files": []}), "engine.context.files"),
            ("/engine/context", json!({"folder": "/a", "files": ["../b"]}), "engine.context.files"),
            ("/engine/context", json!({"folder": "/a", "files": ["/b"]}), "engine.context.files"),
            ("/limits", json!({"turnsPerDay": "many"}), "limits.turnsPerDay"),
            ("/limits", json!({"turnsPerDay": -1}), "limits.turnsPerDay"),
            ("/limits", json!({"turnsPerDay": 0}), "limits.turnsPerDay"),
            ("/limits", json!({"turnTimeoutSeconds": 0}), "limits.turnTimeoutSeconds"),
            ("/limits", json!({"maxCallsPerTurn": 0}), "limits.maxCallsPerTurn"),
            ("/limits", json!({"maxMessageChars": 0}), "limits.maxMessageChars"),
            ("/limits", json!({"turns_per_day": 1}), "limits.turns_per_day"),
            ("/terminal/requester", json!(" "), "terminal.requester"),
            ("/terminal/requester", Value::Null, "requester"),
        ];
        for (pointer, value, key) in cases {
            let text = match parse(&with(pointer, value.clone())) {
                Err(error @ BindingError::Invalid { .. }) => error.to_string(),
                other => panic!("{pointer} = {value}: {other:?}"),
            };
            assert!(text.contains(key), "{pointer} = {value}: {text}");
        }
    }

    #[test]
    fn every_mistake_in_the_section_of_an_engine_is_named_by_its_key() {
        let section = |change: Value| {
            let mut section = json!({"baseUrl": "https://api.example.com/v1", "model": "m1"});
            let Value::Object(change) = change else { unreachable!("it is an object") };
            section.as_object_mut().expect("an object").extend(change);
            with("/engine/openai", section)
        };
        parse(&section(json!({"keyFile": "/k", "maxOutputTokens": 9000}))).expect("it is good");
        for (change, key) in [
            (json!({"baseUrl": "http://api.example.com/v1"}), "engine.openai.baseUrl"),
            (json!({"baseUrl": "https://key@api.example.com/v1"}), "engine.openai.baseUrl"),
            (json!({"baseURL": "https://api.example.com/v1"}), "engine.openai.baseURL"),
            (json!({"model": ""}), "engine.openai.model"),
            (json!({"model": 7}), "engine.openai.model"),
            (json!({"key": "sk-x"}), "engine.openai.key"),
            (json!({"keyFile": "relative"}), "engine.openai.keyFile"),
            (json!({"caFile": "relative"}), "engine.openai.caFile"),
            (json!({"contextTokens": 1000}), "engine.openai.contextTokens"),
            (json!({"maxOutputTokens": 60000}), "engine.openai.maxOutputTokens"),
            (json!({"idleTimeoutSeconds": 0}), "engine.openai.idleTimeoutSeconds"),
            (json!({"outputLimitField": "max"}), "engine.openai.outputLimitField"),
            (json!({"reasoningEffort": "extreme"}), "engine.openai.reasoningEffort"),
        ] {
            let text = parse(&section(change.clone())).expect_err("a mistake").to_string();
            assert!(text.contains(&format!("`{key}`")), "{change}: {text}");
        }
    }

    #[test]
    fn every_mistake_in_the_section_of_pi_is_named_by_its_key() {
        let section = |change: Value| {
            let mut section = json!({"install": "/opt/pi", "provider": "p", "model": "m"});
            let Value::Object(change) = change else { unreachable!("it is an object") };
            section.as_object_mut().expect("an object").extend(change);
            with("/engine/pi", section)
        };
        let endpoint = |change: Value| {
            let mut endpoint = json!({"baseUrl": "https://h/v1"});
            let Value::Object(change) = change else { unreachable!("it is an object") };
            endpoint.as_object_mut().expect("an object").extend(change);
            json!({ "endpoint": endpoint })
        };
        parse(&section(endpoint(json!({"reasoning": true})))).expect("it is good");
        parse(&section(json!({"thinking": "high", "keyFile": "/k"}))).expect("it is good");
        let lacks = parse(&with("/engine/kind", json!("pi"))).expect_err("no section").to_string();
        assert!(lacks.contains("`engine.pi`"), "{lacks}");
        for (change, key) in [
            (json!({"install": "/"}), "engine.pi.install"),
            (json!({"install": "opt"}), "engine.pi.install"),
            (json!({"node": "node"}), "engine.pi.node"),
            (json!({"cli": "/elsewhere/cli.js"}), "engine.pi.cli"),
            (json!({"provider": "--api-key"}), "engine.pi.provider"),
            (json!({"model": "two words"}), "engine.pi.model"),
            (json!({"thinking": "hard"}), "engine.pi.thinking"),
            (json!({"keyFile": "k"}), "engine.pi.keyFile"),
            (json!({"keyFile": "/opt/pi/key"}), "engine.pi.keyFile"),
            (json!({"apiKey": "sk-x"}), "engine.pi.apiKey"),
            (json!({"connectPorts": []}), "engine.pi.connectPorts"),
            (json!({"connectPorts": [0]}), "engine.pi.connectPorts"),
            (json!({"connectPorts": [70000]}), "engine.pi.connectPorts"),
            (endpoint(json!({"baseUrl": "ftp://h"})), "engine.pi.endpoint.baseUrl"),
            (endpoint(json!({"baseUrl": "https://k@h"})), "engine.pi.endpoint.baseUrl"),
            (endpoint(json!({"api": ""})), "engine.pi.endpoint.api"),
            (endpoint(json!({"contextTokens": 8000})), "engine.pi.endpoint.contextTokens"),
            (endpoint(json!({"maxOutputTokens": 1})), "engine.pi.endpoint.maxOutputTokens"),
            (endpoint(json!({"key": "x"})), "engine.pi.endpoint.key"),
        ] {
            let text = parse(&section(change.clone())).expect_err("a mistake").to_string();
            assert!(text.contains(&format!("`{key}")), "{change}: {text}");
        }
    }

    #[test]
    fn text_after_the_binding_is_refused() {
        assert!(Binding::parse(&format!("{} {{}}", good()), "b.json").is_err());
    }

    #[test]
    fn only_a_private_regular_file_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("b.json");
        std::fs::write(&path, good().to_string()).expect("written");
        for (mode, accepted) in [(0o644, false), (0o400, false), (0o660, false), (0o600, true)] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("chmod");
            match Binding::load(&path) {
                Ok(_) => assert!(accepted, "{mode:o}"),
                Err(error) => {
                    let text = error.to_string();
                    assert!(!accepted && text.contains("chmod 600"), "{mode:o}: {text}");
                }
            }
        }
        let error = Binding::load(folder.path()).expect_err("a folder is no binding").to_string();
        assert!(error.contains("regular file"), "{error}");
    }
}
