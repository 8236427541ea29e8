//! Bodies that are too long, too short, packed, or no text.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use harness::web::server::{Act, answer, html};
use harness::web::world::WebWorld;
use protocol::refusal::Code;

const FRONT: &str = "https://pub.example/";
const CAP: usize = 10_000;
const TEXT: &str = "Content-Type: text/plain\r\n";

fn raw(head: &str, body: &[u8]) -> Vec<Act> {
    vec![Act::Send(
        [b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n", head.as_bytes(), b"\r\n", body]
            .concat(),
    )]
}

fn world(acts: Vec<Act>) -> WebWorld {
    WebWorld::with_cap(CAP as u64, move |_| acts.clone())
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(text).and_then(|()| encoder.finish()).expect("it compresses")
}

#[test]
fn b43_the_cap_holds_for_what_is_packed_endless_or_longer_than_it_says() {
    let packed =
        answer(200, &format!("{TEXT}Content-Encoding: gzip\r\n"), gzip(&vec![b'A'; 64 << 20]));
    let chunk = Act::Endless([b"1000\r\n", &[b'A'; 4096][..], b"\r\n"].concat());
    let mut endless = raw("Transfer-Encoding: chunked\r\n", b"");
    endless.push(chunk);
    let mut unending = raw("", b"");
    unending.push(Act::Endless(vec![b'A'; 4096]));
    for acts in [packed, endless, unending] {
        let page = world(acts).fetch(FRONT);
        assert_eq!((page.bytes, page.truncated), (CAP as u64, true));
        assert_eq!(page.untrusted_text.text.as_str().len(), CAP);
    }
    let longer = world(raw("Content-Length: 10\r\n", &vec![b'A'; 1 << 20])).fetch(FRONT);
    assert_eq!((longer.bytes, longer.truncated), (10, false), "its length is what it says");
}

#[test]
fn b43_a_body_of_exactly_the_cap_is_whole() {
    for (length, truncated) in [(CAP - 1, false), (CAP, false), (CAP + 1, true)] {
        let page = world(answer(200, TEXT, vec![b'x'; length])).fetch(FRONT);
        assert_eq!((page.bytes, page.truncated), (length.min(CAP) as u64, truncated));
    }
    let cut = world(answer(200, TEXT, format!("{}\u{1f600}", "x".repeat(CAP - 2)))).fetch(FRONT);
    assert!(cut.truncated && cut.lossy && cut.untrusted_text.text.as_str().starts_with("xx"));
}

#[test]
fn b43_what_ends_early_or_contradicts_itself_is_no_page() {
    let mut broken = gzip(b"some text that is long enough");
    let end = broken.len() - 5;
    broken[end] ^= 0xff;
    for acts in [
        raw("Content-Length: 1000\r\n", b"short"),
        raw("Transfer-Encoding: chunked\r\n", b"5\r\nhello\r\n"),
        raw("Content-Length: -1\r\n", b"x"),
        raw("Content-Length: 99999999999999999999\r\n", b"x"),
        raw("Content-Length: 1\r\nContent-Length: 2\r\n", b"xy"),
        answer(200, &format!("{TEXT}Content-Encoding: gzip\r\n"), broken),
        raw(&format!("X: {}\r\n", "h".repeat(1 << 20)), b"x"),
        raw(&"X: y\r\n".repeat(10_000), b"x"),
        vec![Act::Send(b"SSH-2.0-OpenSSH_9\r\n\r\n".to_vec())],
        vec![],
    ] {
        world(acts).refused(Code::BadResponse, FRONT);
    }
}

#[test]
fn b43_packings_that_nobody_asked_for_are_refused() {
    let twice = gzip(&gzip(&vec![b'A'; 1 << 20]));
    for (coding, body) in [("gzip, gzip", twice), ("br", b"x".to_vec()), ("zstd", b"x".to_vec())] {
        let header = format!("{TEXT}Content-Encoding: {coding}\r\n");
        world(answer(200, &header, body)).refused(Code::UnsupportedType, FRONT);
    }
    let members = [gzip(b"first "), gzip(b"second")].concat();
    let page =
        world(answer(200, &format!("{TEXT}Content-Encoding: gzip\r\n"), members)).fetch(FRONT);
    assert_eq!(page.untrusted_text.text.as_str(), "first second");
}

#[test]
fn b45_what_is_no_text_is_refused_by_type_and_size() {
    for (headers, body) in [
        ("Content-Type: application/pdf\r\n", b"%PDF-1.7".as_slice()),
        ("Content-Type: image/png\r\n", b"\x89PNG"),
        ("Content-Type: application/octet-stream\r\n", b"x"),
        ("", b"a\0b"),
        ("Content-Type: text/plain\r\n", b"a\0b"),
    ] {
        let no = world(answer(200, headers, body)).refused(Code::UnsupportedType, FRONT);
        assert!(no.message.contains(&format!("{} bytes", body.len())), "{no}");
    }
    let json = world(answer(200, "Content-Type: application/ld+json\r\n", "{\"a\": \"<b>\"}"))
        .fetch(FRONT);
    assert_eq!(json.untrusted_text.text.as_str(), "{\"a\": \"<b>\"}");
}

#[test]
fn a_page_that_would_take_for_ever_to_lay_out_is_bare_text_or_a_refusal() {
    let tables = format!("<p>start{}end", "<table><tr><td>".repeat(50_000));
    let page = WebWorld::new(move |_| html(&tables)).fetch(FRONT);
    assert!(page.bare && page.untrusted_text.text.as_str().contains("start"));
    // Quadratic for the tree builder: each paragraph looks for an open one through all that is open.
    let deep = format!("<p>start{}end", "<div><p><b>".repeat(90_000));
    let page = WebWorld::new(move |_| html(&deep)).fetch(FRONT);
    assert!(page.bare && page.untrusted_text.text.as_str().contains("start"));
}

#[test]
fn what_a_page_says_is_masked_where_it_is_shaped_like_a_credential() {
    let token = format!("ghp_{}", "aB3dE5gH7jK9mN1pQ3sT5vX7zA9bC1dE3fG5");
    let body = format!("<title>{token}</title><p>use {token} to log in");
    let page = WebWorld::new(move |_| html(&body)).fetch(FRONT);
    let json = serde_json::to_string(&page).expect("a reply serialises");
    assert!(json.contains("[masked: ") && !json.contains(&token), "{json}");
}

#[test]
fn a_long_page_is_read_on_without_a_gap() {
    use ::confine::cancel;
    use executor::session::Session;
    use executor::tools::web::{self, BUDGET, budget::Budget};
    use policy::web::FetchUrl;
    let lines: Vec<String> = (0..2000).map(|n| format!("line {n}")).collect();
    let whole = lines.join("\n");
    let body = whole.clone();
    let world = WebWorld::new(move |_| answer(200, TEXT, &body));
    let (_guard, cancel) = cancel::pair().expect("descriptors");
    let mut session = Session::default();
    let url = FetchUrl::parse(FRONT).expect("a URL");
    let budget = Budget::new(BUDGET, &cancel);
    let page = web::page_of(&world.web, &url, &mut session, 1000, &budget).expect("a page");
    let mut text = page.untrusted_text.text.0;
    let cut = page.untrusted_text.cut.expect("it is longer");
    let mut next = Some(cut.next_offset);
    while let Some(offset) = next {
        let more = session.read_on(&cut.handle, offset, 5000).expect("it pages");
        text.push_str(more.untrusted_text.as_str());
        next = more.next_offset;
    }
    assert_eq!(text, whole);
}
