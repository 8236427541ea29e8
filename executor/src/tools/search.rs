//! `search_files`, on ripgrep's libraries. Runs on a confined thread.
//!
//! The regular expressions are of the kind that runs in linear time, bounded in size; the walk is
//! bounded in hits and time. A file that `read_file` would refuse is left out and counted.

use std::path::Path;
use std::time::{Duration, Instant};

use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::sinks::Lossy;
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder};
use policy::fence::{Permit, SearchFiles};
use policy::path::{RelPath, shown};
use policy::secret;
use protocol::refusal::Code;
use protocol::reply::{Hit, Hits, PathText, Untrusted};

use super::Failure;
use super::files::{RootDir, floor_boundary, not_found, wanted};
use super::rules::walker;
use crate::workplace::Workplace;
use confine::cancel::Cancel;

/// How many lines one search finds.
const MAX_HITS: usize = 200;
/// How much of a line is shown, in bytes.
const MAX_LINE: u64 = 400;
/// How large a compiled pattern may be, in bytes.
const MAX_COMPILED: usize = 1 << 20;
/// How long one search may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Finds lines.
///
/// # Errors
/// `invalid_arguments` for a pattern that does not compile; the refusal codes of [`super::files`].
pub fn search_files(
    workplace: &Workplace,
    permit: &Permit<SearchFiles>,
    cancel: &Cancel,
) -> Result<Hits, Failure> {
    let root = &workplace.roots[permit.root()];
    let action = permit.action();
    let matcher = compile(&action.pattern)?;
    let limit = workplace.limits.max_file_bytes;
    root.read_cancellable(cancel, || {
        let dir = RootDir::open(&root.path)?;
        let mut top = root.path.clone();
        if let Some(path) = &action.within {
            dir.kind(path)?.ok_or_else(|| not_found(path))?;
            top.push(path.as_str());
        }
        let mut search = Search { dir, matcher, limit, hits: Vec::new(), skipped: 0 };
        let truncated = search.walk(&root.path, &top, action, cancel)?;
        Ok(Hits { untrusted_hits: search.hits, truncated, skipped: search.skipped })
    })
}

fn compile(pattern: &str) -> Result<RegexMatcher, Failure> {
    let built = RegexMatcherBuilder::new()
        .size_limit(MAX_COMPILED)
        .dfa_size_limit(MAX_COMPILED)
        .line_terminator(Some(b'\n'))
        .build(pattern);
    built.map_err(|error| {
        let why = error.to_string();
        let why: String = why.lines().last().unwrap_or_default().chars().take(200).collect();
        Failure::refuse(
            Code::InvalidArguments,
            format!("The pattern {} does not compile: {why}.", shown(pattern)),
            "Give a regular expression without line ends; put `\\` before a character that is meant as it is.",
        )
    })
}

struct Search {
    dir: RootDir,
    matcher: RegexMatcher,
    limit: u64,
    hits: Vec<Hit>,
    skipped: u64,
}

impl Search {
    /// Says whether it stopped before the end.
    fn walk(
        &mut self,
        root: &Path,
        top: &Path,
        action: &SearchFiles,
        cancel: &Cancel,
    ) -> Result<bool, Failure> {
        let started = Instant::now();
        let mut searcher = SearcherBuilder::new()
            .binary_detection(BinaryDetection::quit(0))
            .line_number(true)
            .build();
        // An entry that cannot be read is not there for this user.
        for entry in walker(root, top).build().flatten() {
            if cancel.is_cancelled() {
                return Err(Failure::cancelled());
            }
            if started.elapsed() > PATIENCE {
                return Ok(true);
            }
            let relative = entry.path().strip_prefix(root).ok().and_then(Path::to_str);
            let is_file = entry.file_type().is_some_and(|kind| kind.is_file());
            let (true, Some(Ok(path))) = (is_file, relative.map(RelPath::parse)) else { continue };
            let asked = wanted(action.glob.as_ref(), Path::new(path.as_str()));
            if asked && self.file(&mut searcher, &path)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Searches one file. Says whether the limit was reached.
    fn file(&mut self, searcher: &mut Searcher, path: &RelPath) -> Result<bool, Failure> {
        let whole = match self.dir.read_whole(path, self.limit) {
            Ok(whole) => whole,
            Err(Failure::Refusal(refusal)) => {
                // A file that went away or cannot be read is no hit; one that is too long is said.
                self.skipped += u64::from(refusal.code == Code::TooLarge);
                return Ok(false);
            }
            Err(fault) => return Err(fault),
        };
        let mut found = Vec::new();
        let room = MAX_HITS - self.hits.len();
        let sink = Lossy(|line, text| {
            let path = PathText::Utf8(path.as_str().to_owned());
            found.push(Hit { path, line, text: Untrusted(cut(text)) });
            Ok(found.len() <= room)
        });
        searcher.search_slice(&self.matcher, &whole.bytes, sink).map_err(Failure::io)?;
        if !found.is_empty() && secret::find(&String::from_utf8_lossy(&whole.bytes)).is_some() {
            self.skipped += 1;
            return Ok(false);
        }
        let full = found.len() > room;
        found.truncate(room);
        self.hits.append(&mut found);
        Ok(full)
    }
}

fn cut(line: &str) -> String {
    let line = line.trim_end_matches(['\n', '\r']);
    let end = floor_boundary(line, MAX_LINE);
    if end == line.len() { line.to_owned() } else { format!("{}…", &line[..end]) }
}
