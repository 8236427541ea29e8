//! What must hold of any input. Each function takes bytes and panics when something does not hold;
//! `fuzz/run` lets libFuzzer look for such bytes, and the tests below replay those in `fuzz/corpus`.

use std::path::{Component, Path};

use connector::render;
use executor::git::parse;
use policy::git::{
    BranchName, CommitMessage, DiffSpec, Identity, Range, Remote, Requester, Revision,
};
use policy::path::{PathGlob, RelPath};
use policy::secret;
use protocol::reply::{Cut, Diff, Reply, Text, Untrusted};
use protocol::service::ExecutorRequest;
use protocol::wire;
use tarpc::ClientMessage;
use tokio_util::bytes::BytesMut;
use tokio_util::codec::Decoder as _;

/// Calls `look` with the bytes as text, where they are.
fn as_text(data: &[u8], look: impl FnOnce(&str)) {
    if let Ok(text) = std::str::from_utf8(data) {
        look(text);
    }
}

/// No path that is accepted leads out of its root, and what is refused is said on one line.
///
/// # Panics
/// When that does not hold.
pub fn paths(data: &[u8]) {
    as_text(data, |text| {
        match RelPath::parse(text) {
            Ok(path) => stays_below(path.as_str(), text),
            Err(refusal) => assert!(!refusal.message.contains('\n'), "{refusal:?}"),
        }
        if let Ok(glob) = PathGlob::parse(text) {
            let _ = (glob.matches(text), glob.matches("notes/plan.md"));
        }
    });
}

fn stays_below(path: &str, text: &str) {
    assert_eq!(path, text, "an accepted path is taken as it is");
    let normal = |part: Component<'_>| matches!(part, Component::Normal(name) if !name.is_empty());
    assert!(Path::new(path).components().all(normal), "{path:?}");
    let root = Path::new("/root");
    let joined = root.join(path);
    assert!(joined.starts_with(root) && joined != root, "{path:?}");
    assert!(!path.split('/').any(|part| part.starts_with('.')), "{path:?}");
    assert!(!path.chars().any(char::is_control), "{path:?}");
}

/// Nothing that git would read as an option, a range or a command to read files is taken for one
/// revision; the other words of git's are parsed without a panic, and credentials are not repeated.
///
/// # Panics
/// When that does not hold.
pub fn revisions(data: &[u8]) {
    as_text(data, |text| {
        if let Ok(revision) = Revision::parse(text) {
            is_one_revision(revision.as_str());
        }
        if let Ok(Range::Between(from, to)) = Range::parse(text) {
            is_one_revision(from.as_str());
            is_one_revision(to.as_str());
        }
        let _ = DiffSpec::parse(Some(text));
        if let Ok(branch) = BranchName::parse(text) {
            is_one_revision(branch.as_str());
            assert!(branch.full().starts_with("refs/heads/"));
        }
        if let Ok(message) = CommitMessage::parse(text) {
            assert!(!message.subject().trim().is_empty() && !message.as_str().contains('\0'));
        }
        let _ = (Remote::parse(text), Identity::parse(text), Requester::parse(text));
    });
}

fn is_one_revision(text: &str) {
    assert!(!text.is_empty() && !text.starts_with('-'), "{text:?}");
    for never in ["..", "@{", ":", " ", "*", "?", "[", "\\", "\n", "\0", "^{"] {
        assert!(!text.contains(never), "{text:?}");
    }
}

/// What git prints is parsed or refused, its parts lie within it; what a person sees of a diff has no
/// control characters, and no credential survives masking or a cut.
///
/// # Panics
/// When that does not hold.
pub fn diffs(data: &[u8]) {
    let (_, _) = (parse::status(data).is_ok(), parse::raw(data).is_ok());
    let parsed = parse::diff(data);
    let patch = parsed.as_ref().map_or(data, |parsed| parsed.patch);
    let mut from = 0;
    for section in parse::sections(patch) {
        assert!(from <= section.end && section.end <= patch.len());
        from = section.end;
    }
    let whole = String::from_utf8_lossy(patch);
    let (text, cut) = secret::mask_and_cut(&whole, usize::from(data.first().copied().unwrap_or(0)));
    let masked = secret::mask(&whole);
    // What is cut is masked: a piece of something harmless may look like a credential, and is none.
    assert!(text.len() <= 255 && masked.starts_with(&text), "{text:?}");
    assert!(secret::find(&masked).is_none(), "{masked:?}");
    assert_eq!(secret::mask(&masked), masked, "masking twice changes nothing");
    let size = masked.len() as u64;
    let reply = Reply::Diff(Diff {
        untrusted_files: parsed.map(|parsed| parsed.stats).unwrap_or_default(),
        more_files: 0,
        untrusted_diff: Text {
            text: Untrusted::from(&*masked),
            cut: cut.then(|| Cut { handle: "1".to_owned(), next_offset: 0, size }),
        },
    });
    let shown = render::reply(&reply);
    let bad = shown.chars().find(|c| render::is_unprintable(*c) && *c != '\n' && *c != '\t');
    assert_eq!(bad, None, "{shown:?}");
}

/// Frames of any bytes are decoded or refused, and none is taken that claims more than the limit.
///
/// # Panics
/// When that does not hold.
pub fn frames(data: &[u8]) {
    let mut codec = wire::codec();
    let mut buffer = BytesMut::from(data);
    while let Ok(Some(frame)) = codec.decode(&mut buffer) {
        assert!(frame.len() <= wire::MAX_FRAME_BYTES);
        request(&frame);
    }
    assert!(
        buffer.capacity() <= data.len().max(64) + wire::MAX_FRAME_BYTES,
        "no claim is believed"
    );
    request(data);
}

fn request(bytes: &[u8]) {
    if let Ok(message) = rmp_serde::from_slice::<ClientMessage<ExecutorRequest>>(bytes) {
        let again = rmp_serde::to_vec(&message).expect("what was read can be written");
        rmp_serde::from_slice::<ClientMessage<ExecutorRequest>>(&again).expect("and read again");
    }
}

/// What a model's endpoint streams is read the same however it is split, and ends nothing.
///
/// # Panics
/// When that does not hold.
pub fn streams(data: &[u8]) {
    connector::engine::openai::any_split_reads_the_same(data);
}

/// What pi says is read the same however it arrives, and ends nothing.
///
/// # Panics
/// When that does not hold.
pub fn events(data: &[u8]) {
    connector::engine::pi::any_arrival_reads_the_same(data);
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    fn replay(name: &str, target: fn(&[u8])) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
        let mut count = 0;
        for entry in std::fs::read_dir(folder).expect("the corpus is there") {
            let bytes = std::fs::read(entry.expect("it can be listed").path()).expect("a file");
            for end in 0..=bytes.len() {
                target(&bytes[..end]);
            }
            for at in 0..bytes.len() {
                let mut changed = bytes.clone();
                for value in [0, b'\n', b'.', b'/', b'-', 0x7f, 0xff] {
                    changed[at] = value;
                    target(&changed);
                }
            }
            count += 1;
        }
        assert!(count > 0, "the corpus of {name} is empty");
    }

    #[test]
    fn what_was_found_about_paths_holds() {
        replay("paths", super::paths);
    }

    #[test]
    fn what_was_found_about_revisions_holds() {
        replay("revisions", super::revisions);
    }

    #[test]
    fn what_was_found_about_diffs_holds() {
        replay("diffs", super::diffs);
    }

    #[test]
    fn what_was_found_about_frames_holds() {
        replay("frames", super::frames);
    }
    #[test]
    fn what_was_found_about_streams_holds() {
        replay("streams", super::streams);
    }
    #[test]
    fn what_was_found_about_events_holds() {
        replay("events", super::events);
    }
}
