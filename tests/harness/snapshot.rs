//! A tree, remembered byte for byte, so that a test can say that nothing changed.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Every entry of a tree: bytes, mode and time of change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot(BTreeMap<PathBuf, Entry>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    mode: u32,
    modified: Option<(i64, i64)>,
    bytes: Vec<u8>,
}

impl Snapshot {
    /// Everything below a folder, `.git` included.
    #[must_use]
    pub fn of(folder: &Path) -> Self {
        let mut entries = BTreeMap::new();
        add(folder, Path::new(""), &mut entries);
        Self(entries)
    }

    /// A clone as a person sees it: work tree, index, refs, logs and configuration, and the names of
    /// whatever else lies in `.git`. Not the objects (an object that nothing refers to is no change),
    /// and not the times of folders and of the index file itself.
    #[must_use]
    pub fn of_clone(folder: &Path) -> Self {
        let Self(mut entries) = Self::of(folder);
        entries.retain(|path, _| !path.starts_with(".git/objects"));
        for (path, entry) in &mut entries {
            let kind = entry.mode & 0o170_000;
            if kind == 0o040_000 || path.starts_with(".git") {
                entry.modified = None;
            }
        }
        Self(entries)
    }

    /// The same without one path and what lies below it.
    #[must_use]
    pub fn without(mut self, path: &str) -> Self {
        self.0.retain(|other, _| !other.starts_with(path));
        self
    }

    /// Asserts that no file came, went or has other bytes, whatever became of modes, times and
    /// empty folders.
    ///
    /// # Panics
    /// Names what changed.
    pub fn assert_same_bytes(&self, later: &Self, what: &str) {
        let bytes = |snapshot: &Self| {
            let plain = |(path, entry): (&PathBuf, &Entry)| {
                (path.clone(), Entry { mode: 0, modified: None, bytes: entry.bytes.clone() })
            };
            let file = |(_, entry): &(&PathBuf, &Entry)| entry.mode & 0o170_000 != 0o040_000;
            Self(snapshot.0.iter().filter(file).map(plain).collect())
        };
        bytes(self).assert_same(&bytes(later), what);
    }

    /// Asserts that nothing changed since.
    ///
    /// # Panics
    /// Names what did.
    pub fn assert_same(&self, later: &Self, what: &str) {
        let paths = self.0.keys().chain(later.0.keys());
        let mut changed: Vec<String> = paths
            .filter(|path| self.0.get(*path) != later.0.get(*path))
            .map(|path| describe(path, self.0.get(path), later.0.get(path)))
            .collect();
        changed.sort();
        changed.dedup();
        assert!(changed.is_empty(), "{what} changed something: {changed:#?}");
    }
}

fn describe(path: &Path, before: Option<&Entry>, after: Option<&Entry>) -> String {
    let how = match (before, after) {
        (None, _) => "is new".to_owned(),
        (_, None) => "is gone".to_owned(),
        (Some(a), Some(b)) if a.bytes != b.bytes => "has other bytes".to_owned(),
        (Some(a), Some(b)) if a.mode != b.mode => format!("{:o} became {:o}", a.mode, b.mode),
        (Some(_), Some(_)) => "has another time of change".to_owned(),
    };
    format!("{} {how}", path.display())
}

fn add(root: &Path, below: &Path, entries: &mut BTreeMap<PathBuf, Entry>) {
    let path = root.join(below);
    // A file of git's own may go between listing and looking.
    let Ok(metadata) = fs::symlink_metadata(&path) else { return };
    let bytes = if metadata.is_file() {
        fs::read(&path).unwrap_or_default()
    } else if metadata.is_symlink() {
        use std::os::unix::ffi::OsStringExt;
        fs::read_link(&path).map(|to| to.into_os_string().into_vec()).unwrap_or_default()
    } else {
        Vec::new()
    };
    let modified = Some((metadata.mtime(), metadata.mtime_nsec()));
    entries.insert(below.to_owned(), Entry { mode: metadata.mode(), modified, bytes });
    if metadata.is_dir() {
        for entry in fs::read_dir(&path).into_iter().flatten().flatten() {
            add(root, &below.join(entry.file_name()), entries);
        }
    }
}
