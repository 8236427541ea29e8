//! One turn, from a message to what is said back.
//!
//! [`run`] reads like the picture of the design: each stage takes what only the stage before it can
//! make, so that a step that was forgotten does not compile.
//!
//! What must stay true: the message is in the inbox before anything else happens, the admission is on
//! disk before the engine runs, the record is on disk before the answer is sent. A turn that is cut
//! short drops its call in flight, which makes the executor stop it. Nothing here knows Discord from a
//! terminal, or one engine from another.

use std::time::Instant;

use protocol::refusal::{Code, Outcome, Refusal};
use protocol::reply::{Plan, Reply};
use protocol::service::Request;
use protocol::tool::ToolCall;
use protocol::turn::Turn;
use protocol::wire::WireError;
use tracing::Instrument as _;

use crate::binding::Limits;
use crate::clock::Clock;
use crate::delivery::{Delivery, Kind, Part, Sent};
use crate::engine::{Answer, Engine, EngineError, ToolRunner};
use crate::journal::{self, Admission, Admitted, DropReason, Dropped, Journal, JournalError};
use crate::message::{Incoming, MessageId};
use crate::prompt::{self, Prompt};
use crate::record::{
    CallRecord, CallResult, DeliveryRecord, RECORD_VERSION, TextDigest, TurnOutcome, TurnRecord,
};
use crate::tools::Tools;

/// What turns need, and share.
pub struct Seat<E> {
    /// Makes every step durable.
    pub journal: Journal,
    /// Thinks.
    pub engine: E,
    /// Reaches the executor.
    pub tools: Tools,
    /// Bounds every turn.
    pub limits: Limits,
    /// Tells the time.
    pub clock: Box<dyn Clock>,
}

/// How a message was dealt with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// It was seen before; nothing was done.
    Known,
    /// It got no turn.
    Dropped {
        /// Why.
        reason: DropReason,
        /// Whether a line says so.
        told: bool,
    },
    /// It got a turn, which has its record.
    Turn(TurnOutcome),
}

/// Takes a message all the way. One at a time: the seat is borrowed until it is done.
///
/// # Errors
/// When the journal cannot be written. Nothing may go on then, so the caller has to stop.
pub async fn run<E: Engine, D: Delivery>(
    incoming: Incoming,
    seat: &mut Seat<E>,
    delivery: &mut D,
    abort: impl Future<Output = ()> + Send,
) -> Result<Ended, JournalError> {
    let Some(accepted) = seat.journal.accept(incoming, seat.clock.now())? else {
        return Ok(Ended::Known);
    };
    let admission = seat.journal.admit(accepted, &seat.limits, seat.clock.now())?;
    go_on(admission, seat, delivery, abort).await
}

/// Takes a message from its admission on. Its budget of time starts here, however long it waited.
///
/// # Errors
/// When the journal cannot be written.
pub async fn go_on<E: Engine, D: Delivery>(
    admission: Admission,
    seat: &mut Seat<E>,
    delivery: &mut D,
    abort: impl Future<Output = ()> + Send,
) -> Result<Ended, JournalError> {
    let admitted = match admission {
        Admission::Admitted(admitted) => admitted,
        Admission::Dropped(dropped) => return decline(dropped, seat, delivery).await,
    };
    let span = tracing::info_span!("turn", id = %admitted.incoming().id);
    take(admitted, seat, delivery, abort).instrument(span).await
}

async fn take<E: Engine, D: Delivery>(
    admitted: Admitted,
    seat: &mut Seat<E>,
    delivery: &mut D,
    abort: impl Future<Output = ()> + Send,
) -> Result<Ended, JournalError> {
    delivery.begun();
    let thought = think(&admitted, seat, delivery, abort).await?;
    let (parts, outcome) = phrase(&admitted, &thought, delivery);
    let receipt = delivery.receipt(&admitted.incoming().id);
    let record = write_up(&admitted, thought, &outcome, (receipt, &parts), seat);
    // All of the answer, before the record: a crash from there on loses no part of it.
    seat.journal.keep(&parts, delivery.destination())?;
    tracing::info!(calls = record.calls.len(), took_ms = record.latency_ms, "{}", outcome.as_str());
    let _recorded = seat.journal.record(admitted, &record)?;
    deliver(parts, seat, delivery).await?;
    Ok(Ended::Turn(outcome))
}

/// A message without a turn gets at most a fixed line.
async fn decline<E: Engine, D: Delivery>(
    dropped: Dropped,
    seat: &mut Seat<E>,
    delivery: &mut D,
) -> Result<Ended, JournalError> {
    let Dropped { id, reason, tell } = dropped;
    if tell && let Some((kind, line)) = refusal(reason, &seat.limits) {
        deliver(vec![Part::fixed(&id, kind, line)], seat, delivery).await?;
    }
    Ok(Ended::Dropped { reason, told: tell })
}

/// The fixed line for a message without a turn; none for what is passed over in silence.
fn refusal(reason: DropReason, limits: &Limits) -> Option<(Kind, String)> {
    match reason {
        DropReason::TooLong => Some((
            Kind::TooLong,
            format!(
                "That message is too long: I read at most {} characters at once.",
                limits.max_message_chars
            ),
        )),
        DropReason::NoText => Some((
            Kind::NoText,
            "I read text alone; I cannot see attachments or stickers. Please write it.".to_owned(),
        )),
        DropReason::OverCeiling => Some((
            Kind::OverCeiling,
            format!(
                "That was all for today: I take {} turns a day. I am back at midnight UTC.",
                limits.turns_per_day
            ),
        )),
        DropReason::Stopping | DropReason::Rule(_) => None,
    }
}

/// What came of letting the engine work.
struct Thought {
    answer: Result<Answer, Cut>,
    calls: Vec<CallRecord>,
    /// What the person was asked on the way.
    asked: Vec<Part>,
}

/// Why there is no answer.
enum Cut {
    Engine(EngineError),
    TimedOut,
    Aborted,
}

/// Lets the engine work until it answers, its time is up, or the person stops it.
async fn think<E: Engine, D: Delivery>(
    admitted: &Admitted,
    seat: &mut Seat<E>,
    delivery: &mut D,
    abort: impl Future<Output = ()> + Send,
) -> Result<Thought, JournalError> {
    let incoming = admitted.incoming();
    let limit = seat.limits.turn_timeout();
    let mut runner = Runner {
        tools: &mut seat.tools,
        delivery,
        journal: &mut seat.journal,
        clock: seat.clock.as_ref(),
        id: incoming.id.clone(),
        turn: Turn {
            id: incoming.id.as_str().to_owned(),
            requester: incoming.requester.clone(),
            origin: incoming.origin,
        },
        max_calls: seat.limits.max_calls_per_turn,
        calls: Vec::new(),
        asked: Vec::new(),
        broken: None,
        began: Instant::now(),
    };
    let engine = &mut seat.engine;
    let work = async {
        let offer = runner.tools.describe().await?;
        engine.run_turn(&Prompt::new(incoming, offer), &mut runner).await
    };
    let answer = tokio::select! {
        biased;
        () = abort => Err(Cut::Aborted),
        worked = tokio::time::timeout(limit, work) => match worked {
            Ok(answer) => answer.map_err(Cut::Engine),
            Err(_) => Err(Cut::TimedOut),
        },
    };
    runner.into_thought(answer)
}

/// Does the engine's calls: counts them, names them, records them.
struct Runner<'a, D> {
    tools: &'a mut Tools,
    delivery: &'a mut D,
    journal: &'a mut Journal,
    clock: &'a dyn Clock,
    id: MessageId,
    turn: Turn,
    max_calls: u32,
    calls: Vec<CallRecord>,
    asked: Vec<Part>,
    /// The journal could not be written: the turn ends with that.
    broken: Option<JournalError>,
    /// When the last call began.
    began: Instant,
}

impl<D: Delivery> Runner<'_, D> {
    /// What was done; the last call may have been cut short, and took until now.
    fn into_thought(mut self, answer: Result<Answer, Cut>) -> Result<Thought, JournalError> {
        if let Some(error) = self.broken {
            return Err(error);
        }
        if let Some(last) = self.calls.last_mut().filter(|c| c.result == CallResult::Abandoned) {
            last.duration_ms = millis(self.began);
        }
        Ok(Thought { answer, calls: self.calls, asked: self.asked })
    }

    /// Asks the requester about a plan, between the question's intent and its result in the outbox.
    async fn approved(&mut self, plan: &Plan) -> Result<Word, JournalError> {
        let Some(text) = self.delivery.question(plan) else { return Ok(Word::NotAsked) };
        let question = Part::question(&self.id, self.asked.len() + 1, text);
        // It ends with this process, so it has no destination that would outlive it.
        let intended = self.journal.intend(&question, None, self.clock.now())?;
        self.asked.push(question.clone());
        let sent = self.delivery.ask(&question).await;
        let seen = !matches!(sent, Sent::Refused { .. });
        self.journal.settle(intended, sent, self.clock.now())?;
        Ok(if seen && self.delivery.answered().await { Word::Yes } else { Word::No })
    }
}

/// What came of asking a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    Yes,
    No,
    NotAsked,
}

impl<D: Delivery> ToolRunner for Runner<'_, D> {
    async fn call(&mut self, call: ToolCall) -> Result<Outcome, WireError> {
        let outcome = self.once(call.clone(), None).await?;
        let Outcome::Reply(Reply::ApprovalNeeded(plan)) = outcome else { return Ok(outcome) };
        // The plan is the requester's to approve: the engine sees only what became of it.
        let word = match self.approved(&plan).await {
            Ok(Word::Yes) => return self.once(call, Some(plan.digest)).await,
            Ok(word) => word,
            Err(error) => {
                self.broken = Some(error);
                Word::No
            }
        };
        let (message, hint) = if word == Word::NotAsked {
            let message = "The plan is too long to be shown whole here, so nobody was asked.";
            (message.to_owned(), "Nothing was committed. Commit fewer files at a time.")
        } else {
            let message = format!("{} did not approve the commit.", plan.requester);
            (message, "Nothing was committed. Ask what should be different.")
        };
        Ok(Outcome::Refusal(Refusal::new(Code::ApprovalNeeded, message, hint)))
    }
}

impl<D: Delivery> Runner<'_, D> {
    async fn once(
        &mut self,
        call: ToolCall,
        approved: Option<String>,
    ) -> Result<Outcome, WireError> {
        let number = self.calls.len() + 1;
        let id = format!("{}-{number}", self.turn.id);
        let within = u32::try_from(number).is_ok_and(|number| number <= self.max_calls);
        self.calls.push(CallRecord::begun(id.clone(), &call));
        self.began = Instant::now();
        let outcome = if within {
            self.tools.call(Request { id, turn: self.turn.clone(), call, approved }).await
        } else {
            Ok(Outcome::Refusal(Refusal::new(
                Code::TooManyCalls,
                format!("This turn has made its {} calls.", self.max_calls),
                "Say what is done and what is left.",
            )))
        };
        if let Some(record) = self.calls.last_mut() {
            record.duration_ms = millis(self.began);
            match &outcome {
                Ok(outcome) => record.ended(outcome),
                Err(error) => record.result = CallResult::Lost { reason: error.to_string() },
            }
            let result = record.result.as_str();
            tracing::info!(call = %record.id, tool = record.tool.as_str(), took_ms = record.duration_ms, "{result}");
        }
        outcome
    }
}

/// Decides what to say. A turn that failed says a fixed line, never a part of what it produced.
fn phrase<D: Delivery>(
    admitted: &Admitted,
    thought: &Thought,
    delivery: &D,
) -> (Vec<Part>, TurnOutcome) {
    let id = &admitted.incoming().id;
    let failed = |line: &str| vec![Part::fixed(id, Kind::Failed, line.to_owned())];
    match &thought.answer {
        Ok(answer) if !answer.text.trim().is_empty() => {
            (Part::of_reply(id, delivery.split(&answer.text)), TurnOutcome::Answered)
        }
        Ok(_) => {
            (failed(FAILED), TurnOutcome::Failed { reason: "the engine said nothing".to_owned() })
        }
        Err(Cut::Engine(error)) => {
            (failed(FAILED), TurnOutcome::Failed { reason: error.to_string() })
        }
        Err(Cut::TimedOut) => (failed(TIMED_OUT), TurnOutcome::TimedOut),
        Err(Cut::Aborted) => (failed(ABORTED), TurnOutcome::Aborted),
    }
}

const FAILED: &str = "I could not finish that. What was done before it failed stands; please look before asking again.";
const TIMED_OUT: &str = "That took too long and was stopped. What was done before stands; please look before asking again.";
const ABORTED: &str = "Stopped. What was done before stands; please look before asking again.";

fn write_up<E: Engine>(
    admitted: &Admitted,
    thought: Thought,
    outcome: &TurnOutcome,
    (receipt, parts): (Option<Part>, &[Part]),
    seat: &Seat<E>,
) -> TurnRecord {
    let incoming = admitted.incoming();
    let said = receipt.iter().chain(&thought.asked).chain(parts);
    TurnRecord {
        version: RECORD_VERSION,
        id: incoming.id.clone(),
        source: journal::source(incoming),
        received: admitted.received(),
        finished: seat.clock.now(),
        latency_ms: Some(millis(admitted.since())),
        engine: Some(seat.engine.name().to_owned()),
        envelope: Some(TextDigest::of(&prompt::envelope(incoming))),
        outcome: outcome.clone(),
        calls: thought.calls,
        deliveries: said.map(DeliveryRecord::from).collect(),
        usage: thought.answer.ok().and_then(|answer| answer.usage),
    }
}

/// Sends each part once, between its intent and its result in the outbox.
async fn deliver<E: Engine, D: Delivery>(
    parts: Vec<Part>,
    seat: &mut Seat<E>,
    delivery: &mut D,
) -> Result<(), JournalError> {
    for part in parts {
        let intended = seat.journal.intend(&part, delivery.destination(), seat.clock.now())?;
        let sent = delivery.send(&part).await;
        seat.journal.settle(intended, sent, seat.clock.now())?;
    }
    Ok(())
}

fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
