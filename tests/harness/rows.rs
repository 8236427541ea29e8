//! A root with everything that some row of the authority table allows, and the executor's own view of
//! it, in which code runs as any step.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::confine::cancel;
use ::confine::grants::Grants;
use ::confine::kernel::KernelSupport;
use ::confine::launcher::Launcher;
use executor::config::{Approval, Config, WebConfig};
use executor::git::child::{Call, Https};
use executor::git::repo::{self, Place};
use executor::git::skeleton::{self, Skeleton};
use executor::git::verb::Verb;
use executor::tools::Failure;
use executor::tools::web::Web;
use executor::tools::web::budget::Budget;
use executor::tools::web::dial::Tcp;
use executor::tools::web::dns::Dns;
use executor::tools::web::page::Reader;
use executor::workplace::{GitJob, GitRoot, Root, Workplace};
use policy::authority::{Exec, Step};
use policy::git::{BranchName, Identity, Remote};
use policy::path::RelPath;
use policy::repository::Terms;
use serde_json::json;

use crate::confine::{self, Ground};
use crate::git::{Repo, installed};

/// Where something may be touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spot {
    /// A file of the work tree.
    Work,
    /// A file of the repository.
    GitDir,
    /// Among the objects.
    Objects,
    /// Among the locks.
    Locks,
    /// The registry.
    Registry,
    /// The token.
    Token,
    /// A file of the local remote.
    Remote,
    /// The audit.
    State,
    /// What no row names.
    Elsewhere,
}

impl Spot {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Work,
        Self::GitDir,
        Self::Objects,
        Self::Locks,
        Self::Registry,
        Self::Token,
        Self::Remote,
        Self::State,
        Self::Elsewhere,
    ];

    /// A file there, from the ground.
    #[must_use]
    pub fn file(self) -> &'static str {
        match self {
            Self::Work => "tree/inside",
            Self::GitDir => "tree/.git/description",
            Self::Objects => "tree/.git/objects/spot",
            Self::Locks => "tree/.vault-locks/spot",
            Self::Registry => "tree/docs/ID-REGISTRY.txt",
            Self::Token => "token/file",
            Self::Remote => "remote.git/description",
            Self::State => "state/audit.jsonl",
            Self::Elsewhere => "elsewhere/file",
        }
    }
}

/// A repository under the record protocol with a remote, and the executor's own view of it.
#[derive(Debug)]
pub struct Setting {
    /// Everything that the executor opened.
    pub workplace: Workplace,
    /// The ports of two listeners: what https may reach, and another.
    pub ports: [u16; 2],
    folder: PathBuf,
    probe: PathBuf,
    place: Place,
    https: Remote,
    // Held, so that they stay.
    _held: Option<(Ground, [TcpListener; 2])>,
}

const SCRIPTS: [&str; 2] = ["tools/validate_vault.py", "tools/vault_lock.py"];

impl Setting {
    /// Makes one, in which this program plays the launcher role, git, Python and the page reader.
    ///
    /// # Panics
    /// When it cannot.
    #[must_use]
    pub fn new(probe: &Path) -> Self {
        let ground = Ground::new();
        let plain = installed().swap_remove(0);
        let tree = ground.repository(&plain);
        make(&ground, &tree, &ground.path("remote.git"));
        let listeners =
            [0, 1].map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free"));
        let ports = listeners.each_ref().map(|one| one.local_addr().expect("it is bound").port());
        let setting = Self::open(&ground.path(""), ports, probe);
        Self { _held: Some((ground, listeners)), ..setting }
    }

    /// Opens one that another process made and holds.
    ///
    /// # Panics
    /// When it cannot.
    #[must_use]
    pub fn open(folder: &Path, ports: [u16; 2], probe: &Path) -> Self {
        let config = Config::parse(&config(folder, probe).to_string()).expect("a configuration");
        let kernel = KernelSupport::detect();
        let mut workplace = Workplace::open(&config, &kernel).expect("a workplace");
        // Children start as the probe, since the suite's own process plays no role.
        workplace.launcher = Launcher::with_binary(probe, kernel);
        workplace.git.exec_path = folder.join("exec");
        skeleton::remove_leftovers(&workplace.state_dir).expect("a folder for skeletons");
        let place = repo::locate(&workplace.roots[0].path, None).expect("a repository");
        let https = Remote::parse(&format!("https://localhost:{}/x.git", ports[0]));
        let (folder, probe) = (folder.to_owned(), probe.to_owned());
        let https = https.expect("a remote");
        Self { workplace, ports, folder, probe, place, https, _held: None }
    }

    /// What a daemon needs that takes every step: what this one's configuration needs, and a remote
    /// over https, and the web.
    ///
    /// # Panics
    /// When the parts of a configuration do not parse.
    #[must_use]
    pub fn daemon_grants(&self) -> Grants {
        let mut all = self.workplace.daemon_grants();
        let root = GitRoot {
            terms: Terms {
                branch: BranchName::parse("main").expect("a branch"),
                remote: self.https.clone(),
            },
            identity: Identity::parse("Sage <sage@example.invalid>").expect("an identity"),
            token_file: Some(self.path(Spot::Token.file())),
            ca_file: None,
            approval: Approval::None,
            require_review: true,
        };
        let (files, connect_ports) = self.workplace.git.remote_union(&root);
        all.extend(&Grants { files, connect_ports });
        all.extend(&self.web().daemon_grants());
        all
    }

    fn root(&self) -> &Root {
        &self.workplace.roots[0]
    }

    /// A path in its folder.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Runs these attempts ([`confine::attempts`]) as the step, and returns what came of them.
    ///
    /// # Panics
    /// When they do not run.
    #[must_use]
    pub fn run(&self, step: Step, lines: &str) -> String {
        let local = Remote::Local(self.path("remote.git"));
        let (https, branch) = (&self.https, BranchName::parse("main").expect("a branch"));
        let head = "0".repeat(40);
        let in_thread = || Ok::<_, Failure>(confine::attempts(lines));
        let verb = match step {
            Step::ReadFiles | Step::ReadRepository => {
                return self.root().read(in_thread).expect("it runs");
            }
            Step::WriteFiles => return self.root().write(in_thread).expect("it runs"),
            Step::Validate | Step::CheckLocks | Step::LockRecord | Step::ReserveId => {
                return self.script(step, lines);
            }
            Step::ResolveName => {
                let dns = Dns::open(&KernelSupport::detect()).expect("a domain");
                return dns.in_domain(in_thread).expect("it runs").expect("it ends");
            }
            Step::FetchPage => {
                let granted = (Ipv4Addr::LOCALHOST, self.ports[0]);
                let stream = TcpStream::connect(granted).expect("it listens");
                let ran = self.web().in_exchange(&stream, in_thread);
                return ran.expect("it runs").expect("it ends");
            }
            Step::ReadPage => {
                let (_guard, cancel) = cancel::pair().expect("descriptors");
                let budget = Budget::new(Duration::from_secs(60), &cancel);
                let child = self.web().reader().child(lines.as_bytes().to_vec(), &budget);
                let output = self.workplace.launcher.clone().run(&child, &cancel).expect("it runs");
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
                return String::from_utf8(output.stdout).expect("it is UTF-8");
            }
            Step::GitRead => Verb::Status { path: None },
            Step::GitStage => Verb::WriteTree,
            Step::GitCheckout => Verb::ReadTree { from: &head, to: &head },
            Step::FetchHttps => Verb::Fetch(https, &branch),
            Step::PushHttps => Verb::Push(https, &branch, &head),
            Step::FetchLocal => Verb::Fetch(&local, &branch),
            Step::PushLocal => Verb::Push(&local, &branch, &head),
        };
        assert_eq!(verb.step(), step);
        self.git(verb, lines)
    }

    fn web(&self) -> Web {
        let web = WebConfig { searxng: None, max_fetch_bytes: 1 << 20, ca_file: None };
        let reader = Reader::new(self.workplace.launcher.clone(), &self.probe).expect("a program");
        let names = Box::new(Dns::open(&KernelSupport::detect()).expect("a domain"));
        Web::with_parts(&web, &KernelSupport::detect(), reader, names, Box::new(Tcp))
            .expect("it is configured")
    }

    fn git(&self, verb: Verb<'_>, lines: &str) -> String {
        let token = self.path(Spot::Token.file());
        let row = verb.step().row();
        let is_remote = !matches!(row.exec, Exec::Git);
        let skeleton = Skeleton::make(&self.workplace.state_dir, &self.place, &[]);
        let skeleton = skeleton.expect("a skeleton");
        let call = Call {
            root: &self.root().path,
            place: &self.place,
            index: None,
            skeleton: is_remote.then(|| skeleton.path()),
            https: row.token.then_some(Https { token_file: Some(&token), ca_file: None }),
            stdin: lines.as_bytes().to_vec(),
            max_output: 4096,
            wall: Duration::from_secs(60),
            verb,
        };
        let (_guard, cancel) = cancel::pair().expect("descriptors");
        let output =
            self.workplace.git.run(&self.workplace.launcher, call, &cancel).expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("it is UTF-8")
    }

    /// The record protocol's steps tell no more than what the script says when it says no.
    fn script(&self, step: Step, lines: &str) -> String {
        std::fs::write(self.path("tree/attempts"), lines).expect("a file can be written");
        let (_guard, cancel) = cancel::pair().expect("descriptors");
        let job = GitJob {
            workplace: &self.workplace,
            root: self.root(),
            place: &self.place,
            cancel: &cancel,
        };
        let records = job.records().expect("the root follows the protocol");
        let path = RelPath::parse("inside").expect("a path");
        let said = match step {
            Step::Validate => records.validate(),
            Step::CheckLocks => records.nobody_else_holds(&[path]),
            Step::LockRecord => records.holding(&path, || Ok(())),
            _ => records.reserve("DEC", "a title").map(drop),
        };
        let Err(Failure::Refusal(refusal)) = said else { panic!("{step:?}: {said:?}") };
        let (_, numbers) = refusal.message.rsplit_once("says no: ").expect("what it said");
        numbers.to_owned()
    }
}

/// Everything that is attempted is there, so that only a ring can refuse it.
fn make(ground: &Ground, tree: &Repo, remote: &Path) {
    for spot in Spot::ALL {
        let folder = ground.path(spot.file()).with_file_name("");
        std::fs::create_dir_all(folder).expect("a folder can be made");
    }
    let private = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(ground.path("state"), private).expect("a mode");
    tree.git(&["init", "--quiet", "--template=", "--bare", remote.to_str().expect("UTF-8")]);
    for spot in Spot::ALL {
        std::fs::write(ground.path(spot.file()), "").expect("a file can be written");
    }
    let private = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(ground.path(Spot::Token.file()), private).expect("a mode");
    for script in SCRIPTS {
        tree.write(script, "# The probe takes its place.\n");
    }
    tree.write(".gitignore", "/attempts\n/.vault-locks/\n");
    tree.commit_all("scripts");
    std::fs::create_dir(ground.path("exec")).expect("a folder can be made");
    // Any program will do that ends well whatever it is told.
    std::fs::copy("/bin/true", ground.path("exec/git-remote-https")).expect("a program");
}

fn config(folder: &Path, probe: &Path) -> serde_json::Value {
    json!({
        "socket": folder.join("run/executor.sock"),
        "stateDir": folder.join("state"),
        "requesters": ["Owner"],
        "peers": [{"user": nix::unistd::geteuid().as_raw(), "requesters": ["Owner"]}],
        "roots": [{
            "name": "strategy",
            "path": folder.join("tree"),
            "write": true,
            "protocol": "vault",
            "git": {"branch": "main", "remote": folder.join("remote.git"), "author": "Sage <sage@example.invalid>"},
        }],
        "gitProgram": probe,
        "pythonProgram": probe,
    })
}
