//! Builds a world, option by option.

use std::fs::{DirBuilder, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::calls::ROOT;
use crate::git::{self, Repo};
use crate::world::{Folders, World};

/// What a world is to be like. The default: one root, no review needed, no record protocol.
#[derive(Debug)]
pub struct Builder {
    git: PathBuf,
    review: bool,
    approval: bool,
    vault: bool,
    protected: Option<Vec<String>>,
    notes: bool,
    home: bool,
    peers: Vec<Value>,
    limits: Map<String, Value>,
    web: Option<Value>,
    environment: Vec<(String, String)>,
    start_in: Option<PathBuf>,
    files: Vec<(String, Vec<u8>)>,
}

impl Builder {
    pub(crate) fn new() -> Self {
        // `tests/run` runs the suite once more with another git.
        let other = std::env::var_os("SAGE_TEST_GIT").map(PathBuf::from);
        let git = other.unwrap_or_else(|| git::installed().swap_remove(0));
        // Tests make many calls in a turn, and many at once.
        let limits = json!({
            "maxCallsPerTurn": 100_000,
            "maxCallsInFlight": 32,
            "maxCallsPerMinute": 1_000_000,
        });
        let Value::Object(limits) = limits else { unreachable!("it is an object") };
        Self {
            git,
            review: false,
            approval: false,
            vault: false,
            protected: None,
            notes: false,
            home: false,
            peers: Vec::new(),
            limits,
            web: None,
            environment: Vec::new(),
            start_in: None,
            files: vec![
                ("README.md".to_owned(), b"# Strategy\n".to_vec()),
                ("plans/one.md".to_owned(), b"# One\n\nfirst\nsecond\nthird\n".to_vec()),
                ("plans/two.md".to_owned(), b"# Two\n".to_vec()),
                (".gitignore".to_owned(), b"*.log\n/build/\n".to_vec()),
            ],
        }
    }

    /// Which git the executor and the test run.
    #[must_use]
    pub fn git(mut self, program: &Path) -> Self {
        program.clone_into(&mut self.git);
        self
    }

    /// Commits need a review.
    #[must_use]
    pub fn review(mut self) -> Self {
        self.review = true;
        self
    }

    /// The requester has to approve each commit.
    #[must_use]
    pub fn approval(mut self) -> Self {
        self.approval = true;
        self
    }

    /// The root follows the record protocol; the scripts are the test's business.
    #[must_use]
    pub fn vault(mut self) -> Self {
        self.vault = true;
        self
    }

    /// Paths that are never written.
    #[must_use]
    pub fn protected(mut self, globs: &[&str]) -> Self {
        self.protected = Some(globs.iter().map(|glob| (*glob).to_owned()).collect());
        self
    }

    /// A second root, `notes`: files only, read-only.
    #[must_use]
    pub fn notes(mut self) -> Self {
        self.notes = true;
        self
    }

    /// A third root, `home`: like a person's home, with any repository in it to be read.
    #[must_use]
    pub fn home(mut self) -> Self {
        self.home = true;
        self
    }

    /// One limit, by its key in the configuration.
    #[must_use]
    pub fn limit(mut self, key: &str, value: u64) -> Self {
        self.limits.insert(key.to_owned(), json!(value));
        self
    }

    /// One more peer, by user id, and whom it may speak for.
    #[must_use]
    pub fn peer(mut self, user: u32, requesters: &[&str]) -> Self {
        self.peers.push(json!({"user": user, "requesters": requesters}));
        self
    }

    /// The web, as the configuration names it.
    #[must_use]
    pub fn web(mut self, web: Value) -> Self {
        self.web = Some(web);
        self
    }

    /// A variable in the executor's environment.
    #[must_use]
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The folder the executor is started in, relative to the world's.
    #[must_use]
    pub fn start_in(mut self, folder: &str) -> Self {
        self.start_in = Some(folder.into());
        self
    }

    /// A file of the first commit.
    #[must_use]
    pub fn file(mut self, path: &str, text: impl AsRef<[u8]>) -> Self {
        self.files.push((path.to_owned(), text.as_ref().to_owned()));
        self
    }

    /// Makes the world and starts the executor in it.
    #[must_use]
    pub fn build(self) -> World {
        let mut world = self.build_stopped();
        world.start();
        world
    }

    /// Makes the world; the test starts the executor.
    ///
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    pub fn build_stopped(self) -> World {
        let private = Permissions::from_mode(0o700);
        let temporary =
            tempfile::Builder::new().prefix("sage-test-").permissions(private).tempdir();
        let temporary = temporary.expect("a temporary folder can be made");
        // A temporary folder may be named through a link, and the executor follows none.
        let base = temporary.path().canonicalize().expect("it is there");
        for name in ["run", "state", "notes", "home", "markers"] {
            let folder = base.join(name);
            DirBuilder::new().mode(0o700).create(folder).expect("a folder can be made");
        }
        let folders = Folders { base: base.clone(), _temporary: temporary };
        self.make_repository(&base);
        write_private(&base.join("executor.json"), &self.config(&base).to_string());
        let clone = Repo::at(base.join(ROOT), &self.git);
        let start_in = base.join(self.start_in.unwrap_or_default());
        World::new(folders, clone, self.environment, start_in)
    }

    fn make_repository(&self, base: &Path) {
        let all = Repo::at(base, &self.git);
        all.git(&["init", "--quiet", "--template=", "--bare", "-b", "main", "remote.git"]);
        all.git(&["init", "--quiet", "--template=", "-b", "main", ROOT]);
        let clone = Repo::at(base.join(ROOT), &self.git);
        for (path, text) in &self.files {
            clone.write(path, text);
        }
        clone.commit_all("Start the strategy");
        let remote = base.join("remote.git").into_os_string();
        clone.git(&["remote".as_ref(), "add".as_ref(), "origin".as_ref(), remote.as_os_str()]);
        clone.git(&["push", "--quiet", "-u", "origin", "main"]);
    }

    fn config(&self, base: &Path) -> Value {
        let mut strategy = json!({
            "name": ROOT,
            "path": base.join(ROOT),
            "write": true,
            "git": {
                "branch": "main",
                "remote": base.join("remote.git"),
                "author": "Sage <sage@example.invalid>",
                "requireReview": self.review,
                "approval": if self.approval { "requester" } else { "none" },
            },
        });
        if self.vault {
            strategy["protocol"] = json!("vault");
        }
        if let Some(globs) = &self.protected {
            strategy["protected"] = json!(globs);
        }
        let mut roots = vec![strategy];
        if self.notes {
            roots.push(json!({"name": "notes", "path": base.join("notes")}));
        }
        if self.home {
            roots.push(json!({"name": "home", "path": base.join("home"), "git": "read"}));
        }
        let ours = nix::unistd::geteuid().as_raw();
        let mut peers = vec![json!({"user": ours, "requesters": ["Owner", "Partner"]})];
        peers.extend(self.peers.iter().cloned());
        let mut config = json!({
            "socket": base.join("run/executor.sock"),
            "stateDir": base.join("state"),
            "requesters": ["Owner", "Partner", "Guest"],
            "peers": peers,
            "roots": roots,
            "limits": self.limits,
            "gitProgram": self.git,
        });
        if let Some(web) = &self.web {
            config["web"] = web.clone();
        }
        config
    }
}

fn write_private(path: &Path, text: &str) {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).expect("a file can be written");
}
