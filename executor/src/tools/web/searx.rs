//! What a SearXNG instance answers, read with patience: engines leave fields out, set them to null, and
//! count zero results where there are some.

use policy::secret;
use protocol::refusal::Code;
use protocol::reply::{SearchHit, SearchResults, Untrusted};
use serde_json::Value;
use url::Url;

use super::MAX_TITLE_CHARS;
use super::http::Answer;
use super::page::bare;
use crate::tools::Failure;

/// The longest answer that is read, in bytes.
pub const MAX_ANSWER_BYTES: usize = 2 << 20;

/// How many results are shown.
pub const MAX_RESULTS: usize = 10;

const MAX_SNIPPET_CHARS: usize = 1000;
const MAX_URL_CHARS: usize = 2048;

fn unavailable(message: impl Into<String>, hint: &str) -> Failure {
    Failure::refuse(Code::SearchUnavailable, message, hint)
}

const LATER: &str = "Try again later; if it stays so, the operator looks at the instance.";
const OPERATOR: &str = "The operator looks at the instance; docs/searxng.md says how it is set up.";

/// A failure to ask the instance is the instance's, not a page's.
pub(super) fn why(failure: Failure) -> Failure {
    match failure {
        Failure::Refusal(no)
            if matches!(
                no.code,
                Code::HostUnreachable | Code::BadResponse | Code::UnsupportedType
            ) =>
        {
            unavailable(format!("The search instance cannot be asked. {}", no.message), OPERATOR)
        }
        other => other,
    }
}

/// The body of an answer that may hold results.
///
/// # Errors
/// `search_unavailable`, saying what the instance did instead.
pub fn accept(answer: Answer) -> Result<Vec<u8>, Failure> {
    match answer.status {
        200 => {}
        403 => {
            return Err(unavailable(
                "The search instance refused (403): JSON is probably not among its `search.formats`.",
                OPERATOR,
            ));
        }
        429 => {
            let seconds =
                answer.retry_after.as_deref().and_then(|text| text.trim().parse::<u32>().ok());
            let when = seconds.map_or_else(String::new, |seconds| format!(" for {seconds} s"));
            return Err(unavailable(
                format!("The search instance takes no more questions{when} (429)."),
                LATER,
            ));
        }
        300..=399 => {
            return Err(unavailable(
                format!(
                    "The search instance redirects ({}), which is not followed.",
                    answer.status
                ),
                OPERATOR,
            ));
        }
        status => {
            return Err(unavailable(
                format!("The search instance answered with status {status}."),
                LATER,
            ));
        }
    }
    if answer.truncated {
        return Err(unavailable(
            format!("The search instance's answer is longer than {MAX_ANSWER_BYTES} bytes."),
            OPERATOR,
        ));
    }
    Ok(answer.body)
}

/// Reads an answer. `bytes` and `digest` are the caller's.
///
/// # Errors
/// `search_unavailable` when it is not one.
pub fn results(body: &[u8]) -> Result<SearchResults, Failure> {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    let start = body.trim_ascii_start();
    if start.is_empty() {
        return Err(unavailable("The search instance answered with nothing.", OPERATOR));
    }
    if start.starts_with(b"<") {
        return Err(unavailable(
            "The search instance answered with HTML: JSON is probably not among its `search.formats`.",
            OPERATOR,
        ));
    }
    let answer: Value = serde_json::from_slice(body).map_err(|error| {
        unavailable(format!("The search instance's answer is broken JSON: {error}."), OPERATOR)
    })?;
    let Some(Value::Array(list)) = answer.get("results") else {
        return Err(unavailable("The search instance's answer has no list of results.", OPERATOR));
    };
    let silent = answer.get("unresponsive_engines").and_then(Value::as_array).map_or(0, Vec::len);
    if list.is_empty() && silent > 0 {
        return Err(unavailable(
            format!(
                "The search instance found nothing, and {silent} of its engines did not answer."
            ),
            LATER,
        ));
    }
    let mut hits: Vec<SearchHit> = list.iter().filter_map(hit).collect();
    let skipped = (list.len() - hits.len()) as u64;
    let more = hits.len().saturating_sub(MAX_RESULTS) as u64;
    hits.truncate(MAX_RESULTS);
    Ok(SearchResults { untrusted_results: hits, more, skipped, bytes: 0, digest: String::new() })
}

fn hit(result: &Value) -> Option<SearchHit> {
    let url = Url::parse(result.get("url")?.as_str()?.trim()).ok()?;
    if !matches!(url.scheme(), "http" | "https") || url.as_str().len() > MAX_URL_CHARS {
        return None;
    }
    let field = |name: &str, most: usize| {
        let text = result.get(name).and_then(Value::as_str).unwrap_or_default();
        let seen: String =
            bare::line(text).chars().filter(|c| !super::page::unseen(*c)).take(most).collect();
        secret::mask(&seen).into_owned()
    };
    let title = Some(field("title", MAX_TITLE_CHARS)).filter(|title| !title.is_empty());
    let url = secret::mask(url.as_str()).into_owned();
    Some(SearchHit {
        title: Untrusted(title.unwrap_or_else(|| url.clone())),
        snippet: Untrusted(field("content", MAX_SNIPPET_CHARS)),
        url: Untrusted(url),
    })
}

#[cfg(test)]
mod tests {
    use protocol::refusal::Code;
    use serde_json::json;

    use super::super::http::Answer;
    use super::{accept, results};
    use crate::tools::Failure;

    fn said<T: std::fmt::Debug>(result: Result<T, Failure>) -> String {
        match result.expect_err("it is refused") {
            Failure::Refusal(no) => {
                assert_eq!(no.code, Code::SearchUnavailable);
                assert!(!no.message.contains('<') && !no.message.contains('\n'), "{no}");
                no.message
            }
            Failure::Fault(fault) => panic!("{fault}"),
        }
    }

    #[test]
    fn b51_each_wrong_answer_is_named() {
        let answer = |status| Answer { status, body: b"<p>no".to_vec(), ..Answer::default() };
        assert!(said(accept(answer(403))).contains("search.formats"));
        assert!(said(accept(answer(302))).contains("302"));
        assert!(said(accept(answer(502))).contains("502"));
        let later = Answer { retry_after: Some("3600".to_owned()), ..answer(429) };
        assert!(said(accept(later)).contains("3600 s"));
        assert!(said(accept(Answer { truncated: true, ..answer(200) })).contains("longer"));
        for (body, word) in [
            ("<!doctype html><title>403 Forbidden</title>", "HTML"),
            ("", "nothing"),
            ("null", "no list"),
            ("[]", "no list"),
            ("{}", "no list"),
            ("{\"results\": {}}", "no list"),
            ("{\"results\": [{\"url\"", "broken"),
            ("{\"results\": []} and more", "broken"),
            (&format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000)), "broken"),
            (
                "{\"results\": [], \"unresponsive_engines\": [[\"a\", \"timeout\"]]}",
                "1 of its engines",
            ),
        ] {
            assert!(
                said(results(body.as_bytes())).contains(word),
                "{}",
                &body[..body.len().min(40)]
            );
        }
        assert!(results("\u{feff}{\"results\": []}".as_bytes()).is_ok());
    }

    #[test]
    fn b53_what_is_missing_or_null_costs_no_other_result() {
        for count in [json!(0), json!(null), json!("12"), json!(-1), json!(1e20), json!(1.5)] {
            let body = json!({"number_of_results": count, "results": [
                {"url": "https://a.example/", "title": "A", "content": null, "publishedDate": null, "engines": null},
                {"url": "https://b.example/", "content": "no <b>title</b> &amp; <script>x</script>more"},
                {"title": "no url"}, {"url": "", "title": "x"}, {"url": null}, {"url": 42, "title": ["t"]},
                null, "str", {"url": "javascript:alert(1)"},
            ]});
            let found = results(body.to_string().as_bytes()).expect("it has results");
            assert_eq!(found.skipped, 7);
            let shown: Vec<_> = found
                .untrusted_results
                .iter()
                .map(|hit| (hit.url.as_str(), hit.title.as_str(), hit.snippet.as_str()))
                .collect();
            assert_eq!(
                shown,
                [
                    ("https://a.example/", "A", ""),
                    ("https://b.example/", "https://b.example/", "no title & more"),
                ]
            );
        }
    }

    #[test]
    fn ten_results_are_shown_and_the_rest_counted() {
        let list: Vec<_> =
            (0..23).map(|n| json!({"url": format!("https://a.example/{n}")})).collect();
        let found = results(json!({"results": list}).to_string().as_bytes()).expect("results");
        assert_eq!((found.untrusted_results.len(), found.more, found.skipped), (10, 13, 0));
    }
}
