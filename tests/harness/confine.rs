//! Children to confine, and a ground to confine them to.
//!
//! Two attackers: python, which makes any system call we like without a line of unsafe code here, and
//! [`attempts`], which threads and the helper program `confine-probe` make.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use ::confine::child::{ChildLimits, ChildSpec, ExecRule};
use ::confine::grants::{self, Grant, Grants, Rights};
use tempfile::TempDir;

use crate::git::Repo;

/// What the git children of these tests are told.
const GIT_ENV: [(&str, &str); 7] = [
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_AUTHOR_NAME", "Test"),
    ("GIT_AUTHOR_EMAIL", "test@example.invalid"),
    ("GIT_COMMITTER_NAME", "Test"),
    ("GIT_COMMITTER_EMAIL", "test@example.invalid"),
    ("LC_ALL", "C"),
];

/// Defines attempts as python functions: each prints its name and the error number, or 0.
const PRELUDE: &str = r"
import ctypes, os, socket, sys, time
libc = ctypes.CDLL(None, use_errno=True)
def attempt(name, action):
    try:
        action()
        number = 0
    except OSError as error:
        number = error.errno
    print(name, number, flush=True)
def call(*arguments):
    if libc.syscall(*[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]) < 0:
        raise OSError(ctypes.get_errno(), 'call')
";

/// The attacker's program.
///
/// # Panics
/// When there is none.
#[must_use]
pub fn python_program() -> &'static Path {
    let usual = ["/usr/bin/python3", "/usr/local/bin/python3", "/bin/python3"];
    let found = usual.into_iter().map(Path::new).find(|path| path.is_file());
    found.expect("python3 is installed")
}

/// Python code, with what makes attempts before it.
#[must_use]
pub fn attack(code: &str) -> String {
    format!("{PRELUDE}{code}")
}

/// Runs an attack in a process that nothing confines: the control of every refusal.
///
/// # Panics
/// When it does not start.
#[must_use]
pub fn unconfined(code: &str, folder: &Path) -> String {
    let output = Command::new(python_program())
        .args(["-I", "-S", "-c", &attack(code)])
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .expect("python starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("it is UTF-8")
}

/// Generous bounds.
#[must_use]
pub fn limits() -> ChildLimits {
    ChildLimits {
        wall: Duration::from_secs(120),
        grace: Duration::ZERO,
        cpu_seconds: 60,
        address_space: Some(4 << 30),
        file_size: 64 << 20,
        processes: None,
        open_files: 256,
    }
}

/// A program that has what every program needs, and `files` besides.
///
/// # Panics
/// When it is no ELF program.
#[must_use]
pub fn child(program: &Path, args: &[&str], files: Vec<Grant>) -> ChildSpec {
    let mut all = grants::program(program, "the program under test").expect("it is an ELF program");
    all.extend(grants::system_libraries());
    all.push(grants::dev_null());
    all.extend(files);
    ChildSpec {
        program: program.into(),
        argv0: program.into(),
        args: args.iter().map(OsString::from).collect(),
        env: Vec::new(),
        cwd: "/".into(),
        grants: Grants::files(all),
        exec: ExecRule::Exec { network: false },
        limits: limits(),
        umask: 0o022,
        stdin: Vec::new(),
        max_stdout: 1 << 20,
        max_stderr: 1 << 20,
    }
}

/// A python child that makes an attack.
#[must_use]
pub fn python(code: &str, files: Vec<Grant>) -> ChildSpec {
    child(python_program(), &["-I", "-S", "-c", &attack(code)], files)
}

/// A shell child that may also run `sleep` and `cat`.
///
/// # Panics
/// When the machine has no such programs.
#[must_use]
pub fn shell(code: &str, mut files: Vec<Grant>) -> ChildSpec {
    for program in ["/bin/sleep", "/bin/cat"] {
        files.extend(grants::program(Path::new(program), "a small program").expect("it is there"));
    }
    child(Path::new("/bin/sh"), &["-c", code], files)
}

/// A git child that starts nothing, in this repository.
#[must_use]
pub fn git(program: &Path, args: &[&str], repository: &Path, rights: Rights) -> ChildSpec {
    let files = vec![
        Grant::new(repository, rights, "the repository"),
        Grant::new("/dev/urandom", Rights::READ_FILE, "names of temporary files"),
    ];
    let mut spec = child(program, args, files);
    spec.exec = ExecRule::NoExec;
    spec.cwd = repository.to_owned();
    spec.env = GIT_ENV.iter().map(|(name, value)| (name.into(), value.into())).collect();
    spec
}

/// A folder with a tree to grant and a file beside it; gone when dropped.
#[derive(Debug)]
pub struct Ground {
    path: PathBuf,
    _folder: TempDir,
}

impl Ground {
    /// Makes it.
    ///
    /// # Panics
    /// When the machine has no room for it.
    #[must_use]
    pub fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("sage-test-").tempdir().expect("a folder");
        let path = folder.path().canonicalize().expect("it is there");
        fs::create_dir(path.join("tree")).expect("a folder can be made");
        fs::write(path.join("tree/inside"), "inside").expect("a file can be written");
        fs::write(path.join("outside"), "outside").expect("a file can be written");
        Self { path, _folder: folder }
    }

    /// A path in it.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Rights on the tree.
    #[must_use]
    pub fn tree(&self, rights: Rights) -> Vec<Grant> {
        vec![Grant::new(self.path("tree"), rights, "the tree")]
    }

    /// A repository in the tree, with one commit on `main`.
    #[must_use]
    pub fn repository(&self, git: &Path) -> Repo {
        let repo = Repo::at(self.path("tree"), git);
        repo.git(&["init", "--quiet", "--template=", "-b", "main"]);
        repo.commit_all("first");
        repo
    }
}

impl Default for Ground {
    fn default() -> Self {
        Self::new()
    }
}

/// Makes each attempt (`WHAT OBJECT`, one per line) and returns one line of error numbers, 0 for
/// success: `read`, `write` and `make` take a path, `exec` a program, `connect` a port. A single line
/// `escapes AIM` makes those of [`crate::escapes`] instead.
///
/// # Panics
/// When a line is no attempt.
#[must_use]
pub fn attempts(lines: &str) -> String {
    if let Some(aim) = lines.strip_prefix("escapes ") {
        return crate::escapes::try_all(&serde_json::from_str(aim).expect("an aim"));
    }
    let numbers: Vec<String> =
        lines.lines().map(|line| number(attempt(line)).to_string()).collect();
    numbers.join(" ")
}

fn attempt(line: &str) -> io::Result<()> {
    let (what, object) = line.split_once(' ').expect("what to attempt, and on what");
    match what {
        "read" => fs::read(object).map(drop),
        "write" => File::options().append(true).open(object).map(drop),
        "make" => fs::create_dir(object).and_then(|()| fs::remove_dir(object)),
        "exec" => {
            let status = Command::new(object).args(["-c", "exit 0"]).status()?;
            assert!(status.success(), "{object}: {status}");
            Ok(())
        }
        "connect" => {
            let port: u16 = object.parse().expect("a port");
            TcpStream::connect((Ipv4Addr::LOCALHOST, port)).map(drop)
        }
        other => panic!("{other:?} is nothing to attempt"),
    }
}

/// The number of the error that the kernel gave, or 0 for success.
///
/// # Panics
/// When the error is not the kernel's.
pub fn number<T>(result: io::Result<T>) -> i32 {
    result.err().map_or(0, |error| error.raw_os_error().expect("a kernel's error"))
}
