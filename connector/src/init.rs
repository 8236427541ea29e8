//! `init` and `schema`: a valid binding to start from, and what may stand in one.
//!
//! `init` asks at a terminal for what is not given, never overwrites, and writes a file that only its
//! owner can read.

use std::fs::OpenOptions;
use std::io::{self, BufRead, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use serde_json::{Value, json};

use crate::binding::Binding;

/// The schema's file, beside the binding.
const SCHEMA: &str = "connector.schema.json";

/// What `init` takes.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Where to write the binding.
    #[arg(value_name = "FILE", default_value = "binding.json")]
    file: PathBuf,
    /// Names the binding, and its folder below the data root.
    #[arg(long, default_value = "sage")]
    name: String,
    /// The folder for everything that is recorded.
    #[arg(long, value_name = "FOLDER", default_value = "/var/lib/sage-connector")]
    data_root: PathBuf,
    /// The executor's socket.
    #[arg(long, value_name = "FILE", default_value = "/run/sage/executor.sock")]
    socket: PathBuf,
    /// The role name of the person at the terminal, and of the one in Discord.
    #[arg(long, value_name = "NAME", default_value = "Owner")]
    requester: String,
    /// The guild's id; with it, `--bot`, `--channel`, `--user` and `--token-file` are needed.
    #[arg(long, value_name = "ID", requires_all = ["bot", "channel", "user", "token_file"])]
    guild: Option<String>,
    /// The bot's own user id.
    #[arg(long, value_name = "ID")]
    bot: Option<String>,
    /// A channel to listen in; can be given several times.
    #[arg(long, value_name = "ID")]
    channel: Vec<String>,
    /// The person's user id.
    #[arg(long, value_name = "ID")]
    user: Option<String>,
    /// The file with the bot's token.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// Writes a binding; what to do next.
pub(crate) fn init(options: &Options) -> Result<String> {
    let text = format!("{:#}\n", binding(options)?);
    let file = &options.file;
    Binding::parse(&text, &file.display().to_string())?;
    if file.symlink_metadata().is_ok() {
        bail!("{} is there already; init never overwrites", file.display());
    }
    let schema = file.with_file_name(SCHEMA);
    if schema.symlink_metadata().is_err() {
        create(&schema, 0o644, &format!("{:#}\n", Binding::json_schema()))?;
    }
    create(file, 0o600, &text)?;
    let shown = file.display();
    let next = if options.guild.is_some() { "run" } else { "chat" };
    Ok(format!("{shown} is written; start with `sage-connector {next} --binding {shown}`\n"))
}

fn create(path: &Path, mode: u32, text: &str) -> Result<()> {
    let opened = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    let written = opened.and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.with_context(|| format!("{} cannot be written", path.display()))
}

fn binding(options: &Options) -> Result<Value> {
    let mut binding = json!({
        "$schema": SCHEMA,
        "name": options.name,
        "dataRoot": std::path::absolute(&options.data_root)?,
        "executor": {"socket": std::path::absolute(&options.socket)?},
        "engine": {"kind": "rules"},
        "terminal": {"requester": options.requester},
    });
    let guild = match &options.guild {
        Some(guild) => Some(guild.clone()),
        None => asked("The guild's id, for Discord (empty: only the terminal)?")?,
    };
    let Some(guild) = guild else { return Ok(binding) };
    let needed = |given: &Option<String>, question: &str| match given {
        Some(given) => Ok(given.clone()),
        None => asked(question)?.with_context(|| format!("{question} Say it with its option.")),
    };
    let bot = needed(&options.bot, "The bot's own user id?")?;
    let user = needed(&options.user, "Your user id?")?;
    let token = options.token_file.as_ref().map(|path| path.display().to_string());
    let token = needed(&token, "The file with the bot's token?")?;
    let mut channels = options.channel.clone();
    if channels.is_empty() {
        channels.push(needed(&None, "The channel's id?")?);
    }
    let channels: serde_json::Map<_, _> =
        channels.into_iter().map(|id| (id, json!("all"))).collect();
    binding["discord"] = json!({
        "guild": guild,
        "bot": bot,
        "channels": channels,
        "users": {user: options.requester},
        "token": {"file": std::path::absolute(token)?},
    });
    Ok(binding)
}

/// What a person answers; nothing where there is none, or an empty answer.
fn asked(question: &str) -> Result<Option<String>> {
    if !io::stdin().is_terminal() {
        return Ok(None);
    }
    eprint!("{question} ");
    io::stderr().flush()?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    let line = line.trim();
    Ok((!line.is_empty()).then(|| line.to_owned()))
}

/// What may stand in a binding: as JSON Schema, or as a table.
pub(crate) fn schema(markdown: bool) -> String {
    let schema = Binding::json_schema();
    if markdown { policy::reference::markdown(&schema) } else { format!("{schema:#}\n") }
}
