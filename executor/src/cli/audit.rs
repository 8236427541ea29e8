//! `sage-executor audit`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::exit;
use crate::audit;

/// What can be done with an audit.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Check the chain; name the first broken line.
    Verify {
        /// The audit file.
        file: PathBuf,
    },
}

/// Does it.
pub fn run(command: &Command) -> ExitCode {
    match command {
        Command::Verify { file } => verify(file),
    }
}

fn verify(file: &Path) -> ExitCode {
    match audit::verify(file) {
        Ok((lines, None)) => {
            println!("{lines} lines, the chain holds");
            ExitCode::SUCCESS
        }
        Ok((lines, Some((broken, reason)))) => {
            println!("{lines} lines hold; line {broken} is broken: {reason}");
            ExitCode::from(exit::FOUND_WRONG)
        }
        Err(error) => exit::because(exit::USAGE, format_args!("{}: {error}", file.display())),
    }
}
