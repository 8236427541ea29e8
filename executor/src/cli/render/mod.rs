//! Replies as a person at a terminal reads them: with colours, and as wide as the terminal.
//!
//! (The connector renders for a chat message, which has neither. What both must agree on, how text
//! from the world is made safe, is `protocol::printable`.)

mod git;
mod table;
mod web;

use protocol::printable::{one_line, printable};
use protocol::reply::{
    Edited, FileList, FileText, GitAccess, Hits, OutputPage, PathText, Reply, Roots, Written,
};

use super::paint::{Look, Paper};
use table::Table;

pub use git::plan;

/// The result of a call that was done. Ends with a newline, but for a file's or an output's own
/// text, which is as it is.
#[must_use]
pub fn reply(paper: Paper, reply: &Reply) -> String {
    match reply {
        Reply::Roots(roots) => self::roots(paper, roots),
        Reply::Files(files) => self::files(paper, files),
        Reply::File(file) => self::file(paper, file),
        Reply::Hits(hits) => self::hits(paper, hits),
        Reply::Written(written) => self::written(paper, written),
        Reply::Edited(edited) => self::edited(paper, edited),
        Reply::Output(page) => output(paper, page),
        Reply::Reserved(reserved) => format!(
            "{}  (its line in {} goes into the next commit by itself)\n",
            paper.paint(Look::Strong, &one_line(&reserved.id)),
            one_line(&reserved.registry)
        ),
        Reply::Status(status) => git::status(paper, status),
        Reply::Diff(diff) => git::diff(paper, diff),
        Reply::Log(log) => git::log(paper, log),
        Reply::Commit(commit) => git::commit(paper, commit),
        Reply::Branches(branches) => git::branches(paper, branches),
        Reply::Committed(made) => git::committed(paper, made),
        Reply::ApprovalNeeded(plan) => git::plan(paper, plan) + "\n",
        Reply::Pulled(pulled) => git::pulled(paper, pulled),
        Reply::Pushed(pushed) => git::pushed(paper, pushed),
        Reply::Page(page) => web::page(paper, page),
        Reply::Found(found) => web::found(paper, found),
    }
}

/// A note of ours beside the answer.
fn note(paper: Paper, text: &str) -> String {
    paper.paint(Look::Faint, text) + "\n"
}

fn roots(paper: Paper, roots: &Roots) -> String {
    let mut table = Table::new();
    for root in &roots.roots {
        let mut can = vec![if root.writable { "read and write" } else { "read" }];
        can.extend(match root.git {
            GitAccess::None => None,
            GitAccess::Read => Some("git: read"),
            GitAccess::Write => Some("git: read, commit, pull, push"),
        });
        can.extend(root.vault.then_some("record protocol"));
        table.row([(Some(Look::Strong), one_line(&root.name)), (None, can.join("; "))]);
    }
    if roots.roots.is_empty() { note(paper, "no roots") } else { table.print(paper, "") }
}

fn listed(indent: &str, paths: &[PathText]) -> String {
    paths.iter().map(|path| format!("{indent}{}\n", one_line(path.as_str()))).collect()
}

fn files(paper: Paper, files: &FileList) -> String {
    let mut text = listed("", &files.untrusted_paths);
    if files.truncated {
        text.push_str(&note(paper, "(there are more; name a folder or a glob)"));
    }
    text
}

fn file(paper: Paper, file: &FileText) -> String {
    let mut text = printable(file.untrusted_text.as_str());
    if let Some(next) = file.next_offset {
        let rest = format!("(to read on: --offset {next}; the file has {} bytes)", file.size);
        text.push_str(&("\n".to_owned() + &note(paper, &rest)));
    }
    text
}

fn hits(paper: Paper, hits: &Hits) -> String {
    let mut text = String::new();
    for hit in &hits.untrusted_hits {
        let path = paper.paint(Look::Branch, &one_line(hit.path.as_str()));
        let line = paper.paint(Look::Hash, &hit.line.to_string());
        text.push_str(&format!("{path}:{line}:{}\n", one_line(hit.text.as_str())));
    }
    if hits.truncated {
        text.push_str(&note(paper, "(there may be more)"));
    }
    if hits.skipped > 0 {
        let left_out = format!("({} files left out: too long, or credential-like)", hits.skipped);
        text.push_str(&note(paper, &left_out));
    }
    text
}

fn written(paper: Paper, written: &Written) -> String {
    let verb = if written.created { "created" } else { "replaced" };
    let path = paper.paint(Look::Strong, &one_line(&written.path));
    format!("{verb} {path} ({} bytes)\n", written.size)
}

fn edited(paper: Paper, edited: &Edited) -> String {
    let verb = if edited.written { "edited" } else { "would edit" };
    let path = paper.paint(Look::Strong, &one_line(&edited.path));
    format!("{verb} {path}\n{}", git::hunks(paper, edited.untrusted_diff.as_str()))
}

fn output(paper: Paper, page: &OutputPage) -> String {
    let mut text = git::hunks(paper, page.untrusted_text.as_str());
    if let Some(next) = page.next_offset {
        let rest = format!("(to read on: --offset {next}; the output has {} bytes)", page.size);
        text.push_str(&note(paper, &rest));
    }
    text
}

#[cfg(test)]
mod tests;
