//! Git over https: it works end to end with the token, every way in which a remote can disappoint is
//! a refusal of its own, and the token is nowhere but in its file.

use std::path::PathBuf;

use protocol::refusal::{Code, Outcome, Refusal};
use protocol::reply::{Committed, Pulled, PushState, Pushed, Reply};

mod declined;
mod file;
mod flow;
mod refusals;
mod secrecy;
mod settings;
mod strangers;

/// Both gits of this machine, or the one that there is.
fn gits() -> Vec<PathBuf> {
    harness::git::installed()
}

fn committed(outcome: Outcome) -> Committed {
    match outcome {
        Outcome::Reply(Reply::Committed(done)) => done,
        other => panic!("no commit came of it: {other:?}"),
    }
}

fn pushed(outcome: Outcome) -> Pushed {
    match outcome {
        Outcome::Reply(Reply::Pushed(done)) => done,
        other => panic!("no push came of it: {other:?}"),
    }
}

fn pulled(outcome: Outcome) -> Pulled {
    match outcome {
        Outcome::Reply(Reply::Pulled(done)) => done,
        other => panic!("no pull came of it: {other:?}"),
    }
}

fn refused(outcome: Outcome, code: Code) -> Refusal {
    match outcome {
        Outcome::Refusal(refusal) if refusal.code == code => refusal,
        other => panic!("this should have been refused as {code}: {other:?}"),
    }
}

/// The message of a push that failed with this code, after a commit that stands.
fn push_failed(done: &Committed, expected: Code) -> String {
    match &done.push {
        PushState::Failed { code, message } if *code == expected => message.clone(),
        other => panic!("the push should have failed as {expected}: {other:?}"),
    }
}
