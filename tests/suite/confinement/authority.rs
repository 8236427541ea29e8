//! Each row of the authority table, as the executor really grants it: the step runs under its row,
//! and what takes the place of git and python attempts everything that some row allows.

use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::confine::cancel;
use ::confine::grants::Rights;
use executor::config::{Config, WebConfig};
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
use executor::workplace::{GitJob, Root, Workplace};
use harness::confine::{self, Ground};
use harness::git::{Repo, installed};
use policy::authority::{Exec, Files, Network, Row, Step, TABLE};
use policy::git::{BranchName, Remote};
use policy::path::RelPath;
use serde_json::json;

use super::{ALLOWED, EACCES, EPERM, PROBE, kernel, launcher};

/// Where something may be touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spot {
    Work,
    GitDir,
    Objects,
    Locks,
    Registry,
    Token,
    Remote,
    State,
    Elsewhere,
}

impl Spot {
    const ALL: [Self; 9] = [
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
    fn file(self) -> &'static str {
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

    /// What the row says of it, in the words of the table's documentation.
    fn may(self, row: &Row) -> (bool, bool) {
        use Spot::{GitDir, Locks, Objects, Registry, Remote, Token, Work};
        let in_root = matches!(self, Work | GitDir | Objects | Locks | Registry);
        let from_files = match row.files {
            Files::ReadRoot => (in_root, false),
            Files::WriteRoot => (in_root, in_root),
            Files::WriteGitDir => (in_root, matches!(self, GitDir | Objects)),
            Files::ReadObjects => (self == Objects, false),
            Files::WriteObjects => (self == Objects, self == Objects),
            Files::WriteLocks => (in_root, self == Locks),
            Files::WriteRegistry => (in_root, matches!(self, Locks | Registry)),
            Files::None | Files::ReadResolver | Files::ReadAuthorities => (false, false),
        };
        match self {
            Token => (row.token, false),
            Remote => (row.exec == Exec::GitLocalRemote, row.step == Step::PushLocal),
            _ => from_files,
        }
    }
}

/// A repository under the record protocol with a remote, and the executor's own view of it.
struct Setting {
    ground: Ground,
    workplace: Workplace,
    place: Place,
    listeners: [TcpListener; 2],
    https: Remote,
}

const SCRIPTS: [&str; 2] = ["tools/validate_vault.py", "tools/vault_lock.py"];

impl Setting {
    fn new() -> Self {
        let ground = Ground::new();
        let plain = installed().swap_remove(0);
        let tree = ground.repository(&plain);
        let remote = ground.path("remote.git");
        make(&ground, &tree, &remote);
        let config = config(&ground, &remote);
        let kernel = kernel();
        let config = Config::parse(&config.to_string()).expect("a configuration");
        let mut workplace = Workplace::open(&config, &kernel).expect("a workplace");
        // Children start as the probe, since this process plays no role.
        workplace.launcher = launcher(kernel);
        workplace.git.exec_path = ground.path("exec");
        skeleton::remove_leftovers(&workplace.state_dir).expect("a folder for skeletons");
        let place = repo::locate(&workplace.roots[0].path, None).expect("a repository");
        let listeners =
            [0, 1].map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free"));
        let port = listeners[0].local_addr().expect("it is bound").port();
        let https = Remote::parse(&format!("https://localhost:{port}/x.git")).expect("a remote");
        Self { ground, workplace, place, listeners, https }
    }

    fn root(&self) -> &Root {
        &self.workplace.roots[0]
    }

    fn path(&self, name: &str) -> PathBuf {
        self.ground.path(name)
    }

    /// Every attempt, with what comes of it under the row.
    fn attempts(&self, row: &Row) -> Vec<(String, i32)> {
        let landlock = |may: bool| if may { ALLOWED } else { EACCES };
        let mut all = Vec::new();
        for spot in Spot::ALL {
            let file = self.path(spot.file());
            let (reads, writes) = spot.may(row);
            all.push((format!("read {}", file.display()), landlock(reads)));
            all.push((format!("write {}", file.display()), landlock(writes)));
            let beside = file.with_file_name("made");
            // One file of its folder, and not the folder.
            let makes = writes && !(spot == Spot::Registry && row.files == Files::WriteRegistry);
            all.push((format!("make {}", beside.display()), landlock(makes)));
        }
        let starts = |may: bool| match row.exec {
            Exec::None | Exec::Git | Exec::Python | Exec::Itself => EPERM,
            Exec::GitRemoteHttps | Exec::GitLocalRemote => landlock(may),
        };
        let helper = self.path("exec/git-remote-https");
        let is_https = row.exec == Exec::GitRemoteHttps;
        all.push((format!("exec {}", helper.display()), starts(is_https)));
        all.push(("exec /bin/sh".to_owned(), starts(row.exec == Exec::GitLocalRemote)));
        all.push(("exec /bin/true".to_owned(), starts(false)));
        let [granted, other] =
            self.listeners.each_ref().map(|one| one.local_addr().expect("it is bound").port());
        let connects = |may: bool| match row.network {
            Network::None | Network::OneConnection => EPERM,
            // Neither is the port of DNS.
            Network::Dns => EACCES,
            Network::RemotePort => landlock(may),
        };
        all.push((format!("connect {granted}"), connects(true)));
        all.push((format!("connect {other}"), connects(false)));
        all
    }

    /// Runs these attempts as the step, and returns the error numbers.
    fn run(&self, step: Step, lines: &str) -> String {
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
                let dns = Dns::open(&kernel()).expect("a domain");
                return dns.in_domain(in_thread).expect("it runs").expect("it ends");
            }
            Step::FetchPage => {
                let port = self.listeners[0].local_addr().expect("it is bound");
                let stream = std::net::TcpStream::connect(port).expect("it listens");
                let ran = self.web().in_exchange(&stream, in_thread);
                return ran.expect("it runs").expect("it ends");
            }
            Step::ReadPage => {
                let (_guard, cancel) = cancel::pair().expect("descriptors");
                let budget = Budget::new(Duration::from_secs(60), &cancel);
                let child = self.web().reader().child(lines.as_bytes().to_vec(), &budget);
                let output = launcher(kernel()).run(&child, &cancel).expect("it runs");
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
        let reader = Reader::new(launcher(kernel()), Path::new(PROBE)).expect("a program");
        let names = Box::new(Dns::open(&kernel()).expect("a domain"));
        Web::with_parts(&web, &kernel(), reader, names, Box::new(Tcp)).expect("it is configured")
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
    tree.git(&["init", "--quiet", "--template=", "--bare", super::text(remote)]);
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

fn config(ground: &Ground, remote: &Path) -> serde_json::Value {
    json!({
        "socket": ground.path("run/executor.sock"),
        "stateDir": ground.path("state"),
        "requesters": ["Owner"],
        "peers": [{"user": nix::unistd::geteuid().as_raw(), "requesters": ["Owner"]}],
        "roots": [{
            "name": "strategy",
            "path": ground.path("tree"),
            "write": true,
            "protocol": "vault",
            "git": {"branch": "main", "remote": remote, "author": "Sage <sage@example.invalid>"},
        }],
        "gitProgram": PROBE,
        "pythonProgram": PROBE,
    })
}

#[test]
fn every_step_touches_starts_and_reaches_exactly_what_its_row_says() {
    let setting = Setting::new();
    let mut attempted: Vec<(String, Vec<i32>)> = Vec::new();
    for row in TABLE {
        let attempts = setting.attempts(row);
        let lines: Vec<&str> = attempts.iter().map(|(line, _)| line.as_str()).collect();
        let numbers = setting.run(row.step, &lines.join("\n"));
        let numbers: Vec<i32> =
            numbers.split_whitespace().map(|number| number.parse().expect("a number")).collect();
        assert_eq!(numbers.len(), attempts.len(), "{row:?}");
        let wrong: Vec<String> = attempts
            .iter()
            .zip(&numbers)
            .filter(|((_, expected), found)| expected != *found)
            .map(|((line, expected), found)| format!("{line}: {found} and not {expected}"))
            .collect();
        assert!(wrong.is_empty(), "{row:?}:\n{}", wrong.join("\n"));
        if attempted.is_empty() {
            attempted = lines.iter().map(|line| ((*line).to_owned(), Vec::new())).collect();
        }
        for ((_, found), number) in attempted.iter_mut().zip(numbers) {
            found.push(number);
        }
    }
    // Nothing but a ring refuses any of it.
    let lines: Vec<&str> = attempted.iter().map(|(line, _)| line.as_str()).collect();
    let free = confine::attempts(&lines.join("\n"));
    assert!(free.split(' ').all(|number| number == "0"), "{free}");
}

#[test]
fn nothing_that_the_daemon_may_write_may_be_executed_and_no_folder_is_executable() {
    let setting = Setting::new();
    let grants = setting.workplace.daemon_grants();
    assert!(grants.connect_ports.is_empty(), "a remote on this machine needs no port");
    let changes = |rights: Rights| {
        [Rights::WRITE_FILE, Rights::MAKE_FILE, Rights::REFER, Rights::REMOVE_FILE]
            .iter()
            .any(|right| rights.contains(*right))
    };
    let (executable, others): (Vec<_>, Vec<_>) =
        grants.files.iter().partition(|grant| grant.rights.contains(Rights::EXECUTE));
    let written: Vec<PathBuf> =
        others.iter().filter(|grant| changes(grant.rights)).map(|one| one.path.clone()).collect();
    let expected = ["state", "tree", "remote.git"].map(|name| setting.path(name));
    let devices = [PathBuf::from("/dev/null")];
    let unexpected =
        written.iter().filter(|path| !expected.contains(path) && !devices.contains(path));
    assert_eq!(unexpected.count(), 0, "{written:?}");
    assert!(expected.iter().all(|path| written.contains(path)), "{written:?}");
    assert!(!executable.is_empty());
    for grant in executable {
        assert!(!changes(grant.rights), "{grant:?}");
        assert!(!grant.path.is_dir(), "{grant:?}");
        assert!(!written.iter().any(|path| grant.path.starts_with(path)), "{grant:?}");
    }
}
