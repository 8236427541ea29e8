//! One turn as a page for a browser: self-contained, without a script, and without anything that the
//! record does not hold.
//!
//! Everything that comes from the world is escaped here, once, in [`text`]; a policy in the page itself
//! forbids it to load or run anything.

use std::fmt::Write as _;

use protocol::reply::PushState;

use super::{given, outcome, web_words};
use crate::delivery::Sent;
use crate::record::{CallRecord, CallResult, CommitRecord, TurnOutcome, TurnRecord};
use crate::render::one_line;

/// What lets nothing load and nothing run stands first.
const HEAD: &str = include_str!("turn.head.html");
const STYLE: &str = include_str!("turn.css");

/// A record as a page.
pub(super) fn page<'a>(record: &TurnRecord, sent: impl Fn(&str) -> Option<&'a Sent>) -> String {
    let id = text(&record.id.to_string());
    let mut page = format!(
        "{HEAD}<title>Turn {id}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n"
    );
    page.push_str(&heading(record, &id));
    page.push_str(&envelope(record));
    page.push_str(&calls(&record.calls));
    page.push_str(&deliveries(record, sent));
    page.push_str("</main>\n</body>\n</html>\n");
    page
}

/// Text of the world, for a place between tags or in a quoted attribute.
fn text(world: &str) -> String {
    let mut escaped = String::with_capacity(world.len());
    for c in one_line(world).chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

fn heading(record: &TurnRecord, id: &str) -> String {
    let mood = match record.outcome {
        TurnOutcome::Answered => "good",
        TurnOutcome::Failed { .. } | TurnOutcome::TimedOut => "bad",
        TurnOutcome::Aborted | TurnOutcome::Interrupted { .. } => "odd",
    };
    let how = text(&outcome(&record.outcome));
    format!("<h1>Turn <code>{id}</code></h1>\n<p class=\"outcome {mood}\">{how}</p>\n")
}

fn row(rows: &mut String, name: &str, value: &str) {
    let _ = writeln!(rows, "<tr><th scope=\"row\">{name}</th><td>{value}</td></tr>");
}

fn envelope(record: &TurnRecord) -> String {
    let source = &record.source;
    let mut rows = String::new();
    row(&mut rows, "from", &text(&source.author));
    let place = match &source.thread {
        Some(thread) => format!("{} › {}", text(&source.channel), text(thread)),
        None => text(&source.channel),
    };
    row(&mut rows, "in", &format!("{place}, through {}", source.origin.as_str()));
    row(&mut rows, "for", &text(source.requester.as_deref().unwrap_or("nobody")));
    row(&mut rows, "received", &text(&record.received.to_string()));
    row(&mut rows, "finished", &text(&record.finished.to_string()));
    if let Some(latency) = record.latency_ms {
        row(&mut rows, "took", &format!("{latency} ms"));
    }
    if let Some(engine) = &record.engine {
        row(&mut rows, "engine", &text(engine));
    }
    if let Some(envelope) = &record.envelope {
        let digest = text(&envelope.sha256);
        row(
            &mut rows,
            "prompt",
            &format!("{} bytes, sha256 <code>{digest}</code>", envelope.bytes),
        );
    }
    if let Some(usage) = &record.usage {
        let words = format!("{} in, {} out", usage.input_tokens, usage.output_tokens);
        row(&mut rows, "tokens", &words);
    }
    format!("<h2>Envelope</h2>\n<table>\n{rows}</table>\n")
}

fn calls(calls: &[CallRecord]) -> String {
    if calls.is_empty() {
        return "<h2>Calls</h2>\n<p>No tool was called.</p>\n".to_owned();
    }
    let longest = calls.iter().map(|call| call.duration_ms).max().unwrap_or(0).max(1);
    let items: String = calls.iter().map(|call| item(call, longest)).collect();
    format!("<h2>Calls</h2>\n<ol class=\"calls\">\n{items}</ol>\n")
}

fn item(call: &CallRecord, longest: u64) -> String {
    let (mood, result) = match &call.result {
        CallResult::Reply => ("good", "done".to_owned()),
        CallResult::Refusal { code, message } => {
            ("odd", format!("refused (<code>{code}</code>): {}", text(message)))
        }
        CallResult::Fault { message } => ("bad", format!("broke: {}", text(message))),
        CallResult::Lost { reason } => ("bad", format!("lost: {}", text(reason))),
        CallResult::Abandoned => ("odd", "abandoned when the turn ended".to_owned()),
    };
    let share = call.duration_ms.saturating_mul(100) / longest;
    let commit = call.commit.as_ref().map(commit).unwrap_or_default();
    let web = call.web.as_ref().map(|web| format!("<p>{}</p>\n", text(&web_words(web))));
    format!(
        "<li class=\"{mood}\">\n<p><code class=\"tool\">{}</code> <span class=\"result\">{result}</span></p>\n\
         <p class=\"arguments\"><code>{}</code></p>\n\
         <p class=\"time\"><span class=\"bar\" style=\"width:{share}%\"></span> {} ms</p>\n{}{commit}</li>\n",
        text(&call.tool),
        text(&given(&call.arguments)),
        call.duration_ms,
        web.unwrap_or_default(),
    )
}

fn commit(commit: &CommitRecord) -> String {
    let push = match &commit.push {
        PushState::Pushed => format!("pushed to origin/{}", text(&commit.branch)),
        PushState::Failed { code, message } => {
            format!("not pushed (<code>{code}</code>): {}", text(message))
        }
    };
    let mut rows = String::new();
    for file in &commit.files {
        let count = |count: Option<u64>| count.map_or("binary".to_owned(), |n| n.to_string());
        let _ = writeln!(
            rows,
            "<tr><td>{}</td><td><code>{}</code></td><td class=\"added\">+{}</td><td class=\"removed\">−{}</td></tr>",
            file.kind.letter(),
            text(file.path.as_str()),
            count(file.added),
            count(file.removed),
        );
    }
    format!(
        "<div class=\"commit\"><p>commit <code>{}</code>, {push}; {}</p>\n<table>\n{rows}</table></div>\n",
        text(&commit.hash),
        text(&commit.trailer),
    )
}

fn deliveries<'a>(record: &TurnRecord, sent: impl Fn(&str) -> Option<&'a Sent>) -> String {
    let mut rows = String::new();
    for delivery in &record.deliveries {
        let state = match sent(&delivery.nonce) {
            Some(Sent::Confirmed) => "confirmed".to_owned(),
            Some(Sent::Refused { reason }) => format!("refused: {}", text(reason)),
            Some(Sent::Unknown { reason }) => format!("unknown: {}", text(reason)),
            None => "no result".to_owned(),
        };
        let bytes = format!("{} bytes, {state}", delivery.text.bytes);
        row(&mut rows, &format!("<code>{}</code>", text(&delivery.nonce)), &bytes);
    }
    format!("<h2>Said</h2>\n<table>\n{rows}</table>\n")
}

#[cfg(test)]
mod tests {
    use protocol::refusal::Code;
    use protocol::reply::{ChangeKind, FileStat, PathText, PushState};
    use protocol::turn::Origin;
    use serde_json::json;

    use super::page;
    use crate::delivery::Kind;
    use crate::message::MessageId;
    use crate::record::{
        CallRecord, CallResult, CommitRecord, DeliveryRecord, RECORD_VERSION, Source, TextDigest,
        TurnOutcome, TurnRecord, WebRecord,
    };

    const HOSTILE: &str = "</td><script>alert('x')</script>\"&\u{202e}";

    fn call(result: CallResult) -> CallRecord {
        CallRecord {
            id: "1-1".to_owned(),
            tool: HOSTILE.to_owned(),
            arguments: json!({"path": HOSTILE}),
            result,
            duration_ms: 12,
            web: Some(WebRecord {
                url: Some(format!("https://example.com/{HOSTILE}")),
                status: Some(200),
                bytes: 3,
                sha256: HOSTILE.to_owned(),
            }),
            commit: Some(CommitRecord {
                hash: HOSTILE.to_owned(),
                branch: HOSTILE.to_owned(),
                trailer: HOSTILE.to_owned(),
                files: vec![FileStat {
                    kind: ChangeKind::Added,
                    path: PathText::Utf8(HOSTILE.to_owned()),
                    from: None,
                    added: Some(3),
                    removed: None,
                    mode: None,
                }],
                push: PushState::Failed {
                    code: Code::RemoteUnreachable,
                    message: HOSTILE.to_owned(),
                },
            }),
        }
    }

    fn hostile() -> TurnRecord {
        let world = || HOSTILE.to_owned();
        let refusal = CallResult::Refusal { code: Code::NotReviewed, message: world() };
        TurnRecord {
            version: RECORD_VERSION,
            id: MessageId::parse("t-1").expect("an id"),
            source: Source {
                origin: Origin::Terminal,
                requester: Some(world()),
                channel: world(),
                thread: Some(world()),
                author: world(),
            },
            received: jiff::Timestamp::UNIX_EPOCH,
            finished: jiff::Timestamp::UNIX_EPOCH,
            latency_ms: Some(40),
            engine: Some(world()),
            envelope: Some(TextDigest::of(HOSTILE)),
            outcome: TurnOutcome::Failed { reason: world() },
            calls: vec![
                call(refusal),
                call(CallResult::Fault { message: world() }),
                call(CallResult::Lost { reason: world() }),
            ],
            deliveries: vec![DeliveryRecord {
                nonce: world(),
                kind: Kind::Failed,
                text: TextDigest::of(HOSTILE),
            }],
            usage: None,
        }
    }

    #[test]
    fn nothing_of_the_world_is_markup_on_the_page() {
        let page = page(&hostile(), |_| None);
        for never in ["<script", "alert('x')", "\u{202e}", "</td></td>"] {
            assert!(!page.contains(never), "{never:?} in {page}");
        }
        let shown = page.matches("&lt;script&gt;alert(&#39;x&#39;)").count();
        assert!(shown >= 18, "{shown}: it is all there, as text");
    }

    #[test]
    fn a_page_needs_nothing_else_and_lets_nothing_run() {
        let page = page(&hostile(), |_| None);
        assert!(page.contains("Content-Security-Policy\" content=\"default-src 'none'"));
        for never in ["http:", "\"https:", "src=", "href=", "url(", "@import", "<link", "<iframe"] {
            assert!(!page.contains(never), "{never}");
        }
    }
}
