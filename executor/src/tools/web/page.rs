//! Turning a page into text, in a child of its own.
//!
//! A page is the most hostile thing that this program reads, and the libraries that lay one out have
//! been made to panic, to recurse and to run without end. So it happens in the hidden role [`ROLE`] of
//! this binary: no file, no network, nothing to execute, and bounds on memory, processor and time. What
//! ends the child is no more than a refusal here, after one try at the bare text without layout.

pub mod bare;
pub mod charset;
mod hidden;
pub mod layout;

use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use confine::child::{ChildLimits, ChildSpec, ExecRule, LaunchError};
use confine::grants::Grants;
use confine::launcher::Launcher;
use protocol::refusal::Code;
use serde::{Deserialize, Serialize};
use url::Url;

use super::budget::Budget;
use super::http::Answer;
use super::own_program;
use crate::tools::Failure;

/// The hidden role's name, the binary's only argument.
pub const ROLE: &str = "read-page";

/// How long laying a page out may take, so that time is left for its bare text.
const LAYOUT_WALL: Duration = Duration::from_secs(6);
const CPU_SECONDS: u64 = 5;
const ADDRESS_SPACE: u64 = 768 << 20;
/// The longest text that a page becomes, in bytes.
pub const MAX_TEXT_BYTES: usize = 4 << 20;

/// Starts the child.
#[derive(Debug, Clone)]
pub struct Reader {
    launcher: Launcher,
    program: PathBuf,
    grants: Grants,
}

/// A page's text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Read {
    /// The title.
    pub title: Option<String>,
    /// The text.
    pub text: String,
    /// Whether characters were lost.
    pub lossy: bool,
    /// Whether hidden text was left out.
    pub hidden_left_out: bool,
    /// Whether there is no layout.
    pub bare: bool,
    /// Whether the text was longer than the limit.
    pub truncated: bool,
}

/// What the child is told, before the page itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Job {
    /// Whether it is HTML.
    pub html: bool,
    /// The charset that the server says.
    pub charset: Option<String>,
    /// Where the page is, for its relative links.
    pub base: String,
    /// Whether to go without layout.
    pub bare: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Kind {
    Html,
    Text,
    Binary,
}

impl Reader {
    /// A reader whose child is this program (or, for tests, the program that is named).
    ///
    /// # Errors
    /// The program is not there, or is no program.
    pub fn new(launcher: Launcher, own: &Path) -> Result<Self, String> {
        let grants = Grants::files(own_program(own)?);
        Ok(Self { launcher, program: own.to_owned(), grants })
    }

    /// Reads a page.
    ///
    /// # Errors
    /// `unsupported_type` for what is not text, `unreadable_page` for what is beyond all limits.
    pub fn read(&self, answer: &Answer, base: &str, budget: &Budget) -> Result<Read, Failure> {
        let said = answer.content_type.as_deref().unwrap_or("");
        let html = match kind(said, &answer.body) {
            Kind::Html => true,
            Kind::Text => false,
            Kind::Binary => return Err(not_text(said, answer.body.len())),
        };
        let mut job = Job { html, charset: charset_of(said), base: base.to_owned(), bare: false };
        let mut read = self.run(&job, &answer.body, budget)?;
        if read.is_none() && html {
            job.bare = true;
            read = self.run(&job, &answer.body, budget)?;
        }
        match read {
            Some(Some(read)) => Ok(read),
            Some(None) => Err(not_text(said, answer.body.len())),
            None => Err(Failure::refuse(
                Code::UnreadablePage,
                "The page cannot be turned into text within its limits of memory and time.",
                "Fetch another page about it.",
            )),
        }
    }

    /// The child that a job needs, for tests that run something else under its authority.
    #[must_use]
    pub fn child(&self, stdin: Vec<u8>, budget: &Budget) -> ChildSpec {
        ChildSpec {
            program: self.program.clone(),
            argv0: "sage-executor".into(),
            args: vec![ROLE.into()],
            env: Vec::new(),
            cwd: "/".into(),
            grants: self.grants.clone(),
            exec: ExecRule::NoExec,
            limits: ChildLimits {
                wall: budget.left().min(LAYOUT_WALL).max(Duration::from_millis(1)),
                grace: Duration::ZERO,
                cpu_seconds: CPU_SECONDS,
                address_space: Some(ADDRESS_SPACE),
                file_size: 0,
                processes: None,
                open_files: 16,
            },
            umask: 0o077,
            stdin,
            max_stdout: 6 * MAX_TEXT_BYTES + 64 * 1024,
            max_stderr: 4096,
        }
    }

    /// Runs the child once. `None`: it did not come to an end of its own. `Some(None)`: it is no text.
    fn run(
        &self,
        job: &Job,
        page: &[u8],
        budget: &Budget,
    ) -> Result<Option<Option<Read>>, Failure> {
        budget.check()?;
        let told = serde_json::to_vec(job).map_err(|error| Failure::fault(error.to_string()))?;
        let length = u32::try_from(told.len()).unwrap_or(u32::MAX);
        let stdin = [&length.to_be_bytes()[..], &told, page].concat();
        match self.launcher.run(&self.child(stdin, budget), budget.cancel()) {
            Ok(output) if output.status.success() => {
                Ok(serde_json::from_slice(&output.stdout).ok())
            }
            Ok(_) => Ok(None),
            Err(LaunchError::TimedOut { .. }) => budget.check().map(|()| None),
            Err(other) => Err(other.into()),
        }
    }
}

fn not_text(said: &str, size: usize) -> Failure {
    let said = if said.is_empty() {
        "of no stated type".to_owned()
    } else {
        said.chars().take(80).collect()
    };
    Failure::refuse(
        Code::UnsupportedType,
        format!("It is no text: {said}, {size} bytes read."),
        "Fetch a page that says the same in text.",
    )
}

fn essence(content_type: &str) -> String {
    content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

fn charset_of(content_type: &str) -> Option<String> {
    content_type.split(';').skip(1).find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        let value = value.trim().trim_matches(['"', '\'']);
        (name.trim().eq_ignore_ascii_case("charset") && !value.is_empty()).then(|| value.to_owned())
    })
}

/// What a body is, by its type; by its look where there is none.
fn kind(content_type: &str, body: &[u8]) -> Kind {
    const TEXTUAL: [&str; 14] = [
        "application/json",
        "application/ld+json",
        "application/xml",
        "application/javascript",
        "application/ecmascript",
        "application/x-ndjson",
        "application/yaml",
        "application/x-yaml",
        "application/toml",
        "application/sql",
        "application/x-sh",
        "application/graphql",
        "application/x-tex",
        "message/rfc822",
    ];
    let essence = essence(content_type);
    match essence.as_str() {
        "text/html" | "application/xhtml+xml" => Kind::Html,
        "" => {
            let start =
                String::from_utf8_lossy(&body[..body.len().min(512)]).trim_start().to_lowercase();
            let wide = body.starts_with(&[0xff, 0xfe]) || body.starts_with(&[0xfe, 0xff]);
            match () {
                () if start.starts_with("<!doctype html") || start.starts_with("<html") => {
                    Kind::Html
                }
                () if body.contains(&0) && !wide => Kind::Binary,
                () => Kind::Text,
            }
        }
        textual if textual.starts_with("text/") || TEXTUAL.contains(&textual) => Kind::Text,
        textual
            if textual.ends_with("+json")
                || textual.ends_with("+xml") && textual != "image/svg+xml" =>
        {
            Kind::Text
        }
        _ => Kind::Binary,
    }
}

/// The hidden role: reads a job and a page, and writes what became of it.
#[must_use]
pub fn role_main() -> ExitCode {
    // What a library says as it panics is of no use to anybody here.
    std::panic::set_hook(Box::new(|_| {}));
    match role() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn role() -> io::Result<()> {
    let mut input = io::stdin().lock();
    let mut length = [0; 4];
    input.read_exact(&mut length)?;
    let mut told = vec![0; u32::from_be_bytes(length) as usize];
    input.read_exact(&mut told)?;
    let mut page = Vec::new();
    input.read_to_end(&mut page)?;
    let read = read(&serde_json::from_slice(&told)?, &page);
    let mut output = io::stdout().lock();
    output.write_all(&serde_json::to_vec(&read)?)?;
    output.flush()
}

/// A page's text; `None` for what is no text whatever its type says.
#[must_use]
pub fn read(job: &Job, page: &[u8]) -> Option<Read> {
    let (decoded, lossy) = charset::decode(page, job.charset.as_deref(), job.html);
    if !job.html {
        if decoded.contains('\0') {
            return None;
        }
        let (text, truncated) = tidy(&decoded);
        return Some(Read { text, lossy, truncated, ..Read::default() });
    }
    let plain = bare::text(&decoded);
    let base = based(&job.base, plain.base.as_deref());
    let laid = if job.bare { None } else { layout::text(&decoded, &base) };
    let bare = laid.is_none();
    let (raw, hidden) = laid.unwrap_or((plain.text, plain.hidden));
    let (text, truncated) = tidy(&raw);
    let title = plain.title.map(|title| tidy(&title).0).filter(|title| !title.is_empty());
    Some(Read { title, text, lossy, hidden_left_out: hidden, bare, truncated })
}

/// What relative links are relative to.
fn based(page: &str, said: Option<&str>) -> String {
    let joined = said.and_then(|said| Url::parse(page).ok()?.join(said).ok());
    joined.map_or_else(|| page.to_owned(), Url::into)
}

/// Without characters that nobody sees, without runs of empty lines, and not endless.
fn tidy(text: &str) -> (String, bool) {
    let mut tidied = String::with_capacity(text.len().min(MAX_TEXT_BYTES));
    let mut empty = 0;
    for line in text.lines() {
        let seen: String = line.chars().filter(|c| !unseen(*c)).collect();
        let seen = seen.trim_end();
        empty = if seen.is_empty() { empty + 1 } else { 0 };
        if empty > 1 || (seen.is_empty() && tidied.is_empty()) {
            continue;
        }
        if tidied.len() + seen.len() + 1 > MAX_TEXT_BYTES {
            let room = (MAX_TEXT_BYTES - tidied.len()) as u64;
            tidied.push_str(&seen[..crate::tools::files::floor_boundary(seen, room)]);
            return (tidied, true);
        }
        tidied.push_str(seen);
        tidied.push('\n');
    }
    let whole = tidied.trim_end().len();
    tidied.truncate(whole);
    (tidied, false)
}

/// Characters that carry text past a reader's eyes, or change how their neighbours read.
pub(super) fn unseen(c: char) -> bool {
    (c.is_control() && c != '\t')
        || matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests;
