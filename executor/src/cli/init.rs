//! `sage-executor init`: a valid configuration to start from. It never overwrites.

use std::io::{self, BufRead, ErrorKind, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::{Value, json};

use super::exit;
use crate::config::Config;

/// The schema's file, beside the configuration.
const SCHEMA: &str = "executor.schema.json";

/// What `init` takes. What is not given is asked for at a terminal.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Where to write the configuration.
    #[arg(value_name = "FILE", default_value = "executor.json")]
    file: PathBuf,
    /// The folder that calls can reach; a clone, when --remote is given.
    #[arg(long, value_name = "FOLDER")]
    root: Option<PathBuf>,
    /// What calls name it by. Without it, the folder's name.
    #[arg(long)]
    name: Option<String>,
    /// The exact URL of its `origin`, to commit and push; without it, git only reads.
    #[arg(long, value_name = "URL")]
    remote: Option<String>,
    /// The branch that is committed to.
    #[arg(long, default_value = "main")]
    branch: String,
    /// Author and committer.
    #[arg(long, default_value = "Sage <sage@example.invalid>")]
    author: String,
    /// The file with the token for an https remote.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The repository follows the record protocol.
    #[arg(long)]
    vault: bool,
    /// A role name that calls may be for; can be given several times.
    #[arg(long = "requester", value_name = "NAME", default_value = "Owner")]
    requesters: Vec<String>,
    /// The user that may connect. Without it, you.
    #[arg(long, value_name = "USER")]
    peer: Option<String>,
    /// The socket to serve on.
    #[arg(long, value_name = "FILE", default_value = "/run/sage/executor.sock")]
    socket: PathBuf,
    /// Where the audit and unfinished work are recorded.
    #[arg(long, value_name = "FOLDER", default_value = "/var/lib/sage-executor")]
    state_dir: PathBuf,
}

/// Asks for what is missing, and writes.
pub fn run(arguments: &Arguments) -> ExitCode {
    match written(arguments) {
        Ok(()) => {
            let shown = arguments.file.display();
            println!("{shown} is written; check it with `sage-executor doctor --config {shown}`");
            ExitCode::SUCCESS
        }
        Err(why) => exit::because(exit::USAGE, why),
    }
}

fn written(arguments: &Arguments) -> Result<(), String> {
    let file = &arguments.file;
    if file.symlink_metadata().is_ok() {
        return Err(format!("{} is there already; init never overwrites", file.display()));
    }
    let text = format!("{:#}\n", configuration(arguments)?);
    Config::parse(&text).map_err(|problem| format!("{}: {}", problem.key, problem.reason))?;
    let schema = file.with_file_name(SCHEMA);
    if schema.symlink_metadata().is_err() {
        create(&schema, 0o644, &format!("{:#}\n", Config::json_schema()))?;
    }
    create(file, 0o600, &text)
}

fn create(path: &Path, mode: u32, text: &str) -> Result<(), String> {
    let opened = std::fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    let written = opened.and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => format!("{} is there already", path.display()),
        _ => format!("{}: {error}", path.display()),
    })
}

fn configuration(arguments: &Arguments) -> Result<Value, String> {
    let root = match &arguments.root {
        Some(root) => root.clone(),
        None => asked("Which folder should calls reach?")?
            .map(PathBuf::from)
            .ok_or("which folder should calls reach? Say --root FOLDER")?,
    };
    let root = std::path::absolute(&root).map_err(|error| error.to_string())?;
    let remote = match &arguments.remote {
        Some(remote) => Some(remote.clone()),
        None if arguments.root.is_some() => None,
        None => asked("The exact URL of its origin, to commit and push (empty: git only reads)?")?,
    };
    let last = root.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = arguments.name.clone().or(last).unwrap_or_else(|| "root".to_owned());
    let peer = match &arguments.peer {
        Some(user) => user.parse::<u32>().map_or_else(|_| json!(user), |uid| json!(uid)),
        None => json!(rustix::process::getuid().as_raw()),
    };
    let mut root = json!({"name": name, "path": root});
    match remote {
        None => root["git"] = json!("read"),
        Some(remote) => {
            root["write"] = json!(true);
            root["git"] =
                json!({"branch": arguments.branch, "remote": remote, "author": arguments.author});
            if let Some(token) = &arguments.token_file {
                root["git"]["tokenFile"] = json!(token);
            }
        }
    }
    if arguments.vault {
        root["protocol"] = json!("vault");
    }
    Ok(json!({
        "$schema": SCHEMA,
        "socket": arguments.socket,
        "stateDir": arguments.state_dir,
        "requesters": arguments.requesters,
        "peers": [{"user": peer, "requesters": arguments.requesters}],
        "roots": [root],
    }))
}

/// What a person answers; nothing where there is none, or an empty answer.
fn asked(question: &str) -> Result<Option<String>, String> {
    if !io::stdin().is_terminal() {
        return Ok(None);
    }
    eprint!("{question} ");
    let _ = io::stderr().flush();
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).map_err(|error| error.to_string())?;
    let line = line.trim();
    Ok((!line.is_empty()).then(|| line.to_owned()))
}
