//! `sage-executor explain TOOL`: whether a call would be allowed, by which rule, with which authority.
//!
//! The running executor is asked, under this user's name, by the same flags as `call`. It judges with
//! the fence of its calls, and does nothing.

use std::process::ExitCode;

use protocol::explain::Explanation;
use protocol::printable::printable;
use protocol::turn::Origin;

use super::call::ToolArguments;
use super::connect::{self, ConnectError, Speaker, Where};
use super::exit;
use super::paint::{Look, Paper, When};

/// What `explain` takes, beside the tool and its flags.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    #[command(flatten)]
    place: Where,
    #[command(flatten)]
    speaker: Speaker,
    /// Print the explanation as JSON.
    #[arg(long, global = true)]
    json: bool,
    /// When to use colours.
    #[arg(long, value_enum, default_value_t, value_name = "WHEN", global = true)]
    color: When,
}

/// What `explain` takes.
pub type Arguments = ToolArguments<Options>;

/// Asks, and says. The exit code is that of the call, as far as it can be known.
pub fn run(arguments: &Arguments) -> ExitCode {
    let call = match arguments.call() {
        Ok(call) => call,
        Err(why) => return exit::because(exit::USAGE, why),
    };
    let options = &arguments.options;
    let asked = async {
        let (client, description) = options.place.connect().await?;
        let turn = options.speaker.turn(&description, Origin::Cli);
        Ok(client.explain(connect::request(&turn, call, None)).await?)
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let said: Result<_, ConnectError> = match runtime {
        Ok(runtime) => runtime.block_on(asked),
        Err(error) => return exit::because(exit::FAULT, error),
    };
    match said {
        Ok(Ok(explanation)) => tell(options, &explanation),
        Ok(Err(fault)) => exit::because(exit::FAULT, printable(&fault.message)),
        Err(error @ ConnectError::Wire(_)) => exit::because(exit::UNREACHABLE, error),
        Err(error) => exit::because(exit::USAGE, error),
    }
}

fn tell(options: &Options, explanation: &Explanation) -> ExitCode {
    let text = if options.json {
        format!("{:#}\n", serde_json::json!(explanation))
    } else {
        human(Paper::of_stdout(options.color), explanation)
    };
    print!("{text}");
    match explanation.refusal {
        None => ExitCode::SUCCESS,
        Some(_) => ExitCode::from(exit::REFUSED),
    }
}

fn human(paper: Paper, explanation: &Explanation) -> String {
    let tool = paper.paint(Look::Strong, explanation.tool.as_str());
    if let Some(no) = &explanation.refusal {
        let verdict = paper.paint(Look::Removed, "would be refused");
        let (message, hint) = (printable(&no.message), printable(&no.hint));
        return format!(
            "{tool} {verdict} by the rule {}: {}\n  {message}\n  hint: {hint}\n",
            no.code,
            no.code.rule()
        );
    }
    let mut text = format!("{tool} {}, because\n", paper.paint(Look::Added, "would be allowed"));
    let list = |lines: &[String]| -> String {
        lines.iter().map(|line| format!("  - {}\n", printable(line))).collect()
    };
    text.push_str(&list(&explanation.passed));
    if explanation.steps.is_empty() {
        text.push_str("It takes no step: it is answered from memory.\n");
    } else {
        text.push_str("It may take these steps, each with no more than\n");
    }
    for step in &explanation.steps {
        let token = if step.token { "its path" } else { "no" };
        text.push_str(&format!(
            "  - {}: files {}, exec {}, network {}, token {token}\n",
            step.step, step.files, step.exec, step.network
        ));
    }
    if !explanation.later.is_empty() {
        text.push_str("Judged only when it is made:\n");
        text.push_str(&list(&explanation.later));
    }
    text
}
