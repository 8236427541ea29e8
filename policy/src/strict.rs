//! Strict JSON configuration: taken whole, or refused with the key's path, its line and column, and
//! the nearest key there is.
//!
//! Pure: the text comes in, the value or the problem goes out.

use std::fmt;

use serde::de::DeserializeOwned;

/// What is wrong with a configuration, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The key's path, for instance `roots[1].git.branch`; empty for the file as a whole.
    pub key: String,
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1, in bytes.
    pub column: usize,
    /// What is wrong with it.
    pub reason: String,
}

impl fmt::Display for Problem {
    /// `LINE:COLUMN: KEY: REASON`, to follow a file's name and a colon.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: ", self.line, self.column)?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.reason)
    }
}

impl std::error::Error for Problem {}

/// Reads a configuration.
///
/// # Errors
/// The first problem: not JSON, an unknown or missing key, a wrong type, more text at the end.
pub fn parse<T: DeserializeOwned>(text: &str) -> Result<T, Problem> {
    let deserializer = &mut serde_json::Deserializer::from_str(text);
    let value = serde_path_to_error::deserialize(&mut *deserializer).map_err(|error| {
        let path = error.path().to_string();
        let path = if path == "." { "" } else { path.as_str() };
        explain(text, path, error.inner())
    })?;
    deserializer.end().map_err(|error| explain(text, "", &error))?;
    Ok(value)
}

/// A problem that a check of the parsed configuration found, said as `KEY: REASON`.
#[must_use]
pub fn found(text: &str, said: &str) -> Problem {
    let (key, reason) = said.split_once(": ").unwrap_or(("", said));
    let (line, column) = position(text, nearest_place(text, key));
    Problem { key: key.to_owned(), line, column, reason: reason.to_owned() }
}

fn explain(text: &str, path: &str, error: &serde_json::Error) -> Problem {
    let (line, column) = (error.line().max(1), error.column().max(1));
    let said = error.to_string();
    let said = said.strip_suffix(&format!(" at line {} column {}", error.line(), error.column()));
    let said = said.map_or_else(|| error.to_string(), str::to_owned);
    let problem = |key: &str, reason: String| {
        let place = if error.is_data() { locate(text, key) } else { None };
        let (line, column) = place.map_or((line, column), |at| position(text, at));
        Problem { key: key.to_owned(), line, column, reason }
    };
    let quoted: Vec<&str> = said.split('`').skip(1).step_by(2).collect();
    match quoted.split_first() {
        Some((unknown, known)) if said.starts_with("unknown field") => {
            let is_last = path == *unknown || path.ends_with(&format!(".{unknown}"));
            let key = match (is_last, path.is_empty()) {
                (true, _) => path.to_owned(),
                (false, true) => (*unknown).to_owned(),
                (false, false) => format!("{path}.{unknown}"),
            };
            problem(&key, format!("there is no such key; {}", suggestion(unknown, known)))
        }
        Some((unknown, known)) if said.starts_with("unknown variant") => problem(
            path,
            format!("{unknown:?} is none of its values; {}", suggestion(unknown, known)),
        ),
        _ => problem(path, said),
    }
}

fn suggestion(unknown: &str, known: &[&str]) -> String {
    match nearest(unknown, known) {
        Some(near) => format!("did you mean `{near}`?"),
        None if known.is_empty() => "there are none here".to_owned(),
        None => format!("there are `{}`", known.join("`, `")),
    }
}

/// The one of these words that was probably meant, if any is near enough.
#[must_use]
pub fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let plain = |word: &str| word.replace(['_', '-', ' '], "").to_lowercase();
    let wanted = plain(word);
    let distance = |other: &str| strsim::osa_distance(&wanted, &plain(other));
    let near = known.iter().copied().min_by_key(|other| distance(other))?;
    let is_begin = wanted.len() >= 3 && plain(near).starts_with(&wanted);
    (is_begin || distance(near) <= 1 + wanted.chars().count() / 4).then_some(near)
}

/// Where a key is, or the nearest of its parents that is there.
fn nearest_place(text: &str, key: &str) -> usize {
    let mut key = key;
    loop {
        if let Some(at) = locate(text, key) {
            return at;
        }
        match key.rfind(['.', '[']) {
            Some(end) => key = &key[..end],
            None => return 0,
        }
    }
}

/// The byte at which a key (or an item of a list) begins.
#[must_use]
pub fn locate(text: &str, key: &str) -> Option<usize> {
    let mut walk = Walk { text, at: 0, wanted: key };
    match walk.value("", 0) {
        Step::Found(at) => Some(at),
        Step::On | Step::Lost => None,
    }
}

fn position(text: &str, at: usize) -> (usize, usize) {
    let before = &text.as_bytes()[..at.min(text.len())];
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
    (line, before.len() - start + 1)
}

/// How far serde_json itself goes.
const DEEPEST: usize = 128;

/// A walk over JSON that ends at the wanted key, or where the text is no JSON.
struct Walk<'a> {
    text: &'a str,
    at: usize,
    wanted: &'a str,
}

enum Step {
    Found(usize),
    On,
    Lost,
}

impl Walk<'_> {
    fn peek(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        while bytes.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
        bytes.get(self.at).copied()
    }

    fn value(&mut self, path: &str, depth: usize) -> Step {
        let Some(first) = self.peek() else { return Step::Lost };
        if path == self.wanted {
            return Step::Found(self.at);
        }
        match first {
            _ if depth > DEEPEST => Step::Lost,
            b'{' | b'[' => self.members(path, first, depth),
            b'"' => self.string().map_or(Step::Lost, |_| Step::On),
            _ => {
                let rest = &self.text.as_bytes()[self.at..];
                let ends = |byte: &u8| byte.is_ascii_whitespace() || b",]}".contains(byte);
                self.at += rest.iter().position(ends).unwrap_or(rest.len()).max(1);
                Step::On
            }
        }
    }

    fn members(&mut self, path: &str, open: u8, depth: usize) -> Step {
        self.at += 1;
        for index in 0.. {
            match self.peek() {
                Some(b'}' | b']') => {
                    self.at += 1;
                    return Step::On;
                }
                Some(b',') if index > 0 => self.at += 1,
                Some(_) if index == 0 => {}
                _ => return Step::Lost,
            }
            let child = if open == b'[' {
                format!("{path}[{index}]")
            } else {
                let Some(b'"') = self.peek() else { return Step::Lost };
                let start = self.at;
                let Some(key) = self.string() else { return Step::Lost };
                let child = if path.is_empty() { key } else { format!("{path}.{key}") };
                if child == self.wanted {
                    return Step::Found(start);
                }
                let Some(b':') = self.peek() else { return Step::Lost };
                self.at += 1;
                child
            };
            match self.value(&child, depth + 1) {
                Step::On => {}
                ended => return ended,
            }
        }
        Step::Lost
    }

    fn string(&mut self) -> Option<String> {
        let start = self.at;
        let bytes = self.text.as_bytes();
        self.at += 1;
        loop {
            match bytes.get(self.at)? {
                b'"' => break,
                b'\\' => self.at += 2,
                _ => self.at += 1,
            }
        }
        self.at += 1;
        serde_json::from_str(self.text.get(start..self.at)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::Deserialize;

    use super::{Problem, found, locate, nearest, parse};

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "camelCase")]
    struct Outer {
        #[allow(dead_code)]
        state_dir: String,
        #[serde(default)]
        #[allow(dead_code)]
        roots: Vec<Inner>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "camelCase")]
    struct Inner {
        #[allow(dead_code)]
        path: String,
        #[serde(default)]
        #[allow(dead_code)]
        write: bool,
    }

    fn problem(text: &str) -> Problem {
        parse::<Outer>(text).expect_err("it is wrong")
    }

    #[test]
    fn a_problem_names_the_key_its_line_and_column_and_the_nearest_key() {
        let cases = [
            (
                "{\n  \"statDir\": \"/x\"\n}",
                "2:3: statDir: there is no such key; did you mean `stateDir`?",
            ),
            (
                "{\"state_dir\": 1}",
                "1:2: state_dir: there is no such key; did you mean `stateDir`?",
            ),
            (
                "{\"stateDir\": \"x\",\n \"roots\": [{\"path\": \"a\"},\n  {\"path\": \"b\", \"qqqq\": 1}]}",
                "3:17: roots[1].qqqq: there is no such key; there are `path`, `write`",
            ),
            (
                "{\"stateDir\": \"x\",\n \"roots\": [{\"path\": \"a\",\n \"write\": \"yes\"}]}",
                "3:2: roots[0].write: invalid type: string \"yes\", expected a boolean",
            ),
            (
                "{\"stateDir\": \"x\",\n \"roots\": [{\"write\": true}]}",
                "2:12: roots[0]: missing field `path`",
            ),
            ("{\"stateDir\": \"x\"} more", "1:19: trailing characters"),
            ("{\"stateDir\": ", "1:13: stateDir: EOF while parsing a value"),
        ];
        for (text, said) in cases {
            assert_eq!(problem(text).to_string(), said, "{text}");
        }
    }

    #[test]
    fn a_check_that_failed_is_placed_at_its_key_or_at_the_nearest_parent() {
        let text = "{\n \"roots\": [\n  {\"name\": \"a\"}\n ]\n}";
        assert_eq!(found(text, "roots[0].name: no").to_string(), "3:4: roots[0].name: no");
        assert_eq!(
            found(text, "roots[0].git.branch: no").to_string(),
            "3:3: roots[0].git.branch: no"
        );
        assert_eq!(found(text, "peers: none").to_string(), "1:1: peers: none");
    }

    #[test]
    fn only_a_word_that_is_near_is_suggested() {
        let known = ["branch", "remote", "tokenFile"];
        assert_eq!(nearest("brnach", &known), Some("branch"));
        assert_eq!(nearest("token", &known), Some("tokenFile"));
        assert_eq!(nearest("TOKEN_FILE", &known), Some("tokenFile"));
        assert_eq!(nearest("colour", &known), None);
        assert_eq!(nearest("x", &[]), None);
    }

    proptest! {
        #[test]
        fn any_text_gives_an_answer(text in "[\\[\\]{}\",:\\\\ a1\\n]{0,60}", key in "[a\\[\\]0.]{0,8}") {
            if let Some(at) = locate(&text, &key) {
                prop_assert!(at < text.len());
            }
            if let Err(problem) = parse::<Outer>(&text) {
                prop_assert!(problem.line >= 1 && problem.column >= 1);
            }
        }
    }
}
