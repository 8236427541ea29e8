//! A tool's flags, made at run time from the JSON Schema of its arguments, and read back into JSON.

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use protocol::tool::ToolName;
use serde_json::{Map, Value};

/// One subcommand per tool.
pub(super) fn tools() -> impl Iterator<Item = Command> {
    ToolName::ALL.iter().map(|tool| command(*tool))
}

fn command(tool: ToolName) -> Command {
    let schema = tool.schema().to_value();
    let mut command = Command::new(tool.as_str())
        .about(tool.description())
        .alias(tool.as_str().replace('_', "-"));
    for (name, property) in properties(&schema) {
        command = command.arg(flag(&schema, name, property));
    }
    command
}

fn properties(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema.get("properties").and_then(Value::as_object).into_iter().flatten()
}

/// What a flag's value is.
enum Kind {
    Word,
    Number,
    Switch,
    List,
    OneOf(Vec<String>),
}

fn kind(schema: &Value, property: &Value) -> Kind {
    let resolved = property
        .get("$ref")
        .and_then(Value::as_str)
        .and_then(|reference| schema.pointer(reference.strip_prefix('#')?))
        .unwrap_or(property);
    let words = |of: &Value| -> Vec<String> {
        let listed = of.get("enum").and_then(Value::as_array).into_iter().flatten();
        let single = of.get("const").into_iter();
        listed.chain(single).filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let choices = resolved.get("oneOf").and_then(Value::as_array).into_iter().flatten();
    let words: Vec<String> = choices.flat_map(words).chain(words(resolved)).collect();
    if !words.is_empty() {
        return Kind::OneOf(words);
    }
    let types = match &resolved["type"] {
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        Value::String(one) => vec![one.as_str()],
        _ => Vec::new(),
    };
    match types.first() {
        Some(&"integer") => Kind::Number,
        Some(&"boolean") => Kind::Switch,
        Some(&"array") => Kind::List,
        _ => Kind::Word,
    }
}

fn flag(schema: &Value, name: &str, property: &Value) -> Arg {
    let required = schema["required"].as_array().is_some_and(|all| all.iter().any(|n| n == name));
    let help = property["description"].as_str().unwrap_or_default();
    let arg = Arg::new(name.to_owned())
        .long(kebab(name))
        .help(help.split_whitespace().collect::<Vec<_>>().join(" "));
    let arg = match kind(schema, property) {
        Kind::Switch => return arg.action(ArgAction::SetTrue),
        Kind::Word => arg.value_name("TEXT").allow_hyphen_values(true),
        Kind::Number => arg.value_name("NUMBER").value_parser(value_parser!(u64)),
        Kind::List => arg.value_name("TEXT").num_args(1..).action(ArgAction::Append),
        Kind::OneOf(words) => arg.value_parser(clap::builder::PossibleValuesParser::new(words)),
    };
    if required { arg.required_unless_present("input") } else { arg }
}

fn kebab(name: &str) -> String {
    let mut flag = String::with_capacity(name.len() + 2);
    for c in name.chars() {
        if c.is_ascii_uppercase() || c == '_' {
            flag.push('-');
        }
        if c != '_' {
            flag.push(c.to_ascii_lowercase());
        }
    }
    flag
}

/// The arguments that these flags make, over those of `--input`.
pub(super) fn arguments(tool: ToolName, matches: &ArgMatches, input: Map<String, Value>) -> Value {
    let schema = tool.schema().to_value();
    let mut arguments = input;
    for (name, property) in properties(&schema) {
        let word = |word: &String| Value::from(word.as_str());
        let given = match kind(&schema, property) {
            Kind::Switch => matches.get_flag(name).then_some(Value::Bool(true)),
            Kind::Number => matches.get_one::<u64>(name).map(|number| Value::from(*number)),
            Kind::List => matches.get_many::<String>(name).map(|all| all.map(word).collect()),
            Kind::Word | Kind::OneOf(_) => matches.get_one::<String>(name).map(word),
        };
        if let Some(value) = given {
            arguments.insert(name.clone(), value);
        }
    }
    Value::Object(arguments)
}

#[cfg(test)]
mod tests {
    use protocol::tool::{ToolCall, ToolName};
    use serde_json::{Map, json};

    use super::{arguments, command, properties};

    #[test]
    fn every_argument_of_every_tool_has_a_flag_with_help() {
        for tool in ToolName::ALL {
            let command = command(*tool);
            let schema = tool.schema().to_value();
            for (name, _) in properties(&schema) {
                let flag = command.get_arguments().find(|arg| arg.get_id() == name.as_str());
                let flag = flag.unwrap_or_else(|| panic!("{tool} has no flag for {name}"));
                assert!(flag.get_help().is_some_and(|help| !help.to_string().is_empty()));
            }
        }
    }

    fn call(tool: ToolName, words: &[&str]) -> ToolCall {
        let input = clap::Arg::new("input").long("input");
        let words = std::iter::once(&"tool").chain(words);
        let matches = command(tool).arg(input).try_get_matches_from(words).expect("it is taken");
        ToolCall::from_json(tool.as_str(), arguments(tool, &matches, Map::new())).expect("it fits")
    }

    #[test]
    fn flags_become_the_arguments_of_the_schema() {
        let words = ["--root", "r", "--path", "a", "--old", "-x", "--new", "", "--dry-run"];
        let edit = call(ToolName::EditFile, &words).arguments();
        assert_eq!(edit["dryRun"], json!(true));
        assert_eq!((&edit["old"], &edit["new"]), (&json!("-x"), &json!("")));
        let words = ["--root", "r", "--message", "m", "--paths", "a", "b", "--paths", "c"];
        let commit = call(ToolName::GitCommit, &words);
        assert_eq!(commit.arguments()["paths"], json!(["a", "b", "c"]));
        let diff = call(ToolName::GitDiff, &["--root", "r", "--max-bytes", "7"]).arguments();
        assert_eq!(diff["maxBytes"], json!(7));
        let words = ["--root", "r", "--prefix", "DEC", "--title", "t"];
        assert_eq!(call(ToolName::ReserveId, &words).arguments()["prefix"], json!("DEC"));
    }
}
