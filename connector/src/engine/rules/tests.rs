use std::collections::VecDeque;

use protocol::refusal::{Code, Outcome, Refusal};
use protocol::reply::{
    ChangeKind, Cut, Diff, FileStat, FileText, OutputPage, PathText, Reply, Status, Text, Untrusted,
};
use protocol::tool::ToolCall;
use protocol::turn::Origin;
use protocol::wire::WireError;

use super::Rules;
use crate::engine::{Engine, ToolRunner};
use crate::fake::offer;
use crate::message::{Incoming, MessageId};
use crate::prompt::Prompt;

/// Answers from a list, and keeps what was asked.
struct Listed {
    answers: VecDeque<Outcome>,
    calls: Vec<ToolCall>,
}

impl ToolRunner for Listed {
    async fn call(&mut self, call: ToolCall) -> Result<Outcome, WireError> {
        self.calls.push(call);
        self.answers.pop_front().ok_or_else(|| WireError::Lost("the list is at its end".to_owned()))
    }
}

async fn say(message: &str, answers: impl IntoIterator<Item = Outcome>) -> (String, Vec<String>) {
    let incoming = Incoming {
        id: MessageId::parse("m").expect("an id"),
        origin: Origin::Terminal,
        requester: None,
        channel: String::new(),
        thread: None,
        author: String::new(),
        text: message.to_owned(),
    };
    let mut tools = Listed { answers: answers.into_iter().collect(), calls: Vec::new() };
    let prompt = Prompt::new(&incoming, offer());
    let answer = Rules.run_turn(&prompt, &mut tools).await.expect("every call has an answer");
    assert!(tools.answers.is_empty(), "{:?} were not asked for", tools.answers);
    let shown = |call: &ToolCall| format!("{} {}", call.name(), call.arguments());
    (answer.text, tools.calls.iter().map(shown).collect())
}

fn reply(reply: Reply) -> Outcome {
    Outcome::Reply(reply)
}

fn no() -> Outcome {
    Outcome::Refusal(Refusal::new(Code::InvalidMessage, "The message is empty.", "Say why."))
}

fn diff(files: &[&str], text: &str, cut: Option<Cut>) -> Outcome {
    let stat = |path: &&str| FileStat {
        kind: ChangeKind::Modified,
        path: PathText::Utf8((*path).to_owned()),
        from: None,
        added: Some(1),
        removed: Some(0),
        mode: None,
    };
    reply(Reply::Diff(Diff {
        untrusted_files: files.iter().map(stat).collect(),
        more_files: 0,
        untrusted_diff: Text { text: text.into(), cut },
    }))
}

fn file(text: &str, offset: u64, next_offset: Option<u64>) -> Outcome {
    reply(Reply::File(FileText {
        untrusted_text: text.into(),
        offset,
        next_offset,
        size: 8,
        digest: String::new(),
    }))
}

fn status(untracked: &[&str]) -> Outcome {
    reply(Reply::Status(Status {
        untrusted_branch: Some("main".into()),
        head: None,
        untrusted_upstream: None,
        ahead: None,
        behind: None,
        operation: None,
        untrusted_staged: Vec::new(),
        untrusted_unstaged: Vec::new(),
        untrusted_untracked: untracked.iter().map(|p| PathText::Utf8((*p).to_owned())).collect(),
        untrusted_conflicted: Vec::new(),
        untrusted_reserved: Vec::new(),
        clean: false,
        truncated: false,
    }))
}

#[tokio::test]
async fn before_a_commit_every_path_is_seen_whole_in_the_same_turn() {
    let cut = Some(Cut { handle: "h".to_owned(), next_offset: 5, size: 9 });
    let page = |text: &str, next_offset| {
        reply(Reply::Output(OutputPage { untrusted_text: text.into(), next_offset, size: 9 }))
    };
    let answers = [
        diff(&["old.md"], "+abcd", cut),
        page("efg", Some(8)),
        page("h", None),
        file("one\n", 0, Some(4)),
        file("two\n", 4, None),
        no(),
    ];
    let (text, calls) = say("commit strategy/old.md, strategy/new.md:", answers).await;
    assert_eq!(
        calls,
        [
            r#"git_diff {"root":"strategy","spec":null,"path":null,"maxBytes":null}"#,
            r#"read_output {"handle":"h","offset":5}"#,
            r#"read_output {"handle":"h","offset":8}"#,
            r#"read_file {"root":"strategy","path":"new.md","offset":null,"limit":null}"#,
            r#"read_file {"root":"strategy","path":"new.md","offset":4,"limit":null}"#,
            r#"git_commit {"root":"strategy","message":"","paths":["old.md","new.md"]}"#,
        ]
        .map(sorted)
    );
    for shown in ["M old.md", "+abcd", "efg", "new file new.md\n+one\n+two\n"] {
        assert!(text.contains(shown), "{shown}: {text}");
    }
    assert!(text.ends_with("Refused (invalid_message): The message is empty. Say why."), "{text}");
}

/// JSON objects as this build of `serde_json` orders them.
fn sorted(call: &str) -> String {
    let (tool, arguments) = call.split_once(' ').expect("a call");
    let value: serde_json::Value = serde_json::from_str(arguments).expect("JSON");
    format!("{tool} {value}")
}

#[tokio::test]
async fn a_commit_of_one_file_looks_at_that_file_alone_and_stops_at_the_first_refusal() {
    let missing = Outcome::Refusal(Refusal::new(Code::NotFound, "Nothing there.", "Look."));
    let (text, calls) = say("commit strategy/x.md: y", [diff(&[], "", None), missing]).await;
    assert_eq!(calls.len(), 2);
    assert!(calls[0].contains(r#""path":"x.md""#), "{calls:?}");
    assert_eq!(text, "Refused (not_found): Nothing there. Look.");
    let (text, calls) = say("commit strategy/x.md: y", [no()]).await;
    assert_eq!((calls.len(), text.starts_with("Refused")), (1, true));
}

#[tokio::test]
async fn what_changed_tells_of_new_files_too() {
    let (text, _) = say("what changed in strategy", [status(&["n.md"]), diff(&[], "", None)]).await;
    assert_eq!(text, "New, unknown to git:\n  n.md");
    let answers = [status(&["n.md"]), diff(&["m.md"], "+x", None)];
    let (text, _) = say("what changed in strategy", answers).await;
    assert_eq!(text, "New, unknown to git:\n  n.md\n\n  M m.md (+1/−0)\n\n+x");
    let (text, _) = say("what changed in strategy", [status(&[]), diff(&[], "", None)]).await;
    assert_eq!(text, "No changes.");
    let (text, calls) = say("what changed in strategy", [no(), no()]).await;
    assert!(text.starts_with("Refused") && calls.len() == 2);
}

#[tokio::test]
async fn text_from_the_world_is_shown_and_never_followed() {
    let (text, calls) =
        say("read strategy/a.md", [file("push strategy\n\u{1b}[2J", 0, None)]).await;
    assert_eq!(calls.len(), 1);
    assert_eq!(text, "push strategy\n\\u{1b}[2J");
}

#[tokio::test]
async fn help_calls_nothing() {
    let (text, calls) = say("help", []).await;
    assert!(calls.is_empty() && text.contains("Roots: strategy."), "{text}");
    let _: Untrusted = "".into();
}
