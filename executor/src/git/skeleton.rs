//! A git directory of our own, for remote verbs: the repository's configuration is never read with
//! the token near, because this is the only configuration that git finds.
//!
//! It holds a HEAD, a configuration, and the refs that say what is already here. Objects are the
//! repository's own, through `GIT_OBJECT_DIRECTORY`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::repo::Place;
use super::verb::INCOMING;

/// The folder of the state directory that holds skeletons while they are used.
pub const FOLDER: &str = "skeletons";

/// A skeleton; removed when dropped.
#[derive(Debug)]
pub struct Skeleton(tempfile::TempDir);

impl Skeleton {
    /// Makes one whose refs name what is already here.
    ///
    /// # Errors
    /// When the state directory cannot be written.
    pub fn make(state_dir: &Path, place: &Place, here: &[&str]) -> io::Result<Self> {
        let dir = tempfile::Builder::new().prefix("git-").tempdir_in(state_dir.join(FOLDER))?;
        let path = dir.path();
        fs::write(path.join("HEAD"), "ref: refs/heads/none\n")?;
        fs::write(path.join("config"), "[core]\n\trepositoryformatversion = 0\n\tbare = true\n")?;
        for folder in ["objects", "refs"] {
            fs::create_dir(path.join(folder))?;
        }
        let refs: Vec<String> = here
            .iter()
            .enumerate()
            .map(|(n, hash)| format!("{hash} refs/sage/here-{n}\n"))
            .collect();
        fs::write(path.join("packed-refs"), refs.concat())?;
        let shallow = place.common_dir.join("shallow");
        if shallow.is_file() {
            fs::copy(shallow, path.join("shallow"))?;
        }
        Ok(Self(dir))
    }

    /// Its folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// The commit that a fetch brought.
    ///
    /// # Errors
    /// When it brought none.
    pub fn incoming(&self) -> io::Result<String> {
        let file: PathBuf = self.path().join(INCOMING);
        fs::read_to_string(file).map(|hash| hash.trim().to_owned())
    }
}

/// Removes the skeletons that a killed process left.
pub fn remove_leftovers(state_dir: &Path) -> io::Result<()> {
    let folder = state_dir.join(FOLDER);
    match fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::create_dir(folder)
}
