//! The demo: the whole of Sage on one machine, thrown away afterwards.
//!
//! It plays the operator first (a repository, a remote, the executor's configuration, a binding) and
//! then a person: the conversation goes through the same [`crate::turn::run`] as any other. From the
//! moment the executor runs, this process neither writes to the repository nor runs git, except to
//! look at the remote at the end. Nothing is left behind: the folder and the executor go with this
//! function, however it ends short of a kill that cannot be caught.

mod daemon;

mod report;

mod script;

mod world;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use tokio::sync::mpsc;

use crate::binding::Binding;
use crate::cli::take_seat;
use crate::render::printable;
use crate::terminal::{self, Console, Input, Interrupt};
use daemon::Daemon;
use script::Played;
use world::World;

/// How the demo goes.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Options {
    /// Play a short conversation instead of asking for one; so it does without a terminal, too.
    #[arg(long)]
    script: bool,
    /// Play it silently, and print one JSON object: commit, remoteHead, trailer, pushed, refusals.
    #[arg(long)]
    json: bool,
    /// Run also where the kernel cannot confine everything; the executor says what is missing.
    #[arg(long)]
    allow_degraded: bool,
}

/// Where the demo's text goes; nowhere when only the JSON object is wanted.
type Out = Box<dyn Write + Send>;

/// Runs the demo.
///
/// # Errors
/// When it cannot be set up, or is interrupted.
pub(crate) async fn run(options: Options) -> Result<ExitCode> {
    let scripted = options.script || options.json || !io::stdin().is_terminal();
    let mut out: Out = if options.json { Box::new(io::sink()) } else { Box::new(io::stdout()) };
    // Taken over first, so that from here on an interrupt ends this function and not the process.
    let mut interrupts = terminal::interrupts().context("cannot take over the signals")?;
    let world = World::build(options.allow_degraded)?;
    let mut daemon = Daemon::start(&world)?;
    let socket = world.socket();
    let offer = tokio::select! {
        biased;
        _ = interrupts.recv() => anyhow::bail!("interrupted"),
        offer = daemon.ready(&socket) => offer?,
    };
    writeln!(out, "{}", world.introduction(daemon.pid()))?;
    for gap in &offer.degraded {
        writeln!(out, "NOT ENFORCED on this kernel: {}", printable(gap))?;
    }
    let played = talk(scripted, &world, interrupts, &mut out).await?;
    let found = report::look(&world)?;
    if options.json {
        writeln!(io::stdout(), "{}", found.to_json())?;
    } else {
        write!(out, "{}", found.to_text())?;
        out.flush()?;
    }
    let mut failures = played.failures;
    if scripted {
        failures.extend(found.failures());
    }
    if failures.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let mut err = io::stderr();
    for failure in &failures {
        writeln!(err, "sage-connector: {}", printable(failure))?;
    }
    writeln!(err, "The executor's log:\n{}", daemon.log())?;
    Ok(ExitCode::FAILURE)
}

/// The conversation: the script's, or the person's.
async fn talk(
    scripted: bool,
    world: &World,
    interrupts: mpsc::Receiver<Interrupt>,
    out: &mut Out,
) -> Result<Played> {
    let binding = Binding::load(&world.binding())?;
    let mut seat = take_seat(&binding)?;
    if scripted {
        let mut console = Console::new(Input::Lines(mpsc::channel(1).1), interrupts, out);
        return script::play(&mut seat, &binding, &mut console).await;
    }
    let input = Input::standard(&binding.folder()).context("cannot use the terminal")?;
    let mut console = Console::new(input, interrupts, out);
    terminal::chat(&mut seat, &binding.terminal.requester, &mut console).await?;
    Ok(Played::default())
}
