//! Payloads as Discord sends them, odd fields included.

use serde_json::{Value, json};

use super::FakeDiscord;
use super::model::{Channel, Message};
use super::state::State;

/// Milliseconds as Discord writes times.
pub(super) fn time(ms: u64) -> String {
    // Howard Hinnant's civil-from-days.
    let (secs, milli) = (ms / 1000, ms % 1000);
    let days = secs / 86_400 + 719_468;
    let (era, doe) = (days / 146_097, days % 146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let (day, month) = (doy - (153 * mp + 2) / 5 + 1, if mp < 10 { mp + 3 } else { mp - 9 });
    let year = yoe + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (secs / 3600 % 24, secs / 60 % 60, secs % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}000+00:00")
}

impl State {
    /// A user object.
    pub(super) fn user_json(&self, id: u64) -> Value {
        let user = self.users.get(&id);
        json!({
            "id": id.to_string(), "username": user.map_or("unknown", |user| &user.name),
            "global_name": user.map(|user| format!("{} Global", user.name)),
            "discriminator": "0", "avatar": null, "bot": user.is_some_and(|user| user.bot),
            "public_flags": 0, "clan": null, "avatar_decoration_data": null,
        })
    }

    /// A channel object.
    pub(super) fn channel_json(&self, channel: &Channel) -> Value {
        let mut value = json!({
            "id": channel.id.to_string(), "type": channel.kind, "name": channel.name,
            "position": 0, "flags": 0, "nsfw": false, "topic": null, "last_message_id": null,
            "rate_limit_per_user": 0, "permission_overwrites": channel.overwrites,
            "parent_id": channel.parent.map(|id| id.to_string()),
            "guild_id": channel.guild.map(|id| id.to_string()),
        });
        if matches!(channel.kind, 10..=12) {
            value["owner_id"] = json!(FakeDiscord::BOT.to_string());
            value["message_count"] = json!(1);
            value["member_count"] = json!(1);
            value["thread_metadata"] = json!({
                "archived": channel.archived, "locked": channel.locked,
                "auto_archive_duration": 1440, "archive_timestamp": time(self.clock.now()),
                "create_timestamp": time(self.clock.now()),
            });
        }
        value
    }

    /// A guild object; with its channels and threads, as in GUILD_CREATE, when asked for.
    pub(super) fn guild_json(&self, id: u64, full: bool) -> Value {
        let Some(guild) = self.guilds.get(&id) else { return Value::Null };
        let mut value = json!({
            "id": id.to_string(), "name": guild.name, "owner_id": "1", "icon": null, "splash": null,
            "discovery_splash": null, "afk_channel_id": null, "afk_timeout": 300, "banner": null,
            "verification_level": 0, "default_message_notifications": 0, "description": null,
            "explicit_content_filter": 0, "mfa_level": 0, "application_id": null, "features": [],
            "emojis": [], "stickers": [], "nsfw_level": 0, "preferred_locale": "en-US",
            "premium_tier": 0, "premium_subscription_count": 0, "system_channel_flags": 0,
            "premium_progress_bar_enabled": false, "system_channel_id": null, "nsfw": false,
            "rules_channel_id": null, "public_updates_channel_id": null, "vanity_url_code": null,
            "safety_alerts_channel_id": null, "hub_type": null, "roles": [self.role_json(id)],
        });
        if full {
            let of_guild = |threads: bool| -> Vec<Value> {
                let all = self.channels.values().filter(|one| one.guild == Some(id));
                let all = all.filter(|one| matches!(one.kind, 10..=12) == threads);
                all.filter(|one| !one.hidden && !one.archived)
                    .map(|one| self.channel_json(one))
                    .collect()
            };
            value["channels"] = json!(of_guild(false));
            value["threads"] = json!(of_guild(true));
            value["members"] = json!([self.member_json(FakeDiscord::BOT)]);
            value["joined_at"] = json!(time(self.clock.now()));
            value["large"] = json!(false);
            value["unavailable"] = json!(false);
            value["member_count"] = json!(self.users.len());
            for key in [
                "voice_states",
                "presences",
                "stage_instances",
                "guild_scheduled_events",
                "soundboard_sounds",
            ] {
                value[key] = json!([]);
            }
        }
        value
    }

    /// The @everyone role of a guild.
    pub(super) fn role_json(&self, guild: u64) -> Value {
        json!({
            "id": guild.to_string(), "name": "@everyone", "color": 0, "hoist": false,
            "position": 0, "managed": false, "mentionable": false, "icon": null, "flags": 0,
            "unicode_emoji": null,
            "colors": { "primary_color": 0, "secondary_color": null, "tertiary_color": null },
            "permissions": self.guilds.get(&guild).map_or(0, |one| one.permissions).to_string(),
        })
    }

    /// A member object with its user.
    pub(super) fn member_json(&self, user: u64) -> Value {
        let mut member = self.partial_member(user);
        member["user"] = self.user_json(user);
        member
    }

    /// A member as it comes in a message.
    pub(super) fn partial_member(&self, user: u64) -> Value {
        let nick = self.users.get(&user).map(|user| format!("{} Nick", user.name));
        json!({
            "roles": [], "nick": nick, "joined_at": "2024-01-01T00:00:00.000000+00:00",
            "deaf": false, "mute": false, "flags": 0, "pending": false, "avatar": null,
            "premium_since": null, "banner": null, "communication_disabled_until": null,
        })
    }

    /// A message object as REST answers it.
    pub(super) fn message_json(&self, message: &Message) -> Value {
        let guild = self.channels.get(&message.channel).and_then(|channel| channel.guild);
        let edited = (message.edits > 0).then(|| time(self.clock.now()));
        let mut value = json!({
            "id": message.id.to_string(), "channel_id": message.channel.to_string(),
            "type": if message.reference.is_some() { 19 } else { 0 },
            "author": self.user_json(message.author), "content": message.content,
            "timestamp": time(message.at), "edited_timestamp": edited, "tts": false,
            "mention_everyone": false, "mentions": self.mentions(&message.content),
            "mention_roles": [], "attachments": [], "embeds": [], "pinned": false, "flags": 0,
            "components": if message.components.is_array() { message.components.clone() } else { json!([]) },
        });
        if let Some(nonce) = &message.nonce {
            value["nonce"] = json!(nonce);
        }
        if let Some(reference) = message.reference {
            value["message_reference"] = json!({
                "type": 0, "message_id": reference.to_string(),
                "channel_id": message.channel.to_string(),
                "guild_id": guild.map(|id| id.to_string()),
            });
        }
        value
    }

    /// The same as MESSAGE_CREATE has it.
    pub(super) fn message_event(&self, message: &Message) -> Value {
        let mut value = self.message_json(message);
        let channel = self.channels.get(&message.channel);
        if let Some(guild) = channel.and_then(|channel| channel.guild) {
            value["guild_id"] = json!(guild.to_string());
            value["member"] = self.partial_member(message.author);
        }
        value["channel_type"] = json!(channel.map_or(0, |channel| channel.kind));
        value["a_field_of_the_future"] = json!({ "nested": [1, null] });
        value
    }

    fn mentions(&self, content: &str) -> Vec<Value> {
        let named = |id: &&u64| content.contains(&format!("<@{id}>"));
        self.users.keys().filter(named).map(|id| self.user_json(*id)).collect()
    }
}
