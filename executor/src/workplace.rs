//! Where calls work: everything they need, checked and opened once at start.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use policy::fence::{self, Ground};
use policy::git::{BranchName, Identity, Remote, Requester};
use policy::path::PathGlob;
use policy::repository::Terms;
use protocol::refusal::Code;
use protocol::reply::{GitAccess, RootInfo, Roots};

use crate::config::{Approval, Config, GitConfig, Limits, RootConfig};
use crate::credential;
use crate::git::child::{Call, Git};
use crate::git::repo::Place;
use crate::git::verb::Verb;
use crate::records::{Python, Records};
use crate::tools::Failure;
use crate::tools::web::Web;
use confine::cancel::Cancel;
use confine::domain::Domain;
use confine::grants::{self, Grant, Grants, Rights};
use confine::kernel::KernelSupport;
use confine::launcher::Launcher;

/// Where calls work.
#[derive(Debug)]
pub struct Workplace {
    /// What the fence knows.
    pub ground: Ground,
    /// The roots, in the order of the configuration.
    pub roots: Vec<Root>,
    /// The limits of the configuration.
    pub limits: Limits,
    /// Starts children.
    pub launcher: Launcher,
    /// The git that is run.
    pub git: Git,
    /// The Python that runs the record protocol's scripts, where a root follows it.
    pub python: Option<Python>,
    /// The web, where the configuration names it.
    pub web: Option<Web>,
    /// Where unfinished work is recorded.
    pub state_dir: PathBuf,
    /// What the kernel does not enforce, where the configuration allows that.
    pub degraded: Vec<String>,
}

/// A root, ready for calls.
#[derive(Debug)]
pub struct Root {
    /// Its name.
    pub name: String,
    /// Its folder, with links resolved.
    pub path: PathBuf,
    /// What git needs to write in it.
    pub git: Option<GitRoot>,
    /// Who holds our locks, where the root follows the record protocol.
    pub lock_owner: Option<String>,
    reading: Domain,
    writing: Option<Domain>,
    commits: Mutex<()>,
}

/// What git needs to write in a root.
#[derive(Debug)]
pub struct GitRoot {
    /// What must be true of the repository.
    pub terms: Terms,
    /// Author and committer.
    pub identity: Identity,
    /// The token's file.
    pub token_file: Option<PathBuf>,
    /// The certificates to trust, instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// Whether the requester has to approve a commit.
    pub approval: Approval,
    /// Whether a commit must have been reviewed.
    pub require_review: bool,
}

impl Root {
    /// Does a step on a thread of its own that can read the root and nothing else.
    ///
    /// # Errors
    /// The step's own, or a fault when the thread could not be confined.
    pub fn read<T: Send>(
        &self,
        step: impl FnOnce() -> Result<T, Failure> + Send,
    ) -> Result<T, Failure> {
        self.reading.run(step)?
    }

    /// As [`Root::read`], for a step that takes long enough to be worth cancelling: it sees the
    /// cancellation, and no other descriptor.
    ///
    /// # Errors
    /// As [`Root::read`].
    pub fn read_cancellable<T: Send>(
        &self,
        cancel: &Cancel,
        step: impl FnOnce() -> Result<T, Failure> + Send,
    ) -> Result<T, Failure> {
        self.reading.run_keeping(&[cancel.as_fd()], step)?
    }

    /// Does a step on a thread of its own that can read and write the root and nothing else.
    ///
    /// # Errors
    /// The step's own, or a fault when the thread could not be confined.
    pub fn write<T: Send>(
        &self,
        step: impl FnOnce() -> Result<T, Failure> + Send,
    ) -> Result<T, Failure> {
        match &self.writing {
            Some(domain) => domain.run(step)?,
            None => Err(Failure::fault("the root is read-only; the fence should have said so")),
        }
    }

    /// Whether files in it can be written.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.writing.is_some()
    }

    /// Takes the right to commit, pull or push in this root, one at a time.
    ///
    /// # Errors
    /// `busy`.
    pub fn alone(&self) -> Result<MutexGuard<'_, ()>, Failure> {
        match self.commits.try_lock() {
            Ok(guard) => Ok(guard),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => Err(Failure::refuse(
                Code::Busy,
                "Another commit, pull or push is under way in this root.",
                "Wait for it, look at git_log, then try again.",
            )),
        }
    }

    /// What git needs to write here; the fence has made sure that it is configured.
    ///
    /// # Errors
    /// A fault, when the fence did not.
    pub fn git_terms(&self) -> Result<&GitRoot, Failure> {
        self.git
            .as_ref()
            .ok_or_else(|| Failure::fault("the root has no git; the fence should have said so"))
    }
}

impl Workplace {
    /// Checks and opens everything that the configuration names.
    ///
    /// # Errors
    /// What is wrong, with the key's path, and how to fix it.
    pub fn open(config: &Config, kernel: &KernelSupport) -> Result<Self, String> {
        let git = Git::find(config.git_program.as_deref())?;
        let launcher = Launcher::new(*kernel);
        let any_vault = config.roots.iter().any(|root| root.protocol.is_some());
        let find_python = || Python::find(config.python_program.as_deref());
        let python = any_vault.then(find_python).transpose()?;
        let open_web = |web| Web::open(web, kernel, &launcher, &git.askpass);
        let web = config.web.as_ref().map(open_web).transpose()?;
        let mut roots = Vec::new();
        let mut ground_roots = Vec::new();
        for (index, root) in config.roots.iter().enumerate() {
            let at = |why: String| format!("roots[{index}]: {why}");
            ground_roots.push(ground_root(root).map_err(at)?);
            roots.push(open_root(root, kernel).map_err(at)?);
        }
        Ok(Self {
            ground: Ground {
                roots: ground_roots,
                max_file_bytes: config.limits.max_file_bytes,
                max_bytes: config.limits.max_bytes,
                max_calls_per_turn: config.limits.max_calls_per_turn,
                web: fence::Web {
                    fetch: config.web.is_some(),
                    search: config.web.as_ref().is_some_and(|web| web.searxng.is_some()),
                },
            },
            roots,
            limits: config.limits.clone(),
            launcher,
            git,
            python,
            web,
            state_dir: config.state_dir.clone(),
            degraded: Vec::new(),
        })
    }

    /// What the roots allow, for `list_roots` and `describe`.
    #[must_use]
    pub fn root_infos(&self) -> Vec<RootInfo> {
        let info = |root: &fence::Root| RootInfo {
            name: root.name.clone(),
            writable: root.writable,
            git: root.git,
            vault: root.vault,
        };
        self.ground.roots.iter().map(info).collect()
    }

    /// The reply of `list_roots`.
    #[must_use]
    pub fn list_roots(&self) -> Roots {
        Roots { roots: self.root_infos() }
    }

    /// How long one git child may run.
    #[must_use]
    pub fn git_timeout(&self) -> Duration {
        Duration::from_secs(self.limits.git_timeout_seconds)
    }

    /// What the daemon's own domain must allow: the union of what its threads and children need.
    #[must_use]
    pub fn daemon_grants(&self) -> Grants {
        let mut grants = Grants::files(self.git.start.clone());
        let own = grants::program(&self.git.askpass, "children start as this program");
        grants.files.extend(own.unwrap_or_default());
        if let Some(python) = &self.python {
            grants.files.extend_from_slice(python.start_grants());
        }
        let mut add = |path: &Path, rights: Rights, reason: &str| {
            grants.files.push(Grant::new(path, rights, reason));
        };
        add(&self.state_dir, Rights::WRITE_TREE, "the audit, skeletons and unfinished work");
        for root in &self.roots {
            let rights = if root.is_writable() { Rights::WRITE_TREE } else { Rights::READ };
            add(&root.path, rights, "a root");
        }
        for root in self.roots.iter().filter_map(|root| root.git.as_ref()) {
            let (files, ports) = self.git.remote_union(root);
            grants.files.extend(files);
            grants.connect_ports.extend(ports);
        }
        if let Some(web) = &self.web {
            grants.extend(&web.daemon_grants());
        }
        grants.connect_ports.sort_unstable();
        grants.connect_ports.dedup();
        grants
    }
}

/// One call's way to git: the root, the repository and the patience.
#[derive(Debug, Clone, Copy)]
pub struct GitJob<'a> {
    /// Everything.
    pub workplace: &'a Workplace,
    /// The root.
    pub root: &'a Root,
    /// The repository.
    pub place: &'a Place,
    /// Whether the caller still waits.
    pub cancel: &'a Cancel,
}

/// What a local verb reads and which index it uses.
#[derive(Debug, Default)]
pub struct Local<'a> {
    /// What it reads.
    pub stdin: Vec<u8>,
    /// An index of its own.
    pub index: Option<&'a Path>,
}

/// How much of git's output is kept, in bytes.
const MAX_OUTPUT: usize = 16 * 1024 * 1024;

impl GitJob<'_> {
    /// The record protocol of this root, if it follows it.
    #[must_use]
    pub fn records(&self) -> Option<Records<'_>> {
        let owner = self.root.lock_owner.as_deref()?;
        Some(Records { job: *self, owner, python: self.workplace.python.as_ref()? })
    }

    /// Runs a local verb; its output, when it ended well.
    ///
    /// # Errors
    /// A fault with git's first line, masked, when it did not.
    pub fn git(&self, verb: Verb<'_>, local: Local<'_>) -> Result<Vec<u8>, Failure> {
        let name = verb.step().as_str();
        let output = self.try_git(verb, local)?;
        if output.status.success() && !output.stdout_truncated {
            return Ok(output.stdout);
        }
        if output.stdout_truncated {
            return Err(Failure::refuse(
                Code::TooLarge,
                format!("git's answer is longer than {MAX_OUTPUT} bytes."),
                "Ask for one path, or a smaller range.",
            ));
        }
        let said = crate::git::repo::first_line(&String::from_utf8_lossy(&output.stderr));
        Err(Failure::fault(format!("git ({name}) failed: {said}")))
    }

    /// Runs a local verb.
    ///
    /// # Errors
    /// When it does not start, takes too long or is cancelled.
    pub fn try_git(
        &self,
        verb: Verb<'_>,
        local: Local<'_>,
    ) -> Result<confine::child::ChildOutput, Failure> {
        let call = Call {
            verb,
            root: &self.root.path,
            place: self.place,
            index: local.index,
            skeleton: None,
            https: None,
            stdin: local.stdin,
            max_output: MAX_OUTPUT,
            wall: self.workplace.git_timeout(),
        };
        Ok(self.workplace.git.run(&self.workplace.launcher, call, self.cancel)?)
    }
}

fn ground_root(root: &RootConfig) -> Result<fence::Root, String> {
    let protected = root.protected_globs();
    let globs = protected.iter().map(|glob| PathGlob::parse(glob).map_err(|r| r.message));
    Ok(fence::Root {
        name: root.name.clone(),
        writable: root.write,
        git: match root.git {
            None => GitAccess::None,
            Some(GitConfig::Word(_)) => GitAccess::Read,
            Some(GitConfig::Full(_)) => GitAccess::Write,
        },
        vault: root.protocol.is_some(),
        protected: globs.collect::<Result<_, _>>()?,
    })
}

/// Opens one root, with the domains that its reads and writes run in.
///
/// # Errors
/// What is wrong, and how to fix it.
pub fn open_root(root: &RootConfig, kernel: &KernelSupport) -> Result<Root, String> {
    let shown = root.path.display();
    let path = root.path.canonicalize().map_err(|error| format!("path {shown}: {error}"))?;
    if !path.is_dir() {
        return Err(format!("path {shown} is not a folder"));
    }
    let domain = |rights: Rights| {
        let grants = Grants::files(vec![Grant::new(&path, rights, "the root")]);
        Domain::build(&grants, kernel).map_err(|error| error.to_string())
    };
    let git = match &root.git {
        Some(GitConfig::Full(git)) => {
            if let Some(token) = &git.token_file {
                credential::check_token_file(token)?;
            }
            Some(GitRoot {
                terms: Terms {
                    branch: BranchName::parse(&git.branch)?,
                    remote: Remote::parse(&git.remote)?,
                },
                identity: Identity::parse(&git.author)?,
                token_file: git.token_file.clone(),
                ca_file: git.ca_file.clone(),
                approval: git.approval,
                require_review: git.require_review,
            })
        }
        _ => None,
    };
    Ok(Root {
        name: root.name.clone(),
        lock_owner: root.protocol.map(|_| root.lock_owner.clone()),
        reading: domain(Rights::READ)?,
        writing: if root.write { Some(domain(Rights::WRITE_TREE)?) } else { None },
        path,
        git,
        commits: Mutex::new(()),
    })
}

/// The users of the configuration, by number, with whom they may speak for.
///
/// # Errors
/// Names a user that does not exist.
pub fn peers(config: &Config) -> Result<Vec<(u32, Vec<Requester>)>, String> {
    let mut peers = Vec::new();
    for (index, peer) in config.peers.iter().enumerate() {
        let uid = match &peer.user {
            crate::config::UserRef::Uid(uid) => *uid,
            crate::config::UserRef::Name(name) => nix::unistd::User::from_name(name)
                .ok()
                .flatten()
                .map(|user| user.uid.as_raw())
                .ok_or_else(|| format!("peers[{index}].user: there is no user {name:?}"))?,
        };
        let requesters = peer.requesters.iter().map(|name| Requester::parse(name));
        peers.push((uid, requesters.collect::<Result<_, _>>()?));
    }
    Ok(peers)
}
