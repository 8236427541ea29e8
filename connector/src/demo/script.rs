//! The demo's conversation, and what each message must lead to.
//!
//! A step is judged by its turn record, not by the text of the answer.

use std::io::Write;

use anyhow::{Result, bail};
use protocol::refusal::Code;
use protocol::tool::ToolName;

use super::world::ROOT;
use crate::binding::Binding;
use crate::engine::Engine;
use crate::journal::{TURNS, read_record};
use crate::record::{CallResult, TurnOutcome, TurnRecord};
use crate::terminal::{Console, Ids, answer};
use crate::turn::{Ended, Seat};

const DECISION: &str = "vault/Decisions/DEC-0002-choose-the-launch-channel.md";

/// What came of the conversation.
#[derive(Debug, Default)]
pub(super) struct Played {
    /// Each step that did not lead where it must.
    pub(super) failures: Vec<String>,
}

struct Step {
    /// What the person says.
    say: String,
    /// The last tool that must be called.
    tool: ToolName,
    /// The rule that must refuse it; none when it must be done.
    refused: Option<Code>,
}

fn steps() -> Vec<Step> {
    let done = |say: String, tool| Step { say, tool, refused: None };
    let refused = |say: String, tool, code| Step { say, tool, refused: Some(code) };
    let text = include_str!("vault/example-decision.md");
    vec![
        done("list roots".to_owned(), ToolName::ListRoots),
        done(format!("write {ROOT}/{DECISION}:\n{text}"), ToolName::WriteFile),
        refused(
            format!("write {ROOT}/../outside.md: this is not yours"),
            ToolName::WriteFile,
            Code::InvalidPath,
        ),
        refused(
            format!("write {ROOT}/tools/validate_vault.py: print('all is well')"),
            ToolName::WriteFile,
            Code::ProtectedPath,
        ),
        refused(format!("commit {ROOT}/{DECISION}:"), ToolName::GitCommit, Code::InvalidMessage),
        done(format!("what changed in {ROOT}"), ToolName::GitDiff),
        done(format!("commit {ROOT}/{DECISION}: Choose the launch channel"), ToolName::GitCommit),
        done(format!("git log of {ROOT}"), ToolName::GitLog),
    ]
}

/// Plays the conversation, printing both sides.
pub(super) async fn play<E: Engine, W: Write + Send>(
    seat: &mut Seat<E>,
    binding: &Binding,
    console: &mut Console<W>,
) -> Result<Played> {
    let turns = binding.folder().join(TURNS);
    let mut played = Played::default();
    let mut ids = Ids::default();
    for step in steps() {
        writeln!(console.out, "\n> {}", step.say.trim_end().replace('\n', "\n… "))?;
        let incoming = ids.incoming(&binding.terminal.requester, step.say.clone());
        let id = incoming.id.clone();
        match answer(incoming, seat, console).await? {
            Ended::Turn(TurnOutcome::Aborted) => bail!("interrupted"),
            Ended::Turn(_) => {}
            other => bail!("the message {:?} got no turn: {other:?}", first_line(&step.say)),
        }
        if let Some(failure) = judge(&step, &read_record(&turns, &id)?) {
            played.failures.push(failure);
        }
    }
    Ok(played)
}

/// What is wrong with a step's turn.
fn judge(step: &Step, record: &TurnRecord) -> Option<String> {
    let last = record.calls.last();
    let right = record.outcome == TurnOutcome::Answered
        && last.is_some_and(|call| {
            call.tool == step.tool.as_str()
                && match (&call.result, step.refused) {
                    (CallResult::Reply, None) => true,
                    (CallResult::Refusal { code, .. }, Some(wanted)) => *code == wanted,
                    _ => false,
                }
        });
    let wanted = match step.refused {
        Some(code) => format!("be refused as {code}"),
        None => "be done".to_owned(),
    };
    (!right).then(|| {
        format!(
            "{:?} had to call {}, and that had to {wanted}; the turn {}, and the last call was {:?}",
            first_line(&step.say),
            step.tool,
            record.outcome.as_str(),
            last.map(|call| (&call.tool, &call.result)),
        )
    })
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}
