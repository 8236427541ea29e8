//! `git_pull` and `git_push`, and what a commit does with the remote.
//!
//! The remote is talked to through a skeleton git directory: with an explicit URL, one refspec, never
//! a force, a tag or a deletion, and with neither the work tree nor the repository's configuration in
//! reach.

use policy::fence::{GitPull, GitPush, Permit};
use policy::path::{RelPath, shown};
use policy::repository::{Writable, may_write};
use policy::secret;
use protocol::refusal::{Code, Refusal};
use protocol::reply::{ChangeKind, PathText, Pulled, PushState, Pushed};

use super::Failure;
use super::files::RootDir;
use super::git_read::first_files;
use crate::confine::cancel::{self, Cancel};
use crate::confine::child::ChildOutput;
use crate::git::checkout::Moving;
use crate::git::child::{Call, Https, Sides, Verb};
use crate::git::parse;
use crate::git::repo::{self, Distance, Place};
use crate::git::skeleton::Skeleton;
use crate::git::stage::Stage;
use crate::workplace::{GitJob, GitRoot, Local, Root, Workplace};

/// How much of what git said is passed on, in bytes.
const MAX_SAID: usize = 4096;

/// A clone that passed the fences of the writing verbs.
pub(crate) struct LocalClone {
    pub(crate) place: Place,
    pub(crate) writable: Writable,
    /// What is already here: HEAD and the remote-tracking branch.
    here: Vec<String>,
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
    fn remote(
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

    fn skeleton(&self, here: &[String]) -> Result<Skeleton, Failure> {
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
    fn distance(&self, head: &str, theirs: &str) -> Result<Option<Distance>, Failure> {
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
    fn note_tracking(&self, git: &GitRoot, commit: &str) {
        let name = git.terms.branch.tracking();
        let old = self.root.read(|| Ok(repo::ref_commit(&repo::open(self.place)?, &name)));
        let old = old.ok().flatten().unwrap_or_else(|| "0".repeat(40));
        let (identity, reason) = (&git.identity, "update by sage");
        let verb = Verb::UpdateRef { name: &name, new: commit, old: &old, reason, identity };
        if let Err(failure) = self.try_git(verb, Local::default()) {
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

fn diverged(distance: Distance) -> Refusal {
    Refusal::new(
        Code::Diverged,
        format!(
            "Here and the remote have diverged: {} commits only here, {} only there.",
            distance.ahead, distance.behind
        ),
        "Nothing was merged. A person merges or rebases from the terminal.",
    )
}

/// What the remote or git said, masked and trimmed.
fn said(output: &ChildOutput) -> String {
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stderr),
        String::from_utf8_lossy(&output.stdout)
    );
    secret::mask_and_cut(text.trim(), MAX_SAID).0
}

/// The refusal for a remote that did not answer as asked.
fn remote_said(output: &ChildOutput) -> Refusal {
    let text = said(output);
    let has = |needles: &[&str]| needles.iter().any(|needle| text.contains(needle));
    let auth = [
        "Authentication failed",
        "could not read Password",
        "could not read Username",
        "error: 401",
        "error: 403",
        "askpass",
    ];
    if has(&auth) {
        return Refusal::new(
            Code::AuthFailed,
            format!("The remote did not accept the token: {text}"),
            "The operator checks the token file: its token, its expiry and its rights on the repository.",
        );
    }
    Refusal::new(
        Code::RemoteUnreachable,
        format!("The remote cannot be reached: {text}"),
        "Try again later; if it stays away, the operator checks the URL and the network.",
    )
}

/// The refusal for a push that did not go through.
fn push_said(output: &ChildOutput) -> Refusal {
    let text = said(output);
    if text.contains("[rejected]")
        || text.contains("(fetch first)")
        || text.contains("(non-fast-forward)")
    {
        return remote_ahead("The push was rejected: the remote has commits");
    }
    if text.contains("[remote rejected]") {
        return Refusal::new(
            Code::RemoteRejected,
            format!("The remote declined the push: {text}"),
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

fn nothing_yet() -> Failure {
    Failure::refuse(Code::NothingToCommit, "There is no commit yet.", "Commit something first.")
}

/// Brings the branch up to date, in two steps: fetch (which sees the objects alone), then a
/// fast-forward (which has no network).
///
/// # Errors
/// The fences of the writing verbs; `diverged`, `incoming_dirty`, `auth_failed`,
/// `remote_unreachable`.
pub fn pull(
    workplace: &Workplace,
    permit: &Permit<GitPull>,
    cancel: &Cancel,
) -> Result<Pulled, Failure> {
    let root = &workplace.roots[permit.root()];
    let git = root.git_terms()?;
    let _alone = root.alone()?;
    let clone = LocalClone::enter(root, git)?;
    let job = GitJob { workplace, root, place: &clone.place, cancel };
    let Some(head) = clone.writable.head().map(str::to_owned) else {
        return Err(nothing_yet());
    };
    let incoming = job.fetch(git, &clone.here)?;
    let unchanged = |to: &str| Pulled {
        from: to.to_owned(),
        to: to.to_owned(),
        commits: 0,
        untrusted_files: Vec::new(),
        more_files: 0,
    };
    let commits = match job.distance(&head, &incoming)? {
        Some(Distance { behind: 0, .. }) => return Ok(unchanged(&head)),
        Some(Distance { ahead: 0, behind }) => behind,
        Some(distance) => return Err(diverged(distance).into()),
        None => return Err(Failure::fault("the fetch did not bring the remote's commit")),
    };
    let sides = Sides::Trees(head.clone(), incoming.clone());
    let (raw, files) = parse::diff_stat(&job.git(Verb::DiffStat(&sides, None), Local::default())?)?;
    job.nothing_in_the_way(&raw)?;
    job.fast_forward(git, &head, &incoming)?;
    job.note_tracking(git, &incoming);
    let (untrusted_files, more_files) = first_files(files);
    Ok(Pulled { from: head, to: incoming, commits, untrusted_files, more_files })
}

impl GitJob<'_> {
    fn fetch(&self, git: &GitRoot, here: &[String]) -> Result<String, Failure> {
        let skeleton = self.skeleton(here)?;
        let verb = Verb::Fetch(&git.terms.remote, &git.terms.branch);
        let output = self.remote(git, &skeleton, verb)?;
        if output.status.success() {
            return skeleton.incoming().map_err(Failure::io);
        }
        if said(&output).contains("couldn't find remote ref") {
            let message = format!("The remote has no branch {:?} yet.", git.terms.branch.as_str());
            return Err(Failure::refuse(
                Code::UnknownRevision,
                message,
                "Push it first, with git_push.",
            ));
        }
        Err(remote_said(&output).into())
    }

    /// Refuses when an incoming path is changed, staged, untracked or ignored here.
    fn nothing_in_the_way(&self, incoming: &[parse::RawEntry]) -> Result<(), Failure> {
        let lists = parse::status(&self.git(Verb::Status { path: None }, Local::default())?)?;
        let changed = lists.staged.iter().chain(&lists.unstaged);
        let mut dirty: Vec<&PathText> =
            changed.flat_map(|change| std::iter::once(&change.path).chain(&change.from)).collect();
        dirty.extend(&lists.untracked);
        dirty.extend(&lists.conflicted);
        let touched =
            incoming.iter().flat_map(|entry| std::iter::once(&entry.path).chain(&entry.from));
        let mut blocked: Vec<String> = touched
            .map(|path| PathText::from_bytes(path))
            .filter(|path| dirty.iter().any(|other| overlaps(path.as_str(), other.as_str())))
            .map(|path| shown(path.as_str()))
            .collect();
        blocked.extend(self.ignored_in_the_way(incoming)?);
        blocked.sort();
        blocked.dedup();
        if blocked.is_empty() {
            return Ok(());
        }
        Err(Failure::refuse(
            Code::IncomingDirty,
            format!(
                "Incoming changes touch paths that are changed or untracked here: {}.",
                blocked.join(", ")
            ),
            "Nothing was changed. Commit those paths first, or a person moves them aside.",
        ))
    }

    /// git takes an ignored file for expendable; a person may not.
    fn ignored_in_the_way(&self, incoming: &[parse::RawEntry]) -> Result<Vec<String>, Failure> {
        let comes_new = |entry: &&parse::RawEntry| {
            matches!(entry.kind, ChangeKind::Added | ChangeKind::Renamed | ChangeKind::Copied)
        };
        self.root.read(|| {
            let dir = RootDir::open(&self.root.path)?;
            let mut found = Vec::new();
            for entry in incoming.iter().filter(comes_new) {
                let text = String::from_utf8_lossy(&entry.path);
                // A path that is not a plain one is left to git, which refuses to overwrite too.
                let Ok(path) = RelPath::parse(&text) else { continue };
                if dir.kind(&path).is_ok_and(|kind| kind.is_some()) {
                    found.push(shown(&text));
                }
            }
            Ok(found)
        })
    }

    /// Moves work tree, branch and index forward, or leaves all three as they were.
    fn fast_forward(&self, git: &GitRoot, from: &str, to: &str) -> Result<(), Failure> {
        let raw = parse::raw(&self.git(Verb::TreeEntries(from, to), Local::default())?)?;
        let name = git.terms.branch.full();
        let mut stage = Stage::begin(self.workplace, self.root, self.place, &name)?;
        stage.about_to_forward(to, Moving::of(&raw))?;
        let index = stage.private_index();
        let local = || Local { stdin: Vec::new(), index: Some(&index) };
        // Its exit status says that something is changed here, which is known by now.
        self.try_git(Verb::RefreshIndex, local())?;
        // Once the work tree begins to move it is not stopped half way.
        let (_guard, steadfast) = cancel::pair().map_err(Failure::io)?;
        let job = GitJob { cancel: &steadfast, ..*self };
        let output = job.try_git(Verb::ReadTree { from, to }, local())?;
        if !output.status.success() {
            return Err(in_the_way(&said(&output)));
        }
        let (identity, reason) = (&git.identity, "pull: fast-forward");
        let ended = job.try_git(
            Verb::UpdateRef { name: &name, new: to, old: from, reason, identity },
            Local::default(),
        );
        let now = self.root.read(|| Ok(repo::ref_commit(&repo::open(self.place)?, &name)))?;
        if now.as_deref() != Some(to) {
            ended?;
            return Err(Failure::refuse(
                Code::Raced,
                "The branch moved while the pull was being made; nothing was changed.",
                "Look at git_log, then pull again.",
            ));
        }
        stage.finish()
    }
}

fn in_the_way(text: &str) -> Failure {
    if text.contains("would be overwritten") || text.contains("not uptodate") {
        return Failure::refuse(
            Code::IncomingDirty,
            format!("Incoming changes would overwrite what is here: {text}"),
            "Nothing was changed. A person moves it aside.",
        );
    }
    Failure::fault(format!("git could not move the work tree forward: {text}"))
}

/// Whether one path is the other, or lies below it.
fn overlaps(one: &str, other: &str) -> bool {
    let below = |path: &str, folder: &str| {
        path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    below(one, other) || below(other, one)
}
