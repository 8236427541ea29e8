//! Starting programs by every way that there is, and descriptors that are there already.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::Path;
use std::process::{Command, Stdio};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags};
use policy::authority::{Exec, Network, Row as AuthorityRow};
use rustix::fs::OFlags;

use super::Barrier::Row;
use super::{ALLOWED, Attempt, EACCES, EPERM, attempt, open};

const TRUE: &CStr = c"/bin/true";
const NOTHING: &[&CStr] = &[];
/// No row opens more than this.
const DESCRIPTORS: std::ops::Range<RawFd> = 3..512;

pub(super) const TABLE: &[Attempt] = &[
    attempt("execve", Row(other), |_| Ok(nix::unistd::execve(TRUE, &[TRUE], NOTHING).map(drop)?)),
    attempt("execveat-path", Row(other_by_descriptor), |_| {
        Ok(nix::unistd::execveat(AT_FDCWD, TRUE, &[TRUE], NOTHING, AtFlags::empty()).map(drop)?)
    }),
    attempt("execveat-descriptor", Row(other_by_descriptor), |_| {
        let file = open(Path::new("/bin/true"), OFlags::PATH)?;
        Ok(nix::unistd::execveat(file, c"", &[TRUE], NOTHING, AtFlags::AT_EMPTY_PATH).map(drop)?)
    }),
    attempt("execveat-every-number", Row(other_by_descriptor), |_| {
        under_every_number(Path::new("/bin/true"), &[TRUE])
    }),
    attempt("the-loader-by-every-number", Row(other_by_descriptor), |_| {
        under_every_number(&loader(), &[c"ld.so", TRUE])
    }),
    attempt("spawn-a-shell", Row(shell), |_| spawn("/bin/sh", &["-c", "exit 0"])),
    attempt("spawn-another", Row(other), |_| spawn("/bin/true", &[])),
    attempt("spawn-a-file-of-the-root", Row(other), |aim| {
        let program = aim.tree.join("program");
        spawn(program.to_str().expect("UTF-8"), &[])
    }),
    attempt("spawn-a-setuid-program", Row(other), |_| spawn("/bin/su", &["--version"])),
    attempt("spawn-the-helper", Row(helper), |aim| spawn(aim.helper.to_str().expect("UTF-8"), &[])),
    attempt("the-loader-runs-another", Row(other), |_| {
        spawn(loader().to_str().expect("UTF-8"), &["/bin/true"])
    }),
    attempt("the-loader-runs-the-helper", Row(helper), |aim| {
        let helper = aim.helper.to_str().expect("UTF-8");
        spawn(loader().to_str().expect("UTF-8"), &[helper])
    }),
    attempt("an-inherited-descriptor", Row(inherited), |_| {
        // Closing is asking: nobody here uses one that it did not open itself.
        let open = DESCRIPTORS.filter(|number| nix::unistd::close(*number).is_ok()).count();
        if open > 0 { Ok(()) } else { Err(Errno::EBADF.into()) }
    }),
];

/// The loader that this program itself was started by, so that rows that start programs have it.
fn loader() -> std::path::PathBuf {
    let found = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"].map(Path::new);
    let found = found.into_iter().find(|path| std::fs::metadata(path).is_ok());
    found.expect("a loader").to_path_buf()
}

/// Executes a file from a descriptor, under every number that it can have: a filter may let one pass.
fn under_every_number(path: &Path, words: &[&CStr]) -> io::Result<()> {
    let mut file = open(path, OFlags::PATH)?;
    loop {
        let empty = AtFlags::AT_EMPTY_PATH;
        match nix::unistd::execveat(&file, c"", words, NOTHING, empty) {
            Err(Errno::EPERM) => {}
            other => return Ok(other.map(drop)?),
        }
        let Ok(copy) = rustix::io::fcntl_dupfd_cloexec(&file, file.as_raw_fd() + 1) else {
            return Err(Errno::EPERM.into());
        };
        file = copy;
    }
}

fn spawn(program: &str, words: &[&str]) -> io::Result<()> {
    // Nothing is opened for it: that would be refused before the program is.
    let status = Command::new(program).args(words).stdin(Stdio::inherit()).output()?.status;
    // A loader says no by its status.
    if status.success() { Ok(()) } else { Err(Errno::EACCES.into()) }
}

fn starts(row: &AuthorityRow, may: bool) -> i32 {
    match row.exec {
        Exec::GitRemoteHttps | Exec::GitLocalRemote if may => ALLOWED,
        Exec::GitRemoteHttps | Exec::GitLocalRemote => EACCES,
        Exec::None | Exec::Git | Exec::Python | Exec::Itself => EPERM,
    }
}

fn other(row: &AuthorityRow) -> i32 {
    starts(row, false)
}

/// No row executes by descriptor: git and its shell have no use for it.
fn other_by_descriptor(_: &AuthorityRow) -> i32 {
    EPERM
}

fn shell(row: &AuthorityRow) -> i32 {
    starts(row, row.exec == Exec::GitLocalRemote)
}

fn helper(row: &AuthorityRow) -> i32 {
    starts(row, row.exec == Exec::GitRemoteHttps)
}

/// One row is handed a connection.
fn inherited(row: &AuthorityRow) -> i32 {
    if row.network == Network::OneConnection { ALLOWED } else { Errno::EBADF as i32 }
}
