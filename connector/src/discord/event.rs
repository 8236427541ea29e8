//! What the gateway tells, as far as it matters here: lenient readings of Discord's objects.
//!
//! Unknown fields, missing ones and nulls are all expected: an event that cannot be read is passed over
//! and never ends the session. Ids are taken as strings; what is no id stays one that nothing lists.

use std::collections::HashMap;

use serde_json::Value;

use super::intake::Message;

/// A press of a button.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Press {
    /// The interaction's id.
    pub id: String,
    /// Its token, good for answering it alone.
    pub token: String,
    /// Which button.
    pub custom_id: String,
    /// Who pressed it.
    pub user: String,
}

/// What an event is to Sage.
#[derive(Debug, Clone)]
pub enum Event {
    /// Somebody wrote, or changed what they wrote.
    Message(Box<Message>),
    /// Somebody pressed a button.
    Press(Press),
    /// Nothing that matters, but for what [`Places`] learnt of it.
    Other,
}

/// Names of channels and threads, and whose threads they are, as far as the gateway told.
#[derive(Debug, Default)]
pub struct Places {
    known: HashMap<String, Place>,
}

#[derive(Debug, Clone)]
struct Place {
    name: String,
    /// Of a thread: the channel it belongs to.
    parent: Option<String>,
}

/// Channel types that are threads.
const THREADS: [u64; 3] = [10, 11, 12];

fn text<'v>(value: &'v Value, key: &str) -> Option<&'v str> {
    value.get(key).and_then(Value::as_str)
}

fn items<'v>(value: &'v Value, key: &str) -> impl Iterator<Item = &'v Value> {
    value.get(key).and_then(Value::as_array).into_iter().flatten()
}

fn id(value: &Value, key: &str) -> String {
    text(value, key).unwrap_or_default().to_owned()
}

impl Places {
    /// Reads an event, and remembers the places that it names.
    pub fn read(&mut self, kind: &str, data: &Value) -> Event {
        match kind {
            "GUILD_CREATE" => {
                let listed = items(data, "channels").chain(items(data, "threads"));
                listed.for_each(|channel| self.learn(channel));
            }
            "CHANNEL_CREATE" | "CHANNEL_UPDATE" | "THREAD_CREATE" | "THREAD_UPDATE" => {
                self.learn(data);
            }
            "THREAD_LIST_SYNC" => items(data, "threads").for_each(|thread| self.learn(thread)),
            "CHANNEL_DELETE" | "THREAD_DELETE" => {
                self.known.remove(&id(data, "id"));
            }
            "MESSAGE_CREATE" => return Event::Message(Box::new(self.message(data, false))),
            // Discord sends one for each link preview as well: only a time makes it an edit.
            "MESSAGE_UPDATE" if text(data, "edited_timestamp").is_some() => {
                return Event::Message(Box::new(self.message(data, true)));
            }
            "INTERACTION_CREATE" => return press(data).map_or(Event::Other, Event::Press),
            _ => {}
        }
        Event::Other
    }

    /// A channel as a listing or an answer of REST shows it.
    pub fn learn(&mut self, channel: &Value) {
        let kind = channel.get("type").and_then(Value::as_u64);
        let is_thread = kind.is_some_and(|kind| THREADS.contains(&kind));
        let parent = text(channel, "parent_id").filter(|_| is_thread).map(str::to_owned);
        let place = Place { name: id(channel, "name"), parent };
        self.known.insert(id(channel, "id"), place);
    }

    /// A channel's parent when it is a thread; `None` when nothing is known of it.
    #[must_use]
    pub fn parent(&self, channel: &str) -> Option<Option<String>> {
        self.known.get(channel).map(|place| place.parent.clone())
    }

    fn name(&self, channel: &str) -> Option<&str> {
        self.known.get(channel).map(|place| place.name.as_str()).filter(|name| !name.is_empty())
    }

    fn message(&self, data: &Value, edit: bool) -> Message {
        let null = Value::Null;
        let author = data.get("author").unwrap_or(&null);
        let channel = id(data, "channel_id");
        let parent = self.parent(&channel).flatten();
        let own = self.name(&channel).unwrap_or(&channel).to_owned();
        let (channel_name, thread_name) = match &parent {
            Some(parent) => (self.name(parent).unwrap_or(parent).to_owned(), Some(own)),
            None => (own, None),
        };
        let flag = |key| author.get(key).and_then(Value::as_bool).unwrap_or(false);
        Message {
            id: id(data, "id"),
            guild: text(data, "guild_id").map(str::to_owned),
            channel_name,
            thread_name,
            author: id(author, "id"),
            author_name: shown(data, author),
            automatic: flag("bot") || flag("system"),
            webhook: data.get("webhook_id").is_some_and(|id| !id.is_null()),
            // A message without a type is none that a person wrote.
            kind: data.get("type").and_then(Value::as_u64).unwrap_or(u64::MAX),
            edit,
            mentions: items(data, "mentions").map(|user| id(user, "id")).collect(),
            text: id(data, "content"),
            channel,
        }
    }
}

/// The name that people see: in the guild, then in general, then the account's.
fn shown(data: &Value, author: &Value) -> String {
    let nick = data.get("member").and_then(|member| text(member, "nick"));
    let name = nick.or_else(|| text(author, "global_name")).or_else(|| text(author, "username"));
    name.unwrap_or_default().to_owned()
}

fn press(data: &Value) -> Option<Press> {
    let component = data.get("type").and_then(Value::as_u64) == Some(3);
    let member = data.get("member").and_then(|member| member.get("user"));
    let user = text(member.or_else(|| data.get("user"))?, "id")?;
    component.then_some(())?;
    Some(Press {
        id: text(data, "id")?.to_owned(),
        token: text(data, "token")?.to_owned(),
        custom_id: text(data.get("data")?, "custom_id")?.to_owned(),
        user: user.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::{Event, Places, Press};

    fn message(event: Event) -> super::Message {
        match event {
            Event::Message(message) => *message,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_message_in_a_thread_names_the_thread_and_its_channel() {
        let mut places = Places::default();
        places.read(
            "GUILD_CREATE",
            &json!({
                "id": "1", "channels": [{"id": "10", "type": 0, "name": "strategy", "parent_id": "5"}],
                "threads": [{"id": "11", "type": 11, "name": "a thread", "parent_id": "10"}],
            }),
        );
        assert_eq!(places.parent("10"), Some(None), "a category is no parent");
        let said = message(places.read(
            "MESSAGE_CREATE",
            &json!({
                "id": "100", "channel_id": "11", "guild_id": "1", "type": 0, "content": "Hello",
                "author": {"id": "7", "username": "owner", "global_name": null, "new": {}},
                "member": {"nick": "The Owner"}, "mentions": [{"id": "3"}, {}], "nonce": 7,
            }),
        ));
        assert_eq!((said.channel.as_str(), said.channel_name.as_str()), ("11", "strategy"));
        assert_eq!(said.thread_name.as_deref(), Some("a thread"));
        assert_eq!((said.author.as_str(), said.author_name.as_str()), ("7", "The Owner"));
        assert_eq!(said.mentions, ["3", ""]);
        assert!(!said.automatic && !said.webhook && !said.edit);
    }

    #[test]
    fn bots_webhooks_and_edits_are_told_apart() {
        let mut places = Places::default();
        let base = json!({"id": "1", "channel_id": "2", "type": 0, "author": {"id": "3"}});
        let with = |key: &str, value: Value| {
            let mut data = base.clone();
            data[key] = value;
            data
        };
        let bot = with("author", json!({"id": "3", "bot": true}));
        assert!(message(places.read("MESSAGE_CREATE", &bot)).automatic);
        let hook = with("webhook_id", json!("9"));
        assert!(message(places.read("MESSAGE_CREATE", &hook)).webhook);
        let preview = with("edited_timestamp", Value::Null);
        assert!(matches!(places.read("MESSAGE_UPDATE", &preview), Event::Other));
        let edit = with("edited_timestamp", json!("2026-01-01T00:00:00Z"));
        assert!(message(places.read("MESSAGE_UPDATE", &edit)).edit);
        let mut untyped = base.clone();
        untyped.as_object_mut().expect("an object").remove("type");
        assert_eq!(message(places.read("MESSAGE_CREATE", &untyped)).kind, u64::MAX);
    }

    #[test]
    fn a_press_names_who_pressed_which_button() {
        let mut places = Places::default();
        let data = json!({
            "id": "1", "token": "t", "type": 3, "data": {"custom_id": "sage:1-1:yes"},
            "member": {"user": {"id": "7"}}, "channel": {},
        });
        let expected = Press {
            id: "1".to_owned(),
            token: "t".to_owned(),
            custom_id: "sage:1-1:yes".to_owned(),
            user: "7".to_owned(),
        };
        match places.read("INTERACTION_CREATE", &data) {
            Event::Press(press) => assert_eq!(press, expected),
            other => panic!("{other:?}"),
        }
    }

    fn anything() -> impl Strategy<Value = Value> {
        let keys =
            "id|type|author|channel_id|parent_id|data|token|member|user|threads|mentions|bot";
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            ".{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 6, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(keys, inner, 0..6)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn no_event_of_any_shape_is_too_much(data in anything(), kind in 0_usize..8) {
            let kinds = [
                "GUILD_CREATE", "CHANNEL_CREATE", "THREAD_LIST_SYNC", "CHANNEL_DELETE",
                "MESSAGE_CREATE", "MESSAGE_UPDATE", "INTERACTION_CREATE", "NEW_KIND",
            ];
            let mut places = Places::default();
            places.read(kinds[kind], &data);
        }
    }
}
