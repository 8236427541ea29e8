//! A model's call, from what it wrote to what it is told.
//!
//! What a model is told is JSON: a tool's reply as it is, `{"refusal": …}` or `{"fault": …}`. Text from
//! the world stays in the fields that say so. A call that cannot be read never reaches the executor;
//! the model is told what does not fit, and where.

use protocol::refusal::{Code, Outcome, Refusal};
use protocol::service::Description;
use protocol::tool::{ToolCall, ToolName};
use protocol::wire::WireError;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::memory::StoredCall;
use crate::engine::ToolRunner;

/// Does a call; what the model is told of it, in at most so many bytes.
pub(super) async fn perform<T: ToolRunner>(
    call: &StoredCall,
    offer: &Description,
    tools: &mut T,
    most_bytes: usize,
) -> Result<String, WireError> {
    let outcome = match read(call, offer) {
        Ok(call) => tools.call(call).await?,
        Err(refusal) => {
            tracing::info!(code = %refusal.code, "the model wrote a call that cannot be made");
            Outcome::Refusal(refusal)
        }
    };
    Ok(bounded(told(&outcome), most_bytes))
}

fn told(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Reply(reply) => reply.to_json(),
        Outcome::Refusal(refusal) => json!({ "refusal": refusal }),
        Outcome::Fault(fault) => json!({ "fault": fault }),
    }
    .to_string()
}

/// A result that is too long is cut. What is left is a text in a field that is marked as data.
fn bounded(text: String, most_bytes: usize) -> String {
    if text.len() <= most_bytes {
        return text;
    }
    // The text is quoted once more, which at most doubles it.
    let end = text.floor_char_boundary(most_bytes / 2);
    json!({
        "cut": format!("This result has {} bytes; here is its beginning. Ask for less.", text.len()),
        "untrustedBeginning": &text[..end],
    })
    .to_string()
}

/// Reads a call as a model wrote it.
fn read(call: &StoredCall, offer: &Description) -> Result<ToolCall, Refusal> {
    let Some(tool) = ToolName::parse(&call.name).filter(|tool| offer.tools.contains(tool)) else {
        let names: Vec<&str> = offer.tools.iter().map(|tool| tool.as_str()).collect();
        return Err(Refusal::new(
            Code::NotOffered,
            format!("There is no tool named {:?}.", call.name),
            format!("The tools are: {}.", names.join(", ")),
        ));
    };
    let invalid = |message: String| {
        let hint = "Correct the arguments and call again; nothing was done.";
        Refusal::new(Code::InvalidArguments, message, hint)
    };
    let text = if call.arguments.trim().is_empty() { "{}" } else { &call.arguments };
    let arguments: Map<String, Value> = serde_json::from_str(text).map_err(|error| {
        invalid(format!("The arguments of {tool} are no JSON object: {error}."))
    })?;
    let tagged = json!({ tool.as_str(): arguments });
    ToolCall::deserialize(&tagged).or_else(|_| {
        serde_path_to_error::deserialize(tagged).map_err(|error| {
            let path = error.path().to_string();
            let at = path.strip_prefix(tool.as_str()).unwrap_or(&path).trim_start_matches('.');
            let at = if at.is_empty() { String::new() } else { format!(" at `{at}`") };
            invalid(format!("The arguments of {tool} do not fit{at}: {}.", error.inner()))
        })
    })
}

#[cfg(test)]
mod tests {
    use protocol::refusal::Code;
    use protocol::tool::ToolName;
    use serde_json::Value;

    use super::{bounded, read};
    use crate::engine::openai::memory::StoredCall;
    use crate::fake::offer;

    fn call(name: &str, arguments: &str) -> StoredCall {
        StoredCall { id: "a".to_owned(), name: name.to_owned(), arguments: arguments.to_owned() }
    }

    #[test]
    fn every_tool_can_be_called_by_its_name() {
        for tool in ToolName::ALL {
            let refusal = read(&call(tool.as_str(), r#"{"no": 1}"#), &offer()).expect_err("no");
            assert_eq!(refusal.code, Code::InvalidArguments, "{tool}");
            assert!(refusal.message.contains("`no`"), "{refusal}");
        }
        let found = read(&call("list_roots", ""), &offer()).expect("it fits");
        assert_eq!(found.name(), ToolName::ListRoots);
    }

    #[test]
    fn arguments_that_do_not_fit_are_told_with_their_place() {
        for (name, arguments, said) in [
            ("git_commit", r#"{"root": "r", "message": "m", "paths": ["a", 7]}"#, "at `paths[1]`"),
            ("read_file", r#"{"root": "r", "path": 7}"#, "at `path`"),
            ("read_file", r#"{"root": "r"}"#, "missing field `path`"),
            ("read_file", r#"{"root": "r", "path": "#, "no JSON object"),
            ("read_file", "[]", "no JSON object"),
            ("read_file", "null", "no JSON object"),
            ("reserve_id", r#"{"root": "r", "prefix": "XXX", "title": "t"}"#, "at `prefix`"),
        ] {
            let refusal = read(&call(name, arguments), &offer()).expect_err(arguments);
            assert_eq!(refusal.code, Code::InvalidArguments);
            assert!(refusal.message.contains(said), "{refusal}");
        }
    }

    #[test]
    fn a_tool_that_is_not_there_or_not_on_offer_is_told_with_the_names() {
        let mut offer = offer();
        offer.tools = vec![ToolName::ListRoots, ToolName::ReadFile];
        for name in ["shell", "", "write_file", "List_Roots"] {
            let refusal = read(&call(name, "{}"), &offer).expect_err(name);
            assert_eq!(refusal.code, Code::NotOffered);
            assert_eq!(refusal.hint, "The tools are: list_roots, read_file.");
        }
        assert!(read(&call("list_roots", "{}"), &offer).is_ok(), "the control");
    }

    #[test]
    fn a_result_that_is_too_long_stays_json_in_a_marked_field() {
        let long = format!("{{\"x\":\"{}\"}}", "ü\"".repeat(3000));
        let cut = bounded(long.clone(), 5000);
        assert!(cut.len() <= 5000 + 200, "{}", cut.len());
        let cut: Value = serde_json::from_str(&cut).expect("JSON");
        let beginning = cut["untrustedBeginning"].as_str().expect("a text");
        assert!(long.starts_with(beginning));
        assert_eq!(bounded("short".to_owned(), 5), "short");
    }
}
