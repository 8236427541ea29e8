//! What is counted while the executor serves: kept in memory, and anew with each start.

use std::sync::{Mutex, MutexGuard, PoisonError};

use protocol::refusal::Outcome;
use protocol::status::{Counters, TurnedAway};
use protocol::tool::ToolName;

/// The counters.
#[derive(Debug)]
pub struct Tally {
    started: String,
    counters: Mutex<Counters>,
}

/// What is counted as long as it lasts.
#[derive(Debug, Clone, Copy)]
enum Lasting {
    Call,
    Connection,
}

/// Something that lasts; it is over when this is dropped.
#[derive(Debug)]
pub struct Lasts<'a> {
    tally: &'a Tally,
    what: Lasting,
}

impl Default for Tally {
    fn default() -> Self {
        let started = jiff::Timestamp::now().to_string();
        Self { started, counters: Mutex::default() }
    }
}

impl Tally {
    /// Since when is counted: RFC 3339, UTC.
    #[must_use]
    pub fn started(&self) -> &str {
        &self.started
    }

    /// What was counted so far.
    #[must_use]
    pub fn so_far(&self) -> Counters {
        self.counters().clone()
    }

    /// A call is under way.
    #[must_use]
    pub fn call(&self) -> Lasts<'_> {
        self.counters().under_way += 1;
        Lasts { tally: self, what: Lasting::Call }
    }

    /// A connection is served.
    #[must_use]
    pub fn connection(&self) -> Lasts<'_> {
        let mut counters = self.counters();
        counters.connections += 1;
        counters.connections_open += 1;
        Lasts { tally: self, what: Lasting::Connection }
    }

    /// A call has ended. `took_ms` is for one that the fence let through.
    pub fn ended(&self, tool: ToolName, outcome: &Outcome, took_ms: Option<u64>) {
        let mut counters = self.counters();
        let ended = counters.calls.entry(tool).or_default();
        match outcome {
            Outcome::Reply(_) => ended.done += 1,
            Outcome::Refusal(no) => {
                ended.refused += 1;
                *counters.refusals.entry(no.code).or_default() += 1;
            }
            Outcome::Fault(_) => ended.fault += 1,
        }
        if let Some(ms) = took_ms {
            counters.durations.add(ms);
        }
    }

    /// A call of a peer came too often.
    pub fn too_often(&self, peer: u32) {
        *self.counters().rate_limited.entry(peer).or_default() += 1;
    }

    /// A connection was turned away.
    pub fn turned_away(&self, why: TurnedAway) {
        *self.counters().turned_away.entry(why).or_default() += 1;
    }

    fn counters(&self) -> MutexGuard<'_, Counters> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Lasts<'_> {
    fn drop(&mut self) {
        let mut counters = self.tally.counters();
        match self.what {
            Lasting::Call => counters.under_way -= 1,
            Lasting::Connection => counters.connections_open -= 1,
        }
    }
}
