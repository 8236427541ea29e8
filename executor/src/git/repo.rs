//! Finding a repository below a root, and its state. Runs on a confined thread.
//!
//! Nothing here follows what a repository says about where its parts are, unless they lie in the
//! same root: a `.git` file, `commondir` and alternates that lead elsewhere are refused.

use std::path::{Path, PathBuf};

use policy::path::RelPath;
use policy::repository::State;
use protocol::refusal::{Code, Refusal};
use protocol::reply::Operation;

use crate::tools::Failure;

/// The empty tree, which stands for "before the first commit".
pub const EMPTY_TREE: &str = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";

/// A repository's three places.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The work tree.
    pub work_tree: PathBuf,
    /// The git directory: `.git`, or a linked worktree's own.
    pub git_dir: PathBuf,
    /// What linked worktrees share; the same as `git_dir` otherwise.
    pub common_dir: PathBuf,
    /// The filter drivers that its configuration names. None of them is ever run.
    pub filters: Vec<String>,
}

/// Finds the innermost repository that holds a path, walking up no further than the root.
///
/// # Errors
/// `not_a_repository`, or `untrusted_repository` when a part of it lies outside the root or belongs
/// to another user.
pub fn locate(root: &Path, within: Option<&RelPath>) -> Result<Place, Failure> {
    let mut at = within.map(RelPath::as_str);
    loop {
        let dir = at.map_or_else(|| root.to_path_buf(), |path| root.join(path));
        if let Some(mut place) = place_at(root, &dir)? {
            trusted(root, &place)?;
            let config = config(&place)?;
            known_format(&config)?;
            place.filters = filters(&config)?;
            return Ok(place);
        }
        let Some(path) = at else { return Err(not_a_repository()) };
        at = path.rsplit_once('/').map(|(parent, _)| parent);
    }
}

fn not_a_repository() -> Failure {
    Failure::refuse(
        Code::NotARepository,
        "This path is in no repository below the root.",
        "Name a path inside a repository; a person makes a repository from the terminal.",
    )
}

fn untrusted(what: &str) -> Failure {
    Failure::refuse(
        Code::UntrustedRepository,
        format!("The repository is not used: {what}."),
        "A person puts it right from the terminal, or leaves it to be read there.",
    )
}

fn place_at(root: &Path, dir: &Path) -> Result<Option<Place>, Failure> {
    let dot_git = dir.join(".git");
    let Ok(metadata) = std::fs::symlink_metadata(&dot_git) else { return Ok(None) };
    let git_dir = if metadata.is_dir() {
        dot_git
    } else if metadata.is_file() {
        gitfile_target(root, dir, &dot_git)?
    } else {
        return Err(untrusted("its `.git` is neither a folder nor a file"));
    };
    if !git_dir.join("HEAD").is_file() {
        return Ok(None);
    }
    let common_dir = match small_file(&git_dir.join("commondir"))? {
        None => git_dir.clone(),
        Some(text) => inside(root, &git_dir.join(text.trim_end()), "its `commondir`")?,
    };
    let work_tree = dir.to_path_buf();
    Ok(Some(Place { work_tree, git_dir, common_dir, filters: Vec::new() }))
}

/// gix reads neither SHA-256 objects nor reftable refs.
fn known_format(config: &[(String, String)]) -> Result<(), Failure> {
    for (key, known) in [("extensions.objectformat", "sha1"), ("extensions.refstorage", "files")] {
        let other = |(name, value): &&(String, String)| name == key && value != known;
        if let Some((_, value)) = config.iter().find(other) {
            return Err(untrusted(&format!(
                "its format is {}, and only {known} is supported here",
                policy::path::shown(value)
            )));
        }
    }
    Ok(())
}

/// How many filter drivers one repository may name.
const MAX_FILTERS: usize = 64;

fn filters(config: &[(String, String)]) -> Result<Vec<String>, Failure> {
    let driver = |key: &str| {
        let (driver, _) = key.strip_prefix("filter.")?.rsplit_once('.')?;
        (!driver.contains('\0')).then(|| driver.to_owned())
    };
    let mut found: Vec<String> = config.iter().filter_map(|(key, _)| driver(key)).collect();
    found.sort();
    found.dedup();
    if found.len() > MAX_FILTERS {
        return Err(untrusted("its configuration names too many filters"));
    }
    Ok(found)
}

fn gitfile_target(root: &Path, dir: &Path, gitfile: &Path) -> Result<PathBuf, Failure> {
    let text = small_file(gitfile)?.unwrap_or_default();
    let target = text.strip_prefix("gitdir: ").map(str::trim_end);
    let target = target.ok_or_else(|| untrusted("its `.git` file names no folder"))?;
    inside(root, &dir.join(target), "its `.git` file")
}

/// A path, resolved, that must lie in the root.
fn inside(root: &Path, path: &Path, what: &str) -> Result<PathBuf, Failure> {
    let resolved = path.canonicalize().map_err(|_| untrusted(&format!("{what} leads nowhere")))?;
    let root = root.canonicalize().map_err(Failure::io)?;
    if resolved.starts_with(&root) {
        Ok(resolved)
    } else {
        Err(untrusted(&format!("{what} leads out of the root")))
    }
}

fn small_file(path: &Path) -> Result<Option<String>, Failure> {
    let Ok(metadata) = std::fs::symlink_metadata(path) else { return Ok(None) };
    if !metadata.is_file() || metadata.len() > 64 * 1024 {
        return Err(untrusted("one of its files is not a small regular file"));
    }
    std::fs::read_to_string(path).map(Some).map_err(Failure::io)
}

fn trusted(root: &Path, place: &Place) -> Result<(), Failure> {
    use std::os::unix::fs::MetadataExt;
    let me = rustix::process::geteuid().as_raw();
    for dir in [&place.work_tree, &place.git_dir, &place.common_dir] {
        let metadata = std::fs::metadata(dir).map_err(Failure::io)?;
        if metadata.uid() != me {
            return Err(untrusted("it belongs to another user than the executor's"));
        }
    }
    let objects = place.common_dir.join("objects");
    inside(root, &objects, "its `objects`")?;
    nothing_hangs(place)?;
    for list in ["info/alternates", "info/http-alternates"] {
        for line in small_file(&objects.join(list))?.unwrap_or_default().lines() {
            if !line.is_empty() && !line.starts_with('#') {
                inside(root, &objects.join(line), "its `objects/info/alternates`")?;
            }
        }
    }
    Ok(())
}

/// A pipe where gix opens a file would wait for a writer that never comes, in a thread that nothing
/// can end. Loose objects are not looked through: they are too many, and one that is a pipe costs a
/// call's seat.
fn nothing_hangs(place: &Place) -> Result<(), Failure> {
    for file in ["HEAD", "index", "config.worktree"] {
        file_or_folder(&place.git_dir.join(file))?;
    }
    for file in ["config", "packed-refs", "shallow", "info/exclude", "objects/info/commit-graph"] {
        file_or_folder(&place.common_dir.join(file))?;
    }
    let mut folders = vec![place.common_dir.join("refs"), place.common_dir.join("objects/pack")];
    if place.git_dir != place.common_dir {
        folders.push(place.git_dir.join("refs"));
    }
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            match entry.file_type().map_err(Failure::io)? {
                kind if kind.is_dir() => folders.push(entry.path()),
                kind if kind.is_file() => {}
                _ => return Err(untrusted("one of its files is neither a file nor a folder")),
            }
        }
    }
    Ok(())
}

fn file_or_folder(path: &Path) -> Result<(), Failure> {
    match std::fs::symlink_metadata(path) {
        Ok(metadata) if !metadata.is_file() && !metadata.is_dir() => {
            Err(untrusted("one of its files is neither a file nor a folder"))
        }
        _ => Ok(()),
    }
}

/// Opens a repository with gix: at reduced trust, with its own configuration alone, and none of its
/// filters or includes.
///
/// # Errors
/// When gix cannot read it.
pub fn open(place: &Place) -> Result<gix::Repository, Failure> {
    let options = gix::open::Options::isolated().with(gix::sec::Trust::Reduced).cli_overrides([
        "core.precomposeUnicode=false",
        "core.useReplaceRefs=false",
        "gitoxide.objects.noReplace=true",
    ]);
    let repository = options.open_path_as_is(true).open(&place.git_dir);
    repository.map(|repository| repository.to_thread_local()).map_err(|error| {
        Failure::Refusal(Refusal::new(
            Code::UntrustedRepository,
            format!("The repository cannot be read: {}.", first_line(&error.to_string())),
            "A person looks at it with `git fsck` from the terminal.",
        ))
    })
}

/// An error's first line, short enough to show.
#[must_use]
pub fn first_line(text: &str) -> String {
    policy::secret::mask(text).lines().next().unwrap_or_default().chars().take(300).collect()
}

/// Reads the state that the fences of the writing verbs judge.
///
/// # Errors
/// When the repository cannot be read.
pub fn state(place: &Place) -> Result<State, Failure> {
    let repository = open(place)?;
    let head_name = repository.head_name().map_err(unreadable)?;
    let index = repository.index_or_empty().map_err(unreadable)?;
    let conflicts = conflicted_paths(&index);
    Ok(State {
        head_ref: head_name.map(|name| name.as_bstr().to_string()),
        head: head_commit(&repository),
        operation: operation(&repository),
        conflicts,
        config: config(place)?,
    })
}

fn conflicted_paths(index: &gix::index::State) -> usize {
    let mut paths: Vec<_> = index
        .entries()
        .iter()
        .filter(|entry| entry.stage() != gix::index::entry::Stage::Unconflicted)
        .map(|entry| entry.path(index))
        .collect();
    paths.dedup();
    paths.len()
}

/// The commit at HEAD, in hex; `None` before the first one.
#[must_use]
pub fn head_commit(repository: &gix::Repository) -> Option<String> {
    repository.head_id().ok().map(|id| id.detach().to_string())
}

/// An operation that git has under way.
#[must_use]
pub fn operation(repository: &gix::Repository) -> Option<Operation> {
    use gix::state::InProgress as P;
    Some(match repository.state()? {
        P::ApplyMailbox => Operation::Am,
        P::ApplyMailboxRebase | P::Rebase | P::RebaseInteractive => Operation::Rebase,
        P::Bisect => Operation::Bisect,
        P::CherryPick | P::CherryPickSequence => Operation::CherryPick,
        P::Merge => Operation::Merge,
        P::Revert | P::RevertSequence => Operation::Revert,
    })
}

/// The repository's own configuration, includes not followed, keys in lower case but for the
/// subsection.
///
/// # Errors
/// `untrusted_repository` when it does not parse.
pub fn config(place: &Place) -> Result<Vec<(String, String)>, Failure> {
    let mut found = read_config(&place.common_dir.join("config"))?;
    let worktree = place.git_dir.join("config.worktree");
    if std::fs::symlink_metadata(&worktree).is_ok() {
        found.extend(read_config(&worktree)?);
    }
    Ok(found)
}

fn read_config(path: &Path) -> Result<Vec<(String, String)>, Failure> {
    let text = small_file(path)?.unwrap_or_default();
    let file = gix::config::File::from_bytes_no_includes(
        text.as_bytes(),
        gix::config::file::Metadata::from(gix::config::Source::Local),
        gix::config::file::init::Options::default(),
    )
    .map_err(|error| {
        untrusted(&format!("its configuration does not parse: {}", first_line(&error.to_string())))
    })?;
    let mut found = Vec::new();
    for section in file.sections() {
        let header = section.header();
        let mut prefix = header.name().to_string().to_lowercase();
        if let Some(subsection) = header.subsection_name() {
            prefix = format!("{prefix}.{subsection}");
        }
        // value_names repeats a name for each of its values.
        let names: std::collections::BTreeSet<String> = section.value_names().collect();
        for name in names {
            for value in section.values(&name) {
                found.push((
                    format!("{prefix}.{}", name.to_string().to_lowercase()),
                    value.to_string(),
                ));
            }
        }
    }
    Ok(found)
}

/// A failure of gix to read what should be there.
pub(crate) fn unreadable(error: impl std::fmt::Display) -> Failure {
    Failure::fault(format!("the repository cannot be read: {}", first_line(&error.to_string())))
}

/// How two commits stand to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Distance {
    /// Commits of the first that the second lacks.
    pub ahead: u64,
    /// Commits of the second that the first lacks.
    pub behind: u64,
}

/// Counts the commits on either side; `None` when one of them is not here.
///
/// # Errors
/// When the history cannot be read.
pub fn distance(
    repository: &gix::Repository,
    ours: &str,
    theirs: &str,
) -> Result<Option<Distance>, Failure> {
    let parse = |hex: &str| gix::ObjectId::from_hex(hex.as_bytes()).map_err(unreadable);
    let (ours, theirs) = (parse(ours)?, parse(theirs)?);
    if !repository.has_object(ours) || !repository.has_object(theirs) {
        return Ok(None);
    }
    let count = |tip, hidden| -> Result<u64, Failure> {
        let walk = repository.rev_walk([tip]).with_hidden([hidden]).all().map_err(unreadable)?;
        walk.map(|commit| commit.map(|_| 1).map_err(unreadable)).sum()
    };
    Ok(Some(Distance { ahead: count(ours, theirs)?, behind: count(theirs, ours)? }))
}

/// The commit that a ref names, if it is there.
pub(crate) fn ref_commit(repository: &gix::Repository, name: &str) -> Option<String> {
    let mut reference = repository.find_reference(name).ok()?;
    reference.peel_to_id().ok().map(|id| id.detach().to_string())
}

/// How many commits lead to one.
pub(crate) fn count(repository: &gix::Repository, hash: &str) -> Result<u64, Failure> {
    let id = gix::ObjectId::from_hex(hash.as_bytes()).map_err(unreadable)?;
    let walk = repository.rev_walk([id]).all().map_err(unreadable)?;
    walk.map(|commit| commit.map(|_| 1).map_err(unreadable)).sum()
}

/// A hash, shortened as far as it stays unique.
pub(crate) fn short_hash(repository: &gix::Repository, hash: &str) -> Result<String, Failure> {
    let id = gix::ObjectId::from_hex(hash.as_bytes()).map_err(unreadable)?;
    Ok(gix::prelude::ObjectIdExt::attach(id, repository).shorten_or_id().to_string())
}

/// A regular file's bytes as HEAD has them, if it has the file.
pub(crate) fn blob_at_head(
    repository: &gix::Repository,
    path: &str,
) -> Result<Option<Vec<u8>>, Failure> {
    let Ok(head) = repository.head_id() else { return Ok(None) };
    let commit = repository.find_commit(head.detach()).map_err(unreadable)?;
    let entry =
        commit.tree().and_then(|tree| tree.lookup_entry_by_path(path)).map_err(unreadable)?;
    match entry {
        Some(entry) if entry.mode().is_blob() => {
            entry.object().map(|object| Some(object.data.clone())).map_err(unreadable)
        }
        _ => Ok(None),
    }
}
