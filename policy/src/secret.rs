//! What a credential looks like: one table, used to refuse it on the way in and to mask it on the
//! way out.
//!
//! Two mistakes cost something here. A credential that is missed, or masked only in part, is a
//! leak; a hash or an image taken for one makes honest work impossible. Both are measured in
//! `tests/secrets.rs`. So known prefixes are matched to the end of their run, and values without
//! a prefix only count where their surroundings name them *and* they look random.
//!
//! The search reads the text as it stands and once more without its escapes (`%5F`, `\n`, `\u003d`,
//! terminal colours). Both passes are linear in the length of the text, whatever it holds.
//!
//! What it cannot see: a credential encoded as a whole (base64 of a token), one split over two
//! lines by something other than a key block, and passwords made of words.

use std::borrow::Cow;

mod chars;
mod context;
mod prefix;
mod structured;
mod table;
mod url;
mod view;

/// A credential in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finding {
    /// What it looks like, for people.
    pub name: &'static str,
    /// The first byte of it.
    pub start: usize,
    /// One past its last byte.
    pub end: usize,
}

/// A finding while the search is still going on.
#[derive(Debug, Clone, Copy)]
struct Hit {
    name: &'static str,
    start: usize,
    end: usize,
    /// Known by its surroundings; what is known by its shape names it better.
    guess: bool,
}

impl Hit {
    const fn sure(name: &'static str, start: usize, end: usize) -> Self {
        Self { name, start, end, guess: false }
    }

    const fn guess(name: &'static str, start: usize, end: usize) -> Self {
        Self { name, start, end, guess: true }
    }
}

/// The first credential in a text.
pub fn find(text: &str) -> Option<Finding> {
    find_all(text).into_iter().next()
}

/// Every credential in a text, in order and apart from each other.
pub fn find_all(text: &str) -> Vec<Finding> {
    let bytes = text.as_bytes();
    let mut hits = Vec::new();
    scan(bytes, &mut hits);
    if let Some(view) = view::View::of(bytes) {
        let mut seen = Vec::new();
        scan(&view.text, &mut seen);
        let back =
            |hit: Hit| Hit { start: view.origin(hit.start), end: view.origin(hit.end), ..hit };
        hits.extend(seen.into_iter().map(back));
    }
    merge(hits)
}

/// One pass over one spelling of the text.
fn scan(text: &[u8], hits: &mut Vec<Hit>) {
    prefix::scan(text, hits);
    context::netrc(text, hits);
    for (at, byte) in text.iter().enumerate() {
        match byte {
            b'.' => structured::dotted(text, at, hits),
            b'=' => context::assigned(text, at, hits),
            b':' if text[at..].starts_with(b"://") => url::scan_at(text, at, hits),
            b':' => {
                structured::telegram(text, at, hits);
                context::assigned(text, at, hits);
            }
            b'-' if text[at..].starts_with(b"-us") => structured::mailchimp(text, at, hits),
            b'-' => structured::private_key(text, at, hits),
            b'Q' if text[at..].starts_with(b"Q~") => structured::azure(text, at, hits),
            _ => {}
        }
    }
}

/// Overlapping hits become one that covers them all, so that no piece of any is left.
fn merge(mut hits: Vec<Hit>) -> Vec<Finding> {
    hits.sort_by_key(|hit| (hit.start, hit.guess, std::cmp::Reverse(hit.end)));
    let mut merged: Vec<Hit> = Vec::new();
    for hit in hits {
        match merged.last_mut() {
            Some(last) if hit.start < last.end => {
                last.end = last.end.max(hit.end);
                if last.guess && !hit.guess {
                    (last.name, last.guess) = (hit.name, false);
                }
            }
            _ => merged.push(hit),
        }
    }
    merged.into_iter().map(|Hit { name, start, end, .. }| Finding { name, start, end }).collect()
}

/// How a mask begins; the name and `]` follow.
const MASK: &str = "[masked: ";

/// The text with each credential replaced by `[masked: what it was]`.
///
/// Masking a masked text changes nothing.
pub fn mask(text: &str) -> Cow<'_, str> {
    let mut masked = Cow::Borrowed(text);
    // What is left beside a mask may form a credential by itself; few texts need a second round.
    for _ in 0..8 {
        let findings = find_all(&masked);
        if findings.is_empty() {
            break;
        }
        masked = Cow::Owned(replace(&masked, &findings));
    }
    masked
}

fn replace(text: &str, findings: &[Finding]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut from = 0;
    for finding in findings {
        out.push_str(&text[from..finding.start]);
        out.push_str(MASK);
        out.push_str(finding.name);
        out.push(']');
        from = finding.end;
    }
    out.push_str(&text[from..]);
    out
}

/// What a program printed, as text and masked. Bytes that are no UTF-8 become U+FFFD.
pub fn mask_bytes(bytes: &[u8]) -> String {
    mask(&String::from_utf8_lossy(bytes)).into_owned()
}

/// The masked text, cut to at most `max` bytes, and whether it was cut.
///
/// Masking comes first, so that no piece of a credential survives at the cut. The cut falls
/// between characters, and before a mask rather than inside it.
pub fn mask_and_cut(text: &str, max: usize) -> (String, bool) {
    let mut masked = mask(text).into_owned();
    if masked.len() <= max {
        return (masked, false);
    }
    let end = masked.floor_char_boundary(max);
    masked.truncate(before_mask(&masked, end));
    (masked, true)
}

/// The position itself, or the beginning of the mask it lies in.
fn before_mask(text: &str, at: usize) -> usize {
    let longest = table().map(|(name, _)| name.len()).max().unwrap_or(0) + MASK.len() + 1;
    let inside = |start: &usize| {
        let rest = text.get(*start..).and_then(|rest| rest.strip_prefix(MASK));
        let name = rest.and_then(|rest| rest.split_once(']')).map(|(name, _)| name);
        name.is_some_and(|name| {
            start + MASK.len() + name.len() + 1 > at && table().any(|(known, _)| known == name)
        })
    };
    (at.saturating_sub(longest)..at).find(inside).unwrap_or(at)
}

/// What is known: the name of each kind, and how it begins or what gives it away.
pub fn table() -> impl Iterator<Item = (&'static str, &'static str)> {
    table::PREFIXES.iter().map(|row| (row.name, row.prefix)).chain(OTHERS.iter().copied())
}

const OTHERS: &[(&str, &str)] = &[
    (structured::PRIVATE_KEY, "a BEGIN … PRIVATE KEY block, to its end"),
    (structured::JWT, "two dotted JSON objects in base64, and a signature"),
    (structured::DISCORD, "an id in base64, a dot, a time, a dot, a signature"),
    (structured::TELEGRAM, "a number, a colon and 35 characters"),
    (structured::MAILCHIMP, "32 hexadecimal digits and -us1"),
    (structured::TERRAFORM, "14 characters, .atlasv1. and 60 characters"),
    (structured::AZURE, "a digit and Q~ among 40 characters"),
    (url::NAME, "what stands before the @ of a URL"),
    (context::HEADER, "the value of an Authorization header"),
    (context::NETRC, "the password of a machine in .netrc"),
    (context::ASSIGNED, "a random value given to a password, secret, token or key"),
];
