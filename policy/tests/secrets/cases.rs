//! The cases of `public-reports.md` that concern the table.

use std::time::Instant;

use policy::secret::{find, mask, mask_and_cut};

use crate::dice::{ALNUM, Dice, HEX, URL};

#[test]
fn b31_userinfo_is_masked_and_the_rest_of_the_url_stays() {
    let cases = [
        ("https://bot:hunter22@git.example.com/x.git", "https://bot:#@git.example.com/x.git"),
        ("https://TOKENTOKEN12345@git.example.com/x.git", "https://#@git.example.com/x.git"),
        ("https://bot:p@ss:w/rd@git.example.com/x.git", "https://bot:#@git.example.com/x.git"),
        ("https://bot:s3cr%40t@h/x.git", "https://bot:#@h/x.git"),
        ("ssh://git:pw123456@h/x", "ssh://git:#@h/x"),
        ("https://oauth2:glpat-XXXX@h/x", "https://oauth2:#@h/x"),
        ("http://bot:pw123@[::1]:8080/ with user", "http://bot:#@[::1]:8080/ with user"),
        (r"https\://bot\:hunter22\@h/x", r"https\://bot\:#\@h/x"),
        (r"https:\/\/bot:hunter22@h\/x", r"https:\/\/bot:#@h\/x"),
        ("https%3A%2F%2Fbot%3Ahunter22%40h.example%2Fx", "https%3A%2F%2Fbot%3A#%40h.example%2Fx"),
        ("\turl = https://bot:hunter22@h:8443/x\n", "\turl = https://bot:#@h:8443/x\n"),
        ("https://a:b1@h/x https://c:d2@h/y", "https://a:#@h/x https://c:#@h/y"),
        ("https://a:b1@h/x,https://c:d2@h/y", "https://a:#@h/x,https://c:#@h/y"),
        ("unable to access 'https://a:b1@h/': x", "unable to access 'https://a:#@h/': x"),
        ("remote https://a:b1@h: gone", "remote https://a:#@h: gone"),
        ("https://bot:w/rd@git.example.com/x", "https://bot:#@git.example.com/x"),
        ("https://bot:a@b@git.example.com/x@y", "https://bot:#@git.example.com/x@y"),
        ("redis://:pw123@h:6379/0", "redis://:#@h:6379/0"),
        ("https://bot:cut0ff@", "https://bot:#@"),
        ("https://ünïcode:pässwörd@h/x", "https://ünïcode:#@h/x"),
    ];
    for (text, expected) in cases {
        let expected = expected.replace('#', "[masked: URL password]");
        assert_eq!(mask(text), expected);
        assert_eq!(mask(&expected), expected);
    }
    let controls = [
        "git@github.com:o/r.git",
        "ssh://git@h/x",
        "https://h/a@b/c",
        "https://h/?q=a@b",
        "mailto a@b.example",
        "user@host prose",
        "http://[::1]:8080/ with user",
        "https://h:8443/a@b",
        "https://h#a@b",
    ];
    for control in controls {
        assert_eq!(mask(control), control);
    }
}

#[test]
fn b55_fine_grained_tokens() {
    let token =
        ["github", "_pat_", "11A", &"B2c".repeat(6), "D_", &"xY9".repeat(19), "Zq"].concat();
    assert_eq!(token.len(), 93);
    let encoded = token.replace('_', "%5F");
    for (before, after) in [
        ("", ""),
        ("GITHUB_TOKEN=", "\n"),
        ("{\"t\":\"", "\"}"),
        ("https://x:", "@h/x"),
        ("https://h/?access_token=", "&a=1"),
        ("token: ", "\n"),
        ("+", "\n"),
        ("notes-", ".md"),
        ("feature/", ""),
        ("refused: ", ": no such file"),
    ] {
        for token in [&token, &encoded] {
            let text = format!("{before}{token}{after}");
            assert_eq!(mask(&text), format!("{before}[masked: GitHub token]{after}"));
        }
    }
    let underscores = format!("github{}{}", "_pat_", "_".repeat(82));
    for innocent in
        ["github_pat_tooshort", "github_pattern_matcher_for_long_identifiers", &underscores]
    {
        assert_eq!(find(innocent), None);
    }
}

#[test]
fn b57_keys_with_separators_are_masked_whole() {
    let mut dice = Dice::new(57);
    let mut of =
        |prefix: &str, letters: &str, length| format!("{prefix}{}", dice.token(letters, length));
    let keys = [
        format!("sk-{}{}", "proj-", "q7Zt_0Lm-w".repeat(5)),
        of("sk-svcacct-", URL, 60),
        of("sk-admin-", URL, 60),
        of("sk-ant-api03-", URL, 80) + "-AA",
        of("sk-or-v1-", HEX, 64),
        format!("sk-{}{}", "sp-", "abc123.def456.ghi789jkl"),
        of("sk-", ALNUM, 48),
        of("xoxb-", "0123456789", 12) + "-" + &of("1234567890123-", ALNUM, 24),
        of("xapp-1-A012345-", ALNUM, 64),
        of("glpat-", URL, 20),
        of("AIza", URL, 35),
        of("npm_", ALNUM, 36),
        of("sk_live_", ALNUM, 30),
        of("hf_", ALNUM, 34),
        format!("eyJhbGciOiJIUzI1NiJ9.{}.{}", "eyJzdWIiOiIxMjM0NTY3ODkwIn0", of("", URL, 43)),
    ];
    for key in &keys {
        for (before, after) in [
            ("\"", "\""),
            ("KEY=", ""),
            ("key:", ""),
            ("https://h/?k=", "&x"),
            ("prefix_", ""),
            ("%20", ""),
            ("OPENAI_API_KEY=", "\n"),
            ("(", ")"),
            ("", ", b"),
            ("", "."),
            ("", ""),
        ] {
            let masked = mask(&format!("{before}{key}{after}")).into_owned();
            let middle = masked.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
            assert!(
                middle.is_some_and(|m| m.starts_with("[masked: ") && m.ends_with(']')),
                "{masked}"
            );
        }
        for other in &keys {
            let masked = mask(&format!("{key} {other}")).into_owned();
            assert!(masked.matches("[masked: ").count() == 2 && masked.contains("] ["), "{masked}");
        }
    }
}

#[test]
fn b59_discord_tokens_and_webhooks() {
    let mut dice = Dice::new(59);
    let id = "TIzNDU2Nzg5MDEyMzQ1Njc4";
    for first in ["M", "N", "O"] {
        for (id, middle, length) in
            [(id.to_owned(), "Gabcde", 27), (format!("{id}OQ"), "Gabcdef", 38)]
        {
            for edge in ["-", "_", "x"] {
                let last = format!("{edge}{}{edge}", dice.text(URL, length - 2));
                let token = format!("{first}{id}.{middle}.{last}");
                for (before, after) in [
                    ("bot.run(\"", "\")"),
                    ("DISCORD_TOKEN=", ""),
                    ("Authorization: Bot ", ""),
                    ("", "\n"),
                    ("{\"token\":\"", "\"}"),
                ] {
                    let masked = mask(&format!("{before}{token}{after}")).into_owned();
                    assert_eq!(masked, format!("{before}[masked: Discord bot token]{after}"));
                }
            }
        }
    }
    let hook =
        format!("https://discord.com/api/{}/123456789012345678/{}", "webhooks", dice.text(URL, 68));
    assert_eq!(mask(&hook), "https://[masked: Discord webhook]");
    let jwt =
        format!("eyJhbGciOiJIUzI1NiJ9.{}.{}", "eyJzdWIiOiIxMjM0NTY3ODkwIn0", dice.text(URL, 43));
    assert_eq!(find(&jwt).map(|found| found.name), Some("JWT"));
}

#[test]
fn b61_no_piece_of_a_token_survives_a_cut() {
    let token = format!("gh{}_{}", "p", Dice::new(61).token(ALNUM, 36));
    for fill in ["x", "é", "日", "🔑"] {
        for max in 190..=200 {
            for slide in 0..50 {
                let text = format!("{} {token} end", fill.repeat((max - 45 + slide) / fill.len()));
                let (cut, short) = mask_and_cut(&text, max);
                assert!(cut.len() <= max && (short || cut.ends_with(" end")));
                let piece = token
                    .as_bytes()
                    .windows(6)
                    .any(|six| cut.as_bytes().windows(6).any(|w| w == six));
                assert!(!piece, "{cut}");
            }
        }
    }
}

/// Texts that make careless searches quadratic. The bound is far above what is needed and far
/// below what going over the text again and again would take.
#[test]
fn hostile_texts_are_read_in_linear_time() {
    let begin = format!("{}BEGIN PRIVATE KEY{0}", "-".repeat(5));
    let pieces = [
        "-eyJ",
        "eyJ.",
        ".eyJ",
        "a.eyJa",
        "_sk-",
        "sk-a1",
        "://",
        "://a:b@",
        "a://a:a@a",
        "=",
        "a=",
        "token=",
        "token=a1",
        "\\",
        "\\\\\\\\",
        "%",
        "%5F",
        "-----",
        &begin,
        "-----BEGIN ",
        "machine a login b password ",
        "machine ",
        "ghp_a",
        "1:AA",
        "12345678:",
        "Q~",
        "-us",
        "authorization:",
        "@",
        "https://",
        "https://a:@",
        "A",
        "a1",
        ".",
        "\n",
        "[masked: ",
        "\u{1b}[",
        "password: \"",
        "AKIA",
        "MTIz.abcdef.",
    ];
    for piece in pieces {
        let text = piece.repeat(256 * 1024 / piece.len());
        let start = Instant::now();
        let _ = mask(&text);
        let spent = start.elapsed();
        assert!(spent.as_millis() < 4000, "{piece:?}: {spent:?}");
    }
}
