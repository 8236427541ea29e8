//! `sage-executor audit`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use jiff::{SpanRelativeTo, Timestamp};
use protocol::printable::one_line;
use protocol::refusal::Code;
use protocol::tool::ToolName;
use serde_json::Value;

use super::exit;
use super::paint::{self, Look, Paper, When};
use crate::audit::list::{self, Entry, Filter};
use crate::audit::verify;

/// What can be done with an audit.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Check the chain over all files; name the first broken line.
    Verify {
        /// The executor's state directory, or a file of its audit.
        path: PathBuf,
        /// The oldest files were moved away: begin with the first that is here.
        #[arg(long)]
        archived: bool,
    },
    /// List calls with what became of them, the oldest first.
    List(Box<List>),
}

/// What `list` takes.
#[derive(Debug, clap::Args)]
pub struct List {
    /// The executor's state directory, or a file of its audit.
    path: PathBuf,
    /// Of this user, by name or number.
    #[arg(long, value_name = "USER", value_parser = uid)]
    peer: Option<u64>,
    /// For this requester.
    #[arg(long, value_name = "NAME")]
    requester: Option<String>,
    /// Of this tool.
    #[arg(long, value_name = "TOOL", value_parser = tool)]
    tool: Option<String>,
    /// That ended so: done, refused, fault or unfinished; or another event, such as started.
    #[arg(long, value_name = "WORD")]
    outcome: Option<String>,
    /// Refused by this rule.
    #[arg(long, value_name = "CODE", value_parser = code)]
    code: Option<String>,
    /// Of this turn.
    #[arg(long, value_name = "ID")]
    turn: Option<String>,
    /// Not before: 2026-05-01T10:00:00Z, 2026-05-01 (UTC), or so long ago, as 2h or 3d.
    #[arg(long, value_name = "TIME", value_parser = time)]
    since: Option<Timestamp>,
    /// Not after, in the same forms.
    #[arg(long, value_name = "TIME", value_parser = time)]
    until: Option<Timestamp>,
    /// Only the newest so many.
    #[arg(long, value_name = "NUMBER")]
    limit: Option<usize>,
    /// Print the lines of the audit as they are, each call's last one.
    #[arg(long)]
    json: bool,
    /// When to use colours.
    #[arg(long, value_enum, default_value_t, value_name = "WHEN")]
    color: When,
    /// Print everything at once.
    #[arg(long)]
    no_pager: bool,
}

/// Does it.
pub fn run(command: &Command) -> ExitCode {
    match command {
        Command::Verify { path, archived } => verify(path, *archived),
        Command::List(list) => list.run(),
    }
}

fn verify(path: &Path, archived: bool) -> ExitCode {
    match verify::verify(path, archived) {
        Ok(verdict) => match verdict.broken {
            None => {
                println!("{} lines in {} files, the chain holds", verdict.lines, verdict.files);
                ExitCode::SUCCESS
            }
            Some(broken) => {
                let (held, file, line) = (verdict.lines, broken.file, broken.line);
                let reason = one_line(&broken.reason);
                println!("{held} lines hold; {file} line {line} is broken: {reason}");
                ExitCode::from(exit::FOUND_WRONG)
            }
        },
        Err(error) => exit::because(exit::USAGE, format_args!("{}: {error}", path.display())),
    }
}

impl List {
    fn run(&self) -> ExitCode {
        let filter = Filter {
            peer: self.peer,
            requester: self.requester.clone(),
            tool: self.tool.clone(),
            outcome: self.outcome.clone(),
            code: self.code.clone(),
            turn: self.turn.clone(),
            since: self.since,
            until: self.until,
        };
        let entries = match list::entries(&self.path, &filter, self.limit) {
            Ok(entries) => entries,
            Err(error) => {
                let why = format!("{}: {error}", self.path.display());
                return exit::because(exit::USAGE, why);
            }
        };
        let paper = Paper::of_stdout(self.color);
        let line = |entry: &Entry| match self.json {
            true => format!("{}\n", entry.line),
            false => human(paper, entry),
        };
        let text: String = entries.iter().map(line).collect();
        match paint::print(&text, !self.json && !self.no_pager) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => exit::because(exit::FAULT, error),
        }
    }
}

/// One entry: when, who, what, and what became of it.
fn human(paper: Paper, entry: &Entry) -> String {
    let line = &entry.line;
    let text = |key: &str| match &line[key] {
        Value::Null => None,
        Value::String(text) => Some(one_line(text)),
        other => Some(one_line(&other.to_string())),
    };
    // The time to the second: the lines are in order anyway.
    let time = text("time").unwrap_or_default();
    let time = time.split_once('.').map_or(time.clone(), |(time, _)| format!("{time}Z"));
    let look = match entry.outcome.as_str() {
        "done" => Look::Added,
        "refused" | "fault" | "unfinished" | "damaged" | "stopped" => Look::Removed,
        _ => Look::Faint,
    };
    let mut shown = format!("{}  {:<11}", paper.paint(Look::Faint, &time), entry.outcome);
    shown = shown.replace(&entry.outcome, &paper.paint(look, &entry.outcome));
    for (key, label) in [
        ("tool", ""),
        ("code", ""),
        ("times", "times "),
        ("requester", "for "),
        ("peer", "peer "),
        ("turn", "turn "),
        ("durationMs", "ms "),
        ("commit", "commit "),
        ("push", "push "),
        ("reason", ""),
        ("previous", "after "),
        ("order", ""),
    ] {
        if let Some(value) = text(key) {
            shown.push_str(&format!("  {label}{value}"));
        }
    }
    shown + "\n"
}

fn uid(text: &str) -> Result<u64, String> {
    if let Ok(uid) = text.parse() {
        return Ok(uid);
    }
    let user = nix::unistd::User::from_name(text).ok().flatten();
    user.map(|user| u64::from(user.uid.as_raw())).ok_or_else(|| format!("there is no user {text}"))
}

fn tool(text: &str) -> Result<String, String> {
    let name = text.replace('-', "_");
    ToolName::parse(&name).map(|_| name).ok_or_else(|| "there is no such tool".to_owned())
}

fn code(text: &str) -> Result<String, String> {
    let known = Code::ALL.iter().any(|code| code.as_str() == text);
    known.then(|| text.to_owned()).ok_or_else(|| {
        "there is no such code; `sage-executor schema --codes` lists them".to_owned()
    })
}

fn time(text: &str) -> Result<Timestamp, String> {
    if let Ok(time) = text.parse() {
        return Ok(time);
    }
    let utc = |time: jiff::civil::DateTime| jiff::tz::TimeZone::UTC.to_timestamp(time).ok();
    if let Some(time) = text.parse().ok().and_then(utc) {
        return Ok(time);
    }
    let ago = |span: jiff::Span| {
        let ago = span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?;
        Timestamp::now().checked_sub(ago.abs()).ok()
    };
    text.parse().ok().and_then(ago).ok_or_else(|| {
        "it is no time: write 2026-05-01T10:00:00Z, 2026-05-01, or so long ago, as 2h".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::time;

    #[test]
    fn a_time_is_an_instant_a_day_or_so_long_ago() {
        let instant = |text| time(text).expect(text);
        assert_eq!(instant("2026-05-01"), instant("2026-05-01T00:00:00Z"));
        assert_eq!(instant("2026-05-01T12:00:00"), instant("2026-05-01T14:00:00+02:00"));
        let hours = |text| {
            let seconds = jiff::Timestamp::now().as_second() - instant(text).as_second();
            seconds / 3600
        };
        assert_eq!((hours("2h"), hours("3d"), hours("1d 2h")), (2, 72, 26));
        for wrong in ["", "yesterday", "2", "2026-13-01"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }
}
