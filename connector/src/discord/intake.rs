//! The way in: event, authorisation, inbox, admission, queue.
//!
//! What must stay true: an event is dealt with whole before the next one, so that the same message
//! cannot be let in twice while a thread is looked up; what is accepted is in the inbox, and counted,
//! before it is queued; a stranger costs a line and no request; while the brake is on, nothing is let
//! in. It runs beside the turn, never in it.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use policy::admission::{Facts, Mode, Parent, Rule, Rules, Verdict, decide};
use protocol::turn::Origin;
use tokio::sync::mpsc::{Receiver, UnboundedSender};

use super::port::Port;
use crate::binding::{Binding, BindingError, Discord, Limits};
use crate::clock::Clock;
use crate::delivery::{Destination, Part};
use crate::journal::{Admission, DropReason, Journal, JournalError};
use crate::message::{Incoming, MessageId};
use crate::owner;

/// A message as Discord tells of it. Ids are snowflakes as text; names are anybody's.
#[derive(Debug, Clone, Default)]
#[allow(clippy::struct_excessive_bools)] // Each is a fact of its own on the wire.
pub struct Message {
    /// Its id.
    pub id: String,
    /// Absent in a direct message.
    pub guild: Option<String>,
    /// The channel or thread.
    pub channel: String,
    /// The name of the channel, or of the thread's parent.
    pub channel_name: String,
    /// The thread's name.
    pub thread_name: Option<String>,
    /// The author's id.
    pub author: String,
    /// The author as shown.
    pub author_name: String,
    /// `author.bot` or `author.system`.
    pub automatic: bool,
    /// Whether a webhook wrote it.
    pub webhook: bool,
    /// Discord's message type.
    pub kind: u64,
    /// Whether this changes an earlier message.
    pub edit: bool,
    /// Ids of the users mentioned.
    pub mentions: Vec<String>,
    /// The text.
    pub text: String,
}

/// What can be changed without a restart, always all at once.
#[derive(Debug, Clone)]
pub struct Current {
    /// The guild's section.
    pub discord: Discord,
    /// Limits of turns.
    pub limits: Limits,
}

/// Why a new binding is not taken.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// It cannot be read, or is not valid.
    #[error("{0}; the binding in force stays as it is")]
    Binding(#[from] BindingError),
    /// It changes what only a restart can.
    #[error(
        "`{0}` has changed, which takes a restart; the binding in force stays as it is: \
         only `limits`, `discord.channels` and `discord.users` change while it runs"
    )]
    NeedsRestart(&'static str),
}

/// Takes ceilings, channels and users from the binding's file, all at once or not at all.
///
/// # Errors
/// When the file is not a valid binding, or changes anything else. Nothing has changed then.
pub fn reload(current: &Shared, running: &Binding, path: &Path) -> Result<(), ReloadError> {
    let Binding {
        schema: _,
        name,
        data_root,
        executor,
        engine,
        limits,
        terminal,
        allow_degraded,
        discord,
    } = Binding::load(path)?;
    let mut now = current.write().unwrap_or_else(PoisonError::into_inner);
    let Some(discord) = discord else { return Err(ReloadError::NeedsRestart("discord")) };
    let fixed = Discord {
        channels: now.discord.channels.clone(),
        users: now.discord.users.clone(),
        ..discord.clone()
    };
    let same = [
        (name == running.name, "name"),
        (data_root == running.data_root, "dataRoot"),
        (executor == running.executor, "executor"),
        (engine == running.engine, "engine"),
        (terminal == running.terminal, "terminal"),
        (allow_degraded == running.allow_degraded, "allowDegraded"),
        (fixed == now.discord, "discord"),
    ];
    if let Some((_, key)) = same.into_iter().find(|(same, _)| !same) {
        return Err(ReloadError::NeedsRestart(key));
    }
    *now = Current { discord, limits };
    Ok(())
}

/// The binding in force; a reload swaps it whole.
pub type Shared = Arc<RwLock<Current>>;

/// A message in the queue, with its place.
#[derive(Debug)]
pub struct Queued {
    /// What the journal decided.
    pub admission: Admission,
    /// Where the answer goes.
    pub place: Destination,
    /// Who may approve.
    pub author: String,
}

/// A message with what the gateway told of its channel's parent, if it did.
pub type Told = (Message, Option<Option<String>>);

/// What became of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// It is in the queue, for a turn or for a fixed line.
    Queued,
    /// It was seen before.
    Known,
    /// It is passed over in silence.
    Passed(DropReason),
    /// It has no id that could name a turn.
    Malformed,
}

/// The way in.
pub struct Intake<P> {
    /// The way to Discord, for thread look-ups.
    pub port: P,
    /// The journal that the turns write too.
    pub journal: Journal,
    /// The binding in force.
    pub current: Shared,
    /// The binding's folder, where the brake is looked for.
    pub folder: PathBuf,
    /// Tells the time.
    pub clock: Box<dyn Clock>,
    /// To the turns.
    pub queue: UnboundedSender<Queued>,
    /// Channels that were looked up or told of, with their parents.
    pub parents: HashMap<String, Option<String>>,
    /// Set when nothing more is let in: it is about to end.
    pub closed: Arc<AtomicBool>,
}

impl<P: Port> Intake<P> {
    /// Deals with messages in their order, until there are no more.
    ///
    /// # Errors
    /// When the journal cannot be written. Nothing may go on then.
    pub async fn run(mut self, mut inbox: Receiver<Told>) -> Result<(), JournalError> {
        while let Some((message, parent)) = inbox.recv().await {
            if let Some(parent) = parent {
                self.parents.insert(message.channel.clone(), parent);
            }
            let taken = self.take(message).await?;
            tracing::debug!(?taken, "a message");
        }
        Ok(())
    }

    /// Deals with one event.
    ///
    /// # Errors
    /// When the journal cannot be written. Nothing may go on then.
    pub async fn take(&mut self, message: Message) -> Result<Taken, JournalError> {
        let Ok(id) = MessageId::parse(&message.id) else { return Ok(Taken::Malformed) };
        let current = self.current.read().unwrap_or_else(PoisonError::into_inner).clone();
        let Discord { guild, bot, channels, users, .. } = &current.discord;
        let requester = match self.authorise(&message, guild, bot, channels, users).await {
            Ok(requester) => requester,
            Err(rule) => return self.pass_over(&id, DropReason::Rule(rule)),
        };
        let place = Destination { channel: message.channel, reply_to: message.id };
        let incoming = Incoming {
            id: id.clone(),
            origin: Origin::Discord,
            requester: Some(requester),
            channel: message.channel_name,
            thread: message.thread_name,
            author: message.author_name,
            text: message.text,
        };
        let closed = self.closed.load(Ordering::Relaxed);
        if closed || self.queue.is_closed() || owner::is_braked(&self.folder) {
            return self.pass_over(&id, DropReason::Stopping);
        }
        let now = self.clock.now();
        let Some(accepted) = self.journal.accept(incoming, now)? else { return Ok(Taken::Known) };
        let admission = self.journal.admit(accepted, &current.limits, now)?;
        if matches!(admission, Admission::Admitted(_)) {
            self.show_receipt(&id, &place);
        }
        // A queue that closed meanwhile leaves an admitted message, which recovery gives its record.
        let _ = self.queue.send(Queued { admission, place, author: message.author });
        Ok(Taken::Queued)
    }

    /// Beside the turn: nothing waits for it, and it is never tried again.
    fn show_receipt(&self, id: &MessageId, message: &Destination) {
        let (port, mut journal) = (self.port.clone(), self.journal.clone());
        let (receipt, message, now) = (Part::receipt(id), message.clone(), self.clock.now());
        tokio::spawn(async move {
            let sent = port.eyes(&message).await;
            if let Err(error) = journal.note(&receipt, sent, now) {
                tracing::error!(%error, "what became of a receipt is not written down");
            }
        });
    }

    fn pass_over(&mut self, id: &MessageId, reason: DropReason) -> Result<Taken, JournalError> {
        self.journal.pass_over(id, reason, self.clock.now())?;
        Ok(Taken::Passed(reason))
    }

    /// For whom the message is; looks a channel up at most once.
    async fn authorise(
        &mut self,
        message: &Message,
        guild: &str,
        bot: &str,
        channels: &BTreeMap<String, Mode>,
        users: &BTreeMap<String, String>,
    ) -> Result<String, Rule> {
        let rules = Rules { guild, bot, channels, users };
        let mut parent = self.parents.get(&message.channel).cloned();
        let mut looked = false;
        loop {
            let facts = Facts {
                guild: message.guild.as_deref(),
                channel: &message.channel,
                parent: match &parent {
                    None if looked => Parent::None,
                    None => Parent::Unknown,
                    Some(None) => Parent::None,
                    Some(Some(parent)) => Parent::Of(parent),
                },
                author: &message.author,
                automatic: message.automatic,
                webhook: message.webhook,
                kind: message.kind,
                edit: message.edit,
                mentions_bot: message.mentions.iter().any(|id| id == bot),
            };
            match decide(&rules, &facts) {
                Verdict::Admitted { requester, .. } => return Ok(requester.to_owned()),
                Verdict::Dropped(rule) => return Err(rule),
                Verdict::LookUp => {
                    looked = true;
                    if let Ok(found) = self.port.parent(&message.channel).await {
                        self.parents.insert(message.channel.clone(), found.clone());
                        parent = Some(found);
                    }
                }
            }
        }
    }
}
