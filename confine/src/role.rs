//! The hidden role: this binary, just started, single-threaded, on its way to becoming a program.
//!
//! A straight sequence. Each step either holds or ends the process with a message that the daemon
//! can tell from the program's own.

use std::convert::Infallible;
use std::ffi::{CString, OsStr, OsString};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

use nix::fcntl::AtFlags;
use nix::unistd::{execve, execveat};
use rustix::fs::{Mode, OFlags};
use rustix::process::{
    Resource, Signal, chdir, getppid, getrlimit, set_parent_process_death_signal, umask,
};

use super::ConfineError;
use super::child::{ChildLimits, ExecRule, Frame, SETUP_FAILED, failure_mark};
use super::domain::Domain;
use super::seccomp::{self, Profile};
use super::{fds, privileges};

/// Becomes the program, or says why not.
pub(crate) fn main() -> ExitCode {
    // The descriptor itself, not the standard library's buffered reader: what follows the frame
    // belongs to the program.
    let frame = match Frame::read(Unbuffered) {
        Ok(frame) => frame,
        // Without a frame there is no nonce; the daemon reports the message as the program's.
        Err(error) => return fail("", &error),
    };
    match become_program(&frame) {
        Ok(never) => match never {},
        Err(error) => fail(&frame.nonce, &error),
    }
}

fn become_program(frame: &Frame) -> Result<Infallible, ConfineError> {
    die_with_parent(frame.parent)?;
    fds::close_all_but(frame.keep.as_slice(), frame.descriptors);
    chdir(&frame.cwd).map_err(|error| ConfineError::system("entering the folder", error))?;
    umask(Mode::from_raw_mode(frame.umask));
    let (program, open_files) = open_program(&frame.program, frame.limits.open_files)?;
    let words = Words::new(frame)?;
    let domain = Domain::build(&frame.grants, &frame.kernel)?;
    limit(&frame.limits)?;
    privileges::limit(Resource::Nofile, open_files)?;
    privileges::not_dumpable()?;
    privileges::drop_capabilities()?;
    privileges::no_new_privileges()?;
    domain.restrict_self()?;
    // The ruleset must not be there for the program to find.
    drop(domain);
    seccomp::install(profile(frame.exec, &program))?;
    match frame.exec {
        ExecRule::NoExec | ExecRule::NoExecNetwork => {
            execveat(&program, c"", &words.args, &words.env, AtFlags::AT_EMPTY_PATH)
        }
        ExecRule::Exec { .. } => execve(&words.program, &words.args, &words.env),
    }
    .map_err(|error| ConfineError::system("executing the program", error))
}

/// Ties this process's life to the daemon's. Without the second look, a daemon that died before
/// the first line would leave it running.
fn die_with_parent(parent: u32) -> Result<(), ConfineError> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| ConfineError::system("tying its life to the parent's", error))?;
    let now = getppid().map(|pid| pid.as_raw_nonzero().get().unsigned_abs());
    if now == Some(parent) {
        return Ok(());
    }
    Err(ConfineError::system("finding its parent", io::Error::other("the parent is gone")))
}

/// Opens the program without reading it, to be executed from the descriptor. Says how many
/// descriptors the process may have from then on.
///
/// The filter lets the process become whatever has the descriptor's number, for as long as it lives.
/// So the number is the limit itself: nothing can be opened or duplicated onto it again.
fn open_program(path: &Path, open_files: u64) -> Result<(OwnedFd, u64), ConfineError> {
    let opening = |error: rustix::io::Errno| {
        ConfineError::system("opening the program", io::Error::from(error))
    };
    let program = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let program = program.map_err(opening)?;
    let most = getrlimit(Resource::Nofile).current.map_or(open_files, |now| now.saturating_sub(1));
    let number = open_files.min(most);
    let least = RawFd::try_from(number).unwrap_or(RawFd::MAX);
    let program = rustix::io::fcntl_dupfd_cloexec(&program, least).map_err(opening)?;
    if program.as_raw_fd() != least {
        let taken = io::Error::other("its number is taken");
        return Err(ConfineError::system("opening the program", taken));
    }
    Ok((program, number))
}

fn profile(rule: ExecRule, program: &OwnedFd) -> Profile {
    match rule {
        ExecRule::NoExec => Profile::NoExec { exec_fd: program.as_raw_fd() },
        ExecRule::NoExecNetwork => Profile::NoExecNetwork { exec_fd: program.as_raw_fd() },
        ExecRule::Exec { network } => Profile::Exec { network },
    }
}

fn limit(limits: &ChildLimits) -> Result<(), ConfineError> {
    privileges::limit(Resource::Core, 0)?;
    privileges::limit(Resource::Cpu, limits.cpu_seconds)?;
    privileges::limit(Resource::Fsize, limits.file_size)?;
    if let Some(bytes) = limits.address_space {
        privileges::limit(Resource::As, bytes)?;
    }
    if let Some(processes) = limits.processes {
        privileges::limit(Resource::Nproc, processes)?;
    }
    Ok(())
}

/// The program's words as the kernel takes them.
struct Words {
    program: CString,
    args: Vec<CString>,
    env: Vec<CString>,
}

impl Words {
    fn new(frame: &Frame) -> Result<Self, ConfineError> {
        let args = std::iter::once(&frame.argv0).chain(&frame.args);
        let entry = |(name, value): &(OsString, OsString)| {
            let mut entry = name.clone();
            entry.push("=");
            entry.push(value);
            word(&entry)
        };
        Ok(Self {
            program: word(frame.program.as_os_str())?,
            args: args.map(|arg| word(arg)).collect::<Result<_, _>>()?,
            env: frame.env.iter().map(entry).collect::<Result<_, _>>()?,
        })
    }
}

fn word(text: &OsStr) -> Result<CString, ConfineError> {
    CString::new(text.as_bytes())
        .map_err(|error| ConfineError::system("preparing its arguments", io::Error::from(error)))
}

fn fail(nonce: &str, error: &dyn std::error::Error) -> ExitCode {
    // Nobody is left to hear of a failure to write this.
    let _ = writeln!(io::stderr(), "{}{error}", failure_mark(nonce));
    ExitCode::from(SETUP_FAILED)
}

/// Standard input, read no further than asked.
struct Unbuffered;

impl io::Read for Unbuffered {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(io::stdin(), buffer)?)
    }
}
