//! Replies, refusals and faults as a person reads them.
//!
//! Names, paths, subjects and file texts come from the world. Every one of them passes through
//! [`printable`] or [`one_line`], so that none can drive a terminal, hide text or pose as another
//! line of ours. Nothing here decides or calls anything.

mod git;
mod web;

use std::fmt::Write as _;

use protocol::refusal::Outcome;
use protocol::reply::{
    Edited, FileList, FileText, GitAccess, Hit, Hits, OutputPage, PathText, Reply, Reserved, Roots,
    Written,
};

pub use git::{diff, new_files, plan};
pub use protocol::printable::{is_unprintable, one_line, printable};

/// What became of a call.
#[must_use]
pub fn outcome(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Reply(reply) => self::reply(reply),
        Outcome::Refusal(no) => {
            printable(&format!("Refused ({}): {} {}", no.code, no.message, no.hint))
        }
        Outcome::Fault(fault) => printable(&format!("Something broke: {}", fault.message)),
    }
}

/// The result of a call that was done.
#[must_use]
pub fn reply(reply: &Reply) -> String {
    let text = match reply {
        Reply::Roots(roots) => self::roots(roots),
        Reply::Files(files) => self::files(files),
        Reply::File(file) => self::file(file),
        Reply::Hits(hits) => self::hits(hits),
        Reply::Written(written) => self::written(written),
        Reply::Edited(edited) => self::edited(edited),
        Reply::Output(page) => output(page),
        Reply::Reserved(reserved) => self::reserved(reserved),
        Reply::Status(status) => git::status(status),
        Reply::Diff(diff) => git::diff(diff),
        Reply::Log(log) => git::log(log),
        Reply::Commit(commit) => git::commit(commit),
        Reply::Branches(branches) => git::branches(branches),
        Reply::Committed(made) => git::committed(made),
        Reply::ApprovalNeeded(plan) => git::plan(plan),
        Reply::Pulled(pulled) => git::pulled(pulled),
        Reply::Pushed(pushed) => git::pushed(pushed),
        Reply::Page(page) => web::page(page),
        Reply::Found(found) => web::found(found),
    };
    text.trim_end_matches('\n').to_owned()
}

/// A text as lines that a diff adds.
#[must_use]
pub fn added_lines(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(|line| format!("+{}", printable(line))).collect();
    lines.join("\n")
}

fn roots(roots: &Roots) -> String {
    if roots.roots.is_empty() {
        return "There are no roots.".to_owned();
    }
    let width = roots.roots.iter().map(|root| root.name.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for root in &roots.roots {
        let access = if root.writable { "read and write" } else { "read" };
        let git = match root.git {
            GitAccess::None => "",
            GitAccess::Read => "; git: read",
            GitAccess::Write => "; git: read, commit, pull, push",
        };
        let vault = if root.vault { "; record protocol" } else { "" };
        let _ = writeln!(text, "{:width$}  {access}{git}{vault}", one_line(&root.name));
    }
    text
}

fn files(files: &FileList) -> String {
    let mut text = paths("", &files.untrusted_paths);
    if text.is_empty() {
        text.push_str("Nothing there.\n");
    }
    if files.truncated {
        text.push_str("(there are more)\n");
    }
    text
}

fn paths(indent: &str, paths: &[PathText]) -> String {
    paths.iter().map(|path| format!("{indent}{}\n", one_line(path.as_str()))).collect()
}

fn file(file: &FileText) -> String {
    let mut text = printable(file.untrusted_text.as_str());
    if file.size == 0 {
        text.push_str("(the file is empty)");
    }
    if let Some(next) = file.next_offset {
        let _ = write!(text, "\n(there is more, from byte {next} of {})", file.size);
    }
    text
}

fn hits(hits: &Hits) -> String {
    let mut text = String::new();
    for Hit { path, line, text: found } in &hits.untrusted_hits {
        text.push_str(&format!(
            "{}:{line}: {}\n",
            one_line(path.as_str()),
            one_line(found.as_str())
        ));
    }
    if hits.untrusted_hits.is_empty() {
        text.push_str("No line matches.\n");
    }
    if hits.truncated {
        text.push_str("(there may be more)\n");
    }
    if hits.skipped > 0 {
        text.push_str(&format!(
            "({} files were left out: too long, or holding something shaped like a credential)\n",
            hits.skipped
        ));
    }
    text
}

fn written(written: &Written) -> String {
    let verb = if written.created { "Created" } else { "Replaced" };
    format!("{verb} {} ({} bytes).", one_line(&written.path), written.size)
}

fn edited(edited: &Edited) -> String {
    let verb = if edited.written { "Edited" } else { "Would edit" };
    let diff = printable(edited.untrusted_diff.as_str());
    format!("{verb} {}:\n{diff}", one_line(&edited.path))
}

fn output(page: &OutputPage) -> String {
    let mut text = printable(page.untrusted_text.as_str());
    if let Some(next) = page.next_offset {
        let _ = write!(text, "\n(there is more, from byte {next} of {})", page.size);
    }
    text
}

fn reserved(reserved: &Reserved) -> String {
    let (id, registry) = (one_line(&reserved.id), one_line(&reserved.registry));
    format!("Reserved {id}; its line in {registry} goes into the next commit by itself.")
}

#[cfg(test)]
mod tests;
