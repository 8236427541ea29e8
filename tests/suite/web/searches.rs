//! A search instance and its quirks.

use executor::tools::Failure;
use harness::web::server::{Act, Seen, answer};
use harness::web::world::search;
use protocol::refusal::{Code, Refusal};
use serde_json::json;

fn json(body: impl AsRef<[u8]>) -> Vec<Act> {
    answer(200, "Content-Type: application/json\r\n", body)
}

fn refused(script: impl Fn(&Seen) -> Vec<Act> + Send + Sync + 'static) -> Refusal {
    match search("", "x", script).0 {
        Err(Failure::Refusal(no)) => no,
        other => panic!("{other:?}"),
    }
}

#[test]
fn b53_the_query_and_the_base_path_reach_the_instance_as_they_are() {
    let text = "a b&c=d#e+f%20\"g\" \u{e9} \u{4e2d}";
    for (base, path) in [
        ("", "/search"),
        ("/", "/search"),
        ("/searx", "/searx/search"),
        ("/searx/", "/searx/search"),
    ] {
        let (found, seen) = search(base, text, |_| {
            json(json!({"number_of_results": 0, "results": [{"url": "https://a.example/", "title": "A", "content": null}]}).to_string())
        });
        let found = found.expect("it answers");
        assert_eq!(found.untrusted_results[0].title.as_str(), "A");
        assert!(found.bytes > 0 && found.digest.len() == 64);
        let url = url::Url::parse(&format!("http://h{}", seen[0].target())).expect("a target");
        assert_eq!(url.path(), path);
        let pairs: Vec<_> = url.query_pairs().into_owned().collect();
        assert!(pairs.contains(&("q".to_owned(), text.to_owned())), "{pairs:?}");
        assert!(pairs.contains(&("format".to_owned(), "json".to_owned())), "{pairs:?}");
        assert!(seen[0].header("cookie").is_none() && seen[0].header("authorization").is_none());
    }
}

#[test]
fn b53_what_is_blank_or_a_credential_is_not_asked() {
    let token = format!("what is ghp_{}", "aB3dE5gH7jK9mN1pQ3sT5vX7zA9bC1dE3fG5");
    for (query, code) in [("  ", Code::InvalidArguments), (&token, Code::CredentialShape)] {
        let (found, seen) = search("", query, |_| json("{}"));
        assert!(matches!(found, Err(Failure::Refusal(no)) if no.code == code), "{query}");
        assert!(seen.is_empty());
    }
}

#[test]
fn b51_an_instance_that_is_not_set_up_is_told_apart() {
    let page = "<!doctype html><title>403 Forbidden</title><p>You don't have the permission...</p>";
    let html = "Content-Type: text/html\r\n";
    for (acts, word) in [
        (answer(403, html, page), "search.formats"),
        (answer(200, html, page), "HTML"),
        (json(page), "HTML"),
        (json(""), "nothing"),
        (json("null"), "no list"),
        (json("{}"), "no list"),
        (json("{\"results\": [{\"ur"), "broken"),
        (json("{\"results\": []} x"), "broken"),
        (json(format!("{}{}", "[".repeat(100_000), "]".repeat(100_000))), "broken"),
        (answer(429, "Retry-After: 3600\r\n", ""), "3600 s"),
        (answer(302, "Location: /login\r\n", ""), "redirects"),
        (answer(502, html, "<p>bad"), "502"),
        (json(vec![b' '; 50 << 20]), "longer"),
        (vec![], "cannot be asked"),
    ] {
        let no = refused(move |_| acts.clone());
        assert_eq!(no.code, Code::SearchUnavailable, "{no}");
        assert!(no.message.contains(word) && !no.message.contains('<'), "{word}: {no}");
    }
    let count = search("", "x", |_| answer(403, "", "")).1.len();
    assert_eq!(count, 1, "it is asked once");
    for acts in [
        json("\u{feff}{\"results\": []}"),
        answer(200, "Content-Type: text/plain\r\n", "{\"results\": []}"),
    ] {
        let found = search("", "x", move |_| acts.clone()).0.expect("it answers");
        assert_eq!(found.untrusted_results.len(), 0);
    }
}
