//! Closing what a confined thread or child must not inherit.
//!
//! Landlock judges opening, not using: a descriptor opened before stays usable inside any domain.
//! No safe wrapper of `close_range` exists, so this closes one by one, up to a bound that the kernel
//! gives: the size of the descriptor table.

use std::fs::File;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

use rustix::process::{Resource, getrlimit};

/// The first descriptor that is not a standard stream.
const FIRST: RawFd = 3;
/// Where the bound stops when a system sets no limit on open files.
const HIGHEST: u32 = 1 << 20;

/// Kept open because a Landlock domain refuses to open it later, and reading it stays allowed.
static STATUS: OnceLock<Option<File>> = OnceLock::new();

/// Opens what [`bound`] reads. Called before the daemon enters its domain, and always on a thread
/// that shares the process's descriptors: elsewhere the descriptor would mean something else.
pub(crate) fn prepare() {
    STATUS.get_or_init(|| File::open("/proc/self/status").ok());
}

/// One more than the highest descriptor that this process can have open now.
///
/// A table never shrinks, so a copy of it made before the call lies below the bound too.
pub(crate) fn bound() -> u32 {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::from(HIGHEST));
    table_size().unwrap_or_else(|| u32::try_from(limit).unwrap_or(HIGHEST).min(HIGHEST))
}

fn table_size() -> Option<u32> {
    let mut text = [0; 4096];
    let length = STATUS.get()?.as_ref()?.read_at(&mut text, 0).ok()?;
    let text = std::str::from_utf8(text.get(..length)?).ok()?;
    text.lines().find_map(|line| line.strip_prefix("FDSize:"))?.trim().parse().ok()
}

/// Closes every descriptor from 3 up to `bound` that is not in `keep`.
///
/// The caller owns none of them: it is a child just started, or a thread with a table of its own.
pub(crate) fn close_all_but(keep: &[RawFd], bound: u32) {
    for descriptor in FIRST..RawFd::try_from(bound).unwrap_or(RawFd::MAX) {
        if !keep.contains(&descriptor) {
            // Most numbers are not open; that is the only way this can fail to matter.
            let _ = nix::unistd::close(descriptor);
        }
    }
}

/// How many threads this process has.
///
/// # Errors
/// `/proc` cannot be read.
pub(crate) fn count_threads() -> io::Result<usize> {
    Ok(std::fs::read_dir("/proc/self/task")?.count())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn every_open_descriptor_lies_below_the_bound() {
        prepare();
        let files: Vec<File> =
            (0..300).map(|_| File::open("/dev/null").expect("a device")).collect();
        let highest = files.iter().map(AsRawFd::as_raw_fd).max().expect("some");
        assert!(table_size().is_some(), "the kernel tells the size");
        assert!(i64::from(highest) < i64::from(bound()));
    }
}
