use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use protocol::refusal::Code;

use super::address::{self, V4, V6};
use super::search::{Query, SearchBase};
use super::{FetchUrl, MAX_URL_BYTES, SPECIAL_NAMES, Target};

fn refused(text: &str) -> Code {
    FetchUrl::parse(text).expect_err(text).code
}

fn public(text: &str) -> bool {
    address::judge(text.parse().expect(text)).is_ok()
}

#[test]
fn b33_no_spelling_of_an_ipv4_address_inside_an_ipv6_one_passes() {
    for host in [
        "::ffff:127.0.0.1",
        "::ffff:7f00:1",
        "::ffff:a9fe:a9fe",
        "0:0:0:0:0:ffff:c0a8:0101",
        "::ffff:0:127.0.0.1",
        "::127.0.0.1",
        "::7f00:1",
        "::1",
        "::",
        "0:0::1",
        "::ffff:93.184.216.34",
        "64:ff9b::7f00:1",
        "64:ff9b:1::7f00:1",
        "2002:7f00:1::",
        "2001:0:7f00:1::",
        "2a00::5efe:7f00:1",
        "2a00::200:5efe:10.0.0.1",
    ] {
        assert_eq!(refused(&format!("https://[{host}]/")), Code::AddressRefused, "{host}");
    }
    assert_eq!(refused("https://[::ffff:10.0.0.1]:8443/"), Code::InvalidUrl);
}

#[test]
fn b35_ranges_end_where_they_end() {
    for ip in [
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.0",
        "10.255.255.255",
        "100.64.0.0",
        "100.100.100.200",
        "100.127.255.255",
        "127.0.0.0",
        "127.255.255.255",
        "169.254.0.1",
        "169.254.169.254",
        "172.16.0.0",
        "172.31.255.255",
        "192.0.0.1",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.0.0",
        "198.18.0.0",
        "198.19.255.255",
        "198.51.100.1",
        "203.0.113.1",
        "224.0.0.1",
        "239.255.255.250",
        "240.0.0.1",
        "255.255.255.255",
    ] {
        assert!(!public(ip), "{ip}");
        assert_eq!(refused(&format!("https://{ip}/")), Code::AddressRefused, "{ip}");
    }
    for ip in [
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "126.255.255.255",
        "128.0.0.1",
        "169.253.255.255",
        "169.255.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "192.167.255.255",
        "192.169.0.0",
        "198.17.255.255",
        "198.20.0.0",
        "223.255.255.254",
    ] {
        assert!(public(ip), "{ip}");
    }
    let refusal = FetchUrl::parse("https://198.18.0.1/").expect_err("benchmarking");
    assert!(refusal.message.contains("198.18.0.0/15 is benchmarking"), "{refusal}");
}

#[test]
fn b37_names_of_this_machine_and_its_network_are_refused_however_they_are_written() {
    for host in [
        "localhost.",
        "LOCALHOST",
        "db.localhost",
        "foo.localhost.",
        "localhost.localdomain",
        "metadata.google.internal.",
        "printer.local.",
        "host.docker.internal",
        "127.0.0.1.",
        "169.254.169.254.",
        "intranet",
        "router.lan",
        "x.home.arpa",
        "[fe80::1]",
        "[fe8f::1]",
        "[febf::1]",
        "[FE81::1]",
        "[fec0::1]",
        "[fc00::1]",
        "[fdff::1]",
        "[ff02::1]",
        "[fe00::1]",
        "l\u{ff4f}calhost",
        "%6cocalhost",
    ] {
        assert_eq!(refused(&format!("https://{host}/")), Code::AddressRefused, "{host}");
    }
    for host in ["[fe80::1%25eth0]", "[fe80::1%eth0]"] {
        assert_eq!(refused(&format!("https://{host}/")), Code::InvalidUrl, "{host}");
    }
    for host in
        ["localhost.example.com", "mylocalhost.example", "notlocal.example", "local.example"]
    {
        let url = FetchUrl::parse(&format!("https://{host}/")).expect(host);
        assert_eq!(*url.target(), Target::Name(host.to_owned()));
    }
}

#[test]
fn every_textual_form_of_an_address_is_the_address() {
    for host in [
        "2130706433",
        "017700000001",
        "0x7f000001",
        "0x7F.1",
        "127.1",
        "127.0.1",
        "0177.0.0.1",
        "0x7f.0x0.0x0.0x1",
        "%31%32%37.0.0.1",
        "\u{ff11}\u{ff12}\u{ff17}.0.0.1",
        "127\u{3002}0.0.1",
        "00000177.0.0.1",
        "127.0.0.1.",
    ] {
        let refusal = FetchUrl::parse(&format!("https://{host}/")).expect_err(host);
        assert_eq!(refusal.code, Code::AddressRefused, "{host}");
        assert!(refusal.message.starts_with("127.0.0.1 is not public"), "{refusal}");
    }
    let url = FetchUrl::parse("https://1572395042/").expect("a public address in decimal");
    assert_eq!(*url.target(), Target::Address(IpAddr::from([93, 184, 216, 34])));
    for host in ["999.0.0.1", "1.2.3.4.5", "0x100000000", "127.0.0.0x100", "4294967296", "1.2.3.09"]
    {
        assert_eq!(refused(&format!("https://{host}/")), Code::InvalidUrl, "{host}");
    }
}

#[test]
fn only_https_on_443_without_a_user_is_fetched() {
    for text in [
        "http://ok.example/",
        "ftp://ok.example/",
        "file:///etc/passwd",
        "data:text/html,x",
        "https://ok.example:8443/",
        "https://ok.example:22/",
        "https://ok.example:80/",
        "javascript:1",
        "https://u@ok.example/",
        "https://u:p@ok.example/",
        "https://@ok.example/",
        "https://:@ok.example/",
        "https:///",
        "https://",
        "",
        " https://ok.example/",
        "https://ok.example/ x",
        "https:\\\\ok.example",
        "https://ok.example\\@127.0.0.1/",
        "https://ok.exa\tmple/",
        "https://ok..example/",
        "ok.example",
        "https://ok.example:99999/",
        "https://a b.example/",
        "https://ok.example%00.example/",
    ] {
        assert_eq!(refused(text), Code::InvalidUrl, "{text:?}");
    }
    let long = format!("https://ok.example/{}", "a".repeat(MAX_URL_BYTES));
    assert_eq!(refused(&long), Code::InvalidUrl);
    let token = format!("https://ok.example/?t=ghp_{}", "aB3dE5gH7jK9mN1pQ3sT5vX7zA9bC1dE3fG5");
    assert_eq!(refused(&token), Code::CredentialShape);
    let url = FetchUrl::parse("HTTPS://OK.Example.:443/a/../b?q=1#part").expect("it is fine");
    assert_eq!(url.as_str(), "https://ok.example/b?q=1");
    let url = FetchUrl::parse("https://b\u{fc}cher.example/").expect("an international name");
    assert_eq!(url.as_str(), "https://xn--bcher-kva.example/");
    assert!(FetchUrl::parse("https://ok.example/u@v:x").is_ok(), "an @ in a path is no user");
}

#[test]
fn b41_a_redirect_is_judged_as_a_url_is() {
    let from = FetchUrl::parse("https://pub.example/a/b").expect("a public page");
    for (location, code) in [
        ("https://127.0.0.1/", Code::AddressRefused),
        ("https://169.254.169.254/latest/", Code::AddressRefused),
        ("//169.254.169.254/x", Code::AddressRefused),
        ("/\\169.254.169.254/x", Code::InvalidUrl),
        ("\\\\127.0.0.1\\x", Code::InvalidUrl),
        ("https://[::ffff:7f00:1]/", Code::AddressRefused),
        ("https://localhost./", Code::AddressRefused),
        ("https://u:p@ok.example/", Code::InvalidUrl),
        ("//@ok.example/", Code::InvalidUrl),
        ("https://ok.example:22/", Code::InvalidUrl),
        ("http://ok.example/", Code::InvalidUrl),
        ("javascript:alert(1)", Code::InvalidUrl),
        ("", Code::InvalidUrl),
    ] {
        assert_eq!(from.join(location).expect_err(location).code, code, "{location:?}");
    }
    assert_eq!(from.join("../c?d").expect("a relative one").as_str(), "https://pub.example/c?d");
    assert_eq!(from.join("//ok.example/x").expect("another host").as_str(), "https://ok.example/x");
}

#[test]
fn every_row_has_a_source_and_refuses_its_edges() {
    for range in V4.iter().chain(V6) {
        assert!(!range.name.is_empty() && !range.source.is_empty());
        assert!(address::judge(range.first).is_err(), "{range}");
        let last = match range.first {
            IpAddr::V4(first) => IpAddr::V4(Ipv4Addr::from_bits(
                first.to_bits() | u32::MAX.checked_shr(range.bits).unwrap_or(0),
            )),
            IpAddr::V6(first) => IpAddr::V6(Ipv6Addr::from_bits(
                first.to_bits() | u128::MAX.checked_shr(range.bits).unwrap_or(0),
            )),
        };
        assert!(range.contains(range.first) && range.contains(last), "{range}");
        assert!(address::judge(last).is_err(), "{range}");
    }
    for (name, source) in SPECIAL_NAMES {
        assert!(!source.is_empty());
        assert_eq!(refused(&format!("https://x.{name}/")), Code::AddressRefused, "{name}");
    }
}

#[test]
fn b53_a_search_goes_below_the_base_and_decodes_to_what_was_asked() {
    let text = "a b&c=d#e+f%20\"g\" \u{e9} \u{4e2d}";
    let query = Query::parse(text).expect("a query");
    for (base, path) in [
        ("https://h.example/searx", "/searx/search"),
        ("https://h.example/searx/", "/searx/search"),
        ("https://h.example", "/search"),
        ("http://127.0.0.1:8888", "/search"),
        ("http://[::1]:8888/", "/search"),
    ] {
        let url =
            url::Url::parse(&SearchBase::parse(base).expect(base).search(&query)).expect("a URL");
        assert_eq!(url.path(), path);
        let pairs: Vec<_> = url.query_pairs().into_owned().collect();
        assert_eq!(
            pairs,
            [("q".to_owned(), text.to_owned()), ("format".to_owned(), "json".to_owned())]
        );
    }
    for base in [
        "http://h.example/",
        "http://10.0.0.1/",
        "http://localhost:80/",
        "ftp://h.example/",
        "h",
        "https://u@h.example/",
        "https://h.example/?a",
        "https://h.example/#a",
        "http://127.0.0.1:0/",
    ] {
        assert!(SearchBase::parse(base).is_err(), "{base}");
    }
}

#[test]
fn b53_a_query_is_not_blank_not_endless_and_no_credential() {
    for text in ["", "  \t ", "a\nb", &"x".repeat(5000)] {
        assert_eq!(Query::parse(text).expect_err(text).code, Code::InvalidArguments);
    }
    let token = format!("who uses ghp_{}", "aB3dE5gH7jK9mN1pQ3sT5vX7zA9bC1dE3fG5");
    assert_eq!(Query::parse(&token).expect_err("a token").code, Code::CredentialShape);
}

proptest! {
    #[test]
    fn whatever_is_parsed_is_https_on_443_for_nobody_and_public(text in "\\PC{0,60}", host in "[0-9a-fx.:\\[\\]%]{1,24}") {
        for text in [text.clone(), format!("https://{text}"), format!("https://{host}/"), format!("//{host}")] {
            let Ok(url) = FetchUrl::parse(&text) else { continue };
            let again = url::Url::parse(url.as_str()).expect("it is a URL");
            prop_assert_eq!(again.scheme(), "https");
            prop_assert!(again.port().is_none() && again.username().is_empty() && again.password().is_none());
            match url.target() {
                Target::Address(ip) => prop_assert!(address::judge(*ip).is_ok()),
                Target::Name(name) => {
                    prop_assert!(name.parse::<IpAddr>().is_err() && name.contains('.'));
                    prop_assert_eq!(again.host_str(), Some(name.as_str()));
                }
            }
            let twice = FetchUrl::parse(url.as_str()).expect("what was parsed parses");
            prop_assert_eq!(twice, url);
        }
    }

    #[test]
    fn every_spelling_of_an_ipv4_address_is_judged_as_the_address(bits in any::<u32>()) {
        let ip = Ipv4Addr::from_bits(bits);
        let [a, b, c, d] = ip.octets();
        let verdict = address::judge(IpAddr::V4(ip)).is_ok();
        for host in [
            ip.to_string(), format!("{ip}."), bits.to_string(), format!("{bits:#x}"), format!("0{bits:o}"),
            format!("{a}.{}", bits & 0xff_ffff), format!("{a}.{b}.{}", bits & 0xffff),
            format!("{a:#x}.0{b:o}.{c}.{d:#X}"),
        ] {
            let parsed = FetchUrl::parse(&format!("https://{}/", host.replace("0X", "0x")));
            prop_assert_eq!(parsed.is_ok(), verdict, "{}", host);
        }
        for hidden in [ip.to_ipv6_mapped(), ip.to_ipv6_compatible()] {
            prop_assert!(address::judge(IpAddr::V6(hidden)).is_err());
        }
        let [hi, lo] = [(bits >> 16) as u16, bits as u16];
        for hidden in [
            Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, hi, lo), Ipv6Addr::new(0x2002, hi, lo, 0, 0, 0, 0, 1),
            Ipv6Addr::new(0x2001, 0, hi, lo, 0, 0, 0, 1), Ipv6Addr::new(0x2a00, 1, 0, 0, 0, 0x5efe, hi, lo),
        ] {
            prop_assert!(address::judge(IpAddr::V6(hidden)).is_err());
        }
    }

    #[test]
    fn the_standard_library_calls_nothing_private_that_is_judged_public(bits in any::<u128>(), v4 in any::<u32>()) {
        let v4 = Ipv4Addr::from_bits(v4);
        if address::judge(IpAddr::V4(v4)).is_ok() {
            prop_assert!(!(v4.is_private() || v4.is_loopback() || v4.is_link_local() || v4.is_multicast()
                || v4.is_broadcast() || v4.is_documentation() || v4.is_unspecified()));
        }
        let v6 = Ipv6Addr::from_bits(bits);
        if address::judge(IpAddr::V6(v6)).is_ok() {
            prop_assert!(!(v6.is_loopback() || v6.is_multicast() || v6.is_unspecified()
                || v6.is_unique_local() || v6.is_unicast_link_local() || v6.to_ipv4().is_some()));
        }
    }
}
