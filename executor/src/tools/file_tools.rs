//! `list_files`, `read_file`, `write_file`, `edit_file`.

use policy::fence::{EditFile, ListFiles, Permit, ReadFile, WriteFile};
use policy::path::shown;
use protocol::refusal::Code;
use protocol::reply::{Edited, FileList, FileText, Untrusted, Written};

use super::files::{self, RootDir, floor_boundary, text_of};
use super::record_tools::holding_lock;
use super::{Failure, edit};
use crate::session::Session;
use crate::workplace::Workplace;
use confine::cancel::Cancel;

/// Lists files.
///
/// # Errors
/// See the refusal codes of [`files`].
pub fn list_files(
    workplace: &Workplace,
    permit: &Permit<ListFiles>,
    cancel: &Cancel,
) -> Result<FileList, Failure> {
    let root = &workplace.roots[permit.root()];
    root.read_cancellable(cancel, || {
        files::list(&root.path, permit.action(), workplace.limits.max_files, cancel)
    })
}

/// Reads a file, or a part of it.
///
/// # Errors
/// See the refusal codes of [`files`].
pub fn read_file(
    workplace: &Workplace,
    permit: &Permit<ReadFile>,
    session: &mut Session,
) -> Result<FileText, Failure> {
    let root = &workplace.roots[permit.root()];
    let action = permit.action();
    let limit = workplace.limits.max_file_bytes;
    let whole = root.read(|| RootDir::open(&root.path)?.read_whole(&action.path, limit))?;
    let text = text_of(&action.path, &whole)?;
    let start = floor_boundary(text, action.offset);
    let page = action
        .limit
        .unwrap_or(workplace.limits.max_bytes)
        .clamp(4, workplace.limits.max_file_bytes);
    let end = floor_boundary(text, (start as u64).saturating_add(page));
    let digest = whole.digest();
    let part = (start as u64, end as u64);
    session.read_part(permit.root(), action.path.as_str(), &digest, part, &whole.bytes);
    Ok(FileText {
        untrusted_text: Untrusted(text[start..end].to_owned()),
        offset: start as u64,
        next_offset: (end < text.len()).then_some(end as u64),
        size: text.len() as u64,
        digest,
    })
}

/// Creates or replaces a file.
///
/// # Errors
/// See the refusal codes of [`files`].
pub fn write_file(
    workplace: &Workplace,
    permit: &Permit<WriteFile>,
    session: &mut Session,
    cancel: &Cancel,
) -> Result<Written, Failure> {
    let root = &workplace.roots[permit.root()];
    let action = permit.action();
    let bytes = action.text.as_bytes();
    let write = || {
        root.write(|| {
            let mode = kept_mode(&root.path, &action.path)?;
            files::put(&root.path, &action.path, bytes, mode)
        })
    };
    let created = holding_lock(workplace, root, &action.path, cancel, write)?;
    session.seen_whole(permit.root(), action.path.as_str(), bytes);
    Ok(Written {
        path: action.path.as_str().to_owned(),
        created,
        size: bytes.len() as u64,
        digest: files::digest(bytes),
    })
}

fn kept_mode(root: &std::path::Path, path: &policy::path::RelPath) -> Result<Option<u32>, Failure> {
    let dir = RootDir::open(root)?;
    match dir.kind(path)? {
        Some(rustix::fs::FileType::RegularFile) => {
            use std::os::unix::fs::MetadataExt;
            let metadata = dir.regular_file(path)?.metadata().map_err(Failure::io)?;
            Ok(Some(metadata.mode() & 0o777))
        }
        _ => Ok(None),
    }
}

/// Replaces one text in a file.
///
/// # Errors
/// `no_match`, `several_matches`, `file_changed`, and the refusal codes of [`files`].
pub fn edit_file(
    workplace: &Workplace,
    permit: &Permit<EditFile>,
    cancel: &Cancel,
) -> Result<Edited, Failure> {
    let root = &workplace.roots[permit.root()];
    let action = permit.action();
    let limit = workplace.limits.max_file_bytes;
    let step = || {
        let before = RootDir::open(&root.path)?.read_whole(&action.path, limit)?;
        as_expected(action, &before.digest())?;
        let after = edit::replace_once(&before.bytes, action)?;
        if after.len() as u64 > limit {
            return Err(too_large(action, after.len(), limit));
        }
        if !action.dry_run {
            // What was read is what is replaced: nobody came between.
            let now = RootDir::open(&root.path)?.read_whole(&action.path, limit)?;
            as_expected_bytes(action, &before.bytes, &now.bytes)?;
            files::put(&root.path, &action.path, &after, Some(before.mode))?;
        }
        Ok((before.bytes, after))
    };
    let (before, after) = if action.dry_run {
        root.read(step)?
    } else {
        holding_lock(workplace, root, &action.path, cancel, || root.write(step))?
    };
    let diff = edit::unified(action.path.as_str(), &before, &after);
    Ok(Edited {
        path: action.path.as_str().to_owned(),
        untrusted_diff: Untrusted(policy::secret::mask(&diff).into_owned()),
        written: !action.dry_run,
        digest: files::digest(&after),
    })
}

fn too_large(action: &EditFile, size: usize, limit: u64) -> Failure {
    Failure::refuse(
        Code::TooLarge,
        format!("{} would have {size} bytes; the limit is {limit}.", shown(action.path.as_str())),
        "Split the file.",
    )
}

fn as_expected(action: &EditFile, digest: &str) -> Result<(), Failure> {
    match &action.expect {
        Some(expected) if expected != digest => Err(changed(action)),
        _ => Ok(()),
    }
}

fn as_expected_bytes(action: &EditFile, before: &[u8], now: &[u8]) -> Result<(), Failure> {
    if before == now { Ok(()) } else { Err(changed(action)) }
}

fn changed(action: &EditFile) -> Failure {
    Failure::refuse(
        Code::FileChanged,
        format!("{} changed since it was read.", shown(action.path.as_str())),
        "Read it again, then edit what is there now.",
    )
}
