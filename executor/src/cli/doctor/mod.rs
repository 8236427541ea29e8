//! `sage-executor doctor`: one line per fact, and the next step for each that is wrong.
//!
//! It looks and changes nothing: no folder is made, no file written, and the token's file is never
//! read. Run it as the user that the executor runs as.

mod facts;

use std::path::PathBuf;
use std::process::ExitCode;

use protocol::printable::one_line;
use serde::Serialize;
use serde_json::json;

use super::exit;
use super::paint::{Look, Paper, When};

/// What `doctor` takes.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The configuration.
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
    /// Print the facts as JSON.
    #[arg(long)]
    json: bool,
    /// When to use colours.
    #[arg(long, value_enum, default_value_t, value_name = "WHEN")]
    color: When,
    /// How much room there should be on the disks, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 64)]
    pub min_free: u64,
    /// Judge as if the kernel had no more than this Landlock ABI.
    #[arg(long, value_name = "ABI")]
    pub assume_landlock: Option<u32>,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Fact {
    /// What.
    fact: String,
    /// Whether it is as it should be.
    ok: bool,
    /// How it is.
    says: String,
    /// What to do next, when it is wrong.
    next: Option<String>,
}

impl Fact {
    fn good(fact: impl Into<String>, says: impl Into<String>) -> Self {
        Self { fact: fact.into(), ok: true, says: says.into(), next: None }
    }

    fn wrong(fact: impl Into<String>, says: impl Into<String>, next: impl Into<String>) -> Self {
        Self { fact: fact.into(), ok: false, says: says.into(), next: Some(next.into()) }
    }

    /// From a check whose error says, after its last `; `, what to do.
    fn of(fact: &str, checked: Result<String, String>, otherwise: &str) -> Self {
        match checked {
            Ok(says) => Self::good(fact, says),
            Err(why) => match why.rsplit_once("; ") {
                Some((says, next)) => Self::wrong(fact, says, next),
                None => Self::wrong(fact, why, otherwise),
            },
        }
    }

    fn line(&self, paper: Paper) -> String {
        let mark = if self.ok {
            paper.paint(Look::Added, "✓")
        } else {
            paper.paint(Look::Removed, "✗")
        };
        let next = self.next.as_ref().map(|next| format!("\n    → {}", one_line(next)));
        let (fact, says) = (one_line(&self.fact), one_line(&self.says));
        format!("{mark} {fact}: {says}{}\n", next.unwrap_or_default())
    }
}

/// Looks, and says.
pub fn run(arguments: &Arguments) -> ExitCode {
    let facts = facts::all(arguments);
    let ok = facts.iter().all(|fact| fact.ok);
    if arguments.json {
        println!("{:#}", json!({"ok": ok, "facts": facts}));
    } else {
        let paper = Paper::of_stdout(arguments.color);
        let lines: String = facts.iter().map(|fact| fact.line(paper)).collect();
        print!("{lines}");
    }
    if ok { ExitCode::SUCCESS } else { ExitCode::from(exit::FOUND_WRONG) }
}
