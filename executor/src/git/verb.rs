//! The closed list of what this program can ask of git, and the whole argument vector of each.
//!
//! A caller's text only ever fills a value slot: a path behind `--` or on standard input, a message on
//! standard input. Revisions reach git as full hashes that gix resolved; branch and remote come from
//! the configuration.

use std::ffi::OsString;

use policy::authority::Step;
use policy::git::{BranchName, Identity, Remote};

/// What a diff compares, with hashes resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sides {
    /// The index with the work tree.
    Worktree,
    /// A commit (or the empty tree) with the index.
    Index(String),
    /// Two trees.
    Trees(String, String),
}

/// Everything that this program can ask of git.
#[derive(Debug, Clone)]
pub enum Verb<'a> {
    /// The state of the work tree.
    Status {
        /// Where in the repository.
        path: Option<&'a str>,
    },
    /// Statistics of a diff: raw lines, then line counts.
    DiffStat(&'a Sides, Option<&'a str>),
    /// Statistics of a diff as above, then its text.
    Diff(&'a Sides, Option<&'a str>),
    /// What an index holds against a commit (or the empty tree), renames as both paths.
    StagedEntries(&'a str),
    /// What one tree holds against another, renames as both paths.
    TreeEntries(&'a str, &'a str),
    /// Which filters apply to the paths on standard input.
    CheckAttr,
    /// Put the paths on standard input into the index, as they are in the work tree.
    UpdateIndex,
    /// Bring the index's knowledge of the work tree up to date.
    RefreshIndex,
    /// Write the index as a tree.
    WriteTree,
    /// Make a commit of a tree; the message is on standard input.
    CommitTree {
        /// The tree.
        tree: &'a str,
        /// The parent, but for the first commit.
        parent: Option<&'a str>,
        /// Author and committer.
        identity: &'a Identity,
    },
    /// Move a ref, if it is where it was.
    UpdateRef {
        /// Its full name.
        name: &'a str,
        /// Where to.
        new: &'a str,
        /// Where it must be; all zeros for nowhere.
        old: &'a str,
        /// For the reflog.
        reason: &'a str,
        /// For the reflog.
        identity: &'a Identity,
    },
    /// Move the work tree and the index from one commit to another, if nothing is in the way.
    ReadTree {
        /// What they hold now.
        from: &'a str,
        /// What they are to hold.
        to: &'a str,
    },
    /// Ask the remote where the branch is.
    LsRemote(&'a Remote, &'a BranchName),
    /// Bring the branch's objects here, under [`INCOMING`] of the skeleton.
    Fetch(&'a Remote, &'a BranchName),
    /// Send a commit to the branch.
    Push(&'a Remote, &'a BranchName, &'a str),
}

/// Where [`Verb::Fetch`] puts what it brought.
pub const INCOMING: &str = "refs/sage/incoming";

/// Settings that hold for every call, over whatever the repository says.
///
/// The user name that goes with a token is a setting and not part of the URL: with one in the URL,
/// curl first tries it with an empty password. Forges take any name, and this one says what it is.
const SETTINGS: &[&str] = &[
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.quotePath=false",
    "core.precomposeUnicode=false",
    "core.excludesFile=/dev/null",
    "core.attributesFile=/dev/null",
    "core.alternateRefsCommand=",
    "core.fsync=committed,index",
    "diff.ignoreSubmodules=dirty",
    "diff.orderFile=/dev/null",
    "diff.suppressBlankEmpty=false",
    "diff.renameLimit=1000",
    "status.renames=true",
    "status.showUntrackedFiles=all",
    "submodule.recurse=false",
    "fetch.recurseSubmodules=false",
    "push.recurseSubmodules=no",
    "push.followTags=false",
    "push.gpgSign=false",
    "commit.gpgSign=false",
    "log.showSignature=false",
    "merge.verifySignatures=false",
    "merge.autoStash=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "receive.autogc=false",
    "advice.statusHints=false",
    "advice.graftFileDeprecated=false",
    "credential.helper=",
    "credential.username=x-access-token",
    "fetch.bundleURI=",
    "fetch.unpackLimit=100",
    "transfer.credentialsInUrl=allow",
    "http.followRedirects=false",
    "http.saveCookies=false",
    "protocol.version=2",
];

const DIFF: &[&str] = &[
    "--no-ext-diff",
    "--no-textconv",
    "--no-color",
    "--no-color-moved",
    "--find-renames",
    "--full-index",
    "--no-relative",
    "--ignore-submodules=dirty",
    "--submodule=short",
    "--diff-algorithm=myers",
    "--indent-heuristic",
    "--src-prefix=a/",
    "--dst-prefix=b/",
    "--unified=3",
    "--inter-hunk-context=0",
];

impl Verb<'_> {
    /// The step, and so the authority, under which the verb runs.
    #[must_use]
    pub fn step(&self) -> Step {
        match self {
            Verb::Status { .. }
            | Verb::DiffStat(..)
            | Verb::Diff(..)
            | Verb::StagedEntries(_)
            | Verb::TreeEntries(..)
            | Verb::CheckAttr => Step::GitRead,
            Verb::UpdateIndex
            | Verb::RefreshIndex
            | Verb::WriteTree
            | Verb::CommitTree { .. }
            | Verb::UpdateRef { .. } => Step::GitStage,
            Verb::ReadTree { .. } => Step::GitCheckout,
            Verb::LsRemote(Remote::Https { .. }, _) | Verb::Fetch(Remote::Https { .. }, _) => {
                Step::FetchHttps
            }
            Verb::LsRemote(Remote::Local(_), _) | Verb::Fetch(Remote::Local(_), _) => {
                Step::FetchLocal
            }
            Verb::Push(Remote::Https { .. }, ..) => Step::PushHttps,
            Verb::Push(Remote::Local(_), ..) => Step::PushLocal,
        }
    }

    /// The whole argument vector, `git` itself left out.
    #[must_use]
    pub fn vector(&self) -> Vec<OsString> {
        let mut vector: Vec<OsString> =
            ["--no-pager", "--literal-pathspecs"].map(Into::into).to_vec();
        for setting in SETTINGS {
            vector.extend(["-c".into(), (*setting).into()]);
        }
        vector.extend(self.arguments());
        vector
    }

    fn arguments(&self) -> Vec<OsString> {
        match self {
            Verb::Status { path } => {
                let fixed = words(
                    "status --porcelain=v2 -z --untracked-files=all --ignored=no --find-renames --ignore-submodules=dirty",
                );
                with_path(fixed, *path)
            }
            Verb::DiffStat(sides, path) => {
                diff(sides, *path, &["--raw", "--numstat", "--no-abbrev", "-z"])
            }
            Verb::Diff(sides, path) => {
                diff(sides, *path, &["--raw", "--numstat", "--patch", "--no-abbrev", "-z"])
            }
            Verb::StagedEntries(base) => entries(&["--cached".into(), (*base).into()]),
            Verb::TreeEntries(from, to) => entries(&[(*from).into(), (*to).into()]),
            Verb::CheckAttr => words("check-attr -z --stdin filter"),
            Verb::UpdateIndex => words("update-index --add --remove -z --stdin"),
            Verb::RefreshIndex => words("update-index -q --refresh"),
            Verb::WriteTree => words("write-tree"),
            Verb::CommitTree { tree, parent, .. } => {
                let mut vector = words("commit-tree");
                vector.push((*tree).into());
                if let Some(parent) = parent {
                    vector.extend(["-p".into(), (*parent).into()]);
                }
                vector.extend(words("-F -"));
                vector
            }
            Verb::UpdateRef { name, new, old, reason, .. } => {
                let mut vector = words("update-ref");
                vector.extend(["-m".into(), (*reason).into()]);
                vector.extend([(*name).into(), (*new).into(), (*old).into()]);
                vector
            }
            Verb::ReadTree { from, to } => {
                let mut vector = words("read-tree -m -u");
                vector.extend([(*from).into(), (*to).into()]);
                vector
            }
            Verb::LsRemote(remote, branch) => {
                let mut vector = words("ls-remote --refs");
                vector.extend([url(remote), branch.full().into()]);
                vector
            }
            Verb::Fetch(remote, branch) => {
                let mut vector = words(
                    "fetch --quiet --no-tags --no-prune --no-recurse-submodules --no-auto-maintenance \
                     --no-write-fetch-head --no-write-commit-graph --refmap=",
                );
                vector.extend([url(remote), format!("+{}:{INCOMING}", branch.full()).into()]);
                vector
            }
            Verb::Push(remote, branch, commit) => {
                let mut vector = words(
                    "push --porcelain --no-verify --no-follow-tags --no-signed --recurse-submodules=no",
                );
                vector.extend([url(remote), format!("{commit}:{}", branch.full()).into()]);
                vector
            }
        }
    }

    pub(super) fn identity(&self) -> Option<&Identity> {
        match self {
            Verb::CommitTree { identity, .. } | Verb::UpdateRef { identity, .. } => Some(identity),
            _ => None,
        }
    }
}

fn words(text: &str) -> Vec<OsString> {
    text.split_whitespace().map(OsString::from).collect()
}

fn with_path(mut vector: Vec<OsString>, path: Option<&str>) -> Vec<OsString> {
    vector.push("--".into());
    vector.extend(path.map(OsString::from));
    vector
}

fn diff(sides: &Sides, path: Option<&str>, format: &[&str]) -> Vec<OsString> {
    let mut vector = words("diff");
    vector.extend(DIFF.iter().chain(format).map(OsString::from));
    match sides {
        // Of a path in conflict, what differs from our side.
        Sides::Worktree => vector.push("--ours".into()),
        Sides::Index(tree) => vector.extend(["--cached".into(), tree.into()]),
        Sides::Trees(from, to) => vector.extend([from.into(), to.into()]),
    }
    with_path(vector, path)
}

fn entries(sides: &[OsString]) -> Vec<OsString> {
    let mut vector = words("diff --raw --no-abbrev --no-renames --ignore-submodules=none -z");
    vector.extend_from_slice(sides);
    with_path(vector, None)
}

/// The remote's URL.
fn url(remote: &Remote) -> OsString {
    match remote {
        Remote::Local(path) => path.into(),
        Remote::Https { url, .. } => url.into(),
    }
}

#[cfg(test)]
mod tests {
    use policy::git::{BranchName, Identity, Remote};

    use super::{DIFF, SETTINGS, Sides, Verb};

    /// The words behind the settings that every vector begins with.
    fn own_words(verb: &Verb<'_>) -> String {
        let vector: Vec<String> =
            verb.vector().iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let common = 2 + 2 * SETTINGS.len();
        assert_eq!(vector[..2], ["--no-pager", "--literal-pathspecs"]);
        assert!(vector[2..common].chunks(2).all(|pair| pair[0] == "-c" && pair[1].contains('=')));
        vector[common..].join(" ").replace(&DIFF.join(" "), "DIFF")
    }

    /// Breaks the build when a verb is added, so that it is listed below.
    fn listed(verb: &Verb<'_>) {
        match verb {
            Verb::Status { .. } | Verb::DiffStat(..) | Verb::Diff(..) | Verb::StagedEntries(_) => {}
            Verb::TreeEntries(..) | Verb::CheckAttr | Verb::UpdateIndex | Verb::RefreshIndex => {}
            Verb::WriteTree | Verb::CommitTree { .. } | Verb::UpdateRef { .. } => {}
            Verb::ReadTree { .. } | Verb::LsRemote(..) | Verb::Fetch(..) | Verb::Push(..) => {}
        }
    }

    #[test]
    fn every_vector_that_the_program_can_build_is_this_one() {
        let identity = Identity::parse("Sage <sage@example.invalid>").expect("an identity");
        let branch = BranchName::parse("main").expect("a branch");
        let https = Remote::parse("https://git.example.com/o/r.git").expect("a remote");
        let local = Remote::parse("/srv/r.git").expect("a remote");
        let trees = Sides::Trees("A".to_owned(), "B".to_owned());
        let staged = Sides::Index("A".to_owned());
        let path = Some("--odd path");
        let reason = "commit: subject";
        let cases = [
            (
                Verb::Status { path: None },
                "status --porcelain=v2 -z --untracked-files=all --ignored=no --find-renames --ignore-submodules=dirty --",
            ),
            (
                Verb::DiffStat(&Sides::Worktree, None),
                "diff DIFF --raw --numstat --no-abbrev -z --ours --",
            ),
            (
                Verb::DiffStat(&staged, path),
                "diff DIFF --raw --numstat --no-abbrev -z --cached A -- --odd path",
            ),
            (
                Verb::Diff(&trees, path),
                "diff DIFF --raw --numstat --patch --no-abbrev -z A B -- --odd path",
            ),
            (
                Verb::StagedEntries("A"),
                "diff --raw --no-abbrev --no-renames --ignore-submodules=none -z --cached A --",
            ),
            (
                Verb::TreeEntries("A", "B"),
                "diff --raw --no-abbrev --no-renames --ignore-submodules=none -z A B --",
            ),
            (Verb::CheckAttr, "check-attr -z --stdin filter"),
            (Verb::UpdateIndex, "update-index --add --remove -z --stdin"),
            (Verb::RefreshIndex, "update-index -q --refresh"),
            (Verb::WriteTree, "write-tree"),
            (
                Verb::CommitTree { tree: "T", parent: None, identity: &identity },
                "commit-tree T -F -",
            ),
            (
                Verb::CommitTree { tree: "T", parent: Some("P"), identity: &identity },
                "commit-tree T -p P -F -",
            ),
            (
                Verb::UpdateRef {
                    name: "refs/heads/main",
                    new: "N",
                    old: "O",
                    reason,
                    identity: &identity,
                },
                "update-ref -m commit: subject refs/heads/main N O",
            ),
            (Verb::ReadTree { from: "A", to: "B" }, "read-tree -m -u A B"),
            (
                Verb::LsRemote(&https, &branch),
                "ls-remote --refs https://git.example.com/o/r.git refs/heads/main",
            ),
            (Verb::LsRemote(&local, &branch), "ls-remote --refs /srv/r.git refs/heads/main"),
            (
                Verb::Fetch(&local, &branch),
                "fetch --quiet --no-tags --no-prune --no-recurse-submodules --no-auto-maintenance --no-write-fetch-head --no-write-commit-graph --refmap= /srv/r.git +refs/heads/main:refs/sage/incoming",
            ),
            (
                Verb::Push(&local, &branch, "N"),
                "push --porcelain --no-verify --no-follow-tags --no-signed --recurse-submodules=no /srv/r.git N:refs/heads/main",
            ),
        ];
        for (verb, words) in cases {
            listed(&verb);
            assert_eq!(own_words(&verb), words);
        }
    }
}
