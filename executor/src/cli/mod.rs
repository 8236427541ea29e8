//! The command line: one module per command, and the two hidden roles that git and the executor
//! itself start.
//!
//! What goes wrong is said on standard error and by the exit code; see [`exit`].

pub mod audit;
pub mod authority;
pub mod call;
pub mod connect;
pub mod doctor;
pub mod exit;
pub mod explain;
pub mod init;
pub mod install;
pub mod manual;
pub mod mcp;
pub mod paint;
pub mod render;
pub mod schema;
pub mod serve;
mod spinner;
pub mod status;
pub mod stop;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::credential;
use crate::tools::web::page;

/// Reads and writes Sage's repositories, each call under the least authority.
#[derive(Debug, Parser)]
#[command(name = "sage-executor", version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve calls on the configured socket, until SIGTERM or SIGINT.
    Serve(serve::Arguments),
    /// Call one tool of a running executor.
    Call(call::Arguments),
    /// Say whether a call would be allowed, by which rule and with which authority; do nothing.
    Explain(explain::Arguments),
    /// Say how a running executor stands and what it has counted since it started.
    Status(status::Arguments),
    /// Stop every writing and network tool, at once and until `resume`.
    Stop(stop::Arguments),
    /// Lift the stop.
    Resume(stop::Arguments),
    /// Serve the tools to an MCP client on standard input and output.
    Mcp(mcp::Arguments),
    /// Look at the installation: one line per fact, with the next step for each that is wrong.
    Doctor(doctor::Arguments),
    /// Write a configuration to start from.
    Init(init::Arguments),
    /// Install the systemd units of a binding, and say what comes next.
    Install(setup::Arguments),
    /// Take away what `install` wrote for a binding; configuration, secrets and records stay.
    Uninstall(setup::Arguments),
    /// Print the JSON Schema of the configuration, or its reference.
    Schema(schema::Arguments),
    /// Print a shell's completions.
    Completions(manual::Completions),
    /// Print or write the manual pages.
    Man(manual::Man),
    /// Print which tool may touch what.
    Authority,
    /// Look at the audit.
    #[command(subcommand)]
    Audit(audit::Command),
}

/// The program: a hidden role, or a command.
#[must_use]
pub fn main() -> ExitCode {
    if credential::is_askpass() {
        return credential::askpass();
    }
    if std::env::args_os().nth(1).is_some_and(|role| role == confine::launcher::ROLE) {
        return confine::launcher::role_main();
    }
    if std::env::args_os().nth(1).is_some_and(|role| role == page::ROLE) {
        return page::role_main();
    }
    match Arguments::parse().command {
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Call(arguments) => call::run(&arguments),
        Command::Explain(arguments) => explain::run(&arguments),
        Command::Status(arguments) => status::run(&arguments),
        Command::Stop(arguments) => stop::stop(&arguments),
        Command::Resume(arguments) => stop::resume(&arguments),
        Command::Mcp(arguments) => mcp::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Init(arguments) => init::run(&arguments),
        Command::Install(arguments) => install::install(&arguments),
        Command::Uninstall(arguments) => install::uninstall(&arguments),
        Command::Schema(arguments) => schema::run(&arguments),
        Command::Completions(arguments) => manual::completions(&arguments),
        Command::Man(arguments) => manual::man(&arguments),
        Command::Authority => authority::run(),
        Command::Audit(command) => audit::run(&command),
    }
}
