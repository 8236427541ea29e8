//! Calls within a turn, as a blocking test makes them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use protocol::explain::Explanation;
use protocol::refusal::{Code, Outcome, Refusal};
use protocol::reply::{
    Branches, Committed, Diff, Edited, FileList, FileText, Hits, Log, OutputPage, Plan, Pulled,
    Pushed, Reply, Reserved, Roots, SearchResults, ShownCommit, Status, WebPage, Written,
};
use protocol::service::Request;
use protocol::tool::ToolCall;
use protocol::turn::{Origin, Turn as Name};
use protocol::wire::WireError;

use crate::world::World;

/// A body of a reply.
pub trait Body: Sized {
    /// The body, if the reply is of this tool.
    fn of(reply: Reply) -> Option<Self>;
}

macro_rules! bodies {
    ($($body:ident in $variant:ident,)+) => {
        $(impl Body for $body {
            fn of(reply: Reply) -> Option<Self> {
                match reply { Reply::$variant(body) => Some(body), _ => None }
            }
        })+
    };
}

bodies! {
    Roots in Roots, FileList in Files, FileText in File, Hits in Hits, Written in Written, Edited in Edited,
    Status in Status, Diff in Diff, Log in Log, ShownCommit in Commit, Branches in Branches,
    OutputPage in Output, Reserved in Reserved, Plan in ApprovalNeeded, Committed in Committed, Pulled in Pulled, Pushed in Pushed,
    WebPage in Page, SearchResults in Found,
}

/// One turn: a message of a person, and all calls that follow from it.
#[derive(Debug)]
pub struct Turn<'w> {
    world: &'w World,
    name: Name,
    calls: AtomicU64,
}

impl<'w> Turn<'w> {
    pub(crate) fn new(world: &'w World, id: String, requester: Option<&str>) -> Self {
        let requester = requester.map(str::to_owned);
        let name = Name { id, requester, origin: Origin::Terminal };
        Self { world, name, calls: AtomicU64::new(0) }
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.name.id
    }

    /// Makes a call, whatever becomes of it.
    ///
    /// # Panics
    /// When the connection ends.
    pub fn call(&self, call: ToolCall) -> Outcome {
        let n = self.calls.fetch_add(1, Ordering::Relaxed);
        self.call_as(&format!("call-{n}"), call)
    }

    /// As [`Turn::call`], with a call id of the test's choice.
    ///
    /// # Panics
    /// When the connection ends.
    pub fn call_as(&self, id: &str, call: ToolCall) -> Outcome {
        self.try_call_as(id, call).unwrap_or_else(|error| {
            panic!("{error}; the executor said:\n{}", self.world.executor_log())
        })
    }

    /// As [`Turn::call_as`], for an executor that may be killed meanwhile.
    ///
    /// # Errors
    /// When the connection ends.
    pub fn try_call_as(&self, id: &str, call: ToolCall) -> Result<Outcome, WireError> {
        self.world.send(self.request(id, call))
    }

    /// Makes a call and goes away after a while, whether it was answered or not.
    pub fn call_and_leave(&self, id: &str, call: ToolCall, patience: Duration) {
        self.world.send_and_leave(self.request(id, call), patience);
    }

    /// What would become of a call.
    ///
    /// # Panics
    /// When the executor does not say.
    pub fn explain(&self, call: ToolCall) -> Explanation {
        let explained = self.world.explain(self.request("explain", call));
        explained.expect("the executor is there").expect("it explains")
    }

    fn request(&self, id: &str, call: ToolCall) -> Request {
        Request { id: id.to_owned(), turn: self.name.clone(), call, approved: None }
    }

    /// Makes a call under a plan that the person approved.
    ///
    /// # Panics
    /// When the connection ends.
    pub fn call_approved(&self, call: ToolCall, digest: &str) -> Outcome {
        let n = self.calls.fetch_add(1, Ordering::Relaxed);
        let approved = Some(digest.to_owned());
        let request = Request { approved, ..self.request(&format!("call-{n}"), call) };
        self.world.send(request).expect("the executor is there")
    }

    /// Makes a call that must be done.
    ///
    /// # Panics
    /// When it is not, or answers with something else.
    pub fn reply<B: Body>(&self, call: ToolCall) -> B {
        let shown = format!("{call:?}");
        match self.call(call) {
            Outcome::Reply(reply) => {
                B::of(reply).unwrap_or_else(|| panic!("{shown} got another tool's reply"))
            }
            other => {
                panic!("{shown} got {other:#?}; the executor said:\n{}", self.world.executor_log())
            }
        }
    }

    /// Makes a call that must be refused.
    ///
    /// # Panics
    /// When it is not.
    pub fn refused(&self, call: ToolCall) -> Refusal {
        let shown = format!("{call:?}");
        match self.call(call) {
            Outcome::Refusal(refusal) => refusal,
            other => {
                panic!("{shown} got {other:#?}; the executor said:\n{}", self.world.executor_log())
            }
        }
    }

    /// Makes a call that must be refused by exactly this rule.
    ///
    /// # Panics
    /// When it is not.
    pub fn refused_by(&self, code: Code, call: ToolCall) -> Refusal {
        let shown = format!("{call:?}");
        let refusal = self.refused(call);
        assert_eq!(refusal.code, code, "{shown}: {refusal}");
        assert!(!refusal.message.is_empty() && !refusal.hint.is_empty(), "{refusal:?} says little");
        refusal
    }
}
