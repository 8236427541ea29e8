//! Which files `.gitignore` leaves out.
//!
//! The walker of the `ignore` crate reads the rules by itself and opens whatever is called
//! `.gitignore`, also a pipe that nobody writes to. So it walks without rules, and they are read here:
//! only regular files, none above the root, the nearest folder's rules first.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

/// The rules of a root's folders, read as they are met.
pub(crate) struct Rules {
    root: PathBuf,
    met: Mutex<HashMap<PathBuf, Arc<Gitignore>>>,
}

impl Rules {
    pub(crate) fn of(root: &Path) -> Self {
        Self { root: root.to_path_buf(), met: Mutex::default() }
    }

    /// Whether a path below the root is left out. The folders that lead to it are asked about first,
    /// by whoever walks down to it.
    pub(crate) fn leave_out(&self, path: &Path, is_folder: bool) -> bool {
        let below = |folder: &&Path| folder.starts_with(&self.root);
        for folder in path.ancestors().skip(1).take_while(below) {
            match self.folder(folder).matched(path, is_folder) {
                Match::None => {}
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
            }
        }
        false
    }

    fn folder(&self, folder: &Path) -> Arc<Gitignore> {
        let mut met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(rules) = met.get(folder) {
            return Arc::clone(rules);
        }
        let mut builder = GitignoreBuilder::new(folder);
        let mut add = |file: PathBuf| {
            if std::fs::symlink_metadata(&file).is_ok_and(|metadata| metadata.is_file()) {
                // A line that is no pattern leaves nothing out, as with git.
                let _ = builder.add(file);
            }
        };
        if folder == self.root {
            add(folder.join(".git/info/exclude"));
        }
        add(folder.join(".gitignore"));
        let rules = Arc::new(builder.build().unwrap_or_else(|_| Gitignore::empty()));
        met.insert(folder.to_path_buf(), Arc::clone(&rules));
        rules
    }
}

/// A walk over what is below `top`, sorted, without dot files and what the rules leave out, and
/// without following a link.
pub(crate) fn walker(root: &Path, top: &Path) -> ignore::WalkBuilder {
    let rules = Rules::of(root);
    let top_path = top.to_path_buf();
    let mut walk = ignore::WalkBuilder::new(top);
    walk.standard_filters(false)
        .hidden(true)
        .follow_links(false)
        .filter_entry(move |entry| {
            let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
            entry.path() == top_path || !rules.leave_out(entry.path(), is_folder)
        })
        .sort_by_file_path(Path::cmp);
    walk
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::walker;

    fn listed(root: &Path, top: &str) -> Vec<String> {
        let walk = walker(root, &root.join(top)).build();
        let files = walk.flatten().filter(|e| e.file_type().is_some_and(|kind| kind.is_file()));
        let relative = |e: ignore::DirEntry| {
            e.path().strip_prefix(root).expect("below").to_string_lossy().into_owned()
        };
        files.map(relative).collect()
    }

    #[test]
    fn the_nearest_rules_win_and_hold_below_their_folder() {
        let dir = tempfile::tempdir().expect("a folder");
        let root = dir.path();
        for folder in ["a/b", "build", ".git/info"] {
            fs::create_dir_all(root.join(folder)).expect("a folder");
        }
        for (file, text) in [
            (".gitignore", "*.log\nbuild/\n/top.txt\n"),
            (".git/info/exclude", "excluded\n"),
            ("a/.gitignore", "!keep.log\n"),
            ("a/keep.log", ""),
            ("a/other.log", ""),
            ("a/b/keep.log", ""),
            ("a/top.txt", ""),
            ("build/out", ""),
            ("excluded", ""),
            ("keep.log", ""),
            ("plain", ""),
            ("top.txt", ""),
        ] {
            fs::write(root.join(file), text).expect("it writes");
        }
        assert_eq!(listed(root, ""), ["a/b/keep.log", "a/keep.log", "a/top.txt", "plain"]);
        assert_eq!(listed(root, "a"), ["a/b/keep.log", "a/keep.log", "a/top.txt"]);
    }
}
