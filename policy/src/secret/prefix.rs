//! Finds credentials by their prefix.

use std::sync::LazyLock;

use regex::bytes::Regex;

use super::Hit;
use super::chars::{Class, Look, glued, starts_at};
use super::table::PREFIXES;

/// One row of the table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Prefixed {
    /// What to call it.
    pub(super) name: &'static str,
    /// How it begins.
    pub(super) prefix: &'static str,
    class: Class,
    least: usize,
    exact: bool,
    rest: Rest,
    edge: Edge,
}

/// What the rest must look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    /// Not one character repeated.
    Varied,
    /// Digits, or both cases.
    Coded,
    /// Letters and digits change often.
    Mixed,
    /// For a prefix that also begins ordinary names: mixed, or one long word of random letters.
    Key,
}

/// What may stand before the prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Edge {
    /// Anything: the prefix is unlike any word.
    Free,
    /// No letter and no digit.
    Word,
    /// Nor `_` or `-`.
    Joined,
}

/// A row whose prefix is unlike any word.
pub(super) const fn free(
    name: &'static str,
    prefix: &'static str,
    class: Class,
    least: usize,
    rest: Rest,
) -> Prefixed {
    Prefixed { name, prefix, class, least, exact: false, rest, edge: Edge::Free }
}

/// A row whose prefix could also end a word.
pub(super) const fn word(
    name: &'static str,
    prefix: &'static str,
    class: Class,
    least: usize,
    rest: Rest,
) -> Prefixed {
    Prefixed { edge: Edge::Word, ..free(name, prefix, class, least, rest) }
}

/// A row whose prefix could also be the last part of a name.
pub(super) const fn joined(
    name: &'static str,
    prefix: &'static str,
    class: Class,
    least: usize,
    rest: Rest,
) -> Prefixed {
    Prefixed { edge: Edge::Joined, ..free(name, prefix, class, least, rest) }
}

/// A row so short of character that only its exact length tells it from other things.
pub(super) const fn exactly(row: Prefixed) -> Prefixed {
    Prefixed { exact: true, ..row }
}

/// Finds the places where any prefix stands.
static ANY_PREFIX: LazyLock<Regex> = LazyLock::new(|| {
    let mut all: Vec<_> = PREFIXES.iter().map(|row| regex::escape(row.prefix)).collect();
    all.sort_unstable();
    all.dedup();
    #[expect(clippy::unwrap_used, reason = "escaped constants; a test compiles them")]
    Regex::new(&format!("(?-u){}", all.join("|"))).unwrap()
});

/// The rows by first byte, longest prefix first.
static BY_FIRST: LazyLock<Vec<Vec<&'static Prefixed>>> = LazyLock::new(|| {
    let mut rows = vec![Vec::new(); 256];
    for row in PREFIXES {
        rows[usize::from(row.prefix.as_bytes()[0])].push(row);
    }
    for row in &mut rows {
        row.sort_by_key(|row: &&Prefixed| std::cmp::Reverse(row.prefix.len()));
    }
    rows
});

/// Adds every credential that begins with a known prefix.
pub(super) fn scan(text: &[u8], hits: &mut Vec<Hit>) {
    let mut from = 0;
    while let Some(found) = ANY_PREFIX.find_at(text, from) {
        let at = found.start();
        let rows = &BY_FIRST[usize::from(text[at])];
        let hit = rows.iter().find_map(|row| row.at(text, at));
        from = hit.map_or(at + 1, |hit| hit.end);
        hits.extend(hit);
    }
}

impl Prefixed {
    /// The credential of this kind at a position.
    fn at(&self, text: &[u8], at: usize) -> Option<Hit> {
        if !starts_at(text, at, self.prefix.as_bytes()) || !self.edge.allows(text, at) {
            return None;
        }
        let from = at + self.prefix.len();
        let rest = &text[from..self.class.glance(text, from)];
        if rest.len() < self.least || !self.rest.fits(rest) {
            return None;
        }
        let end = self.class.run(text, from);
        let longer = end - from > self.least || Class::Alnum.run(text, end) > end;
        (!self.exact || !longer).then(|| Hit::sure(self.name, at, end))
    }
}

impl Edge {
    fn allows(self, text: &[u8], at: usize) -> bool {
        match self {
            Self::Free => true,
            Self::Word => !glued(text, at),
            Self::Joined => match text[..at] {
                // A line that a diff takes away.
                [.., b'\n', b'-'] | [b'-'] => true,
                [.., before] => !Class::Url.has(before),
                [] => true,
            },
        }
    }
}

impl Rest {
    fn fits(self, rest: &[u8]) -> bool {
        let look = Look::at(rest);
        match self {
            Self::Varied => look.varied(),
            Self::Coded => look.coded(),
            Self::Mixed => look.mixed() || look.random(),
            Self::Key => look.mixed() || (Class::Alnum.run(rest, 0) >= 32 && look.coded()),
        }
    }
}
