//! Looking through an audit: which calls there were, and what became of them.
//!
//! A call has two lines, before it acts and after. Here it is one entry: the second line, or the
//! first one where there is no second (`unfinished`).

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde_json::Value;

use super::files::{self, CURRENT};
use super::verify::folder_of;

/// Which entries are wanted; what is not named does not matter.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// The peer's user id.
    pub peer: Option<u64>,
    /// Whom the turn acts for.
    pub requester: Option<String>,
    /// The tool.
    pub tool: Option<String>,
    /// What became of it: `done`, `refused`, `fault`, `unfinished`, or another event.
    pub outcome: Option<String>,
    /// The refusal's code.
    pub code: Option<String>,
    /// The turn.
    pub turn: Option<String>,
    /// Not before.
    pub since: Option<Timestamp>,
    /// Not after.
    pub until: Option<Timestamp>,
}

/// One entry: a call with what became of it, or an event of the executor itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// `done`, `refused`, `fault`, `unfinished`, or the event.
    pub outcome: String,
    /// The line, as it is in the audit.
    pub line: Value,
}

impl Filter {
    fn wants(&self, entry: &Entry) -> bool {
        let text = |wanted: &Option<String>, key: &str| {
            wanted.as_deref().is_none_or(|wanted| entry.line[key].as_str() == Some(wanted))
        };
        let time = || entry.line["time"].as_str().and_then(|time| time.parse::<Timestamp>().ok());
        let in_time = (self.since.is_none() && self.until.is_none())
            || time().is_some_and(|time| {
                self.since.is_none_or(|since| time >= since)
                    && self.until.is_none_or(|until| time <= until)
            });
        self.peer.is_none_or(|peer| entry.line["peer"].as_u64() == Some(peer))
            && text(&self.requester, "requester")
            && text(&self.tool, "tool")
            && text(&self.code, "code")
            && text(&self.turn, "turn")
            && self.outcome.as_deref().is_none_or(|outcome| outcome == entry.outcome)
            && in_time
    }
}

/// The entries that are wanted, the oldest first; of many the newest `limit`.
///
/// # Errors
/// When a file cannot be read, or there is none. A line that is no JSON is left out: `verify` is for
/// that.
pub fn entries(path: &Path, filter: &Filter, limit: Option<usize>) -> io::Result<Vec<Entry>> {
    let mut found = BTreeMap::new();
    let mut begun: HashMap<[String; 3], u64> = HashMap::new();
    let mut place = 0u64;
    for path in paths(path)? {
        for line in BufReader::new(File::open(path)?).split(b'\n') {
            let Ok(line) = serde_json::from_slice::<Value>(&line?) else { continue };
            place += 1;
            let event = line["event"].as_str().unwrap_or_default().to_owned();
            let call = ["peer", "turn", "call"].map(|key| line[key].to_string());
            let outcome = if event == "call" {
                begun.insert(call, place);
                "unfinished".to_owned()
            } else {
                if let Some(first) = begun.remove(&call) {
                    found.remove(&first);
                }
                event
            };
            let entry = Entry { outcome, line };
            // Whether an unfinished call stays so is not known yet: it is left out at the end.
            let unfinished = Filter { outcome: None, ..filter.clone() };
            let filter = if entry.outcome == "unfinished" { &unfinished } else { filter };
            if filter.wants(&entry) {
                found.insert(place, entry);
            }
            if let Some(limit) = limit {
                // Those that are under way may still go, so they do not push others out.
                while found.len() > limit.saturating_add(begun.len()) {
                    found.pop_first();
                }
            }
        }
    }
    let mut entries: Vec<Entry> = found.into_values().filter(|entry| filter.wants(entry)).collect();
    if let Some(limit) = limit {
        entries.drain(..entries.len().saturating_sub(limit));
    }
    Ok(entries)
}

fn paths(path: &Path) -> io::Result<Vec<PathBuf>> {
    let Some(dir) = folder_of(path) else { return Ok(vec![path.to_path_buf()]) };
    let mut paths: Vec<PathBuf> = files::closed(&dir)?.into_iter().map(|(_, path)| path).collect();
    let current = dir.join(CURRENT);
    if current.exists() || paths.is_empty() {
        paths.push(current);
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::{Filter, entries};
    use crate::audit::Audit;

    fn an_audit(dir: &Path) {
        let audit = Audit::open(dir, 900).expect("it opens");
        let line = |event: &str, call: u32, more: serde_json::Value| {
            let mut fields = json!({"peer": 7, "turn": format!("t{}", call / 2), "call": format!("c{call}"),
                "requester": "Owner", "tool": if call.is_multiple_of(2) { "git_log" } else { "write_file" }});
            let map = fields.as_object_mut().expect("an object");
            map.extend(more.as_object().expect("an object").clone());
            audit.append(event, fields).expect("it appends");
        };
        audit.append("started", json!({})).expect("it appends");
        for call in 0..6 {
            line("call", call, json!({}));
            match call {
                1 => line("refused", call, json!({"code": "stopped"})),
                3 => {}
                _ => line("done", call, json!({"durationMs": 1})),
            }
        }
        line("refused", 9, json!({"code": "too_many_calls"}));
    }

    #[test]
    fn a_call_is_one_entry_and_filters_and_the_limit_hold() {
        let dir = tempfile::tempdir().expect("a folder");
        an_audit(dir.path());
        let count = |filter: Filter, limit| {
            entries(dir.path(), &filter, limit)
                .expect("it reads")
                .iter()
                .map(|entry| {
                    let call = entry.line["call"].as_str().unwrap_or("-").to_owned();
                    format!("{call} {}", entry.outcome)
                })
                .filter(|entry| !entry.contains("continued"))
                .collect::<Vec<_>>()
        };
        let word = |word: &str| Some(word.to_owned());
        let all = [
            "- started",
            "c0 done",
            "c1 refused",
            "c2 done",
            "c3 unfinished",
            "c4 done",
            "c5 done",
            "c9 refused",
        ];
        assert_eq!(count(Filter::default(), None), all);
        let outcome = |outcome| Filter { outcome: word(outcome), ..Filter::default() };
        assert_eq!(count(outcome("unfinished"), None), ["c3 unfinished"]);
        assert_eq!(count(outcome("refused"), Some(1)), ["c9 refused"]);
        assert_eq!(count(outcome("done"), Some(2)), ["c4 done", "c5 done"]);
        let code = Filter { code: word("stopped"), ..Filter::default() };
        assert_eq!(count(code, None), ["c1 refused"]);
        let turn = Filter { turn: word("t1"), ..Filter::default() };
        assert_eq!(count(turn.clone(), None), ["c2 done", "c3 unfinished"]);
        assert_eq!(count(Filter { tool: word("git_log"), ..turn }, None), ["c2 done"]);
        assert!(count(Filter { peer: Some(8), ..Filter::default() }, None).is_empty());
        assert!(count(Filter { requester: word("Partner"), ..Filter::default() }, None).is_empty());
        let now = jiff::Timestamp::now();
        let hour = jiff::SignedDuration::from_hours(1);
        let since =
            Filter { since: Some(now - hour), until: Some(now + hour), ..Filter::default() };
        assert_eq!(count(since, None), all);
        assert!(count(Filter { until: Some(now - hour), ..Filter::default() }, None).is_empty());
        assert!(count(Filter { since: Some(now + hour), ..Filter::default() }, None).is_empty());
    }
}
