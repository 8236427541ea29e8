//! What Discord does with a request that reaches it.

use serde_json::{Value, json};

use super::FakeDiscord;
use super::fault::error_body;
use super::model::{Callback, Channel, Message, Reaction, Request, Typing};
use super::rest::Answer;
use super::state::State;

/// An interaction is answered within this many milliseconds or never.
const INTERACTION_LIMIT: u64 = 3000;

/// The most code points in a message.
const CONTENT_LIMIT: usize = 2000;

impl State {
    /// Does what is asked, and answers.
    pub(super) fn answer(&mut self, request: &Request) -> Answer {
        if !request.header("user-agent").is_some_and(|agent| agent.starts_with("DiscordBot (")) {
            // Cloudflare's, before Discord sees it.
            return Answer::html(403, "error code: 1010");
        }
        let path = request.path.clone();
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        // The callback's token is in its path.
        if let ("POST", ["interactions", id, token, "callback"]) =
            (request.method.as_str(), &*parts)
        {
            return self.callback(number(id), token, &request.body);
        }
        if self.authorised(request.header("authorization")).is_none() {
            return Answer::error(401, 0);
        }
        let done = match (request.method.as_str(), &*parts) {
            ("GET", ["gateway", "bot"]) => Ok((200, self.gateway_bot())),
            ("GET", ["users", "@me"]) => Ok((200, self.user_json(FakeDiscord::BOT))),
            ("GET", ["applications", "@me"] | ["oauth2", "applications", "@me"]) => {
                Ok((200, self.application()))
            }
            ("GET", ["channels", id]) => {
                self.readable(id).map(|one| (200, self.channel_json(&one)))
            }
            ("GET", ["guilds", id, rest @ ..]) => {
                self.guild(number(id), rest).map(|one| (200, one))
            }
            ("POST", ["channels", id, "messages"]) => self.create(id, &request.body),
            ("GET", ["channels", id, "messages"]) => self.history(id, &request.query),
            ("GET", ["channels", id, "messages", message]) => self
                .readable(id)
                .and_then(|_| self.message(number(message)).cloned().ok_or(refuse(404, 10_008)))
                .map(|message| (200, self.message_json(&message))),
            ("PATCH", ["channels", id, "messages", message]) => {
                self.edit(id, number(message), &request.body)
            }
            ("POST", ["channels", id, "typing"]) => self.typing(id),
            ("PUT", ["channels", id, "messages", message, "reactions", emoji, "@me"]) => {
                self.react(id, number(message), emoji)
            }
            _ => Err(refuse(404, 0)),
        };
        match done {
            Ok((status, body)) => Answer::json(status, &body),
            Err((status, body)) => Answer::json(status, &body),
        }
    }

    fn gateway_bot(&self) -> Value {
        let reset_after = u64::try_from(self.script.reset_after.as_millis()).unwrap_or(u64::MAX);
        json!({
            "url": self.gateway_url, "shards": 1,
            "session_start_limit": {
                "total": 1000, "remaining": self.script.remaining_identifies,
                "reset_after": reset_after, "max_concurrency": self.script.max_concurrency,
            },
        })
    }

    fn application(&self) -> Value {
        let flags = if self.script.message_content { 1 << 18 } else { 0 };
        json!({
            "id": FakeDiscord::BOT.to_string(), "name": "Sage", "flags": flags, "description": "",
            "icon": null, "bot_public": false, "bot_require_code_grant": false, "verify_key": "00",
        })
    }

    fn readable(&self, id: &str) -> Result<Channel, Refused> {
        let channel = self.channels.get(&number(id)).ok_or(refuse(404, 10_003))?;
        let guild = channel.guild.and_then(|guild| self.guilds.get(&guild));
        if channel.hidden || guild.is_some_and(|guild| !guild.joined) {
            return Err(refuse(403, 50_001));
        }
        Ok(channel.clone())
    }

    fn writable(&mut self, id: &str) -> Result<Channel, Refused> {
        let channel = self.readable(id)?;
        if matches!(channel.kind, 4 | 15) {
            return Err(refuse(400, 50_008));
        }
        if channel.read_only {
            return Err(refuse(403, 50_013));
        }
        match (channel.archived, channel.locked) {
            (true, true) => return Err(refuse(400, 50_083)),
            (false, true) => return Err(refuse(400, 160_005)),
            (true, false) => {
                if let Some(channel) = self.channels.get_mut(&channel.id) {
                    channel.archived = false;
                }
            }
            (false, false) => {}
        }
        Ok(channel)
    }

    fn guild(&self, id: u64, rest: &[&str]) -> Result<Value, Refused> {
        let guild = self.guilds.get(&id).ok_or(refuse(404, 10_004))?;
        if !guild.joined {
            return Err(refuse(403, 50_001));
        }
        match rest {
            [] => Ok(self.guild_json(id, false)),
            ["roles"] => Ok(json!([self.role_json(id)])),
            ["channels"] => {
                let of_guild = self.channels.values().filter(|one| one.guild == Some(id));
                let plain = of_guild.filter(|one| !matches!(one.kind, 10..=12));
                Ok(plain.map(|one| self.channel_json(one)).collect())
            }
            ["members", user] if self.users.contains_key(&number(user)) => {
                Ok(self.member_json(number(user)))
            }
            ["members", _] => Err(refuse(404, 10_007)),
            _ => Err(refuse(404, 0)),
        }
    }

    fn create(&mut self, id: &str, body: &Value) -> Done {
        if !body.is_object() {
            return Err(refuse(400, 50_109));
        }
        let channel = self.writable(id)?;
        let content = content(body)?;
        let nonce = match &body["nonce"] {
            Value::Null => None,
            Value::String(nonce) if nonce.chars().count() <= 25 => Some(nonce.clone()),
            Value::Number(nonce) if !nonce.is_f64() => Some(nonce.to_string()),
            _ => {
                return Err(invalid(
                    "nonce",
                    "BASE_TYPE_MAX_LENGTH",
                    "Must be 25 or fewer in length.",
                ));
            }
        };
        let enforced = body["enforce_nonce"] == true;
        if let (true, Some(nonce)) = (enforced, &nonce) {
            let window = u64::try_from(self.nonce_window.as_millis()).unwrap_or(u64::MAX);
            let from = self.clock.now().saturating_sub(window);
            let same = |one: &&Message| {
                one.author == FakeDiscord::BOT
                    && one.nonce.as_ref() == Some(nonce)
                    && one.at >= from
            };
            if let Some(message) = self.seen.messages.iter().rev().find(same) {
                if message.deleted {
                    return Err(refuse(404, 10_008));
                }
                return Ok((200, self.message_json(message)));
            }
        }
        let reference = self.reference(body, channel.id)?;
        let message = Message {
            id: self.snowflake(),
            channel: channel.id,
            author: FakeDiscord::BOT,
            content,
            nonce,
            enforce_nonce: enforced,
            reference,
            allowed_mentions: body.get("allowed_mentions").cloned(),
            components: body["components"].clone(),
            at: self.clock.now(),
            deleted: false,
            edits: 0,
        };
        Ok((200, self.publish(message)))
    }

    /// Keeps a message, dispatches it, and gives what REST answers.
    pub(super) fn publish(&mut self, message: Message) -> Value {
        let event = self.message_event(&message);
        let answer = self.message_json(&message);
        let direct = self.channels.get(&message.channel).is_some_and(|one| one.guild.is_none());
        self.seen.messages.push(message);
        self.dispatch("MESSAGE_CREATE", &event, if direct { 1 << 12 } else { 1 << 9 });
        answer
    }

    fn reference(&self, body: &Value, channel: u64) -> Result<Option<u64>, Refused> {
        let reference = &body["message_reference"];
        let Some(id) = snowflake(&reference["message_id"]) else { return Ok(None) };
        let there = self.message(id).is_some_and(|one| one.channel == channel);
        match (there, reference["fail_if_not_exists"] == false) {
            (true, _) => Ok(Some(id)),
            (false, true) => Ok(None),
            (false, false) => {
                Err(invalid("message_reference", "REPLIES_UNKNOWN_MESSAGE", "Unknown message"))
            }
        }
    }

    fn edit(&mut self, channel: &str, id: u64, body: &Value) -> Done {
        self.readable(channel)?;
        let message = self.message(id).ok_or(refuse(404, 10_008))?;
        if message.author != FakeDiscord::BOT {
            return Err(refuse(403, 50_005));
        }
        let text = if body["content"].is_string() { Some(content(body)?) } else { None };
        let edited = self.change(id, |message| {
            if let Some(text) = text {
                message.content = text;
            }
            if let Some(components) = body.get("components") {
                message.components = components.clone();
            }
        });
        edited.map(|message| (200, self.message_json(&message))).ok_or(refuse(404, 10_008))
    }

    /// Changes a message and dispatches MESSAGE_UPDATE.
    pub(super) fn change(&mut self, id: u64, change: impl FnOnce(&mut Message)) -> Option<Message> {
        let message = self.seen.messages.iter_mut().find(|one| one.id == id && !one.deleted)?;
        message.edits += 1;
        change(message);
        let message = message.clone();
        let event = self.message_event(&message);
        self.dispatch("MESSAGE_UPDATE", &event, 1 << 9 | 1 << 12);
        Some(message)
    }

    fn history(&self, channel: &str, query: &str) -> Done {
        let channel = self.readable(channel)?;
        let parameter = |name: &str| {
            query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')).map(number)
        };
        let after = parameter("after").unwrap_or(0);
        let limit = usize::try_from(parameter("limit").unwrap_or(50)).unwrap_or(50).min(100);
        let all = self.seen.messages.iter().filter(|one| one.channel == channel.id && !one.deleted);
        let found: Vec<_> = all.filter(|one| one.id > after).collect();
        let skipped = if after == 0 { found.len().saturating_sub(limit) } else { 0 };
        let page = found.into_iter().skip(skipped).take(limit);
        let mut page: Vec<Value> = page
            .map(|message| self.message_json(&Message { nonce: None, ..message.clone() }))
            .collect();
        page.reverse();
        Ok((200, json!(page)))
    }

    fn typing(&mut self, channel: &str) -> Done {
        let channel = self.writable(channel)?.id;
        self.seen.typing.push(Typing { channel, at: self.clock.now() });
        Ok((204, Value::Null))
    }

    fn react(&mut self, channel: &str, message: u64, emoji: &str) -> Done {
        let channel = self.readable(channel)?.id;
        let emoji = decode(emoji).ok_or(refuse(400, 10_014))?;
        self.message(message).ok_or(refuse(404, 10_008))?;
        self.seen.reactions.push(Reaction { channel, message, emoji });
        Ok((204, Value::Null))
    }

    fn callback(&mut self, id: u64, token: &str, body: &Value) -> Answer {
        let now = self.clock.now();
        let known = self.interactions.get_mut(&id).filter(|one| one.token == token);
        let Some(interaction) = known else { return Answer::error(404, 10_062) };
        if interaction.acknowledged {
            return Answer::error(400, 40_060);
        }
        if now.saturating_sub(interaction.at) > INTERACTION_LIMIT {
            return Answer::error(404, 10_062);
        }
        let Some(kind @ (1 | 4..=10 | 12)) = body["type"].as_u64() else {
            let (status, body) =
                invalid("type", "BASE_TYPE_CHOICES", "Value must be one of the types.");
            return Answer::json(status, &body);
        };
        interaction.acknowledged = true;
        self.seen.callbacks.push(Callback { interaction: id, kind, data: body["data"].clone() });
        Answer::json(204, &Value::Null)
    }
}

type Refused = (u16, Value);
type Done = Result<(u16, Value), Refused>;

fn refuse(status: u16, code: u64) -> Refused {
    (status, error_body(code))
}

fn invalid(field: &str, code: &str, message: &str) -> Refused {
    let mut body = error_body(50_035);
    body["errors"] = json!({ field: { "_errors": [{ "code": code, "message": message }] } });
    (400, body)
}

fn content(body: &Value) -> Result<String, Refused> {
    let text = body["content"].as_str().unwrap_or_default();
    if text.chars().count() > CONTENT_LIMIT {
        let message = "Must be 2000 or fewer in length.";
        return Err(invalid("content", "BASE_TYPE_MAX_LENGTH", message));
    }
    let other = body["embeds"].as_array().is_some_and(|all| !all.is_empty());
    if text.trim().is_empty() && !other {
        return Err(refuse(400, 50_006));
    }
    Ok(text.to_owned())
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or(0)
}

fn snowflake(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

/// An emoji from its percent encoding; none when it was not encoded.
fn decode(text: &str) -> Option<String> {
    if !text.is_ascii() || !text.contains('%') {
        return None;
    }
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let (byte, after) = match (first, after) {
            (b'%', [high, low, after @ ..]) => {
                let pair = [*high, *low];
                (u8::from_str_radix(std::str::from_utf8(&pair).ok()?, 16).ok()?, after)
            }
            _ => (*first, after),
        };
        bytes.push(byte);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}
