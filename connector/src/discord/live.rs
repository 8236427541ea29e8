//! Sage in Discord, put together: the gateway's events to the intake, presses to the approvals, the
//! turns one after the other, signals, and the service manager.
//!
//! [`serve`] is a straight sequence: brake and lock, journal, reconciliation, network, then one loop that
//! only hands on. It ends when it is told to, when Discord will not have it, or when the journal breaks.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot};

use super::approve::{Approvals, Pressed};
use super::event::{Event, Places, Press};
use super::gateway::{self, Happened, close};
use super::intake::{self, Current, Intake};
use super::network::Network;
use super::reply;
use super::rest::Rest;
use super::run;
use crate::binding::{Binding, BindingError, Discord};
use crate::clock::{Clock as _, SystemClock};
use crate::confinement;
use crate::engine::{AnyEngine, launch};
use crate::journal::Journal;
use crate::lock::Lock;
use crate::manager;
use crate::metrics::Connections;
use crate::owner;
use crate::tools::Tools;
use crate::turn::Seat;

/// How a service ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// Somebody told it to.
    Told,
    /// Discord will not have it; what to do.
    Refused(String),
}

/// Serves a binding until it is told to stop.
///
/// # Errors
/// When it cannot start, or the journal cannot be written.
pub async fn serve(path: &Path, supervised: bool) -> Result<Ended> {
    let binding = Binding::load(path)?;
    let section = binding.discord.clone().ok_or_else(|| no_section(path))?;
    let token = section.token.read()?;
    let engine = AnyEngine::new(&binding.engine, &binding.folder())?;
    let folder = binding.folder();
    if supervised {
        owner::recover(&folder)?;
    }
    let _claim = owner::claim(&folder)?;
    let mut journal = Journal::open(Lock::take(&folder)?)?;
    for torn in journal.damage() {
        tracing::warn!("{torn}");
    }
    for id in journal.recover(SystemClock.now())? {
        tracing::warn!(turn = %id, "this turn was interrupted; it has its record and is not repeated");
    }
    launch::keep(&folder, &engine, SystemClock.now())?;
    let mut signals = Signals::new().context("the signals cannot be taken over")?;

    let trust = section.ca_file.as_deref();
    let rest =
        Rest::new(section.rest_url.as_deref(), token.clone(), trust).map_err(anyhow::Error::msg)?;
    let mut config = gateway::Config::new(token, section.gateway_url.clone(), trust)
        .map_err(anyhow::Error::msg)?;
    if let Some(pace) = section.gateway_pace_milliseconds {
        config.first_wait = Duration::from_millis(pace);
    }
    // Everything is read that is read once. From here on there is no way back.
    confinement::confine(path, &binding, &engine, true)?;

    let network = Network::new(rest.clone());
    let unsettled = tokio::select! {
        done = reply::reconcile(&mut journal, &network, || SystemClock.now()) => done?,
        // What is not settled stays so for the next start.
        () = told(&mut signals.terminate, &mut signals.interrupt) => return Ok(Ended::Told),
    };
    if unsettled > 0 {
        bail!(
            "{unsettled} earlier messages may or may not have arrived, and Discord does not say; \
             start again: after five minutes they count as refused"
        );
    }
    let events = gateway::start(config, rest.clone());
    Service::new(path, binding, section, journal, engine, network).run(events, signals, rest).await
}

fn no_section(path: &Path) -> BindingError {
    BindingError::Invalid {
        path: path.display().to_string(),
        key: "discord".to_owned(),
        reason: "this section is missing; without it there is only `sage-connector chat`"
            .to_owned(),
    }
}

/// The signals that mean something.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }
}

/// How many messages wait for the intake, which may be looking a thread up. While there is no room, no
/// event is taken from the gateway's own queue.
const INBOX: usize = 256;

struct Service<'a> {
    path: &'a Path,
    running: Binding,
    current: intake::Shared,
    intake: Option<Intake<Network>>,
    /// Whether the intake lets nothing more in.
    closed: Arc<AtomicBool>,
    places: Places,
    approvals: Arc<Approvals>,
    network: Network,
    connections: Connections,
    bot: String,
    seat: Option<Seat<AnyEngine>>,
    queue: Option<mpsc::UnboundedReceiver<intake::Queued>>,
}

impl<'a> Service<'a> {
    fn new(
        path: &'a Path,
        binding: Binding,
        section: Discord,
        journal: Journal,
        engine: AnyEngine,
        network: Network,
    ) -> Self {
        let approvals = Approvals::new(Duration::from_secs(section.approval_timeout_seconds));
        let bot = section.bot.clone();
        let connections = Connections::open(&binding.folder());
        let limits = binding.limits.clone();
        let current = Arc::new(RwLock::new(Current { discord: section, limits: limits.clone() }));
        let (send, queue) = mpsc::unbounded_channel();
        let closed = Arc::new(AtomicBool::new(false));
        let intake = Intake {
            port: network.clone(),
            journal: journal.clone(),
            current: Arc::clone(&current),
            folder: binding.folder(),
            clock: Box::new(SystemClock),
            queue: send,
            parents: HashMap::new(),
            closed: Arc::clone(&closed),
        };
        let seat = Seat {
            journal,
            engine,
            tools: Tools::new(binding.executor.socket.clone()),
            limits,
            clock: Box::new(SystemClock),
        };
        Self {
            path,
            running: binding,
            current,
            intake: Some(intake),
            closed,
            places: Places::default(),
            approvals,
            network,
            connections,
            bot,
            seat: Some(seat),
            queue: Some(queue),
        }
    }

    async fn run(
        mut self,
        mut events: mpsc::Receiver<Happened>,
        mut signals: Signals,
        rest: Rest,
    ) -> Result<Ended> {
        let (mut seat, queue, intake) =
            match (self.seat.take(), self.queue.take(), self.intake.take()) {
                (Some(seat), Some(queue), Some(intake)) => (seat, queue, intake),
                _ => bail!("a service runs once"),
            };
        let (network, approvals) = (self.network.clone(), Arc::clone(&self.approvals));
        let current = Arc::clone(&self.current);
        let (stop, stopped) = oneshot::channel::<()>();
        let stopping = async {
            // Dropped or sent: both mean that it is time.
            let _ = stopped.await;
        };
        let turns = run::turns(&mut seat, &network, &approvals, &current, queue, stopping);
        let mut turns = pin!(turns);
        let (hand, inbox) = mpsc::channel(INBOX);
        let mut taking = pin!(intake.run(inbox));
        let mut stop = Some(stop);
        let mut open = true;
        let mut ended = Ended::Told;
        let mut pulse = manager::Pulse::new();
        loop {
            tokio::select! {
                done = &mut turns => {
                    done?;
                    manager::status("ended");
                    return Ok(ended);
                }
                broken = &mut taking => broken?,
                (slot, happened) = next(&hand, &mut events), if open => match happened {
                    Some(Happened::Fatal { code, what }) => {
                        tracing::error!(code, "{what}");
                        ended = Ended::Refused(what);
                        (stop, open) = (None, false);
                    }
                    Some(happened) => self.deal_with(happened, slot)?,
                    None => (stop, open) = (None, false),
                },
                () = rest.token_refused(), if open => {
                    tracing::error!("{}", close::NO_TOKEN);
                    ended = Ended::Refused(close::NO_TOKEN.to_owned());
                    (stop, open) = (None, false);
                }
                _ = signals.hangup.recv() => self.reload(),
                () = told(&mut signals.terminate, &mut signals.interrupt), if stop.is_some() => {
                    manager::stopping();
                    tracing::info!("told to end; the turn under way is finished first");
                    // Its question may still be answered; messages are passed over.
                    self.closed.store(true, Ordering::Relaxed);
                    stop = None;
                }
                () = pulse.next() => {}
            }
        }
    }

    fn deal_with(&mut self, happened: Happened, slot: Slot<'_>) -> Result<()> {
        match happened {
            Happened::Ready { bot, gap } => {
                if bot != self.bot {
                    bail!(
                        "the token belongs to the bot {bot}, and the binding names {}; \
                         put the right token or the right `discord.bot`",
                        self.bot
                    );
                }
                self.connections.note("ready", SystemClock.now());
                match gap {
                    Some(gap) => tracing::warn!(
                        seconds = gap.as_secs(),
                        "a new session: what was written in between is not made up for"
                    ),
                    None => tracing::info!("connected"),
                }
                manager::ready("connected");
            }
            Happened::Resumed => {
                self.connections.note("resumed", SystemClock.now());
                tracing::info!("resumed");
                manager::status("connected");
            }
            Happened::Down { reason, next } => {
                self.connections.note("down", SystemClock.now());
                tracing::warn!(%reason, next_ms = next.as_millis(), "not connected");
                manager::status("not connected");
            }
            Happened::Event { kind, data } => match self.places.read(&kind, &data) {
                Event::Message(message) => {
                    let parent = self.places.parent(&message.channel);
                    if let Some(slot) = slot {
                        slot.send((*message, parent));
                    }
                }
                Event::Press(press) => self.pressed(press),
                Event::Other => {}
            },
            Happened::Fatal { .. } => {}
        }
        Ok(())
    }

    /// Judges a press and answers it, which has three seconds.
    fn pressed(&self, press: Press) {
        let verdict = self.approvals.press(&press.custom_id, &press.user);
        let Some(body) = answer(verdict) else { return };
        let network = self.network.clone();
        tokio::spawn(async move { network.answer(&press.id, &press.token, body).await });
    }

    fn reload(&self) {
        match intake::reload(&self.current, &self.running, self.path) {
            Ok(()) => {
                let current = self.current.read().unwrap_or_else(PoisonError::into_inner);
                let (channels, users) =
                    (current.discord.channels.len(), current.discord.users.len());
                tracing::info!(channels, users, "the binding was read anew");
            }
            Err(error) => tracing::error!("the binding was not read anew: {error}"),
        }
    }
}

/// What a press is answered with.
fn answer(verdict: Pressed) -> Option<serde_json::Value> {
    // 7 changes the message that has the buttons; 4 with the flag 64 is seen by who pressed alone.
    let only_you = |text: &str| {
        json!({"type": 4, "data": {
            "content": text, "flags": 64, "allowed_mentions": {"parse": []},
        }})
    };
    Some(match verdict {
        Pressed::Decided(yes) => {
            let word = if yes { "Approved." } else { "Not approved." };
            json!({"type": 7, "data": {
                "content": word, "components": [], "allowed_mentions": {"parse": []},
            }})
        }
        Pressed::NotYours => only_you("This is for the person who asked to decide."),
        Pressed::Void => only_you("This question is no longer open. Ask again."),
        Pressed::Foreign => return None,
    })
}

/// Room for a message in the intake's inbox.
type Slot<'a> = Option<mpsc::Permit<'a, intake::Told>>;

/// What happened next, once there is room for it. Loses nothing when it is given up.
async fn next<'a>(
    hand: &'a mpsc::Sender<intake::Told>,
    events: &mut mpsc::Receiver<Happened>,
) -> (Slot<'a>, Option<Happened>) {
    let slot = hand.reserve().await.ok();
    (slot, events.recv().await)
}

async fn told(terminate: &mut Signal, interrupt: &mut Signal) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}
