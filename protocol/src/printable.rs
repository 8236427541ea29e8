//! Text from the world, made safe for a terminal or a chat message.
//!
//! Names, paths, subjects and file texts pass through [`printable`] or [`one_line`] before a person
//! reads them, so that none can drive a terminal, hide text or pose as another line of ours. Both
//! programs show such text, so the rule stands here, once.

/// Text with line ends and tabs as they are, and everything else that is not printable escaped.
#[must_use]
pub fn printable(text: &str) -> String {
    escaped(text, |c| matches!(c, '\n' | '\t'))
}

/// Text on one line: line ends and tabs are escaped too.
#[must_use]
pub fn one_line(text: &str) -> String {
    escaped(text, |_| false)
}

/// Whether a character drives a terminal, ends a line, or changes how its neighbours read.
#[must_use]
pub fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{061c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

fn escaped(text: &str, kept: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_unprintable(c) && !kept(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}
