//! pi's place on disk, and what pi may reach from there.
//!
//! Below the binding's folder, in `pi/`:
//!
//! - `sessions/` is the one thing that outlives a start: the conversations, as pi keeps them, each in
//!   the folder of the transport whose conversation it is.
//! - `given/` is what pi is told, written before each start: pi reads it and cannot change it.
//! - `agent/` is pi's own configuration folder, made anew at each start, so that nothing that was put
//!   there by a pi that was led astray is read by the next one.
//! - `work/` is where pi stands: an empty folder.
//!
//! Everything else of the binding's folder (journal, outbox, records, lock) lies beside `pi/` and is
//! granted to nobody here.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use confine::child::{ChildLimits, ChildSpec, ExecRule};
use confine::grants::{self, Grant, Grants, Rights};
use protocol::tool::ToolName;
use protocol::turn::Origin;
use serde_json::{Value, json};

use super::config::PiConfig;
use crate::engine::openai::parameters;
use crate::private_file::Secret;

/// DNS over TCP: the child may not use UDP.
const DNS_PORT: u16 = 53;
/// The most memory that node's heap may take, in MiB.
const HEAP: u32 = 1024;
/// The variable that carries the model's key.
const KEY: &str = "SAGE_MODEL_KEY";
/// What pi may do in the folders that are its own. No links, and nothing that others could execute.
const OWN: [Rights; 7] = [
    Rights::READ,
    Rights::WRITE_FILE,
    Rights::TRUNCATE,
    Rights::MAKE_FILE,
    Rights::MAKE_DIR,
    Rights::REMOVE_FILE,
    Rights::REMOVE_DIR,
];
const EXTENSION: &str = include_str!("extension.mjs");

/// What pi is told when it starts. A pi that was told something else has to be started again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Given {
    /// Which conversation it goes on with: what one transport of the binding hears and says.
    pub(super) conversation: Origin,
    /// Its system prompt.
    pub(super) system: String,
    /// Its tools.
    pub(super) tools: Vec<ToolName>,
}

/// The place.
#[derive(Debug)]
pub(super) struct Place {
    config: PiConfig,
    folder: PathBuf,
}

impl Place {
    /// The place of a binding whose folder is `folder`.
    pub(super) fn new(config: &PiConfig, folder: &Path) -> Self {
        Self { config: config.clone(), folder: folder.join("pi") }
    }

    /// The same for another folder.
    pub(super) fn beside(&self, folder: &Path) -> Self {
        Self::new(&self.config, folder)
    }

    /// The model's name.
    pub(super) fn model(&self) -> &str {
        &self.config.model
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn sessions(&self, conversation: Origin) -> PathBuf {
        self.path("sessions").join(conversation.as_str())
    }

    /// Writes everything that pi reads at its start.
    pub(super) fn prepare(&self, given: &Given, has_key: bool) -> io::Result<()> {
        for name in ["agent", "given", "work"] {
            match fs::remove_dir_all(self.path(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        let sessions = self.sessions(given.conversation);
        for folder in [sessions, self.path("agent"), self.path("given"), self.path("work")] {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        write(&self.path("given/extension.mjs"), EXTENSION)?;
        write(&self.path("given/system.md"), &given.system)?;
        write(&self.path("given/tools.json"), &tools(&given.tools).to_string())?;
        write(&self.path("agent/settings.json"), &settings().to_string())?;
        write(&self.path("agent/models.json"), &self.models(has_key).to_string())
    }

    /// pi's own list of providers: the key by the name of its variable, and an endpoint that pi does
    /// not know.
    fn models(&self, has_key: bool) -> Value {
        let mut provider = json!({});
        if has_key {
            provider["apiKey"] = json!(format!("${KEY}"));
        }
        if let Some(endpoint) = &self.config.endpoint {
            provider["baseUrl"] = json!(endpoint.base_url);
            provider["api"] = json!(endpoint.api);
            provider["models"] = json!([{
                "id": self.config.model,
                "name": self.config.model,
                "reasoning": endpoint.reasoning,
                "input": ["text"],
                "contextWindow": endpoint.context_tokens,
                "maxTokens": endpoint.max_output_tokens,
            }]);
            if !has_key {
                // pi asks for one, whether the endpoint does or not.
                provider["apiKey"] = json!("none");
            }
        }
        if provider == json!({}) {
            return json!({"providers": {}});
        }
        json!({"providers": {self.config.provider.as_str(): provider}})
    }

    /// How pi is run for a conversation, with its end of the socket as this descriptor.
    pub(super) fn spec(
        &self,
        conversation: Origin,
        key: Option<&Secret>,
        socket: i32,
    ) -> io::Result<ChildSpec> {
        let sessions = self.sessions(conversation);
        let node = self.config.node();
        let mut connect_ports = self.config.connect_ports.clone();
        if !connect_ports.contains(&DNS_PORT) {
            connect_ports.push(DNS_PORT);
        }
        Ok(ChildSpec {
            argv0: node.clone().into(),
            args: self.args(&sessions),
            env: self.env(key, socket),
            cwd: self.path("work"),
            grants: Grants { files: self.files(&node, &sessions)?, connect_ports },
            exec: ExecRule::NoExecNetwork,
            limits: limits(),
            umask: 0o077,
            stdin: Vec::new(),
            max_stdout: 0,
            max_stderr: 0,
            program: node,
        })
    }

    /// What the child may reach, but for what lies in the binding's own folder.
    pub(super) fn outside(&self) -> io::Result<Grants> {
        let mut grants = self.spec(Origin::Terminal, None, 0)?.grants;
        grants.files.retain(|grant| !grant.path.starts_with(&self.folder));
        Ok(grants)
    }

    fn args(&self, sessions: &Path) -> Vec<OsString> {
        let mut args: Vec<OsString> =
            vec![format!("--max-old-space-size={HEAP}").into(), self.config.cli().into()];
        args.extend(
            [
                "--mode",
                "rpc",
                "--offline",
                "--no-builtin-tools",
                "--no-extensions",
                "--no-skills",
                "--no-prompt-templates",
                "--no-themes",
                "--no-context-files",
                "--no-approve",
                "--no-mcp",
                "--continue",
            ]
            .map(OsString::from),
        );
        args.extend(["--extension".into(), self.path("given/extension.mjs").into()]);
        args.extend(["--system-prompt".into(), self.path("given/system.md").into()]);
        args.extend(["--session-dir".into(), sessions.into()]);
        args.extend(["--provider".into(), self.config.provider.clone().into()]);
        args.extend(["--model".into(), self.config.model.clone().into()]);
        if let Some(thinking) = self.config.thinking {
            args.extend(["--thinking".into(), thinking.as_str().into()]);
        }
        args
    }

    fn env(&self, key: Option<&Secret>, socket: i32) -> Vec<(OsString, OsString)> {
        let mut env: Vec<(OsString, OsString)> = vec![
            ("HOME".into(), self.path("work").into()),
            ("TMPDIR".into(), self.path("agent").into()),
            ("LANG".into(), "C.UTF-8".into()),
            ("TZ".into(), "UTC".into()),
            // No UDP, so names are asked for over TCP.
            ("RES_OPTIONS".into(), "use-vc".into()),
            ("UV_USE_IO_URING".into(), "0".into()),
            // It would be written anew at each start, and read by none.
            ("NODE_DISABLE_COMPILE_CACHE".into(), "1".into()),
            // The system's, which it may not read, would end it.
            ("OPENSSL_CONF".into(), "/dev/null".into()),
            ("PI_CODING_AGENT_DIR".into(), self.path("agent").into()),
            ("PI_OFFLINE".into(), "1".into()),
            ("PI_TELEMETRY".into(), "0".into()),
            ("PI_SKIP_VERSION_CHECK".into(), "1".into()),
            ("SAGE_TOOLS".into(), self.path("given/tools.json").into()),
            ("SAGE_SOCKET".into(), socket.to_string().into()),
        ];
        if let Some(key) = key {
            env.push((KEY.into(), key.expose().into()));
        }
        env
    }

    fn files(&self, node: &Path, sessions: &Path) -> io::Result<Vec<Grant>> {
        let mut files = grants::program(node, "node, which runs pi")?;
        files.extend(grants::system_libraries());
        files.push(grants::dev_null());
        files.push(Grant::new(&self.config.install, Rights::READ, "pi itself"));
        files.push(Grant::new(self.path("given"), Rights::READ, "what pi is told"));
        files.push(Grant::new(self.path("work"), Rights::READ, "where pi stands"));
        let own = OWN.into_iter().fold(Rights::default(), |all, right| all | right);
        files.push(Grant::new(self.path("agent"), own, "pi's own configuration folder"));
        files.push(Grant::new(sessions, own, "the conversation"));
        for path in [
            "/etc/resolv.conf",
            "/etc/hosts",
            "/etc/nsswitch.conf",
            "/etc/host.conf",
            "/etc/gai.conf",
        ] {
            files.push(Grant::optional(path, Rights::READ_FILE, "the resolver"));
        }
        Ok(files)
    }
}

/// What the extension registers: names, descriptions and schemas of exactly these tools.
fn tools(offered: &[ToolName]) -> Value {
    let tool = |tool: &ToolName| {
        json!({
            "name": tool.as_str(),
            "description": tool.description(),
            "parameters": parameters(*tool),
        })
    };
    offered.iter().map(tool).collect()
}

fn settings() -> Value {
    json!({
        // Requests between turns, that nobody asked for.
        "cacheWarming": "off",
        "enableInstallTelemetry": false,
        "quietStartup": true,
    })
}

/// Bounds on pi: it lives as long as the connector, and its conversation grows with it.
fn limits() -> ChildLimits {
    ChildLimits {
        wall: Duration::MAX,
        grace: Duration::ZERO,
        cpu_seconds: u64::MAX,
        address_space: None,
        file_size: 1 << 30,
        processes: None,
        open_files: 256,
    }
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use protocol::tool::ToolName;
    use protocol::turn::Origin;
    use serde_json::json;

    use super::{Given, Place, tools};

    fn place(folder: &std::path::Path) -> Place {
        let config = json!({"install": "/opt/pi", "provider": "p", "model": "m", "keyFile": "/k"});
        Place::new(&serde_json::from_value(config).expect("it is good"), folder)
    }

    #[test]
    fn a_tool_is_given_with_its_description_and_schema_once() {
        let given = tools(&[ToolName::ReadFile]);
        assert_eq!(given[0]["name"], "read_file");
        assert_eq!(given[0]["description"], ToolName::ReadFile.description());
        assert_eq!(given[0]["parameters"]["properties"]["root"]["type"], "string");
        assert_eq!(given.as_array().map(Vec::len), Some(1));
    }

    #[test]
    fn each_start_begins_with_fresh_folders_and_the_same_conversation() {
        let home = tempfile::tempdir().expect("a folder");
        let place = place(home.path());
        let given = Given {
            conversation: Origin::Terminal,
            system: "You are Sage.".to_owned(),
            tools: vec![ToolName::ListRoots],
        };
        place.prepare(&given, true).expect("it can be prepared");
        for name in ["agent/planted.mjs", "given/x", "work/.pi", "sessions/terminal/one.jsonl"] {
            std::fs::write(home.path().join("pi").join(name), "x").expect("written");
        }
        place.prepare(&given, true).expect("it can be prepared again");
        let exists = |name: &str| home.path().join("pi").join(name).exists();
        assert!(exists("sessions/terminal/one.jsonl") && exists("agent/models.json"));
        assert!(!exists("agent/planted.mjs") && !exists("given/x") && !exists("work/.pi"));
        for name in ["agent", "given", "sessions", "work"] {
            let mode = std::fs::metadata(home.path().join("pi").join(name)).expect("it is there");
            assert_eq!(mode.permissions().mode() & 0o777, 0o700, "{name}");
        }
    }

    #[test]
    fn the_key_is_in_the_environment_and_in_no_argument_and_no_file() {
        let home = tempfile::tempdir().expect("a folder");
        let file = home.path().join("key");
        std::fs::write(&file, "sk-the-key").expect("written");
        let private = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(&file, private).expect("chmod");
        let key = crate::private_file::read_secret(&file, crate::private_file::Kind::Key)
            .expect("it is fit");
        let place = place(home.path());
        let conversation = Origin::Terminal;
        let given = Given { conversation, system: String::new(), tools: Vec::new() };
        place.prepare(&given, true).expect("it can be prepared");
        let models = std::fs::read_to_string(home.path().join("pi/agent/models.json"));
        let models = models.expect("it is there");
        assert!(models.contains("$SAGE_MODEL_KEY") && !models.contains("sk-the-key"), "{models}");
        let args = format!("{:?}", place.args(home.path()));
        assert!(!args.contains("sk-the-key"), "{args}");
        let env = place.env(Some(&key), 7);
        assert!(env.contains(&("SAGE_MODEL_KEY".into(), "sk-the-key".into())));
        assert!(env.contains(&("SAGE_SOCKET".into(), "7".into())));
        assert!(env.iter().all(|(name, _)| name != "PATH"));
    }
}
