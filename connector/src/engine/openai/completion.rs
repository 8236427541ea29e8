//! What a model answered, put together from its pieces.
//!
//! Endpoints differ in what they send. What is missing or unknown is left out, what contradicts itself
//! is made the best of, and nothing is acted on before all of it is there. Everything is bounded.

use serde::Deserialize;
use serde_json::Value;

use crate::record::Usage;

/// The most calls in one answer.
const MAX_CALLS: usize = 64;

/// What a model answered.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Completion {
    pub(super) text: String,
    pub(super) calls: Vec<Call>,
    /// Why it ended, in the endpoint's word.
    pub(super) finish: Option<String>,
    pub(super) usage: Option<Usage>,
    bytes: usize,
}

/// A call that a model wants, as it wrote it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) id: String,
    pub(super) name: String,
    /// JSON, if the model did well.
    pub(super) arguments: String,
    index: Option<u64>,
}

/// Why an answer cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unusable {
    /// The endpoint put an error in its place.
    #[error("the model's endpoint reports: {0}")]
    Error(String),
    /// It is no answer of this kind.
    #[error("the model's endpoint answered with something else than a chat completion: {0}")]
    Other(String),
    /// It is longer than it may be.
    #[error("the model's answer is longer than it may be")]
    TooLong,
}

#[derive(Debug, Deserialize)]
struct Chunk {
    #[serde(default)]
    choices: Option<Vec<Choice>>,
    #[serde(default)]
    usage: Option<Value>,
    #[serde(default)]
    error: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct Choice {
    #[serde(default, alias = "message")]
    delta: Option<Delta>,
    #[serde(default)]
    finish_reason: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Delta {
    #[serde(default)]
    content: Option<Value>,
    #[serde(default)]
    refusal: Option<Value>,
    #[serde(default)]
    tool_calls: Option<Vec<CallPiece>>,
}

#[derive(Debug, Deserialize)]
struct CallPiece {
    #[serde(default)]
    index: Option<u64>,
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    function: Option<FunctionPiece>,
}

#[derive(Debug, Deserialize)]
struct FunctionPiece {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    arguments: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct UsagePiece {
    prompt_tokens: u64,
    completion_tokens: u64,
}

impl Completion {
    /// Adds a piece, or a whole answer that came in one.
    pub(super) fn add(&mut self, json: &str, most_bytes: usize) -> Result<(), Unusable> {
        // Without this, a list would pass for a chunk that lacks everything.
        if !json.trim_start().starts_with('{') {
            return Err(Unusable::Other(json.chars().take(100).collect()));
        }
        let chunk: Chunk =
            serde_json::from_str(json).map_err(|error| Unusable::Other(error.to_string()))?;
        if let Some(error) = chunk.error.filter(|error| !error.is_null()) {
            return Err(Unusable::Error(error_text(&error)));
        }
        if let Some(usage) = chunk.usage.and_then(|usage| UsagePiece::deserialize(usage).ok()) {
            let (input_tokens, output_tokens) = (usage.prompt_tokens, usage.completion_tokens);
            self.usage = Some(Usage { input_tokens, output_tokens });
        }
        if let Some(choice) = chunk.choices.into_iter().flatten().next() {
            self.finish = choice.finish_reason.or(self.finish.take());
            if let Some(delta) = choice.delta {
                self.add_delta(delta, most_bytes)?;
            }
        }
        Ok(())
    }

    /// Whether there is nothing in it at all.
    pub(super) fn is_nothing(&self) -> bool {
        self.finish.is_none() && self.text.is_empty() && self.calls.is_empty()
    }

    /// Whether the endpoint said that this was all.
    pub(super) fn is_whole(&self) -> bool {
        self.finish.is_some()
    }

    fn add_delta(&mut self, delta: Delta, most_bytes: usize) -> Result<(), Unusable> {
        let text = delta.content.as_ref().map(text_of).unwrap_or_default();
        let refusal = delta.refusal.as_ref().map(text_of).unwrap_or_default();
        self.text.push_str(&text);
        self.text.push_str(&refusal);
        self.bytes += text.len() + refusal.len();
        for piece in delta.tool_calls.into_iter().flatten() {
            self.add_call(piece)?;
        }
        if self.bytes > most_bytes { Err(Unusable::TooLong) } else { Ok(()) }
    }

    /// A piece belongs to the call with its index, or else with its id, or else to the last call. Some
    /// endpoints number every call 0; then another id with another name begins another call.
    fn add_call(&mut self, piece: CallPiece) -> Result<(), Unusable> {
        let function = piece.function.unwrap_or(FunctionPiece { name: None, arguments: None });
        let id = piece.id.filter(|id| !id.is_empty());
        let name = function.name.filter(|name| !name.is_empty());
        let begins = |call: &Call| {
            id.as_ref().is_some_and(|id| !call.id.is_empty() && *id != call.id) && name.is_some()
        };
        let at = match (piece.index, &id) {
            (Some(index), _) => self.calls.iter().rposition(|call| call.index == Some(index)),
            (None, Some(id)) => self.calls.iter().rposition(|call| call.id == *id),
            (None, None) if name.is_some() => None,
            (None, None) => self.calls.len().checked_sub(1),
        };
        let at = match at.filter(|at| !begins(&self.calls[*at])) {
            Some(at) => at,
            None if self.calls.len() == MAX_CALLS => return Err(Unusable::TooLong),
            None => {
                self.calls.push(Call { index: piece.index, ..Call::default() });
                self.calls.len() - 1
            }
        };
        let call = &mut self.calls[at];
        let arguments = match function.arguments {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text,
            Some(other) => other.to_string(),
        };
        self.bytes += arguments.len() + name.as_ref().map_or(0, String::len);
        if let Some(id) = id {
            call.id = id;
        }
        if let Some(name) = name
            && call.name != name
        {
            call.name.push_str(&name);
        }
        call.arguments.push_str(&arguments);
        Ok(())
    }
}

/// A text, or a list of parts that have one.
fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part.get("text")?.as_str()).collect(),
        _ => String::new(),
    }
}

/// What an error object says.
pub(super) fn error_text(error: &Value) -> String {
    let message = error.get("message").and_then(Value::as_str).or_else(|| error.as_str());
    message.map_or_else(|| error.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert, proptest};
    use serde_json::json;

    use super::{Completion, MAX_CALLS, Unusable};
    use crate::record::Usage;

    fn read(chunks: &[serde_json::Value]) -> Result<Completion, Unusable> {
        let mut completion = Completion::default();
        for chunk in chunks {
            completion.add(&chunk.to_string(), 1000)?;
        }
        Ok(completion)
    }

    fn calls(pieces: serde_json::Value) -> serde_json::Value {
        json!({"choices": [{"delta": {"tool_calls": pieces}}]})
    }

    fn shown(completion: &Completion) -> Vec<(&str, &str, &str)> {
        completion
            .calls
            .iter()
            .map(|call| (call.id.as_str(), call.name.as_str(), call.arguments.as_str()))
            .collect()
    }

    #[test]
    fn arguments_are_put_together_by_index_however_they_are_mixed() {
        let whole = read(&[
            calls(json!([{"index": 0, "id": "a", "function": {"name": "one", "arguments": ""}}])),
            calls(json!([{"index": 1, "id": "b", "function": {"name": "two", "arguments": "{"}}])),
            calls(json!([{"index": 0, "function": {"arguments": "{\"x\":"}}])),
            calls(json!([
                {"index": 1, "function": {"arguments": "}"}},
                {"index": 0, "function": {"arguments": "1}"}},
            ])),
            json!({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}),
        ]);
        let whole = whole.expect("it is an answer");
        assert_eq!(shown(&whole), [("a", "one", "{\"x\":1}"), ("b", "two", "{}")]);
        assert!(whole.is_whole());
    }

    #[test]
    fn calls_without_an_index_or_all_with_the_same_are_told_apart() {
        let call = |index: serde_json::Value, id: &str, name: &str| json!({"index": index, "id": id, "function": {"name": name, "arguments": {"x": 1}}});
        for index in [json!(null), json!(0)] {
            let pieces = json!([call(index.clone(), "a", "one"), call(index.clone(), "b", "one")]);
            let whole = read(&[calls(pieces)]).expect("it is an answer");
            let args = "{\"x\":1}";
            assert_eq!(shown(&whole), [("a", "one", args), ("b", "one", args)], "{index}");
        }
        let nameless = json!([{"function": {"name": "one"}}, {"function": {"arguments": "{}"}}]);
        assert_eq!(shown(&read(&[calls(nameless)]).expect("one")), [("", "one", "{}")]);
    }

    #[test]
    fn an_answer_in_one_piece_and_in_parts_of_content_is_read() {
        let content = json!([{"type": "text", "text": "so"}, {"type": "text", "text": " it is"}]);
        let whole = read(&[json!({
            "object": "chat.completion",
            "choices": [{"message": {"content": content}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
        })])
        .expect("it is an answer");
        assert_eq!(whole.text, "so it is");
        assert_eq!(whole.usage, Some(Usage { input_tokens: 3, output_tokens: 2 }));
    }

    #[test]
    fn usage_that_is_missing_or_odd_is_no_mistake() {
        for usage in [json!(null), json!({}), json!({"prompt_tokens": null}), json!("many")] {
            let read = read(&[json!({"choices": [], "usage": usage})]).expect("it is an answer");
            assert_eq!(read.usage, None);
        }
    }

    #[test]
    fn an_error_object_is_an_error_wherever_it_comes() {
        for (error, said) in [
            (json!({"message": "overloaded", "code": 529}), "overloaded"),
            (json!("overloaded"), "overloaded"),
            (json!({"code": 1}), "{\"code\":1}"),
        ] {
            let text = json!({"choices": [{"delta": {"content": "so"}}]});
            let found = read(&[text, json!({"error": error})]);
            assert_eq!(found, Err(Unusable::Error(said.to_owned())));
        }
        assert!(matches!(Completion::default().add("<html>", 9), Err(Unusable::Other(_))));
        assert!(matches!(Completion::default().add("[]", 9), Err(Unusable::Other(_))));
    }

    #[test]
    fn an_answer_is_bounded_in_text_in_arguments_and_in_calls() {
        let text = |n| json!({"choices": [{"delta": {"content": "x".repeat(n)}}]});
        assert!(read(&[text(1000)]).is_ok(), "the control");
        assert_eq!(read(&[text(1000), text(1)]), Err(Unusable::TooLong));
        let long = calls(json!([{"index": 0, "function": {"arguments": "x".repeat(1001)}}]));
        assert_eq!(read(&[long]), Err(Unusable::TooLong));
        let many: Vec<_> = (0..=MAX_CALLS)
            .map(|index| json!({"index": index, "id": format!("c{index}")}))
            .collect();
        assert!(read(&[calls(json!(many[..MAX_CALLS]))]).is_ok(), "the control");
        assert_eq!(read(&[calls(json!(many))]), Err(Unusable::TooLong));
    }

    proptest! {
        #[test]
        fn nothing_that_an_endpoint_sends_ends_the_program(
            index in any::<Option<u64>>(), id in any::<Option<String>>(),
            name in any::<Option<String>>(), arguments in any::<Option<String>>(),
            text in any::<String>(),
        ) {
            let piece = json!({"index": index, "id": id,
                "function": {"name": name, "arguments": arguments}});
            let chunk = calls(json!([piece, piece]));
            prop_assert!(read(&[chunk.clone(), chunk]).map_or(true, |whole| whole.calls.len() <= 4));
            let _ = Completion::default().add(&text, 1000);
        }
    }
}
