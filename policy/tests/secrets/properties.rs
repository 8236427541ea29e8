//! What must hold for any text whatever.

use policy::secret::{find_all, mask, mask_and_cut, mask_bytes};
use proptest::prelude::*;

use crate::dice::Dice;
use crate::recipes;

/// Pieces that mean something to the search, glued together at random.
fn pieces() -> impl Strategy<Value = String> {
    let token = (0usize..70, any::<u64>()).prop_map(|(kind, seed)| {
        let all = recipes::all();
        all[kind % all.len()].make(&mut Dice::new(seed))
    });
    let mark = prop::sample::select(vec![
        "://",
        "@",
        ":",
        "=",
        ".",
        "-----",
        "-----BEGIN PRIVATE KEY-----",
        "password",
        "token=",
        "Authorization: Basic ",
        "%5F",
        "%",
        "\\",
        "\\n",
        "\\u00",
        "eyJ",
        ".eyJ",
        "sk-",
        "Q~",
        "-us",
        "[masked: ",
        "]",
        "\"",
        " ",
        "\n",
        "é",
        "日",
        "\u{1b}[",
        "https://a:b@c.de/",
        "machine a login b password ",
        "AKIA",
        "$",
        "{",
        "}",
        "//",
        "?",
    ]);
    let piece = prop_oneof![token, mark.prop_map(str::to_owned), "[a-zA-Z0-9_+/-]{0,50}", ".{0,6}"];
    prop::collection::vec(piece, 0..14).prop_map(|pieces| pieces.concat())
}

/// Many cases, and no file of failures beside the tests.
fn config() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, cases: 1500, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn masking_twice_is_masking_once(text in pieces()) {
        let once = mask(&text).into_owned();
        prop_assert_eq!(mask(&once).into_owned(), once);
    }

    #[test]
    fn findings_lie_on_characters(text in pieces()) {
        for finding in find_all(&text) {
            prop_assert!(finding.start < finding.end);
            prop_assert!(text.get(finding.start..finding.end).is_some());
        }
    }

    #[test]
    fn a_cut_is_a_prefix_of_the_masked_text(text in pieces(), max in 0usize..300) {
        let (cut, short) = mask_and_cut(&text, max);
        let whole = mask(&text);
        prop_assert!(cut.len() <= max);
        prop_assert!(whole.starts_with(&cut));
        prop_assert_eq!(short, cut.len() < whole.len());
    }

    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let text = mask_bytes(&bytes);
        prop_assert_eq!(mask(&text).into_owned(), text);
    }
}
