//! The binding's Discord section: which guild, which channels, which people, and where the token is.
//!
//! The token itself is never in the binding. It is read from a private file of its own when it is
//! needed, and shown nowhere.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use policy::admission::Mode;
use schemars::JsonSchema;
use serde::Deserialize;

use super::BindingError;
use crate::private_file::{self, Kind, PrivateFileError, Secret};

/// Sage in one guild.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Discord {
    /// The guild's id.
    pub guild: String,
    /// The bot's own user id.
    pub bot: String,
    /// Channels by id, and how each is listened to.
    pub channels: BTreeMap<String, Mode>,
    /// Role names by user id: who may talk, and whom a turn then acts for.
    pub users: BTreeMap<String, String>,
    /// Where the bot's token is.
    pub token: TokenRef,
    /// How long a plan waits for its button, in seconds. No answer is a no.
    #[serde(default = "approval_timeout")]
    pub approval_timeout_seconds: u64,
    /// A file of PEM certificates to trust, instead of the system's.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// Another REST base than Discord's; loopback only, for tests.
    pub rest_url: Option<String>,
    /// Another gateway than Discord's; loopback only, for tests.
    pub gateway_url: Option<String>,
    /// How long the first wait after a lost connection is, in milliseconds, instead of a second; the
    /// later ones grow from it. With `gatewayUrl` alone, for tests.
    pub gateway_pace_milliseconds: Option<u64>,
}

fn approval_timeout() -> u64 {
    120
}

/// Where the bot's token is: one of the two.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub enum TokenRef {
    /// A file of mode 0600 that is no symbolic link. Absolute.
    File(PathBuf),
    /// A credential that systemd passes (`LoadCredential=`), by its name.
    Credential(String),
}

/// A bot token. It cannot be printed.
#[derive(Debug, Clone)]
pub struct Token(Secret);

impl Token {
    /// For the one header, and the one gateway field, that carry it.
    #[must_use]
    pub fn secret(&self) -> &str {
        self.0.expose()
    }

    /// A token that no file holds.
    #[cfg(test)]
    pub(crate) fn for_test(text: &str) -> Self {
        Self(Secret::for_test(text))
    }
}

impl TokenRef {
    /// Reads the token.
    ///
    /// # Errors
    /// When the file is not a private regular file, or holds no token. The text never shows any of
    /// what it holds.
    pub fn read(&self) -> Result<Token, BindingError> {
        let path = match self {
            Self::File(path) => path.clone(),
            Self::Credential(name) => match std::env::var_os("CREDENTIALS_DIRECTORY") {
                Some(folder) => Path::new(&folder).join(name),
                None => {
                    let problem = "is a systemd credential, and CREDENTIALS_DIRECTORY is not set; \
                                   start the unit, or use `discord.token.file`";
                    let no = PrivateFileError::new(Kind::Token, Path::new(name), problem);
                    return Err(no.into());
                }
            },
        };
        Ok(Token(private_file::read_secret(&path, Kind::Token)?))
    }
}

/// A rule that a section broke: the key and what to write.
type Problem = (String, &'static str);

impl Discord {
    /// The TCP ports that Discord, or what stands for it in a test, is reached by.
    pub(crate) fn ports(&self) -> Vec<u16> {
        let port = |url: &Option<String>| {
            let Some(url) = url else { return Some(443) };
            let authority = url.split("://").nth(1)?.split('/').next()?;
            authority.rsplit_once(':')?.1.parse().ok()
        };
        [&self.rest_url, &self.gateway_url].into_iter().filter_map(port).collect()
    }

    /// The first thing wrong with it.
    pub(super) fn first_problem(&self) -> Option<Problem> {
        const ID: &str = "write a Discord id: 15 to 20 digits";
        let ids = [("discord.guild", &self.guild), ("discord.bot", &self.bot)];
        if let Some((key, _)) = ids.into_iter().find(|(_, id)| !is_snowflake(id)) {
            return Some((key.to_owned(), ID));
        }
        if self.channels.is_empty() {
            return Some(("discord.channels".to_owned(), "list at least one channel"));
        }
        if self.users.is_empty() {
            return Some(("discord.users".to_owned(), "list at least one person"));
        }
        let listed = self.channels.keys().map(|id| ("channels", id));
        let listed = listed.chain(self.users.keys().map(|id| ("users", id)));
        for (list, id) in listed {
            if !is_snowflake(id) {
                return Some((format!("discord.{list}.{id}"), ID));
            }
        }
        if let Some((id, _)) = self.users.iter().find(|(_, role)| role.trim().is_empty()) {
            return Some((format!("discord.users.{id}"), "write a role name like \"Owner\""));
        }
        self.first_place_problem()
    }

    fn first_place_problem(&self) -> Option<Problem> {
        let token = match &self.token {
            TokenRef::File(path) if !path.is_absolute() => Some("write an absolute path"),
            TokenRef::Credential(name) if !is_credential(name) => {
                Some("write letters, digits, `-`, `_` and `.` alone")
            }
            _ => None,
        };
        if let Some(fix) = token {
            return Some(("discord.token".to_owned(), fix));
        }
        if !(5..=3600).contains(&self.approval_timeout_seconds) {
            return Some(("discord.approvalTimeoutSeconds".to_owned(), "write 5 to 3600"));
        }
        if self
            .gateway_pace_milliseconds
            .is_some_and(|pace| pace == 0 || self.gateway_url.is_none())
        {
            let key = "discord.gatewayPaceMilliseconds".to_owned();
            return Some((key, "only with `gatewayUrl`, for tests; leave it out"));
        }
        let urls = [
            ("discord.restUrl", &self.rest_url, "http"),
            ("discord.gatewayUrl", &self.gateway_url, "ws"),
        ];
        for (key, url, scheme) in urls {
            if url.as_deref().is_some_and(|url| !is_loopback(url, scheme)) {
                return Some((key.to_owned(), "only a loopback address, for tests; leave it out"));
            }
        }
        None
    }
}

fn is_snowflake(id: &str) -> bool {
    (15..=20).contains(&id.len())
        && id.bytes().all(|byte| byte.is_ascii_digit())
        && !id.starts_with('0')
        && id.parse::<u64>().is_ok()
}

fn is_credential(name: &str) -> bool {
    !name.starts_with('.')
        && (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// `http://127.0.0.1:PORT`, with a path or without. The address is exact, so that nothing in it, like
/// a user part, can name another host.
fn is_loopback(url: &str, scheme: &str) -> bool {
    let Some(rest) = url.strip_prefix(scheme) else { return false };
    let Some(rest) = rest.strip_prefix("s").unwrap_or(rest).strip_prefix("://") else {
        return false;
    };
    let host = rest.split('/').next().unwrap_or_default();
    let port = host.strip_prefix("127.0.0.1:").or_else(|| host.strip_prefix("[::1]:"));
    port.is_some_and(|port| port.parse::<u16>().is_ok_and(|port| port != 0))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use serde_json::{Value, json};

    use super::super::{Binding, BindingError};
    use super::{TokenRef, is_loopback};

    fn good() -> Value {
        json!({
            "name": "sage",
            "dataRoot": "/var/lib/sage",
            "executor": {"socket": "/run/sage/executor.sock"},
            "engine": {"kind": "rules"},
            "terminal": {"requester": "Owner"},
            "discord": {
                "guild": "100000000000000001",
                "bot": "100000000000000002",
                "channels": {"100000000000000003": "all", "100000000000000004": "mention"},
                "users": {"100000000000000005": "Owner"},
                "token": {"file": "/etc/sage/token"},
            },
        })
    }

    #[test]
    fn the_section_is_read() {
        let binding = Binding::parse(&good().to_string(), "b.json").expect("it is good");
        let discord = binding.discord.expect("it is there");
        assert_eq!(discord.approval_timeout_seconds, 120);
        assert_eq!(discord.users["100000000000000005"], "Owner");
    }

    #[test]
    fn every_mistake_is_named_by_its_key() {
        let cases = [
            ("guild", json!("1"), "discord.guild"),
            ("guild", json!(100_000_000_000_000_001_u64), "discord.guild"),
            ("guild", json!("99999999999999999999"), "discord.guild"),
            ("guild", Value::Null, "guild"),
            ("bot", json!("Sage"), "discord.bot"),
            ("channels", json!({}), "discord.channels"),
            ("channels", json!({"general": "all"}), "discord.channels.general"),
            ("channels", json!({"100000000000000003": "open"}), "channels.100000000000000003"),
            ("channels", json!(["100000000000000003"]), "discord.channels"),
            ("users", json!({}), "discord.users"),
            ("users", json!({"0x1": "Owner"}), "discord.users.0x1"),
            ("users", json!({"100000000000000005": " "}), "discord.users.100000000000000005"),
            ("token", json!({"file": "token"}), "discord.token"),
            ("token", json!({"credential": "../token"}), "discord.token"),
            ("token", json!("abc"), "discord.token"),
            ("approvalTimeoutSeconds", json!(1), "discord.approvalTimeoutSeconds"),
            ("restUrl", json!("https://example.org"), "discord.restUrl"),
            ("gatewayUrl", json!("wss://example.org"), "discord.gatewayUrl"),
            ("gatewayPaceMilliseconds", json!(10), "discord.gatewayPaceMilliseconds"),
            ("prefix", json!("!"), "discord.prefix"),
        ];
        for (key, value, named) in cases {
            let mut binding = good();
            if value.is_null() {
                binding["discord"].as_object_mut().expect("an object").remove(key);
            } else {
                binding["discord"][key] = value.clone();
            }
            let text = match Binding::parse(&binding.to_string(), "b.json") {
                Err(error @ BindingError::Invalid { .. }) => error.to_string(),
                other => panic!("{key} = {value}: {other:?}"),
            };
            assert!(text.contains(named), "{key} = {value}: {text}");
        }
    }

    #[test]
    fn only_loopback_may_stand_in_for_discord() {
        for url in ["http://127.0.0.1:8080", "https://127.0.0.1:1/api/v10", "http://[::1]:9"] {
            assert!(is_loopback(url, "http"), "{url}");
        }
        for url in [
            "http://127.0.0.1:80@example.org/",
            "http://127.0.0.1.example.org:80",
            "http://localhost:80",
            "http://127.0.0.1",
            "http://127.0.0.1:0",
            "ws://127.0.0.1:80",
            "httpss://127.0.0.1:80",
        ] {
            assert!(!is_loopback(url, "http"), "{url}");
        }
    }

    #[test]
    fn a_token_file_is_private_regular_and_no_link() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        std::fs::write(&path, "secret-token\n").expect("written");
        let token = |mode| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("chmod");
            TokenRef::File(path.clone()).read()
        };
        for mode in [0o644, 0o640, 0o400, 0o700] {
            let text = token(mode).expect_err("it is not private").to_string();
            assert!(text.contains("chmod 600") && !text.contains("secret-token"), "{text}");
        }
        let read = token(0o600).expect("it is private");
        assert_eq!(read.secret(), "secret-token");
        assert!(!format!("{read:?}").contains("secret"));
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).expect("a link");
        let text = TokenRef::File(link).read().expect_err("a link").to_string();
        assert!(text.contains("symbolic link"), "{text}");
        let text = TokenRef::File(folder.path().into()).read().expect_err("a folder").to_string();
        assert!(text.contains("regular file"), "{text}");
        std::fs::write(&path, "two words").expect("written");
        let text = TokenRef::File(path).read().expect_err("no token").to_string();
        assert!(text.contains("does not hold one secret") && !text.contains("two w"), "{text}");
    }
}
