//! `sage-executor call TOOL`: one call from a terminal or a script.
//!
//! The tools and their flags come from the schemas that the server reads calls by. What the call may
//! do is decided by the executor alone: this is a client like any other.

mod flags;

use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{ArgMatches, Args, Command, FromArgMatches};
use policy::authority;
use protocol::printable::printable;
use protocol::refusal::Outcome;
use protocol::reply::{Plan, Reply};
use protocol::tool::{ToolCall, ToolName};
use protocol::turn::{Origin, Turn};
use protocol::wire::{Client, WireError};
use serde_json::{Map, Value, json};

use super::connect::{self, ConnectError, Speaker, Where};
use super::paint::{self, Paper, When};
use super::{exit, render, spinner};

/// What `call` takes, beside the tool and its flags.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    #[command(flatten)]
    place: Where,
    #[command(flatten)]
    speaker: Speaker,
    /// Approve the plan with this digest, which an earlier call of the turn showed.
    #[arg(long, value_name = "DIGEST", global = true)]
    approve: Option<String>,
    /// Print the answer as JSON, and a refusal as JSON on standard error.
    #[arg(long, global = true)]
    json: bool,
    /// When to use colours.
    #[arg(long, value_enum, default_value_t, value_name = "WHEN", global = true)]
    color: When,
    /// Print everything at once.
    #[arg(long, global = true)]
    no_pager: bool,
}

/// What a command takes that names a tool: its own options, the tool, and the tool's flags.
#[derive(Debug, Clone)]
pub struct ToolArguments<O> {
    pub(super) options: O,
    input: Input,
    pub(super) tool: ToolName,
    /// The flags, read once the input is known.
    flags: ArgMatches,
}

#[derive(Debug, Clone, clap::Args)]
struct Input {
    /// The tool's arguments as JSON, or `-` to read them from standard input; flags go over them.
    #[arg(long, value_name = "JSON", global = true)]
    input: Option<String>,
}

/// What `call` takes.
pub type Arguments = ToolArguments<Options>;

impl<O: Args> Args for ToolArguments<O> {
    fn augment_args(command: Command) -> Command {
        Input::augment_args(O::augment_args(command))
            .subcommand_required(true)
            .arg_required_else_help(true)
            .subcommand_value_name("TOOL")
            .subcommand_help_heading("Tools")
            .disable_help_subcommand(true)
            .subcommands(flags::tools())
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<O: FromArgMatches> FromArgMatches for ToolArguments<O> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let missing = || clap::Error::new(clap::error::ErrorKind::MissingSubcommand);
        let (name, flags) = matches.subcommand().ok_or_else(missing)?;
        let tool = ToolName::parse(name).ok_or_else(missing)?;
        let (options, input) = (O::from_arg_matches(matches)?, Input::from_arg_matches(matches)?);
        Ok(Self { options, input, tool, flags: flags.clone() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Calls, and says what came of it.
pub fn run(arguments: &Arguments) -> ExitCode {
    let call = match arguments.call() {
        Ok(call) => call,
        Err(why) => return exit::because(exit::USAGE, why),
    };
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(async {
            tokio::select! {
                code = answered(&arguments.options, call) => code,
                // Dropping the call makes the executor stop it.
                _ = tokio::signal::ctrl_c() => ExitCode::from(exit::INTERRUPTED),
            }
        }),
        Err(error) => exit::because(exit::FAULT, error),
    }
}

impl<O> ToolArguments<O> {
    /// The call that the flags and the input make.
    pub(super) fn call(&self) -> Result<ToolCall, String> {
        let input = match self.input.input.as_deref() {
            None => Map::new(),
            Some("-") => {
                let mut text = String::new();
                let read = io::stdin().read_to_string(&mut text);
                read.map_err(|error| format!("--input: {error}"))?;
                object(&text)?
            }
            Some(text) => object(text)?,
        };
        let arguments = flags::arguments(self.tool, &self.flags, input);
        ToolCall::from_json(self.tool.as_str(), arguments).map_err(|no| no.to_string())
    }
}

fn object(text: &str) -> Result<Map<String, Value>, String> {
    serde_json::from_str(text).map_err(|error| format!("--input is no JSON object: {error}"))
}

async fn answered(options: &Options, call: ToolCall) -> ExitCode {
    let (client, description) = match options.place.connect().await {
        Ok(connected) => connected,
        Err(error @ ConnectError::Wire(_)) => return exit::because(exit::UNREACHABLE, error),
        Err(error) => return exit::because(exit::USAGE, error),
    };
    let turn = options.speaker.turn(&description, Origin::Cli);
    let asked = ask(&client, &turn, &call, options.approve.clone()).await;
    match asked {
        Ok(Outcome::Reply(Reply::ApprovalNeeded(plan))) if !options.json && can_ask() => {
            if !agreed(&plan) {
                return exit::because(exit::NOT_APPROVED, "not approved; nothing was committed");
            }
            let digest = Some(plan.digest.clone());
            tell(options, &turn, call.name(), ask(&client, &turn, &call, digest).await)
        }
        other => tell(options, &turn, call.name(), other),
    }
}

async fn ask(
    client: &Client,
    turn: &Turn,
    call: &ToolCall,
    approved: Option<String>,
) -> Result<Outcome, WireError> {
    let request = connect::request(turn, call.clone(), approved);
    spinner::waiting(call.name().as_str(), client.call(request)).await
}

/// Whether somebody is there to be asked.
fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

fn agreed(plan: &Plan) -> bool {
    let paper = Paper { colours: false, ..Paper::of_stdout(When::Never) };
    eprint!("{}\nCommit this? [y/N] ", render::plan(paper, plan));
    let _ = io::stderr().flush();
    let mut word = String::new();
    let read = io::stdin().lock().read_line(&mut word);
    read.is_ok() && matches!(word.trim().to_lowercase().as_str(), "y" | "yes")
}

/// Says what became of the call; the exit code says it too.
fn tell(
    options: &Options,
    turn: &Turn,
    tool: ToolName,
    outcome: Result<Outcome, WireError>,
) -> ExitCode {
    match outcome {
        Ok(Outcome::Reply(reply)) => {
            let waits = matches!(&reply, Reply::ApprovalNeeded(_));
            let text = if options.json {
                format!("{:#}\n", reply.to_json())
            } else {
                let paper = Paper::of_stdout(options.color);
                let mut text = render::reply(paper, &reply);
                text.push_str(&go_on(turn, &reply));
                text
            };
            // What a call did is one look; what it read may be long.
            let page = !options.json && !options.no_pager && !authority::writes(tool);
            match paint::print(&text, page) {
                Ok(()) if waits => ExitCode::from(exit::NOT_APPROVED),
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => exit::because(exit::FAULT, error),
            }
        }
        Ok(Outcome::Refusal(no)) if options.json => {
            eprintln!("{}", json!({"refusal": no}));
            ExitCode::from(exit::REFUSED)
        }
        Ok(Outcome::Refusal(no)) => {
            let (message, hint) = (printable(&no.message), printable(&no.hint));
            eprintln!("refused ({}): {message}\nhint: {hint}", no.code);
            ExitCode::from(exit::REFUSED)
        }
        Ok(Outcome::Fault(fault)) if options.json => {
            eprintln!("{}", json!({"fault": fault}));
            ExitCode::from(exit::FAULT)
        }
        Ok(Outcome::Fault(fault)) => exit::because(exit::FAULT, printable(&fault.message)),
        Err(error) => exit::because(exit::UNREACHABLE, error),
    }
}

/// How to go on where an answer is not the end: the rest of an output, a plan that waits.
fn go_on(turn: &Turn, reply: &Reply) -> String {
    let program = std::env::args().next().unwrap_or_default();
    let program = Path::new(&program).file_name().map_or_else(PathBuf::new, PathBuf::from);
    let again = format!("{} call", program.display());
    let cut = match reply {
        Reply::Diff(diff) => diff.untrusted_diff.cut.as_ref(),
        Reply::Commit(commit) => commit.untrusted_diff.cut.as_ref(),
        Reply::Page(page) => page.untrusted_text.cut.as_ref(),
        Reply::ApprovalNeeded(plan) => {
            return format!(
                "To approve, within {} s: the same call again with --turn {} --approve {}\n",
                plan.good_for_seconds,
                printable(&turn.id),
                printable(&plan.digest)
            );
        }
        _ => None,
    };
    cut.map_or_else(String::new, |cut| {
        format!(
            "To read on: {again} read_output --turn {} --handle {} --offset {}\n",
            printable(&turn.id),
            printable(&cut.handle),
            cut.next_offset
        )
    })
}
