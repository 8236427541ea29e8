//! What the executor remembers of one turn: its calls, what was seen of which content, and outputs
//! that were cut. All of it ends with the turn.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use policy::review::{Content, Review};
use protocol::refusal::{Code, Outcome};
use protocol::reply::{Cut, OutputPage, Text, Untrusted};
use sha2::{Digest as _, Sha256};

use crate::outcomes::CallKey;
use crate::tools::Failure;
use crate::tools::files::floor_boundary;

/// How many turns of one peer are remembered at once; the one unused for longest goes first.
const MAX_TURNS: usize = 256;

/// How much cut output one turn keeps, in bytes.
const MAX_KEPT_BYTES: usize = 16 * 1024 * 1024;

/// How much cut output all turns of one peer keep, in bytes, before the one unused for longest is
/// forgotten.
const MAX_KEPT_BYTES_OF_PEER: usize = 64 * 1024 * 1024;

/// The turns that are under way, by peer. One peer's turns never push out those of another.
#[derive(Debug, Default)]
pub struct Sessions(Mutex<HashMap<u32, Turns>>);

/// The turns of one peer. The peer gives them their names, which may be of any length: what is kept is
/// a digest.
#[derive(Debug, Default)]
struct Turns {
    sessions: HashMap<Digest, Arc<Mutex<Session>>>,
    recent: VecDeque<Digest>,
    kept: Arc<AtomicUsize>,
}

type Digest = [u8; 32];

impl Sessions {
    /// The session of a turn; a peer only ever sees its own.
    pub fn of(&self, peer: u32, turn: &str) -> Arc<Mutex<Session>> {
        let mut peers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        peers.entry(peer).or_default().of(Sha256::digest(turn).into())
    }

    /// How many calls a turn has made; asking makes no session.
    #[must_use]
    pub fn calls(&self, peer: u32, turn: &str) -> u32 {
        let turn: Digest = Sha256::digest(turn).into();
        let peers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let session = peers.get(&peer).and_then(|turns| turns.sessions.get(&turn)).cloned();
        drop(peers);
        session.map_or(0, |session| session.lock().unwrap_or_else(PoisonError::into_inner).calls)
    }
}

impl Turns {
    fn of(&mut self, turn: Digest) -> Arc<Mutex<Session>> {
        self.recent.retain(|other| *other != turn);
        while self.recent.len() >= MAX_TURNS
            || self.kept.load(Ordering::Relaxed) > MAX_KEPT_BYTES_OF_PEER
        {
            let Some(oldest) = self.recent.pop_front() else { break };
            self.sessions.remove(&oldest);
        }
        self.recent.push_back(turn);
        let fresh = || {
            let room = Room { of_peer: Arc::clone(&self.kept), own: 0 };
            Arc::new(Mutex::new(Session { room, ..Session::default() }))
        };
        Arc::clone(self.sessions.entry(turn).or_insert_with(fresh))
    }
}

/// How much is kept, by one turn and by all of its peer.
#[derive(Debug, Default)]
struct Room {
    of_peer: Arc<AtomicUsize>,
    own: usize,
}

impl Room {
    fn take(&mut self, size: usize) {
        self.own += size;
        self.of_peer.fetch_add(size, Ordering::Relaxed);
    }

    fn give(&mut self, size: usize) {
        self.own -= size;
        self.of_peer.fetch_sub(size, Ordering::Relaxed);
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.give(self.own);
    }
}

/// One turn's memory.
#[derive(Debug, Default)]
pub struct Session {
    /// How many calls it has made.
    pub calls: u32,
    /// What became of each writing call that was let through.
    pub done: HashMap<CallKey, Outcome>,
    room: Room,
    reviews: HashMap<usize, Review>,
    reading: HashMap<(usize, String), Progress>,
    outputs: Vec<Kept>,
}

/// How far a file was read, from its start and without a gap.
#[derive(Debug)]
struct Progress {
    digest: String,
    shown_to: u64,
}

/// A text that was cut, and what seeing more of it reviews.
#[derive(Debug)]
struct Kept {
    root: usize,
    text: String,
    shown_to: usize,
    reviews: Vec<Reviewed>,
}

/// A path whose part of a text ends at a byte.
#[derive(Debug, Clone)]
pub struct Reviewed {
    /// Seeing the text up to here is seeing the path.
    pub end: usize,
    /// The path, relative to the repository.
    pub path: String,
    /// Its content.
    pub content: Content,
}

impl Session {
    /// What was seen of a root.
    pub fn review(&mut self, root: usize) -> &mut Review {
        self.reviews.entry(root).or_default()
    }

    /// Cuts a text to a budget and keeps the rest; what is shown of it is reviewed.
    pub fn cut(&mut self, root: usize, text: String, budget: u64, reviews: Vec<Reviewed>) -> Text {
        let shown_to = floor_boundary(&text, budget);
        let size = text.len();
        self.note(root, &reviews, 0, shown_to);
        if shown_to == size {
            return Text { text: Untrusted(text), cut: None };
        }
        let shown = Untrusted(text[..shown_to].to_owned());
        self.make_room(size);
        self.room.take(size);
        self.outputs.push(Kept { root, text, shown_to, reviews });
        let handle = format!("output-{}", self.outputs.len());
        Text {
            text: shown,
            cut: Some(Cut { handle, next_offset: shown_to as u64, size: size as u64 }),
        }
    }

    fn make_room(&mut self, size: usize) {
        for output in &mut self.outputs {
            if self.room.own + size <= MAX_KEPT_BYTES {
                break;
            }
            self.room.give(output.text.len());
            output.text = String::new();
        }
    }

    /// Reads on in a text that was cut.
    ///
    /// # Errors
    /// `unknown_handle`.
    pub fn read_on(
        &mut self,
        handle: &str,
        offset: u64,
        budget: u64,
    ) -> Result<OutputPage, Failure> {
        let index = handle.strip_prefix("output-").and_then(|n| n.parse::<usize>().ok());
        let kept = index.and_then(|n| self.outputs.get_mut(n.checked_sub(1)?));
        let Some(kept) = kept.filter(|kept| !kept.text.is_empty()) else {
            return Err(Failure::refuse(
                Code::UnknownHandle,
                "There is no such output in this turn.",
                "Make the call again whose output was cut.",
            ));
        };
        let start = floor_boundary(&kept.text, offset);
        let end = floor_boundary(&kept.text, (start as u64).saturating_add(budget));
        let page = OutputPage {
            untrusted_text: Untrusted(kept.text[start..end].to_owned()),
            next_offset: (end < kept.text.len()).then_some(end as u64),
            size: kept.text.len() as u64,
        };
        // A gap would leave something unseen.
        if start <= kept.shown_to && end > kept.shown_to {
            let (root, from, reviews) = (kept.root, kept.shown_to, kept.reviews.clone());
            kept.shown_to = end;
            self.note(root, &reviews, from, end);
        }
        Ok(page)
    }

    fn note(&mut self, root: usize, reviews: &[Reviewed], from: usize, to: usize) {
        for seen in reviews.iter().filter(|seen| seen.end <= to && (seen.end > from || from == 0)) {
            self.review(root).diffed(&seen.path, seen.content.clone());
        }
    }

    /// Notes that a part of a file was read; once it was read from start to end, it was seen.
    pub fn read_part(
        &mut self,
        root: usize,
        path: &str,
        digest: &str,
        part: (u64, u64),
        file: &[u8],
    ) {
        let key = (root, path.to_owned());
        let fresh = || Progress { digest: digest.to_owned(), shown_to: 0 };
        let progress = self.reading.entry(key).or_insert_with(fresh);
        if progress.digest != digest {
            *progress = fresh();
        }
        let (start, end) = part;
        if start <= progress.shown_to && end > progress.shown_to {
            progress.shown_to = end;
        }
        if progress.shown_to == file.len() as u64 {
            self.seen_whole(root, path, file);
        }
    }

    /// Notes that a whole file was seen.
    pub fn seen_whole(&mut self, root: usize, path: &str, file: &[u8]) {
        self.review(root).read_whole(path, blobs(file));
    }
}

/// The blob that git stores for bytes.
pub(crate) fn blob_hash(bytes: &[u8]) -> Result<String, Failure> {
    gix::objs::compute_hash(gix::hash::Kind::Sha1, gix::objs::Kind::Blob, bytes)
        .map(|id| id.to_string())
        .map_err(|error| Failure::fault(error.to_string()))
}

/// The blobs that git may store for a file: its bytes, or its bytes with line endings normalised.
fn blobs(file: &[u8]) -> Vec<String> {
    let hash = |bytes: &[u8]| blob_hash(bytes).ok();
    let mut normal = Vec::with_capacity(file.len());
    for (at, byte) in file.iter().enumerate() {
        if *byte != b'\r' || file.get(at + 1) != Some(&b'\n') {
            normal.push(*byte);
        }
    }
    [hash(file), hash(&normal)].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use policy::review::{Content, Entry};

    use super::{Reviewed, Session, Sessions};

    fn blob(hash: &str) -> Content {
        Content::Blob { hash: hash.to_owned(), mode: "100644".to_owned() }
    }

    fn entry(path: &str, hash: &str) -> Entry {
        Entry { path: path.to_owned(), content: blob(hash), new: false }
    }

    #[test]
    fn what_was_cut_is_reviewed_only_once_it_was_paged_through_without_a_gap() {
        let mut session = Session::default();
        let text = "a".repeat(100) + &"b".repeat(100) + &"c".repeat(100);
        let review = |end, path: &str| Reviewed { end, path: path.to_owned(), content: blob(path) };
        let reviews = vec![review(100, "a"), review(200, "b"), review(300, "c")];
        let shown = session.cut(0, text, 150, reviews);
        let cut = shown.cut.expect("it is over the budget");
        assert_eq!((cut.next_offset, cut.size), (150, 300));
        assert!(session.review(0).covers(&[entry("a", "a")]).is_ok());
        assert!(session.review(0).covers(&[entry("b", "b")]).is_err());
        session.read_on(&cut.handle, 250, 50).expect("it pages");
        assert!(session.review(0).covers(&[entry("c", "c")]).is_err(), "there was a gap");
        let page = session.read_on(&cut.handle, 150, 100).expect("it pages");
        assert_eq!(page.next_offset, Some(250));
        assert!(session.review(0).covers(&[entry("b", "b")]).is_ok());
        session.read_on(&cut.handle, 250, 100).expect("it pages");
        assert!(session.review(0).covers(&[entry("c", "c")]).is_ok());
        assert!(session.review(1).covers(&[entry("c", "c")]).is_err(), "another root");
        assert!(session.read_on("output-9", 0, 1).is_err());
    }

    #[test]
    fn turns_that_keep_too_much_in_all_are_forgotten_and_what_they_kept_is_given_back() {
        let sessions = Sessions::default();
        for n in 0..10 {
            let session = sessions.of(1, &n.to_string());
            session.lock().expect("a lock").cut(0, "x".repeat(15 << 20), 10, Vec::new());
        }
        sessions.of(1, "one more");
        let peers = sessions.0.lock().expect("a lock");
        let turns = &peers[&1];
        assert_eq!(turns.sessions.len(), 5);
        assert_eq!(turns.kept.load(Ordering::Relaxed), 4 * (15 << 20));
    }

    #[test]
    fn a_turn_of_another_peer_is_another_session() {
        let sessions = Sessions::default();
        sessions.of(1, "t").lock().expect("a lock").calls = 7;
        assert_eq!(sessions.of(1, "t").lock().expect("a lock").calls, 7);
        sessions.of(2, "t").lock().expect("a lock").calls = 8;
        for n in 0..300 {
            sessions.of(1, &format!("other-{n}"));
        }
        assert_eq!(sessions.of(1, "t").lock().expect("a lock").calls, 0, "it was forgotten");
        assert_eq!(sessions.calls(2, "t"), 8, "another peer pushes nothing out");
    }
}
