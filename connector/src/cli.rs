//! The commands, and what their exit codes mean: 0 done, 1 failed, 2 called wrongly or a bad binding,
//! 3 the brake is on or somebody holds the binding (a supervisor must not try again).

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, CommandFactory, Parser, Subcommand};

use crate::binding::{Binding, BindingError};
use crate::check;
use crate::clock::{Clock, SystemClock};
use crate::confinement;
use crate::control;
use crate::demo;
use crate::discord::live;
use crate::engine::{AnyEngine, SetupError, launch};
use crate::history::{self, Form};
use crate::init;
use crate::install;
use crate::journal::Journal;
use crate::lock::Lock;
use crate::metrics;
use crate::owner::OwnerError;
use crate::terminal::{self, Console, Input};
use crate::tools::Tools;
use crate::turn::Seat;

/// Sage's conversation: brings messages to an engine, its tool calls to the executor, and answers
/// back.
#[derive(Debug, Parser)]
#[command(name = "sage-connector", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Talk to Sage in this terminal.
    ///
    /// Enter sends. Alt-Enter, or a backslash before Enter, begins another line of the same message;
    /// a text that is pasted stays one message. Up and Down call up what was said before, Ctrl-R looks
    /// for it; a message that begins with a space is not remembered. Ctrl-C stops what is going on, or
    /// clears the line; Ctrl-D ends. From a pipe or a file each line is a message, and no line is edited.
    Chat(BindingArg),
    /// Serve the binding in Discord, until SIGTERM. SIGHUP reads limits, channels and users anew.
    Run {
        #[command(flatten)]
        binding: BindingArg,
        /// Clear a lock whose owner is gone first, as a service manager wants it.
        #[arg(long)]
        supervised: bool,
    },
    /// Write a binding to start from.
    Init(init::Options),
    /// Print the JSON Schema of a binding, or its reference.
    Schema {
        /// As a Markdown table.
        #[arg(long)]
        markdown: bool,
    },
    /// Install the systemd unit of a binding, and say what comes next.
    Install(setup::Arguments),
    /// Take away what `install` wrote for a binding; binding, secrets and records stay.
    Uninstall(setup::Arguments),
    /// Print a shell's completions.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write the manual, one page per command.
    Man {
        /// Where to.
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
    /// Look whether everything is there that a conversation needs; say nothing to anybody.
    Check {
        #[command(flatten)]
        binding: BindingArg,
        /// A JSON list of facts.
        #[arg(long)]
        json: bool,
    },
    /// See it work: a throw-away repository and remote, a confined executor, and a conversation.
    Demo(demo::Options),
    /// List the last turns, oldest first.
    Turns {
        #[command(flatten)]
        binding: BindingArg,
        /// How many.
        #[arg(long, default_value_t = 20, value_name = "N")]
        limit: usize,
        /// One JSON object a line.
        #[arg(long)]
        json: bool,
    },
    /// Put the brake on: nothing new starts, and what runs ends after its turn.
    Stop(BindingArg),
    /// Remove a lock whose owner is gone. It leaves the brake on.
    Unlock(BindingArg),
    /// Tell whether it runs, whether the brake is on, and how many turns are left.
    Status {
        #[command(flatten)]
        binding: BindingArg,
        /// One JSON object.
        #[arg(long, conflicts_with = "prometheus")]
        json: bool,
        /// Counters, in the text form of Prometheus.
        #[arg(long)]
        prometheus: bool,
    },
    /// Tell why a message was answered, or was not.
    Why {
        /// The message's id: in Discord, "Copy Message ID".
        message: String,
        #[command(flatten)]
        binding: BindingArg,
        /// One JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Show one turn: what was called, what came of it, what was said.
    Show {
        /// The turn's id.
        turn: String,
        #[command(flatten)]
        binding: BindingArg,
        /// One JSON object.
        #[arg(long, conflicts_with = "html")]
        json: bool,
        /// A page for a browser; it needs nothing else, and nothing in it runs.
        #[arg(long)]
        html: bool,
    },
}

#[derive(Debug, Args)]
struct BindingArg {
    /// The binding: who may talk, limits, engine, and the executor's socket.
    #[arg(long, value_name = "FILE")]
    binding: PathBuf,
}

/// Runs the command that the arguments name.
pub fn run() -> ExitCode {
    // Before anything else, while there is one thread.
    if std::env::args_os().nth(1).is_some_and(|role| role == confine::launcher::ROLE) {
        return confine::launcher::role_main();
    }
    let cli = Cli::parse();
    // What is said of calls is for services: a person in a terminal sees the answer.
    let default = match cli.command {
        Command::Run { .. } => "connector=info,warn",
        _ => "warn",
    };
    logs::begin("RUST_LOG", default);
    match dispatch(cli.command) {
        Ok(code) => code,
        Err(error) => {
            let text = crate::render::printable(&format!("{error:#}"));
            // When standard error is gone there is nobody left to tell.
            let _ = writeln!(std::io::stderr(), "sage-connector: {text}");
            ExitCode::from(code_of(&error))
        }
    }
}

fn code_of(error: &anyhow::Error) -> u8 {
    match error.downcast_ref::<OwnerError>() {
        Some(error) if error.is_held() => 3,
        _ if error.is::<BindingError>() || error.is::<SetupError>() => 2,
        _ if error.downcast_ref::<setup::Error>().is_some_and(setup::Error::is_refusal) => 2,
        _ => 1,
    }
}

fn dispatch(command: Command) -> Result<ExitCode> {
    match command {
        Command::Chat(BindingArg { binding }) => runtime()?.block_on(chat(&binding))?,
        Command::Run { binding, supervised } => {
            return runtime()?.block_on(serve(&binding.binding, supervised));
        }
        Command::Init(options) => print(&init::init(&options)?)?,
        Command::Schema { markdown } => print(&init::schema(markdown))?,
        Command::Install(arguments) => install::install(&arguments)?,
        Command::Uninstall(arguments) => install::uninstall(&arguments)?,
        Command::Completions { shell } => {
            let (mut text, mut command) = (Vec::new(), Cli::command());
            clap_complete::generate(shell, &mut command, "sage-connector", &mut text);
            print(&String::from_utf8_lossy(&text))?;
        }
        Command::Man { folder } => {
            std::fs::create_dir_all(&folder)
                .and_then(|()| clap_mangen::generate_to(Cli::command(), &folder))
                .with_context(|| format!("{} cannot be written", folder.display()))?;
        }
        Command::Check { binding, json } => {
            let (text, good) = runtime()?.block_on(check::check(&binding.binding, json))?;
            print(&text)?;
            return Ok(ExitCode::from(u8::from(!good)));
        }
        Command::Demo(options) => return runtime()?.block_on(demo::run(options)),
        Command::Turns { binding, limit, json } => {
            print(&history::turns(&Binding::load(&binding.binding)?.folder(), limit, json)?)?;
        }
        Command::Stop(BindingArg { binding }) => {
            print(&control::stop(&Binding::load(&binding)?.folder())?)?;
        }
        Command::Unlock(BindingArg { binding }) => {
            print(&control::unlock(&Binding::load(&binding)?.folder())?)?;
        }
        Command::Status { binding, json, prometheus } => {
            let binding = Binding::load(&binding.binding)?;
            let now = SystemClock.now();
            let text = if prometheus {
                metrics::prometheus(&binding.folder())?
            } else {
                let executor = runtime()?.block_on(check::reach(&binding));
                control::status(&binding.folder(), &binding.limits, now, &executor, json)?
            };
            print(&text)?;
        }
        Command::Why { message, binding, json } => {
            print(&control::why(&Binding::load(&binding.binding)?.folder(), &message, json)?)?;
        }
        Command::Show { turn, binding, json, html } => {
            let form = match (json, html) {
                (true, _) => Form::Json,
                (_, true) => Form::Html,
                _ => Form::Text,
            };
            print(&history::show(&Binding::load(&binding.binding)?.folder(), &turn, form)?)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// One thread: one turn goes on at a time, and the journal blocks it on purpose.
fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")
}

fn print(text: &str) -> Result<()> {
    std::io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")
}

async fn serve(path: &Path, supervised: bool) -> Result<ExitCode> {
    confinement::names_over_tcp().context("cannot start anew")?;
    match live::serve(path, supervised).await? {
        live::Ended::Told => Ok(ExitCode::SUCCESS),
        live::Ended::Refused(what) => {
            let _ = writeln!(std::io::stderr(), "sage-connector: {what}");
            Ok(ExitCode::from(2))
        }
    }
}

async fn chat(path: &Path) -> Result<()> {
    confinement::names_over_tcp().context("cannot start anew")?;
    let binding = Binding::load(path)?;
    let mut seat = take_seat(&binding)?;
    confinement::confine(path, &binding, &seat.engine, false)?;
    let interrupts = terminal::interrupts().context("cannot take over the signals")?;
    let input = Input::standard(&binding.folder()).context("cannot use the terminal")?;
    let mut console = Console::new(input, interrupts, std::io::stdout());
    terminal::chat(&mut seat, &binding.terminal.requester, &mut console).await?;
    Ok(())
}

/// Takes the binding's folder for this process and brings its journal in order.
pub(crate) fn take_seat(binding: &Binding) -> Result<Seat<AnyEngine>> {
    let engine = AnyEngine::new(&binding.engine, &binding.folder())?;
    let mut journal = Journal::open(Lock::take(&binding.folder())?)?;
    for torn in journal.damage() {
        tracing::warn!("{torn}");
    }
    for id in journal.recover(SystemClock.now())? {
        tracing::warn!(turn = %id, "this turn was interrupted; it has its record and is not repeated");
    }
    launch::keep(&binding.folder(), &engine, SystemClock.now())
        .context("cannot write down this start")?;
    Ok(Seat {
        journal,
        engine,
        tools: Tools::new(binding.executor.socket.clone()),
        limits: binding.limits.clone(),
        clock: Box::new(SystemClock),
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_commands_are_consistent() {
        super::Cli::command().debug_assert();
    }
}
