//! Counters worth graphing, from the records alone: turns by outcome, refusals by code, how long turns
//! took, how often the connection to Discord came and went.
//!
//! They are read anew each time and kept nowhere, so they are right after any crash and cost nothing
//! while nobody asks. They hold no name and no text.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use protocol::metrics::{Durations, Page};
use serde_json::{Value, json};

use crate::journal::{TURNS, read_record, stored};
use crate::record::CallResult;

/// What became of the connection, one line each.
const CONNECTIONS: &str = "connections.jsonl";

/// Everything that is counted.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    turns: BTreeMap<&'static str, u64>,
    refusals: BTreeMap<String, u64>,
    calls: u64,
    commits: u64,
    latencies: Durations,
    connections: BTreeMap<String, u64>,
}

impl Counters {
    /// Of a binding's folder.
    pub(crate) fn read(folder: &Path) -> Result<Self> {
        let mut counters = Self::default();
        let turns = folder.join(TURNS);
        let all = stored(&turns).with_context(|| format!("cannot read {}", turns.display()))?;
        for one in all {
            // A record that cannot be read is `turns`' to name, not a reason to count nothing.
            let Ok(record) = read_record(&turns, &one.id) else { continue };
            *counters.turns.entry(record.outcome.as_str()).or_default() += 1;
            if let Some(latency) = record.latency_ms {
                counters.latencies.add(latency);
            }
            for call in record.calls {
                counters.calls += 1;
                counters.commits += u64::from(call.commit.is_some());
                if let CallResult::Refusal { code, .. } = call.result {
                    *counters.refusals.entry(code.to_string()).or_default() += 1;
                }
            }
        }
        counters.connections = connections(folder).context("cannot read the connections")?;
        Ok(counters)
    }

    /// For `status --json`.
    pub(crate) fn json(&self) -> Value {
        json!({
            "turns": self.turns,
            "calls": self.calls,
            "commits": self.commits,
            "refusals": self.refusals,
            "latencyMs": {"count": self.latencies.count, "sum": self.latencies.sum_ms},
            "connections": self.connections,
        })
    }
}

/// In the text form of Prometheus.
pub(crate) fn prometheus(folder: &Path) -> Result<String> {
    let counters = Counters::read(folder)?;
    let mut page = Page::default();
    let turns = counters.turns.into_iter();
    page.counter("sage_turns_total", "Turns by how they ended.", "outcome", turns);
    page.total("sage_calls_total", "Tool calls.", counters.calls);
    page.total("sage_commits_total", "Commits.", counters.commits);
    let refusals = counters.refusals.into_iter();
    page.counter("sage_refusals_total", "Refused calls by rule.", "code", refusals);
    let name = "sage_gateway_events_total";
    let connections = counters.connections.into_iter();
    page.counter(name, "What became of the connection.", "event", connections);
    let name = "sage_turn_duration_milliseconds";
    page.durations(name, "From acceptance to the answer.", &counters.latencies);
    Ok(page.text())
}

fn connections(folder: &Path) -> io::Result<BTreeMap<String, u64>> {
    let mut counts = BTreeMap::new();
    let file = match File::open(folder.join(CONNECTIONS)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(counts),
        opened => opened?,
    };
    for line in BufReader::new(file).lines() {
        // A torn line counts for nothing.
        let Ok(line) = serde_json::from_str::<Value>(&line?) else { continue };
        if let Some(event) = line["event"].as_str().filter(|event| EVENTS.contains(event)) {
            *counts.entry(event.to_owned()).or_default() += 1;
        }
    }
    Ok(counts)
}

/// What can become of a connection.
const EVENTS: [&str; 3] = ["ready", "resumed", "down"];

/// Where it is written down what became of the connection. Nothing depends on it, so that a line that
/// cannot be written is only logged.
#[derive(Debug)]
pub(crate) struct Connections(Option<File>);

impl Connections {
    /// In a binding's folder.
    pub(crate) fn open(folder: &Path) -> Self {
        let path = folder.join(CONNECTIONS);
        let opened = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
        Self(opened.map_err(|error| tracing::warn!(%error, "connections are not counted")).ok())
    }

    /// One line.
    pub(crate) fn note(&mut self, event: &str, at: jiff::Timestamp) {
        let Some(file) = &mut self.0 else { return };
        let line = format!("{}\n", json!({"at": at, "event": event}));
        if let Err(error) = file.write_all(line.as_bytes()) {
            tracing::warn!(%error, "a connection was not counted");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Connections, Counters, prometheus};
    use crate::clock::{Clock as _, SystemClock};
    use crate::journal::Journal;
    use crate::lock::Lock;

    #[test]
    fn what_becomes_of_the_connection_is_counted() {
        let home = tempfile::tempdir().expect("a folder");
        let folder = home.path().join("sage");
        drop(Journal::open(Lock::take(&folder).expect("free")).expect("it opens"));
        let mut connections = Connections::open(&folder);
        for event in ["ready", "down", "resumed", "down", "resumed"] {
            connections.note(event, SystemClock.now());
        }
        std::fs::write(folder.join("extra"), "").expect("it is ours");
        let counters = Counters::read(&folder).expect("it reads");
        assert_eq!(counters.json()["connections"]["resumed"], 2);
        let text = prometheus(&folder).expect("it reads");
        assert!(text.contains("sage_gateway_events_total{event=\"down\"} 2\n"), "{text}");
        assert!(text.contains("sage_turn_duration_milliseconds_bucket{le=\"+Inf\"} 0\n"), "{text}");
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (name, count) = line.rsplit_once(' ').expect("a name and a count");
            assert!(name.starts_with("sage_") && count.parse::<u64>().is_ok(), "{line}");
        }
    }
}
