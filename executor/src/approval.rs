//! Approval: a plan of a commit, which a person approves, bound to exactly that commit.
//!
//! The plan's digest covers the tree, the parent, the message, the branch, the remote and the
//! requester. It is good once, for ten minutes, for the peer and the requester it was made for, and
//! for this run of the executor: a restart voids what was pending, and so does STOP.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use protocol::refusal::Code;
use sha2::{Digest, Sha256};

use crate::audit::hex;
use crate::tools::Failure;

/// How long a plan can be approved.
pub const GOOD_FOR: Duration = Duration::from_secs(600);

/// How many plans wait at once; the oldest goes first.
const MAX_PENDING: usize = 64;

/// What a plan is bound to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    /// The user at the other end of the socket.
    pub peer: u32,
    /// The person who asked.
    pub requester: String,
    /// The tree that would be committed, in hex.
    pub tree: String,
    /// The commit it would follow, in hex; empty before the first one.
    pub parent: String,
    /// The message.
    pub message: String,
    /// The branch.
    pub branch: String,
    /// The remote's URL.
    pub remote: String,
}

impl Bound {
    /// The digest that stands for the plan.
    #[must_use]
    pub fn digest(&self) -> String {
        let mut hash = Sha256::new();
        let peer = self.peer.to_string();
        let parts = [
            &peer,
            &self.requester,
            &self.tree,
            &self.parent,
            &self.message,
            &self.branch,
            &self.remote,
        ];
        for part in parts {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        hex(&hash.finalize())
    }

    /// What differs, in words.
    fn differs(&self, other: &Self) -> &'static str {
        if self.requester != other.requester || self.peer != other.peer {
            "it was made for someone else"
        } else if self.parent != other.parent {
            "HEAD moved"
        } else if self.tree != other.tree {
            "the content changed"
        } else if self.message != other.message {
            "the message changed"
        } else {
            "the branch or the remote changed"
        }
    }
}

/// The plans that wait for an approval.
#[derive(Debug, Default)]
pub struct Approvals(Mutex<HashMap<String, Pending>>);

#[derive(Debug)]
struct Pending {
    bound: Bound,
    made: Instant,
}

impl Approvals {
    /// Notes a plan that waits. Says its digest.
    pub fn propose(&self, bound: Bound) -> String {
        let digest = bound.digest();
        let mut pending = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pending.retain(|_, plan| plan.made.elapsed() < GOOD_FOR);
        if pending.len() >= MAX_PENDING {
            let oldest =
                pending.iter().min_by_key(|(_, plan)| plan.made).map(|(key, _)| key.clone());
            oldest.and_then(|key| pending.remove(&key));
        }
        pending.insert(digest.clone(), Pending { bound, made: Instant::now() });
        digest
    }

    /// Voids every plan that waits; how many.
    pub fn void(&self) -> usize {
        let mut pending = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pending.drain().filter(|(_, plan)| plan.made.elapsed() < GOOD_FOR).count()
    }

    /// Takes an approval, once.
    ///
    /// # Errors
    /// `approval_needed` when there is no such plan any more, or when what would be committed now is
    /// not what was approved; says what changed.
    pub fn take(&self, digest: &str, now: &Bound) -> Result<(), Failure> {
        let mut pending = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let plan = pending.remove(digest).filter(|plan| plan.made.elapsed() < GOOD_FOR);
        let why = match plan {
            None => {
                "there is no such plan: it was used, it is older than ten minutes, the executor was restarted, or the operator stopped it"
            }
            Some(plan) if plan.bound == *now => return Ok(()),
            Some(plan) => plan.bound.differs(now),
        };
        Err(Failure::refuse(
            Code::ApprovalNeeded,
            format!("The approval does not fit: {why}."),
            "Commit again: a new plan is made, and the requester approves that one.",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::{Approvals, Bound};
    use crate::tools::Failure;

    fn bound() -> Bound {
        Bound {
            peer: 1,
            requester: "Owner".to_owned(),
            tree: "t".to_owned(),
            parent: "p".to_owned(),
            message: "m".to_owned(),
            branch: "main".to_owned(),
            remote: "https://git.example.com/r".to_owned(),
        }
    }

    fn refused(result: Result<(), Failure>) -> String {
        match result {
            Err(Failure::Refusal(refusal)) => refusal.message,
            other => panic!("{other:?} is no refusal"),
        }
    }

    #[test]
    fn an_approval_is_good_once() {
        let approvals = Approvals::default();
        let digest = approvals.propose(bound());
        assert!(approvals.take(&digest, &bound()).is_ok());
        assert!(refused(approvals.take(&digest, &bound())).contains("no such plan"));
    }

    #[test]
    fn whatever_changed_since_is_said_and_voids_the_plan() {
        type Change = fn(&mut Bound);
        let changes: [(Change, &str); 6] = [
            (|b| b.tree.push('x'), "the content changed"),
            (|b| b.parent.push('x'), "HEAD moved"),
            (|b| b.message.push('x'), "the message changed"),
            (|b| b.remote.push('x'), "the branch or the remote"),
            (|b| "Partner".clone_into(&mut b.requester), "someone else"),
            (|b| b.peer = 2, "someone else"),
        ];
        for (change, said) in changes {
            let approvals = Approvals::default();
            let digest = approvals.propose(bound());
            let mut now = bound();
            change(&mut now);
            assert_ne!(now.digest(), digest);
            assert!(refused(approvals.take(&digest, &now)).contains(said), "{said}");
            assert!(approvals.take(&digest, &bound()).is_err(), "it was used up");
        }
    }
}
