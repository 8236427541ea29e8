//! A child as data: which program, with which words, in which bounds, and what came of it.
//!
//! Nothing is inherited that is not written here: the environment is exactly `env`, and the only
//! descriptors are the three standard streams, all pipes.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::grants::Grants;
use super::kernel::KernelSupport;

/// Whether the program may start others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExecRule {
    /// It starts nothing: not a program, and no process either. It has no socket.
    NoExec,
    /// As [`ExecRule::NoExec`], but it may make TCP streams, to the ports that its grants list. For a
    /// runtime such as node: threads, and memory that a just-in-time compiler makes executable.
    /// Timestamps that it sets are not set, though it is told they were; see
    /// [`super::seccomp::Profile::NoExecNetwork`].
    NoExecNetwork,
    /// It may start what its grants let it execute.
    Exec {
        /// Whether it may make TCP streams, to the ports that its grants list.
        network: bool,
    },
}

impl ExecRule {
    /// Whether the program may make TCP streams.
    #[must_use]
    pub const fn network(self) -> bool {
        matches!(self, Self::NoExecNetwork | Self::Exec { network: true })
    }
}

/// Bounds on what a child uses. Those on one process hold for each that it starts as well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildLimits {
    /// How long it may take, until it and all that it started is killed. A child that is started and
    /// not run to its end ([`super::launcher::Launcher::start`]) lives as long as its owner lets it.
    pub wall: Duration,
    /// When it is cancelled or too late, how long it has to end by itself after a SIGTERM; zero for a
    /// child that is killed at once.
    pub grace: Duration,
    /// Processor time, in seconds; `u64::MAX` for no bound.
    pub cpu_seconds: u64,
    /// Address space, in bytes; `None` leaves it as it is.
    pub address_space: Option<u64>,
    /// The longest file it may write, in bytes.
    pub file_size: u64,
    /// How many processes its user may have in all; `None` leaves it as it is. The kernel counts
    /// every process and thread of that user, ours too.
    pub processes: Option<u64>,
    /// How many descriptors it may have open.
    pub open_files: u64,
}

/// One child to run.
#[derive(Debug, Clone)]
pub struct ChildSpec {
    /// The program's absolute path. With [`ExecRule::NoExec`] and [`ExecRule::NoExecNetwork`] it must
    /// be an ELF program: a script would need a second program.
    pub program: PathBuf,
    /// What the program is told its own name is.
    pub argv0: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Its whole environment.
    pub env: Vec<(OsString, OsString)>,
    /// Its working directory, an absolute path. Being there needs no grant; reading it does.
    pub cwd: PathBuf,
    /// What it may reach. The program, its loader and its libraries must be among it: see
    /// [`super::grants::program`] and [`super::grants::system_libraries`].
    pub grants: Grants,
    /// Whether it may start programs.
    pub exec: ExecRule,
    /// What it may use.
    pub limits: ChildLimits,
    /// The mode bits that files it makes do not get.
    pub umask: u32,
    /// What it reads on standard input, to the end.
    pub stdin: Vec<u8>,
    /// How many bytes of its standard output are kept. The rest is read and dropped.
    pub max_stdout: usize,
    /// How many bytes of its standard error are kept. The rest is read and dropped.
    pub max_stderr: usize,
}

/// What came of a child that ran to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildOutput {
    /// How it ended.
    pub status: ExitStatus,
    /// The beginning of its standard output.
    pub stdout: Vec<u8>,
    /// The beginning of its standard error.
    pub stderr: Vec<u8>,
    /// Whether there was more standard output.
    pub stdout_truncated: bool,
    /// Whether there was more standard error.
    pub stderr_truncated: bool,
}

/// Why a child did not run to its end. In every case it and all that it started is gone.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// It took too long.
    #[error("timed out after {} ms", after.as_millis())]
    TimedOut {
        /// The limit that it reached.
        after: Duration,
    },
    /// The caller cancelled.
    #[error("cancelled")]
    Cancelled,
    /// It could not be started, or watched.
    #[error("cannot run a child: {0}")]
    Spawn(#[from] io::Error),
    /// It could not be confined, so the program was never run.
    #[error("cannot confine a child: {0}")]
    Setup(String),
}

/// The exit status of a launcher role that failed before it became the program.
pub(crate) const SETUP_FAILED: u8 = 125;
/// The longest frame that the role accepts, in bytes.
pub(crate) const LONGEST_FRAME: usize = 1 << 20;

/// What the launcher role is told, as the first bytes of its standard input: a length (four bytes,
/// big-endian), then this as JSON. The rest of standard input is the program's.
///
/// Not an argument, which everyone can read, and not the environment, which has a size limit and
/// which the kernel would go on showing.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Frame {
    pub(crate) program: PathBuf,
    pub(crate) argv0: OsString,
    pub(crate) args: Vec<OsString>,
    pub(crate) env: Vec<(OsString, OsString)>,
    pub(crate) cwd: PathBuf,
    pub(crate) grants: Grants,
    pub(crate) exec: ExecRule,
    pub(crate) limits: ChildLimits,
    pub(crate) umask: u32,
    pub(crate) kernel: KernelSupport,
    /// Who must still be the parent, once the parent's death is fatal.
    pub(crate) parent: u32,
    /// No descriptor that was inherited is higher.
    pub(crate) descriptors: u32,
    /// The inherited descriptor beside the standard streams that is the program's.
    pub(crate) keep: Option<i32>,
    /// A word that the program cannot know, which marks the role's own failure message.
    pub(crate) nonce: String,
}

impl Frame {
    /// The bytes to send.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, LaunchError> {
        let json =
            serde_json::to_vec(self).map_err(|error| LaunchError::Setup(error.to_string()))?;
        let length = u32::try_from(json.len()).unwrap_or(u32::MAX);
        if json.len() > LONGEST_FRAME {
            return Err(LaunchError::Setup(format!("its description is {length} bytes long")));
        }
        Ok([&length.to_be_bytes()[..], &json].concat())
    }

    /// Reads exactly one frame and not a byte beyond it.
    pub(crate) fn read(mut source: impl io::Read) -> io::Result<Self> {
        let mut length = [0; 4];
        source.read_exact(&mut length)?;
        let length = u32::from_be_bytes(length) as usize;
        if length > LONGEST_FRAME {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the description is too long"));
        }
        let mut json = vec![0; length];
        source.read_exact(&mut json)?;
        Ok(serde_json::from_slice(&json)?)
    }
}

/// How the role's failure message begins.
pub(crate) fn failure_mark(nonce: &str) -> String {
    format!("launch-failed:{nonce}:")
}
