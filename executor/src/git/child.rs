//! Running the real git: one [`Verb`], under the authority of its step, in an environment built from
//! nothing.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use policy::authority::{Exec, Files, Network, Row, Step};
use policy::git::Remote;

use super::repo::Place;
use super::verb::Verb;
use crate::workplace::GitRoot;
use confine::cancel::Cancel;
use confine::child::{ChildLimits, ChildOutput, ChildSpec, ExecRule, LaunchError};
use confine::grants::{self, Grant, Grants, Rights};
use confine::launcher::Launcher;

/// The git that is run.
#[derive(Debug, Clone)]
pub struct Git {
    /// Its absolute path, with links resolved.
    pub program: PathBuf,
    /// Where its helpers are (`git --exec-path`).
    pub exec_path: PathBuf,
    /// `major.minor`.
    pub version: (u32, u32),
    /// What it needs to start, whatever it is asked.
    pub start: Vec<Grant>,
    /// This program, which git runs as askpass.
    pub askpass: PathBuf,
}

/// The oldest git that is supported.
pub const OLDEST_GIT: (u32, u32) = (2, 39);

impl Git {
    /// Looks git up once, in absolute folders alone, and asks it about itself.
    ///
    /// # Errors
    /// Says what is missing and what to do.
    pub fn find(configured: Option<&Path>) -> Result<Self, String> {
        let usual = ["/usr/local/bin/git", "/usr/bin/git", "/bin/git"].map(PathBuf::from);
        let program = match configured {
            Some(path) => path.to_path_buf(),
            None => usual.into_iter().find(|path| path.is_file()).ok_or(
                "git is in none of /usr/local/bin, /usr/bin and /bin; install it, or name it in `gitProgram`",
            )?,
        };
        let program = program
            .canonicalize()
            .map_err(|error| format!("git at {}: {error}", program.display()))?;
        let ask = |argument: &str| -> Result<String, String> {
            let output = std::process::Command::new(&program)
                .arg(argument)
                .env_clear()
                .output()
                .map_err(|error| format!("{} does not start: {error}", program.display()))?;
            Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        };
        let said = ask("--version")?;
        let version = parse_version(&said).ok_or(format!("{said:?} is no git version"))?;
        if version < OLDEST_GIT {
            return Err(format!("{said} is too old; install git 2.39 or newer"));
        }
        let exec_path = PathBuf::from(ask("--exec-path")?);
        let mut start = program_grants(&program, "git")?;
        start.extend(grants::system_libraries());
        start.push(grants::dev_null());
        let askpass = std::env::current_exe().map_err(|error| error.to_string())?;
        Ok(Self { exec_path, program, version, start, askpass })
    }
}

fn program_grants(program: &Path, reason: &str) -> Result<Vec<Grant>, String> {
    grants::program(program, reason).map_err(|error| format!("{}: {error}", program.display()))
}

fn parse_version(said: &str) -> Option<(u32, u32)> {
    let mut numbers = said.strip_prefix("git version ")?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// What a remote over https needs.
#[derive(Debug, Clone, Copy)]
pub struct Https<'a> {
    /// The token's file.
    pub token_file: Option<&'a Path>,
    /// The certificates to trust, instead of the system's.
    pub ca_file: Option<&'a Path>,
}

/// What a call of git is about: where it runs, and what it is told.
#[derive(Debug)]
pub struct Call<'a> {
    /// What to ask.
    pub verb: Verb<'a>,
    /// The root's folder.
    pub root: &'a Path,
    /// The repository.
    pub place: &'a Place,
    /// An index of its own, instead of the repository's.
    pub index: Option<&'a Path>,
    /// The skeleton git directory, for remote verbs.
    pub skeleton: Option<&'a Path>,
    /// For remote verbs over https.
    pub https: Option<Https<'a>>,
    /// What it reads.
    pub stdin: Vec<u8>,
    /// How much of its output is kept, in bytes.
    pub max_output: usize,
    /// How long it may run.
    pub wall: Duration,
}

impl Git {
    /// Runs git once, under the authority of its step, and waits for it.
    ///
    /// # Errors
    /// When it does not start, takes too long or is cancelled; its exit status is in the output.
    pub fn run(
        &self,
        launcher: &Launcher,
        call: Call<'_>,
        cancel: &Cancel,
    ) -> Result<ChildOutput, LaunchError> {
        let row = call.verb.step().row();
        let spec = ChildSpec {
            program: self.program.clone(),
            argv0: "git".into(),
            args: call.verb.vector(),
            env: self.environment(&call, row),
            cwd: call.skeleton.unwrap_or(&call.place.work_tree).to_path_buf(),
            grants: self.grants(&call, row),
            exec: match (row.exec, row.network) {
                (Exec::GitRemoteHttps | Exec::GitLocalRemote, network) => {
                    ExecRule::Exec { network: network == Network::RemotePort }
                }
                _ => ExecRule::NoExec,
            },
            limits: limits(call.wall, row.exec),
            umask: 0o022,
            stdin: call.stdin,
            max_stdout: call.max_output,
            max_stderr: 64 * 1024,
        };
        launcher.run(&spec, cancel)
    }

    fn environment(&self, call: &Call<'_>, row: &Row) -> Vec<(OsString, OsString)> {
        let mut env: Vec<(OsString, OsString)> = [
            ("LC_ALL", "C"),
            ("PATH", "/usr/bin:/bin"),
            ("HOME", "/nonexistent"),
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_CONFIG_GLOBAL", "/dev/null"),
            ("GIT_ATTR_NOSYSTEM", "1"),
            ("GIT_TERMINAL_PROMPT", "0"),
            ("GIT_OPTIONAL_LOCKS", "0"),
            ("GIT_NO_REPLACE_OBJECTS", "1"),
            ("GIT_GRAFT_FILE", "/dev/null"),
            ("GIT_NO_LAZY_FETCH", "1"),
            ("GIT_EDITOR", ":"),
            ("GIT_PAGER", "cat"),
        ]
        .map(|(name, value)| (name.into(), value.into()))
        .to_vec();
        let mut set = |name: &str, value: OsString| env.push((name.into(), value));
        match call.skeleton {
            Some(skeleton) => {
                set("GIT_DIR", skeleton.into());
                set("GIT_OBJECT_DIRECTORY", call.place.common_dir.join("objects").into());
            }
            None => {
                set("GIT_DIR", call.place.git_dir.clone().into());
                set("GIT_COMMON_DIR", call.place.common_dir.clone().into());
                set("GIT_WORK_TREE", call.place.work_tree.clone().into());
            }
        }
        without_filters(&call.place.filters, &mut set);
        set("GIT_ALLOW_PROTOCOL", protocol(row.exec).into());
        if let Some(index) = call.index {
            set("GIT_INDEX_FILE", index.into());
        }
        if let Some(identity) = call.verb.identity() {
            for role in ["AUTHOR", "COMMITTER"] {
                set(&format!("GIT_{role}_NAME"), identity.name.clone().into());
                set(&format!("GIT_{role}_EMAIL"), identity.email.clone().into());
            }
        }
        if let (
            Exec::GitRemoteHttps,
            Verb::LsRemote(remote, _) | Verb::Fetch(remote, _) | Verb::Push(remote, ..),
        ) = (row.exec, &call.verb)
        {
            crate::credential::environment(&self.askpass, remote, call.https, &mut set);
        }
        env
    }

    fn grants(&self, call: &Call<'_>, row: &Row) -> Grants {
        let mut files = self.start.clone();
        // A push over https writes no object on this side.
        if !matches!(row.files, Files::ReadRoot | Files::WriteRoot) && row.step != Step::PushHttps {
            files.push(randomness());
        }
        let objects = call.place.common_dir.join("objects");
        let mut grant = |path: &Path, rights: Rights, reason: &str| {
            files.push(Grant::new(path, rights, reason));
        };
        match row.files {
            // The last two are the record protocol's: no verb of git runs under them.
            Files::ReadRoot | Files::WriteLocks | Files::WriteRegistry => {
                grant(call.root, Rights::READ, "the work tree and its repository")
            }
            Files::WriteRoot => {
                grant(call.root, Rights::WRITE_TREE, "the work tree and its repository")
            }
            Files::WriteGitDir => {
                grant(call.root, Rights::READ, "the work tree");
                grant(&call.place.git_dir, Rights::WRITE_TREE, "the index and the branch");
                grant(&call.place.common_dir, Rights::WRITE_TREE, "objects and refs");
            }
            Files::ReadObjects => grant(&objects, Rights::READ, "the objects to send"),
            Files::WriteObjects => grant(&objects, Rights::WRITE_TREE, "the objects that come in"),
            // The web's: no verb of git runs under them either.
            Files::None | Files::ReadResolver | Files::ReadAuthorities => {}
        }
        if let Some(skeleton) = call.skeleton {
            grant(skeleton, Rights::WRITE_TREE, "the skeleton git directory");
        }
        let connect_ports = self.remote_grants(call, row, &mut files);
        Grants { files, connect_ports }
    }

    /// What a remote verb needs beyond objects. Says which ports it may connect to.
    fn remote_grants(&self, call: &Call<'_>, row: &Row, files: &mut Vec<Grant>) -> Vec<u16> {
        let remote = match &call.verb {
            Verb::LsRemote(remote, _) | Verb::Fetch(remote, _) | Verb::Push(remote, ..) => *remote,
            _ => return Vec::new(),
        };
        files.push(Grant::optional(
            self.exec_path.join("git"),
            Rights::EXEC,
            "git starts itself as a helper",
        ));
        match remote {
            Remote::Local(path) => {
                let pushes = row.step == Step::PushLocal;
                let rights = if pushes { Rights::WRITE_TREE } else { Rights::READ };
                files.push(Grant::optional(path, rights, "the remote"));
                files.extend(self.local_programs());
                Vec::new()
            }
            Remote::Https { port, .. } => {
                files.extend(self.https_files());
                let https = call.https;
                if let Some(token) = https.and_then(|https| https.token_file) {
                    files.push(Grant::new(token, Rights::READ_FILE, "the token, for askpass"));
                }
                if let Some(ca_file) = https.and_then(|https| https.ca_file) {
                    files.push(Grant::new(ca_file, Rights::READ_FILE, "certificate authorities"));
                }
                vec![*port, DNS_PORT]
            }
        }
    }

    /// Everything that remote verbs of a root need, for the daemon's own domain.
    #[must_use]
    pub fn remote_union(&self, root: &GitRoot) -> (Vec<Grant>, Vec<u16>) {
        let helper = self.exec_path.join("git");
        let mut files = vec![
            randomness(),
            Grant::optional(helper, Rights::EXEC, "git starts itself as a helper"),
        ];
        match &root.terms.remote {
            Remote::Local(path) => {
                files.push(Grant::optional(path, Rights::WRITE_TREE, "a local remote"));
                files.extend(self.local_programs());
                (files, Vec::new())
            }
            Remote::Https { port, .. } => {
                files.extend(self.https_files());
                for (path, reason) in [
                    (&root.token_file, "the token, for askpass"),
                    (&root.ca_file, "certificate authorities"),
                ] {
                    files.extend(
                        path.as_ref().map(|path| Grant::new(path, Rights::READ_FILE, reason)),
                    );
                }
                (files, vec![*port, DNS_PORT])
            }
        }
    }

    fn local_programs(&self) -> Vec<Grant> {
        let mut files =
            grants::program(Path::new("/bin/sh"), "git starts the other end through a shell")
                .unwrap_or_default();
        for helper in ["git-upload-pack", "git-receive-pack"] {
            for folder in [self.exec_path.clone(), self.program.with_file_name("")] {
                files.push(Grant::optional(
                    folder.join(helper),
                    Rights::EXEC,
                    "the other end of a local remote",
                ));
            }
        }
        files
    }

    fn https_files(&self) -> Vec<Grant> {
        let mut files = vec![
            Grant::new(self.exec_path.join("git-remote-https"), Rights::EXEC, "https"),
            Grant::new(&self.askpass, Rights::EXEC, "askpass"),
        ];
        for path in [
            "/etc/ssl",
            "/usr/share/ca-certificates",
            "/usr/local/share/ca-certificates",
            "/etc/pki",
        ] {
            files.push(Grant::optional(path, Rights::READ, "the system's authorities"));
        }
        for path in [
            "/etc/resolv.conf",
            "/etc/hosts",
            "/etc/nsswitch.conf",
            "/etc/host.conf",
            "/etc/gai.conf",
        ] {
            files.push(Grant::optional(path, Rights::READ_FILE, "the resolver"));
        }
        files
    }
}

/// What git needs to write objects, whose files have random names until they are whole.
fn randomness() -> Grant {
    Grant::new("/dev/urandom", Rights::READ_FILE, "names of temporary files")
}

/// DNS over TCP: no child may use UDP.
const DNS_PORT: u16 = 53;

/// Bounds on a git child: wide enough for a large repository, and none of them endless.
fn limits(wall: Duration, exec: Exec) -> ChildLimits {
    // The other end of a local remote is a child of ours: killed in the middle, it would leave its locks
    // in the remote, which then takes no push until a person removes them.
    let grace = match exec {
        Exec::GitLocalRemote => Duration::from_secs(5),
        _ => Duration::ZERO,
    };
    ChildLimits {
        wall,
        grace,
        cpu_seconds: wall.as_secs().max(1) * 2,
        address_space: None,
        file_size: 4 << 30,
        processes: None,
        open_files: 256,
    }
}

/// A filter that is required would stop git, since none can run: each is emptied. Through the
/// environment, where a driver's name cannot be read as anything else.
fn without_filters(filters: &[String], set: &mut impl FnMut(&str, OsString)) {
    let keys = [("clean", ""), ("smudge", ""), ("process", ""), ("required", "false")];
    let pairs = filters.iter().flat_map(|driver| keys.map(|(key, value)| (driver, key, value)));
    let mut count = 0;
    for (driver, key, value) in pairs {
        set(&format!("GIT_CONFIG_KEY_{count}"), format!("filter.{driver}.{key}").into());
        set(&format!("GIT_CONFIG_VALUE_{count}"), value.into());
        count += 1;
    }
    set("GIT_CONFIG_COUNT", count.to_string().into());
}

/// The transports that a verb may use.
fn protocol(exec: Exec) -> &'static str {
    match exec {
        Exec::None | Exec::Git | Exec::Python | Exec::Itself => "",
        Exec::GitRemoteHttps => "https",
        Exec::GitLocalRemote => "file",
    }
}
