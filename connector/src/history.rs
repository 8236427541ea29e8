//! `turns` and `show`: what happened, from the records alone.
//!
//! They read and never write, and take no lock, so that they can be used while a conversation goes on.

mod html;

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use protocol::reply::PushState;
use serde_json::{Value, json};

use crate::delivery::Sent;
use crate::journal::{OutboxEntry, TURNS, read_outbox, read_record, stored};
use crate::message::MessageId;
use crate::record::{CallRecord, CallResult, CommitRecord, TurnOutcome, TurnRecord, WebRecord};
use crate::render::{one_line, printable};

/// The last turns, oldest first.
pub(crate) fn turns(folder: &Path, limit: usize, json: bool) -> Result<String> {
    let turns = folder.join(TURNS);
    let all = stored(&turns).with_context(|| format!("cannot read {}", turns.display()))?;
    let mut text = String::new();
    for stored in &all[all.len().saturating_sub(limit)..] {
        let record = read_record(&turns, &stored.id)
            .with_context(|| format!("the record of turn {} is damaged", stored.id))?;
        if json {
            let _ = writeln!(text, "{}", serde_json::to_string(&record)?);
        } else {
            let _ = writeln!(text, "{}", line(&record));
        }
    }
    if all.is_empty() && !json {
        text.push_str("There are no turns yet.\n");
    }
    Ok(text)
}

fn line(record: &TurnRecord) -> String {
    let calls: Vec<_> = record.calls.iter().map(|call| one_line(&call.tool)).collect();
    let commit = record.calls.iter().find_map(|call| call.commit.as_ref());
    format!(
        "{}  {:11}  {}{}{}",
        record.id,
        record.outcome.as_str(),
        one_line(record.source.requester.as_deref().unwrap_or("nobody")),
        if calls.is_empty() { String::new() } else { format!("  {}", calls.join(" ")) },
        commit.map(|commit| format!("  {}", commit_words(commit))).unwrap_or_default(),
    )
}

/// How a record is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// For a person in a terminal.
    Text,
    /// One JSON object.
    Json,
    /// A page for a browser.
    Html,
}

/// One turn's record, with what became of what it said.
pub(crate) fn show(folder: &Path, turn: &str, form: Form) -> Result<String> {
    let id = MessageId::parse(turn)?;
    let record = read_record(&folder.join(TURNS), &id)
        .with_context(|| format!("there is no readable record of turn {id}"))?;
    let outbox = read_outbox(folder).context("cannot read the outbox")?;
    let sent = |nonce: &str| {
        outbox.iter().rev().find_map(|line| match &line.entry {
            OutboxEntry::Result(sent) if line.nonce == nonce => Some(sent),
            _ => None,
        })
    };
    match form {
        Form::Text => Ok(printable(&page(&record, sent))),
        Form::Html => Ok(html::page(&record, sent)),
        Form::Json => {
            let mut value = serde_json::to_value(&record)?;
            for delivery in value["deliveries"].as_array_mut().into_iter().flatten() {
                let result = delivery["nonce"].as_str().and_then(sent);
                delivery["sent"] = json!(result);
            }
            Ok(serde_json::to_string_pretty(&value)? + "\n")
        }
    }
}

/// A record as a page. The connector's demo shows it too.
pub(crate) fn page<'a>(record: &TurnRecord, sent: impl Fn(&str) -> Option<&'a Sent>) -> String {
    let source = &record.source;
    let mut text = format!(
        "turn {}\n  from      {} in {}, through {}\n  for       {}\n  received  {}\n  outcome   {}\n",
        record.id,
        one_line(&source.author),
        one_line(&source.channel),
        source.origin.as_str(),
        one_line(source.requester.as_deref().unwrap_or("nobody")),
        record.received,
        outcome(&record.outcome),
    );
    if let Some(latency) = record.latency_ms {
        let engine = record.engine.as_deref().unwrap_or("none");
        let _ = writeln!(text, "  took      {latency} ms, engine {}", one_line(engine));
    }
    if let Some(envelope) = &record.envelope {
        let _ = writeln!(text, "  prompt    {} bytes, sha256 {}", envelope.bytes, envelope.sha256);
    }
    if let Some(usage) = record.usage {
        let (input, output) = (usage.input_tokens, usage.output_tokens);
        let _ = writeln!(text, "  tokens    {input} in, {output} out");
    }
    for record in &record.calls {
        text.push_str(&call(record));
    }
    for delivery in &record.deliveries {
        let state = match sent(&delivery.nonce) {
            Some(Sent::Confirmed) => "confirmed".to_owned(),
            Some(Sent::Refused { reason }) => format!("refused: {}", one_line(reason)),
            Some(Sent::Unknown { reason }) => format!("unknown: {}", one_line(reason)),
            None => "no result".to_owned(),
        };
        let (nonce, bytes) = (&delivery.nonce, delivery.text.bytes);
        let _ = writeln!(text, "  said      {} ({bytes} bytes), {state}", one_line(nonce));
    }
    text
}

fn outcome(outcome: &TurnOutcome) -> String {
    match outcome {
        TurnOutcome::Failed { reason } => format!("failed: {}", one_line(reason)),
        TurnOutcome::Interrupted { admitted: true } => {
            "interrupted: the process ended during the turn; see the executor's audit".to_owned()
        }
        TurnOutcome::Interrupted { admitted: false } => {
            "interrupted: the process ended before the turn began".to_owned()
        }
        other => other.as_str().to_owned(),
    }
}

fn call(call: &CallRecord) -> String {
    let result = match &call.result {
        CallResult::Reply => "done".to_owned(),
        CallResult::Refusal { code, message } => format!("refused ({code}): {}", one_line(message)),
        CallResult::Fault { message } => format!("broke: {}", one_line(message)),
        CallResult::Lost { reason } => format!("lost: {}", one_line(reason)),
        CallResult::Abandoned => "abandoned when the turn ended".to_owned(),
    };
    let mut text = format!(
        "  call      {} {} → {result} ({} ms)\n",
        one_line(&call.tool),
        one_line(&given(&call.arguments)),
        call.duration_ms
    );
    if let Some(web) = &call.web {
        let _ = writeln!(text, "  web       {}", one_line(&web_words(web)));
    }
    if let Some(commit) = &call.commit {
        let _ =
            writeln!(text, "  commit    {}, {}", commit_words(commit), one_line(&commit.trailer));
    }
    text
}

/// The arguments that were given.
fn given(arguments: &Value) -> String {
    let Value::Object(arguments) = arguments else { return arguments.to_string() };
    let given = arguments.iter().filter(|(_, value)| !value.is_null());
    let given: Vec<_> = given.map(|(name, value)| format!("{name}={value}")).collect();
    given.join(" ")
}

fn web_words(web: &WebRecord) -> String {
    let from = web.url.as_deref().unwrap_or("the search instance");
    let status = web.status.map(|status| format!(", status {status}")).unwrap_or_default();
    format!("{from}{status}, {} bytes, sha256 {}", web.bytes, web.sha256)
}

fn commit_words(commit: &CommitRecord) -> String {
    let (hash, branch) = (one_line(&commit.hash), one_line(&commit.branch));
    match &commit.push {
        PushState::Pushed => format!("{hash} pushed to origin/{branch}"),
        PushState::Failed { code, .. } => format!("{hash} not pushed ({code})"),
    }
}
