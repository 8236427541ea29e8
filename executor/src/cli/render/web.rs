//! Pages and search results.

use protocol::printable::{one_line, printable};
use protocol::reply::{SearchResults, WebPage};

use super::note;
use crate::cli::paint::{Look, Paper};

pub(super) fn page(paper: Paper, page: &WebPage) -> String {
    let mut text = String::new();
    if let Some(title) = &page.untrusted_title {
        text.push_str(&(paper.paint(Look::Strong, &one_line(title.as_str())) + "\n"));
    }
    let mut about = format!("{} (status {}", one_line(page.untrusted_url.as_str()), page.status);
    for (holds, said) in [
        (page.truncated, "; longer than what is read"),
        (page.lossy, "; some characters were lost"),
        (page.hidden_left_out, "; hidden text was left out"),
        (page.bare, "; without layout"),
    ] {
        about.push_str(if holds { said } else { "" });
    }
    text.push_str(&note(paper, &(about + ")")));
    text.push('\n');
    text.push_str(&printable(page.untrusted_text.text.as_str()));
    text.push('\n');
    if let Some(cut) = &page.untrusted_text.cut {
        let rest = format!("(cut at byte {} of {})", cut.next_offset, cut.size);
        text.push_str(&note(paper, &rest));
    }
    text
}

pub(super) fn found(paper: Paper, found: &SearchResults) -> String {
    let mut text = String::new();
    for hit in &found.untrusted_results {
        text.push_str(&(paper.paint(Look::Strong, &one_line(hit.title.as_str())) + "\n"));
        text.push_str(&format!("  {}\n", paper.paint(Look::Branch, &one_line(hit.url.as_str()))));
        if !hit.snippet.as_str().is_empty() {
            text.push_str(&format!("  {}\n", one_line(hit.snippet.as_str())));
        }
    }
    if found.untrusted_results.is_empty() {
        text.push_str(&note(paper, "nothing was found"));
    }
    if found.more > 0 {
        text.push_str(&note(paper, &format!("({} more)", found.more)));
    }
    text
}
