//! Cuts a long answer into messages that Discord takes.
//!
//! What must stay true: the parts hold all of the text in its order; none is longer than
//! [`MAX_UNITS`]; none is cut inside a grapheme that fits in a part; in each, code fences are balanced,
//! because a fence that is open at a cut is closed there and opened again in the next part.
//!
//! Discord does not document what its limit of 2000 counts. UTF-16 units are the strictest reading.

use unicode_segmentation::UnicodeSegmentation;

/// The longest part, in UTF-16 units.
pub const MAX_UNITS: usize = 1900;

const FENCE: &str = "```";
const CLOSE: &str = "\n```";
/// The longest info string that is repeated when a fence is opened again, in bytes.
const MAX_INFO: usize = 32;

/// A part, and what was added around it.
#[derive(Debug)]
struct Piece<'a> {
    open: String,
    body: &'a str,
    close: &'static str,
}

/// The parts of a text, in order. A text of nothing but white space has none.
#[must_use]
pub fn split(text: &str) -> Vec<String> {
    pieces(text)
        .into_iter()
        // Discord refuses a message without a visible character.
        .filter(|piece| !piece.body.trim().is_empty())
        .map(|piece| piece.open + piece.body + piece.close)
        .collect()
}

fn pieces(text: &str) -> Vec<Piece<'_>> {
    let mut rest = text;
    let mut fence: Option<String> = None;
    let mut pieces = Vec::new();
    while !rest.is_empty() {
        let open = fence.as_ref().map(|info| format!("{FENCE}{info}\n")).unwrap_or_default();
        let room = MAX_UNITS - units(&open) - CLOSE.len();
        let (body, after) = rest.split_at(cut(rest, room));
        fence = fence_after(fence, body);
        let close = if fence.is_some() { CLOSE } else { "" };
        pieces.push(Piece { open, body, close });
        rest = after;
    }
    pieces
}

/// How many bytes of a text go into a part with room for so many units; never none.
fn cut(text: &str, room: usize) -> usize {
    let mut used = 0;
    let over = text.grapheme_indices(true).find(|(_, grapheme)| {
        used += units(grapheme);
        used > room
    });
    let Some((most, grapheme)) = over else { return text.len() };
    if most == 0 {
        return inside(grapheme, room);
    }
    let window = &text[..most];
    // A boundary near the start would make many short parts; a lesser one later is better then.
    let late = |at: &usize| *at >= most / 3;
    let paragraph = window.rfind("\n\n").map(|at| at + 2).filter(late);
    let line = || window.rfind('\n').map(|at| at + 1).filter(late);
    let word = || window.rfind(' ').map(|at| at + 1).filter(late);
    paragraph.or_else(line).or_else(word).unwrap_or_else(|| {
        // Three backticks that are cut apart are no fence any more.
        let outside = window.trim_end_matches('`').len();
        if text[most..].starts_with('`') && outside > 0 { outside } else { most }
    })
}

/// A cut inside a grapheme that is longer than a part can be.
fn inside(grapheme: &str, room: usize) -> usize {
    let mut used = 0;
    let over = grapheme.char_indices().find(|(_, char)| {
        used += char.len_utf16();
        used > room
    });
    over.map_or(grapheme.len(), |(at, _)| at)
}

/// The info string of the fence that is open after a text, when one is. Discord pairs every run of
/// three backticks or more, wherever in a line it stands.
fn fence_after(mut fence: Option<String>, text: &str) -> Option<String> {
    let mut rest = text;
    while let Some(at) = rest.find(FENCE) {
        rest = rest[at..].trim_start_matches('`');
        fence = match fence {
            Some(_) => None,
            None => Some(info(rest)),
        };
    }
    fence
}

fn info(after_fence: &str) -> String {
    let line = after_fence.lines().next().unwrap_or_default();
    let fits = line.len() <= MAX_INFO
        && line.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_+-.#".contains(&byte));
    if fits { line.to_owned() } else { String::new() }
}

fn units(text: &str) -> usize {
    text.encode_utf16().count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Strategy, prop, prop_assert, prop_assert_eq, proptest};

    use super::{FENCE, MAX_UNITS, fence_after, pieces, split, units};

    #[test]
    fn a_short_text_stays_whole() {
        assert_eq!(split("hello"), ["hello"]);
        assert!(split(" \n ").is_empty());
    }

    #[test]
    fn a_long_text_is_cut_between_paragraphs() {
        let (one, other) = ("a".repeat(1200), "b".repeat(1200));
        assert_eq!(split(&format!("{one}\n\n{other}")), [format!("{one}\n\n"), other]);
    }

    #[test]
    fn a_grapheme_of_many_characters_is_not_cut() {
        let family = "👨‍👩‍👧‍👦";
        let text = family.repeat(400);
        let parts = split(&text);
        assert!(parts.len() > 1);
        assert!(parts.iter().all(|part| part.replace(family, "").is_empty()));
        assert_eq!(parts.concat(), text);
    }

    #[test]
    fn a_grapheme_that_fits_in_no_part_is_cut_between_characters() {
        let text = format!("e{}", "\u{301}".repeat(5000));
        let parts = split(&text);
        assert_eq!(parts.concat(), text);
        assert!(parts.iter().all(|part| units(part) <= MAX_UNITS));
    }

    #[test]
    fn a_fence_of_three_hundred_lines_is_closed_and_opened_again() {
        let text = format!("see\n```rust\n{}```\ndone", "let x = 1; // a line\n".repeat(300));
        let parts = split(&text);
        assert!(parts.len() > 2);
        for (at, part) in parts.iter().enumerate() {
            assert!(units(part) <= MAX_UNITS);
            assert_eq!(fence_after(None, part), None, "{part}");
            assert_eq!(part.starts_with("```rust\n"), at > 0, "{part}");
        }
        assert_eq!(parts.concat().matches("let x = 1; // a line\n").count(), 300);
    }

    #[test]
    fn an_info_string_of_fifteen_hundred_characters_does_not_outgrow_a_part() {
        let text = format!("```{}\n{}\n```", "x".repeat(1500), "code\n".repeat(1000));
        for part in split(&text) {
            assert!(units(&part) <= MAX_UNITS);
            assert_eq!(fence_after(None, &part), None);
        }
    }

    fn texts() -> impl Strategy<Value = String> {
        let bit = prop::sample::select(vec![
            "word ",
            "\n",
            "\n\n",
            FENCE,
            "`",
            "```rust\n",
            "é",
            "👨‍👩‍👧‍👦",
            "𝄞",
            "e\u{301}\u{302}",
            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
            "\r\n",
            "| a | b |\n",
        ]);
        prop::collection::vec((bit, 1..120usize), 0..40)
            .prop_map(|bits| bits.into_iter().map(|(bit, times)| bit.repeat(times)).collect())
    }

    proptest! {
        #[test]
        fn no_text_is_lost_no_part_is_too_long_and_fences_are_balanced(text in texts()) {
            let pieces = pieces(&text);
            prop_assert_eq!(pieces.iter().map(|piece| piece.body).collect::<String>(), &*text);
            for part in split(&text) {
                prop_assert!(units(&part) <= MAX_UNITS);
                prop_assert_eq!(fence_after(None, &part), None);
            }
        }
    }
}
