//! What the demo shows at the end: the remote, the record of the commit, and the executor's audit.
//!
//! Commit, trailer and push are told from what is there, not from what was said about it.

use std::fmt::Write as _;
use std::io;

use anyhow::{Context, Result};
use protocol::reply::PushState;
use serde_json::{Value, json};

use super::world::World;
use crate::binding::Binding;
use crate::history::{self, Form};
use crate::journal::{TURNS, read_record, stored};
use crate::record::{CallRecord, CallResult, CommitRecord, TurnRecord};
use crate::render::printable;

/// What is there at the end.
pub(super) struct Found {
    commit: Option<CommitRecord>,
    page: Option<String>,
    refusals: Vec<&'static str>,
    remote_head: String,
    remote_log: String,
    trailer: String,
    audit: Option<String>,
}

/// Looks at the remote, the records and the audit.
pub(super) fn look(world: &World) -> Result<Found> {
    let folder = Binding::load(&world.binding())?.folder();
    let turns = folder.join(TURNS);
    let mut records = Vec::new();
    for stored in stored(&turns)? {
        records.push(read_record(&turns, &stored.id)?);
    }
    let committing = records.iter().rev().find(|record| commit_of(record).is_some());
    let page = committing.map(|record| history::show(&folder, record.id.as_str(), Form::Text));
    let main = "refs/heads/main";
    Ok(Found {
        commit: committing.and_then(commit_of).cloned(),
        page: page.transpose()?,
        refusals: records.iter().flat_map(refusals).collect(),
        remote_head: world.ask_remote(&["rev-parse", main])?.trim().to_owned(),
        remote_log: world.ask_remote(&["log", "--max-count=2", "--stat", main])?,
        trailer: world
            .ask_remote(&["log", "--max-count=1", "--format=%(trailers:only,unfold)", main])?
            .trim()
            .to_owned(),
        audit: audit_line(world, committing.and_then(commit_call))?,
    })
}

fn commit_call(record: &TurnRecord) -> Option<&CallRecord> {
    record.calls.iter().find(|call| call.commit.is_some())
}

fn commit_of(record: &TurnRecord) -> Option<&CommitRecord> {
    commit_call(record)?.commit.as_ref()
}

fn refusals(record: &TurnRecord) -> Vec<&'static str> {
    let code = |result: &CallResult| match result {
        CallResult::Refusal { code, .. } => Some(code.as_str()),
        _ => None,
    };
    record.calls.iter().filter_map(|call| code(&call.result)).collect()
}

/// The last line about a call, or without one the last line of all.
fn audit_line(world: &World, call: Option<&CallRecord>) -> Result<Option<String>> {
    let path = world.audit();
    let text = match std::fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other.with_context(|| format!("cannot read {}", path.display()))?,
    };
    let about = call.map(|call| format!("\"{}\"", call.id)).unwrap_or_default();
    Ok(text.lines().rfind(|line| line.contains(&about)).map(str::to_owned))
}

impl Found {
    /// Whether the commit is what the remote's branch is at.
    fn pushed(&self) -> bool {
        self.commit.as_ref().is_some_and(|commit| {
            commit.push == PushState::Pushed && commit.hash == self.remote_head
        })
    }

    /// What a played conversation must have left and has not.
    pub(super) fn failures(&self) -> Vec<String> {
        let lines: Vec<&str> = self.trailer.lines().collect();
        let checks = [
            (self.commit.is_some(), "no commit was made"),
            (self.pushed(), "the remote's main is not at the commit"),
            (lines == ["Requested-by: Owner"], "the remote's commit lacks the requester's trailer"),
            (self.audit.is_some(), "the executor's audit has no line about the commit"),
        ];
        let failed = checks.into_iter().filter(|(holds, _)| !holds);
        failed.map(|(_, failure)| failure.to_owned()).collect()
    }

    /// For scripts.
    pub(super) fn to_json(&self) -> Value {
        json!({
            "commit": self.commit.as_ref().map(|commit| &commit.hash),
            "remoteHead": self.remote_head,
            "trailer": self.trailer,
            "pushed": self.pushed(),
            "refusals": self.refusals,
        })
    }

    /// For people.
    pub(super) fn to_text(&self) -> String {
        let mut text = format!("\n== The remote's log\n{}", printable(&self.remote_log));
        if let Some(page) = &self.page {
            let _ = write!(text, "\n== The record of the turn that committed\n{page}");
        }
        if let Some(audit) = &self.audit {
            let title = if self.commit.is_some() { "line about that commit" } else { "last line" };
            let audit = printable(audit);
            let _ = writeln!(text, "\n== The executor's audit, its {title}\n{audit}");
        }
        text
    }
}
