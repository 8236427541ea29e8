//! Pages and search results as a person reads them.

use std::fmt::Write as _;

use protocol::reply::{SearchResults, WebPage};

use super::{one_line, printable};

pub(super) fn page(page: &WebPage) -> String {
    let mut text = String::new();
    if let Some(title) = &page.untrusted_title {
        let _ = writeln!(text, "{}", one_line(title.as_str()));
    }
    let _ = write!(text, "{} (status {}", one_line(page.untrusted_url.as_str()), page.status);
    for (holds, said) in [
        (page.truncated, "; longer than what is read"),
        (page.lossy, "; some characters were lost"),
        (page.hidden_left_out, "; hidden text was left out"),
        (page.bare, "; without layout"),
    ] {
        text.push_str(if holds { said } else { "" });
    }
    let _ = writeln!(text, ")\n\n{}", printable(page.untrusted_text.text.as_str()));
    if let Some(cut) = &page.untrusted_text.cut {
        let _ = writeln!(text, "(there is more, from byte {} of {})", cut.next_offset, cut.size);
    }
    text
}

pub(super) fn found(found: &SearchResults) -> String {
    let mut text = String::new();
    for hit in &found.untrusted_results {
        let _ = writeln!(text, "{}", one_line(hit.title.as_str()));
        let _ = writeln!(text, "  {}", one_line(hit.url.as_str()));
        if !hit.snippet.as_str().is_empty() {
            let _ = writeln!(text, "  {}", one_line(hit.snippet.as_str()));
        }
    }
    if found.untrusted_results.is_empty() {
        text.push_str("Nothing was found.\n");
    }
    if found.more > 0 {
        let _ = writeln!(text, "({} more)", found.more);
    }
    text
}
