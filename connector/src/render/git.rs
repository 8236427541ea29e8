//! What git's tools answered, as a person reads it.

use std::fmt::Write as _;

use protocol::reply::{
    Branches, Change, ChangeKind, Committed, Diff, FileStat, Log, PathText, Plan, Pulled,
    PushState, Pushed, ShownCommit, Status, Text,
};

use super::{one_line, paths, printable};

pub(super) fn status(status: &Status) -> String {
    let mut text = match (&status.untrusted_branch, &status.head) {
        (Some(branch), _) => format!("On branch {}", one_line(branch.as_str())),
        (None, Some(head)) => format!("HEAD is detached at {head}"),
        (None, None) => "On no branch".to_owned(),
    };
    if status.head.is_none() {
        text.push_str(", without a commit yet");
    }
    if let Some(upstream) = &status.untrusted_upstream {
        let _ = write!(text, ", following {}", one_line(upstream.as_str()));
    }
    match (status.ahead.unwrap_or(0), status.behind.unwrap_or(0)) {
        (0, 0) => {}
        (ahead, 0) => drop(write!(text, " ({ahead} ahead)")),
        (0, behind) => drop(write!(text, " ({behind} behind)")),
        (ahead, behind) => drop(write!(text, " ({ahead} ahead, {behind} behind)")),
    }
    text.push_str(".\n");
    if let Some(operation) = status.operation {
        let _ = writeln!(text, "In the middle of a {}.", operation.as_str());
    }
    text.push_str(&changes("Staged:", &status.untrusted_staged));
    text.push_str(&changes("Changed, not staged:", &status.untrusted_unstaged));
    text.push_str(&listed("New, unknown to git:", &status.untrusted_untracked));
    text.push_str(&listed("In conflict:", &status.untrusted_conflicted));
    if !status.untrusted_reserved.is_empty() {
        let ids: Vec<_> = status.untrusted_reserved.iter().map(|id| one_line(&id.0)).collect();
        let _ = writeln!(text, "Reserved, in no commit yet: {}", ids.join(", "));
    }
    if status.truncated {
        text.push_str("(there are more)\n");
    }
    if status.clean {
        text.push_str("Nothing to commit.\n");
    }
    text
}

/// Files that git does not know.
#[must_use]
pub fn new_files(untracked: &[PathText]) -> String {
    listed("New, unknown to git:", untracked)
}

fn listed(title: &str, paths_: &[PathText]) -> String {
    if paths_.is_empty() { String::new() } else { format!("{title}\n{}", paths("  ", paths_)) }
}

fn changes(title: &str, changes: &[Change]) -> String {
    let mut text = String::new();
    for change in changes {
        if text.is_empty() {
            let _ = writeln!(text, "{title}");
        }
        let name = renamed(&change.path, change.from.as_ref());
        let _ = writeln!(text, "  {} {name}", change.kind.letter());
    }
    text
}

fn renamed(path: &PathText, from: Option<&PathText>) -> String {
    match from {
        Some(from) => format!("{} → {}", one_line(from.as_str()), one_line(path.as_str())),
        None => one_line(path.as_str()),
    }
}

/// Changes: statistics, then the diff.
#[must_use]
pub fn diff(diff: &Diff) -> String {
    if diff.untrusted_files.is_empty() {
        return "No changes.".to_owned();
    }
    let (stats, more) = (stats(&diff.untrusted_files), more(diff.more_files, "paths"));
    format!("{stats}{more}\n{}", cut_text(&diff.untrusted_diff))
}

fn stats(files: &[FileStat]) -> String {
    let mut text = String::new();
    for file in files {
        let counts = match (file.added, file.removed) {
            (Some(added), Some(removed)) => format!("+{added}/−{removed}"),
            _ => "binary".to_owned(),
        };
        let mode = file.mode.as_ref().map(|mode| format!(", mode {mode}")).unwrap_or_default();
        let name = renamed(&file.path, file.from.as_ref());
        let _ = writeln!(text, "  {} {name} ({counts}{mode})", file.kind.letter());
    }
    text
}

fn cut_text(text: &Text) -> String {
    let mut shown = printable(text.text.as_str());
    if let Some(cut) = &text.cut {
        let _ = write!(shown, "\n(cut at byte {} of {})", cut.next_offset, cut.size);
    }
    shown
}

pub(super) fn log(log: &Log) -> String {
    if log.untrusted_commits.is_empty() {
        return "No commits.".to_owned();
    }
    let mut text = String::new();
    for entry in &log.untrusted_commits {
        let (author, subject) = (one_line(entry.author.as_str()), one_line(entry.subject.as_str()));
        let (short, date) = (one_line(&entry.short), one_line(&entry.date));
        let _ = writeln!(text, "{short}  {date}  {author}  {subject}");
    }
    if log.truncated {
        text.push_str("(there are more)\n");
    }
    text
}

pub(super) fn commit(commit: &ShownCommit) -> String {
    let mut text = format!("commit {}\n", commit.hash);
    if commit.parents.len() > 1 {
        let _ = writeln!(text, "merge of {}", commit.parents.join(" "));
    }
    let _ = writeln!(text, "author {}", one_line(commit.untrusted_author.as_str()));
    let _ = writeln!(text, "date   {}\n", one_line(&commit.date));
    for line in commit.untrusted_message.as_str().trim_end().lines() {
        let _ = writeln!(text, "    {}", printable(line));
    }
    let _ =
        write!(text, "\n{}{}\n", stats(&commit.untrusted_files), more(commit.more_files, "paths"));
    text + &cut_text(&commit.untrusted_diff)
}

pub(super) fn branches(branches: &Branches) -> String {
    if branches.untrusted_branches.is_empty() {
        return "No branches.".to_owned();
    }
    let mut text = String::new();
    for branch in &branches.untrusted_branches {
        let current = branches.untrusted_current.as_ref() == Some(&branch.name);
        let mark = if current { '*' } else { ' ' };
        let upstream = branch.upstream.as_ref().map(|name| format!(" → {}", one_line(&name.0)));
        let _ = writeln!(
            text,
            "{mark} {}{}  {}  {}",
            one_line(branch.name.as_str()),
            upstream.unwrap_or_default(),
            branch.hash.get(..10).unwrap_or(&branch.hash),
            one_line(branch.subject.as_str()),
        );
    }
    text.push_str(&more(branches.more_branches, "branches"));
    text
}

pub(super) fn committed(made: &Committed) -> String {
    let branch = one_line(&made.branch);
    let push = match &made.push {
        PushState::Pushed => format!("pushed to origin/{branch}."),
        PushState::Failed { code, message } => format!(
            "not pushed ({code}): {}\nThe commit is kept; the next commit or push tries again.",
            printable(message)
        ),
    };
    let trailer = one_line(&made.trailer);
    format!(
        "{}Committed {} on {branch} ({trailer}), {push}",
        stats(&made.untrusted_files),
        one_line(&made.short)
    )
}

/// A plan, as the person who approves it has to see it.
#[must_use]
pub fn plan(plan: &Plan) -> String {
    let mut text = format!(
        "To be committed on {} and pushed to {}, for {}:\n",
        one_line(&plan.branch),
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

pub(super) fn pulled(pulled: &Pulled) -> String {
    if pulled.commits == 0 {
        return "Already up to date.".to_owned();
    }
    let commits = counted(pulled.commits);
    let more = more(pulled.more_files, "paths");
    format!("Pulled {commits}; now at {}.\n{}{more}", pulled.to, stats(&pulled.untrusted_files))
}

pub(super) fn pushed(pushed: &Pushed) -> String {
    let branch = one_line(&pushed.branch);
    if pushed.commits == 0 {
        return format!("origin/{branch} had everything already, up to {}.", pushed.hash);
    }
    format!("Pushed {} to origin/{branch}; it is at {}.", counted(pushed.commits), pushed.hash)
}

/// How many there are beside those that are listed.
fn more(count: u64, what: &str) -> String {
    if count == 0 { String::new() } else { format!("  … and {count} more {what}\n") }
}

fn counted(commits: u64) -> String {
    if commits == 1 { "1 commit".to_owned() } else { format!("{commits} commits") }
}
