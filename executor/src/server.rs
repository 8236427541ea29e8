//! The executor's service: who calls, what the fence says, the tool, the audit.
//!
//! [`Executor::perform`] is the whole way of a call. Nothing that arrives on the socket is trusted:
//! the peer is who the kernel says it is, and every fence stands on this side.

mod connections;

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use policy::authority;
use policy::fence::{self, Caller, Permitted};
use policy::git::Requester;
use protocol::explain::Explanation;
use protocol::printable::one_line;
use protocol::refusal::{Code, Fault, Outcome};
use protocol::reply::{Committed, Reply};
use protocol::service::{Description, Request, Stopped};
use protocol::status::{Status, TurnedAway};
use protocol::tool::ToolName;
use protocol::wire::PROTOCOL_VERSION;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::approval::Approvals;
use crate::audit::{self, Audit};
use crate::explain;
use crate::outcomes::{CallKey, Outcomes};
use crate::rate::{self, Rate, TooOften};
use crate::session::{Session, Sessions};
use crate::stop::{self, Brake, Order, Seat};
use crate::tally::Tally;
use crate::tools::git_commit::Asked;
use crate::tools::{
    self, Failure, file_tools, git_commit, git_pull, git_read, git_remote, record_tools, search,
    web,
};
use crate::workplace::Workplace;
use confine::cancel::{Cancel, Canceller};

pub use connections::serve;

/// Everything that serves calls.
#[derive(Debug)]
pub struct Executor {
    workplace: Workplace,
    sessions: Sessions,
    audit: Audit,
    outcomes: Outcomes,
    approvals: Approvals,
    brake: Brake,
    tally: Tally,
    peers: HashMap<u32, Peer>,
}

/// One call under way.
struct Call<'a> {
    session: &'a mut Session,
    cancel: &'a Cancel,
    key: &'a CallKey,
    peer: u32,
}

/// A user that may connect.
#[derive(Debug)]
struct Peer {
    requesters: Vec<Requester>,
    connections: Arc<Semaphore>,
    in_flight: Arc<Semaphore>,
    rate: Rate,
    /// Explanations count nowhere else.
    explained: Rate,
}

impl Executor {
    /// An executor for a workplace, its audit and its peers.
    #[must_use]
    pub fn new(
        workplace: Workplace,
        audit: Audit,
        outcomes: Outcomes,
        peers: Vec<(u32, Vec<Requester>)>,
    ) -> Self {
        let limits = &workplace.limits;
        let peer = |requesters| Peer {
            requesters,
            connections: Arc::new(Semaphore::new(limits.max_connections)),
            in_flight: Arc::new(Semaphore::new(limits.max_calls_in_flight)),
            rate: Rate::new(limits.max_calls_per_minute),
            explained: Rate::new(limits.max_calls_per_minute),
        };
        Self {
            peers: peers.into_iter().map(|(uid, requesters)| (uid, peer(requesters))).collect(),
            sessions: Sessions::default(),
            audit,
            outcomes,
            approvals: Approvals::default(),
            brake: Brake::new(&workplace.state_dir),
            tally: Tally::default(),
            workplace,
        }
    }

    /// As far as a call goes before it acts, and back.
    pub fn pulse(&self) {
        self.audit.pulse();
    }

    /// Looks whether the operator has stopped or resumed, and heeds it.
    pub fn look_for_stop(&self) -> Option<Order> {
        self.brake.look(&self.audit, &self.approvals)
    }

    /// Takes a call on the list of those that a stop cancels, where it is of that kind. Says since
    /// when a stop stands.
    fn enter(&self, tool: ToolName, canceller: &Canceller) -> Option<(Seat<'_>, Option<String>)> {
        authority::halts(tool).then(|| {
            let seat = self.brake.enter(canceller.clone(), &self.audit, &self.approvals);
            (seat, self.look_for_stop().map(|order| order.at))
        })
    }

    /// The whole way of a call, on a thread that may block.
    fn perform(
        &self,
        uid: u32,
        request: Request,
        cancel: &Cancel,
        canceller: &Canceller,
    ) -> Outcome {
        let session = self.sessions.of(uid, &request.turn.id);
        let mut session = session.lock().unwrap_or_else(PoisonError::into_inner);
        let key = CallKey::new(uid, &request.turn.id, &request.id);
        let tool = request.call.name();
        let writes = authority::writes(tool);
        let kept = || session.done.get(&key).cloned().or_else(|| self.outcomes.find(&key));
        if let Some(done) = writes.then(kept).flatten() {
            return done;
        }
        let _lasts = self.tally.call();
        let _inside = span(uid, &request).entered();
        let about = audit::about(uid, &request);
        let started = Instant::now();
        let too_often = self.peers[&uid].rate.take(started).err();
        let call = Call { session: &mut session, cancel, key: &key, peer: uid };
        let wait = too_often.map(|too_often| too_often.wait);
        let (outcome, let_through) =
            match self.judge_and_act(request, call, canceller, wait, &about) {
                Ok(judged) => judged,
                Err(unwritten) => {
                    let fault = Outcome::Fault(unwritten);
                    self.tally.ended(tool, &fault, None);
                    return fault;
                }
            };
        if let (true, Outcome::Reply(reply)) = (writes, &outcome) {
            self.keep(&key, reply);
        }
        let took = millis(started);
        if too_often.is_some() {
            self.tally.too_often(uid);
        }
        self.tally.ended(tool, &outcome, let_through.then_some(took));
        self.write_down(about, &outcome, took, too_often);
        // What only read, what the fence refused and what was refused for the moment did nothing, and
        // is judged anew when it comes again.
        if writes && let_through && !for_the_moment(&outcome) {
            session.done.insert(key, outcome.clone());
        }
        outcome
    }

    /// Asks the fence and, where it lets the call through, writes it down and does it. What came of it, and
    /// whether it was let through; a fault when it could not be written down, and nothing was done.
    fn judge_and_act(
        &self,
        request: Request,
        mut call: Call<'_>,
        canceller: &Canceller,
        wait: Option<Duration>,
        about: &Value,
    ) -> Result<(Outcome, bool), Fault> {
        let tool = request.call.name();
        let (seat, stopped) = self.enter(tool, canceller).unzip();
        let stopped = stopped.flatten();
        let caller = Caller {
            may_speak_for: &self.peers[&call.peer].requesters,
            turn: &request.turn,
            calls_before: call.session.calls,
            wait: wait.map(rate::seconds),
            stopped: stopped.as_deref(),
        };
        let permitted = match fence::judge(&self.workplace.ground, caller, request.call) {
            Err(refusal) => return Ok((Outcome::Refusal(refusal), false)),
            Ok(permitted) => permitted,
        };
        self.audit.append("call", about.clone()).map_err(|error| unwritten(&error))?;
        call.session.calls += 1;
        let approved = request.approved.as_deref();
        let outcome = tools::outcome(self.tool(permitted, &mut call, approved));
        Ok(match seat.as_ref().and_then(Seat::cut) {
            Some(since) => (stop::told(tool, &since, outcome), true),
            None => (outcome, true),
        })
    }

    /// Runs the tool that was permitted.
    fn tool(
        &self,
        permitted: Permitted,
        call: &mut Call<'_>,
        approved: Option<&str>,
    ) -> Result<Reply, Failure> {
        let place = &self.workplace;
        let cancel = call.cancel;
        let session = &mut *call.session;
        match permitted {
            Permitted::ListRoots => Ok(Reply::Roots(place.list_roots())),
            Permitted::ListFiles(p) => file_tools::list_files(place, &p, cancel).map(Reply::Files),
            Permitted::ReadFile(p) => file_tools::read_file(place, &p, session).map(Reply::File),
            Permitted::SearchFiles(p) => search::search_files(place, &p, cancel).map(Reply::Hits),
            Permitted::WriteFile(p) => {
                file_tools::write_file(place, &p, session, cancel).map(Reply::Written)
            }
            Permitted::EditFile(p) => file_tools::edit_file(place, &p, cancel).map(Reply::Edited),
            Permitted::GitStatus(p) => git_read::status(place, &p, cancel).map(Reply::Status),
            Permitted::GitDiff(p) => git_read::diff(place, &p, session, cancel).map(Reply::Diff),
            Permitted::GitLog(p) => git_read::log(place, &p, cancel).map(Reply::Log),
            Permitted::GitShow(p) => git_read::show(place, &p, session, cancel).map(Reply::Commit),
            Permitted::GitBranches(p) => git_read::branches(place, &p).map(Reply::Branches),
            Permitted::ReadOutput { handle, offset } => {
                session.read_on(&handle, offset, place.limits.max_bytes).map(Reply::Output)
            }
            Permitted::ReserveId(p) => {
                record_tools::reserve_id(place, &p, cancel).map(Reply::Reserved)
            }
            Permitted::GitCommit(p) => {
                let asked =
                    Asked { peer: call.peer, key: call.key, approved, approvals: &self.approvals };
                let keep = |done: &Committed| self.keep(call.key, &Reply::Committed(done.clone()));
                git_commit::commit(place, &p, session, cancel, &asked, keep)
            }
            Permitted::GitPull(p) => git_pull::pull(place, &p, cancel).map(Reply::Pulled),
            Permitted::GitPush(p) => git_remote::push(place, &p, cancel).map(Reply::Pushed),
            Permitted::WebFetch(p) => web::fetch(place, &p, session, cancel).map(Reply::Page),
            Permitted::WebSearch(p) => web::search(place, &p, cancel).map(Reply::Found),
        }
    }

    /// Keeps what a writing call did. That it cannot be kept does not undo it: it is said in the log.
    fn keep(&self, key: &CallKey, reply: &Reply) {
        if let Err(error) = self.outcomes.keep(key, reply) {
            tracing::error!(%error, "an outcome cannot be kept");
        }
    }

    /// The second line of a call. That it cannot be written does not undo what was done: it is said
    /// in the log, and the next call will be refused.
    fn write_down(
        &self,
        about: Value,
        outcome: &Outcome,
        took_ms: u64,
        too_often: Option<TooOften>,
    ) {
        let (event, more) = match (outcome, too_often) {
            (_, Some(TooOften { tell: None, .. })) => return,
            (Outcome::Refusal(refusal), Some(TooOften { tell: Some(times), .. })) => {
                ("refused", json!({"code": refusal.code.as_str(), "times": times}))
            }
            (outcome, _) => audit::ended(outcome),
        };
        match outcome {
            Outcome::Reply(_) => tracing::info!(took_ms, "done"),
            Outcome::Refusal(no) => tracing::info!(took_ms, code = no.code.as_str(), "refused"),
            Outcome::Fault(fault) => tracing::error!(took_ms, "{}", one_line(&fault.message)),
        }
        let said = audit::with(audit::with(about, more), json!({"durationMs": took_ms}));
        if let Err(error) = self.audit.append(event, said) {
            tracing::error!(%error, "the audit cannot be written");
        }
    }

    /// What would become of a call: the fence is asked, and nothing is done or counted.
    fn explain(&self, uid: u32, request: Request) -> Result<Explanation, Fault> {
        let peer = &self.peers[&uid];
        let now = Instant::now();
        if let Err(too_often) = peer.explained.take(now) {
            let seconds = rate::seconds(too_often.wait);
            return Err(Fault::new(format!(
                "this peer has asked too often in the last minute; ask again in {seconds} s"
            )));
        }
        let about = audit::about(uid, &request);
        let stopped = self.look_for_stop().map(|order| order.at);
        let caller = Caller {
            may_speak_for: &peer.requesters,
            turn: &request.turn,
            calls_before: self.sessions.calls(uid, &request.turn.id),
            wait: peer.rate.wait(now).map(rate::seconds),
            stopped: stopped.as_deref(),
        };
        let explanation = explain::explain(&self.workplace, caller, request.call);
        let code = explanation.refusal.as_ref().map(|no| no.code.as_str());
        let more = json!({"allowed": code.is_none(), "code": code});
        self.audit.append("explained", audit::with(about, more)).map_err(|error| {
            Fault::new(format!("the audit cannot be written ({error}), so nothing is explained"))
        })?;
        Ok(explanation)
    }

    fn describe(&self, uid: u32) -> Description {
        let names = |peer: &Peer| peer.requesters.iter().map(|r| r.as_str().to_owned()).collect();
        Description {
            protocol_version: PROTOCOL_VERSION,
            roots: self.workplace.root_infos(),
            tools: fence::offered(&self.workplace.ground),
            requesters: self.peers.get(&uid).map(names).unwrap_or_default(),
            degraded: self.workplace.degraded.clone(),
            stopped: self.stopped(),
        }
    }

    fn status(&self) -> Status {
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started: self.tally.started().to_owned(),
            stopped: self.stopped(),
            degraded: self.workplace.degraded.clone(),
            counters: self.tally.so_far(),
        }
    }

    fn stopped(&self) -> Option<Stopped> {
        stop::standing(&self.workplace.state_dir)
            .map(|order| Stopped { by: order.who(), since: order.at })
    }

    /// A connection that was turned away. That it cannot be written down is said in the log.
    fn write_down_turned_away(&self, uid: u32, why: TurnedAway) {
        let said = json!({"peer": uid, "reason": why.as_str()});
        if let Err(error) = self.audit.append("turned_away", said) {
            tracing::error!(%error, "the audit cannot be written");
        }
    }
}

/// What every line of the log about a call begins with.
fn span(uid: u32, request: &Request) -> tracing::Span {
    tracing::info_span!(
        "call",
        turn = %shown(&request.turn.id),
        call = %shown(&request.id),
        tool = request.call.name().as_str(),
        peer = uid,
    )
}

/// An id for a log: it comes from a peer.
fn shown(id: &str) -> String {
    one_line(&id.chars().take(64).collect::<String>())
}

fn unwritten(error: &std::io::Error) -> Fault {
    Fault::new(format!(
        "the audit cannot be written ({error}), so nothing was done; the operator makes room on the disk"
    ))
}

fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// Whether the same call may be allowed a moment later, with nothing else changed.
fn for_the_moment(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Refusal(no) if matches!(no.code, Code::Stopped | Code::Busy))
}
