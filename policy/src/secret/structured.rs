//! Credentials that are known by their structure: key blocks, JWTs, bot tokens.

use super::Hit;
use super::chars::{Class, Look, glued, starts_at};

pub(super) const PRIVATE_KEY: &str = "private key";
pub(super) const JWT: &str = "JWT";
pub(super) const DISCORD: &str = "Discord bot token";
pub(super) const TELEGRAM: &str = "Telegram bot token";
pub(super) const MAILCHIMP: &str = "Mailchimp key";
pub(super) const TERRAFORM: &str = "Terraform token";
pub(super) const AZURE: &str = "Azure client secret";

const BEGIN: &[u8] = b"-----BEGIN ";
const DASHES: &[u8] = b"-----";

/// Adds the key block whose first dash is at `at`.
pub(super) fn private_key(text: &[u8], at: usize, hits: &mut Vec<Hit>) {
    if !starts_at(text, at, BEGIN) {
        return;
    }
    let title = &text[at + BEGIN.len()..text.len().min(at + 80)];
    let Some(length) = find(title, DASHES) else { return };
    if find(&title[..length], b"PRIVATE KEY").is_none() {
        return;
    }
    let body = at + BEGIN.len() + length + DASHES.len();
    // Whatever comes next ends the block, be it its end or another beginning, so that a text full
    // of beginnings is still read only once.
    let next = find(&text[body..], DASHES).map(|after| body + after);
    let mut end = match next {
        Some(next) => block_end(text, next),
        None => body + text[body..].iter().take_while(|byte| in_block(**byte)).count(),
    };
    while end > body && text[end - 1].is_ascii_whitespace() {
        end -= 1;
    }
    if looks_like_key(&text[body..next.unwrap_or(end)]) {
        hits.push(Hit::sure(PRIVATE_KEY, at, end));
    }
}

/// The end of an end line, or the place itself when it is none.
fn block_end(text: &[u8], dashes: usize) -> usize {
    let title = dashes + text[dashes..].iter().take_while(|&&byte| byte == b'-').count();
    let line = &text[title..text.len().min(title + 80)];
    match find(line, DASHES) {
        Some(length) if line.starts_with(b"END ") => title + length + DASHES.len(),
        _ => dashes,
    }
}

/// What occurs in a block that was cut off before its end line.
fn in_block(byte: u8) -> bool {
    Class::Base64.has(byte) || byte.is_ascii_whitespace() || b"\\,:".contains(&byte)
}

/// A program that only mentions the first line has no key after it.
fn looks_like_key(body: &[u8]) -> bool {
    let mut at = 0;
    while at < body.len() {
        let end = Class::Base64.run(body, at);
        if end - at >= 32 {
            return true;
        }
        at = end + 1;
    }
    false
}

/// Adds what has its first dot at `at`.
pub(super) fn dotted(text: &[u8], at: usize, hits: &mut Vec<Hit>) {
    if starts_at(text, at, b".eyJ") {
        hits.extend(jwt(text, at));
    } else if starts_at(text, at, b".atlasv1.") {
        let start = Class::Alnum.run_back(text, at, 14);
        let end = Class::Url.run(text, at + 9);
        if at - start == 14 && end - at >= 49 {
            hits.push(Hit::sure(TERRAFORM, start, end));
        }
    } else {
        hits.extend(discord(text, at));
    }
}

/// Header, payload and signature; header and payload are JSON objects, hence `eyJ`.
fn jwt(text: &[u8], dot: usize) -> Option<Hit> {
    let run = Class::Url.run_back(text, dot, 4096);
    let header = (run..dot.saturating_sub(12))
        .find(|&at| starts_at(text, at, b"eyJ") && !glued(text, at))?;
    let payload = Class::Url.run(text, dot + 1);
    if text.get(payload) != Some(&b'.') || payload - dot < 10 {
        return None;
    }
    // A cut or absent signature does not make the rest harmless.
    Some(Hit::sure(JWT, header, Class::Url.run(text, payload + 1)))
}

/// Id, time and signature. The id is decimal digits in base64, which no other dotted name is.
fn discord(text: &[u8], dot: usize) -> Option<Hit> {
    let second = [7, 8].into_iter().map(|n| dot + n).find(|&at| text.get(at) == Some(&b'.'))?;
    if Class::Url.run(text, dot + 1) != second {
        return None;
    }
    let run = Class::Url.run_back(text, dot, 80);
    let start = (23..=28)
        .rev()
        .filter_map(|length| dot.checked_sub(length))
        .find(|&start| start >= run && !glued(text, start) && is_id(&text[start..dot]))?;
    let end = Class::Url.run(text, second + 1);
    (end - second > 25).then(|| Hit::sure(DISCORD, start, end))
}

/// Whether base64 decodes to decimal digits only.
fn is_id(text: &[u8]) -> bool {
    let (mut bits, mut held) = (0u32, 0u32);
    for &byte in text {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            _ => return false,
        };
        bits = (bits << 6) | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            if !((bits >> held) & 0xff).try_into().is_ok_and(|byte: u8| byte.is_ascii_digit()) {
                return false;
            }
            bits &= (1 << held) - 1;
        }
    }
    true
}

/// Adds the Telegram token whose colon is at `at`: a number, then 35 characters.
pub(super) fn telegram(text: &[u8], at: usize, hits: &mut Vec<Hit>) {
    let digits = text[..at].iter().rev().take(12).take_while(|byte| byte.is_ascii_digit()).count();
    if !(8..=11).contains(&digits) {
        return;
    }
    let end = Class::Url.run(&text[..text.len().min(at + 60)], at + 1);
    let rest = &text[at + 1..end];
    let usual = rest.starts_with(b"AA") && (34..=36).contains(&rest.len());
    if usual || (rest.len() == 35 && Look::at(rest).random()) {
        hits.push(Hit::sure(TELEGRAM, at - digits, end));
    }
}

/// Adds the Mailchimp key whose `-us` is at `at`.
pub(super) fn mailchimp(text: &[u8], at: usize, hits: &mut Vec<Hit>) {
    let start = Class::Hex.run_back(text, at, 40);
    let digits = text[at + 3..].iter().take(3).take_while(|byte| byte.is_ascii_digit()).count();
    if at - start == 32 && !glued(text, start) && (1..=2).contains(&digits) {
        hits.push(Hit::sure(MAILCHIMP, start, at + 3 + digits));
    }
}

/// Adds the Azure client secret whose `Q~` is at `at`.
pub(super) fn azure(text: &[u8], at: usize, hits: &mut Vec<Hit>) {
    let tail = |byte: &&u8| Class::Dotted.has(**byte) || **byte == b'~';
    let rest = &text[at + 2..];
    let length = rest.iter().take(60).take_while(tail).count();
    // A dot at the end belongs to the sentence.
    let length = length - usize::from(rest[..length].ends_with(b"."));
    let Some(start) = at.checked_sub(4) else { return };
    let lead = text[start..at - 1].iter().all(|byte| Class::Dotted.has(*byte) || *byte == b'~');
    if lead && text[at - 1].is_ascii_digit() && (31..=40).contains(&length) {
        hits.push(Hit::sure(AZURE, start, at + 2 + length));
    }
}

/// Where one string begins in another.
pub(super) fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    let first = *what.first()?;
    let mut from = 0;
    while let Some(at) = text[from..].iter().position(|&byte| byte == first) {
        if starts_at(text, from + at, what) {
            return Some(from + at);
        }
        from += at + 1;
    }
    None
}
