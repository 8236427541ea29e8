use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use serde_json::json;
use ureq::http::Method;

use super::{Attempt, Rest, USER_AGENT, message};
use crate::binding::Token;

/// A server that answers one connection with these bytes, and what it read. Nothing when `answer` is
/// empty.
fn once(answer: &'static [u8]) -> (String, std::thread::JoinHandle<String>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback");
    let base = format!("http://{}/api/v10", listener.local_addr().expect("bound"));
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("somebody comes");
        let mut seen = Vec::new();
        let mut buffer = [0; 4096];
        while !complete(&seen) {
            match stream.read(&mut buffer) {
                Ok(0) | Err(_) => break,
                Ok(read) => seen.extend_from_slice(&buffer[..read]),
            }
        }
        let _ = stream.write_all(answer);
        String::from_utf8_lossy(&seen).into_owned()
    });
    (base, thread)
}

fn complete(seen: &[u8]) -> bool {
    let text = String::from_utf8_lossy(seen).to_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    length
        .is_none_or(|length| length.trim().parse().is_ok_and(|length: usize| body.len() >= length))
}

fn rest(base: &str) -> Rest {
    Rest::new(Some(base), Token::for_test("the-token"), None).expect("no TLS")
}

async fn asked(answer: &'static [u8]) -> (Attempt, String) {
    let (base, thread) = once(answer);
    let body = message("Hello", "1-1", "1", None);
    let attempt = rest(&base).request(Method::POST, "/channels/1/messages", Some(body)).await;
    (attempt, thread.join().expect("it ends"))
}

#[tokio::test]
async fn a_message_is_sent_as_discord_wants_it_and_can_set_nothing_off() {
    let (attempt, seen) =
        asked(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\nconnection: close\r\n\r\n{\"id\":\"5\"}")
            .await;
    let Attempt::Answered(answer) = attempt else { panic!("{attempt:?}") };
    assert_eq!((answer.status, answer.body), (200, Some(json!({"id": "5"}))));
    assert!(seen.starts_with("POST /api/v10/channels/1/messages HTTP/1.1\r\n"), "{seen}");
    let lower = seen.to_lowercase();
    assert!(lower.contains(&format!("user-agent: {}\r\n", USER_AGENT.to_lowercase())), "{seen}");
    assert!(lower.contains("authorization: bot the-token\r\n"), "{seen}");
    assert!(lower.contains("content-type: application/json\r\n"), "{seen}");
    let body: serde_json::Value =
        serde_json::from_str(seen.split("\r\n\r\n").nth(1).expect("a body")).expect("JSON");
    assert_eq!(body["allowed_mentions"], json!({"parse": []}));
    assert_eq!((&body["enforce_nonce"], &body["nonce"]), (&json!(true), &json!("1-1")));
}

#[tokio::test]
async fn an_answer_that_never_came_is_unknown_and_one_that_was_not_sent_is_not() {
    let (attempt, seen) = asked(b"").await;
    assert!(matches!(attempt, Attempt::Unknown(_)), "{attempt:?}");
    assert_eq!(seen.matches("POST ").count(), 1, "one call is one request");
    let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback");
    let base = format!("http://{}", closed.local_addr().expect("bound"));
    drop(closed);
    let attempt = rest(&base).get("/users/@me").await;
    assert!(matches!(attempt, Attempt::NotSent(_)), "{attempt:?}");
}

#[tokio::test]
async fn a_status_counts_though_its_body_breaks_off_or_is_no_json() {
    let (attempt, _) =
        asked(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\nconnection: close\r\n\r\n{\"id\"").await;
    assert!(
        matches!(&attempt, Attempt::Answered(a) if a.status == 200 && a.body.is_none()),
        "{attempt:?}"
    );
    let (attempt, _) =
        asked(b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 6\r\nconnection: close\r\n\r\n<html>")
            .await;
    assert!(matches!(&attempt, Attempt::Answered(a) if a.status == 502), "{attempt:?}");
}

#[tokio::test]
async fn the_longer_of_two_waits_counts() {
    let (attempt, _) = asked(
        b"HTTP/1.1 429 Too Many\r\nretry-after: 1\r\nx-ratelimit-bucket: b\r\ncontent-length: 35\r\nconnection: close\r\n\r\n{\"retry_after\": 2.5, \"global\":true}",
    )
    .await;
    let Attempt::Answered(answer) = attempt else { panic!("{attempt:?}") };
    assert_eq!(answer.retry_after, Some(Duration::from_millis(2500)));
    assert!(answer.global);
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let (attempt, _) = asked(
        b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
    )
    .await;
    assert!(matches!(&attempt, Attempt::Answered(a) if a.status == 302), "{attempt:?}");
}

#[tokio::test]
async fn the_token_is_in_no_error() {
    let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback");
    let base = format!("http://{}", closed.local_addr().expect("bound"));
    drop(closed);
    let attempt = rest(&base).get("/users/@me").await;
    assert!(!format!("{attempt:?}").contains("the-token"));
}
