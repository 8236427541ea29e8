//! Credentials that only their surroundings give away: the name they are assigned to, a header, a
//! line of `.netrc`.
//!
//! Here precision is at stake, so the value must also look random; a password made of words is
//! not found, except where the form leaves no doubt (`.netrc`, `Authorization: Basic`).

use std::sync::LazyLock;

use regex::bytes::Regex;

use super::Hit;
use super::chars::{Class, Look};
use super::structured::find;

pub(super) const ASSIGNED: &str = "password or key";
pub(super) const HEADER: &str = "authorization header";
pub(super) const NETRC: &str = "netrc password";

const LEAST: usize = 16;
const MOST: usize = 1024;

/// How a name ends that holds a secret; `_`, `-` and `.` are left out of names first.
const ENDINGS: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "secret",
    "token",
    "apikey",
    "accesskey",
    "secretkey",
    "authkey",
    "accountkey",
    "signingkey",
    "encryptionkey",
    "masterkey",
    "privatekey",
    "clientkey",
    "servicekey",
    "credential",
    "credentials",
];

/// Adds the value assigned by the `:` or `=` at `at`.
pub(super) fn assigned(text: &[u8], at: usize, hits: &mut Vec<Hit>) {
    let Some(name) = name_before(text, at) else { return };
    if name.ends_with(b"authorization") {
        hits.extend(header(text, at + 1));
        return;
    }
    let signature = name == b"sig";
    if !signature && !ENDINGS.iter().any(|ending| name.ends_with(ending.as_bytes())) {
        return;
    }
    let (start, end) = value(text, at + 1);
    let value = &text[start..end];
    let least = if signature { 40 } else { LEAST };
    if (least..=MOST).contains(&value.len()) && is_secret(value) {
        hits.push(Hit::guess(ASSIGNED, start, end));
    }
}

/// The name before the sign, in small letters and without what joins its words.
fn name_before(text: &[u8], at: usize) -> Option<Vec<u8>> {
    let from = at.saturating_sub(80);
    let before = text[from..at].trim_ascii_end();
    let before = before.strip_suffix(b"]").unwrap_or(before);
    let before = match before {
        [rest @ .., b'"' | b'\'' | b'`'] => rest,
        // `:=`, `!=`, `==`, `+=`
        [rest @ .., b':' | b'=' | b'!' | b'+' | b'?'] => rest.trim_ascii_end(),
        _ => before,
    };
    let start = Class::Dotted.run_back(before, before.len(), 64);
    let letters = before[start..].iter().filter(|byte| byte.is_ascii_alphanumeric());
    let name: Vec<_> = letters.map(u8::to_ascii_lowercase).collect();
    (name.len() >= 3).then_some(name)
}

/// Where the value after the sign is. In quotes it may hold anything, else only what values hold.
fn value(text: &[u8], from: usize) -> (usize, usize) {
    let blanks = |at: usize| {
        at + text[at..].iter().take(8).take_while(|byte| b" \t>=".contains(byte)).count()
    };
    let mut start = blanks(from);
    let quote = text.get(start).copied().filter(|byte| b"\"'`".contains(byte));
    if let Some(quote) = quote {
        start += 1;
        let inside = &text[start..text.len().min(start + MOST + 1)];
        let ends = |byte: &u8| *byte == quote || byte.is_ascii_whitespace();
        let length = inside.iter().position(ends).unwrap_or(inside.len());
        let whole = inside.get(length).is_none_or(|byte| *byte == quote || *byte == b'\n');
        return (start, start + if whole { length } else { 0 });
    }
    let inside = &text[start..text.len().min(start + MOST + 1)];
    let plain = |byte: &&u8| Class::Base64.has(**byte) || b".~:!*^$".contains(*byte);
    let mut length = inside.iter().take_while(plain).count();
    // A call or an index is code, not a value.
    if matches!(inside.get(length), Some(b'(' | b'[' | b'{' | b'<')) {
        length = 0;
    }
    while length > 0 && b".:".contains(&inside[length - 1]) {
        length -= 1;
    }
    (start, start + length)
}

/// Whether a value is a secret rather than a name, a path, a template or an id.
fn is_secret(value: &[u8]) -> bool {
    let hex = Class::Hex.run(value, 0) == value.len();
    let look = Look::at(value);
    let template = b"$<{[%".contains(&value[0]) || find(value, b"://").is_some();
    let lower = value.to_ascii_lowercase();
    let pretends = ["example", "placeholder", "changeme", "change_me", "your_", "your-", "xxxx"]
        .iter()
        .any(|word| find(&lower, word.as_bytes()).is_some());
    let random = if hex { value.len() >= 32 && look.coded() } else { look.random() };
    let code = find(value, b"::").is_some() || find(value, b"..").is_some();
    random && !template && !pretends && !code && !is_uuid(value)
}

/// Five groups of hexadecimal digits.
fn is_uuid(value: &[u8]) -> bool {
    let groups: Vec<_> = value.split(|&byte| byte == b'-').collect();
    groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12])
        && groups.iter().all(|group| group.iter().all(u8::is_ascii_hexdigit))
}

/// The credential of an `Authorization` header.
fn header(text: &[u8], from: usize) -> Option<Hit> {
    let skip = |at: usize| {
        at + text[at..].iter().take(8).take_while(|byte| b" \t\"'`".contains(byte)).count()
    };
    let scheme = skip(from);
    let scheme_end = Class::Url.run(text, scheme);
    let after = skip(scheme_end);
    let (start, named) = if after > scheme_end && scheme_end - scheme <= 16 {
        (after, true)
    } else {
        (scheme, false)
    };
    let credential = |byte: &&u8| Class::Base64.has(**byte) || b".~:".contains(*byte);
    let length = |limit| text[start..].iter().take(limit).take_while(credential).count();
    let value = &text[start..start + length(256)];
    let look = Look::at(value);
    let basic = named && text[scheme..scheme_end].eq_ignore_ascii_case(b"basic");
    let sure = if basic {
        value.len() >= 8 && look.coded()
    } else {
        value.len() >= 16 && look.coded() && !is_url(value) && (named || look.random())
    };
    sure.then(|| Hit::guess(HEADER, start, start + length(8192)))
}

fn is_url(value: &[u8]) -> bool {
    find(value, b"//").is_some()
}

static NETRC_ENTRY: LazyLock<Regex> = LazyLock::new(|| {
    let (gap, word) = (r"[ \t\r\n]{1,8}", "[!-~]{1,255}");
    let machine = format!("machine{gap}{word}{gap}");
    // On one line these are too often just words, as in "default login shell".
    let default = r"default[ \t]{0,8}\r?\n[ \t]{0,8}";
    let login = format!("login{gap}{word}{gap}(?:account{gap}{word}{gap})?");
    let entry = format!(r"(?-u)\b(?:{machine}|{default}){login}password{gap}({word})");
    #[expect(clippy::unwrap_used, reason = "a constant; a test compiles it")]
    Regex::new(&entry).unwrap()
});

/// Adds the passwords of `.netrc` entries.
pub(super) fn netrc(text: &[u8], hits: &mut Vec<Hit>) {
    for entry in NETRC_ENTRY.captures_iter(text) {
        let Some(word) = entry.get(1) else { continue };
        let value = word.as_bytes();
        let unquoted = value.strip_suffix(b"'").or(value.strip_suffix(b"\"")).unwrap_or(value);
        // The mask itself, when a masked text is masked again.
        if !value.starts_with(b"[masked:") && !super::url::placeholder(unquoted) {
            hits.push(Hit::sure(NETRC, word.start(), word.end()));
        }
    }
}
