//! `sage-executor schema`: what is generated from the types, for editors and for the documents.

use std::fmt::Write as _;
use std::process::ExitCode;

use crate::config::Config;

/// What `schema` takes.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Print the reference of the configuration as a Markdown table.
    #[arg(long, conflicts_with = "codes")]
    markdown: bool,
    /// Print the refusal codes and the exit codes as Markdown tables.
    #[arg(long)]
    codes: bool,
}

/// Prints it.
pub fn run(arguments: &Arguments) -> ExitCode {
    let schema = Config::json_schema();
    if arguments.markdown {
        print!("{}", policy::reference::markdown(&schema));
    } else if arguments.codes {
        print!("{}", codes());
    } else {
        println!("{schema:#}");
    }
    ExitCode::SUCCESS
}

fn codes() -> String {
    let mut text = String::from("| refusal code | rule |\n|---|---|\n");
    for code in protocol::refusal::Code::ALL {
        let _ = writeln!(text, "| `{code}` | {} |", code.rule());
    }
    text.push_str("\n| exit code | meaning |\n|---|---|\n");
    for (code, meaning) in super::exit::ALL {
        let _ = writeln!(text, "| {code} | {meaning} |");
    }
    text
}
