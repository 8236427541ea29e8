//! A strategy repository whose `origin` is an https server with a token, and an executor for it.

use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::authority::{Authority, Leaf};
use super::backend::Backend;
use super::executor::Executor;
use super::server::Server;
use super::watch::Marker;
use crate::git::Repo;

/// The name of the root.
pub const ROOT: &str = "strategy";

/// Where a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// In a file of mode 0600.
    File,
    /// In a file of mode 0440, as systemd passes credentials.
    Credential,
    /// The same, but the environment does not say that it is one.
    UnannouncedCredential,
}

/// How a world differs from a good one.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The git of the executor and of everything else.
    pub git: PathBuf,
    /// The server's certificate.
    pub leaf: Leaf,
    /// Whether the executor is told of the server's authority.
    pub trusted: bool,
    /// What the token file holds, where that is not the server's token.
    pub wrong_token: Option<String>,
    /// How long one git may run, in seconds.
    pub git_timeout: u64,
    /// Where the token is.
    pub token: TokenKind,
}

impl Setup {
    /// A good world with this git.
    #[must_use]
    pub fn new(git: &Path) -> Self {
        Self {
            git: git.to_owned(),
            leaf: Leaf::Good,
            trusted: true,
            wrong_token: None,
            git_timeout: 60,
            token: TokenKind::File,
        }
    }

    /// Makes everything and starts the executor.
    ///
    /// # Errors
    /// When anything of it fails.
    pub fn start(self) -> Result<World> {
        let mut world = self.build()?;
        world.start()?;
        Ok(world)
    }

    /// Makes everything but the executor.
    ///
    /// # Errors
    /// When anything of it fails.
    pub fn build(self) -> Result<World> {
        let temporary = tempfile::Builder::new()
            .prefix("sage-https-")
            .permissions(fs::Permissions::from_mode(0o700))
            .tempdir()?;
        let folder = temporary.path().canonicalize()?;
        for name in ["run", "state", "server", "credentials"] {
            fs::DirBuilder::new().create(folder.join(name))?;
            fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o700))?;
        }
        let (marker, authority) = (Marker::new(), Authority::new()?);
        let backend = Backend::new(&self.git, &folder.join("server"))?;
        let tls = authority.serve(self.leaf)?;
        let server = Server::start(Ipv4Addr::LOCALHOST, 0, tls, backend, marker.token())?;
        let client = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let world = World {
            setup: self,
            server,
            authority,
            marker,
            client,
            executor: None,
            calls: 0,
            replies: Vec::new(),
            folder,
            _temporary: temporary,
        };
        world.make_repositories()?;
        world.write_secrets()?;
        Ok(world)
    }
}

/// A server, a clone, another person's clone, and an executor. Dropping it ends and removes all.
pub struct World {
    setup: Setup,
    /// The server of `origin`.
    pub server: Server,
    /// Who signed its certificate.
    pub authority: Authority,
    /// The token that the server wants.
    pub marker: Marker,
    pub(super) client: Runtime,
    pub(super) executor: Option<Executor>,
    pub(super) calls: u64,
    pub(super) replies: Vec<String>,
    folder: PathBuf,
    _temporary: TempDir,
}

impl World {
    /// The folder of everything.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The clone that is the executor's root.
    #[must_use]
    pub fn clone_path(&self) -> PathBuf {
        self.folder.join(ROOT)
    }

    /// The bare repository behind the server.
    #[must_use]
    pub fn bare(&self) -> PathBuf {
        self.folder.join("server/origin.git")
    }

    /// The token's file.
    #[must_use]
    pub fn token_file(&self) -> PathBuf {
        self.folder.join(if self.is_credential() { "credentials/git" } else { "token" })
    }

    fn is_credential(&self) -> bool {
        self.setup.token != TokenKind::File
    }

    /// The URL of `origin`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://localhost:{}/origin.git", self.server.port())
    }

    /// Everything that the executor answered so far.
    #[must_use]
    pub fn replies(&self) -> &[String] {
        &self.replies
    }

    fn make_repositories(&self) -> Result<()> {
        let (bare, clone) = (self.bare(), self.clone_path());
        let (bare, clone) = (path_text(&bare)?, path_text(&clone)?);
        self.git(&["init", "--quiet", "--template=", "--bare", "-b", "main", bare])?;
        self.git(&["-C", bare, "config", "http.receivepack", "true"])?;
        self.git(&["init", "--quiet", "--template=", "-b", "main", clone])?;
        fs::write(self.clone_path().join("README.md"), "# Strategy\n")?;
        self.git(&["-C", clone, "add", "--all"])?;
        self.git(&["-C", clone, "commit", "--quiet", "-m", "Start"])?;
        self.git(&["-C", clone, "push", "--quiet", bare, "main"])?;
        self.git(&["-C", clone, "remote", "add", "origin", &self.url()])?;
        self.git(&["-C", clone, "update-ref", "refs/remotes/origin/main", "HEAD"])?;
        self.git(&["-C", clone, "config", "branch.main.remote", "origin"])?;
        self.git(&["-C", clone, "config", "branch.main.merge", "refs/heads/main"])?;
        let other = self.folder.join("elsewhere");
        self.git(&["clone", "--quiet", "--template=", bare, path_text(&other)?])?;
        Ok(())
    }

    fn write_secrets(&self) -> Result<()> {
        let token = self.setup.wrong_token.as_deref().unwrap_or(self.marker.token());
        let mode = if self.is_credential() { 0o440 } else { 0o600 };
        write(&self.token_file(), &format!("{token}\n"), mode)?;
        let stranger = Authority::new()?;
        let trusted = if self.setup.trusted { &self.authority } else { &stranger };
        write(&self.folder.join("ca.pem"), trusted.pem(), 0o644)
    }

    /// The configuration that the executor starts with.
    #[must_use]
    pub fn config(&self) -> Value {
        json!({
            "socket": self.folder.join("run/executor.sock"),
            "stateDir": self.folder.join("state"),
            "gitProgram": self.setup.git,
            "requesters": ["Owner"],
            "peers": [{"user": nix::unistd::geteuid().as_raw(), "requesters": ["Owner"]}],
            "limits": {"gitTimeoutSeconds": self.setup.git_timeout},
            "roots": [{
                "name": ROOT,
                "path": self.clone_path(),
                "write": true,
                "git": {
                    "branch": "main",
                    "remote": self.url(),
                    "author": "Sage <sage@example.invalid>",
                    "tokenFile": self.token_file(),
                    "caFile": self.folder.join("ca.pem"),
                    "requireReview": false,
                },
            }],
        })
    }

    /// Starts the executor and waits until it says that it is ready.
    ///
    /// # Errors
    /// With all that it said, when it does not start.
    pub fn start(&mut self) -> Result<()> {
        let config = self.folder.join("executor.json");
        write(&config, &format!("{:#}", self.config()), 0o600)?;
        self.executor = None;
        let announced = self.setup.token == TokenKind::Credential;
        let folder = announced.then(|| self.folder.join("credentials"));
        let log = self.folder.join("executor.log");
        self.executor = Some(Executor::start(&config, &log, folder.as_deref())?);
        Ok(())
    }

    /// Ends the executor as a service manager would, and waits for it.
    ///
    /// # Errors
    /// When it does not end well.
    pub fn stop(&mut self) -> Result<()> {
        self.executor.take().map_or(Ok(()), Executor::stop)
    }

    /// The commit at `main` of the bare repository.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn remote_head(&self) -> String {
        self.rev_parse(&self.bare(), "refs/heads/main")
    }

    /// The commit at HEAD of the clone.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn head(&self) -> String {
        self.rev_parse(&self.clone_path(), "HEAD")
    }

    fn rev_parse(&self, repository: &Path, name: &str) -> String {
        let repository = path_text(repository).expect("a UTF-8 path");
        self.git(&["-C", repository, "rev-parse", "--verify", name]).expect("it is there")
    }

    /// Ends the server: nothing listens at its port from then on.
    pub fn end_server(&mut self) {
        self.server.end();
    }

    /// How many skeleton git directories are left.
    ///
    /// # Panics
    /// When their folder cannot be read.
    #[must_use]
    pub fn skeletons(&self) -> usize {
        fs::read_dir(self.folder.join("state/skeletons")).expect("the folder is there").count()
    }

    /// Puts a hook into the bare repository.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn hook(&self, name: &str, script: &str) -> Result<()> {
        let folder = self.bare().join("hooks");
        fs::create_dir_all(&folder)?;
        write(&folder.join(name), &format!("#!/bin/sh\n{script}\n"), 0o700)
    }

    /// Removes every hook of the bare repository.
    ///
    /// # Errors
    /// When they cannot be removed.
    pub fn no_hooks(&self) -> Result<()> {
        Ok(fs::remove_dir_all(self.bare().join("hooks"))?)
    }

    /// Plain git, with nothing of this machine's configuration, that trusts what the executor does.
    #[must_use]
    pub fn plain_git<A: AsRef<OsStr>>(&self, arguments: &[A]) -> Command {
        let mut git = Repo::at(&self.folder, &self.setup.git).command(arguments);
        git.env("GIT_SSL_CAINFO", self.folder.join("ca.pem"));
        git
    }

    /// Runs plain git; what it printed.
    ///
    /// # Errors
    /// What it said, when it fails.
    pub fn git(&self, arguments: &[&str]) -> Result<String> {
        let output = self.plain_git(arguments).output()?;
        if !output.status.success() {
            bail!("git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }
}

pub(super) fn path_text(path: &Path) -> Result<&str> {
    path.to_str().context("the temporary folder's name is not UTF-8")
}

/// Writes a new file with this mode, whatever the umask.
fn write(path: &Path, text: &str, mode: u32) -> Result<()> {
    let mut file =
        fs::OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(path)?;
    file.write_all(text.as_bytes())?;
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    Ok(())
}
