//! `reserve_id`, and the locks that writing a record takes.

use policy::fence::{Permit, ReserveId};
use policy::path::RelPath;
use protocol::reply::Reserved;

use super::Failure;
use crate::git::repo;
use crate::records::REGISTRY;
use crate::workplace::{GitJob, Root, Workplace};
use confine::cancel::Cancel;

/// Reserves an id.
///
/// # Errors
/// `record_protocol`.
pub fn reserve_id(
    workplace: &Workplace,
    permit: &Permit<ReserveId>,
    cancel: &Cancel,
) -> Result<Reserved, Failure> {
    let root = &workplace.roots[permit.root()];
    let action = permit.action();
    let place = root.read(|| repo::locate(&root.path, None))?;
    let job = GitJob { workplace, root, place: &place, cancel };
    let records =
        job.records().ok_or_else(|| Failure::fault("the fence let a root without records pass"))?;
    let id = records.reserve(action.prefix.as_str(), &action.title)?;
    Ok(Reserved { id, registry: REGISTRY.to_owned() })
}

/// Does a write, holding the path's lock where the root follows the record protocol.
pub(crate) fn holding_lock<T>(
    workplace: &Workplace,
    root: &Root,
    path: &RelPath,
    cancel: &Cancel,
    write: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    if root.lock_owner.is_none() {
        return write();
    }
    let place = root.read(|| repo::locate(&root.path, None))?;
    let job = GitJob { workplace, root, place: &place, cancel };
    match job.records() {
        Some(records) => records.holding(path, write),
        None => {
            Err(Failure::fault("the record protocol has no Python; the start should have said so"))
        }
    }
}
