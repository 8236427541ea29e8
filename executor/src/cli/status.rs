//! `sage-executor status`: how a running executor stands, and what it has counted since it started.

use std::fmt::{Display, Write as _};
use std::process::ExitCode;

use protocol::printable::one_line;
use protocol::status::{Ended, Status};
use protocol::wire::Client;

use super::connect::{ConnectError, Where};
use super::exit;
use super::paint::{Look, Paper, When};

/// What `status` takes.
#[derive(Debug, Clone, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    place: Where,
    /// Print everything as JSON.
    #[arg(long)]
    json: bool,
    /// Print the counters in the text form of Prometheus.
    #[arg(long, conflicts_with = "json")]
    prometheus: bool,
    /// When to use colours.
    #[arg(long, value_enum, default_value_t, value_name = "WHEN")]
    color: When,
}

/// Asks, and says.
pub fn run(arguments: &Arguments) -> ExitCode {
    let asked = async {
        let client = Client::connect(&arguments.place.socket()?).await?;
        Ok(client.status().await?)
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let said: Result<_, ConnectError> = match runtime {
        Ok(runtime) => runtime.block_on(asked),
        Err(error) => return exit::because(exit::FAULT, error),
    };
    match said {
        Ok(status) => {
            print!("{}", shown(arguments, &status));
            ExitCode::SUCCESS
        }
        Err(error @ ConnectError::Wire(_)) => exit::because(exit::UNREACHABLE, error),
        Err(error) => exit::because(exit::USAGE, error),
    }
}

fn shown(arguments: &Arguments, status: &Status) -> String {
    if arguments.prometheus {
        return status.prometheus();
    }
    if arguments.json {
        return format!("{:#}\n", serde_json::json!(status));
    }
    human(Paper::of_stdout(arguments.color), status)
}

fn human(paper: Paper, status: &Status) -> String {
    let counters = &status.counters;
    let mut text = format!("sage-executor {}, serving since {}\n", status.version, status.started);
    if let Some(stop) = &status.stopped {
        let stopped = paper.paint(Look::Removed, "stopped");
        let (by, since) = (one_line(&stop.by), one_line(&stop.since));
        let _ = writeln!(text, "{stopped} by {by} since {since}; `sage-executor resume` lifts it");
    }
    for hold in &status.degraded {
        let _ = writeln!(text, "{} {hold}", paper.paint(Look::Removed, "not enforced:"));
    }
    let calls = counters.calls.iter().map(|(tool, ended)| (tool.as_str(), ended));
    let _ = writeln!(text, "calls: {}", listed(calls.map(|(tool, ended)| (tool, told(ended)))));
    let refusals = counters.refusals.iter().map(|(code, count)| (code.as_str(), count));
    let _ = writeln!(text, "refusals: {}", listed(refusals));
    let took = &counters.durations;
    let mean = took.sum_ms.checked_div(took.count).unwrap_or_default();
    let _ = writeln!(text, "under way: {}; a call took {mean} ms on average", counters.under_way);
    let (open, served) = (counters.connections_open, counters.connections);
    let away = counters.turned_away.iter().map(|(why, count)| (why.as_str(), count));
    let _ =
        writeln!(text, "connections: {open} open, {served} served; turned away: {}", listed(away));
    if !counters.rate_limited.is_empty() {
        let _ = writeln!(text, "too often, by peer: {}", listed(&counters.rate_limited));
    }
    text
}

/// Names with what is said of them.
fn listed<K: Display, V: Display>(pairs: impl IntoIterator<Item = (K, V)>) -> String {
    let pairs: Vec<_> = pairs.into_iter().map(|(key, value)| format!("{key} {value}")).collect();
    if pairs.is_empty() { "none".to_owned() } else { pairs.join(", ") }
}

fn told(ended: &Ended) -> String {
    let Ended { done, refused, fault } = ended;
    match (refused, fault) {
        (0, 0) => done.to_string(),
        _ => format!("{done} (and {refused} refused, {fault} broken)"),
    }
}
