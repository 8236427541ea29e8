use serde_json::json;

use super::completion::Completion;
use super::memory::{Message, StoredCall};
use super::{named, sum, wire};
use crate::record::Usage;

fn call(id: &str, arguments: &str) -> StoredCall {
    StoredCall { id: id.to_owned(), name: "list_roots".to_owned(), arguments: arguments.to_owned() }
}

#[test]
fn a_conversation_is_sent_as_the_endpoint_takes_it() {
    let messages = [
        Message::Gap {},
        Message::User { text: "hello".to_owned() },
        Message::Assistant { text: String::new(), calls: vec![call("a", "{\"x\":1}")] },
        Message::Tool { id: "a".to_owned(), text: "{}".to_owned() },
        Message::Assistant { text: "done".to_owned(), calls: Vec::new() },
    ];
    let function = json!({"name": "list_roots", "arguments": "{\"x\":1}"});
    assert_eq!(
        json!(wire("be good", &messages)),
        json!([
            {"role": "system", "content":
                "be good\nEarlier messages of this conversation were left out.\n"},
            {"role": "user", "content": "hello"},
            {"role": "assistant", "tool_calls": [
                {"id": "a", "type": "function", "function": function}]},
            {"role": "tool", "tool_call_id": "a", "content": "{}"},
            {"role": "assistant", "content": "done"},
        ])
    );
    assert_eq!(
        wire("be good", &messages[1..2])[0],
        json!({"role": "system", "content": "be good"})
    );
}

#[test]
fn arguments_that_are_no_json_are_not_sent_back() {
    for arguments in ["{\"x\":", "[]", "", "null"] {
        let said = Message::Assistant { text: String::new(), calls: vec![call("a", arguments)] };
        let sent = wire("", &[said]);
        assert_eq!(sent[1]["tool_calls"][0]["function"]["arguments"], "{}", "{arguments}");
    }
}

#[test]
fn every_call_has_an_id_of_its_own() {
    let mut completion = Completion::default();
    let piece = |index: u8, id: &str| json!({"index": index, "id": id, "function": {"name": "x"}});
    let pieces = [piece(0, ""), piece(1, "a"), piece(2, "a"), piece(3, "")];
    let chunk = json!({"choices": [{"delta": {"tool_calls": pieces}}]});
    completion.add(&chunk.to_string(), 1000).expect("it is an answer");
    let mut ids: Vec<_> = named(completion.calls).into_iter().map(|call| call.id).collect();
    assert_eq!(ids[1], "a");
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 4, "{ids:?}");
    assert!(ids.iter().all(|id| !id.is_empty()));
}

#[test]
fn usage_adds_up_over_a_turn_as_far_as_it_is_told() {
    let used = |input_tokens, output_tokens| Some(Usage { input_tokens, output_tokens });
    assert_eq!(sum(None, None), None);
    assert_eq!(sum(used(1, 2), None), used(1, 2));
    assert_eq!(sum(sum(None, used(1, 2)), used(10, 20)), used(11, 22));
}
