//! `sage-executor stop` and `resume`.
//!
//! Run as the executor's user or as root. They write the marker in the state directory and need no
//! running executor; where one runs, `stop` waits until it says that nothing is under way any more.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};
use protocol::printable::one_line;
use serde_json::json;

use super::exit;
use crate::audit::{Audit, files};
use crate::config::Config;
use crate::stop::{self, Order};

/// What `stop` and `resume` take.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The executor's configuration.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// How long to wait until the executor says that it has heeded it, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    wait: u64,
}

/// What came of waiting for the executor.
enum Heard {
    /// It said so, in this line of the audit.
    Said(serde_json::Value),
    /// None runs; the audit was written here.
    NobodyRuns,
    /// It has not said anything.
    Nothing,
}

/// Stops.
pub fn stop(arguments: &Arguments) -> ExitCode {
    let (config, order) = match prepare(arguments) {
        Ok(prepared) => prepared,
        Err(why) => return exit::because(exit::USAGE, why),
    };
    let started = Instant::now();
    let (standing, new) = match stop::place(&config.state_dir, &order) {
        Ok(placed) => placed,
        Err(error) => {
            let why = format!(
                "NOT STOPPED: {} cannot be made ({error}); stop the service itself: \
                 `systemctl stop`, or a SIGTERM to `sage-executor serve`",
                config.state_dir.join(stop::MARKER).display()
            );
            return exit::because(exit::FAULT, why);
        }
    };
    if new {
        println!("stopped: nothing is written or fetched until `sage-executor resume`");
    } else {
        let who = one_line(&standing.who());
        println!("stopped already, by {who} at {}", one_line(&standing.at));
    }
    match hear(arguments, &config, "halted", new.then_some("stopped"), &standing, started) {
        Ok(Heard::Said(line)) => {
            let took = started.elapsed().as_millis();
            println!("halted after {took} ms; {} calls were cancelled", line["cancelled"]);
            ExitCode::SUCCESS
        }
        Ok(Heard::NobodyRuns) => {
            println!("no executor runs; the next one starts stopped");
            ExitCode::SUCCESS
        }
        Ok(Heard::Nothing) => exit::because(
            exit::FOUND_WRONG,
            "the marker is in place, and the executor has not said that everything has halted: \
             calls may still be under way; look at its log, or stop the service itself",
        ),
        Err(error) => exit::because(exit::FOUND_WRONG, format_args!("the audit: {error}")),
    }
}

/// Resumes.
pub fn resume(arguments: &Arguments) -> ExitCode {
    let (config, order) = match prepare(arguments) {
        Ok(prepared) => prepared,
        Err(why) => return exit::because(exit::USAGE, why),
    };
    let started = Instant::now();
    match stop::lift(&config.state_dir, &order) {
        Ok(true) => println!("resumed"),
        Ok(false) => {
            println!("no stop stands");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            return exit::because(exit::FAULT, format_args!("the stop still stands: {error}"));
        }
    }
    match hear(arguments, &config, "resumed", Some("resumed"), &order, started) {
        Ok(Heard::Said(_)) => ExitCode::SUCCESS,
        Ok(Heard::NobodyRuns) => {
            println!("no executor runs");
            ExitCode::SUCCESS
        }
        Ok(Heard::Nothing) => exit::because(
            exit::FOUND_WRONG,
            "the marker is gone, and the executor has not said that it goes on; look at its log",
        ),
        Err(error) => exit::because(exit::FOUND_WRONG, format_args!("the audit: {error}")),
    }
}

/// The configuration, and the order of whoever is here. From then on this process is the state
/// directory's owner, so that whatever it makes belongs to the executor.
fn prepare(arguments: &Arguments) -> Result<(Config, Order), String> {
    let config = Config::load(&arguments.config).map_err(|error| error.to_string())?;
    let order = Order::now();
    let dir = &config.state_dir;
    let owner = fs::metadata(dir).map_err(|error| {
        format!("stateDir {}: {error}; the executor makes it at its first start", dir.display())
    })?;
    become_owner(dir, &owner)?;
    Ok((config, order))
}

fn become_owner(dir: &Path, owner: &fs::Metadata) -> Result<(), String> {
    let (uid, gid) = (Uid::from_raw(owner.uid()), Gid::from_raw(owner.gid()));
    let me = nix::unistd::geteuid();
    if me == uid {
        return Ok(());
    }
    if !me.is_root() {
        return Err(format!(
            "stateDir {} belongs to uid {uid}; run this as that user or as root",
            dir.display()
        ));
    }
    setgroups(&[])
        .and_then(|()| setresgid(gid, gid, gid))
        .and_then(|()| setresuid(uid, uid, uid))
        .map_err(|error| format!("becoming uid {uid}: {error}"))
}

/// Waits for the executor's word about an order; where none runs, gives it in its place.
fn hear(
    arguments: &Arguments,
    config: &Config,
    event: &str,
    otherwise: Option<&str>,
    order: &Order,
    started: Instant,
) -> std::io::Result<Heard> {
    let order = json!(order);
    loop {
        let lines = files::newest(&config.state_dir)?;
        let says = |line: &&serde_json::Value| line["event"] == event && line["order"] == order;
        if let Some(line) = lines.iter().rev().find(says) {
            return Ok(Heard::Said(line.clone()));
        }
        let max_bytes = config.limits.max_audit_bytes;
        if let Some(audit) = Audit::open_unless_taken(&config.state_dir, max_bytes)? {
            if let Some(event) = otherwise {
                audit.append(event, json!({"order": order, "executor": "not running"}))?;
                stop::take_resumed(&config.state_dir);
            }
            return Ok(Heard::NobodyRuns);
        }
        if started.elapsed() >= Duration::from_secs(arguments.wait) {
            return Ok(Heard::Nothing);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
