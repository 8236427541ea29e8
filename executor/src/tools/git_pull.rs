//! `git_pull`: fetch, then a fast-forward, as two steps with two authorities.

use policy::fence::{GitPull, Permit};
use policy::path::{RelPath, shown};
use protocol::refusal::Code;
use protocol::reply::{ChangeKind, PathText, Pulled};

use super::Failure;
use super::files::RootDir;
use super::git_read::first_files;
use super::git_remote::{LocalClone, diverged, git_said, nothing_yet, remote_said, said};
use crate::git::checkout::Moving;
use crate::git::parse;
use crate::git::repo::{self, Distance};
use crate::git::stage::Stage;
use crate::git::verb::{Sides, Verb};
use crate::workplace::{GitJob, GitRoot, Local, Workplace};
use confine::cancel::{self, Cancel};

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
    let output = job.git(Verb::DiffStat(&sides, None), Local::default())?;
    let parse::Parsed { raw, stats: files, .. } = parse::diff(&output)?;
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
        if git_said(&output).contains("No space left on device") {
            return Err(Failure::fault("the disk is full; nothing was changed"));
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
