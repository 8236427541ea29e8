//! The command line, and the two hidden roles that git and the executor itself start.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::tools::web::page;
use crate::{audit, credential, daemon};

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
    Serve {
        /// The configuration.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Print which tool may touch what.
    Authority,
    /// Look at the audit.
    #[command(subcommand)]
    Audit(AuditCommand),
}

#[derive(Debug, Subcommand)]
enum AuditCommand {
    /// Check the chain; name the first broken line.
    Verify {
        /// The audit file.
        file: PathBuf,
    },
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
        Command::Serve { config } => serve(&config),
        Command::Authority => {
            print!("{}", authority_table());
            ExitCode::SUCCESS
        }
        Command::Audit(AuditCommand::Verify { file }) => verify(&file),
    }
}

fn serve(config: &std::path::Path) -> ExitCode {
    let filter = tracing_subscriber::EnvFilter::try_from_env("SAGE_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info,tarpc=off"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    match daemon::run(config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sage-executor: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn verify(file: &std::path::Path) -> ExitCode {
    match audit::verify(file) {
        Ok((lines, None)) => {
            println!("{lines} lines, the chain holds");
            ExitCode::SUCCESS
        }
        Ok((lines, Some((broken, reason)))) => {
            println!("{lines} lines hold; line {broken} is broken: {reason}");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("sage-executor: {}: {error}", file.display());
            ExitCode::from(2)
        }
    }
}

/// The authority table as text, one row per step and one per tool.
#[must_use]
pub fn authority_table() -> String {
    use std::fmt::Write as _;
    let mut text = String::new();
    let _ = writeln!(text, "{:<16} {:<15} {:<15} {:<13} token", "step", "files", "exec", "network");
    for row in policy::authority::TABLE {
        let token = if row.token { "its path" } else { "no" };
        let (files, exec) = (format!("{:?}", row.files), format!("{:?}", row.exec));
        let network = format!("{:?}", row.network);
        let _ = writeln!(
            text,
            "{:<16} {files:<15} {exec:<15} {network:<13} {token}",
            row.step.as_str()
        );
    }
    let _ = writeln!(text, "\n{:<16} steps", "tool");
    for tool in protocol::tool::ToolName::ALL {
        let steps: Vec<&str> =
            policy::authority::steps(*tool).iter().map(|step| step.as_str()).collect();
        let steps = if steps.is_empty() {
            "none: answered from memory".to_owned()
        } else {
            steps.join(", ")
        };
        let _ = writeln!(text, "{:<16} {steps}", tool.as_str());
    }
    text
}
