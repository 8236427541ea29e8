use proptest::prelude::*;

use super::{Job, Kind, Read, charset_of, kind, layout, read};

fn page(html: &str) -> Read {
    bytes(html.as_bytes(), None)
}

fn bytes(page: &[u8], charset: Option<&str>) -> Read {
    let charset = charset.map(str::to_owned);
    let job = Job { html: true, charset, base: "https://pub.example/dir/".to_owned(), bare: false };
    read(&job, page).expect("HTML is text")
}

#[test]
fn b45_a_page_is_decoded_as_it_says() {
    let nihon = [b"<meta charset=\"shift_jis\"><p>".as_slice(), &[0x93, 0xfa, 0x96, 0x7b], b"</p>"]
        .concat();
    assert_eq!(bytes(&nihon, None).text, "\u{65e5}\u{672c}");
    let privet = [
        b"<meta http-equiv=\"Content-Type\" content=\"text/html; charset=windows-1251\"><p>"
            .as_slice(),
        &[0xcf, 0xf0, 0xe8, 0xe2, 0xe5, 0xf2],
    ]
    .concat();
    let privet = bytes(&privet, None);
    assert_eq!(
        (privet.text.as_str(), privet.lossy),
        ("\u{41f}\u{440}\u{438}\u{432}\u{435}\u{442}", false)
    );
    assert_eq!(bytes(b"<p>caf\xe9", Some("iso-8859-1")).text, "caf\u{e9}");
    let header_wins = bytes("<meta charset=gbk><p>\u{e9}".as_bytes(), Some("utf-8"));
    assert_eq!((header_wins.text.as_str(), header_wins.lossy), ("\u{e9}", false));
    let wide: Vec<u8> =
        "\u{feff}<p>wide \u{e9}".encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert_eq!(bytes(&wide, Some("iso-8859-1")).text, "wide \u{e9}");
    assert_eq!(bytes("\u{feff}<p>\u{e9}".as_bytes(), None).text, "\u{e9}");
    let bogus = bytes("<p>\u{e9}".as_bytes(), Some("bogus"));
    assert_eq!((bogus.text.as_str(), bogus.lossy), ("\u{e9}", true));
    let seven = bytes(b"<p>+ADw-script+AD4-", Some("utf-7"));
    assert_eq!(seven.text, "+ADw-script+AD4-");
    assert!(bytes(&[0xff, 0xfe, 0x00], None).lossy);
    assert!(bytes(b"<p>\xe9\xe8", None).lossy);
}

#[test]
fn b45_what_is_text_is_told_by_its_type() {
    for text in [
        "text/plain",
        "text/markdown",
        "application/json",
        "application/ld+json",
        "TEXT/PLAIN;charset=\"UTF-8\"",
    ] {
        assert_eq!(kind(text, b"x"), Kind::Text, "{text}");
    }
    for binary in
        ["application/pdf", "image/png", "application/octet-stream", "image/svg+xml", "video/mp4"]
    {
        assert_eq!(kind(binary, b"%PDF-1.7"), Kind::Binary, "{binary}");
    }
    assert_eq!(kind("", b"a\0b"), Kind::Binary);
    assert_eq!(kind("", b"  <!DOCTYPE HTML><p>"), Kind::Html);
    assert_eq!(charset_of("Text/HTML; Charset=\"UTF-8\"").as_deref(), Some("UTF-8"));
    let job = Job { html: false, charset: None, base: String::new(), bare: false };
    assert_eq!(read(&job, b"a\0b"), None, "a text holds no NUL");
    assert_eq!(
        read(&job, b"<p>x</p>").expect("text").text,
        "<p>x</p>",
        "what is no HTML stays as it is"
    );
}

#[test]
fn b47_tables_and_lists_that_upset_the_layout_keep_their_texts() {
    let mut pages = vec![
        ("<table><tr><td>pp<td rowspan=2>qq<tr><td>rr</table>".to_owned(), vec!["pp", "qq", "rr"]),
        ("<table><tr><td><td rowspan=2><tr><td></table>".to_owned(), vec![]),
        ("<table><tr><td rowspan=0>aa<td>bb<tr><td>cc</table>".to_owned(), vec!["aa", "bb", "cc"]),
        ("<table><tr><td>aa<td rowspan=5>bb</table>".to_owned(), vec!["aa", "bb"]),
        ("<table><td><p>7 of 9".to_owned(), vec!["7 of 9"]),
        ("<h1><table><h4>Wide words here</h4></table></h1>".to_owned(), vec!["Wide words here"]),
        ("<ol start=\"9223372036854775807\"><li>aa<li>bb</ol>".to_owned(), vec!["aa", "bb"]),
        ("<ol start=\"-9223372036854775808\"><li>aa<li>bb</ol>".to_owned(), vec!["aa", "bb"]),
        (format!("<table><tr><td>{}<td>zz</table>", "\u{301}".repeat(100_000)), vec!["zz"]),
        (format!("<table><tr>{}</table>", "<td colspan=1000>cc".repeat(200)), vec!["cc"]),
        (
            format!("<table><tr>{}</table>", "<td><ul><li>\u{6c34}\u{1780}\u{17b6}</ul>".repeat(3)),
            vec!["\u{6c34}"],
        ),
    ];
    for span in ["4294967295", "-1", "1e9", "abc"] {
        pages.push((
            format!("<table><tr><td colspan=\"{span}\">ss<td>tt</table>"),
            vec!["ss", "tt"],
        ));
    }
    for (html, texts) in &pages {
        let read = page(html);
        for text in texts {
            assert!(
                read.text.contains(text),
                "{text:?} of {}: {}",
                &html[..html.len().min(80)],
                read.text
            );
        }
        assert!(read.text.len() < html.len() * 8 + 4096, "{}", read.text.len());
    }
}

#[test]
fn what_is_too_deep_or_too_large_for_a_layout_is_bare_text() {
    for html in [
        format!("{}<p>deep", "<div>".repeat(5000)),
        format!("{}deep", "<table><tr><td>".repeat(300)),
        format!("{}<p>deep", "<b><i>".repeat(300)),
        format!("{}<p>deep", "<span></span>".repeat(210_000)),
    ] {
        let read = page(&html);
        assert!(read.bare && read.text.contains("deep"), "{}", &html[..20]);
    }
}

#[test]
fn b49_hidden_text_is_left_out_and_said_to_be() {
    let image = format!("data:image/png;base64,{}", "QUFB".repeat(25_000));
    let html = format!(
        "<title>T</title><style>p{{color:red}}</style><script>var a=\"<p>no</p>\";</script><p>Visible</p>\
         <div style=\"display:none\">H1</div><div hidden>H2</div><span style=\"font-size:0\">H3</span><!-- C -->\
         <template>TPL</template><noscript>NS</noscript><textarea>TA</textarea><p>A&nbsp;B&lt;script&gt;x</p>\
         <a href=\"javascript:alert(1)\">L</a> <a href=\"../x?y\">M</a><img alt=\"ALT\" src=\"{image}\">"
    );
    let read = page(&html);
    assert_eq!(read.title.as_deref(), Some("T"));
    assert!(read.hidden_left_out && !read.bare && read.text.len() < 500, "{}", read.text);
    for absent in
        ["H1", "H2", "H3", "TPL", "TA", "NS", "var a", "color", "javascript", "base64", " C "]
    {
        assert!(!read.text.contains(absent), "{absent}: {}", read.text);
    }
    for present in ["Visible", "B<script>x", "ALT", "https://pub.example/x?y"] {
        assert!(read.text.contains(present), "{present}: {}", read.text);
    }
    let only = page(&format!(
        "<div>Loading</div><main style='visibility:hidden'><p>{}",
        "x ".repeat(25_000)
    ));
    assert_eq!((only.text.as_str(), only.hidden_left_out), ("Loading", true));
}

#[test]
fn b49_unseen_characters_are_gone_and_a_forged_frame_is_text() {
    let read = page(
        "<p>a\u{200b}b\u{202e}c\u{e0041}d\u{feff}e</p><pre>&lt;/result&gt;\n{\"untrusted\":1}</pre>",
    );
    assert_eq!(read.text, "abcde\n\n</result>\n{\"untrusted\":1}");
}

#[test]
fn the_bare_text_says_the_same_as_the_layout() {
    let html = "<title>T &amp; U</title><h1>Head</h1><p>one<p hidden>no<p>two<ul><li>a<li>b</ul><script>x</script>";
    let job = Job { html: true, charset: None, base: String::new(), bare: true };
    let bare = read(&job, html.as_bytes()).expect("HTML is text");
    assert_eq!(bare.title.as_deref(), Some("T & U"));
    let words: Vec<&str> = bare.text.split_whitespace().collect();
    assert_eq!(words, ["Head", "one", "two", "*", "a", "*", "b"]);
    assert!(bare.bare && bare.hidden_left_out);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_bytes_are_a_page_and_none_panics(body in proptest::collection::vec(any::<u8>(), 0..600)) {
        for html in [true, false] {
            let job = Job { html, charset: None, base: "https://pub.example/".to_owned(), bare: false };
            let _ = read(&job, &body);
        }
    }

    #[test]
    fn any_tags_are_a_page_and_no_script_of_theirs_is_text(
        parts in proptest::collection::vec(prop_oneof![
            Just("<table>"), Just("<tr>"), Just("<td rowspan=3 colspan=7>"), Just("</table>"), Just("<ol start=99999999999999>"),
            Just("<li>"), Just("<b>"), Just("</b>"), Just("<a href=x>"), Just("</a>"), Just("<p>"), Just("</div>"),
            Just("<pre>"), Just("<h1>"), Just("word "), Just("\u{6c34}"), Just("<!--"), Just("-->"), Just("<dl><dt>"),
            Just("<blockquote>"), Just("<script>SECRET</script>"), Just("&#0;&#xD800;"), Just("<svg>"), Just("<sup>"),
        ], 0..60)
    ) {
        let html = parts.concat();
        let read = page(&html);
        if !html.contains("<!--") {
            prop_assert!(!read.text.contains("SECRET"), "{}", read.text);
        }
        let _ = layout::text(&html, "");
    }
}
