//! Who may talk to Sage in a guild: one pure decision over the facts of an event.
//!
//! A message gets a turn only when every rule holds; the first that does not is the answer to "why was
//! it silent?". Only a listed author in the right guild can cause a look-up of a thread's parent, so a
//! stranger never costs a request. Names play no part: all is decided by id.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a channel is listened to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Mode {
    /// Every message of a listed author.
    All,
    /// Those that mention the bot itself. `@everyone` and roles are no such mention.
    Mention,
}

/// Who may talk where.
#[derive(Debug, Clone, Copy)]
pub struct Rules<'a> {
    /// The only guild.
    pub guild: &'a str,
    /// The bot's own user id.
    pub bot: &'a str,
    /// Channels by id. A thread is under the rule of its parent.
    pub channels: &'a BTreeMap<String, Mode>,
    /// Role names by user id.
    pub users: &'a BTreeMap<String, String>,
}

/// What is known of the parent of the channel a message is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parent<'a> {
    /// Nobody has looked.
    Unknown,
    /// It is no thread, or it cannot be seen.
    None,
    /// It is a thread of this channel.
    Of(&'a str),
}

/// The facts of one event. All ids are snowflakes as text.
#[derive(Debug, Clone, Copy)]
#[allow(clippy::struct_excessive_bools)] // Each is a fact of its own on the wire.
pub struct Facts<'a> {
    /// Absent in a direct message.
    pub guild: Option<&'a str>,
    /// The channel or thread.
    pub channel: &'a str,
    /// What is known of the channel's parent.
    pub parent: Parent<'a>,
    /// Who wrote it.
    pub author: &'a str,
    /// Discord's `author.bot` or `author.system`.
    pub automatic: bool,
    /// Whether a webhook wrote it; its author is then no user.
    pub webhook: bool,
    /// Discord's message type.
    pub kind: u64,
    /// Whether the event is a change of an earlier message.
    pub edit: bool,
    /// Whether the bot's own id is among the users mentioned.
    pub mentions_bot: bool,
}

/// The rule that a message fell under.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Rule {
    /// It is no message in a guild.
    DirectMessage,
    /// It is in another guild.
    OtherGuild,
    /// It changes an earlier message; only a new message starts a turn.
    Edit,
    /// A webhook wrote it.
    Webhook,
    /// A bot wrote it, or Discord, or Sage itself.
    Bot,
    /// It is not what somebody wrote: a join, a pin, a new thread's name.
    SystemMessage,
    /// Its author is not listed.
    UnlistedAuthor,
    /// Neither its channel nor that channel's parent is listed.
    UnlistedChannel,
    /// The channel wants a mention of the bot, and it has none.
    NotMentioned,
}

impl Rule {
    /// What the rule says, for the operator.
    #[must_use]
    pub fn says(self) -> &'static str {
        match self {
            Self::DirectMessage => "direct messages are not read; write in a listed channel",
            Self::OtherGuild => "it is in another guild than the binding's",
            Self::Edit => "an edit starts no turn; send a new message",
            Self::Webhook => "webhooks are not answered",
            Self::Bot => "bots are not answered, Sage itself included",
            Self::SystemMessage => "it is a system message, not something a person wrote",
            Self::UnlistedAuthor => "its author is not in `discord.users` of the binding",
            Self::UnlistedChannel => "its channel is not in `discord.channels` of the binding",
            Self::NotMentioned => "the channel is in mention mode, and the bot was not mentioned",
        }
    }
}

/// What to do with an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict<'a> {
    /// It may become a turn.
    Admitted {
        /// For whom, by role name.
        requester: &'a str,
        /// The listed channel it is under.
        listed: &'a str,
    },
    /// It is left alone, without a word.
    Dropped(Rule),
    /// Whether the channel is a thread of a listed one has to be looked up once.
    LookUp,
}

/// Message types that a person writes: a plain message, and a reply.
const WRITTEN: [u64; 2] = [0, 19];

/// Decides.
#[must_use]
pub fn decide<'a>(rules: &Rules<'a>, facts: &Facts<'a>) -> Verdict<'a> {
    let Some(guild) = facts.guild else { return Verdict::Dropped(Rule::DirectMessage) };
    let before_author = [
        (guild != rules.guild, Rule::OtherGuild),
        (facts.edit, Rule::Edit),
        (facts.webhook, Rule::Webhook),
        (facts.automatic || facts.author == rules.bot, Rule::Bot),
        (!WRITTEN.contains(&facts.kind), Rule::SystemMessage),
    ];
    if let Some((_, rule)) = before_author.into_iter().find(|(broken, _)| *broken) {
        return Verdict::Dropped(rule);
    }
    let Some(requester) = rules.users.get(facts.author) else {
        return Verdict::Dropped(Rule::UnlistedAuthor);
    };
    let listed = match (rules.channels.get(facts.channel), facts.parent) {
        (Some(mode), _) => Some((facts.channel, *mode)),
        (None, Parent::Unknown) => return Verdict::LookUp,
        (None, Parent::None) => None,
        (None, Parent::Of(parent)) => rules.channels.get(parent).map(|mode| (parent, *mode)),
    };
    match listed {
        None => Verdict::Dropped(Rule::UnlistedChannel),
        Some((_, Mode::Mention)) if !facts.mentions_bot => Verdict::Dropped(Rule::NotMentioned),
        Some((listed, _)) => Verdict::Admitted { requester, listed },
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{Facts, Mode, Parent, Rule, Rules, Verdict, decide};

    const PLAIN: Facts<'static> = Facts {
        guild: Some("1"),
        channel: "10",
        parent: Parent::Unknown,
        author: "100",
        automatic: false,
        webhook: false,
        kind: 0,
        edit: false,
        mentions_bot: false,
    };
    const OWNER: Verdict<'static> = Verdict::Admitted { requester: "Owner", listed: "10" };
    const QUIET: Verdict<'static> = Verdict::Admitted { requester: "Owner", listed: "20" };

    fn verdict(facts: Facts<'static>) -> Verdict<'static> {
        let channels: &'static _ = Box::leak(Box::new(BTreeMap::from([
            ("10".to_owned(), Mode::All),
            ("20".to_owned(), Mode::Mention),
        ])));
        let users: &'static _ = Box::leak(Box::new(BTreeMap::from([
            ("100".to_owned(), "Owner".to_owned()),
            ("101".to_owned(), "Partner".to_owned()),
        ])));
        decide(&Rules { guild: "1", bot: "999", channels, users }, &facts)
    }

    #[test]
    fn only_a_listed_person_in_a_listed_place_gets_a_turn() {
        let dropped = Verdict::Dropped;
        let thread = |parent, channel| Facts { channel, parent, ..PLAIN };
        let quiet = Facts { channel: "20", ..PLAIN };
        let cases: [(&str, Facts<'static>, Verdict<'static>); 31] = [
            ("a plain message", PLAIN, OWNER),
            ("a reply", Facts { kind: 19, ..PLAIN }, OWNER),
            (
                "another listed person",
                Facts { author: "101", ..PLAIN },
                Verdict::Admitted { requester: "Partner", listed: "10" },
            ),
            ("a mention where none is needed", Facts { mentions_bot: true, ..PLAIN }, OWNER),
            ("a direct message", Facts { guild: None, ..PLAIN }, dropped(Rule::DirectMessage)),
            ("another guild", Facts { guild: Some("2"), ..PLAIN }, dropped(Rule::OtherGuild)),
            ("an empty guild id", Facts { guild: Some(""), ..PLAIN }, dropped(Rule::OtherGuild)),
            ("an edit", Facts { edit: true, ..PLAIN }, dropped(Rule::Edit)),
            ("a webhook", Facts { webhook: true, ..PLAIN }, dropped(Rule::Webhook)),
            (
                "a webhook that poses as a bot",
                Facts { webhook: true, automatic: true, ..PLAIN },
                dropped(Rule::Webhook),
            ),
            ("a bot that is listed", Facts { automatic: true, ..PLAIN }, dropped(Rule::Bot)),
            ("Sage itself", Facts { author: "999", ..PLAIN }, dropped(Rule::Bot)),
            ("a pin", Facts { kind: 6, ..PLAIN }, dropped(Rule::SystemMessage)),
            ("a join", Facts { kind: 7, ..PLAIN }, dropped(Rule::SystemMessage)),
            ("a new thread's name", Facts { kind: 18, ..PLAIN }, dropped(Rule::SystemMessage)),
            ("a thread's first stub", Facts { kind: 21, ..PLAIN }, dropped(Rule::SystemMessage)),
            ("a slash command", Facts { kind: 20, ..PLAIN }, dropped(Rule::SystemMessage)),
            ("a type of the future", Facts { kind: 1000, ..PLAIN }, dropped(Rule::SystemMessage)),
            ("a stranger", Facts { author: "102", ..PLAIN }, dropped(Rule::UnlistedAuthor)),
            ("no author", Facts { author: "", ..PLAIN }, dropped(Rule::UnlistedAuthor)),
            (
                "a stranger in an unknown place costs no look-up",
                Facts { author: "102", channel: "30", ..PLAIN },
                dropped(Rule::UnlistedAuthor),
            ),
            (
                "another guild's unknown place costs no look-up",
                Facts { guild: Some("2"), channel: "30", ..PLAIN },
                dropped(Rule::OtherGuild),
            ),
            ("an unknown place", thread(Parent::Unknown, "30"), Verdict::LookUp),
            ("no thread", thread(Parent::None, "30"), dropped(Rule::UnlistedChannel)),
            ("a listed channel's thread", thread(Parent::Of("10"), "30"), OWNER),
            (
                "an unlisted channel's thread",
                thread(Parent::Of("40"), "30"),
                dropped(Rule::UnlistedChannel),
            ),
            ("mention mode, none", quiet, dropped(Rule::NotMentioned)),
            ("mention mode, one", Facts { mentions_bot: true, ..quiet }, QUIET),
            (
                "mention mode's thread, none",
                thread(Parent::Of("20"), "30"),
                dropped(Rule::NotMentioned),
            ),
            (
                "mention mode's thread, one",
                Facts { mentions_bot: true, ..thread(Parent::Of("20"), "30") },
                QUIET,
            ),
            (
                "a thread that is itself listed, under a parent that is not",
                thread(Parent::Of("40"), "10"),
                OWNER,
            ),
        ];
        for (what, facts, expected) in cases {
            assert_eq!(verdict(facts), expected, "{what}");
        }
    }
}
