//! Running a child from the daemon's side.
//!
//! [`Launcher::run`] starts this same binary in its hidden role ([`ROLE`]), which confines itself
//! and becomes the program. So the daemon never forks: it uses the spawn of the standard library,
//! which copies no page tables, and no code runs between fork and exec.
//!
//! The call blocks the thread that makes it, until the child and all that it started is gone. That
//! is needed, not only convenient: the kernel kills the child when the thread that started it ends.
//!
//! [`Launcher::start`] is for a child that lives on: its owner holds its streams and its life, in a
//! [`LiveChild`].

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::Write as _;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{
    Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitCode, ExitStatus, Stdio,
};
use std::time::{Duration, Instant};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, kill_process_group, pidfd_open, waitpgid,
};

use super::cancel::Cancel;
use super::child::{ChildOutput, ChildSpec, Frame, LaunchError, SETUP_FAILED, failure_mark};
use super::kernel::KernelSupport;
use super::pump::{End, Pump};
use super::{fds, role};

/// The hidden role's name, the binary's only argument. `main` calls [`role_main`] for it before
/// anything else, while it has one thread.
pub const ROLE: &str = "launch";

/// Runs the hidden role. Returns only when it failed, having said so on standard error.
#[must_use]
pub fn role_main() -> ExitCode {
    role::main()
}

/// Starts children. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Launcher {
    self_exe: PathBuf,
    kernel: KernelSupport,
}

impl Launcher {
    /// A launcher that re-executes the running binary, whatever became of its path since.
    #[must_use]
    pub fn new(kernel: KernelSupport) -> Self {
        Self::with_binary("/proc/self/exe", kernel)
    }

    /// A launcher whose role another binary plays, for tests: it must call [`role_main`].
    pub fn with_binary(binary: impl AsRef<Path>, kernel: KernelSupport) -> Self {
        fds::prepare();
        Self { self_exe: binary.as_ref().to_owned(), kernel }
    }

    /// Runs a child to its end and returns what it said. When this returns, however it returns,
    /// the child is dead and reaped, and so is everything that stayed in its process group; nothing
    /// that it can start is able to leave the group.
    ///
    /// # Errors
    /// See [`LaunchError`]. A program that ran and failed is no error: see
    /// [`ChildOutput::status`].
    pub fn run(&self, spec: &ChildSpec, cancel: &Cancel) -> Result<ChildOutput, LaunchError> {
        let deadline = deadline(spec.limits.wall)?;
        if cancel.is_cancelled() {
            return Err(LaunchError::Cancelled);
        }
        require_consistent(spec)?;
        let nonce = nonce();
        let mut group = Group::spawn(&self.self_exe)?;
        let mut input = self.frame(spec, &nonce, None).encode()?;
        input.extend_from_slice(&spec.stdin);
        let mut pump = Pump::new(&mut group.leader, input, spec.max_stdout, spec.max_stderr)?;
        let cut_short = match pump.run(&group.pidfd, cancel, deadline)? {
            End::Cancelled => Some(LaunchError::Cancelled),
            End::TimedOut => Some(LaunchError::TimedOut { after: spec.limits.wall }),
            End::Exited => None,
        };
        if let Some(error) = cut_short {
            group.cut_short(spec.limits.grace);
            return Err(error);
        }
        let status = group.kill_and_reap()?;
        // All writers are gone now, so what is left in the pipes is all there is.
        let (stdout, stderr) = pump.finish()?;
        if status.code() == Some(i32::from(SETUP_FAILED)) {
            let text = String::from_utf8_lossy(&stderr.kept);
            if let Some(reason) = text.strip_prefix(&failure_mark(&nonce)) {
                return Err(LaunchError::Setup(reason.trim().to_owned()));
            }
        }
        Ok(ChildOutput {
            status,
            stdout: stdout.kept,
            stderr: stderr.kept,
            stdout_truncated: stdout.truncated,
            stderr_truncated: stderr.truncated,
        })
    }

    /// Starts a child that lives until its [`LiveChild`] is dropped, or it ends by itself, **or the
    /// calling thread ends** (once it runs; a thread that ends before may leave it to its owner). Nothing bounds its time and output but its owner: `limits.wall`,
    /// `max_stdout` and `max_stderr` are not used. Blocks for the moment that it takes to start.
    ///
    /// `keep` becomes the child's, open under its present number, and is closed here. It is the only
    /// descriptor beside the standard streams that the child gets.
    ///
    /// # Errors
    /// As [`Self::run`]. That the child could not be confined shows later: see
    /// [`LiveChild::setup_failure`].
    pub fn start(&self, spec: &ChildSpec, keep: Option<OwnedFd>) -> Result<LiveChild, LaunchError> {
        require_consistent(spec)?;
        let nonce = nonce();
        let number = keep.as_ref().map(AsRawFd::as_raw_fd);
        // From here until it is closed below, whatever else this process starts inherits it as well.
        // The launcher role closes it; nothing else may be started meanwhile.
        keep.as_ref()
            .map_or(Ok(()), |kept| fcntl_setfd(kept, FdFlags::empty()))
            .map_err(|error| LaunchError::Spawn(error.into()))?;
        let group = Group::spawn(&self.self_exe);
        drop(keep);
        let mut group = group?;
        let mut input = self.frame(spec, &nonce, number).encode()?;
        input.extend_from_slice(&spec.stdin);
        let streams =
            (group.leader.stdin.take(), group.leader.stdout.take(), group.leader.stderr.take());
        let (Some(mut stdin), Some(stdout), Some(stderr)) = streams else {
            return Err(LaunchError::Setup("the streams of a child are not there".to_owned()));
        };
        stdin.write_all(&input)?;
        Ok(LiveChild { streams: Some((stdin, stdout, stderr)), nonce, group })
    }

    fn frame(&self, spec: &ChildSpec, nonce: &str, keep: Option<i32>) -> Frame {
        Frame {
            program: spec.program.clone(),
            argv0: spec.argv0.clone(),
            args: spec.args.clone(),
            env: spec.env.clone(),
            cwd: spec.cwd.clone(),
            grants: spec.grants.clone(),
            exec: spec.exec,
            limits: spec.limits.clone(),
            umask: spec.umask,
            kernel: self.kernel,
            parent: std::process::id(),
            // Asked after the child was started, so no inherited descriptor is above it.
            descriptors: fds::bound(),
            keep,
            nonce: nonce.to_owned(),
        }
    }
}

/// A child that lives on. Dropped, it is killed and reaped.
#[derive(Debug)]
pub struct LiveChild {
    streams: Option<(ChildStdin, ChildStdout, ChildStderr)>,
    nonce: String,
    group: Group,
}

impl LiveChild {
    /// Its standard streams: the first time only.
    pub fn take_streams(&mut self) -> Option<(ChildStdin, ChildStdout, ChildStderr)> {
        self.streams.take()
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.group.leader.id()
    }

    /// Kills it, with whatever is in its process group, and waits until it is gone.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub fn kill(mut self) -> Result<ExitStatus, LaunchError> {
        self.group.kill_and_reap()
    }

    /// Why it could not be confined, from what it said on standard error before it ended. `None` when
    /// the program was reached: then what it said is its own.
    #[must_use]
    pub fn setup_failure<'a>(&self, stderr: &'a str) -> Option<&'a str> {
        stderr.strip_prefix(&failure_mark(&self.nonce)).map(str::trim)
    }
}

/// Ports without sockets, or sockets without ports, is a mistake of the caller's.
fn require_consistent(spec: &ChildSpec) -> Result<(), LaunchError> {
    if spec.exec.network() == spec.grants.connect_ports.is_empty() {
        return Err(LaunchError::Setup("network and granted ports do not agree".to_owned()));
    }
    if !spec.program.is_absolute() || !spec.cwd.is_absolute() {
        return Err(LaunchError::Setup("program and folder must be absolute paths".to_owned()));
    }
    Ok(())
}

fn deadline(wall: Duration) -> Result<Instant, LaunchError> {
    let too_long = || LaunchError::Setup("its time limit is beyond all clocks".to_owned());
    Instant::now().checked_add(wall).ok_or_else(too_long)
}

/// A word that nobody who was not told it can guess: what keyed hashing draws from the kernel.
fn nonce() -> String {
    let word = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", word(), word())
}

/// A child that leads a process group of its own. Dropped, it is killed and reaped.
#[derive(Debug)]
struct Group {
    leader: Child,
    pid: Pid,
    pidfd: OwnedFd,
    reaped: bool,
}

impl Group {
    fn spawn(binary: &Path) -> Result<Self, LaunchError> {
        let mut leader = Command::new(binary)
            .arg(ROLE)
            .env_clear()
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let pid = Pid::from_child(&leader);
        match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => Ok(Self { leader, pid, pidfd, reaped: false }),
            Err(error) => {
                let _ = leader.kill();
                let _ = leader.wait();
                Err(LaunchError::Spawn(error.into()))
            }
        }
    }

    /// Asks the group to end, where it has time for that, and kills what is left of it then.
    fn cut_short(&mut self, grace: Duration) {
        let until = Instant::now() + grace;
        if !grace.is_zero() {
            let _ = kill_process_group(self.pid, Signal::TERM);
        }
        while Instant::now() < until {
            match waitpgid(self.pid, WaitOptions::NOHANG) {
                Ok(Some(_)) => {}
                Ok(None) => std::thread::sleep(Duration::from_millis(2)),
                // Nobody is left, so that the number may soon be somebody else's.
                Err(_) => return self.reaped = true,
            }
        }
        let _ = kill_process_group(self.pid, Signal::KILL);
        while let Ok(Some(_)) = waitpgid(self.pid, WaitOptions::empty()) {}
        self.reaped = true;
    }

    /// Kills whatever is left of the group, and waits until it is gone.
    ///
    /// The leader is reaped after the signal: until then its number can belong to nobody else.
    fn kill_and_reap(&mut self) -> Result<std::process::ExitStatus, LaunchError> {
        let _ = kill_process_group(self.pid, Signal::KILL);
        let status = self.leader.wait()?;
        self.reaped = true;
        // Orphans of the group become our children, as the daemon is a subreaper. Where it is not,
        // init reaps them and there is nothing to wait for.
        while let Ok(Some(_)) = waitpgid(self.pid, WaitOptions::empty()) {}
        debug_assert!(status.code().is_some() || status.signal().is_some());
        Ok(status)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.reaped {
            let _ = self.kill_and_reap();
        }
    }
}
