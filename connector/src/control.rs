//! `stop`, `unlock`, `status` and `why`: what an operator does and asks at three in the morning.
//!
//! `status` and `why` read files alone: they take no lock and change nothing.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde_json::json;

use crate::binding::Limits;
use crate::check::Reach;
use crate::journal::{self, DropReason, TURNS, Trace, read_record};
use crate::message::MessageId;
use crate::metrics::Counters;
use crate::owner::{self, Standing};
use crate::render::{one_line, printable};

/// Puts the brake on and tells what that means now.
pub(crate) fn stop(folder: &Path) -> Result<String> {
    let gate = folder.join("STOP");
    let gate = gate.display();
    Ok(match owner::stop(folder)? {
        Some(pid) => format!(
            "Stopping: process {pid} finishes its turn, or times out, and ends. Nothing starts until \
             you run: rm {gate}\n"
        ),
        None => format!("Nothing is running. Nothing starts until you run: rm {gate}\n"),
    })
}

/// Removes a lock whose owner is gone.
pub(crate) fn unlock(folder: &Path) -> Result<String> {
    owner::unlock(folder)?;
    let gate = folder.join("STOP");
    Ok(format!("The lock is free. To start again, run: rm {}\n", gate.display()))
}

/// How the binding stands.
pub(crate) fn status(
    folder: &Path,
    limits: &Limits,
    now: Timestamp,
    executor: &Reach,
    as_json: bool,
) -> Result<String> {
    let stopped = owner::is_stopped(folder);
    let standing = owner::standing(folder)?;
    let (state, pid) = match &standing {
        Standing::Free => ("not running", None),
        Standing::Claiming => ("starting", None),
        Standing::Live(owner) => ("running", Some(owner.pid)),
        Standing::Stale => ("left by a process that is gone; run: sage-connector unlock", None),
        Standing::Unknown(owner) => ("held by a process that cannot be told", Some(owner.pid)),
        Standing::Invalid => ("damaged: run.lock/owner.json is no owner's record", None),
    };
    let today = journal::admitted_on(folder, now).context("cannot read the admissions")?;
    let open = journal::open_intents(folder).context("cannot read the outbox")?;
    if as_json {
        let value = json!({
            "state": state,
            "pid": pid,
            "stopped": stopped,
            "turnsToday": today,
            "turnsPerDay": limits.turns_per_day,
            "unsettled": open,
            "executor": match executor {
                Reach::Answers => "answers",
                Reach::Stopped(_) => "stopped",
                Reach::Away(_) => "away",
            },
            "counters": Counters::read(folder)?.json(),
        });
        return Ok(format!("{value}\n"));
    }
    let mut text = match pid {
        Some(pid) => format!("process    {state} (pid {pid})\n"),
        None => format!("process    {state}\n"),
    };
    let gate = folder.join("STOP");
    let brake =
        if stopped { format!("on; release: rm {}", gate.display()) } else { "off".to_owned() };
    let _ = writeln!(text, "brake      {brake}");
    let executor = match executor {
        Reach::Answers => "answers".to_owned(),
        Reach::Stopped(stop) => format!(
            "stopped by {} at {}; it only reads; to lift it, run: sage-executor resume",
            stop.by, stop.since
        ),
        Reach::Away(why) => format!("cannot be asked: {why}"),
    };
    let _ = writeln!(text, "executor   {}", one_line(&executor));
    let _ = writeln!(text, "turns      {today} of {} today, by UTC", limits.turns_per_day);
    let _ = writeln!(text, "unsettled  {open} messages that may or may not have arrived");
    Ok(text)
}

/// Why a message was answered, or was not.
pub(crate) fn why(folder: &Path, message: &str, as_json: bool) -> Result<String> {
    let id = MessageId::parse(message)?;
    let trace = journal::trace(folder, &id).context("cannot read the journal")?;
    let record = read_record(&folder.join(TURNS), &id).ok();
    let outcome = record.map(|record| record.outcome);
    if as_json {
        let value = json!({
            "id": id,
            "accepted": trace.accepted,
            "dropped": trace.dropped.map(|(_, reason)| reason),
            "admitted": trace.admitted,
            "outcome": outcome,
        });
        return Ok(format!("{value}\n"));
    }
    let ended = outcome.as_ref().map(|outcome| outcome.as_str());
    Ok(printable(&format!("{}\n", explain(&id, &trace, ended))))
}

fn explain(id: &MessageId, trace: &Trace, ended: Option<&str>) -> String {
    // An edit is passed over under the same id, so a turn is told of first.
    match (ended, trace.admitted, trace.dropped, trace.accepted) {
        (Some(ended), ..) => {
            format!("{id} got a turn, which ended: {ended}. See: sage-connector show {id}")
        }
        (_, Some(at), ..) => format!("{id} got a turn at {at}, which has not ended"),
        (_, _, Some((at, reason)), _) => format!("{id} got no turn, at {at}: {}", says(reason)),
        (.., Some(at)) => format!("{id} was taken in at {at} and waits for its turn"),
        (None, None, None, None) => format!(
            "{id} was never seen. Sage was not running or not connected then, cannot see the \
             channel, or this is not a message's id; nothing is made up for later"
        ),
    }
}

fn says(reason: DropReason) -> &'static str {
    match reason {
        DropReason::TooLong => "it was longer than `limits.maxMessageChars`",
        DropReason::NoText => "it had no text",
        DropReason::OverCeiling => "the day's turns, `limits.turnsPerDay`, were used up",
        DropReason::Stopping => "the brake was on, or Sage was about to end",
        DropReason::Rule(rule) => rule.says(),
    }
}

#[cfg(test)]
mod tests {
    use policy::admission::Rule;
    use serde_json::Value;

    use super::{status, stop, unlock, why};
    use crate::binding::Limits;
    use crate::check::Reach;
    use crate::clock::{Clock as _, SystemClock};
    use crate::journal::{DropReason, Journal};
    use crate::lock::Lock;
    use crate::message::MessageId;

    #[test]
    fn why_names_the_rule_that_kept_it_silent() {
        let home = tempfile::tempdir().expect("a folder");
        let folder = home.path().join("sage");
        let mut journal = Journal::open(Lock::take(&folder).expect("free")).expect("opened");
        let id = MessageId::parse("100000000000000009").expect("an id");
        let rule = DropReason::Rule(Rule::UnlistedAuthor);
        journal.pass_over(&id, rule, SystemClock.now()).expect("written");
        let text = why(&folder, id.as_str(), false).expect("read");
        assert!(text.contains("`discord.users`"), "{text}");
        let json: Value =
            serde_json::from_str(&why(&folder, id.as_str(), true).expect("read")).expect("json");
        assert_eq!(json["dropped"]["rule"], "unlistedAuthor");
        let text = why(&folder, "100000000000000010", false).expect("read");
        assert!(text.contains("never seen"), "{text}");
        assert!(why(&folder, "../x", false).is_err());
    }

    #[test]
    fn status_says_when_the_brake_is_on_and_how_to_release_it() {
        let home = tempfile::tempdir().expect("a folder");
        let folder = home.path().join("sage");
        drop(Lock::take(&folder).expect("free"));
        let look = || {
            status(&folder, &Limits::default(), SystemClock.now(), &Reach::Answers, false)
                .expect("read")
        };
        assert!(look().contains("not running") && look().contains("off"), "{}", look());
        assert!(stop(&folder).expect("stopped").contains("rm "));
        assert!(look().contains("on; release: rm "), "{}", look());
        assert!(unlock(&folder).expect("nothing is held").contains("rm "));
        let json = status(&folder, &Limits::default(), SystemClock.now(), &Reach::Answers, true)
            .expect("read");
        let json: Value = serde_json::from_str(&json).expect("json");
        assert_eq!((&json["stopped"], &json["turnsToday"]), (&Value::Bool(true), &Value::from(0)));
    }
}
