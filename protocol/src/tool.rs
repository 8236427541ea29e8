//! The tools, once: their arguments are Rust types, and name, description and JSON Schema are
//! derived from those types. There is no second list of tools anywhere.

use schemars::{JsonSchema, Schema, schema_for};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::refusal::{Code, Refusal};

macro_rules! tools {
    ($($variant:ident => $name:literal,)+) => {
        /// One call of one tool.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum ToolCall { $(#[doc = $name] $variant($variant),)+ }

        /// A tool's name.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum ToolName { $(#[doc = $name] $variant,)+ }

        impl ToolName {
            /// Every tool, in the order in which a newcomer would want to read about them.
            pub const ALL: &'static [ToolName] = &[$(ToolName::$variant,)+];

            /// The name as the model, MCP, the command line and the audit spell it.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(ToolName::$variant => $name,)+ }
            }

            /// The JSON Schema of the arguments; its `description` is the tool's.
            #[must_use]
            pub fn schema(self) -> Schema {
                match self { $(ToolName::$variant => schema_for!($variant),)+ }
            }
        }

        impl ToolCall {
            /// Which tool is called.
            #[must_use]
            pub fn name(&self) -> ToolName {
                match self { $(ToolCall::$variant(_) => ToolName::$variant,)+ }
            }

            /// The arguments, as people and models write them.
            #[must_use]
            pub fn arguments(&self) -> Value {
                match self {
                    $(ToolCall::$variant(arguments) => serde_json::to_value(arguments),)+
                }
                .expect("tool arguments are plain data")
            }

            /// Reads a call as a model or a person wrote it.
            ///
            /// # Errors
            /// `not_offered` for a name that is no tool, `invalid_arguments` for arguments that do
            /// not fit the schema; the message names the field.
            pub fn from_json(name: &str, arguments: Value) -> Result<Self, Refusal> {
                match name {
                    $($name => serde_json::from_value(arguments)
                        .map(ToolCall::$variant)
                        .map_err(|error| invalid_arguments(name, &error)),)+
                    _ => Err(Refusal::new(
                        Code::NotOffered,
                        format!("There is no tool named {name:?}."),
                        "Call one of the tools that `describe` lists.",
                    )),
                }
            }
        }
    };
}

tools! {
    ListRoots => "list_roots",
    ListFiles => "list_files",
    ReadFile => "read_file",
    SearchFiles => "search_files",
    WriteFile => "write_file",
    EditFile => "edit_file",
    GitStatus => "git_status",
    GitDiff => "git_diff",
    GitLog => "git_log",
    GitShow => "git_show",
    GitBranches => "git_branches",
    ReadOutput => "read_output",
    ReserveId => "reserve_id",
    GitCommit => "git_commit",
    GitPull => "git_pull",
    GitPush => "git_push",
    WebFetch => "web_fetch",
    WebSearch => "web_search",
}

fn invalid_arguments(name: &str, error: &serde_json::Error) -> Refusal {
    Refusal::new(
        Code::InvalidArguments,
        format!("The arguments of {name} do not fit: {error}."),
        format!("See the schema of {name} and call it again."),
    )
}

impl ToolName {
    /// What the tool does, in the words of its argument type's documentation.
    #[must_use]
    pub fn description(self) -> String {
        let schema = self.schema();
        let text = schema.get("description").and_then(Value::as_str).unwrap_or_default();
        text.to_owned()
    }

    /// The tool that has this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|tool| tool.as_str() == name)
    }
}

impl std::fmt::Display for ToolName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Lists the roots: the folders that the other tools can work in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ListRoots {}

/// Lists the files below a folder of a root, sorted, without what .gitignore leaves out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ListFiles {
    /// A root's name.
    pub root: String,
    /// A folder, relative to the root. Without it, the root itself.
    #[serde(default)]
    pub path: Option<String>,
    /// Only paths that match, for instance `**/*.md`.
    #[serde(default)]
    pub glob: Option<String>,
}

/// Reads a text file: its text, size and digest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ReadFile {
    /// A root's name.
    pub root: String,
    /// The file, relative to the root.
    pub path: String,
    /// Where to start, in bytes.
    #[serde(default)]
    pub offset: Option<u64>,
    /// How many bytes at most.
    #[serde(default)]
    pub limit: Option<u64>,
}

/// Finds the lines that match a pattern, in files below a folder of a root.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct SearchFiles {
    /// A root's name.
    pub root: String,
    /// A regular expression, as ripgrep knows them; `(?i)` in front ignores case.
    pub pattern: String,
    /// A folder or file, relative to the root. Without it, the whole root.
    #[serde(default)]
    pub path: Option<String>,
    /// Only paths that match, for instance `**/*.md`.
    #[serde(default)]
    pub glob: Option<String>,
}

/// Creates or replaces a text file. The folder must exist.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct WriteFile {
    /// A writable root's name.
    pub root: String,
    /// The file, relative to the root.
    pub path: String,
    /// The whole new text, byte for byte.
    pub text: String,
}

/// Replaces one text that occurs exactly once in a file. Answers with the diff.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct EditFile {
    /// A writable root's name.
    pub root: String,
    /// The file, relative to the root.
    pub path: String,
    /// The text to replace; must occur exactly once.
    pub old: String,
    /// What to put there, literally.
    pub new: String,
    /// Only show the diff; write nothing.
    #[serde(default)]
    pub dry_run: bool,
    /// The digest that `read_file` gave: refuse if the file changed since.
    #[serde(default)]
    pub expect: Option<String>,
}

/// Shows the state of a repository: branch, upstream, ahead and behind, changed paths.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct GitStatus {
    /// A root's name.
    pub root: String,
    /// A path in the repository, where the root holds several.
    #[serde(default)]
    pub path: Option<String>,
}

/// Shows changes, as statistics and as a unified diff.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct GitDiff {
    /// A root's name.
    pub root: String,
    /// `worktree` (not staged yet; the default), `staged`, or two revisions as `A..B`.
    #[serde(default)]
    pub spec: Option<String>,
    /// Only this file or folder.
    #[serde(default)]
    pub path: Option<String>,
    /// How many bytes of diff to show at once.
    #[serde(default)]
    pub max_bytes: Option<u64>,
}

/// Lists commits, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct GitLog {
    /// A root's name.
    pub root: String,
    /// A revision, or two as `A..B`. Without it, HEAD.
    #[serde(default)]
    pub range: Option<String>,
    /// Only commits that changed this file or folder.
    #[serde(default)]
    pub path: Option<String>,
    /// How many, 100 at most. Without it, 20.
    #[serde(default)]
    pub limit: Option<u32>,
}

/// Shows one commit: who, when, why, and its diff.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct GitShow {
    /// A root's name.
    pub root: String,
    /// A revision, for instance `HEAD~1` or a hash.
    pub rev: String,
    /// A file or folder: only its part of the diff.
    #[serde(default)]
    pub path: Option<String>,
    /// How many bytes of diff to show at once.
    #[serde(default)]
    pub max_bytes: Option<u64>,
}

/// Lists the local branches with their upstream and last commit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct GitBranches {
    /// A root's name.
    pub root: String,
    /// A path in the repository, where the root holds several.
    #[serde(default)]
    pub path: Option<String>,
}

/// Reads on in an output of this turn that was cut.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ReadOutput {
    /// The handle that came with the cut output.
    pub handle: String,
    /// Where to go on, in bytes.
    pub offset: u64,
}

/// Reserves the id of a new record; its registry line goes into the next commit by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ReserveId {
    /// A root that follows the record protocol.
    pub root: String,
    /// The kind of record.
    pub prefix: Prefix,
    /// The record's title, on one line.
    pub title: String,
}

/// The kinds of record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Prefix {
    /// A business.
    #[serde(rename = "BUS")]
    Bus,
    /// A project.
    #[serde(rename = "PRJ")]
    Prj,
    /// A shared signal.
    #[serde(rename = "SS")]
    Ss,
    /// A decision.
    #[serde(rename = "DEC")]
    Dec,
    /// A reference.
    #[serde(rename = "REF")]
    Ref,
}

impl Prefix {
    /// As ids begin with it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bus => "BUS",
            Self::Prj => "PRJ",
            Self::Ss => "SS",
            Self::Dec => "DEC",
            Self::Ref => "REF",
        }
    }
}

/// Commits exactly the named files and pushes at once.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct GitCommit {
    /// A root's name.
    pub root: String,
    /// What changes and why, 500 characters at most. The requester's trailer is added.
    pub message: String,
    /// The files to commit, 1 to 50; new, changed and deleted ones alike.
    pub paths: Vec<String>,
}

/// Fetches from origin and moves the branch forward; never merges.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct GitPull {
    /// A root's name.
    pub root: String,
}

/// Pushes the branch to origin; never forces.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct GitPush {
    /// A root's name.
    pub root: String,
}

/// Fetches a public https page and answers with its text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct WebFetch {
    /// The page's URL, `https://…`.
    pub url: String,
}

/// Searches the web: titles, URLs and snippets, 10 at most.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct WebSearch {
    /// What to search for, in a few words. A search engine reads it.
    pub query: String,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{ToolCall, ToolName};
    use crate::refusal::Code;

    #[test]
    fn every_tool_describes_itself_and_every_argument() {
        for tool in ToolName::ALL {
            assert!(tool.description().ends_with('.'), "{tool} has a description");
            let schema = tool.schema();
            assert_eq!(schema.get("additionalProperties"), Some(&json!(false)), "{tool}");
            let properties = schema.get("properties").and_then(|p| p.as_object()).cloned();
            for (name, property) in properties.unwrap_or_default() {
                assert!(property.get("description").is_some(), "{tool}.{name} is documented");
            }
            assert_eq!(ToolName::parse(tool.as_str()), Some(*tool));
            assert_eq!(serde_json::to_value(tool).expect("a name serialises"), tool.as_str());
        }
    }

    #[test]
    fn arguments_survive_the_way_from_json_and_back() {
        let arguments = json!({"root": "notes", "path": "a.md", "offset": 3, "limit": null});
        let call = ToolCall::from_json("read_file", arguments.clone()).expect("it fits");
        assert_eq!(call.name(), ToolName::ReadFile);
        assert_eq!(call.arguments(), arguments);
    }

    #[test]
    fn an_unknown_field_is_refused_by_name() {
        let refusal = ToolCall::from_json("git_push", json!({"root": "r", "force": true}))
            .expect_err("force is no argument");
        assert_eq!(refusal.code, Code::InvalidArguments);
        assert!(refusal.message.contains("force"), "{}", refusal.message);
    }

    #[test]
    fn an_unknown_tool_is_refused_by_name() {
        let refusal = ToolCall::from_json("shell", json!({})).expect_err("there is no shell");
        assert_eq!(refusal.code, Code::NotOffered);
    }
}
