//! The text of a page without its layout: one pass over its tags, in time linear in its length, whatever
//! it holds. It also finds the title, for which the layout has no use.

use std::cell::RefCell;

use html5ever::tendril::StrTendril;
use html5ever::tokenizer::states::RawKind;
use html5ever::tokenizer::{
    BufferQueue, Tag, TagKind, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts,
};

use super::hidden;

/// What one pass finds.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Bare {
    /// The title.
    pub title: Option<String>,
    /// What relative links are relative to, where the page says so.
    pub base: Option<String>,
    /// The text.
    pub text: String,
    /// Whether hidden text was left out.
    pub hidden: bool,
}

/// The text of a page.
#[must_use]
pub fn text(html: &str) -> Bare {
    let tokenizer = Tokenizer::new(Sink::default(), TokenizerOpts::default());
    let input = BufferQueue::default();
    input.push_back(StrTendril::from_slice(html));
    let _ = tokenizer.feed(&input);
    tokenizer.end();
    tokenizer.sink.0.into_inner().found
}

/// The text of a fragment on one line, without tags.
#[must_use]
pub fn line(fragment: &str) -> String {
    let words = text(fragment).text;
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[derive(Default)]
struct Sink(RefCell<State>);

#[derive(Default)]
struct State {
    found: Bare,
    /// The element whose content is left out, and how many of its name are open.
    skipping: Option<(String, usize)>,
    in_title: bool,
}

impl TokenSink for Sink {
    type Handle = ();

    fn process_token(&self, token: Token, _: u64) -> TokenSinkResult<()> {
        let mut state = self.0.borrow_mut();
        match token {
            Token::TagToken(tag) => return state.tag(&tag),
            Token::CharacterTokens(text) => state.characters(&text),
            _ => {}
        }
        TokenSinkResult::Continue
    }
}

impl State {
    fn tag(&mut self, tag: &Tag) -> TokenSinkResult<()> {
        let name: &str = &tag.name;
        match tag.kind {
            TagKind::StartTag => self.start(tag, name),
            TagKind::EndTag => {
                self.end(name);
                TokenSinkResult::Continue
            }
        }
    }

    fn start(&mut self, tag: &Tag, name: &str) -> TokenSinkResult<()> {
        if name == "base" && self.found.base.is_none() {
            let href = tag.attrs.iter().find(|attribute| &*attribute.name.local == "href");
            self.found.base = href.map(|attribute| attribute.value.to_string());
        }
        self.in_title = name == "title" && self.found.title.is_none();
        match &mut self.skipping {
            // Its end tag was left out, as it may be.
            Some((skipped, _)) if skipped == name && end_is_optional(name) => self.skipping = None,
            Some((skipped, open)) if skipped == name => *open += 1,
            _ => {}
        }
        if self.skipping.is_none() {
            let attributes = tag.attrs.iter().map(|a| (&*a.name.local, &*a.value));
            let hides = hidden::hides(attributes) && !is_void(name);
            self.found.hidden |= hides;
            if hides || (hidden::no_text(name) && !is_void(name) && !tag.self_closing) {
                self.skipping = Some((name.to_owned(), 1));
            } else if name == "li" {
                self.found.text.push_str("\n* ");
            } else if is_block(name) {
                self.found.text.push('\n');
            } else if matches!(name, "td" | "th" | "option") {
                self.found.text.push(' ');
            }
        }
        match name {
            "script" => TokenSinkResult::RawData(RawKind::ScriptData),
            "style" | "xmp" | "iframe" | "noembed" | "noframes" => {
                TokenSinkResult::RawData(RawKind::Rawtext)
            }
            "title" | "textarea" => TokenSinkResult::RawData(RawKind::Rcdata),
            "plaintext" => TokenSinkResult::Plaintext,
            _ => TokenSinkResult::Continue,
        }
    }

    fn end(&mut self, name: &str) {
        self.in_title = false;
        match &mut self.skipping {
            Some((skipped, open)) if skipped == name => {
                *open -= 1;
                if *open == 0 {
                    self.skipping = None;
                }
            }
            Some(_) => {}
            None if is_block(name) => self.found.text.push('\n'),
            None => {}
        }
    }

    fn characters(&mut self, text: &str) {
        if self.in_title {
            self.found.title.get_or_insert_default().push_str(text);
        } else if self.skipping.is_none() {
            self.found.text.push_str(text);
        }
    }
}

fn is_void(name: &str) -> bool {
    matches!(
        name,
        "area"
            | "base"
            | "br"
            | "col"
            | "embed"
            | "hr"
            | "img"
            | "input"
            | "link"
            | "meta"
            | "source"
            | "track"
            | "wbr"
    )
}

fn end_is_optional(name: &str) -> bool {
    matches!(
        name,
        "p" | "li" | "dt" | "dd" | "tr" | "td" | "th" | "option" | "tbody" | "thead" | "tfoot"
    )
}

fn is_block(name: &str) -> bool {
    matches!(
        name,
        "p" | "div"
            | "br"
            | "hr"
            | "tr"
            | "table"
            | "ul"
            | "ol"
            | "dl"
            | "dt"
            | "dd"
            | "h1"
            | "h2"
            | "h3"
            | "h4"
            | "h5"
            | "h6"
            | "section"
            | "article"
            | "header"
            | "footer"
            | "main"
            | "nav"
            | "aside"
            | "blockquote"
            | "pre"
            | "figure"
            | "figcaption"
            | "form"
            | "body"
            | "address"
            | "details"
            | "summary"
    )
}
