//! What a real endpoint refuses.

use serde_json::{Map, Value};

/// What is wrong with a request, if anything.
pub(super) fn problem(line: &str, body: &Value) -> Option<String> {
    if line != "POST /v1/chat/completions" {
        return Some(format!("there is nothing at {line}"));
    }
    let Some(messages) = body["messages"].as_array() else {
        return Some("`messages` is missing".to_owned());
    };
    if !body["model"].is_string() {
        return Some("`model` is missing".to_owned());
    }
    messages_problem(messages)
}

fn messages_problem(messages: &[Value]) -> Option<String> {
    let mut open: Vec<&str> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let role = message["role"].as_str().unwrap_or_default();
        if role == "tool" {
            let id = message["tool_call_id"].as_str().unwrap_or_default();
            match open.iter().position(|other| *other == id) {
                Some(place) => drop(open.remove(place)),
                None => return Some(format!("message {at} answers no call: {id}")),
            }
            if !message["content"].is_string() && !message["content"].is_array() {
                return Some(format!("message {at} has no content"));
            }
            continue;
        }
        if !open.is_empty() {
            return Some(format!("before message {at} these calls have no result: {open:?}"));
        }
        let calls = message["tool_calls"].as_array();
        let has_content = message["content"].is_string() || message["content"].is_array();
        match role {
            "system" | "developer" if at > 0 => {
                return Some(format!("message {at} is another system message"));
            }
            "assistant" if calls.is_some_and(Vec::is_empty) => {
                return Some(format!("message {at} has an empty list of calls"));
            }
            "assistant" if !has_content && calls.is_none() => {
                return Some(format!("message {at} says nothing"));
            }
            "system" | "developer" | "user" | "assistant" => {}
            other => return Some(format!("message {at} has the role {other:?}")),
        }
        for call in calls.into_iter().flatten() {
            let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
            if serde_json::from_str::<Map<String, Value>>(arguments).is_err() {
                return Some(format!("message {at} has arguments that are no JSON: {arguments}"));
            }
            let id = call["id"].as_str().unwrap_or_default();
            if id.is_empty() || open.contains(&id) {
                return Some(format!("message {at} has a call without an id of its own"));
            }
            open.push(id);
        }
    }
    (!open.is_empty()).then(|| format!("these calls have no result: {open:?}"))
}
