//! Commits and branches, read with gix. Runs on a confined thread.

use std::collections::{BinaryHeap, HashSet};

use gix::ObjectId;
use policy::git::{Range, Revision};
use policy::path::{RelPath, shown};
use protocol::refusal::Code;
use protocol::reply::{Branch, Branches, Log, LogEntry, ShownCommit, Text, Untrusted};

use super::repo::unreadable;
use super::upstream::Upstreams;
use crate::tools::Failure;
use confine::cancel::Cancel;

/// How many branches are listed.
const MAX_BRANCHES: usize = 1000;

/// The commit that a revision names.
///
/// # Errors
/// `unknown_revision`.
pub fn resolve(repository: &gix::Repository, revision: &Revision) -> Result<ObjectId, Failure> {
    let unknown = || {
        Failure::refuse(
            Code::UnknownRevision,
            format!("There is no commit named {}.", shown(revision.as_str())),
            "git_log and git_branches show what there is.",
        )
    };
    let id = repository.rev_parse_single(revision.as_str()).map_err(|_| unknown())?;
    let commit = id.object().and_then(|object| object.peel_to_kind(gix::object::Kind::Commit));
    commit.map(|commit| commit.id).map_err(|_| unknown())
}

/// Lists commits, newest first, in git's default order; with a path, only those that changed it,
/// simplified as git does.
///
/// # Errors
/// `unknown_revision`, or when the history cannot be read.
pub fn log(
    repository: &gix::Repository,
    range: Option<&Range>,
    path: Option<&RelPath>,
    limit: u32,
    cancel: &Cancel,
) -> Result<Log, Failure> {
    let (tip, within) = match range {
        None => match repository.head_id() {
            Ok(id) => (id.detach(), None),
            Err(_) => return Ok(Log { untrusted_commits: Vec::new(), truncated: false }),
        },
        Some(Range::To(revision)) => (resolve(repository, revision)?, None),
        Some(Range::Between(from, to)) => {
            let (from, to) = (resolve(repository, from)?, resolve(repository, to)?);
            (to, Some(between(repository, from, to)?))
        }
    };
    let mut walk =
        Walk { repository, path, within, queue: BinaryHeap::new(), seen: HashSet::new(), count: 0 };
    walk.push(tip)?;
    let mut entries = Vec::new();
    while let Some(commit) = walk.next()? {
        if cancel.is_cancelled() {
            return Err(Failure::cancelled());
        }
        if entries.len() == limit as usize {
            return Ok(Log { untrusted_commits: entries, truncated: true });
        }
        entries.push(entry(&commit)?);
    }
    Ok(Log { untrusted_commits: entries, truncated: false })
}

fn between(
    repository: &gix::Repository,
    from: ObjectId,
    to: ObjectId,
) -> Result<HashSet<ObjectId>, Failure> {
    let walk = repository.rev_walk([to]).with_hidden([from]).all().map_err(unreadable)?;
    walk.map(|info| info.map(|info| info.id).map_err(unreadable)).collect()
}

/// A walk over commits by date. Where a path is given, a merge that has it from one parent unchanged
/// is left out and only that parent followed: git's default simplification.
struct Walk<'r> {
    repository: &'r gix::Repository,
    path: Option<&'r RelPath>,
    within: Option<HashSet<ObjectId>>,
    queue: BinaryHeap<Queued>,
    seen: HashSet<ObjectId>,
    count: u64,
}

/// Newest first; of the same second, the one that was found first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Queued {
    seconds: i64,
    found: std::cmp::Reverse<u64>,
    id: ObjectId,
}

impl<'r> Walk<'r> {
    fn push(&mut self, id: ObjectId) -> Result<(), Failure> {
        let outside = self.within.as_ref().is_some_and(|within| !within.contains(&id));
        if outside || !self.seen.insert(id) {
            return Ok(());
        }
        let commit = self.repository.find_commit(id).map_err(unreadable)?;
        let seconds = commit.time().map_err(unreadable)?.seconds;
        self.count += 1;
        self.queue.push(Queued { seconds, found: std::cmp::Reverse(self.count), id });
        Ok(())
    }

    /// The next commit to show.
    fn next(&mut self) -> Result<Option<gix::Commit<'r>>, Failure> {
        while let Some(Queued { id, .. }) = self.queue.pop() {
            let commit = self.repository.find_commit(id).map_err(unreadable)?;
            let parents: Vec<ObjectId> = commit.parent_ids().map(gix::Id::detach).collect();
            let same = self.parent_with_same_path(&commit, &parents)?;
            let follow = same.map_or(parents, |parent| parent.into_iter().collect());
            let shown = same.is_none();
            for parent in follow {
                self.push(parent)?;
            }
            if shown {
                return Ok(Some(commit));
            }
        }
        Ok(None)
    }

    /// `Some(Some(parent))`: that parent has the path just so; `Some(None)`: there is no parent, and
    /// no path either; `None`: the commit changed the path, or no path is asked for.
    fn parent_with_same_path(
        &self,
        commit: &gix::Commit<'_>,
        parents: &[ObjectId],
    ) -> Result<Option<Option<ObjectId>>, Failure> {
        let Some(path) = self.path else { return Ok(None) };
        let here = at_path(commit, path)?;
        if parents.is_empty() && here.is_none() {
            return Ok(Some(None));
        }
        for parent in parents {
            let parent_commit = self.repository.find_commit(*parent).map_err(unreadable)?;
            if at_path(&parent_commit, path)? == here {
                return Ok(Some(Some(*parent)));
            }
        }
        Ok(None)
    }
}

/// What a commit has at a path: mode and object.
fn at_path(commit: &gix::Commit<'_>, path: &RelPath) -> Result<Option<(u16, ObjectId)>, Failure> {
    let tree = commit.tree().map_err(unreadable)?;
    let entry = tree.lookup_entry_by_path(path.as_str()).map_err(unreadable)?;
    Ok(entry.map(|entry| (entry.mode().value(), entry.object_id())))
}

fn entry(commit: &gix::Commit<'_>) -> Result<LogEntry, Failure> {
    let id = commit.id();
    Ok(LogEntry {
        hash: id.detach().to_string(),
        short: id.shorten_or_id().to_string(),
        author: author(commit)?,
        date: date(commit)?,
        subject: subject(commit)?,
    })
}

/// Name and address, masked.
pub(crate) fn author(commit: &gix::Commit<'_>) -> Result<Untrusted, Failure> {
    let author = commit.author().map_err(unreadable)?;
    let text = format!("{} <{}>", author.name, author.email);
    Ok(Untrusted(policy::secret::mask(&text).into_owned()))
}

/// The author's date as ISO 8601 (git's `%aI`).
pub(crate) fn date(commit: &gix::Commit<'_>) -> Result<String, Failure> {
    let author = commit.author().map_err(unreadable)?;
    let time = author.time().map_err(unreadable)?;
    Ok(iso(time.seconds, time.offset))
}

fn iso(seconds: i64, offset: i32) -> String {
    let civil = jiff::Timestamp::from_second(seconds + i64::from(offset))
        .map(|at| jiff::tz::Offset::UTC.to_datetime(at).strftime("%Y-%m-%dT%H:%M:%S").to_string());
    let Ok(civil) = civil else { return format!("@{seconds}") };
    if offset == 0 {
        return format!("{civil}Z");
    }
    let sign = if offset < 0 { '-' } else { '+' };
    let minutes = offset.abs() / 60;
    format!("{civil}{sign}{:02}:{:02}", minutes / 60, minutes % 60)
}

/// git's `%s`: the first paragraph on one line, masked.
fn subject(commit: &gix::Commit<'_>) -> Result<Untrusted, Failure> {
    let message = commit.message_raw().map_err(unreadable)?.to_string();
    let paragraph: Vec<&str> = message
        .lines()
        .skip_while(|line| line.trim().is_empty())
        .take_while(|line| !line.trim().is_empty())
        .map(str::trim_end)
        .collect();
    Ok(Untrusted(policy::secret::mask(&paragraph.join(" ")).into_owned()))
}

/// One commit, without its diff.
///
/// # Errors
/// `unknown_revision`.
pub fn commit(repository: &gix::Repository, revision: &Revision) -> Result<ShownCommit, Failure> {
    let id = resolve(repository, revision)?;
    let commit = repository.find_commit(id).map_err(unreadable)?;
    let message = commit.message_raw().map_err(unreadable)?.to_string();
    Ok(ShownCommit {
        hash: id.to_string(),
        short: commit.id().shorten_or_id().to_string(),
        parents: commit.parent_ids().map(|id| id.detach().to_string()).collect(),
        untrusted_author: author(&commit)?,
        date: date(&commit)?,
        untrusted_message: Untrusted(policy::secret::mask(&message).into_owned()),
        untrusted_files: Vec::new(),
        more_files: 0,
        untrusted_diff: Text::default(),
    })
}

/// Lists the local branches.
///
/// # Errors
/// When the refs cannot be read.
pub fn branches(repository: &gix::Repository, upstreams: &Upstreams) -> Result<Branches, Failure> {
    let head = repository.head_name().map_err(unreadable)?;
    let platform = repository.references().map_err(unreadable)?;
    let mut branches = Vec::new();
    for reference in platform.local_branches().map_err(unreadable)? {
        let mut reference = reference.map_err(unreadable)?;
        let Ok(commit) = reference.peel_to_commit() else { continue };
        branches.push(Branch {
            name: Untrusted(reference.name().shorten().to_string()),
            upstream: upstreams
                .follows(&reference.name().as_bstr().to_string())
                .map(|full| Untrusted(short(&full))),
            hash: commit.id.to_string(),
            subject: subject(&commit)?,
        });
    }
    let untrusted_current = head.map(|name| Untrusted(name.shorten().to_string()));
    let more_branches = branches.len().saturating_sub(MAX_BRANCHES) as u64;
    branches.truncate(MAX_BRANCHES);
    Ok(Branches { untrusted_current, untrusted_branches: branches, more_branches })
}

/// A ref's name as git shortens it.
pub(crate) fn short(full: &str) -> String {
    let cut = ["refs/heads/", "refs/remotes/"].iter().find_map(|prefix| full.strip_prefix(prefix));
    cut.unwrap_or(full).to_owned()
}

#[cfg(test)]
mod tests {
    use super::iso;

    #[test]
    fn dates_are_printed_as_git_prints_them() {
        assert_eq!(iso(0, 0), "1970-01-01T00:00:00Z");
        assert_eq!(iso(1_700_000_000, 5400), "2023-11-14T23:43:20+01:30");
        assert_eq!(iso(1_700_000_000, -12_600), "2023-11-14T18:43:20-03:30");
    }
}
