//! Where a fetch goes, and where it does not.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use harness::web::net::PUBLIC;
use harness::web::server::{Act, answer, html, redirect};
use harness::web::world::WebWorld;
use policy::web::MAX_REDIRECTS;
use protocol::refusal::Code;

const FRONT: &str = "https://pub.example/";

fn plain() -> WebWorld {
    WebWorld::new(|_| html("<title>T</title><p>hello"))
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

#[test]
fn a_page_is_fetched_as_nobody_and_without_anything_of_the_environment() {
    let world = plain();
    let page = world.fetch("https://pub.example/a?b=c#d");
    assert_eq!((page.status, page.untrusted_text.text.as_str()), (200, "hello"));
    assert_eq!(page.untrusted_url.as_str(), "https://pub.example/a?b=c");
    assert_eq!(page.untrusted_title.expect("it has one").as_str(), "T");
    assert_eq!(page.bytes, 24);
    assert_eq!(page.digest.len(), 64);
    let [seen] = &world.server.seen()[..] else { panic!("one request") };
    assert_eq!(seen.target(), "/a?b=c");
    assert_eq!(seen.header("host"), Some("pub.example"));
    assert_eq!(seen.sni.as_deref(), Some("pub.example"));
    assert!(seen.header("user-agent").expect("it says who it is").starts_with("Sage/"));
    let names: Vec<String> = seen
        .head
        .lines()
        .skip(1)
        .filter_map(|l| Some(l.split_once(':')?.0.to_lowercase()))
        .collect();
    for name in &names {
        assert!(
            ["host", "user-agent", "accept", "accept-encoding"].contains(&name.as_str()),
            "{names:?}"
        );
    }
    assert_eq!(world.dial.asked(), [SocketAddr::new(PUBLIC, 443)]);
    assert_eq!(world.names.asked(), ["pub.example"]);
}

#[test]
fn b39_a_name_is_resolved_once_per_hop_and_what_was_judged_is_connected_to() {
    let world = WebWorld::new(|seen| match seen.target() {
        "/again" => redirect("https://rb.example/inside"),
        _ => html("<p>ok"),
    });
    world.names.set("rb.example", &[&[PUBLIC], &[ip("127.0.0.1")]]);
    assert_eq!(world.fetch("https://rb.example/").status, 200);
    assert_eq!(world.names.asked(), ["rb.example"]);
    assert_eq!(world.dial.asked(), [SocketAddr::new(PUBLIC, 443)]);
    // Fetched again, there is no connection from before, and the new answer is judged.
    let no = world.refused(Code::AddressRefused, "https://rb.example/");
    assert!(no.message.contains("rb.example leads to 127.0.0.1"), "{no}");
    world.names.set("rb.example", &[&[PUBLIC], &[ip("10.0.0.5")]]);
    world.refused(Code::AddressRefused, "https://rb.example/again");
    let asked = world.dial.asked();
    assert_eq!(asked, [SocketAddr::new(PUBLIC, 443); 2], "only what was judged");
}

#[test]
fn b39_one_address_that_is_not_public_refuses_them_all() {
    let world = plain();
    for bad in [
        "127.0.0.1",
        "169.254.169.254",
        "100.100.100.200",
        "172.17.0.1",
        "::1",
        "::ffff:169.254.169.254",
        "::ffff:93.184.216.34",
        "fe80::1",
        "fd00::1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "0.0.0.0",
    ] {
        world.names.set("mixed.example", &[&[PUBLIC, ip(bad)]]);
        world.refused(Code::AddressRefused, "https://mixed.example/");
    }
    let many: Vec<IpAddr> =
        (0..300).map(|n| IpAddr::from([11, 0, (n / 256) as u8, n as u8])).collect();
    world.names.set("many.example", &[&many]);
    world.names.set("hidden.example", &[&[&many[..], &[ip("10.1.1.1")]].concat()]);
    world.refused(Code::AddressRefused, "https://hidden.example/");
    assert_eq!(world.dial.asked(), [], "nothing was connected to");
    world.refused(Code::HostUnreachable, "https://many.example/");
    assert_eq!(world.dial.asked().len(), 4, "a few are tried");
    world.refused(Code::HostUnreachable, "https://nowhere.example/");
    world.names.set("many.example", &[&[ip("11.0.0.1"), PUBLIC]]);
    world.names.set("pub.example", &[&[ip("11.0.0.1"), PUBLIC]]);
    assert_eq!(world.fetch(FRONT).status, 200, "the next address is tried");
}

#[test]
fn a_public_address_without_a_name_is_fetched_when_it_has_a_certificate() {
    let world = plain();
    assert_eq!(world.fetch("https://93.184.216.34/").status, 200);
    assert_eq!(world.names.asked(), Vec::<String>::new());
}

#[test]
fn b41_redirects_are_judged_before_anything_is_asked() {
    for (location, code) in [
        ("https://127.0.0.1/", Code::AddressRefused),
        ("https://169.254.169.254/latest/", Code::AddressRefused),
        ("//169.254.169.254/x", Code::AddressRefused),
        ("/\\169.254.169.254/x", Code::InvalidUrl),
        ("\\\\127.0.0.1\\x", Code::InvalidUrl),
        ("https://[::ffff:7f00:1]/", Code::AddressRefused),
        ("https://localhost./", Code::AddressRefused),
        ("https://u:p@ok.example/", Code::InvalidUrl),
        ("https://ok.example:22/", Code::InvalidUrl),
        ("http://ok.example/", Code::InvalidUrl),
        ("", Code::BadRedirect),
        ("https://\u{f6}k.example/", Code::BadRedirect),
    ] {
        let world = WebWorld::new(move |_| redirect(location));
        world.refused(code, FRONT);
        assert_eq!(world.dial.asked(), [SocketAddr::new(PUBLIC, 443)], "{location}");
        assert_eq!(world.server.seen().len(), 1, "{location}");
    }
    let long = format!("https://ok.example/{}", "a".repeat(20_000));
    WebWorld::new(move |_| redirect(&long)).refused(Code::InvalidUrl, FRONT);
    WebWorld::new(|_| answer(302, "", "")).refused(Code::BadRedirect, FRONT);
    WebWorld::new(|_| answer(302, "Location: /a\r\nLocation: /b\r\n", ""))
        .refused(Code::BadRedirect, FRONT);
    WebWorld::new(|_| answer(304, "", "")).refused(Code::BadRedirect, FRONT);
}

#[test]
fn b41_three_redirects_are_followed_and_a_fourth_is_not() {
    let chain = |last: usize| {
        WebWorld::new(move |seen| {
            let at: usize = seen.target().trim_start_matches('/').parse().unwrap_or(0);
            let status = [301, 302, 303, 307][at % 4];
            if at == last {
                return html("<p>the end");
            }
            answer(
                status,
                &format!("Location: https://ok.example/{}\r\nSet-Cookie: a=b\r\n", at + 1),
                "",
            )
        })
    };
    let world = chain(MAX_REDIRECTS);
    let page = world.fetch(FRONT);
    assert_eq!(page.untrusted_url.as_str(), "https://ok.example/3");
    for seen in world.server.seen() {
        assert!(
            seen.header("cookie").is_none() && seen.header("referer").is_none(),
            "{}",
            seen.head
        );
    }
    let world = chain(MAX_REDIRECTS + 1);
    assert!(world.refused(Code::BadRedirect, FRONT).message.contains('3'));
    assert_eq!(world.server.seen().len(), MAX_REDIRECTS + 1);
    let world = WebWorld::new(|_| redirect("/"));
    world.refused(Code::BadRedirect, FRONT);
    assert_eq!(world.server.seen().len(), MAX_REDIRECTS + 1);
}

#[test]
fn b41_what_a_page_itself_asks_for_is_never_followed() {
    let world = WebWorld::new(|_| {
        let refresh = "<meta http-equiv=refresh content='0;url=https://127.0.0.1/'><p>stay";
        answer(200, "Content-Type: text/html\r\nRefresh: 0; url=https://127.0.0.1/\r\n", refresh)
    });
    assert_eq!(world.fetch(FRONT).untrusted_text.text.as_str(), "stay");
    let world = WebWorld::new(|_| answer(300, "Content-Type: text/plain\r\n", "a list"));
    let page = world.fetch(FRONT);
    assert_eq!((page.status, page.untrusted_text.text.as_str()), (300, "a list"));
    assert_eq!(world.dial.asked().len(), 1);
}

#[test]
fn an_error_page_is_a_page_with_its_status() {
    let world = WebWorld::new(|_| answer(404, "Content-Type: text/html\r\n", "<p>not here"));
    let page = world.fetch(FRONT);
    assert_eq!((page.status, page.untrusted_text.text.as_str()), (404, "not here"));
}

#[test]
fn a_certificate_that_is_not_trusted_or_for_another_host_is_refused() {
    let world = plain();
    world.names.set("stranger.example", &[&[PUBLIC]]);
    let no = world.refused(Code::HostUnreachable, "https://stranger.example/");
    assert!(no.message.contains("certificate"), "{no}");
    assert_eq!(world.server.seen().len(), 0, "nothing was asked");
}

#[test]
fn one_budget_lies_over_everything_and_the_caller_can_end_it() {
    let mut world = WebWorld::new(|seen| match seen.target() {
        "/head" => vec![Act::Hang],
        "/drip" => vec![
            Act::Send(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 99\r\n\r\nx"
                    .to_vec(),
            ),
            Act::Hang,
        ],
        _ => redirect("/head"),
    });
    world.budget = Duration::from_millis(1500);
    for path in ["head", "drip", "hop"] {
        world.refused(Code::TimedOut, &format!("{FRONT}{path}"));
    }
    world.budget = Duration::ZERO;
    world.refused(Code::TimedOut, FRONT);
    assert_eq!(world.dial.asked().len(), 4, "nothing is begun without time");
}

#[test]
fn a_caller_that_goes_away_ends_the_fetch() {
    let mut world = WebWorld::new(|_| vec![Act::Hang]);
    // Far longer than a test may take.
    world.budget = Duration::from_secs(3600);
    std::thread::scope(|scope| {
        let fetch = scope.spawn(|| world.refused(Code::Cancelled, FRONT));
        while world.server.seen().is_empty() && !fetch.is_finished() {
            std::thread::yield_now();
        }
        world.go_away();
        fetch.join().expect("it was cancelled");
    });
}
