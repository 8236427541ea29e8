//! The engine without a model: fixed phrases become tool calls.
//!
//! It is what the demo, the terminal and the tests use: the same message always makes the same calls.
//! It holds no memory between turns, and it never acts on text that a tool returned: a reply is only
//! ever shown.

mod phrases;

use std::fmt::Write as _;

use protocol::refusal::Outcome;
use protocol::reply::{Diff, Reply};
use protocol::tool::{GitCommit, GitDiff, GitStatus, ReadFile, ReadOutput, ToolCall};
use protocol::wire::WireError;

use super::{Answer, Engine, EngineError, ToolRunner};
use crate::prompt::Prompt;
use crate::render;
use phrases::Command;
pub use phrases::help;

/// The engine without a model.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rules;

impl Engine for Rules {
    fn name(&self) -> &'static str {
        "rules"
    }

    async fn run_turn<T: ToolRunner>(
        &mut self,
        prompt: &Prompt,
        tools: &mut T,
    ) -> Result<Answer, EngineError> {
        let text = match phrases::read(&prompt.message, &prompt.offer) {
            Ok(Command::Help) => help(&prompt.offer),
            Ok(Command::Call(call)) => render::outcome(&tools.call(call).await?),
            Ok(Command::Changes { root, path }) => changes(root, path, tools).await?,
            Ok(Command::Commit(commit)) => review_and_commit(commit, tools).await?,
            Err(misread) => misread,
        };
        Ok(Answer { text: text.trim_end().to_owned(), usage: None })
    }
}

/// git's diff is silent about new files, and a person who asks what changed is not.
async fn changes<T: ToolRunner>(
    root: String,
    path: Option<String>,
    tools: &mut T,
) -> Result<String, WireError> {
    let status = GitStatus { root: root.clone(), path: path.clone() };
    let status = tools.call(ToolCall::GitStatus(status)).await?;
    let diff = GitDiff { root, path, ..GitDiff::default() };
    let diff = tools.call(ToolCall::GitDiff(diff)).await?;
    let mut text = String::new();
    match &status {
        Outcome::Reply(Reply::Status(status)) if !status.untrusted_untracked.is_empty() => {
            text.push_str(&render::new_files(&status.untrusted_untracked));
            text.push('\n');
        }
        Outcome::Reply(_) => {}
        Outcome::Refusal(_) | Outcome::Fault(_) => return Ok(render::outcome(&status)),
    }
    match &diff {
        Outcome::Reply(Reply::Diff(diff))
            if diff.untrusted_files.is_empty() && !text.is_empty() => {}
        other => text.push_str(&render::outcome(other)),
    }
    Ok(text)
}

/// The review gate wants every path seen in the turn that commits it. So the diff is shown first, and
/// each named file that the diff leaves out (a new one) is read whole; then comes the commit. The
/// first refusal ends it.
async fn review_and_commit<T: ToolRunner>(
    commit: GitCommit,
    tools: &mut T,
) -> Result<String, WireError> {
    let path = match commit.paths.as_slice() {
        [only] => Some(only.clone()),
        _ => None,
    };
    let diff = GitDiff { root: commit.root.clone(), path, ..GitDiff::default() };
    let diff = match tools.call(ToolCall::GitDiff(diff)).await? {
        Outcome::Reply(Reply::Diff(diff)) => diff,
        other => return Ok(render::outcome(&other)),
    };
    let mut text = String::new();
    if !diff.untrusted_files.is_empty() {
        text.push_str(&render::diff(&diff));
        text.push('\n');
    }
    if let Some(refused) = read_on(&diff, &mut text, tools).await? {
        return Ok(text + &render::outcome(&refused));
    }
    for path in &commit.paths {
        if diff.untrusted_files.iter().any(|file| file.path.as_str() == path) {
            continue;
        }
        match read_whole(&commit.root, path, tools).await? {
            Ok(file) => {
                let _ = writeln!(text, "new file {}\n{file}", render::one_line(path));
            }
            Err(refused) => return Ok(text + &render::outcome(&refused)),
        }
    }
    let made = tools.call(ToolCall::GitCommit(commit)).await?;
    Ok(text + &render::outcome(&made))
}

/// The rest of a diff that was cut: what was not shown was not reviewed.
async fn read_on<T: ToolRunner>(
    diff: &Diff,
    text: &mut String,
    tools: &mut T,
) -> Result<Option<Outcome>, WireError> {
    let Some(cut) = &diff.untrusted_diff.cut else { return Ok(None) };
    let mut offset = Some(cut.next_offset);
    while let Some(from) = offset {
        let page = ReadOutput { handle: cut.handle.clone(), offset: from };
        match tools.call(ToolCall::ReadOutput(page)).await? {
            Outcome::Reply(Reply::Output(page)) => {
                text.push_str(&render::printable(page.untrusted_text.as_str()));
                text.push('\n');
                offset = page.next_offset.filter(|next| *next > from);
            }
            other => return Ok(Some(other)),
        }
    }
    Ok(None)
}

/// A file's text as added lines, or the outcome that kept it from being read.
async fn read_whole<T: ToolRunner>(
    root: &str,
    path: &str,
    tools: &mut T,
) -> Result<Result<String, Outcome>, WireError> {
    let mut whole = String::new();
    let mut offset = None;
    loop {
        let read = ReadFile { root: root.to_owned(), path: path.to_owned(), offset, limit: None };
        match tools.call(ToolCall::ReadFile(read)).await? {
            Outcome::Reply(Reply::File(part)) => {
                whole.push_str(part.untrusted_text.as_str());
                // A part that does not get on would go on for ever.
                match part.next_offset.filter(|next| Some(*next) > offset) {
                    Some(next) => offset = Some(next),
                    None => return Ok(Ok(render::added_lines(&whole))),
                }
            }
            other => return Ok(Err(other)),
        }
    }
}

#[cfg(test)]
mod tests;
