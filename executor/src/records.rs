//! The record protocol ("vault"): the repository's own Python scripts, as fixed vectors.
//!
//! A script runs only if it is the committed one, isolated from everything but the repository, with
//! no network and nothing to execute, and with the write access of its step alone: none to validate
//! and to check locks, the lock folder to lock, the registry to reserve.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use policy::authority::{Files, Step};
use policy::path::{RelPath, shown};
use policy::secret;
use protocol::refusal::Code;

use crate::git::repo::{self, first_line};
use crate::tools::Failure;
use crate::tools::files::RootDir;
use crate::workplace::GitJob;
use confine::cancel;
use confine::child::{ChildLimits, ChildOutput, ChildSpec, ExecRule, LaunchError};
use confine::grants::{self, Grant, Grants, Rights};

/// Where ids are registered, one line each, only ever appended to.
pub const REGISTRY: &str = "docs/ID-REGISTRY.txt";
const VALIDATE: &str = "tools/validate_vault.py";
const LOCK: &str = "tools/vault_lock.py";
const LOCKS: &str = ".vault-locks";

/// How long a script may run.
const WALL: Duration = Duration::from_secs(30);
/// The longest script and registry, in bytes.
const MAX_FILE: u64 = 8 << 20;
/// How many of the validator's lines a refusal shows.
const LINES_SHOWN: usize = 10;

/// The Python that runs the scripts.
#[derive(Debug, Clone)]
pub struct Python {
    program: PathBuf,
    start: Vec<Grant>,
}

impl Python {
    /// Looks Python up once, in absolute folders alone.
    ///
    /// # Errors
    /// Says what is missing and what to do.
    pub fn find(configured: Option<&Path>) -> Result<Self, String> {
        let usual =
            ["/usr/bin/python3", "/usr/local/bin/python3", "/bin/python3"].map(PathBuf::from);
        let program = match configured {
            Some(path) => path.to_path_buf(),
            None => usual.into_iter().find(|path| path.is_file()).ok_or(
                "the record protocol needs python3, which is in none of /usr/bin, /usr/local/bin and /bin; \
                 install it, or name it in `pythonProgram`",
            )?,
        };
        let shown = program.display().to_string();
        let program =
            program.canonicalize().map_err(|error| format!("python3 at {shown}: {error}"))?;
        let mut start =
            grants::program(&program, "python").map_err(|error| format!("{shown}: {error}"))?;
        start.extend(grants::system_libraries());
        if let Some(prefix) = program.parent().and_then(Path::parent) {
            // A Python of its own prefix keeps its library there.
            start.push(Grant::optional(prefix.join("lib"), Rights::READ, "the standard library"));
        }
        Ok(Self { program, start })
    }

    /// What the daemon's own domain must allow.
    #[must_use]
    pub fn start_grants(&self) -> &[Grant] {
        &self.start
    }
}

/// What can be asked of the scripts.
enum Ask<'a> {
    Validate,
    Check(&'a [RelPath]),
    Lock(&'a RelPath),
    Unlock(&'a RelPath),
    Reserve { prefix: &'a str, title: &'a str },
}

impl Ask<'_> {
    fn step(&self) -> Step {
        match self {
            Ask::Validate => Step::Validate,
            Ask::Check(_) => Step::CheckLocks,
            Ask::Lock(_) | Ask::Unlock(_) => Step::LockRecord,
            Ask::Reserve { .. } => Step::ReserveId,
        }
    }

    fn script(&self) -> &'static str {
        match self {
            Ask::Validate => VALIDATE,
            _ => LOCK,
        }
    }

    /// The whole argument vector. The scripts know no options, so a path or a title is never one.
    fn vector(&self) -> Vec<OsString> {
        let mut vector: Vec<OsString> = ["-I", "-B", self.script()].map(Into::into).to_vec();
        match self {
            Ask::Validate => {}
            Ask::Check(paths) => {
                vector.push("check".into());
                vector.extend(paths.iter().map(|path| path.as_str().into()));
            }
            Ask::Lock(path) => vector.extend(["lock".into(), path.as_str().into()]),
            Ask::Unlock(path) => vector.extend(["unlock".into(), path.as_str().into()]),
            Ask::Reserve { prefix, title } => {
                vector.extend(["reserve".into(), (*prefix).into(), (*title).into()]);
            }
        }
        vector
    }
}

/// The record protocol of one root, for one call.
#[derive(Debug, Clone, Copy)]
pub struct Records<'a> {
    /// The root and its repository.
    pub job: GitJob<'a>,
    /// Who holds our locks.
    pub owner: &'a str,
    /// What runs the scripts.
    pub python: &'a Python,
}

impl Records<'_> {
    /// Refuses when the validator finds something wrong.
    ///
    /// # Errors
    /// `record_protocol`, with the validator's first lines.
    pub fn validate(&self) -> Result<(), Failure> {
        let output = self.run(&Ask::Validate)?;
        if output.status.success() {
            return Ok(());
        }
        let said = said(&output);
        let lines: Vec<&str> = said.lines().take(LINES_SHOWN).collect();
        Err(Failure::refuse(
            Code::RecordProtocol,
            format!("The validator says no: {}", lines.join("\n")),
            "Mend the records that it names, then commit.",
        ))
    }

    /// Refuses when another owner holds one of these paths.
    ///
    /// # Errors
    /// `record_protocol`, naming the owner.
    pub fn nobody_else_holds(&self, paths: &[RelPath]) -> Result<(), Failure> {
        self.done(
            &Ask::Check(paths),
            "Wait until the lock is free or expires; its owner can unlock it.",
        )
        .map(drop)
    }

    /// Does something while holding the lock of a path.
    ///
    /// # Errors
    /// `record_protocol`, naming the owner who holds it; or the work's own.
    pub fn holding<T>(
        &self,
        path: &RelPath,
        work: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.make_lock_folder()?;
        self.done(
            &Ask::Lock(path),
            "Wait until the lock is free or expires; its owner can unlock it.",
        )?;
        let result = work();
        // Whatever became of the work, also when the caller is gone: a lock left behind expires by
        // itself, and it is ours, so it stops nobody here.
        let unlocked = cancel::pair().map_err(Failure::io).and_then(|(_guard, steadfast)| {
            let job = GitJob { cancel: &steadfast, ..self.job };
            Records { job, ..*self }.done(&Ask::Unlock(path), "The lock expires by itself.")
        });
        let result = result?;
        unlocked?;
        Ok(result)
    }

    /// Reserves an id: a line of the registry, which goes into the next commit by itself.
    ///
    /// # Errors
    /// `record_protocol`.
    pub fn reserve(&self, prefix: &str, title: &str) -> Result<String, Failure> {
        self.make_lock_folder()?;
        let ask = Ask::Reserve { prefix, title };
        let output =
            self.done(&ask, "Look at the registry; a person mends it from the terminal.")?;
        let id = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let whole = id.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('-'));
        if whole.is_some_and(|number| {
            !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
        }) {
            Ok(id)
        } else {
            Err(Failure::fault("the lock tool answered with something that is no id"))
        }
    }

    fn make_lock_folder(&self) -> Result<(), Failure> {
        let folder = self.job.root.path.join(LOCKS);
        self.job.root.write(|| match std::fs::create_dir(&folder) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                Err(Failure::io(error))
            }
            _ => Ok(()),
        })
    }

    /// Runs a script that must end well.
    fn done(&self, ask: &Ask<'_>, hint: &str) -> Result<ChildOutput, Failure> {
        let output = self.run(ask)?;
        match output.status.code() {
            Some(0) => Ok(output),
            Some(1) => {
                let message = format!("The lock tool says no: {}", first_line(&said(&output)));
                Err(Failure::refuse(Code::RecordProtocol, message, hint))
            }
            _ => Err(broke(ask, &output)),
        }
    }

    fn run(&self, ask: &Ask<'_>) -> Result<ChildOutput, Failure> {
        self.is_committed(ask.script())?;
        let root = &self.job.root.path;
        let env = [
            ("LC_ALL", "C.UTF-8"),
            ("PATH", "/nonexistent"),
            ("HOME", "/nonexistent"),
            ("VAULT_LOCK_OWNER", self.owner),
        ];
        let spec = ChildSpec {
            program: self.python.program.clone(),
            argv0: "python3".into(),
            args: ask.vector(),
            env: env.map(|(name, value)| (name.into(), value.into())).to_vec(),
            cwd: root.clone(),
            grants: self.grants(ask),
            exec: ExecRule::NoExec,
            limits: limits(),
            umask: 0o022,
            stdin: Vec::new(),
            max_stdout: 64 * 1024,
            max_stderr: 64 * 1024,
        };
        let output =
            self.job.workplace.launcher.run(&spec, self.job.cancel).map_err(
                |error| match error {
                    LaunchError::TimedOut { after } => Failure::refuse(
                        Code::TimedOut,
                        format!(
                            "{} took longer than {} s and was stopped.",
                            ask.script(),
                            after.as_secs()
                        ),
                        "A person runs it from the terminal to see why.",
                    ),
                    other => other.into(),
                },
            )?;
        match output.status.code() {
            Some(0 | 1) => Ok(output),
            _ => Err(broke(ask, &output)),
        }
    }

    fn grants(&self, ask: &Ask<'_>) -> Grants {
        let root = &self.job.root.path;
        let mut files = self.python.start.clone();
        files.push(Grant::new(root, Rights::READ, "the records"));
        let row = ask.step().row();
        if matches!(row.files, Files::WriteLocks | Files::WriteRegistry) {
            files.push(Grant::new(root.join(LOCKS), Rights::WRITE_TREE, "the locks"));
        }
        if row.files == Files::WriteRegistry {
            let rights = Rights::READ_FILE | Rights::WRITE_FILE | Rights::TRUNCATE;
            files.push(Grant::new(root.join(REGISTRY), rights, "the registry"));
        }
        Grants::files(files)
    }

    /// A script that someone changed in the work tree does not run.
    fn is_committed(&self, script: &'static str) -> Result<(), Failure> {
        let (committed, here) = self.both(script)?;
        if committed.is_some() && committed.as_deref() == Some(here.as_slice()) {
            return Ok(());
        }
        let what = if committed.is_some() {
            "differs from the committed version"
        } else {
            "is not committed"
        };
        Err(Failure::refuse(
            Code::RecordProtocol,
            format!("{script} {what}, so it is not run."),
            "A person commits or restores it from the terminal.",
        ))
    }

    /// A file as HEAD has it, and as it is here.
    fn both(&self, path: &str) -> Result<(Option<Vec<u8>>, Vec<u8>), Failure> {
        let path = RelPath::parse(path)?;
        self.job.root.read(|| {
            let repository = repo::open(self.job.place)?;
            let committed = repo::blob_at_head(&repository, path.as_str())?;
            let here = match RootDir::open(&self.job.root.path)?.read_whole(&path, MAX_FILE) {
                Ok(whole) => whole.bytes,
                Err(Failure::Refusal(refusal)) if refusal.code == Code::NotFound => Vec::new(),
                Err(other) => return Err(other),
            };
            Ok((committed, here))
        })
    }

    /// What was appended to the registry since HEAD; nothing when it is as committed.
    ///
    /// # Errors
    /// `record_protocol` when it was changed in another way.
    pub fn appended(&self) -> Result<Option<Appended>, Failure> {
        let (committed, here) = self.both(REGISTRY)?;
        let committed = committed.unwrap_or_default();
        if committed == here {
            return Ok(None);
        }
        let whole_lines = committed.is_empty() || committed.ends_with(b"\n");
        match here.strip_prefix(committed.as_slice()) {
            Some(lines) if whole_lines && here.ends_with(b"\n") => {
                Ok(Some(Appended { ids: ids(lines), blob: crate::session::blob_hash(&here)? }))
            }
            _ => Err(Failure::refuse(
                Code::RecordProtocol,
                format!(
                    "{} was changed in another way than by appending whole lines.",
                    shown(REGISTRY)
                ),
                "A person restores it from the terminal; ids are reserved with reserve_id.",
            )),
        }
    }
}

/// Lines that were appended to the registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Appended {
    /// The ids they reserve.
    pub ids: Vec<String>,
    /// The blob of the whole registry with them.
    pub blob: String,
}

fn ids(lines: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(lines);
    let id = |line: &str| line.split('\t').next().map(|id| id.chars().take(32).collect());
    text.lines().filter(|line| !line.trim().is_empty()).filter_map(id).collect()
}

fn limits() -> ChildLimits {
    ChildLimits {
        wall: WALL,
        grace: Duration::ZERO,
        cpu_seconds: WALL.as_secs(),
        address_space: Some(2 << 30),
        file_size: 16 << 20,
        processes: None,
        open_files: 64,
    }
}

fn said(output: &ChildOutput) -> String {
    let text = [&output.stderr[..], &output.stdout[..]].concat();
    secret::mask_and_cut(String::from_utf8_lossy(&text).trim(), 4096).0
}

fn broke(ask: &Ask<'_>, output: &ChildOutput) -> Failure {
    let how = match output.status.code() {
        Some(code) => format!("ended with status {code}"),
        None => "was killed".to_owned(),
    };
    let said = said(output);
    let last = said.lines().last().unwrap_or_default();
    Failure::refuse(
        Code::RecordProtocol,
        format!("{} {how}: {}", ask.script(), first_line(last)),
        "A person runs it from the terminal to see why.",
    )
}
