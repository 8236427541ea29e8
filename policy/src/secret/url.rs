//! Passwords and tokens in the userinfo of a URL.
//!
//! Passwords are often pasted in without being encoded, so that `/` and `@` occur in them and the
//! URL cannot simply be parsed: the question is which `@` is followed by a host.

use super::Hit;
use super::chars::{Class, Look, starts_at};

/// What the finding is called.
pub(super) const NAME: &str = "URL password";

/// How far a host is looked for.
const REACH: usize = 2048;

/// User names that are no secret, although they stand alone before the host.
const PLAIN_USERS: &[&str] =
    &["git", "oauth2", "x-access-token", "x-token-auth", "gitlab-ci-token", "anonymous"];

/// Adds the userinfo secret of the URL whose `://` is at `at`.
pub(super) fn scan_at(text: &[u8], at: usize, hits: &mut Vec<Hit>) {
    let scheme = &text[scheme_start(text, at)..at];
    let start = at + 3;
    let url = start..start + url_length(&text[start..]);
    if scheme.is_empty() {
        return;
    }
    let Some(sign) = host_sign(&text[url.clone()]) else { return };
    let userinfo = &text[start..start + sign];
    hits.extend(secret_part(userinfo, scheme).map(|part| {
        let (from, to) = part;
        Hit::guess(NAME, start + from, start + to)
    }));
}

fn scheme_start(text: &[u8], at: usize) -> usize {
    at - text[..at]
        .iter()
        .rev()
        .take(24)
        .take_while(|byte| byte.is_ascii_alphanumeric() || b"+.-".contains(byte))
        .count()
}

/// How much of the text may be the URL. The next URL on the line is not part of it.
fn url_length(text: &[u8]) -> usize {
    let text = &text[..text.len().min(REACH)];
    let ends = |byte: u8| byte.is_ascii_whitespace() || b"\"'`<>".contains(&byte);
    (0..text.len()).find(|&at| ends(text[at]) || starts_at(text, at, b"://")).unwrap_or(text.len())
}

/// Where the `@` before the host is, when there is one.
fn host_sign(url: &[u8]) -> Option<usize> {
    let authority = url.iter().position(|byte| b"/?#\\".contains(byte)).unwrap_or(url.len());
    let first = url.iter().position(|&byte| byte == b'@');
    if first.is_none_or(|sign| sign >= authority) && !odd_port(&url[..authority]) {
        return None;
    }
    let signs = || (0..url.len()).filter(|&at| url[at] == b'@');
    let hosts: Vec<_> =
        signs().filter_map(|at| host(&url[at + 1..]).map(|host| (at, host))).collect();
    let last_inside = signs().take_while(|&at| at < authority).last();
    let certain = hosts.iter().find(|(_, kind)| *kind == Host::Certain);
    let likely = hosts.first();
    certain.or(likely).map(|(at, _)| *at).or(last_inside)
}

/// Whether what would be the port is none, so that the `:` must belong to a password.
fn odd_port(authority: &[u8]) -> bool {
    let colon = authority.iter().position(|&byte| byte == b':');
    let port = colon.map_or(&b""[..], |colon| &authority[colon + 1..]);
    !authority.starts_with(b"[") && port.iter().any(|byte| !byte.is_ascii_digit())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Host {
    /// It has a dot, a port or brackets.
    Certain,
    /// A single word.
    Likely,
}

/// Whether a host begins here, and ends as a host does.
fn host(text: &[u8]) -> Option<Host> {
    let bracket = text.first() == Some(&b'[');
    let inside = |byte: &u8| byte.is_ascii_alphanumeric() || b".-_".contains(byte);
    let length = if bracket {
        text.iter().position(|&byte| byte == b']')? + 1
    } else {
        text.iter().take_while(|byte| inside(byte)).count()
    };
    if length == 0 {
        return None;
    }
    let dotted = text[..length].windows(2).any(|two| two[0] == b'.' && two[1] != b'.');
    let certain = if bracket || dotted { Host::Certain } else { Host::Likely };
    match text.get(length) {
        Some(b'@' | b'%' | b'&' | b'!' | b'$') => None,
        Some(b':') => {
            let port = text[length + 1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            let after = text.get(length + 1 + port);
            let ends = after.is_none_or(|byte| !byte.is_ascii_alphanumeric() && *byte != b'@');
            ends.then_some(if port > 0 { Host::Certain } else { certain })
        }
        _ => Some(certain),
    }
}

/// Which part of the userinfo to hide.
fn secret_part(userinfo: &[u8], scheme: &[u8]) -> Option<(usize, usize)> {
    let end = userinfo.len();
    let Some(colon) = userinfo.iter().position(|&byte| byte == b':') else {
        let web = scheme.to_ascii_lowercase();
        let web = web.ends_with(b"http") || web.ends_with(b"https");
        return (web && !plain_user(userinfo) && !placeholder(userinfo)).then_some((0, end));
    };
    let (user, password) = (&userinfo[..colon], &userinfo[colon + 1..]);
    let token_is_user = password.is_empty() || password == b"x-oauth-basic";
    if token_is_user && !plain_user(user) && !placeholder(user) {
        return Some((0, colon));
    }
    let also_user = user.len() >= 20 && Look::at(user).random();
    let from = if also_user { 0 } else { colon + 1 };
    (!password.is_empty() && !placeholder(password)).then_some((from, end))
}

/// A user name rather than a token.
fn plain_user(user: &[u8]) -> bool {
    let word = user.iter().all(|byte| byte.is_ascii_lowercase() || b".-_".contains(byte));
    let known = PLAIN_USERS.iter().any(|name| name.as_bytes() == user);
    known || (word && user.len() < 12) || user.is_empty()
}

/// A variable or stars where a secret would stand. Our own mask never gets here: it has a blank.
pub(super) fn placeholder(value: &[u8]) -> bool {
    let shell = value.strip_prefix(b"$").unwrap_or(value);
    let braced = shell.starts_with(b"{") && shell.ends_with(b"}");
    let variable = shell.len() < value.len()
        && Class::Word.run(shell, 0) == shell.len()
        && shell.first().is_some_and(|byte| byte.is_ascii_uppercase() || *byte == b'_');
    let hidden = value.iter().all(|&byte| byte == b'*') || value == b"%s" || value == b"...";
    braced || variable || hidden
}
