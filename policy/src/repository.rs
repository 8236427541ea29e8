//! What must be true of a repository before a verb that writes touches it.

use protocol::refusal::{Code, Refusal};
use protocol::reply::Operation;

use crate::git::{BranchName, Remote};

/// What the executor saw of a repository, by reading alone.
#[derive(Debug, Clone)]
pub struct State {
    /// HEAD's branch, by its full name; `None` when HEAD is detached.
    pub head_ref: Option<String>,
    /// The commit at HEAD; `None` before the first one.
    pub head: Option<String>,
    /// An operation under way.
    pub operation: Option<Operation>,
    /// How many paths are in conflict.
    pub conflicts: usize,
    /// The repository's own configuration, includes not followed: `(section.sub.key, value)` with
    /// section and key in lower case.
    pub config: Vec<(String, String)>,
}

/// What the configuration demands of a repository.
#[derive(Debug, Clone)]
pub struct Terms {
    /// The one branch.
    pub branch: BranchName,
    /// Where `origin` is.
    pub remote: Remote,
}

/// The proof that the shared fences of the writing verbs were passed. Only [`may_write`] makes one.
#[derive(Debug)]
#[must_use]
pub struct Writable {
    head: Option<String>,
}

impl Writable {
    /// The commit at HEAD when the fences were passed; `None` before the first one.
    #[must_use]
    pub fn head(&self) -> Option<&str> {
        self.head.as_deref()
    }
}

/// Judges the state of a repository for a verb that writes.
///
/// # Errors
/// The refusal of the first fence that says no.
pub fn may_write(terms: &Terms, state: &State) -> Result<Writable, Refusal> {
    no_hostile_key(state)?;
    origin_is_ours(terms, state)?;
    if let Some(operation) = state.operation {
        return Err(Refusal::new(
            Code::OperationInProgress,
            format!("A {} is under way in this repository.", operation.as_str()),
            "A person finishes or aborts it from the terminal.",
        ));
    }
    if state.conflicts > 0 {
        return Err(Refusal::new(
            Code::Conflicted,
            format!("{} paths are in conflict.", state.conflicts),
            "A person resolves them from the terminal.",
        ));
    }
    match &state.head_ref {
        None => Err(Refusal::new(
            Code::DetachedHead,
            "HEAD is detached.",
            format!("A person checks out {:?} from the terminal.", terms.branch.as_str()),
        )),
        Some(name) if *name != terms.branch.full() => Err(Refusal::new(
            Code::WrongBranch,
            format!("{:?} is checked out, not {:?}.", short(name), terms.branch.as_str()),
            format!("A person checks out {:?} from the terminal.", terms.branch.as_str()),
        )),
        Some(_) => Ok(Writable { head: state.head.clone() }),
    }
}

fn short(full: &str) -> &str {
    full.strip_prefix("refs/heads/").unwrap_or(full)
}

/// Keys that redirect the remote or the token, or that run a program, and that cannot be set back
/// from the command line in every supported git.
fn no_hostile_key(state: &State) -> Result<(), Refusal> {
    match state.config.iter().map(|(key, _)| key.as_str()).find(|key| is_hostile(key)) {
        None => Ok(()),
        Some(key) => Err(Refusal::new(
            Code::HostileConfig,
            format!(
                "The repository's own configuration sets {key:?}, which can run a program or redirect the remote."
            ),
            "A person removes the key with `git config --local --unset-all`, or moves it to their own configuration.",
        )),
    }
}

/// Whether the repository's own configuration may not set this key (section and name in lower case).
#[must_use]
pub fn is_hostile(key: &str) -> bool {
    const KEYS: &[&str] = &[
        "core.sshcommand",
        "core.gitproxy",
        "core.askpass",
        "core.worktree",
        "core.alternaterefscommand",
        "extensions.worktreeconfig",
        "extensions.partialclone",
        "fetch.bundleuri",
        "remote.origin.pushurl",
        "remote.origin.vcs",
        "remote.origin.proxy",
        "remote.origin.uploadpack",
        "remote.origin.receivepack",
        "remote.origin.promisor",
        "remote.origin.push",
        "remote.origin.mirror",
    ];
    const SECTIONS: &[&str] =
        &["include.", "includeif.", "url.", "http.", "https.", "credential.", "protocol."];
    KEYS.contains(&key)
        || SECTIONS.iter().any(|section| key.starts_with(section))
        || is_remote_named_like_a_url(key)
}

/// `[remote "https://…"]` gives an explicit URL settings of its own.
fn is_remote_named_like_a_url(key: &str) -> bool {
    key.strip_prefix("remote.").is_some_and(|rest| rest.contains("://") || rest.starts_with('/'))
}

fn origin_is_ours(terms: &Terms, state: &State) -> Result<(), Refusal> {
    let urls: Vec<&str> = state
        .config
        .iter()
        .filter(|(key, _)| key == "remote.origin.url")
        .map(|(_, value)| value.as_str())
        .collect();
    if urls == [terms.remote.url()] {
        return Ok(());
    }
    // The URL that is there may hold a password, so it is not repeated.
    let found = match urls.len() {
        0 => "has no URL".to_owned(),
        1 => "has another URL".to_owned(),
        n => format!("has {n} URLs"),
    };
    Err(Refusal::new(
        Code::RemoteMismatch,
        format!("`origin` {found}; the configuration names {:?}.", terms.remote.url()),
        "A person sets it with `git remote set-url origin …`, or the operator changes the configuration.",
    ))
}

#[cfg(test)]
mod tests {
    use protocol::refusal::Code;
    use protocol::reply::Operation;

    use super::{State, Terms, may_write};
    use crate::git::{BranchName, Remote};

    fn terms() -> Terms {
        Terms {
            branch: BranchName::parse("main").expect("a branch"),
            remote: Remote::parse("https://git.example.com/o/r.git").expect("a remote"),
        }
    }

    fn good() -> State {
        State {
            head_ref: Some("refs/heads/main".to_owned()),
            head: Some("a".repeat(40)),
            operation: None,
            conflicts: 0,
            config: vec![
                ("core.bare".to_owned(), "false".to_owned()),
                ("remote.origin.url".to_owned(), "https://git.example.com/o/r.git".to_owned()),
                (
                    "remote.origin.fetch".to_owned(),
                    "+refs/heads/*:refs/remotes/origin/*".to_owned(),
                ),
                ("branch.main.remote".to_owned(), "origin".to_owned()),
                ("core.hookspath".to_owned(), ".husky".to_owned()),
            ],
        }
    }

    #[test]
    fn a_plain_clone_on_the_configured_branch_may_be_written() {
        let writable = may_write(&terms(), &good()).expect("nothing is wrong with it");
        assert_eq!(writable.head(), Some("a".repeat(40).as_str()));
        let unborn = State { head: None, ..good() };
        assert!(may_write(&terms(), &unborn).is_ok_and(|w| w.head().is_none()));
    }

    #[test]
    fn each_fence_says_no_by_its_own_code() {
        let refused = |state: State| may_write(&terms(), &state).expect_err("it is fenced").code;
        assert_eq!(refused(State { head_ref: None, ..good() }), Code::DetachedHead);
        let other = State { head_ref: Some("refs/heads/other".to_owned()), ..good() };
        assert_eq!(refused(other), Code::WrongBranch);
        assert_eq!(refused(State { conflicts: 1, ..good() }), Code::Conflicted);
        let merging = State { operation: Some(Operation::Merge), ..good() };
        assert_eq!(refused(merging), Code::OperationInProgress);
        assert_eq!(refused(State { config: vec![], ..good() }), Code::RemoteMismatch);
        let mut twice = good();
        twice.config.push(("remote.origin.url".to_owned(), "https://evil.example/x".to_owned()));
        assert_eq!(refused(twice), Code::RemoteMismatch);
    }

    #[test]
    fn a_key_that_redirects_or_runs_is_refused_by_name() {
        for key in [
            "url.https://evil.example/.insteadof",
            "url.x.pushinsteadof",
            "remote.origin.pushurl",
            "remote.https://git.example.com/o/r.git.url",
            "http.sslverify",
            "http.https://git.example.com/.proxy",
            "credential.helper",
            "credential.https://x.helper",
            "include.path",
            "includeif.gitdir:**.path",
            "core.sshcommand",
            "core.askpass",
            "core.worktree",
            "protocol.ext.allow",
            "extensions.worktreeconfig",
            "fetch.bundleuri",
        ] {
            let mut state = good();
            state.config.push((key.to_owned(), "x".to_owned()));
            let refusal = may_write(&terms(), &state).expect_err(key);
            assert_eq!(refusal.code, Code::HostileConfig);
            assert!(refusal.message.contains(key), "{}", refusal.message);
        }
    }
}
