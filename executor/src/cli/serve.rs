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
    let filter = tracing_subscriber::EnvFilter::try_from_env("SAGE_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info,tarpc=off"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    match daemon::run(&arguments.config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit::because(exit::USAGE, format_args!("{error:#}")),
    }
}
