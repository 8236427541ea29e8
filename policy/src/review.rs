//! The review gate: a commit holds only what was seen in the same turn, at exactly that content.
//!
//! What was seen is remembered by content: git's blob hash and mode, or absence. So an edit after
//! the diff, a mode change, or a file that someone else touched is caught, whoever did it.

use std::collections::BTreeMap;

use protocol::refusal::{Code, Refusal};

/// A path's content, as git would store it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// A blob with its mode (`100644`, `100755`, `120000`).
    Blob {
        /// The blob's hash in hex.
        hash: String,
        /// git's mode.
        mode: String,
    },
    /// The path is deleted.
    Absent,
}

/// One path of a commit that is about to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The path, relative to the repository.
    pub path: String,
    /// What the commit would hold.
    pub content: Content,
    /// Whether HEAD has nothing at this path.
    pub new: bool,
}

/// What one turn has seen of one repository.
#[derive(Debug, Clone, Default)]
pub struct Review {
    diffed: BTreeMap<String, Content>,
    read_whole: BTreeMap<String, Vec<String>>,
}

impl Review {
    /// A successful `git_diff` showed this path at this content.
    pub fn diffed(&mut self, path: &str, content: Content) {
        self.diffed.insert(path.to_owned(), content);
    }

    /// `write_file` made, or `read_file` read whole, a file whose bytes git may store as one of these
    /// blobs (the bytes as they are, or with line endings normalised).
    pub fn read_whole(&mut self, path: &str, blobs: Vec<String>) {
        self.read_whole.insert(path.to_owned(), blobs);
    }

    /// A commit uses up the review.
    pub fn use_up(&mut self) {
        *self = Self::default();
    }

    /// Judges the paths of a commit.
    ///
    /// # Errors
    /// `not_reviewed`, naming each path and why.
    pub fn covers(&self, entries: &[Entry]) -> Result<(), Refusal> {
        let unseen: Vec<String> = entries
            .iter()
            .filter_map(|entry| self.why_not(entry).map(|why| format!("{:?} {why}", entry.path)))
            .collect();
        if unseen.is_empty() {
            return Ok(());
        }
        Err(Refusal::new(
            Code::NotReviewed,
            format!("Not reviewed in this turn: {}.", unseen.join("; ")),
            "Look at it as it is now: git_diff for changed and deleted files, read_file for new \
             ones, read_output for what was cut; then commit in the same turn.",
        ))
    }

    fn why_not(&self, entry: &Entry) -> Option<&'static str> {
        if self.diffed.get(&entry.path) == Some(&entry.content) {
            return None;
        }
        if entry.new {
            return self.why_not_new(entry);
        }
        Some(match self.diffed.get(&entry.path) {
            Some(_) => "changed after the diff",
            None if self.read_whole.contains_key(&entry.path) => {
                "is a tracked file that was written or read, but not diffed"
            }
            None => "was in no diff",
        })
    }

    fn why_not_new(&self, entry: &Entry) -> Option<&'static str> {
        let Content::Blob { hash, mode } = &entry.content else { return Some("is not there") };
        match self.read_whole.get(&entry.path) {
            None => Some("is new and was not read whole"),
            Some(_) if mode == "100755" => {
                Some("is new and executable, which a read does not show")
            }
            Some(blobs) if blobs.contains(hash) => None,
            Some(_) => Some("changed after it was read"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Content, Entry, Review};

    fn blob(hash: &str, mode: &str) -> Content {
        Content::Blob { hash: hash.to_owned(), mode: mode.to_owned() }
    }

    fn entry(path: &str, content: Content, new: bool) -> Entry {
        Entry { path: path.to_owned(), content, new }
    }

    /// Review → entry → the reason that the refusal must give, or none.
    #[test]
    fn the_gate_by_cases() {
        let mut seen = Review::default();
        seen.diffed("changed", blob("b1", "100644"));
        seen.diffed("gone", Content::Absent);
        seen.read_whole("new", vec!["n1".to_owned(), "n1-lf".to_owned()]);
        seen.read_whole("tracked", vec!["t1".to_owned()]);
        let cases = [
            (entry("changed", blob("b1", "100644"), false), None),
            (entry("changed", blob("b2", "100644"), false), Some("changed after the diff")),
            (entry("changed", blob("b1", "100755"), false), Some("changed after the diff")),
            (entry("changed", Content::Absent, false), Some("changed after the diff")),
            (entry("gone", Content::Absent, false), None),
            (entry("gone", blob("g", "100644"), false), Some("changed after the diff")),
            (entry("other", blob("o", "100644"), false), Some("was in no diff")),
            (entry("new", blob("n1", "100644"), true), None),
            (entry("new", blob("n1-lf", "100644"), true), None),
            (entry("new", blob("n2", "100644"), true), Some("changed after it was read")),
            (entry("new", blob("n1", "100755"), true), Some("executable")),
            (entry("unread", blob("u", "100644"), true), Some("was not read whole")),
            (entry("tracked", blob("t1", "100644"), false), Some("not diffed")),
        ];
        for (entry, reason) in cases {
            let verdict = seen.covers(std::slice::from_ref(&entry));
            match (reason, verdict) {
                (None, verdict) => assert_eq!(verdict, Ok(()), "{entry:?}"),
                (Some(reason), Err(refusal)) => {
                    assert!(refusal.message.contains(reason), "{entry:?}: {}", refusal.message);
                    assert!(refusal.message.contains(&entry.path));
                }
                (Some(reason), Ok(())) => panic!("{entry:?} passed, though it {reason}"),
            }
        }
    }

    #[test]
    fn a_refusal_names_every_path_and_a_commit_uses_the_review_up() {
        let mut seen = Review::default();
        seen.diffed("a", blob("1", "100644"));
        let entries = [entry("a", blob("1", "100644"), false)];
        assert_eq!(seen.covers(&entries), Ok(()));
        seen.use_up();
        assert!(seen.covers(&entries).is_err());
        let two = [entry("x", Content::Absent, false), entry("y", Content::Absent, false)];
        let refusal = seen.covers(&two).expect_err("neither was seen");
        assert!(refusal.message.contains("\"x\"") && refusal.message.contains("\"y\""));
    }
}
