//! `git_push`, and what a commit and a pull do with the remote.
//!
//! The remote is talked to through a skeleton git directory: with an explicit URL, one refspec, never
//! a force, a tag or a deletion, and with neither the work tree nor the repository's configuration in
//! reach.

use policy::fence::{GitPush, Permit};
use policy::repository::{Writable, may_write};
use policy::secret;
use protocol::refusal::{Code, Refusal};
use protocol::reply::{PushState, Pushed};

use super::Failure;
use crate::git::child::{Call, Https};
use crate::git::repo::{self, Distance, Place};
use crate::git::skeleton::Skeleton;
use crate::git::stage;
use crate::git::verb::Verb;
use crate::workplace::{GitJob, GitRoot, Local, Root, Workplace};
use confine::cancel::{self, Cancel};
use confine::child::ChildOutput;

/// How much of what git said is passed on, in bytes.
const MAX_SAID: usize = 4096;

/// A clone that passed the fences of the writing verbs.
pub(crate) struct LocalClone {
    pub(crate) place: Place,
    pub(crate) writable: Writable,
    /// What is already here: HEAD and the remote-tracking branch.
    pub(super) here: Vec<String>,
}

impl LocalClone {
    /// Finds the root's own repository and passes the fences.
    pub(crate) fn enter(root: &Root, git: &GitRoot) -> Result<Self, Failure> {
        root.read(|| {
            let place = repo::locate(&root.path, None)?;
            let state = repo::state(&place)?;
            let writable = may_write(&git.terms, &state)?;
            let tracking = repo::ref_commit(&repo::open(&place)?, &git.terms.branch.tracking());
            let here = state.head.into_iter().chain(tracking).collect();
            Ok(Self { place, writable, here })
        })
    }
}

/// Where the remote's branch is.
#[derive(Debug)]
pub(crate) enum RemoteBranch {
    /// There is none yet.
    Absent,
    /// At this commit.
    At(String),
}

impl GitJob<'_> {
    /// Runs a remote verb in a skeleton.
    pub(super) fn remote(
        &self,
        git: &GitRoot,
        skeleton: &Skeleton,
        verb: Verb<'_>,
    ) -> Result<ChildOutput, Failure> {
        let call = Call {
            verb,
            root: &self.root.path,
            place: self.place,
            index: None,
            skeleton: Some(skeleton.path()),
            https: Some(Https {
                token_file: git.token_file.as_deref(),
                ca_file: git.ca_file.as_deref(),
            }),
            stdin: Vec::new(),
            max_output: 64 * 1024,
            wall: self.workplace.git_timeout(),
        };
        Ok(self.workplace.git.run(&self.workplace.launcher, call, self.cancel)?)
    }

    pub(super) fn skeleton(&self, here: &[String]) -> Result<Skeleton, Failure> {
        let here: Vec<&str> = here.iter().map(String::as_str).collect();
        Skeleton::make(&self.workplace.state_dir, self.place, &here).map_err(Failure::io)
    }

    /// Asks the remote where the branch is.
    pub(crate) fn ask_remote(&self, git: &GitRoot) -> Result<RemoteBranch, Failure> {
        let terms = &git.terms;
        let verb = Verb::LsRemote(&terms.remote, &terms.branch);
        let output = self.remote(git, &self.skeleton(&[])?, verb)?;
        if !output.status.success() {
            return Err(remote_said(&output).into());
        }
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let found = text.lines().find_map(|line| {
            let (hash, name) = line.split_once('\t')?;
            (name == terms.branch.full()).then(|| hash.to_owned())
        });
        match found {
            None => Ok(RemoteBranch::Absent),
            Some(hash) if is_hash(&hash) => Ok(RemoteBranch::At(hash)),
            Some(_) => Err(Failure::fault("the remote answered with something that is no hash")),
        }
    }

    /// How HEAD and a commit of the remote stand to each other; `None` when it is not here.
    pub(super) fn distance(&self, head: &str, theirs: &str) -> Result<Option<Distance>, Failure> {
        self.root.read(|| repo::distance(&repo::open(self.place)?, head, theirs))
    }

    /// Refuses when the remote has commits that are not here.
    pub(crate) fn not_behind(
        &self,
        head: Option<&str>,
        branch: &RemoteBranch,
    ) -> Result<(), Failure> {
        let (head, theirs) = match (head, branch) {
            (_, RemoteBranch::Absent) => return Ok(()),
            (None, RemoteBranch::At(_)) => {
                return Err(remote_ahead("The remote has commits").into());
            }
            (Some(head), RemoteBranch::At(theirs)) => (head, theirs),
        };
        match self.distance(head, theirs)? {
            Some(Distance { behind: 0, .. }) => Ok(()),
            Some(Distance { ahead: 0, behind }) => {
                Err(remote_ahead(&format!("The remote has {behind} commits")).into())
            }
            Some(distance) => Err(diverged(distance).into()),
            None => Err(remote_ahead("The remote has commits").into()),
        }
    }

    /// Pushes a commit. Says what became of it; only a cancelled or broken child is a failure.
    pub(crate) fn push(
        &self,
        git: &GitRoot,
        here: &[String],
        commit: &str,
    ) -> Result<PushState, Failure> {
        let terms = &git.terms;
        let verb = Verb::Push(&terms.remote, &terms.branch, commit);
        let output = match self.remote(git, &self.skeleton(here)?, verb) {
            Ok(output) => output,
            Err(Failure::Refusal(refusal)) => return Ok(failed(refusal)),
            Err(fault) => return Err(fault),
        };
        if output.status.success() {
            self.note_tracking(git, commit);
            return Ok(PushState::Pushed);
        }
        Ok(failed(push_said(&output)))
    }

    /// Moves the remote-tracking branch to where the remote's branch is now known to be. Best effort:
    /// the remote has the commit, whatever this clone thinks of it.
    pub(super) fn note_tracking(&self, git: &GitRoot, commit: &str) {
        let name = git.terms.branch.tracking();
        let old = self.root.read(|| Ok(repo::ref_commit(&repo::open(self.place)?, &name)));
        let old = old.ok().flatten().unwrap_or_else(|| "0".repeat(40));
        let (identity, reason) = (&git.identity, "update by sage");
        let verb = Verb::UpdateRef { name: &name, new: commit, old: &old, reason, identity };
        // It is short, and git that is stopped here would leave the ref locked.
        let Ok((_guard, steadfast)) = cancel::pair() else { return };
        let job = GitJob { cancel: &steadfast, ..*self };
        let ended = stage::moving_ref(self.workplace, self.root, self.place, &name, || {
            job.try_git(verb, Local::default())
        });
        if let Err(failure) = ended.and_then(|ended| ended) {
            tracing::warn!(?failure, "the remote-tracking branch was not moved");
        }
    }
}

fn is_hash(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn failed(refusal: Refusal) -> PushState {
    PushState::Failed {
        code: refusal.code,
        message: format!("{} {}", refusal.message, refusal.hint),
    }
}

fn remote_ahead(what: &str) -> Refusal {
    Refusal::new(
        Code::RemoteAhead,
        format!("{what} that are not here."),
        "Call git_pull first, then try again.",
    )
}

pub(super) fn diverged(distance: Distance) -> Refusal {
    Refusal::new(
        Code::Diverged,
        format!(
            "Here and the remote have diverged: {} commits only here, {} only there.",
            distance.ahead, distance.behind
        ),
        "Nothing was merged. A person merges or rebases from the terminal.",
    )
}

/// What git and the remote said, masked and trimmed. git's own verdict comes first and is not cut.
pub(super) fn said(output: &ChildOutput) -> String {
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    secret::mask_and_cut(text.trim(), MAX_SAID).0
}

/// What git itself said: what the remote said is not evidence of anything.
pub(super) fn git_said(output: &ChildOutput) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    text.lines().filter(|line| !line.starts_with("remote:")).collect::<Vec<_>>().join("\n")
}

/// The refusal for a remote that did not answer as asked.
pub(super) fn remote_said(output: &ChildOutput) -> Refusal {
    let (text, git) = (said(output), git_said(output));
    let has = |needles: &[&str]| needles.iter().any(|needle| git.contains(needle));
    let auth = [
        "Authentication failed",
        "could not read Password",
        "could not read Username",
        "error: 401",
        "error: 403",
        "askpass",
    ];
    let (code, what, next) = if has(&auth) {
        (
            Code::AuthFailed,
            "The remote did not accept the token",
            "The operator checks the token file: its token, its expiry and its rights on the repository. \
             After a replacement of the file itself the executor is restarted.",
        )
    } else if has(&["certificate"]) {
        (
            Code::RemoteUnreachable,
            "The remote's certificate does not hold, so nothing was sent",
            "The operator checks its host and expiry, this machine's clock, and `caFile`.",
        )
    } else if has(&["error: 301", "error: 302", "error: 303", "error: 307", "error: 308"]) {
        (
            Code::RemoteUnreachable,
            "The remote points somewhere else, where the token does not go",
            "The operator configures the URL that it moved to, if that is right.",
        )
    } else if has(&["' not found"]) {
        (
            Code::RemoteUnreachable,
            "The remote knows no such repository, or does not show it to this token",
            "The operator checks the URL and the token's rights on the repository.",
        )
    } else {
        (
            Code::RemoteUnreachable,
            "The remote cannot be reached",
            "Try again later; if it stays away, the operator checks the URL and the network.",
        )
    };
    Refusal::new(code, format!("{what}: {text}"), next)
}

/// The refusal for a push that did not go through.
fn push_said(output: &ChildOutput) -> Refusal {
    // `!`, the refs and git's verdict, apart from all that the remote says.
    let report = String::from_utf8_lossy(&output.stdout);
    let mut refused = report.lines().filter_map(|line| line.strip_prefix("!\t"));
    let verdict = refused.next().and_then(|line| line.split('\t').nth(1)).unwrap_or_default();
    if verdict.starts_with("[rejected]") {
        return remote_ahead("The push was rejected: the remote has commits");
    }
    if verdict.starts_with("[remote rejected]") {
        return Refusal::new(
            Code::RemoteRejected,
            format!("The remote declined the push: {}", said(output)),
            "A person looks at the remote's rules (hooks, protected branch, quota); git_push tries again.",
        );
    }
    remote_said(output)
}

/// Pushes the branch.
///
/// # Errors
/// The fences of the writing verbs; `remote_ahead`, `diverged`, `auth_failed`, `remote_unreachable`,
/// `remote_rejected`.
pub fn push(
    workplace: &Workplace,
    permit: &Permit<GitPush>,
    cancel: &Cancel,
) -> Result<Pushed, Failure> {
    let root = &workplace.roots[permit.root()];
    let git = root.git_terms()?;
    let _alone = root.alone()?;
    let clone = LocalClone::enter(root, git)?;
    let job = GitJob { workplace, root, place: &clone.place, cancel };
    let Some(head) = clone.writable.head().map(str::to_owned) else {
        return Err(nothing_yet());
    };
    let branch = job.ask_remote(git)?;
    job.not_behind(Some(&head), &branch)?;
    let commits = match &branch {
        RemoteBranch::At(theirs) => {
            job.distance(&head, theirs)?.map_or(0, |distance| distance.ahead)
        }
        RemoteBranch::Absent => root.read(|| repo::count(&repo::open(&clone.place)?, &head))?,
    };
    let name = git.terms.branch.as_str().to_owned();
    if commits > 0 {
        if let PushState::Failed { code, message } = job.push(git, &clone.here, &head)? {
            return Err(Failure::refuse(code, message, "Nothing was lost: the commits are here."));
        }
    } else {
        job.note_tracking(git, &head);
    }
    Ok(Pushed { hash: head, branch: name, commits })
}

pub(super) fn nothing_yet() -> Failure {
    Failure::refuse(Code::NothingToCommit, "There is no commit yet.", "Commit something first.")
}
