//! Calls, as short as a test wants to write them.

use protocol::tool::{
    EditFile, GitBranches, GitCommit, GitDiff, GitLog, GitPull, GitPush, GitShow, GitStatus,
    ListFiles, ListRoots, Prefix, ReadFile, ReadOutput, ReserveId, SearchFiles, ToolCall, WebFetch,
    WebSearch, WriteFile,
};

/// The name of the root that every world has.
pub const ROOT: &str = "strategy";

fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// `list_roots`.
#[must_use]
pub fn list_roots() -> ToolCall {
    ToolCall::ListRoots(ListRoots::default())
}

/// `list_files` below a folder (empty for the root itself), with a glob (empty for none).
#[must_use]
pub fn list(root: &str, folder: &str, glob: &str) -> ToolCall {
    ToolCall::ListFiles(ListFiles { root: root.to_owned(), path: some(folder), glob: some(glob) })
}

/// `read_file`, from the start.
#[must_use]
pub fn read(root: &str, path: &str) -> ToolCall {
    read_part(root, path, None, None)
}

/// `read_file`, a part.
#[must_use]
pub fn read_part(root: &str, path: &str, offset: Option<u64>, limit: Option<u64>) -> ToolCall {
    ToolCall::ReadFile(ReadFile { root: root.to_owned(), path: path.to_owned(), offset, limit })
}

/// `search_files` below a folder or in a file (empty for the root itself).
#[must_use]
pub fn search(root: &str, pattern: &str, path: &str) -> ToolCall {
    ToolCall::SearchFiles(SearchFiles {
        root: root.to_owned(),
        pattern: pattern.to_owned(),
        path: some(path),
        glob: None,
    })
}

/// `write_file`.
#[must_use]
pub fn write(root: &str, path: &str, text: &str) -> ToolCall {
    ToolCall::WriteFile(WriteFile {
        root: root.to_owned(),
        path: path.to_owned(),
        text: text.to_owned(),
    })
}

/// `edit_file`.
#[must_use]
pub fn edit(root: &str, path: &str, old: &str, new: &str) -> ToolCall {
    ToolCall::EditFile(EditFile {
        root: root.to_owned(),
        path: path.to_owned(),
        old: old.to_owned(),
        new: new.to_owned(),
        ..Default::default()
    })
}

/// `git_status` of the repository that holds a path (empty for the root itself).
#[must_use]
pub fn status(root: &str, path: &str) -> ToolCall {
    ToolCall::GitStatus(GitStatus { root: root.to_owned(), path: some(path) })
}

/// `git_diff` of a spec (empty for the work tree) and a path (empty for all).
#[must_use]
pub fn diff(root: &str, spec: &str, path: &str) -> ToolCall {
    ToolCall::GitDiff(GitDiff {
        root: root.to_owned(),
        spec: some(spec),
        path: some(path),
        ..Default::default()
    })
}

/// `git_diff` of the work tree, at most so many bytes of it at once.
#[must_use]
pub fn short_diff(root: &str, max_bytes: u64) -> ToolCall {
    ToolCall::GitDiff(GitDiff {
        root: root.to_owned(),
        max_bytes: Some(max_bytes),
        ..Default::default()
    })
}

/// `git_log` of a range (empty for HEAD) and a path (empty for all).
#[must_use]
pub fn log(root: &str, range: &str, path: &str, limit: u32) -> ToolCall {
    ToolCall::GitLog(GitLog {
        root: root.to_owned(),
        range: some(range),
        path: some(path),
        limit: Some(limit),
    })
}

/// `git_show`, with a path (empty for all).
#[must_use]
pub fn show(root: &str, rev: &str, path: &str) -> ToolCall {
    ToolCall::GitShow(GitShow {
        root: root.to_owned(),
        rev: rev.to_owned(),
        path: some(path),
        ..Default::default()
    })
}

/// `git_branches` of the repository that holds a path (empty for the root itself).
#[must_use]
pub fn branches(root: &str, path: &str) -> ToolCall {
    ToolCall::GitBranches(GitBranches { root: root.to_owned(), path: some(path) })
}

/// `read_output`.
#[must_use]
pub fn read_output(handle: &str, offset: u64) -> ToolCall {
    ToolCall::ReadOutput(ReadOutput { handle: handle.to_owned(), offset })
}

/// `git_commit`.
#[must_use]
pub fn commit(root: &str, message: &str, paths: &[&str]) -> ToolCall {
    ToolCall::GitCommit(GitCommit {
        root: root.to_owned(),
        message: message.to_owned(),
        paths: paths.iter().map(|path| (*path).to_owned()).collect(),
    })
}

/// `reserve_id`, for a decision.
#[must_use]
pub fn reserve(root: &str, title: &str) -> ToolCall {
    let (root, title) = (root.to_owned(), title.to_owned());
    ToolCall::ReserveId(ReserveId { root, prefix: Prefix::Dec, title })
}

/// `git_pull`.
#[must_use]
pub fn pull(root: &str) -> ToolCall {
    ToolCall::GitPull(GitPull { root: root.to_owned() })
}

/// `git_push`.
#[must_use]
pub fn push(root: &str) -> ToolCall {
    ToolCall::GitPush(GitPush { root: root.to_owned() })
}

/// `web_fetch`.
#[must_use]
pub fn web_fetch(url: &str) -> ToolCall {
    ToolCall::WebFetch(WebFetch { url: url.to_owned() })
}

/// `web_search`.
#[must_use]
pub fn web_search(query: &str) -> ToolCall {
    ToolCall::WebSearch(WebSearch { query: query.to_owned() })
}
