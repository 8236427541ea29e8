//! A configuration's reference, generated from the JSON Schema of its types: one row per key.

use std::fmt::Write as _;

use serde_json::Value;

/// The reference as a Markdown table: key, type, default, meaning.
#[must_use]
pub fn markdown(schema: &Value) -> String {
    let mut text = String::from("| key | type | default | meaning |\n|---|---|---|---|\n");
    rows(schema, schema, "", &mut text);
    text
}

fn rows(root: &Value, object: &Value, prefix: &str, text: &mut String) {
    let Some(properties) = object.get("properties").and_then(Value::as_object) else { return };
    let required: Vec<&str> = object
        .get("required")
        .and_then(Value::as_array)
        .map(|names| names.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    for (name, property) in properties {
        let key = format!("{prefix}{name}");
        let default = match property.get("default") {
            _ if required.contains(&name.as_str()) => "required".to_owned(),
            Some(Value::Null | Value::Object(_)) | None => String::new(),
            Some(value) => format!("`{value}`"),
        };
        let kinds = kinds(root, property);
        let meaning = described(root, property);
        let _ = writeln!(text, "| `{key}` | {} | {default} | {meaning} |", kinds.join(" or "));
        for (nested, more) in nested(root, property) {
            rows(root, nested, &format!("{key}{more}."), text);
        }
    }
}

fn resolved<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    let name = schema.get("$ref").and_then(Value::as_str).and_then(|r| r.strip_prefix("#/$defs/"));
    name.map_or(schema, |name| &root["$defs"][name])
}

/// The forms that a value may have.
fn forms<'a>(root: &'a Value, schema: &'a Value) -> Vec<&'a Value> {
    let schema = resolved(root, schema);
    let choices = schema.get("anyOf").or_else(|| schema.get("oneOf")).and_then(Value::as_array);
    match choices {
        Some(choices) => choices.iter().flat_map(|choice| forms(root, choice)).collect(),
        None => vec![schema],
    }
}

fn kinds(root: &Value, schema: &Value) -> Vec<String> {
    let mut kinds = Vec::new();
    for form in forms(root, schema) {
        let words = form.get("enum").and_then(Value::as_array).cloned();
        let words = words.or_else(|| form.get("const").map(|word| vec![word.clone()]));
        if let Some(words) = words {
            kinds.extend(words.iter().map(|word| format!("`{word}`")));
            continue;
        }
        let types = match form.get("type") {
            Some(Value::String(one)) => vec![one.as_str()],
            Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        for kind in types.into_iter().filter(|kind| *kind != "null") {
            kinds.push(match (kind, form.get("items")) {
                ("array", Some(items)) => {
                    format!("list of {}", self::kinds(root, items).join(" or "))
                }
                _ => kind.to_owned(),
            });
        }
    }
    kinds
}

fn nested<'a>(root: &'a Value, schema: &'a Value) -> Vec<(&'a Value, &'static str)> {
    let mut found = Vec::new();
    for form in forms(root, schema) {
        if form.get("properties").is_some() {
            found.push((form, ""));
        } else if let Some(items) = form.get("items") {
            let items = forms(root, items).into_iter();
            found.extend(
                items.filter(|item| item.get("properties").is_some()).map(|item| (item, "[]")),
            );
        }
    }
    found
}

fn described(root: &Value, property: &Value) -> String {
    let own = property.get("description").or_else(|| resolved(root, property).get("description"));
    let text = own.and_then(Value::as_str).unwrap_or_default();
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn each_key_has_a_row_with_its_path_type_default_and_meaning() {
        let schema = json!({
            "properties": {
                "socket": {"type": "string", "description": "Where\nit is."},
                "limits": {"$ref": "#/$defs/Limits", "default": {"most": 7}, "description": "Limits."},
                "roots": {"type": "array", "items": {"$ref": "#/$defs/Root"}, "description": "Folders."}
            },
            "required": ["socket"],
            "$defs": {
                "Limits": {"type": "object", "properties": {
                    "most": {"type": "integer", "default": 7, "description": "At most."}}},
                "Root": {"type": "object", "required": ["git"], "properties": {
                    "git": {"anyOf": [{"type": "string", "const": "read"}, {"type": "null"}], "description": "a|b"}}}
            }
        });
        let expected = "\
| key | type | default | meaning |
|---|---|---|---|
| `limits` | object |  | Limits. |
| `limits.most` | integer | `7` | At most. |
| `roots` | list of object |  | Folders. |
| `roots[].git` | `\"read\"` | required | a\\|b |
| `socket` | string | required | Where it is. |
";
        let mut given: Vec<_> = super::markdown(&schema).lines().map(str::to_owned).collect();
        let mut wanted: Vec<_> = expected.lines().map(str::to_owned).collect();
        given.sort();
        wanted.sort();
        assert_eq!(given, wanted);
    }
}
