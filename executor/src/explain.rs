//! What would become of a call (J7): the very fence that judges calls is asked, and the authority
//! table is read; nothing is touched.

use policy::authority::{self, Step};
use policy::fence::{self, Caller, Permitted};
use policy::git::Remote;
use protocol::explain::{ExplainedStep, Explanation};
use protocol::reply::GitAccess;
use protocol::tool::{ToolCall, ToolName};

use crate::config::Approval;
use crate::workplace::{Root, Workplace};

/// Judges a call, and says by which rules.
pub(crate) fn explain(place: &Workplace, caller: Caller<'_>, call: ToolCall) -> Explanation {
    let tool = call.name();
    let before = passed(place, caller, tool);
    match fence::judge(&place.ground, caller, call) {
        Err(refusal) => Explanation {
            tool,
            refusal: Some(refusal),
            passed: Vec::new(),
            steps: Vec::new(),
            later: Vec::new(),
        },
        Ok(permitted) => {
            let root = permitted.root();
            let opened = root.and_then(|root| place.roots.get(root));
            Explanation {
                tool,
                refusal: None,
                passed: before.into_iter().chain(root_says(place, root)).collect(),
                steps: steps(tool, opened),
                later: later(tool, opened, &permitted),
            }
        }
    }
}

/// The rules that stand before the arguments, where none of them says no.
fn passed(place: &Workplace, caller: Caller<'_>, tool: ToolName) -> Vec<String> {
    let limits = &place.limits;
    let speaks = match &caller.turn.requester {
        Some(name) => format!("this peer may speak for {name}"),
        None => "the turn acts for nobody, which this tool allows".to_owned(),
    };
    let stop = if authority::halts(tool) {
        "no stop stands"
    } else {
        "a stop would not halt it: it writes nothing and reaches no network"
    };
    vec![
        format!("the configuration offers {tool}"),
        speaks,
        format!("the peer has room below its {} calls a minute", limits.max_calls_per_minute),
        stop.to_owned(),
        format!(
            "it would be call {} of the turn's {}",
            caller.calls_before.saturating_add(1),
            limits.max_calls_per_turn
        ),
        "the arguments pass the rules for them".to_owned(),
    ]
}

fn root_says(place: &Workplace, root: Option<usize>) -> Option<String> {
    let root = place.ground.roots.get(root?)?;
    let write = if root.writable { "can be written" } else { "is read-only" };
    let git = match root.git {
        GitAccess::None => "has no git",
        GitAccess::Read => "has git to read",
        GitAccess::Write => "has git to read, commit, pull and push",
    };
    let protocol = if root.vault { ", and follows the record protocol" } else { "" };
    Some(format!("the root {} {write}, {git}{protocol}", root.name))
}

/// The steps of a tool that this root can bring about.
fn steps(tool: ToolName, root: Option<&Root>) -> Vec<ExplainedStep> {
    let remote = root.and_then(|root| root.git.as_ref()).map(|git| &git.terms.remote);
    let vault = root.is_some_and(|root| root.lock_owner.is_some());
    let taken = |step: &&Step| match step {
        Step::FetchHttps | Step::PushHttps => matches!(remote, Some(Remote::Https { .. })),
        Step::FetchLocal | Step::PushLocal => matches!(remote, Some(Remote::Local(_))),
        Step::Validate | Step::CheckLocks | Step::LockRecord | Step::ReserveId => vault,
        _ => true,
    };
    let explained = |step: &Step| {
        let row = step.row();
        ExplainedStep {
            step: step.as_str().to_owned(),
            files: format!("{:?}", row.files),
            exec: format!("{:?}", row.exec),
            network: format!("{:?}", row.network),
            token: row.token,
        }
    };
    authority::steps(tool).iter().filter(taken).map(explained).collect()
}

/// What the fence cannot know.
fn later(tool: ToolName, root: Option<&Root>, permitted: &Permitted) -> Vec<String> {
    let mut later = Vec::new();
    if matches!(permitted, Permitted::WebFetch(_) | Permitted::WebSearch(_)) {
        later.push("the host's addresses, each redirect, and what the server answers");
    } else if authority::steps(tool).is_empty() {
        return Vec::new();
    } else {
        later.push("what is at the path, on disk or in the repository");
    }
    let Some(git) = root.and_then(|root| root.git.as_ref()) else {
        return later.into_iter().map(str::to_owned).collect();
    };
    if matches!(tool, ToolName::GitCommit | ToolName::GitPull | ToolName::GitPush) {
        later.push(
            "the repository: its branch, its remote, its configuration, an operation under way",
        );
        later.push("the remote: whether it is ahead, and whether it takes the push");
    }
    if tool == ToolName::GitCommit {
        if git.require_review {
            later.push("the review: each path seen in this turn, at the content to be committed");
        }
        if git.approval == Approval::Requester {
            later.push("the approval: the requester approves the plan first");
        }
    }
    if root.is_some_and(|root| root.lock_owner.is_some()) && authority::writes(tool) {
        later.push("the record protocol: its validator, locks and registry");
    }
    later.into_iter().map(str::to_owned).collect()
}
