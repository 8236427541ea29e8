//! The phrases, as one table. What is understood and what the help says are both read from it.
//!
//! In a phrase, a word in capitals stands for what the person writes. It ends where the phrase's next
//! fixed words begin; a `"quoted"` one is read as a JSON string instead, so that any text can be
//! given. The fixed words may be written in any case.

use protocol::service::Description;
use protocol::tool::{
    EditFile, GitBranches, GitCommit, GitDiff, GitLog, GitPull, GitPush, GitShow, GitStatus,
    ListFiles, ListRoots, Prefix, ReadFile, ReserveId, SearchFiles, ToolCall, ToolName, WebFetch,
    WebSearch, WriteFile,
};

/// What a message asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Command {
    /// To say what it can do.
    Help,
    /// One call.
    Call(ToolCall),
    /// What is new and what changed.
    Changes { root: String, path: Option<String> },
    /// A review, then this commit.
    Commit(GitCommit),
}

struct Phrase {
    form: &'static str,
    does: &'static str,
    tool: Option<ToolName>,
    command: fn(&Slots<'_>) -> Result<Command, String>,
}

const fn phrase(
    form: &'static str,
    does: &'static str,
    tool: ToolName,
    command: fn(&Slots<'_>) -> Result<Command, String>,
) -> Phrase {
    Phrase { form, does, tool: Some(tool), command }
}

/// Tried from the top; the first that fits is taken.
const PHRASES: &[Phrase] = &[
    phrase("list roots", "the folders I can work in", ToolName::ListRoots, |_| {
        Ok(Command::Call(ToolCall::ListRoots(ListRoots {})))
    }),
    phrase("list PLACE", "the files there", ToolName::ListFiles, |slots| {
        let (root, path) = slots.place("PLACE")?;
        Ok(Command::Call(ToolCall::ListFiles(ListFiles { root, path, glob: None })))
    }),
    phrase("read FILE", "the file's text", ToolName::ReadFile, |slots| {
        let (root, path) = slots.file("FILE")?;
        Ok(Command::Call(ToolCall::ReadFile(ReadFile { root, path, offset: None, limit: None })))
    }),
    phrase("search the web for QUERY", "titles, URLs and snippets", ToolName::WebSearch, |slots| {
        let query = slots.one("QUERY")?.trim().to_owned();
        Ok(Command::Call(ToolCall::WebSearch(WebSearch { query })))
    }),
    phrase("search PATTERN in PLACE", "the lines that match", ToolName::SearchFiles, |slots| {
        let (root, path) = slots.place("PLACE")?;
        let pattern = slots.one("PATTERN")?.to_owned();
        Ok(Command::Call(ToolCall::SearchFiles(SearchFiles { root, pattern, path, glob: None })))
    }),
    phrase(
        "write FILE: TEXT",
        "creates or replaces the file; TEXT is the rest of the message and gets a final newline",
        ToolName::WriteFile,
        |slots| {
            let (root, path) = slots.file("FILE")?;
            let text = with_final_newline(slots.one("TEXT")?);
            Ok(Command::Call(ToolCall::WriteFile(WriteFile { root, path, text })))
        },
    ),
    phrase(
        "replace \"OLD\" with \"NEW\" in FILE",
        "replaces a text that occurs exactly once; \\n is a new line and \\\" a quote",
        ToolName::EditFile,
        |slots| {
            let (root, path) = slots.file("FILE")?;
            let (old, new) = (slots.one("OLD")?.to_owned(), slots.one("NEW")?.to_owned());
            let edit = EditFile { root, path, old, new, dry_run: false, expect: None };
            Ok(Command::Call(ToolCall::EditFile(edit)))
        },
    ),
    phrase(
        "git status of PLACE",
        "branch, upstream, changed paths",
        ToolName::GitStatus,
        |slots| {
            let (root, path) = slots.place("PLACE")?;
            Ok(Command::Call(ToolCall::GitStatus(GitStatus { root, path })))
        },
    ),
    phrase("what changed in PLACE", "new files, and the diff", ToolName::GitDiff, |slots| {
        let (root, path) = slots.place("PLACE")?;
        Ok(Command::Changes { root, path })
    }),
    phrase("what is staged in PLACE", "the diff of the index", ToolName::GitDiff, |slots| {
        let (root, path) = slots.place("PLACE")?;
        let spec = Some("staged".to_owned());
        Ok(Command::Call(ToolCall::GitDiff(GitDiff { root, spec, path, max_bytes: None })))
    }),
    phrase("git log of PLACE", "the last commits", ToolName::GitLog, |slots| {
        let (root, path) = slots.place("PLACE")?;
        Ok(Command::Call(ToolCall::GitLog(GitLog { root, range: None, path, limit: None })))
    }),
    phrase("show REV in PLACE", "one commit", ToolName::GitShow, |slots| {
        let (root, path) = slots.place("PLACE")?;
        let rev = slots.one("REV")?.to_owned();
        Ok(Command::Call(ToolCall::GitShow(GitShow { root, rev, path, max_bytes: None })))
    }),
    phrase("branches of PLACE", "the local branches", ToolName::GitBranches, |slots| {
        let (root, path) = slots.place("PLACE")?;
        Ok(Command::Call(ToolCall::GitBranches(GitBranches { root, path })))
    }),
    phrase(
        "reserve KIND in ROOT: TITLE",
        "an id for a new record; KIND is BUS, PRJ, SS, DEC or REF",
        ToolName::ReserveId,
        |slots| {
            let root = slots.root("ROOT")?;
            let kind = slots.one("KIND")?.trim().to_ascii_uppercase();
            let prefix: Prefix =
                serde_json::from_value(kind.into()).map_err(|_| slots.lacks("KIND"))?;
            let title = slots.one("TITLE")?.trim().to_owned();
            Ok(Command::Call(ToolCall::ReserveId(ReserveId { root, prefix, title })))
        },
    ),
    phrase(
        "commit FILES: MESSAGE",
        "shows the diff, commits exactly these files and pushes; commas between files",
        ToolName::GitCommit,
        |slots| {
            let (root, paths) = slots.files("FILES")?;
            let message = slots.one("MESSAGE")?.trim().to_owned();
            Ok(Command::Commit(GitCommit { root, message, paths }))
        },
    ),
    phrase("pull ROOT", "fetches and moves the branch forward", ToolName::GitPull, |slots| {
        let root = slots.root("ROOT")?;
        Ok(Command::Call(ToolCall::GitPull(GitPull { root })))
    }),
    phrase("push ROOT", "pushes what is not pushed yet", ToolName::GitPush, |slots| {
        let root = slots.root("ROOT")?;
        Ok(Command::Call(ToolCall::GitPush(GitPush { root })))
    }),
    phrase("fetch URL", "the text of a public https page", ToolName::WebFetch, |slots| {
        let url = slots.one("URL")?.trim().to_owned();
        Ok(Command::Call(ToolCall::WebFetch(WebFetch { url })))
    }),
    Phrase { form: "help", does: "this list", tool: None, command: |_| Ok(Command::Help) },
];

/// What it can do, as far as the executor offers it.
#[must_use]
pub fn help(offer: &Description) -> String {
    let offered: Vec<_> = PHRASES
        .iter()
        .filter(|phrase| phrase.tool.is_none_or(|tool| offer.tools.contains(&tool)))
        .collect();
    let width = offered.iter().map(|phrase| phrase.form.len()).max().unwrap_or(0);
    let mut text = String::from("I understand:\n");
    for Phrase { form, does, .. } in offered {
        text.push_str(&format!("  {form:width$}  {does}\n"));
    }
    let roots: Vec<_> = offer.roots.iter().map(|root| root.name.as_str()).collect();
    let roots = if roots.is_empty() { "none".to_owned() } else { roots.join(", ") };
    text.push_str(&format!(
        "PLACE is a root or a folder or file in it, like root/path or ~/project; FILE is a file in \
         one; quote a path with `:` or `,` in it.\nRoots: {roots}."
    ));
    text
}

/// Reads a message. The error is what to tell the person.
pub(super) fn read(message: &str, offer: &Description) -> Result<Command, String> {
    for phrase in PHRASES {
        if let Some(values) = fit(phrase.form, message.trim_start()) {
            let slots = Slots { form: phrase.form, values, offer };
            return (phrase.command)(&slots);
        }
    }
    Err(format!("I do not understand that.\n{}", help(offer)))
}

/// What the person wrote in the places of a phrase.
struct Slots<'a> {
    form: &'static str,
    values: Vec<(&'static str, Vec<String>)>,
    offer: &'a Description,
}

impl Slots<'_> {
    fn many(&self, name: &str) -> &[String] {
        self.values.iter().find(|(slot, _)| *slot == name).map_or(&[], |(_, values)| values)
    }

    fn one(&self, name: &str) -> Result<&str, String> {
        self.many(name).first().map(String::as_str).ok_or_else(|| self.lacks(name))
    }

    fn lacks(&self, name: &str) -> String {
        format!("I need {name} for that: {}", self.form)
    }

    fn place(&self, name: &str) -> Result<(String, Option<String>), String> {
        let typed = self.one(name)?.trim().trim_end_matches(['?', '/']);
        if typed.is_empty() { Err(self.lacks(name)) } else { Ok(resolve(typed, self.offer)) }
    }

    fn root(&self, name: &str) -> Result<String, String> {
        match self.place(name)? {
            (root, None) => Ok(root),
            (root, Some(_)) => Err(format!("That goes for a whole root: {root}.")),
        }
    }

    fn file(&self, name: &str) -> Result<(String, String), String> {
        self.file_at(self.one(name)?)
    }

    fn file_at(&self, typed: &str) -> Result<(String, String), String> {
        match resolve(typed.trim(), self.offer) {
            (root, Some(path)) if !root.is_empty() => Ok((root, path)),
            _ => Err(format!("I need a file in a root, like root/path: {}", self.form)),
        }
    }

    /// Files of one root.
    fn files(&self, name: &str) -> Result<(String, Vec<String>), String> {
        let mut root = None;
        let mut paths = Vec::new();
        for typed in self.many(name) {
            let (its, path) = self.file_at(typed)?;
            if *root.get_or_insert_with(|| its.clone()) != its {
                return Err("A commit takes files of one root.".to_owned());
            }
            paths.push(path);
        }
        root.map(|root| (root, paths)).ok_or_else(|| self.lacks(name))
    }
}

/// A place as typed: `root/path`, or `~/path`, which is in the root named `home` when there is one.
/// It decides nothing about the path: that is the executor's.
fn resolve(typed: &str, offer: &Description) -> (String, Option<String>) {
    let has_home = offer.roots.iter().any(|root| root.name == "home");
    let rest = match typed.strip_prefix('~') {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => rest.trim_start_matches('/'),
        _ => return split_root(typed),
    };
    match (has_home, rest) {
        (true, "") => ("home".to_owned(), None),
        (true, path) => ("home".to_owned(), Some(path.to_owned())),
        (false, "") => ("home".to_owned(), None),
        (false, rest) => split_root(rest),
    }
}

fn split_root(typed: &str) -> (String, Option<String>) {
    match typed.split_once('/') {
        Some((root, path)) => (root.to_owned(), (!path.is_empty()).then(|| path.to_owned())),
        None => (typed.to_owned(), None),
    }
}

fn with_final_newline(text: &str) -> String {
    if text.ends_with('\n') { text.to_owned() } else { format!("{text}\n") }
}

/// A part of a form.
#[derive(Debug, PartialEq, Eq)]
enum Part {
    /// Fixed words.
    Words(&'static str),
    /// A place for what the person writes.
    Slot { name: &'static str, quoted: bool },
}

fn parts(form: &'static str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut rest = form;
    while !rest.is_empty() {
        let fixed = rest.find(|c: char| c.is_ascii_uppercase()).unwrap_or(rest.len());
        let (words, after) = rest.split_at(fixed);
        let length = after.find(|c: char| !c.is_ascii_uppercase()).unwrap_or(after.len());
        let (name, after) = after.split_at(length);
        let quoted = words.ends_with('"');
        let words = words.strip_suffix('"').unwrap_or(words);
        if !words.is_empty() {
            parts.push(Part::Words(words));
        }
        if !name.is_empty() {
            parts.push(Part::Slot { name, quoted });
        }
        rest = if quoted { after.strip_prefix('"').unwrap_or(after) } else { after };
    }
    parts
}

/// Lays a form over a message. `None` when the fixed words differ.
fn fit(form: &'static str, message: &str) -> Option<Vec<(&'static str, Vec<String>)>> {
    let parts = parts(form);
    let mut rest = message;
    let mut values = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        match part {
            Part::Words(words) => rest = strip_words(rest, words)?,
            Part::Slot { name, quoted } => {
                let next = parts.get(index + 1);
                let (value, after) = fill(name, *quoted, rest, next)?;
                values.push((*name, value));
                rest = after;
            }
        }
    }
    rest.trim().is_empty().then_some(values)
}

/// The text after a phrase's fixed words, which may be written in any case. A colon needs no space
/// after it, and takes one space or one new line with it.
fn strip_words<'a>(text: &'a str, words: &str) -> Option<&'a str> {
    if let Some(after) = words.strip_suffix(": ") {
        let rest = strip_words(text, after)?.trim_start_matches(' ').strip_prefix(':')?;
        let rest = rest.strip_prefix(' ').unwrap_or(rest);
        return Some(rest.strip_prefix('\n').unwrap_or(rest));
    }
    let start = text.get(..words.len())?;
    start.eq_ignore_ascii_case(words).then(|| &text[words.len()..])
}

/// What stands in a slot, and the text after it.
fn fill<'a>(
    name: &str,
    quoted: bool,
    text: &'a str,
    next: Option<&Part>,
) -> Option<(Vec<String>, &'a str)> {
    let until = match next {
        Some(Part::Words(words)) => Some(words.strip_suffix(": ").map_or(*words, |_| ":")),
        _ => None,
    };
    if name == "FILES" {
        return fill_list(text, until?);
    }
    let open = text.trim_start_matches(' ');
    if quoted || (open.starts_with('"') && !matches!(name, "TEXT" | "TITLE" | "MESSAGE")) {
        let (value, after) = json_string(open)?;
        return Some((vec![value], after));
    }
    let end = match until {
        Some(words) => find_ignoring_case(text, words)?,
        None => text.len(),
    };
    Some((vec![text[..end].to_owned()], &text[end..]))
}

fn fill_list<'a>(mut text: &'a str, until: &str) -> Option<(Vec<String>, &'a str)> {
    let mut values = Vec::new();
    loop {
        text = text.trim_start();
        let value;
        (value, text) = if text.starts_with('"') {
            json_string(text)?
        } else {
            let end = find_ignoring_case(text, until)?;
            let end = text[..end].find(',').unwrap_or(end);
            (text[..end].trim().to_owned(), &text[end..])
        };
        values.push(value);
        match text.trim_start().strip_prefix(',') {
            Some(after) => text = after,
            None => return Some((values, text)),
        }
    }
}

fn json_string(text: &str) -> Option<(String, &str)> {
    let mut strings = serde_json::Deserializer::from_str(text).into_iter::<String>();
    let value = strings.next()?.ok()?;
    let end = strings.byte_offset();
    Some((value, &text[end..]))
}

fn find_ignoring_case(text: &str, words: &str) -> Option<usize> {
    (0..=text.len().checked_sub(words.len())?).find(|at| {
        text.get(*at..at + words.len()).is_some_and(|here| here.eq_ignore_ascii_case(words))
    })
}

#[cfg(test)]
mod tests;
