//! What an operator would set up: a strategy repository, its remote, and the two configurations.

use std::fs::{DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tempfile::TempDir;

/// What the strategy repository holds at first.
const VAULT: &[(&str, &str)] = &[
    (".gitignore", include_str!("vault/.gitignore")),
    ("AGENTS.md", include_str!("vault/AGENTS.md")),
    ("README.md", include_str!("vault/README.md")),
    ("docs/ID-REGISTRY.txt", include_str!("vault/docs/ID-REGISTRY.txt")),
    ("docs/RECORDS.md", include_str!("vault/docs/RECORDS.md")),
    ("tools/validate_vault.py", include_str!("vault/tools/validate_vault.py")),
    ("tools/vault_lock.py", include_str!("vault/tools/vault_lock.py")),
    (
        "vault/Decisions/DEC-0001-records-are-plain-text-files.md",
        include_str!("vault/vault/Decisions/DEC-0001-records-are-plain-text-files.md"),
    ),
];

/// The name of the root.
pub(super) const ROOT: &str = "strategy";

/// A throw-away folder with everything in it. Dropping it removes the folder.
pub(super) struct World {
    folder: PathBuf,
    _temporary: TempDir,
}

impl World {
    /// Makes everything but the running executor.
    pub(super) fn build(allow_degraded: bool) -> Result<Self> {
        let private = std::fs::Permissions::from_mode(0o700);
        let temporary = tempfile::Builder::new()
            .prefix("sage-demo-")
            .permissions(private)
            .tempdir()
            .context("cannot make a temporary folder")?;
        // A temporary folder may be named through a link, and the executor follows none.
        let folder = temporary.path().canonicalize()?;
        let world = Self { folder, _temporary: temporary };
        for name in ["run", "state", "data"] {
            DirBuilder::new().mode(0o700).create(world.folder.join(name))?;
        }
        world.make_repository()?;
        write_private(&world.executor_config(), &world.config(allow_degraded))?;
        write_private(&world.binding(), &world.binding_json())?;
        Ok(world)
    }

    /// The folder of everything.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The executor's socket.
    pub(super) fn socket(&self) -> PathBuf {
        self.folder.join("run/executor.sock")
    }

    /// The executor's configuration.
    pub(super) fn executor_config(&self) -> PathBuf {
        self.folder.join("executor.json")
    }

    /// The executor's audit.
    pub(super) fn audit(&self) -> PathBuf {
        self.folder.join("state/audit.jsonl")
    }

    /// The connector's binding.
    pub(super) fn binding(&self) -> PathBuf {
        self.folder.join("binding.json")
    }

    /// What the person sees first.
    pub(super) fn introduction(&self, pid: u32) -> String {
        format!(
            "A strategy repository with a local remote is in {}, for as long as this runs.\n\
             The executor is process {pid}; this one has no git. Try: help",
            self.folder.display()
        )
    }

    fn repository(&self) -> PathBuf {
        self.folder.join(ROOT)
    }

    fn remote(&self) -> PathBuf {
        self.folder.join("remote.git")
    }

    fn make_repository(&self) -> Result<()> {
        let (repository, remote) = (self.repository(), self.remote());
        for (path, text) in VAULT {
            let path = repository.join(path);
            std::fs::create_dir_all(path.parent().unwrap_or(&repository))?;
            std::fs::write(&path, text).with_context(|| format!("cannot write {path:?}"))?;
        }
        let (there, origin) = (show(&repository)?, show(&remote)?);
        self.git(&["init", "--quiet", "--template=", "-b", "main", there])?;
        self.git(&["init", "--quiet", "--template=", "--bare", "-b", "main", origin])?;
        self.git(&["-C", there, "add", "--all"])?;
        self.git(&["-C", there, "commit", "--quiet", "-m", "Start the vault"])?;
        self.git(&["-C", there, "remote", "add", "origin", origin])?;
        self.git(&["-C", there, "push", "--quiet", "-u", "origin", "main"])?;
        Ok(())
    }

    /// Asks the remote, at the end.
    pub(super) fn ask_remote(&self, arguments: &[&str]) -> Result<String> {
        let remote = self.remote();
        self.git(&[&["-C", show(&remote)?], arguments].concat())
    }

    /// The operator's git: none of this machine's configuration and no hooks.
    fn git(&self, arguments: &[&str]) -> Result<String> {
        let mut git = Command::new("git");
        git.env_clear();
        if let Some(path) = std::env::var_os("PATH") {
            git.env("PATH", path);
        }
        let output = git
            .args(["-c", "core.hooksPath=/dev/null", "-c", "commit.gpgSign=false"])
            .args(arguments)
            .env("HOME", &self.folder)
            .env("LC_ALL", "C")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_AUTHOR_NAME", "Operator")
            .env("GIT_AUTHOR_EMAIL", "operator@example.invalid")
            .env("GIT_COMMITTER_NAME", "Operator")
            .env("GIT_COMMITTER_EMAIL", "operator@example.invalid")
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .output()
            .context("cannot run git; the demo needs git 2.39 or later")?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("git {} failed ({}): {}", arguments.join(" "), output.status, said.trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn config(&self, allow_degraded: bool) -> Value {
        json!({
            "socket": self.socket(),
            "stateDir": self.folder.join("state"),
            "requesters": ["Owner", "Partner"],
            "peers": [{
                "user": nix::unistd::geteuid().as_raw(),
                "requesters": ["Owner", "Partner"],
            }],
            "roots": [{
                "name": ROOT,
                "path": self.repository(),
                "write": true,
                "protocol": "vault",
                "git": {
                    "branch": "main",
                    "remote": self.remote(),
                    "author": "Sage <sage@example.invalid>",
                },
            }],
            "allowDegraded": allow_degraded,
        })
    }

    fn binding_json(&self) -> Value {
        json!({
            "name": "demo",
            "dataRoot": self.folder.join("data"),
            "executor": {"socket": self.socket()},
            "engine": {"kind": "rules"},
            "terminal": {"requester": "Owner"},
        })
    }
}

fn show(path: &Path) -> Result<&str> {
    path.to_str().context("the temporary folder's name is not UTF-8; set TMPDIR to another one")
}

fn write_private(path: &Path, json: &Value) -> Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    write!(file, "{json:#}").with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::World;
    use crate::binding::Binding;

    #[test]
    fn the_world_is_private_pushed_and_removed_again() {
        use std::os::unix::fs::MetadataExt;
        let world = World::build(false).expect("git is here");
        let folder = world.folder().to_owned();
        assert_eq!(folder.metadata().expect("it is there").mode() & 0o7777, 0o700);
        assert!(Binding::load(&world.binding()).is_ok());
        let head = world.ask_remote(&["rev-parse", "refs/heads/main"]).expect("it was pushed");
        let there = folder.join("strategy");
        let here = world.git(&["-C", there.to_str().expect("UTF-8"), "rev-parse", "HEAD"]);
        assert_eq!(here.expect("there is a commit"), head);
        drop(world);
        assert!(!folder.exists());
    }

    #[test]
    fn the_scripted_decision_is_reserved_and_not_written_yet() {
        let registry = include_str!("vault/docs/ID-REGISTRY.txt");
        assert!(registry.lines().any(|line| line.starts_with("DEC-0002\t")), "{registry}");
        assert!(super::VAULT.iter().all(|(path, _)| !path.contains("DEC-0002")));
    }
}
