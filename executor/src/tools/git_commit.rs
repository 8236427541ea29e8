//! `git_commit`: exactly the named paths, for the person who asked, pushed at once.
//!
//! The function [`commit`] reads as the order of things; [`crate::git::stage`] says why a crash at
//! any point leaves either the commit or the clone as before.

use policy::fence::{GitCommit, Permit};
use policy::path::{RelPath, shown};
use policy::review::{Content, Entry};
use protocol::refusal::Code;
use protocol::reply::{Committed, FileStat, Plan, PushState, Reply};
use rustix::fs::FileType;

use super::Failure;
use super::files::RootDir;
use super::git_remote::LocalClone;
use crate::approval::{Approvals, Bound, GOOD_FOR};
use crate::config::Approval;
use crate::git::parse;
use crate::git::repo;
use crate::git::stage::Stage;
use crate::git::verb::{Sides, Verb};
use crate::outcomes::CallKey;
use crate::records::{Appended, REGISTRY};
use crate::session::Session;
use crate::workplace::{GitJob, GitRoot, Local, Workplace};
use confine::cancel::{self, Cancel};

/// Commits and pushes. `record` is told of the commit once it is made and before it is pushed.
///
/// # Errors
/// The fences of the writing verbs; `already_staged`, `remote_ahead`, `diverged`, `filtered_path`,
/// `wrong_file_type`, `not_found`, `nothing_to_commit`, `not_reviewed`, `index_locked`, `raced`.
/// After any of them the clone is as before.
pub fn commit(
    workplace: &Workplace,
    permit: &Permit<GitCommit>,
    session: &mut Session,
    cancel: &Cancel,
    asked: &Asked<'_>,
    record: impl FnOnce(&Committed),
) -> Result<Reply, Failure> {
    let root = &workplace.roots[permit.root()];
    let git = root.git_terms()?;
    let action = permit.action();
    let _alone = root.alone()?;

    let clone = LocalClone::enter(root, git)?;
    let head = clone.writable.head();
    let base = head.unwrap_or(repo::EMPTY_TREE);
    let job = GitJob { workplace, root, place: &clone.place, cancel };
    job.remote_is_not_ahead(git, head)?;
    let registry = job.record_protocol(&action.paths)?;
    let paths = with_registry(&action.paths, registry.is_some())?;

    let mut stage = Stage::begin(workplace, root, &clone.place, &git.terms.branch.full())?;
    job.nothing_staged_by_others(&stage, base)?;
    let there = job.files_to_commit(&paths)?;
    job.no_filter_applies(&paths)?;
    job.stage_paths(&stage, &paths)?;
    let entries = job.staged(&stage, base)?;
    only_named(&entries, &paths, &there)?;
    if git.require_review {
        session.review(permit.root()).covers(&to_review(entries, registry.as_ref()))?;
    }

    let files = job.staged_stat(&stage, base)?;
    let tree = job.write_tree(&stage)?;
    if git.approval == Approval::Requester {
        let bound = bound(git, action, asked.peer, &tree, head);
        match asked.approved {
            None => return Ok(Reply::ApprovalNeeded(plan(asked.approvals, bound, files))),
            Some(digest) => asked.approvals.take(digest, &bound)?,
        }
    }
    let hash = job.write_commit(git, action, &tree, head)?;
    let mut done = Committed {
        short: job.short(&hash)?,
        hash,
        branch: git.terms.branch.as_str().to_owned(),
        trailer: action.requester.trailer(),
        untrusted_files: files,
        push: not_pushed_yet(),
    };
    stage.about_to_move(asked.key, &done)?;
    job.move_branch(git, action, &done.hash, head)?;
    session.review(permit.root()).use_up();
    record(&done);
    stage.finish()?;

    done.push = job.push_commit(git, head, &done.hash)?;
    Ok(Reply::Committed(done))
}

/// Which call asks for a commit, and what was approved.
#[derive(Debug)]
pub struct Asked<'a> {
    /// The user at the other end of the socket.
    pub peer: u32,
    /// The call.
    pub key: &'a CallKey,
    /// The plan that the requester approved.
    pub approved: Option<&'a str>,
    /// The plans that wait.
    pub approvals: &'a Approvals,
}

fn bound(git: &GitRoot, action: &GitCommit, peer: u32, tree: &str, head: Option<&str>) -> Bound {
    Bound {
        peer,
        requester: action.requester.as_str().to_owned(),
        tree: tree.to_owned(),
        parent: head.unwrap_or_default().to_owned(),
        message: action.message.as_str().to_owned(),
        branch: git.terms.branch.as_str().to_owned(),
        remote: git.terms.remote.url(),
    }
}

fn plan(approvals: &Approvals, bound: Bound, files: Vec<FileStat>) -> Plan {
    Plan {
        requester: bound.requester.clone(),
        message: bound.message.clone(),
        branch: bound.branch.clone(),
        remote: bound.remote.clone(),
        untrusted_files: files,
        good_for_seconds: GOOD_FOR.as_secs(),
        digest: approvals.propose(bound),
    }
}

impl GitJob<'_> {
    /// Looks at the remote first, so that the clone does not diverge. A remote that cannot be reached
    /// does not stop a commit.
    fn remote_is_not_ahead(&self, git: &GitRoot, head: Option<&str>) -> Result<(), Failure> {
        match self.ask_remote(git) {
            Ok(branch) => self.not_behind(head, &branch),
            Err(Failure::Refusal(refusal)) if refusal.code == Code::Cancelled => {
                Err(refusal.into())
            }
            Err(_) => Ok(()),
        }
    }

    /// The validator, the locks, and what was appended to the registry since HEAD.
    fn record_protocol(&self, paths: &[RelPath]) -> Result<Option<Appended>, Failure> {
        let Some(records) = self.records() else { return Ok(None) };
        records.validate()?;
        records.nobody_else_holds(paths)?;
        records.appended()
    }

    fn nothing_staged_by_others(&self, stage: &Stage<'_>, base: &str) -> Result<(), Failure> {
        let staged = self.staged(stage, base)?;
        if staged.is_empty() {
            return Ok(());
        }
        let names: Vec<String> = staged.iter().take(10).map(|entry| shown(&entry.path)).collect();
        Err(Failure::refuse(
            Code::AlreadyStaged,
            format!("Someone has staged work already: {}.", names.join(", ")),
            "A person commits or unstages it from the terminal (`git restore --staged`).",
        ))
    }

    /// Which of the named paths are there; each is a regular file, or gone.
    fn files_to_commit(&self, paths: &[RelPath]) -> Result<Vec<bool>, Failure> {
        self.root.read(|| {
            let dir = RootDir::open(&self.root.path)?;
            let there = |path: &RelPath| match dir.kind(path)? {
                None => Ok(false),
                Some(FileType::RegularFile) => Ok(true),
                Some(_) => Err(Failure::refuse(
                    Code::WrongFileType,
                    format!("{} is not a regular file.", shown(path.as_str())),
                    "Name each file by itself; folders and links are not committed.",
                )),
            };
            paths.iter().map(there).collect()
        })
    }

    fn no_filter_applies(&self, paths: &[RelPath]) -> Result<(), Failure> {
        let output =
            self.git(Verb::CheckAttr, Local { stdin: nul_separated(paths), index: None })?;
        let fields: Vec<&[u8]> = output.split(|byte| *byte == 0).collect();
        for triple in fields.chunks_exact(3) {
            let (path, value) =
                (String::from_utf8_lossy(triple[0]), String::from_utf8_lossy(triple[2]));
            if !matches!(value.as_ref(), "unspecified" | "unset") {
                return Err(Failure::refuse(
                    Code::FilteredPath,
                    format!(
                        "{} would have to go through the filter {}.",
                        shown(&path),
                        shown(&value)
                    ),
                    "A person commits it from the terminal, where the filter can run.",
                ));
            }
        }
        Ok(())
    }

    fn stage_paths(&self, stage: &Stage<'_>, paths: &[RelPath]) -> Result<(), Failure> {
        let index = stage.private_index();
        self.git(Verb::UpdateIndex, Local { stdin: nul_separated(paths), index: Some(&index) })
            .map(drop)
    }

    /// What the private index holds against HEAD.
    fn staged(&self, stage: &Stage<'_>, base: &str) -> Result<Vec<Entry>, Failure> {
        let index = stage.private_index();
        let output =
            self.git(Verb::StagedEntries(base), Local { stdin: Vec::new(), index: Some(&index) })?;
        let nothing = |mode: &str| mode == "000000";
        let entry = |raw: parse::RawEntry| Entry {
            path: String::from_utf8_lossy(&raw.path).into_owned(),
            content: if nothing(&raw.new_mode) {
                Content::Absent
            } else {
                Content::Blob { hash: raw.new_hash, mode: raw.new_mode }
            },
            new: nothing(&raw.old_mode),
        };
        Ok(parse::raw(&output)?.into_iter().map(entry).collect())
    }

    fn staged_stat(&self, stage: &Stage<'_>, base: &str) -> Result<Vec<FileStat>, Failure> {
        let index = stage.private_index();
        let sides = Sides::Index(base.to_owned());
        let output = self
            .git(Verb::DiffStat(&sides, None), Local { stdin: Vec::new(), index: Some(&index) })?;
        Ok(parse::diff(&output)?.stats)
    }

    fn write_tree(&self, stage: &Stage<'_>) -> Result<String, Failure> {
        let index = stage.private_index();
        let local = Local { stdin: Vec::new(), index: Some(&index) };
        Ok(one_line(&self.git(Verb::WriteTree, local)?))
    }

    fn write_commit(
        &self,
        git: &GitRoot,
        action: &GitCommit,
        tree: &str,
        head: Option<&str>,
    ) -> Result<String, Failure> {
        let message = action.message.with_requester(&action.requester);
        let verb = Verb::CommitTree { tree, parent: head, identity: &git.identity };
        let local = Local { stdin: message.into_bytes(), index: None };
        Ok(one_line(&self.git(verb, local)?))
    }

    /// The commit, all or nothing: the branch moves only from where it was.
    fn move_branch(
        &self,
        git: &GitRoot,
        action: &GitCommit,
        hash: &str,
        head: Option<&str>,
    ) -> Result<(), Failure> {
        if self.cancel.is_cancelled() {
            return Err(Failure::cancelled());
        }
        let (_guard, steadfast) = cancel::pair().map_err(Failure::io)?;
        let job = GitJob { cancel: &steadfast, ..*self };
        let nowhere = "0".repeat(40);
        let verb = Verb::UpdateRef {
            name: &git.terms.branch.full(),
            new: hash,
            old: head.unwrap_or(&nowhere),
            reason: &format!("commit: {}", action.message.subject()),
            identity: &git.identity,
        };
        let ended = job.try_git(verb, Local::default());
        // What the branch says decides, not what became of the child.
        let name = git.terms.branch.full();
        let now = self.root.read(|| Ok(repo::ref_commit(&repo::open(self.place)?, &name)))?;
        if now.as_deref() == Some(hash) {
            return Ok(());
        }
        ended?;
        Err(Failure::refuse(
            Code::Raced,
            "The branch moved while the commit was being made; nothing was committed.",
            "Look at git_log and git_diff again, then commit.",
        ))
    }

    /// Every commit pushes at once; a push that fails keeps the commit and is said.
    fn push_commit(
        &self,
        git: &GitRoot,
        head: Option<&str>,
        hash: &str,
    ) -> Result<PushState, Failure> {
        let here: Vec<String> =
            head.map(str::to_owned).into_iter().chain([hash.to_owned()]).collect();
        match self.push(git, &here, hash) {
            Ok(state) => Ok(state),
            // The commit stands, so the answer is the commit.
            Err(Failure::Refusal(refusal)) => {
                Ok(PushState::Failed { code: refusal.code, message: refusal.message })
            }
            Err(Failure::Fault(fault)) => {
                Ok(PushState::Failed { code: Code::RemoteUnreachable, message: fault.message })
            }
        }
    }

    fn short(&self, hash: &str) -> Result<String, Failure> {
        self.root.read(|| repo::short_hash(&repo::open(self.place)?, hash))
    }
}

/// What is on record until the push is through: a killed executor leaves it.
fn not_pushed_yet() -> PushState {
    PushState::Failed {
        code: Code::Cancelled,
        message: "The executor stopped before the push was through. git_push asks the remote, and pushes if need be."
            .to_owned(),
    }
}

/// The registry's new lines ride along with whatever is committed next.
fn with_registry(paths: &[RelPath], changed: bool) -> Result<Vec<RelPath>, Failure> {
    let mut paths = paths.to_vec();
    let registry = RelPath::parse(REGISTRY)?;
    if changed && !paths.contains(&registry) {
        paths.push(registry);
    }
    Ok(paths)
}

/// A registry that only grew by whole lines needs no review: each line is a reservation.
fn to_review(entries: Vec<Entry>, registry: Option<&Appended>) -> Vec<Entry> {
    let reserved = |entry: &Entry| {
        let blob = registry.map(|appended| appended.blob.as_str());
        entry.path == REGISTRY
            && matches!(&entry.content, Content::Blob { hash, .. } if Some(hash.as_str()) == blob)
    };
    entries.into_iter().filter(|entry| !reserved(entry)).collect()
}

/// The index differs from HEAD in the named paths alone, and in at least one of them.
fn only_named(entries: &[Entry], paths: &[RelPath], there: &[bool]) -> Result<(), Failure> {
    for (path, there) in paths.iter().zip(there) {
        if !there && !entries.iter().any(|entry| entry.path == path.as_str()) {
            return Err(Failure::refuse(
                Code::NotFound,
                format!(
                    "There is nothing at {}, and git knows no such file.",
                    shown(path.as_str())
                ),
                "git_status shows what changed.",
            ));
        }
    }
    if let Some(other) =
        entries.iter().find(|entry| !paths.iter().any(|path| path.as_str() == entry.path))
    {
        return Err(Failure::fault(format!(
            "staging touched {}, which was not named",
            shown(&other.path)
        )));
    }
    if entries.is_empty() {
        return Err(Failure::refuse(
            Code::NothingToCommit,
            "The named paths hold no change.",
            "git_status shows what changed; an ignored file is not committed.",
        ));
    }
    Ok(())
}

fn nul_separated(paths: &[RelPath]) -> Vec<u8> {
    paths.iter().flat_map(|path| path.as_str().bytes().chain([0])).collect()
}

fn one_line(output: &[u8]) -> String {
    String::from_utf8_lossy(output).trim().to_owned()
}
