//! What pi says, as far as it matters here.
//!
//! A line is read twice: once for what it is, and again, when that matters, for what it says. So the
//! contents of a tool's result, which pi repeats three times over, are never unpacked.

use serde::Deserialize;
use serde_json::Value;

use super::lines::{self, Line};
use crate::record::Usage;

/// One line of pi's.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Event {
    /// It answers a command.
    Response(Response),
    /// The model ended a message.
    Said(Said),
    /// The run is over, with all its retries and compactions.
    Settled,
    /// Anything else.
    Other,
    /// It is no line of the protocol.
    Malformed(&'static str),
}

/// An answer to a command.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Response {
    #[serde(default)]
    id: Value,
    #[serde(default)]
    pub(super) success: bool,
    #[serde(default)]
    pub(super) error: Option<String>,
    #[serde(default)]
    data: Value,
}

impl Response {
    /// Whether it answers the command of this id.
    pub(super) fn answers(&self, id: &str) -> bool {
        self.id == id
    }

    /// Whether a prompt began a run, as far as pi says.
    pub(super) fn started(&self) -> bool {
        self.data.get("disposition").is_none_or(|what| what == "started")
    }

    /// How many messages a cleared queue held.
    pub(super) fn cleared(&self) -> usize {
        let held = |name| self.data.get(name).and_then(Value::as_array).map_or(0, Vec::len);
        held("steering") + held("followUp")
    }
}

/// A message of the model's.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Said {
    /// Its text.
    pub(super) text: String,
    /// Why it ended, in pi's words.
    pub(super) stop: String,
    /// What went wrong.
    pub(super) error: Option<String>,
    /// What it used.
    pub(super) usage: Usage,
}

#[derive(Deserialize)]
struct Kind<'a> {
    #[serde(rename = "type", borrow)]
    kind: std::borrow::Cow<'a, str>,
}

#[derive(Deserialize)]
struct Of<M> {
    message: M,
}

#[derive(Deserialize)]
struct Role {
    role: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Message {
    content: Vec<Block>,
    #[serde(default)]
    stop_reason: String,
    #[serde(default)]
    error_message: Option<String>,
    #[serde(default)]
    usage: Value,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
enum Block {
    Text {
        text: String,
    },
    #[serde(other)]
    Other,
}

/// Lines that may be too long to be read, because nothing in them is needed.
const UNNEEDED: [&str; 8] = [
    "agent_end",
    "turn_end",
    "tool_execution_end",
    "tool_execution_update",
    "message_start",
    "message_update",
    "entry_appended",
    "compaction_end",
];

/// Reads one line.
pub(super) fn read(line: &Line) -> Event {
    match line {
        Line::Whole(bytes) => whole(bytes).unwrap_or(Event::Malformed("is not of the protocol")),
        Line::TooLong(beginning) => {
            let unneeded =
                |kind: &&str| beginning.starts_with(format!("{{\"type\":\"{kind}\"").as_bytes());
            if UNNEEDED.iter().any(unneeded) {
                return Event::Other;
            }
            // A tool's result comes back as a message as well, before the model's next one.
            let result = b"{\"type\":\"message_end\",\"message\":{\"role\":\"toolResult\"";
            if beginning.starts_with(result) {
                return Event::Other;
            }
            Event::Malformed("is too long")
        }
    }
}

fn whole(bytes: &[u8]) -> Result<Event, serde_json::Error> {
    let Kind { kind } = serde_json::from_slice(bytes)?;
    Ok(match &*kind {
        "response" => Event::Response(serde_json::from_slice(bytes)?),
        "agent_settled" => Event::Settled,
        "message_end" => {
            let Of { message: Role { role } } = serde_json::from_slice(bytes)?;
            if role != "assistant" {
                return Ok(Event::Other);
            }
            let Of { message } = serde_json::from_slice::<Of<Message>>(bytes)?;
            Event::Said(message.into())
        }
        _ => Event::Other,
    })
}

impl From<Message> for Said {
    fn from(message: Message) -> Self {
        let texts = message.content.into_iter().filter_map(|block| match block {
            Block::Text { text } => Some(text),
            Block::Other => None,
        });
        let tokens = |name: &str| message.usage.get(name).and_then(Value::as_u64).unwrap_or(0);
        let read = [tokens("input"), tokens("cacheRead"), tokens("cacheWrite")];
        Self {
            text: texts.collect::<Vec<_>>().join("\n"),
            stop: message.stop_reason,
            error: message.error_message,
            usage: Usage {
                input_tokens: read.into_iter().fold(0, u64::saturating_add),
                output_tokens: tokens("output"),
            },
        }
    }
}

/// A line of the extension's.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Request {
    /// Do this, for the turn that is running.
    Call {
        /// Names the call.
        id: String,
        /// The tool.
        tool: String,
        /// Its arguments.
        arguments: Value,
    },
    /// Do not go on with this call.
    Cancel {
        /// Names the call.
        id: String,
    },
    /// Everything from here on is of this turn or a later one.
    Turn {
        /// Numbers the turn.
        turn: u64,
    },
}

/// For the fuzz target: what pi says is read the same however it arrives, no line is kept beyond its
/// limit, and nothing of it ends this process.
///
/// # Panics
/// When that does not hold.
pub fn any_arrival_reads_the_same(stream: &[u8]) {
    const LIMIT: usize = 256;
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let read_all = |capacity: usize| {
        let mut source = tokio::io::BufReader::with_capacity(capacity, stream);
        runtime.block_on(async {
            let mut events = Vec::new();
            while let Some(line) = lines::next(&mut source, LIMIT).await.expect("memory is read") {
                let (Line::Whole(kept) | Line::TooLong(kept)) = &line;
                assert!(kept.len() <= LIMIT, "{} bytes are kept", kept.len());
                events.push(read(&line));
            }
            events
        })
    };
    let whole = read_all(stream.len().max(1));
    for capacity in [1, 2, 7, 64] {
        assert_eq!(read_all(capacity), whole, "in pieces of {capacity}");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, proptest};
    use serde_json::json;

    use super::{Event, Line, any_arrival_reads_the_same, read};

    fn line(value: &serde_json::Value) -> Event {
        read(&Line::Whole(value.to_string().into_bytes()))
    }

    #[test]
    fn a_message_of_the_model_is_read_and_others_are_passed_over() {
        let said = line(&json!({"type": "message_end", "message": {
            "role": "assistant",
            "content": [{"type": "thinking", "thinking": "x"}, {"type": "text", "text": "yes"},
                        {"type": "toolCall", "id": "1", "name": "t", "arguments": {}}],
            "usage": {"input": 3, "output": 5, "cacheRead": 7, "cacheWrite": 11, "cost": {}},
            "stopReason": "stop", "new": null}}));
        let Event::Said(said) = said else { panic!("{said:?}") };
        assert_eq!((said.text.as_str(), said.stop.as_str(), said.error), ("yes", "stop", None));
        assert_eq!((said.usage.input_tokens, said.usage.output_tokens), (21, 5));
        for other in [
            json!({"type": "message_end", "message": {"role": "user", "content": "text"}}),
            json!({"type": "agent_end", "messages": [{"role": "assistant", "content": 7}]}),
            json!({"type": "something_new"}),
        ] {
            assert_eq!(line(&other), Event::Other, "{other}");
        }
        assert_eq!(line(&json!({"type": "agent_settled", "aborted": true})), Event::Settled);
    }

    #[test]
    fn an_answer_is_told_by_its_id_and_an_answer_without_one_answers_nothing() {
        let answers = |value| match line(&value) {
            Event::Response(response) => response.answers("p1"),
            other => panic!("{other:?}"),
        };
        assert!(answers(json!({"id": "p1", "type": "response", "success": true})));
        assert!(!answers(json!({"id": 1, "type": "response", "success": true})));
        assert!(!answers(json!({"type": "response", "command": "parse", "success": false})));
    }

    #[test]
    fn a_line_that_is_too_long_matters_only_when_it_could_be_the_answer() {
        let long = |text: &str| read(&Line::TooLong(text.as_bytes().to_vec()));
        assert_eq!(long("{\"type\":\"agent_end\",\"messages\":["), Event::Other);
        assert_eq!(long("{\"type\":\"tool_execution_end\",\"x\":"), Event::Other);
        let result = "{\"type\":\"message_end\",\"message\":{\"role\":\"toolResult\",\"too";
        assert_eq!(long(result), Event::Other);
        for needed in ["{\"type\":\"message_end\",\"message\":{\"role\":\"assistant\"", "xxxx", ""]
        {
            assert_eq!(long(needed), Event::Malformed("is too long"), "{needed}");
        }
    }

    proptest! {
        #[test]
        fn what_pi_says_is_read_the_same_however_it_arrives(
            lines in proptest::collection::vec((0..5usize, any::<String>(), 0..400usize), 0..8),
        ) {
            let line = |(kind, text, length): &(usize, String, usize)| match kind {
                0 => text.clone(),
                1 => "x".repeat(*length),
                2 => json!({"type": "agent_end", "messages": "y".repeat(*length)}).to_string(),
                3 => json!({"id": text, "type": "response", "success": true}).to_string(),
                _ => json!({"type": "message_end", "message": {"role": "assistant",
                    "content": [{"type": "text", "text": text}]}}).to_string(),
            };
            let lines: Vec<String> = lines.iter().map(line).collect();
            any_arrival_reads_the_same(lines.join("\n").as_bytes());
        }

        #[test]
        fn no_line_makes_it_panic(bytes in any::<Vec<u8>>(), kind in "[a-z_]{0,20}") {
            let _ = read(&Line::Whole(bytes.clone()));
            let _ = read(&Line::TooLong(bytes));
            let _ = line(&json!({"type": kind, "message": {"role": "assistant", "content": 7}}));
        }
    }
}
