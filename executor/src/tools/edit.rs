//! One exact replacement.

use policy::fence::EditFile;
use policy::path::shown;
use protocol::refusal::Code;
use similar::TextDiff;

use super::Failure;

/// How many of the matching lines a refusal names.
const LINES_NAMED: usize = 10;

/// The bytes of a file with the one occurrence of `old` replaced. Bytes outside the match stay as
/// they are, whatever they are.
pub(crate) fn replace_once(bytes: &[u8], action: &EditFile) -> Result<Vec<u8>, Failure> {
    let (old, new) = (action.old.as_bytes(), action.new.as_bytes());
    let starts = occurrences(bytes, old);
    match starts.as_slice() {
        [start] => {
            let mut edited = Vec::with_capacity(bytes.len() - old.len() + new.len());
            edited.extend_from_slice(&bytes[..*start]);
            edited.extend_from_slice(new);
            edited.extend_from_slice(&bytes[start + old.len()..]);
            Ok(edited)
        }
        [] => Err(no_match(bytes, action)),
        many => Err(several(bytes, action, many)),
    }
}

/// Where `old` starts; occurrences that overlap count each.
fn occurrences(bytes: &[u8], old: &[u8]) -> Vec<usize> {
    let finder = memchr::memmem::Finder::new(old);
    let mut starts = Vec::new();
    let mut from = 0;
    while let Some(at) = finder.find(&bytes[from..]) {
        starts.push(from + at);
        from += at + 1;
    }
    starts
}

fn no_match(bytes: &[u8], action: &EditFile) -> Failure {
    let normal = |text: &[u8]| String::from_utf8_lossy(text).replace("\r\n", "\n");
    let endings_differ = normal(bytes).contains(&normal(action.old.as_bytes()));
    Failure::refuse(
        Code::NoMatch,
        format!("The text to replace does not occur in {}.", shown(action.path.as_str())),
        if endings_differ {
            "It would, if line endings were the same: the file uses CRLF. Give the text with \\r\\n."
        } else {
            "Read the file again and give a text exactly as it stands there."
        },
    )
}

fn several(bytes: &[u8], action: &EditFile, starts: &[usize]) -> Failure {
    let line = |start: usize| 1 + bytes[..start].iter().filter(|byte| **byte == b'\n').count();
    let mut lines: Vec<String> =
        starts.iter().take(LINES_NAMED).map(|start| line(*start).to_string()).collect();
    if starts.len() > LINES_NAMED {
        lines.push("…".to_owned());
    }
    Failure::refuse(
        Code::SeveralMatches,
        format!(
            "The text to replace occurs {} times in {}, on lines {}.",
            starts.len(),
            shown(action.path.as_str()),
            lines.join(", ")
        ),
        "Give more of the text around it, so that it occurs once.",
    )
}

/// The change as a unified diff, for reading.
pub(crate) fn unified(path: &str, before: &[u8], after: &[u8]) -> String {
    let (before, after) = (String::from_utf8_lossy(before), String::from_utf8_lossy(after));
    TextDiff::from_lines(before.as_ref(), after.as_ref())
        .unified_diff()
        .context_radius(3)
        .header(&format!("a/{path}"), &format!("b/{path}"))
        .to_string()
}

#[cfg(test)]
mod tests {
    use policy::fence::EditFile;
    use policy::path::RelPath;
    use proptest::prelude::{any, prop, proptest};
    use protocol::refusal::Code;

    use super::{Failure, replace_once};

    fn edit(old: &str, new: &str) -> EditFile {
        EditFile {
            path: RelPath::parse("t.txt").expect("a path"),
            old: old.to_owned(),
            new: new.to_owned(),
            dry_run: false,
            expect: None,
        }
    }

    fn refused(bytes: &[u8], old: &str) -> (Code, String, String) {
        match replace_once(bytes, &edit(old, "x")) {
            Err(Failure::Refusal(r)) => (r.code, r.message, r.hint),
            other => panic!("{other:?} is no refusal"),
        }
    }

    #[test]
    fn the_replacement_is_literal() {
        for new in [
            "$&", "$$100", "$`", "$'", "$1", "${x}", "$<n>", "\\1", "\\0", "\\n", "a\\", "%s", "&",
            "",
        ] {
            let edited =
                replace_once(b"left MARK right\n", &edit("MARK", new)).expect("it occurs once");
            assert_eq!(edited, format!("left {new} right\n").into_bytes());
        }
        let edited = replace_once(b"abc a.c\n", &edit("a.c", "x")).expect("a dot is a dot");
        assert_eq!(edited, b"abc x\n");
    }

    #[test]
    fn bytes_outside_the_match_stay() {
        let edited = replace_once(b"a\r\nb\nc\r\nd", &edit("b", "B")).expect("once");
        assert_eq!(edited, b"a\r\nB\nc\r\nd");
        let edited = replace_once(b"\xef\xbb\xbfn = 5;\n// ol\xe9 !\n", &edit("n = 5", "n = 6"));
        assert_eq!(edited.expect("once"), b"\xef\xbb\xbfn = 6;\n// ol\xe9 !\n");
    }

    #[test]
    fn none_and_several_are_different_refusals() {
        let (code, _, hint) = refused(b"a\r\nb\nc\r\nd", "c\nd");
        assert_eq!(code, Code::NoMatch);
        assert!(hint.contains("CRLF"), "{hint}");
        let (code, message, _) = refused(b"x\nab\nab\n", "ab");
        assert_eq!(code, Code::SeveralMatches);
        assert!(message.contains("2 times") && message.contains("lines 2, 3"), "{message}");
        assert_eq!(refused(b"aaa", "aa").0, Code::SeveralMatches);
        assert_eq!(refused(b"ababa", "aba").0, Code::SeveralMatches);
    }

    proptest! {
        #[test]
        fn only_the_match_changes(
            before in prop::collection::vec(any::<u8>(), 0..64),
            after in prop::collection::vec(any::<u8>(), 0..64),
            new in any::<String>(),
        ) {
            let old = "\u{1F33F}mark";
            let mut bytes = before.clone();
            bytes.extend_from_slice(old.as_bytes());
            bytes.extend_from_slice(&after);
            let edited = replace_once(&bytes, &edit(old, &new)).expect("it occurs once");
            let mut wanted = before;
            wanted.extend_from_slice(new.as_bytes());
            wanted.extend_from_slice(&after);
            assert_eq!(edited, wanted);
        }
    }
}
