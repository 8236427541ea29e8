//! The grant hunt: for each row, each grant is taken away in turn, and the step must break. A grant
//! that nothing needs on this machine is one of [`SPARE`], with the reason why it is there all the same.

mod https;

use std::collections::BTreeSet;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::confine::cancel;
use ::confine::kernel::KernelSupport;
use ::confine::launcher::Launcher;
use executor::config::{Config, WebConfig};
use executor::git::child::Call;
use executor::git::repo::{self, Place};
use executor::git::skeleton::{self, Skeleton};
use executor::git::verb::Verb;
use executor::tools::Failure;
use executor::tools::web::Web;
use executor::tools::web::dial::Tcp;
use executor::tools::web::dns::Dns;
use executor::tools::web::page::Reader;
use executor::workplace::{GitJob, Root, Workplace};
use harness::confine::{self, Ground};
use harness::git::{Repo, installed};
use policy::authority::{Exec, Step, TABLE};
use policy::git::{BranchName, Identity, Remote};
use policy::path::RelPath;
use serde_json::json;

use super::PROBE;

/// Grants that may be of no use in some row, or on this machine, by their reason in the product.
const SPARE: &[(&str, &str)] = &[
    ("shared libraries", "each system keeps them in some of these folders"),
    ("where libraries are", "a loader that has no cache searches the folders"),
    ("the system's authorities", "a root without a caFile trusts these"),
    ("the resolver", "which of its files are read, and what for, is each system's matter"),
];

/// As above, by the grant itself.
const SPARE_PORT: &str = "port 53\tconnect";

/// What the launcher that tells and takes was told to take: nothing.
const ALL: &str = "-";

/// The folder of a launcher that tells what it grants, and takes one grant away.
struct Taking(PathBuf);

impl Taking {
    /// Such a launcher in a folder of its own.
    fn new(folder: PathBuf) -> Self {
        std::fs::create_dir(&folder).expect("a folder");
        std::fs::copy(PROBE, folder.join("taking")).expect("a program");
        Self(folder)
    }

    fn launcher(&self) -> Launcher {
        Launcher::with_binary(self.0.join("taking"), KernelSupport::detect())
    }

    /// Tells the launcher which grant to take.
    fn take(&self, which: &str) {
        std::fs::write(self.0.join("take"), which).expect("a file");
        let _ = std::fs::remove_file(self.0.join("seen"));
    }

    /// Every grant of the children since, as what is granted and why.
    fn seen(&self) -> BTreeSet<String> {
        super::read(&self.0.join("seen")).lines().map(str::to_owned).collect()
    }

    /// Takes each grant of a step in turn, which must break then. Says which do not, and the reasons of all.
    fn hunt(
        &self,
        step: Step,
        does: impl Fn() -> Result<String, String>,
    ) -> (Vec<String>, BTreeSet<String>) {
        let (mut useless, mut reasons) = (Vec::new(), BTreeSet::new());
        self.take(ALL);
        let whole = does();
        assert!(whole.is_ok(), "{step:?}: {whole:?}");
        for grant in self.seen() {
            self.take(&grant);
            let broke = does() != whole;
            let (what, reason) = grant.split_once('\t').expect("what, and a reason");
            let listed = SPARE.iter().any(|(spare, _)| *spare == reason) || grant == SPARE_PORT;
            if !broke && !listed {
                useless.push(format!("{}: {what} ({reason}) is of no use", step.as_str()));
            }
            reasons.insert(reason.to_owned());
        }
        (useless, reasons)
    }
}

/// A clone under the record protocol with real programs, whose launcher tells what it grants, and takes
/// one of it away.
struct Hunt {
    ground: Ground,
    taking: Taking,
    tree: Repo,
    remote: Repo,
    workplace: Workplace,
    place: Place,
}

const VALIDATE: &str = "import os\nassert open('docs/ID-REGISTRY.txt').read()\n";
const LOCK: &str = "
import os, sys
if sys.argv[1] == 'check':
    open('docs/ID-REGISTRY.txt').read()
elif sys.argv[1] == 'unlock':
    os.unlink('.vault-locks/one')
else:
    open('.vault-locks/one', 'w').write(os.environ['VAULT_LOCK_OWNER'])
    if sys.argv[1] == 'reserve':
        os.unlink('.vault-locks/one')
        open('docs/ID-REGISTRY.txt', 'r+').truncate(5)
        open('docs/ID-REGISTRY.txt', 'a').write('DEC-2')
        print('DEC-2')
";

impl Hunt {
    fn new(git: &Path) -> Self {
        let ground = Ground::new();
        let tree = ground.repository(git);
        tree.write("tools/validate_vault.py", VALIDATE);
        tree.write("tools/vault_lock.py", LOCK);
        tree.write("docs/ID-REGISTRY.txt", "DEC-1");
        tree.write(".gitignore", "/.vault-locks/\n");
        tree.commit_all("scripts");
        let remote = tree.beside(ground.path("remote.git"));
        tree.git(&["init", "--quiet", "--template=", "--bare", "-b", "main", "../remote.git"]);
        tree.git(&["push", "--quiet", "../remote.git", "main"]);
        let taking = Taking::new(ground.path("launcher"));
        std::fs::create_dir(ground.path("state")).expect("a folder");
        let config = json!({
            "socket": ground.path("executor.sock"),
            "stateDir": ground.path("state"),
            "requesters": ["Owner"],
            "peers": [{"user": nix::unistd::geteuid().as_raw(), "requesters": ["Owner"]}],
            "roots": [{
                "name": "strategy", "path": ground.path("tree"), "write": true, "protocol": "vault",
                "git": {"branch": "main", "remote": ground.path("remote.git"),
                        "author": "Sage <sage@example.invalid>"},
            }],
            "gitProgram": git,
        });
        let kernel = KernelSupport::detect();
        let config = Config::parse(&config.to_string()).expect("a configuration");
        let mut workplace = Workplace::open(&config, &kernel).expect("a workplace");
        workplace.launcher = taking.launcher();
        skeleton::remove_leftovers(&workplace.state_dir).expect("a folder for skeletons");
        let place = repo::locate(&workplace.roots[0].path, None).expect("a repository");
        Self { ground, taking, tree, remote, workplace, place }
    }

    fn root(&self) -> &Root {
        &self.workplace.roots[0]
    }

    /// Does everything that the executor does in a step; its answers, if nothing broke.
    fn does(&self, step: Step) -> Result<String, String> {
        let (one, two) = (self.tree.git(&["rev-parse", "HEAD~"]), self.tree.head());
        let (one, two) = (one.trim(), two.trim());
        let local = Remote::Local(self.ground.path("remote.git"));
        let branch = BranchName::parse("main").expect("a branch");
        let sage = Identity::parse("Sage <sage@example.invalid>").expect("an identity");
        let path = RelPath::parse("inside").expect("a path");
        let said = |done: Result<(), Failure>| match done {
            Ok(()) => Ok(String::new()),
            Err(failure) => Err(format!("{failure:?}")),
        };
        match step {
            Step::GitRead => {
                self.tree.write("inside", "changed");
                let verbs = [
                    Verb::Status { path: None },
                    Verb::TreeEntries(one, two),
                    Verb::StagedEntries(one),
                ];
                self.all(verbs, "", false)
            }
            Step::GitStage => {
                self.tree.write("inside", format!("{:?}", std::time::SystemTime::now()));
                self.all([Verb::UpdateIndex], "inside\0", false)?;
                let tree = self.all([Verb::RefreshIndex, Verb::WriteTree], "", false)?;
                let commit =
                    Verb::CommitTree { tree: tree.trim(), parent: Some(two), identity: &sage };
                let made = self.all([commit], "a message", false)?;
                let (new, name) = (made.trim(), "refs/heads/hunted");
                let old = "0".repeat(40);
                let moving =
                    Verb::UpdateRef { name, new, old: &old, reason: "hunt", identity: &sage };
                let moved = self.all([moving], "", false);
                self.tree.try_git(&["update-ref", "-d", name]);
                moved.map(|_| String::new())
            }
            Step::GitCheckout => {
                self.tree.git(&["reset", "--quiet", "--hard", one]);
                let done = self.all([Verb::ReadTree { from: one, to: two }], "", false);
                self.tree.git(&["reset", "--quiet", "--hard", two]);
                done
            }
            Step::FetchLocal => {
                let made =
                    self.remote.git(&["commit-tree", "-m", "x", "main^{tree}", "-p", "main"]);
                self.remote.git(&["update-ref", "refs/heads/main", made.trim()]);
                let verbs = [Verb::LsRemote(&local, &branch), Verb::Fetch(&local, &branch)];
                self.all(verbs, "", true).map(|_| String::new())
            }
            Step::PushLocal => {
                self.remote.git(&["update-ref", "-d", "refs/heads/main"]);
                self.all([Verb::Push(&local, &branch, two)], "", true)
            }
            Step::ReadPage => self.page(),
            _ => {
                let (_guard, cancel) = cancel::pair().expect("descriptors");
                let (workplace, root) = (&self.workplace, self.root());
                let job = GitJob { workplace, root, place: &self.place, cancel: &cancel };
                let records = job.records().expect("the root follows the protocol");
                said(match step {
                    Step::Validate => records.validate(),
                    Step::CheckLocks => records.nobody_else_holds(&[path]),
                    Step::LockRecord => records.holding(&path, || Ok(())),
                    _ => records.reserve("DEC", "a title").map(drop),
                })
            }
        }
    }

    fn all<const N: usize>(
        &self,
        verbs: [Verb<'_>; N],
        stdin: &str,
        remote: bool,
    ) -> Result<String, String> {
        let mut told = String::new();
        for verb in verbs {
            let skeleton = Skeleton::make(&self.workplace.state_dir, &self.place, &[]);
            let skeleton = skeleton.expect("a skeleton");
            let call = Call {
                root: &self.root().path,
                place: &self.place,
                index: None,
                skeleton: remote.then(|| skeleton.path()),
                https: None,
                stdin: stdin.as_bytes().to_vec(),
                max_output: 1 << 16,
                wall: Duration::from_secs(60),
                verb,
            };
            let (_guard, cancel) = cancel::pair().expect("descriptors");
            let output = self.workplace.git.run(&self.workplace.launcher, call, &cancel);
            let output = output.map_err(|error| error.to_string())?;
            if !output.status.success() {
                return Err(String::from_utf8_lossy(&output.stderr).into_owned());
            }
            told += &String::from_utf8_lossy(&output.stdout);
        }
        Ok(told)
    }

    /// The probe takes the reader's place, and reads nothing.
    fn page(&self) -> Result<String, String> {
        let reader = Reader::new(self.workplace.launcher.clone(), Path::new(PROBE));
        let (_guard, cancel) = cancel::pair().expect("descriptors");
        let budget = executor::tools::web::budget::Budget::new(Duration::from_secs(60), &cancel);
        let child = reader.expect("a program").child(Vec::new(), &budget);
        let output = self.workplace.launcher.run(&child, &cancel);
        let output = output.map_err(|error| error.to_string())?;
        if output.status.success() { Ok(String::new()) } else { Err("it failed".to_owned()) }
    }
}

/// The rows whose children can be had without a server; [`https`] has the others.
fn hunted(step: Step) -> bool {
    step.row().exec != Exec::None && !matches!(step, Step::FetchHttps | Step::PushHttps)
}

#[test]
fn a_child_without_any_one_of_its_grants_breaks_or_the_grant_is_listed_with_the_first_git() {
    every_grant_is_needed(&installed()[0]);
}

#[test]
fn a_child_without_any_one_of_its_grants_breaks_or_the_grant_is_listed_with_the_last_git() {
    let gits = installed();
    every_grant_is_needed(&gits[gits.len() - 1]);
}

fn every_grant_is_needed(git: &Path) {
    let hunt = Hunt::new(git);
    let (mut wrong, mut reasons) = (Vec::new(), BTreeSet::new());
    for row in TABLE.iter().filter(|row| hunted(row.step)) {
        let (useless, its) = hunt.taking.hunt(row.step, || hunt.does(row.step));
        wrong.extend(useless);
        reasons.extend(its);
    }
    for step in [Step::FetchHttps, Step::PushHttps] {
        let world = https::Hunt::new(git);
        let (useless, its) = world.taking().hunt(step, || world.does(step));
        wrong.extend(useless);
        reasons.extend(its);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let unknown: Vec<_> = SPARE.iter().filter(|(spare, _)| !reasons.contains(*spare)).collect();
    assert!(unknown.is_empty(), "no row grants this any more: {unknown:?}");
}

#[test]
fn the_threads_of_the_web_have_one_file_each_and_need_it() {
    let ground = Ground::new();
    let file = ground.path("ca.pem");
    std::fs::write(&file, "").expect("a file");
    let kernel = KernelSupport::detect();
    let web = |ca_file: &Path| {
        let ca_file = Some(ca_file.to_owned());
        let web = WebConfig { searxng: None, max_fetch_bytes: 1, ca_file };
        let reader = Reader::new(Launcher::with_binary(PROBE, kernel), Path::new(PROBE));
        let names = Box::new(Dns::open(&kernel).expect("a domain"));
        Web::with_parts(&web, &kernel, reader.expect("a program"), names, Box::new(Tcp))
            .expect("it is configured")
    };
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let stream =
        TcpStream::connect(listener.local_addr().expect("it has one")).expect("it listens");
    let read = |file: &Path| confine::number(std::fs::read(file));
    let exchanged =
        |web: &Web, file: &Path| web.in_exchange(&stream, || read(file)).expect("it runs");
    let other = ground.path("other.pem");
    std::fs::write(&other, "").expect("a file");
    assert_eq!(exchanged(&web(&file), &file), 0);
    assert_eq!(
        exchanged(&web(&other), &file),
        super::EACCES,
        "only what it needs to trust the server"
    );
    let resolver = Path::new("/etc/resolv.conf");
    let asked =
        |domain: &::confine::domain::Domain| domain.run(|| read(resolver)).expect("it runs");
    let dns = Dns::open(&kernel).expect("a domain");
    let allowed = dns.in_domain(|| read(resolver)).expect("it runs");
    assert_eq!(allowed, read(resolver), "as without a domain");
    let none = ::confine::domain::Domain::build(&::confine::grants::Grants::default(), &kernel);
    assert_eq!(asked(&none.expect("a domain")), super::EACCES);
}

#[test]
fn a_thread_has_one_grant_and_needs_it() {
    let hunt = Hunt::new(&installed()[0]);
    let file: PathBuf = hunt.ground.path("tree/inside");
    let read = || Ok::<_, Failure>(confine::number(std::fs::read(&file)));
    let write = || Ok::<_, Failure>(confine::number(std::fs::write(&file, "")));
    assert_eq!(hunt.root().read(read).expect("it runs"), 0);
    assert_eq!(hunt.root().write(write).expect("it runs"), 0);
    // The other row's grant does not do, and neither does none.
    assert_eq!(hunt.root().read(write).expect("it runs"), super::EACCES);
    let none = ::confine::domain::Domain::build(
        &::confine::grants::Grants::default(),
        &KernelSupport::detect(),
    );
    let none = none.expect("a domain").run(read).expect("it runs");
    assert_eq!(none.expect("it ends"), super::EACCES);
}
