//! `git_status`, `git_diff`, `git_log`, `git_show`, `git_branches`.
//!
//! HEAD, refs, history and commits are read in-process with gix. What compares files (status and
//! diffs) comes from the real git, which cannot write, cannot reach the network and cannot start a
//! program. Nothing here changes a byte of the repository.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use policy::fence::{GitBranches, GitDiff, GitLog, GitShow, GitStatus, Permit};
use policy::git::DiffSpec;
use policy::path::RelPath;
use policy::review::Content;
use policy::secret::mask_bytes;
use protocol::reply::{Branches, ChangeKind, Diff, FileStat, Log, ShownCommit, Status, Untrusted};

use super::Failure;
use crate::git::parse::{self, RawEntry};
use crate::git::upstream::Upstreams;
use crate::git::verb::{Sides, Verb};
use crate::git::{log, repo};
use crate::session::{Reviewed, Session};
use crate::workplace::{GitJob, Local, Root, Workplace};
use confine::cancel::Cancel;

/// How many paths one list of a status holds.
const MAX_LISTED: usize = 500;

/// The first paths of a list, and how many more there are: an answer has to fit into a frame.
pub(super) fn first_files(mut files: Vec<FileStat>) -> (Vec<FileStat>, u64) {
    let more = files.len().saturating_sub(MAX_LISTED) as u64;
    files.truncate(MAX_LISTED);
    (files, more)
}

/// The state of a repository.
///
/// # Errors
/// `not_a_repository`, `untrusted_repository`.
pub fn status(
    workplace: &Workplace,
    permit: &Permit<GitStatus>,
    cancel: &Cancel,
) -> Result<Status, Failure> {
    let root = &workplace.roots[permit.root()];
    let within = permit.action().within.as_ref();
    let (place, mut status) = root.read(|| {
        let place = repo::locate(&root.path, within)?;
        let status = heads(&repo::open(&place)?, &Upstreams::of(repo::config(&place)?))?;
        Ok((place, status))
    })?;
    let job = GitJob { workplace, root, place: &place, cancel };
    status.untrusted_reserved = reserved(&job)?;
    let lists = parse::status(&job.git(Verb::Status { path: None }, Local::default())?)?;
    let lengths =
        [lists.staged.len(), lists.unstaged.len(), lists.untracked.len(), lists.conflicted.len()];
    status.clean = lengths == [0; 4];
    status.truncated = lengths.iter().any(|length| *length > MAX_LISTED);
    status.untrusted_staged = lists.staged;
    status.untrusted_unstaged = lists.unstaged;
    status.untrusted_untracked = lists.untracked;
    status.untrusted_conflicted = lists.conflicted;
    status.untrusted_staged.truncate(MAX_LISTED);
    status.untrusted_unstaged.truncate(MAX_LISTED);
    status.untrusted_untracked.truncate(MAX_LISTED);
    status.untrusted_conflicted.truncate(MAX_LISTED);
    Ok(status)
}

/// Ids that were reserved and are in no commit yet. A registry that was changed otherwise shows as
/// any changed file does.
fn reserved(job: &GitJob<'_>) -> Result<Vec<Untrusted>, Failure> {
    let Some(records) = job.records() else { return Ok(Vec::new()) };
    match records.appended() {
        Ok(appended) => {
            Ok(appended.into_iter().flat_map(|lines| lines.ids).map(Untrusted).collect())
        }
        Err(Failure::Refusal(_)) => Ok(Vec::new()),
        Err(fault) => Err(fault),
    }
}

/// Branch, upstream and how they stand to each other.
fn heads(repository: &gix::Repository, upstreams: &Upstreams) -> Result<Status, Failure> {
    let name = repository.head_name().map_err(repo::unreadable)?;
    let head = repo::head_commit(repository);
    let upstream = name.as_ref().and_then(|name| upstreams.follows(&name.as_bstr().to_string()));
    let theirs = upstream
        .as_deref()
        .and_then(|full| repository.find_reference(full).ok())
        .and_then(|mut reference| reference.peel_to_id().ok())
        .map(|id| id.detach().to_string());
    let distance = match (&head, &theirs) {
        (Some(ours), Some(theirs)) => repo::distance(repository, ours, theirs)?,
        _ => None,
    };
    Ok(Status {
        untrusted_branch: name.map(|name| Untrusted(name.shorten().to_string())),
        head,
        untrusted_upstream: upstream.map(|full| Untrusted(log::short(&full))),
        ahead: distance.map(|d| d.ahead),
        behind: distance.map(|d| d.behind),
        operation: repo::operation(repository),
        untrusted_staged: Vec::new(),
        untrusted_unstaged: Vec::new(),
        untrusted_untracked: Vec::new(),
        untrusted_conflicted: Vec::new(),
        untrusted_reserved: Vec::new(),
        clean: false,
        truncated: false,
    })
}

/// Shows changes; what is shown of the work tree is reviewed.
///
/// # Errors
/// `not_a_repository`, `unknown_revision`.
pub fn diff(
    workplace: &Workplace,
    permit: &Permit<GitDiff>,
    session: &mut Session,
    cancel: &Cancel,
) -> Result<Diff, Failure> {
    let root = &workplace.roots[permit.root()];
    let action = permit.action();
    let (place, sides) = root.read(|| {
        let place = repo::locate(&root.path, action.path.as_ref())?;
        let sides = sides(&repo::open(&place)?, &action.spec)?;
        Ok((place, sides))
    })?;
    let job = GitJob { workplace, root, place: &place, cancel };
    let path = in_repository(&job, action.path.as_ref())?;
    let change = match sides {
        Sides::Worktree => Change::read_steadily(&job, path.as_deref())?,
        _ => Change::read(&job, &sides, path.as_deref())?,
    };
    let reviews = match sides {
        // Only the top repository of a root is ever committed to.
        Sides::Worktree if place.work_tree == root.path => change.reviews(),
        _ => Vec::new(),
    };
    let text = session.cut(permit.root(), change.text, action.budget, reviews);
    let (untrusted_files, more_files) = first_files(change.stats);
    Ok(Diff { untrusted_files, more_files, untrusted_diff: text })
}

fn sides(repository: &gix::Repository, spec: &DiffSpec) -> Result<Sides, Failure> {
    Ok(match spec {
        DiffSpec::Worktree => Sides::Worktree,
        DiffSpec::Staged => Sides::Index(
            repo::head_commit(repository).unwrap_or_else(|| repo::EMPTY_TREE.to_owned()),
        ),
        DiffSpec::Between(from, to) => Sides::Trees(
            log::resolve(repository, from)?.to_string(),
            log::resolve(repository, to)?.to_string(),
        ),
    })
}

/// A path of the root as a path of the repository.
fn in_repository(job: &GitJob<'_>, path: Option<&RelPath>) -> Result<Option<String>, Failure> {
    let Some(path) = path else { return Ok(None) };
    let full = job.root.path.join(path.as_str());
    let relative = full
        .strip_prefix(&job.place.work_tree)
        .map_err(|_| Failure::fault("a path left its repository"))?;
    let text = relative.to_string_lossy().into_owned();
    Ok((!text.is_empty()).then_some(text))
}

/// A diff: its statistics, its text, and what each file's part of the text is.
struct Change {
    raw: Vec<RawEntry>,
    stats: Vec<FileStat>,
    text: String,
    sections: Vec<parse::Section>,
    steady: bool,
}

impl Change {
    fn read(job: &GitJob<'_>, sides: &Sides, path: Option<&str>) -> Result<Self, Failure> {
        let output = job.git(Verb::Diff(sides, path), Local::default())?;
        let parsed = parse::diff(&output)?;
        let sections = parse::sections(parsed.patch);
        let (text, sections) = masked(parsed.patch, sections);
        Ok(Self { raw: parsed.raw, stats: parsed.stats, text, sections, steady: false })
    }

    /// Reads a diff of the work tree twice, and knows whether anything moved between. A file that
    /// changed while git looked at it was not seen as it is.
    fn read_steadily(job: &GitJob<'_>, path: Option<&str>) -> Result<Self, Failure> {
        let first = Self::read(job, &Sides::Worktree, path)?;
        let before = stamps(job.root, &job.place.work_tree, &first.raw)?;
        let second = Self::read(job, &Sides::Worktree, path)?;
        let after = stamps(job.root, &job.place.work_tree, &second.raw)?;
        let steady = before == after && first.text == second.text && first.raw == second.raw;
        Ok(Self { steady, ..second })
    }

    /// What seeing the text reviews. A file whose part was masked was not seen as it is.
    fn reviews(&self) -> Vec<Reviewed> {
        if !self.steady || self.sections.len() != self.raw.len() {
            return Vec::new();
        }
        let shown = self.raw.iter().zip(&self.sections).filter(|(_, section)| !section.hidden);
        shown.flat_map(|(entry, section)| reviewed(entry, section)).collect()
    }
}

/// What seeing one file's part of a patch reviews: the path, and the old path of a rename.
fn reviewed(entry: &RawEntry, section: &parse::Section) -> Vec<Reviewed> {
    let text = |bytes: &[u8]| std::str::from_utf8(bytes).ok().map(str::to_owned);
    let mut seen = Vec::new();
    let content = match entry.kind {
        ChangeKind::Deleted => Some(Content::Absent),
        _ => section
            .new_hash
            .clone()
            // Only the mode or the name changed: git prints no hash, and the content is the old one.
            .or_else(|| Some(entry.old_hash.clone()))
            .map(|hash| Content::Blob { hash, mode: entry.new_mode.clone() }),
    };
    if let (Some(path), Some(content)) = (text(&entry.path), content) {
        seen.push(Reviewed { end: section.end, path, content });
    }
    if let (ChangeKind::Renamed, Some(from)) = (entry.kind, entry.from.as_deref().and_then(text)) {
        seen.push(Reviewed { end: section.end, path: from, content: Content::Absent });
    }
    seen
}

/// The patch as text, masked file by file, with the sections' ends moved along.
fn masked(patch: &[u8], sections: Vec<parse::Section>) -> (String, Vec<parse::Section>) {
    let mut text = String::with_capacity(patch.len());
    let mut start = 0;
    let mut moved = Vec::with_capacity(sections.len());
    for section in sections {
        let part = &patch[start..section.end];
        let shown = mask_bytes(part);
        text.push_str(&shown);
        start = section.end;
        moved.push(parse::Section { end: text.len(), hidden: shown.as_bytes() != part, ..section });
    }
    text.push_str(&mask_bytes(&patch[start..]));
    (text, moved)
}

/// What tells whether a file was touched: inode, size, and when its content or inode changed.
type Stamp = Option<(u64, u64, i64, i64, i64, i64)>;

fn stamps(root: &Root, work_tree: &Path, raw: &[RawEntry]) -> Result<Vec<Stamp>, Failure> {
    root.read(|| {
        let stamp = |entry: &RawEntry| {
            let path = work_tree.join(std::ffi::OsStr::from_bytes(&entry.path));
            let m = std::fs::symlink_metadata(path).ok()?;
            Some((m.ino(), m.size(), m.mtime(), m.mtime_nsec(), m.ctime(), m.ctime_nsec()))
        };
        Ok(raw.iter().map(stamp).collect())
    })
}

/// Lists commits.
///
/// # Errors
/// `not_a_repository`, `unknown_revision`.
pub fn log(
    workplace: &Workplace,
    permit: &Permit<GitLog>,
    cancel: &Cancel,
) -> Result<Log, Failure> {
    let root = &workplace.roots[permit.root()];
    let action = permit.action();
    root.read_cancellable(cancel, || {
        let place = repo::locate(&root.path, action.path.as_ref())?;
        let repository = repo::open(&place)?;
        let path = match &action.path {
            Some(path) => path_below(&root.path, &place.work_tree, path)?,
            None => None,
        };
        log::log(&repository, action.range.as_ref(), path.as_ref(), action.limit, cancel)
    })
}

fn path_below(root: &Path, work_tree: &Path, path: &RelPath) -> Result<Option<RelPath>, Failure> {
    let full = root.join(path.as_str());
    match full.strip_prefix(work_tree) {
        Ok(relative) if relative.as_os_str().is_empty() => Ok(None),
        Ok(relative) => Ok(Some(RelPath::parse(&relative.to_string_lossy())?)),
        Err(_) => Err(Failure::fault("a path left its repository")),
    }
}

/// Shows one commit.
///
/// # Errors
/// `not_a_repository`, `unknown_revision`.
pub fn show(
    workplace: &Workplace,
    permit: &Permit<GitShow>,
    session: &mut Session,
    cancel: &Cancel,
) -> Result<ShownCommit, Failure> {
    let root = &workplace.roots[permit.root()];
    let action = permit.action();
    let (place, mut shown) = root.read(|| {
        let place = repo::locate(&root.path, action.path.as_ref())?;
        let shown = log::commit(&repo::open(&place)?, &action.rev)?;
        Ok((place, shown))
    })?;
    let job = GitJob { workplace, root, place: &place, cancel };
    let parent = shown.parents.first().cloned().unwrap_or_else(|| repo::EMPTY_TREE.to_owned());
    let path = in_repository(&job, action.path.as_ref())?;
    let change = Change::read(&job, &Sides::Trees(parent, shown.hash.clone()), path.as_deref())?;
    (shown.untrusted_files, shown.more_files) = first_files(change.stats);
    shown.untrusted_diff = session.cut(permit.root(), change.text, action.budget, Vec::new());
    Ok(shown)
}

/// Lists branches.
///
/// # Errors
/// `not_a_repository`.
pub fn branches(workplace: &Workplace, permit: &Permit<GitBranches>) -> Result<Branches, Failure> {
    let root = &workplace.roots[permit.root()];
    root.read(|| {
        let place = repo::locate(&root.path, permit.action().within.as_ref())?;
        log::branches(&repo::open(&place)?, &Upstreams::of(repo::config(&place)?))
    })
}
