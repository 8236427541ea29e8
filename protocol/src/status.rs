//! How the executor stands, and what it has counted since it started.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::metrics::{Durations, Page};
use crate::refusal::Code;
use crate::service::Stopped;
use crate::tool::ToolName;

/// How the executor stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Status {
    /// The version of the program.
    pub version: String,
    /// Since when it serves: RFC 3339, UTC.
    pub started: String,
    /// The operator's stop, while one stands.
    pub stopped: Option<Stopped>,
    /// What the kernel does not enforce, where the configuration allows that.
    pub degraded: Vec<String>,
    /// What it has counted since then.
    pub counters: Counters,
}

/// Numbers by closed words. They hold no name and no text, so that every peer may see all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Counters {
    /// Calls by tool, and how they ended.
    pub calls: BTreeMap<ToolName, Ended>,
    /// Refused calls by rule.
    pub refusals: BTreeMap<Code, u64>,
    /// How long calls took that the fence let through.
    pub durations: Durations,
    /// Calls under way.
    pub under_way: u64,
    /// Connections that were greeted and served.
    pub connections: u64,
    /// Those that are open.
    pub connections_open: u64,
    /// Connections that were turned away.
    pub turned_away: BTreeMap<TurnedAway, u64>,
    /// Calls that came too often, by the peer's user id.
    pub rate_limited: BTreeMap<u32, u64>,
}

/// How calls of a tool ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Ended {
    /// Done.
    pub done: u64,
    /// Refused by a rule.
    pub refused: u64,
    /// Broken inside the executor.
    pub fault: u64,
}

/// Why a connection was turned away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnedAway {
    /// It spoke another version of the protocol.
    Version,
    /// Its user is not listed.
    UnknownPeer,
    /// Its peer had all its connections.
    Busy,
    /// So many were being turned away that nobody said why.
    Unheard,
    /// It did not greet, or not in time.
    NoGreeting,
}

impl TurnedAway {
    /// As JSON spells it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Version => "version",
            Self::UnknownPeer => "unknown_peer",
            Self::Busy => "busy",
            Self::Unheard => "unheard",
            Self::NoGreeting => "no_greeting",
        }
    }
}

impl Status {
    /// In the text form of Prometheus.
    #[must_use]
    pub fn prometheus(&self) -> String {
        let counters = &self.counters;
        let mut page = Page::default();
        let stopped = u64::from(self.stopped.is_some());
        page.gauge("sage_executor_stopped", "Whether the operator's stop stands.", stopped);
        let missing = self.degraded.len() as u64;
        page.gauge("sage_executor_degraded", "Holds that the kernel does not enforce.", missing);
        let ended = counters.calls.iter().flat_map(|(tool, ended)| {
            let Ended { done, refused, fault } = *ended;
            let ended = [("done", done), ("refused", refused), ("fault", fault)];
            ended.map(|(outcome, count)| (tool.as_str(), outcome, count))
        });
        let labels = ["tool", "outcome"];
        page.counter_by_two("sage_executor_calls_total", "Calls by how they ended.", labels, ended);
        let name = "sage_executor_refusals_total";
        page.counter(name, "Refused calls by rule.", "code", pairs(&counters.refusals));
        let name = "sage_executor_call_duration_milliseconds";
        page.durations(name, "How long calls took.", &counters.durations);
        page.gauge("sage_executor_calls_under_way", "Calls under way.", counters.under_way);
        let name = "sage_executor_connections_total";
        page.total(name, "Connections that were served.", counters.connections);
        let name = "sage_executor_connections_open";
        page.gauge(name, "Connections that are open.", counters.connections_open);
        let turned = counters.turned_away.iter().map(|(why, count)| (why.as_str(), *count));
        let name = "sage_executor_turned_away_total";
        page.counter(name, "Connections that were turned away.", "reason", turned);
        let name = "sage_executor_rate_limited_total";
        page.counter(name, "Calls that came too often.", "peer", pairs(&counters.rate_limited));
        page.text()
    }
}

fn pairs<K>(counts: &BTreeMap<K, u64>) -> impl Iterator<Item = (&K, u64)> {
    counts.iter().map(|(key, count)| (key, *count))
}
