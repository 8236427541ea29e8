//! Plain git, as a person in a terminal would run it: what the tests set worlds up with, and what
//! they compare Sage's answers with.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The gits of this machine: those of [`CANDIDATES`] that are there and of different versions.
///
/// # Panics
/// When there is none.
#[must_use]
pub fn installed() -> Vec<PathBuf> {
    let mut found: Vec<(PathBuf, Vec<u8>)> = Vec::new();
    for path in CANDIDATES.iter().map(PathBuf::from).filter(|path| path.is_file()) {
        let version = Command::new(&path).arg("--version").output().expect("git starts").stdout;
        if !found.iter().any(|(_, other)| *other == version) {
            found.push((path, version));
        }
    }
    assert!(!found.is_empty(), "there is no git: install one of {CANDIDATES:?}");
    found.into_iter().map(|(path, _)| path).collect()
}

/// The first two numbers of a git's version.
///
/// # Panics
/// When it does not say one.
#[must_use]
pub fn version(git: &Path) -> (u32, u32) {
    let said = Command::new(git).arg("--version").output().expect("git starts").stdout;
    let said = String::from_utf8_lossy(&said);
    let numbers = said.trim_start_matches("git version ").split('.');
    let numbers: Vec<u32> = numbers.filter_map(|number| number.trim().parse().ok()).collect();
    assert!(numbers.len() >= 2, "{git:?} says {said:?}");
    (numbers[0], numbers[1])
}

/// Where a git can be.
pub const CANDIDATES: [&str; 3] = ["/usr/local/bin/git", "/usr/bin/git", "/bin/git"];

/// A folder in which plain git runs, with an environment built from nothing.
#[derive(Debug, Clone)]
pub struct Repo {
    dir: PathBuf,
    program: PathBuf,
}

impl Repo {
    /// A folder, whatever is in it, and the git to run there.
    #[must_use]
    pub fn at(dir: impl Into<PathBuf>, program: &Path) -> Self {
        Self { dir: dir.into(), program: program.to_owned() }
    }

    /// Another folder, with the same git.
    #[must_use]
    pub fn beside(&self, dir: impl Into<PathBuf>) -> Self {
        Self::at(dir, &self.program)
    }

    /// A copy of it, with all times and modes.
    ///
    /// # Panics
    /// When it cannot be copied.
    #[must_use]
    pub fn copy(&self, to: impl Into<PathBuf>) -> Self {
        let copy = self.beside(to);
        let status = Command::new("/bin/cp").arg("-a").args([&self.dir, &copy.dir]).status();
        assert!(status.expect("cp starts").success());
        copy
    }

    /// Its folder.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A path in it.
    #[must_use]
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        self.dir.join(path)
    }

    /// A git command that is ready to run.
    #[must_use]
    pub fn command<A: AsRef<OsStr>>(&self, arguments: &[A]) -> Command {
        let mut git = Command::new(&self.program);
        git.args(arguments).current_dir(&self.dir).env_clear().stdin(Stdio::null());
        for (name, value) in ENVIRONMENT {
            git.env(name, value);
        }
        git
    }

    /// Runs git, whatever comes of it.
    ///
    /// # Panics
    /// When it does not start.
    pub fn try_git<A: AsRef<OsStr>>(&self, arguments: &[A]) -> Output {
        self.command(arguments).output().expect("git starts")
    }

    /// Runs git; what it said, without the last newline.
    ///
    /// # Panics
    /// When it fails.
    pub fn git<A: AsRef<OsStr>>(&self, arguments: &[A]) -> String {
        String::from_utf8_lossy(&self.git_bytes(arguments)).trim_end_matches('\n').to_owned()
    }

    /// As [`Repo::git`], byte for byte.
    ///
    /// # Panics
    /// When it fails.
    pub fn git_bytes<A: AsRef<OsStr>>(&self, arguments: &[A]) -> Vec<u8> {
        let output = self.try_git(arguments);
        let shown: Vec<_> = arguments.iter().map(|a| a.as_ref().to_string_lossy()).collect();
        assert!(
            output.status.success(),
            "git {shown:?} failed in {}: {}",
            self.dir.display(),
            String::from_utf8_lossy(&output.stderr)
        );
        output.stdout
    }

    /// Writes a file, and the folders above it.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn write(&self, path: impl AsRef<Path>, text: impl AsRef<[u8]>) {
        let path = self.dir.join(path);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).expect("a folder can be made");
        }
        std::fs::write(&path, text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    }

    /// A file's bytes.
    ///
    /// # Panics
    /// When it cannot be read.
    #[must_use]
    pub fn read(&self, path: impl AsRef<Path>) -> Vec<u8> {
        let path = self.dir.join(path);
        std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }

    /// A file's text.
    ///
    /// # Panics
    /// When it cannot be read, or is not UTF-8.
    #[must_use]
    pub fn text(&self, path: impl AsRef<Path>) -> String {
        String::from_utf8(self.read(path)).expect("it is UTF-8")
    }

    /// Writes a file and commits it with everything else.
    pub fn commit_file(&self, path: &str, text: impl AsRef<[u8]>, message: &str) -> String {
        self.write(path, text);
        self.commit_all(message)
    }

    /// Commits everything that is there; the commit's hash.
    pub fn commit_all(&self, message: &str) -> String {
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--allow-empty", "-m", message]);
        self.head()
    }

    /// The commit at HEAD.
    #[must_use]
    pub fn head(&self) -> String {
        self.git(&["rev-parse", "HEAD"])
    }

    /// Appends to the repository's configuration, as text.
    ///
    /// # Panics
    /// When it cannot be read or written.
    pub fn add_config(&self, text: &str) {
        let config = self.path(".git/config");
        let before = std::fs::read_to_string(&config).expect("it has a configuration");
        std::fs::write(&config, format!("{before}{text}")).expect("it can be written");
    }
}

/// Nothing of this machine's configuration, and a person who is nobody.
const ENVIRONMENT: &[(&str, &str)] = &[
    ("PATH", "/usr/local/bin:/usr/bin:/bin"),
    ("LC_ALL", "C"),
    ("HOME", "/nonexistent"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_EDITOR", "true"),
    ("GIT_AUTHOR_NAME", "Partner"),
    ("GIT_AUTHOR_EMAIL", "partner@example.invalid"),
    ("GIT_COMMITTER_NAME", "Partner"),
    ("GIT_COMMITTER_EMAIL", "partner@example.invalid"),
];
