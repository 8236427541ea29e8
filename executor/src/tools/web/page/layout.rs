//! The text of a page with its layout: paragraphs, lists, tables, and links as footnotes.
//!
//! What is known to upset the library is taken out of the page first: hidden elements, spans and numbers
//! beyond reason, image data, links that are no links. What is deeper or larger than its limits is not
//! laid out at all, and a panic is an answer like any other: the caller has the bare text.

use std::panic::{AssertUnwindSafe, catch_unwind};

use html2text::{Comment, Document, Element, Handle, RcDom};
use url::Url;

use super::hidden;

/// How wide a line is, in columns.
const WIDTH: usize = 100;
const MAX_DEPTH: usize = 200;
const MAX_NODES: usize = 200_000;
const MAX_NESTED_TABLES: usize = 4;
const MAX_SPAN: u32 = 20;
const MAX_CELLS_IN_ROW: usize = 100;
const MAX_START: i64 = 1_000_000_000;

/// The text, and whether hidden text was left out; `None` when it cannot be laid out.
#[must_use]
pub fn text(html: &str, base: &str) -> Option<(String, bool)> {
    let base = Url::parse(base).ok();
    catch_unwind(AssertUnwindSafe(|| {
        let config = html2text::config::plain().no_link_wrapping();
        let dom = config.parse_html(html.as_bytes()).ok()?;
        let hidden = clean(&dom, base.as_ref())?;
        let tree = config.dom_to_render_tree(&dom).ok()?;
        let text = config.render_to_string(tree, WIDTH).ok()?;
        Some((text, hidden))
    }))
    .ok()
    .flatten()
}

/// Takes out of a page what is not laid out. Says whether that was hidden text.
fn clean(dom: &RcDom, base: Option<&Url>) -> Option<bool> {
    let mut hidden = false;
    let mut nodes = 0;
    let mut open = vec![(dom.document.clone(), 0, 0)];
    while let Some((node, depth, tables)) = open.pop() {
        nodes += 1;
        let tables = tables + usize::from(is_element(&node, "table"));
        if depth > MAX_DEPTH || nodes > MAX_NODES || tables > MAX_NESTED_TABLES {
            return None;
        }
        mend(&node, base);
        node.children.borrow_mut().retain(|child| keep(child, &mut hidden));
        lift_captions(&node);
        let children = node.children.borrow();
        if is_element(&node, "tr") && children.len() > MAX_CELLS_IN_ROW {
            return None;
        }
        open.extend(children.iter().map(|child| (child.clone(), depth + 1, tables)));
    }
    Some(hidden)
}

/// The library leaves a table's caption out; in front of the table it is a text like any other.
fn lift_captions(node: &Handle) {
    let mut lifted = Vec::new();
    for child in node.children.take() {
        if is_element(&child, "table") {
            child.children.borrow_mut().retain(|inner| {
                let caption = is_element(inner, "caption");
                if caption {
                    lifted.push(inner.clone());
                }
                !caption
            });
        }
        lifted.push(child);
    }
    node.children.replace(lifted);
}

fn is_element(node: &Handle, wanted: &str) -> bool {
    matches!(&node.data, Element { name, .. } if &*name.local == wanted)
}

fn keep(node: &Handle, hidden: &mut bool) -> bool {
    match &node.data {
        Comment { .. } => false,
        Element { name, attrs, .. } => {
            if hidden::no_text(&name.local) {
                return false;
            }
            let attrs = attrs.borrow();
            let hides = hidden::hides(attrs.iter().map(|a| (&*a.name.local, &*a.value)));
            *hidden |= hides;
            !hides
        }
        Document => true,
        _ => true,
    }
}

/// Keeps the attributes that the layout uses, within reason.
fn mend(node: &Handle, base: Option<&Url>) {
    let Element { name, attrs, .. } = &node.data else { return };
    attrs.borrow_mut().retain_mut(|attribute| {
        let value = attribute.value.trim().to_owned();
        let mended = match &*attribute.name.local {
            "href" => link(&value, base),
            "src" if &*name.local == "img" => Some("image".to_owned()),
            "alt" => Some(value),
            "colspan" => value.parse().ok().map(|n: u32| n.clamp(1, MAX_SPAN).to_string()),
            // The library fills a row that such a cell hangs over with nothing, at best.
            "rowspan" => None,
            "start" => value
                .parse::<i64>()
                .ok()
                .filter(|n| (0..MAX_START).contains(n))
                .map(|n| n.to_string()),
            _ => None,
        };
        match mended {
            Some(value) => {
                attribute.value = value.as_str().into();
                true
            }
            None => false,
        }
    });
}

/// A link to another page, in full.
fn link(href: &str, base: Option<&Url>) -> Option<String> {
    let url = match base {
        Some(base) => base.join(href).ok()?,
        None => Url::parse(href).ok()?,
    };
    let elsewhere = !href.starts_with('#') && matches!(url.scheme(), "http" | "https" | "mailto");
    (elsewhere && url.as_str().len() <= 2048).then(|| url.into())
}
