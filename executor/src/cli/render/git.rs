//! What git's tools answered, close to how git itself would show it.

use std::fmt::Write as _;

use protocol::printable::{one_line, printable};
use protocol::reply::{
    Branches, Change, ChangeKind, Committed, Diff, FileStat, Log, PathText, Plan, Pulled,
    PushState, Pushed, ShownCommit, Status, Text,
};

use super::table::Table;
use super::{listed, note};
use crate::cli::paint::{Look, Paper};

pub(super) fn status(paper: Paper, status: &Status) -> String {
    let mut text = match (&status.untrusted_branch, &status.head) {
        (Some(branch), _) => {
            format!("On branch {}", paper.paint(Look::Branch, &one_line(branch.as_str())))
        }
        (None, Some(head)) => format!("HEAD detached at {}", paper.paint(Look::Hash, head)),
        (None, None) => "On no branch".to_owned(),
    };
    if status.head.is_none() {
        text.push_str(", no commits yet");
    }
    if let Some(upstream) = &status.untrusted_upstream {
        let _ = write!(text, ", following {}", one_line(upstream.as_str()));
    }
    match (status.ahead.unwrap_or(0), status.behind.unwrap_or(0)) {
        (0, 0) => {}
        (ahead, 0) => drop(write!(text, " [ahead {ahead}]")),
        (0, behind) => drop(write!(text, " [behind {behind}]")),
        (ahead, behind) => drop(write!(text, " [ahead {ahead}, behind {behind}]")),
    }
    text.push('\n');
    if let Some(operation) = status.operation {
        let said = format!("{} in progress", operation.as_str());
        text.push_str(&(paper.paint(Look::Removed, &said) + "\n"));
    }
    text.push_str(&changes(paper, "Staged:", Look::Added, &status.untrusted_staged));
    text.push_str(&changes(paper, "Not staged:", Look::Removed, &status.untrusted_unstaged));
    text.push_str(&group(paper, "Conflicts:", Look::Removed, &status.untrusted_conflicted));
    text.push_str(&group(paper, "Untracked:", Look::Removed, &status.untrusted_untracked));
    if !status.untrusted_reserved.is_empty() {
        let ids: Vec<_> = status.untrusted_reserved.iter().map(|id| one_line(&id.0)).collect();
        let _ = writeln!(text, "Reserved, in no commit yet: {}", ids.join(", "));
    }
    if status.truncated {
        text.push_str(&note(paper, "(there are more)"));
    }
    if status.clean {
        text.push_str("nothing to commit, working tree clean\n");
    }
    text
}

fn group(paper: Paper, title: &str, look: Look, paths: &[PathText]) -> String {
    if paths.is_empty() {
        return String::new();
    }
    let lines = listed("  ", paths);
    let lines: String = lines.lines().map(|line| paper.paint(look, line) + "\n").collect();
    format!("{}\n{lines}", paper.paint(Look::Strong, title))
}

fn changes(paper: Paper, title: &str, look: Look, changes: &[Change]) -> String {
    if changes.is_empty() {
        return String::new();
    }
    let mut text = paper.paint(Look::Strong, title) + "\n";
    for change in changes {
        let name = renamed(&change.path, change.from.as_ref());
        let line = paper.paint(look, &format!("{} {name}", change.kind.letter()));
        let _ = writeln!(text, "  {line}");
    }
    text
}

fn renamed(path: &PathText, from: Option<&PathText>) -> String {
    match from {
        Some(from) => format!("{} → {}", one_line(from.as_str()), one_line(path.as_str())),
        None => one_line(path.as_str()),
    }
}

pub(super) fn diff(paper: Paper, diff: &Diff) -> String {
    let mut text = stats(paper, &diff.untrusted_files);
    text.push_str(&more(paper, diff.more_files, "paths"));
    let shown = budgeted(paper, &diff.untrusted_diff);
    if !shown.is_empty() {
        text.push('\n');
        text.push_str(&shown);
    }
    text
}

fn stats(paper: Paper, files: &[FileStat]) -> String {
    let mut table = Table::new();
    for file in files {
        let (added, removed) = match (file.added, file.removed) {
            (Some(added), Some(removed)) => (format!("+{added}"), format!("−{removed}")),
            _ => ("binary".to_owned(), String::new()),
        };
        let mode = file.mode.as_ref().map(|mode| format!(" (mode {})", one_line(mode)));
        let name = renamed(&file.path, file.from.as_ref()) + &mode.unwrap_or_default();
        table.row([
            (None, file.kind.letter().to_string()),
            (Some(Look::Added), added),
            (Some(Look::Removed), removed),
            (None, name),
        ]);
    }
    // Paths are never cut: they are what one goes on to name.
    table.print(Paper { width: None, ..paper }, " ")
}

fn budgeted(paper: Paper, text: &Text) -> String {
    let mut shown = hunks(paper, text.text.as_str());
    if let Some(cut) = &text.cut {
        let said = format!("(cut at byte {} of {})", cut.next_offset, cut.size);
        shown.push_str(&note(paper, &said));
    }
    shown
}

/// A unified diff, line by line in its look.
pub(super) fn hunks(paper: Paper, text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut in_hunk = false;
    for line in text.split_inclusive('\n') {
        let line = printable(line.strip_suffix('\n').unwrap_or(line));
        let look = match line.as_bytes().first() {
            _ if line.starts_with("diff ") => {
                in_hunk = false;
                Some(Look::Strong)
            }
            _ if line.starts_with("@@") => {
                in_hunk = true;
                Some(Look::Place)
            }
            Some(b'+') if in_hunk => Some(Look::Added),
            Some(b'-') if in_hunk => Some(Look::Removed),
            Some(b' ' | b'\\') | None => None,
            Some(_) if in_hunk => None,
            Some(_) => Some(Look::Strong),
        };
        shown.push_str(&look.map_or(line.clone(), |look| paper.paint(look, &line)));
        shown.push('\n');
    }
    shown
}

pub(super) fn log(paper: Paper, log: &Log) -> String {
    let mut table = Table::new();
    for entry in &log.untrusted_commits {
        let author = one_line(entry.author.as_str());
        let name = author.split_once(" <").map_or(author.as_str(), |(name, _)| name);
        let day = entry.date.get(..16).unwrap_or(&entry.date).replace('T', " ");
        table.row([
            (Some(Look::Hash), one_line(&entry.short)),
            (Some(Look::Faint), one_line(&day)),
            (None, super::table::fit(name, 24)),
            (None, one_line(entry.subject.as_str())),
        ]);
    }
    let mut text = table.print(paper, "");
    if log.truncated {
        text.push_str(&note(paper, "(there are more; see --limit and --range)"));
    }
    text
}

pub(super) fn commit(paper: Paper, commit: &ShownCommit) -> String {
    let hash = format!("commit {}", one_line(&commit.hash));
    let mut text = paper.paint(Look::Hash, &hash) + "\n";
    if commit.parents.len() > 1 {
        let _ = writeln!(text, "Merge:  {}", one_line(&commit.parents.join(" ")));
    }
    let _ = writeln!(text, "Author: {}", one_line(commit.untrusted_author.as_str()));
    let _ = writeln!(text, "Date:   {}\n", one_line(&commit.date));
    for line in commit.untrusted_message.as_str().trim_end().lines() {
        let _ = writeln!(text, "    {}", printable(line));
    }
    let _ = write!(text, "\n{}", stats(paper, &commit.untrusted_files));
    text.push_str(&more(paper, commit.more_files, "paths"));
    text + "\n" + &budgeted(paper, &commit.untrusted_diff)
}

pub(super) fn branches(paper: Paper, branches: &Branches) -> String {
    let mut table = Table::new();
    for branch in &branches.untrusted_branches {
        let current = branches.untrusted_current.as_ref() == Some(&branch.name);
        let (mark, look) = if current { ("* ", Some(Look::Branch)) } else { ("  ", None) };
        let upstream = branch.upstream.as_ref().map(|name| format!("→ {}", one_line(&name.0)));
        table.row([
            (look, format!("{mark}{}", one_line(branch.name.as_str()))),
            (Some(Look::Hash), one_line(branch.hash.get(..10).unwrap_or(&branch.hash))),
            (Some(Look::Faint), upstream.unwrap_or_default()),
            (None, one_line(branch.subject.as_str())),
        ]);
    }
    table.print(paper, "") + &more(paper, branches.more_branches, "branches")
}

pub(super) fn committed(paper: Paper, made: &Committed) -> String {
    let branch = one_line(&made.branch);
    let hash = paper.paint(Look::Hash, &one_line(&made.short));
    let push = match &made.push {
        PushState::Pushed => format!("pushed to origin/{branch}"),
        PushState::Failed { code, message } => paper.paint(
            Look::Removed,
            &format!(
                "NOT pushed ({code}): {}; the next commit or push tries again",
                printable(message)
            ),
        ),
    };
    let files = stats(paper, &made.untrusted_files);
    format!("[{branch} {hash}] {}\n{files}{push}\n", one_line(&made.trailer))
}

/// A plan, as the person who approves it has to see it.
#[must_use]
pub fn plan(paper: Paper, plan: &Plan) -> String {
    let mut text = format!(
        "To be committed on {} and pushed to {}, for {}:\n",
        paper.paint(Look::Branch, &one_line(&plan.branch)),
        one_line(&plan.remote),
        one_line(&plan.requester)
    );
    for file in &plan.untrusted_files {
        let path = one_line(file.path.as_str());
        let how = match (file.kind, file.added, file.removed) {
            (ChangeKind::Added, _, _) => "(new file)".to_owned(),
            (ChangeKind::Deleted, _, _) => "(deleted)".to_owned(),
            (_, Some(added), Some(removed)) => format!("(+{added}/−{removed})"),
            _ => "(binary)".to_owned(),
        };
        let mode = file.mode.as_ref().map(|mode| format!(" mode {}", one_line(mode)));
        let _ = writeln!(text, "  {path} {how}{}", mode.unwrap_or_default());
    }
    for line in plan.message.lines() {
        let _ = writeln!(text, "    {}", printable(line));
    }
    text.trim_end().to_owned()
}

pub(super) fn pulled(paper: Paper, pulled: &Pulled) -> String {
    if pulled.commits == 0 {
        return "Already up to date.\n".to_owned();
    }
    let short = |hash: &str| one_line(hash.get(..10).unwrap_or(hash));
    let range = format!("{}..{}", short(&pulled.from), short(&pulled.to));
    let range = paper.paint(Look::Hash, &range);
    let files = stats(paper, &pulled.untrusted_files);
    let more = more(paper, pulled.more_files, "paths");
    format!("{range}  {}, fast-forward\n{files}{more}", counted(pulled.commits))
}

pub(super) fn pushed(paper: Paper, pushed: &Pushed) -> String {
    let branch = one_line(&pushed.branch);
    let hash = paper.paint(Look::Hash, &one_line(pushed.hash.get(..10).unwrap_or(&pushed.hash)));
    match pushed.commits {
        0 => format!("Everything up to date: origin/{branch} is at {hash}\n"),
        commits => format!("{} to origin/{branch}, now at {hash}\n", counted(commits)),
    }
}

fn more(paper: Paper, count: u64, what: &str) -> String {
    if count == 0 { String::new() } else { note(paper, &format!("… and {count} more {what}")) }
}

fn counted(commits: u64) -> String {
    if commits == 1 { "1 commit".to_owned() } else { format!("{commits} commits") }
}
