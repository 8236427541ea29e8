//! The tools on offer, as a model is told of them.
//!
//! Name, description and schema come from the argument types; here they only lose what a model has no
//! use for. Every request carries them, so every byte counts: a test holds their size.

use protocol::service::Description;
use protocol::tool::ToolName;
use serde_json::{Map, Value, json};

/// The `tools` of a request.
pub(super) fn tools(offer: &Description) -> Vec<Value> {
    offer.tools.iter().map(|tool| function(*tool)).collect()
}

fn function(tool: ToolName) -> Value {
    json!({
        "type": "function",
        "function": {
            "name": tool.as_str(),
            "description": tool.description(),
            "parameters": parameters(tool),
        },
    })
}

/// The schema of a tool's arguments, without what is said elsewhere or means nothing to a model: its
/// dialect and title, formats of integers, that what may be left out may be null, references, and that
/// nothing else is taken (the answer to such a call says so).
pub fn parameters(tool: ToolName) -> Value {
    let mut schema = tool.schema().to_value();
    let definitions = schema.get("$defs").cloned().unwrap_or_default();
    if let Some(schema) = schema.as_object_mut() {
        for key in ["$schema", "$defs", "title", "description", "additionalProperties"] {
            schema.remove(key);
        }
        // Some endpoints insist on it.
        schema.entry("properties").or_insert_with(|| json!({}));
        let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
        for property in properties.into_iter().flat_map(Map::values_mut) {
            shorten(property, &definitions);
        }
    }
    schema
}

fn shorten(property: &mut Value, definitions: &Value) {
    let Some(property) = property.as_object_mut() else { return };
    for key in ["default", "format", "minimum"] {
        property.remove(key);
    }
    if let Some(kinds) = property.get("type").and_then(Value::as_array) {
        let not_null = kinds.iter().find(|kind| *kind != "null").cloned();
        property.insert("type".to_owned(), not_null.unwrap_or_default());
    }
    let named = property.get("$ref").and_then(Value::as_str).and_then(|r| r.rsplit('/').next());
    if let Some(definition) = named.and_then(|name| definitions.get(name)) {
        let words = words(definition);
        property.remove("$ref");
        property.insert("enum".to_owned(), Value::Array(words));
    }
}

/// The words of an enum.
fn words(definition: &Value) -> Vec<Value> {
    let variants = definition.get("oneOf").and_then(Value::as_array).into_iter().flatten();
    variants.filter_map(|variant| variant.get("const").cloned()).collect()
}

#[cfg(test)]
mod tests {
    use protocol::tool::{ToolCall, ToolName};
    use serde_json::{Value, json};

    use super::{parameters, tools};
    use crate::engine::openai::budget;
    use crate::fake::offer;

    #[test]
    fn what_every_request_carries_has_the_size_that_the_documentation_says() {
        let tools = Value::Array(tools(&offer())).to_string().len();
        let system = crate::prompt::system(&offer()).len();
        let raw: usize =
            ToolName::ALL.iter().map(|tool| tool.schema().to_value().to_string().len()).sum();
        assert!(tools < raw, "{tools} bytes with names and descriptions, {raw} of schemas alone");
        let document = include_str!("../../../../docs/configuration.md");
        let count = offer().tools.len();
        let (a, b) = (budget::tokens(tools), budget::tokens(system));
        for said in [
            format!("| the {count} tools | {tools} | {a} |"),
            format!("| the system prompt, with one root | {system} | {b} |"),
        ] {
            assert!(document.contains(&said), "docs/configuration.md should have the row: {said}");
        }
    }

    #[test]
    fn a_schema_keeps_what_a_model_needs() {
        assert_eq!(
            parameters(ToolName::ReserveId),
            json!({
                "type": "object",
                "required": ["root", "prefix", "title"],
                "properties": {
                    "root": {"type": "string", "description": "A root that follows the record protocol."},
                    "prefix": {"enum": ["BUS", "PRJ", "SS", "DEC", "REF"], "description": "The kind of record."},
                    "title": {"type": "string", "description": "The record's title, on one line."},
                },
            })
        );
        let read = parameters(ToolName::ReadFile);
        assert_eq!(read["properties"]["offset"]["type"], "integer");
        assert_eq!(read["required"], json!(["root", "path"]));
        for tool in ToolName::ALL {
            let text = parameters(*tool).to_string();
            for word in ["$ref", "$defs", "\"null\"", "\"default\""] {
                assert!(!text.contains(word), "{tool}: {text}");
            }
            let properties = parameters(*tool)["properties"].clone();
            for (name, property) in properties.as_object().cloned().unwrap_or_default() {
                assert!(property["description"].is_string(), "{tool}.{name}: {property}");
                let typed = property["type"].is_string() || property["enum"].is_array();
                assert!(typed, "{tool}.{name}: {property}");
            }
        }
    }

    #[test]
    fn what_the_schema_leaves_out_may_be_left_out() {
        for (tool, arguments) in [
            ("list_files", json!({"root": "r"})),
            ("read_file", json!({"root": "r", "path": "p"})),
            ("edit_file", json!({"root": "r", "path": "p", "old": "a", "new": "b"})),
            ("git_log", json!({"root": "r"})),
        ] {
            ToolCall::from_json(tool, arguments).unwrap_or_else(|why| panic!("{tool}: {why}"));
        }
    }
}
