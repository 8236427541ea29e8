//! `sage-executor serve`.

use std::path::PathBuf;
use std::process::ExitCode;

use super::exit;
use crate::daemon;

/// What `serve` takes.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The configuration.
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
}

/// Serves until a signal ends it.
pub fn run(arguments: &Arguments) -> ExitCode {
    logs::begin("SAGE_LOG", "info,tarpc=off");
    match daemon::run(&arguments.config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit::because(exit::USAGE, format_args!("{error:#}")),
    }
}
