//! The web through the real executor, as far as loopback can show it.

use harness::calls::{list_roots, read_output, web_fetch, web_search};
use harness::web::server::{Server, answer};
use harness::world::World;
use protocol::refusal::Code;
use protocol::reply::SearchResults;
use protocol::tool::ToolName;
use serde_json::json;

const WEB: [ToolName; 2] = [ToolName::WebFetch, ToolName::WebSearch];

fn offered(world: &World) -> Vec<ToolName> {
    world.describe().tools.into_iter().filter(|tool| WEB.contains(tool)).collect()
}

#[test]
fn without_a_web_key_there_are_no_web_tools() {
    let world = World::new_plain();
    assert_eq!(offered(&world), []);
    let turn = world.turn("Owner");
    turn.refused_by(Code::NotOffered, web_fetch("https://ok.example/"));
    turn.refused_by(Code::NotOffered, web_search("pears"));
}

#[test]
fn without_an_instance_there_is_no_search() {
    let world = World::builder().web(json!({})).build();
    assert_eq!(offered(&world), [ToolName::WebFetch]);
    world.turn("Owner").refused_by(Code::NotOffered, web_search("pears"));
}

#[test]
fn what_is_not_public_is_refused_and_audited_without_being_named() {
    let world = World::builder().web(json!({})).build();
    let turn = world.turn("Owner");
    for (url, code) in [
        ("https://127.0.0.1/", Code::AddressRefused),
        ("https://2130706433/secret", Code::AddressRefused),
        ("https://[::ffff:7f00:1]/", Code::AddressRefused),
        ("https://localhost/", Code::AddressRefused),
        ("http://ok.example/", Code::InvalidUrl),
        ("https://ok.example:8443/", Code::InvalidUrl),
        ("https://u:p@ok.example/", Code::InvalidUrl),
    ] {
        turn.refused_by(code, web_fetch(url));
    }
    let lines = world.audit_lines();
    let refused: Vec<_> = lines.iter().filter(|line| line["tool"] == "web_fetch").collect();
    assert_eq!(refused.len(), 7);
    assert!(refused.iter().all(|line| line["event"] == "refused"), "{refused:?}");
    assert!(!serde_json::to_string(&lines).expect("JSON").contains("secret"));
}

#[test]
fn a_search_goes_all_the_way_and_the_audit_says_what_came() {
    let instance = Server::start(None, |_| {
        let hit =
            json!({"url": "https://a.example/", "title": "<b>A</b>", "content": "about pears"});
        answer(200, "Content-Type: application/json\r\n", json!({"results": [hit]}).to_string())
    });
    let searxng = format!("http://{}/searx", instance.address());
    // B39: a proxy of the environment is not asked.
    let proxy = Server::start(None, |_| Vec::new());
    let mut builder = World::builder().web(json!({"searxng": searxng}));
    for name in ["ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "all_proxy", "https_proxy", "http_proxy"]
    {
        builder = builder.environment(name, &format!("http://{}", proxy.address()));
    }
    let world = builder.build();
    assert_eq!(offered(&world), WEB);
    let found: SearchResults = world.turn("Owner").reply(web_search("pears & apples"));
    let hit = &found.untrusted_results[0];
    assert_eq!((hit.title.as_str(), hit.snippet.as_str()), ("A", "about pears"));
    let seen = instance.seen();
    assert!(
        seen[0].target().starts_with("/searx/search?q=pears+%26+apples"),
        "{}",
        seen[0].target()
    );
    assert!(proxy.seen().is_empty());
    let lines = world.audit_lines();
    let done = lines.iter().find(|line| line["event"] == "done" && line["tool"] == "web_search");
    assert_eq!(done.expect("it is audited")["digest"], found.digest);
    assert!(!serde_json::to_string(&lines).expect("JSON").contains("pears"));
}

#[test]
fn an_instance_that_is_not_there_is_a_refusal_and_the_executor_serves_on() {
    let gone = Server::start(None, |_| Vec::new()).address();
    let world = World::builder().web(json!({"searxng": format!("http://{gone}")})).build();
    let turn = world.turn("Owner");
    turn.refused_by(Code::SearchUnavailable, web_search("pears"));
    turn.refused_by(Code::UnknownHandle, read_output("output-1", 0));
    let _ = turn.call(list_roots());
}

#[test]
fn a_web_key_that_reaches_too_far_refuses_the_start() {
    for (web, said) in [
        (json!({"searxng": "http://10.0.0.1:8888"}), "web.searxng"),
        (json!({"searxng": "http://search.example"}), "web.searxng"),
        (json!({"maxFetchBytes": 0}), "web.maxFetchBytes"),
        (json!({"proxy": "http://127.0.0.1:3128"}), "proxy"),
        (json!({"caFile": "/nonexistent/ca.pem"}), "/nonexistent/ca.pem"),
    ] {
        let refused = World::builder().web(web).build_stopped().start_refused();
        assert!(refused.contains(said), "{said}: {refused}");
    }
}
