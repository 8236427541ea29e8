//! The executor's configuration: one strict JSON file, read once, at start.
//!
//! It names everything that calls can reach. An unknown key, a missing one or a wrong type refuses
//! the start, with the key's path. The connector's user cannot read this file, and this program
//! never reads the connector's.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use policy::git::{BranchName, Identity, Remote, Requester};
use policy::path::PathGlob;
use policy::strict::{self, Problem};
use policy::web::search::SearchBase;
use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::{Deserialize, Deserializer, Serialize, de};

/// The whole file.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Config {
    /// The JSON Schema that an editor checks this file by. The executor ignores it.
    #[serde(rename = "$schema", default)]
    pub schema: Option<String>,
    /// The Unix socket to serve on. Its folder must not be writable by others.
    pub socket: PathBuf,
    /// Where the audit and unfinished work are recorded. Only this program writes there.
    pub state_dir: PathBuf,
    /// Every role name that a turn may act for.
    pub requesters: Vec<String>,
    /// The users that may connect.
    pub peers: Vec<Peer>,
    /// The folders that calls can reach.
    pub roots: Vec<RootConfig>,
    /// Limits on calls.
    #[serde(default)]
    pub limits: Limits,
    /// git's absolute path. Without it, `git` is looked for in /usr/local/bin, /usr/bin and /bin.
    #[serde(default)]
    pub git_program: Option<PathBuf>,
    /// python3's absolute path, for the record protocol. Without it, `python3` is looked for in
    /// /usr/bin, /usr/local/bin and /bin.
    #[serde(default)]
    pub python_program: Option<PathBuf>,
    /// The web. Without it, there are no web tools.
    #[serde(default)]
    pub web: Option<WebConfig>,
    /// Start on a kernel that cannot enforce everything. Loud in logs and in `describe`.
    #[serde(default)]
    pub allow_degraded: bool,
}

/// What of the web can be reached.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct WebConfig {
    /// A SearXNG instance: `http://127.0.0.1:PORT`, or https. Without it, there is no search.
    #[serde(default)]
    pub searxng: Option<String>,
    /// How much of a page is read, in bytes after decompression.
    #[serde(default = "max_fetch_bytes")]
    pub max_fetch_bytes: u64,
    /// A file of PEM certificates to trust, instead of the system's.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
}

fn max_fetch_bytes() -> u64 {
    1024 * 1024
}

impl WebConfig {
    fn check(&self) -> Result<(), String> {
        if let Some(base) = &self.searxng {
            SearchBase::parse(base).map_err(|why| format!("searxng: {why}"))?;
        }
        if self.max_fetch_bytes == 0 || self.max_fetch_bytes > MOST_BYTES {
            return Err(format!("maxFetchBytes: it is between 1 and {MOST_BYTES}"));
        }
        self.ca_file.as_ref().map_or(Ok(()), |path| absolute("caFile", path))
    }
}

/// A user that may connect, and for whom it may speak.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Peer {
    /// The user's name, or its number.
    pub user: UserRef,
    /// The requesters it may speak for.
    pub requesters: Vec<String>,
}

/// A user by name or by number.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a user's name or number")]
pub enum UserRef {
    /// A numeric user id.
    Uid(u32),
    /// A name in the user database.
    Name(String),
}

/// A folder that calls can reach.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct RootConfig {
    /// What calls name it by.
    pub name: String,
    /// Its absolute path.
    pub path: PathBuf,
    /// Whether files in it can be written.
    #[serde(default)]
    pub write: bool,
    /// What git can do in it: `"read"`, or the full key.
    #[serde(default)]
    pub git: Option<GitConfig>,
    /// The record protocol that the repository follows.
    #[serde(default)]
    pub protocol: Option<RecordProtocol>,
    /// Who holds the locks that Sage takes, under the record protocol.
    #[serde(default = "lock_owner")]
    pub lock_owner: String,
    /// Globs of paths that are read and never written. Under the vault protocol the default is
    /// `tools/**`, `AGENTS.md` and the registry.
    #[serde(default)]
    pub protected: Option<Vec<String>>,
}

/// The record protocols there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RecordProtocol {
    /// Records with reserved ids, a validator and a lock tool in `tools/`.
    Vault,
}

/// What git can do in a root.
#[derive(Debug, Clone, JsonSchema)]
#[schemars(untagged)]
pub enum GitConfig {
    /// Only the word `"read"`.
    Word(ReadWord),
    /// Everything that writing needs.
    Full(Box<GitWrite>),
}

impl<'de> Deserialize<'de> for GitConfig {
    /// By hand, so that a problem inside the full key is said with its own path.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct WordOrKey;
        impl<'de> de::Visitor<'de> for WordOrKey {
            type Value = GitConfig;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("`\"read\"`, or an object with `branch`, `remote` and `author`")
            }
            fn visit_str<E: de::Error>(self, word: &str) -> Result<GitConfig, E> {
                ReadWord::deserialize(de::value::StrDeserializer::new(word)).map(GitConfig::Word)
            }
            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<GitConfig, A::Error> {
                let key = GitWrite::deserialize(MapAccessDeserializer::new(map))?;
                Ok(GitConfig::Full(Box::new(key)))
            }
        }
        deserializer.deserialize_any(WordOrKey)
    }
}

/// The one word that stands for read-only git.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ReadWord {
    /// Any repository below the root can be read, and none written.
    Read,
}

/// What writing with git needs.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct GitWrite {
    /// The one branch that is committed to.
    pub branch: String,
    /// The exact URL of `origin`: `https://…`, or the absolute path of a local bare repository.
    pub remote: String,
    /// Author and committer: `Name <address>`.
    pub author: String,
    /// The file with the token for an https remote. This program hands on the path and never reads
    /// the file.
    #[serde(default)]
    pub token_file: Option<PathBuf>,
    /// A file of PEM certificates to trust for an https remote, instead of the system's.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// Who has to approve a commit before it is made.
    #[serde(default)]
    pub approval: Approval,
    /// Refuse a commit of anything that was not reviewed in the same turn.
    #[serde(default = "yes")]
    pub require_review: bool,
}

/// Who has to approve a commit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Approval {
    /// Nobody.
    #[default]
    None,
    /// The person who asked for it.
    Requester,
}

fn lock_owner() -> String {
    "sage".to_owned()
}

fn yes() -> bool {
    true
}

/// Limits on calls. Each has a default that suits a strategy repository.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub struct Limits {
    /// The longest file that is read or written, in bytes.
    pub max_file_bytes: u64,
    /// How much of a diff is shown at once, in bytes.
    pub max_bytes: u64,
    /// How many files are listed.
    pub max_files: usize,
    /// Calls in one turn.
    pub max_calls_per_turn: u32,
    /// Calls of one peer under way at once.
    pub max_calls_in_flight: usize,
    /// Connections of one peer at once.
    pub max_connections: usize,
    /// How long one git child may run, in seconds.
    pub git_timeout_seconds: u64,
    /// Calls of one peer in any minute, refused ones included; the next one is refused as `busy`.
    pub max_calls_per_minute: u32,
    /// How long a file of the audit gets, in bytes, before it is closed and the next one begun. No
    /// file is ever removed.
    pub max_audit_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_file_bytes: 256 * 1024,
            max_bytes: 32 * 1024,
            max_files: 1000,
            max_calls_per_turn: 24,
            max_calls_in_flight: 8,
            max_connections: 64,
            git_timeout_seconds: 60,
            max_calls_per_minute: 600,
            max_audit_bytes: 16 * 1024 * 1024,
        }
    }
}

impl Limits {
    fn check(&self) -> Result<(), String> {
        let least = [
            ("maxFileBytes", self.max_file_bytes),
            ("maxBytes", self.max_bytes),
            ("maxFiles", self.max_files as u64),
            ("maxCallsPerTurn", u64::from(self.max_calls_per_turn)),
            ("maxCallsInFlight", self.max_calls_in_flight as u64),
            ("maxConnections", self.max_connections as u64),
            ("gitTimeoutSeconds", self.git_timeout_seconds),
            ("maxCallsPerMinute", u64::from(self.max_calls_per_minute)),
            ("maxAuditBytes", self.max_audit_bytes),
        ];
        if let Some((key, _)) = least.iter().find(|(_, value)| *value == 0) {
            return Err(format!("{key}: 0 would allow nothing"));
        }
        for (key, value) in [("maxFileBytes", self.max_file_bytes), ("maxBytes", self.max_bytes)] {
            if value > MOST_BYTES {
                return Err(format!("{key}: more than {MOST_BYTES} does not fit into an answer"));
            }
        }
        Ok(())
    }
}

/// The longest text in an answer, in bytes: half a frame.
const MOST_BYTES: u64 = (protocol::wire::MAX_FRAME_BYTES / 2) as u64;

/// Why a configuration is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is not what the configuration may be.
    #[error("{path}:{problem}")]
    Invalid {
        /// The file.
        path: String,
        /// Where, which key, and what is wrong with it.
        problem: Problem,
    },
    /// A file or folder has the wrong mode or owner.
    #[error("{path}: {reason}; {fix}")]
    Permissions {
        /// The file or folder.
        path: String,
        /// What is wrong.
        reason: String,
        /// How to fix it.
        fix: String,
    },
}

impl Config {
    /// Reads and checks a configuration file.
    ///
    /// # Errors
    /// See [`ConfigError`]; nothing was opened but the file itself.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        not_writable_by_others(path)?;
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Read { path: path.display().to_string(), source })?;
        Self::parse(&text)
            .map_err(|problem| ConfigError::Invalid { path: path.display().to_string(), problem })
    }

    /// Parses and checks the text of a configuration.
    ///
    /// # Errors
    /// The key's path, where it is, and what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, Problem> {
        let config: Self = strict::parse(text)?;
        config.check().map_err(|said| strict::found(text, &said))?;
        Ok(config)
    }

    /// The JSON Schema of the file, from its types.
    #[must_use]
    pub fn json_schema() -> serde_json::Value {
        let mut schema = schemars::schema_for!(Config).to_value();
        schema["title"] = "The configuration of sage-executor".into();
        schema
    }

    fn check(&self) -> Result<(), String> {
        absolute("socket", &self.socket)?;
        absolute("stateDir", &self.state_dir)?;
        for (index, name) in self.requesters.iter().enumerate() {
            Requester::parse(name).map_err(|why| format!("requesters[{index}]: {why}"))?;
        }
        for (index, peer) in self.peers.iter().enumerate() {
            for name in &peer.requesters {
                if !self.requesters.contains(name) {
                    return Err(format!(
                        "peers[{index}].requesters: {name:?} is not in `requesters`"
                    ));
                }
            }
        }
        if self.peers.is_empty() {
            return Err("peers: nobody could connect; list at least one user".to_owned());
        }
        for (index, root) in self.roots.iter().enumerate() {
            let twin = self.roots[..index].iter().any(|other| other.name == root.name);
            root.check(twin).map_err(|why| format!("roots[{index}].{why}"))?;
        }
        if let Some(web) = &self.web {
            web.check().map_err(|why| format!("web.{why}"))?;
        }
        self.limits.check().map_err(|why| format!("limits.{why}"))?;
        self.secrets_are_outside_roots()?;
        self.roots_and_state_are_apart()
    }

    /// Something that could read the token, or write the audit, could undo every other fence.
    fn secrets_are_outside_roots(&self) -> Result<(), String> {
        for (index, root) in self.roots.iter().enumerate() {
            let Some(GitConfig::Full(git)) = &root.git else { continue };
            let Some(token) = &git.token_file else { continue };
            if self.roots.iter().any(|root| token.starts_with(&root.path)) {
                return Err(format!(
                    "roots[{index}].git.tokenFile: it lies in a root; keep it outside of all"
                ));
            }
        }
        Ok(())
    }

    /// A tool that could write the audit or the socket's folder could undo every other fence.
    fn roots_and_state_are_apart(&self) -> Result<(), String> {
        let socket_dir = self.socket.parent().unwrap_or(Path::new("/"));
        for (index, root) in self.roots.iter().enumerate() {
            for (key, own) in [("stateDir", self.state_dir.as_path()), ("socket", socket_dir)] {
                if own.starts_with(&root.path) || (key == "stateDir" && root.path.starts_with(own))
                {
                    return Err(format!(
                        "roots[{index}].path: it and `{key}` overlap; keep them apart"
                    ));
                }
            }
        }
        Ok(())
    }
}

impl RootConfig {
    fn check(&self, twin: bool) -> Result<(), String> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if self.name.is_empty() || self.name.len() > 64 || !self.name.chars().all(plain) || twin {
            return Err(format!(
                "name: {:?} is not a unique name of 1 to 64 letters, digits, `-`, `_` or `.`",
                self.name
            ));
        }
        absolute("path", &self.path)?;
        Requester::parse(&self.lock_owner).map_err(|why| format!("lockOwner: {why}"))?;
        if self.protocol.is_some() && !matches!(self.git, Some(GitConfig::Full(_))) {
            return Err("protocol: the record protocol needs a full `git` key".to_owned());
        }
        for glob in self.protected.iter().flatten() {
            PathGlob::parse(glob).map_err(|refusal| format!("protected: {}", refusal.message))?;
        }
        match &self.git {
            Some(GitConfig::Full(git)) if !self.write => Err(format!(
                "git: committing to {:?} needs `\"write\": true`; or say `\"git\": \"read\"`",
                git.branch
            )),
            Some(GitConfig::Full(git)) => git.check().map_err(|why| format!("git.{why}")),
            _ => Ok(()),
        }
    }

    /// The globs of paths that are read and never written.
    #[must_use]
    pub fn protected_globs(&self) -> Vec<String> {
        match (&self.protected, self.protocol) {
            (Some(globs), _) => globs.clone(),
            (None, Some(RecordProtocol::Vault)) => {
                VAULT_PROTECTED.iter().map(|&glob| glob.to_owned()).collect()
            }
            (None, None) => Vec::new(),
        }
    }
}

/// What the vault protocol's own programs and rules are made of: code in them is run later, and the
/// registry is append-only.
const VAULT_PROTECTED: &[&str] = &["tools/**", "AGENTS.md", "docs/ID-REGISTRY.txt"];

impl GitWrite {
    fn check(&self) -> Result<(), String> {
        BranchName::parse(&self.branch).map_err(|why| format!("branch: {why}"))?;
        Identity::parse(&self.author).map_err(|why| format!("author: {why}"))?;
        let remote = Remote::parse(&self.remote).map_err(|why| format!("remote: {why}"))?;
        for (key, path) in [("tokenFile", &self.token_file), ("caFile", &self.ca_file)] {
            match (path, &remote) {
                (Some(path), Remote::Https { .. }) => absolute(key, path)?,
                (Some(_), Remote::Local(_)) => {
                    return Err(format!("{key}: a local remote takes none; leave it out"));
                }
                (None, _) => {}
            }
        }
        Ok(())
    }
}

fn absolute(key: &str, path: &Path) -> Result<(), String> {
    let plain = path.is_absolute()
        && path.components().skip(1).all(|part| matches!(part, std::path::Component::Normal(_)));
    if plain && path != Path::new("/") {
        Ok(())
    } else {
        Err(format!("{key}: {:?} is not a plain absolute path", path.display().to_string()))
    }
}

/// Whoever can write the configuration decides what the executor does.
fn not_writable_by_others(path: &Path) -> Result<(), ConfigError> {
    let shown = || path.display().to_string();
    let metadata = std::fs::symlink_metadata(path)
        .map_err(|source| ConfigError::Read { path: shown(), source })?;
    let refuse = |reason: &str, fix: String| {
        Err(ConfigError::Permissions { path: shown(), reason: reason.to_owned(), fix })
    };
    if !metadata.is_file() {
        return refuse(
            "it is not a regular file",
            "give the file itself, not a link to it".to_owned(),
        );
    }
    let me = nix::unistd::geteuid().as_raw();
    if metadata.uid() != me && metadata.uid() != 0 {
        return refuse("it belongs to another user", format!("chown it to uid {me} or root"));
    }
    if metadata.mode() & 0o022 != 0 {
        return refuse("others can write it", format!("run `chmod go-w {}`", path.display()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::Config;

    fn good() -> Value {
        json!({
            "socket": "/run/sage/executor.sock",
            "stateDir": "/var/lib/sage",
            "requesters": ["Owner", "Partner"],
            "peers": [{"user": "sage-connector", "requesters": ["Owner"]}, {"user": 1000, "requesters": []}],
            "roots": [
                {"name": "home", "path": "/home/owner", "git": "read"},
                {"name": "strategy", "path": "/srv/strategy", "write": true, "protocol": "vault",
                 "git": {"branch": "main", "remote": "https://git.example.com/o/s.git",
                         "author": "Sage <sage@example.invalid>", "tokenFile": "/etc/sage/token"}}
            ]
        })
    }

    #[test]
    fn a_good_configuration_is_taken_with_its_defaults() {
        let config = Config::parse(&good().to_string()).expect("it is good");
        assert_eq!(config.limits.max_file_bytes, 262_144);
        assert_eq!(
            config.roots[1].protected_globs(),
            ["tools/**", "AGENTS.md", "docs/ID-REGISTRY.txt"]
        );
        assert!(config.roots[0].protected_globs().is_empty());
    }

    #[test]
    fn what_is_wrong_is_said_with_the_keys_path() {
        let cases: &[(&str, Value, &str)] = &[
            ("/extra", json!(1), "extra"),
            ("/socket", json!("run/x.sock"), "socket"),
            ("/peers", json!([]), "peers"),
            ("/peers/0/requesters", json!(["Nobody"]), "peers[0].requesters"),
            ("/requesters/0", json!("Ow\ner"), "requesters[0]"),
            ("/roots/1/name", json!("home"), "roots[1].name"),
            ("/roots/1/path", json!("/srv/../etc"), "roots[1].path"),
            ("/roots/1/write", json!("yes"), "roots[1].write"),
            ("/roots/1/write", json!(false), "roots[1].git"),
            ("/roots/1/protocol", json!("other"), "roots[1].protocol"),
            ("/roots/1/git/branch", json!("+main"), "roots[1].git.branch"),
            ("/roots/1/git/remote", json!("ssh://x/y"), "roots[1].git.remote"),
            ("/roots/1/git/author", json!("Sage"), "roots[1].git.author"),
            ("/roots/1/protected", json!(["a["]), "roots[1].protected"),
            ("/roots/0/path", json!("/var"), "overlap"),
            ("/limits", json!({"maxFileByte": 1}), "limits"),
            ("/limits", json!({"maxFiles": 0}), "limits.maxFiles"),
            ("/limits", json!({"maxBytes": 99_000_000}), "limits.maxBytes"),
            ("/roots/1/git/tokenFile", json!("/home/owner/.token"), "tokenFile"),
            ("/web", json!({"searxng": "http://10.0.0.1/"}), "web.searxng"),
            ("/web", json!({"maxFetchBytes": 0}), "web.maxFetchBytes"),
            ("/web", json!({"caFile": "ca.pem"}), "web.caFile"),
            ("/web", json!({"proxy": "x"}), "proxy"),
        ];
        for (pointer, value, said) in cases {
            let mut config = good();
            let (parent, key) = pointer.rsplit_once('/').expect("a pointer has a slash");
            match config.pointer_mut(parent).expect("the parent is there") {
                Value::Object(map) => drop(map.insert((*key).to_owned(), value.clone())),
                Value::Array(list) => list[key.parse::<usize>().expect("an index")] = value.clone(),
                _ => unreachable!("a parent holds something"),
            }
            let reason = Config::parse(&config.to_string()).expect_err(pointer).to_string();
            assert!(reason.contains(said), "{pointer}: {reason}");
        }
    }
}
