//! A Landlock domain, built once and entered by fresh threads.
//!
//! A ruleset is frozen when [`Domain::build`] returns: a clone shares the kernel's ruleset, so a rule
//! added to one would widen all, and nothing here can add one. Each [`Domain::run`] costs a thread
//! and well under a millisecond.
//!
//! What a thread shares with the rest of the process is not confined by this: memory and resource
//! limits. Descriptors, working directory and umask are made its own before it enters. So this ring
//! holds parsers of hostile data to their row; code that must share nothing is a child.

use std::any::Any;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use landlock::{
    Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, NetPort, PathBeneath,
    RestrictionStatus, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetStatus,
    Scope,
};
use nix::sched::{CloneFlags, unshare};
use rustix::fs::{Mode, OFlags};

use super::ConfineError;
use super::fds;
use super::grants::{Grant, Grants, Rights};
use super::kernel::KernelSupport;
use super::seccomp::{self, Profile};

/// Rights by their Landlock names.
const NAMES: [(Rights, AccessFs); 13] = [
    (Rights::READ_FILE, AccessFs::ReadFile),
    (Rights::READ_DIR, AccessFs::ReadDir),
    (Rights::EXECUTE, AccessFs::Execute),
    (Rights::WRITE_FILE, AccessFs::WriteFile),
    (Rights::TRUNCATE, AccessFs::Truncate),
    (Rights::MAKE_FILE, AccessFs::MakeReg),
    (Rights::MAKE_DIR, AccessFs::MakeDir),
    (Rights::MAKE_SYM, AccessFs::MakeSym),
    (Rights::REMOVE_FILE, AccessFs::RemoveFile),
    (Rights::REMOVE_DIR, AccessFs::RemoveDir),
    (Rights::REFER, AccessFs::Refer),
    (Rights::MAKE_SOCKET, AccessFs::MakeSock),
    (Rights::CONNECT_UNIX, AccessFs::ResolveUnix),
];

/// A frozen set of rights that threads can enter. Entering cannot be undone.
#[derive(Debug)]
pub struct Domain {
    /// `None` only on a kernel without Landlock, where degrading was allowed.
    ruleset: Option<RulesetCreated>,
    network: bool,
}

impl Domain {
    /// Opens every path and builds the ruleset. It governs every right that the kernel's ABI knows,
    /// so whatever is not granted is refused.
    ///
    /// # Errors
    /// The kernel is too old for these grants, a path that must exist does not, or the kernel
    /// refuses the ruleset.
    pub fn build(grants: &Grants, kernel: &KernelSupport) -> Result<Self, ConfineError> {
        kernel.check(grants)?;
        fds::prepare();
        let network = !grants.connect_ports.is_empty();
        if kernel.abi() == 0 {
            return Ok(Self { ruleset: None, network });
        }
        let mut ruleset = handle_everything(*kernel)?;
        for grant in &grants.files {
            ruleset = add_path(ruleset, grant, *kernel)?;
        }
        if kernel.abi() >= 4 {
            for port in &grants.connect_ports {
                ruleset = ruleset
                    .add_rule(NetPort::new(*port, AccessNet::ConnectTcp))
                    .map_err(|error| ConfineError::landlock("granting a port", error))?;
            }
        }
        Ok(Self { ruleset: Some(ruleset), network })
    }

    /// Runs `work` on a fresh thread inside the domain and waits for it.
    ///
    /// The thread has no descriptor but the standard streams. **`work` must neither take nor return
    /// an open file, socket or descriptor**: its descriptor numbers mean something else outside.
    /// It must not log through a descriptor either, other than standard error.
    ///
    /// # Errors
    /// The domain could not be entered, in which case `work` did not run, or `work` panicked.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, ConfineError> {
        self.run_keeping(&[], work)
    }

    /// As [`Self::run`], with these descriptors left open under their numbers, so that `work` can
    /// use them by reference.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn run_keeping<T: Send>(
        &self,
        keep: &[BorrowedFd<'_>],
        work: impl FnOnce() -> T + Send,
    ) -> Result<T, ConfineError> {
        std::thread::scope(|scope| {
            std::thread::Builder::new()
                .name("confined".to_owned())
                .spawn_scoped(scope, || self.enter_thread(keep).map(|()| work()))
                .map_err(|error| ConfineError::system("starting a thread", error))?
                .join()
                .unwrap_or_else(|payload| Err(ConfineError::Panicked(message(&*payload))))
        })
    }

    /// Confines the calling thread, which must be one of ours and fresh.
    fn enter_thread(&self, keep: &[BorrowedFd<'_>]) -> Result<(), ConfineError> {
        unshare(CloneFlags::CLONE_FILES | CloneFlags::CLONE_FS)
            .map_err(|error| ConfineError::system("leaving the shared descriptor table", error))?;
        self.restrict_self()?;
        let keep: Vec<RawFd> = keep.iter().map(AsRawFd::as_raw_fd).collect();
        fds::close_all_but(&keep, fds::bound());
        seccomp::install(Profile::Thread { network: self.network })
    }

    /// Puts the calling thread, and all that it starts, into the domain for good.
    ///
    /// # Errors
    /// The kernel refuses, or does not enforce everything.
    pub(crate) fn restrict_self(&self) -> Result<(), ConfineError> {
        let Some(ruleset) = &self.ruleset else { return Ok(()) };
        let status = ruleset
            .try_clone()
            .map_err(|error| ConfineError::system("copying the ruleset", error))?
            .restrict_self()
            .map_err(|error| ConfineError::landlock("entering the domain", error))?;
        require_enforced(&status)
    }
}

/// A ruleset that governs everything and so far grants nothing.
fn handle_everything(kernel: KernelSupport) -> Result<RulesetCreated, ConfineError> {
    let abi = kernel.landlock_abi();
    let refused = |error| ConfineError::landlock("governing all rights", error);
    // The library's default would silently leave out what the kernel lacks.
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(abi))
        .map_err(refused)?;
    if kernel.abi() >= 4 {
        ruleset = ruleset.handle_access(AccessNet::from_all(abi)).map_err(refused)?;
    }
    if kernel.abi() >= 6 {
        ruleset = ruleset.scope(Scope::from_all(abi)).map_err(refused)?;
    }
    ruleset.create().map_err(|error| ConfineError::landlock("creating the ruleset", error))
}

fn add_path(
    ruleset: RulesetCreated,
    grant: &Grant,
    kernel: KernelSupport,
) -> Result<RulesetCreated, ConfineError> {
    let failed = |source| ConfineError::Path {
        path: grant.path.clone(),
        reason: grant.reason.clone(),
        source,
    };
    let opened = rustix::fs::open(&grant.path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let file = match opened {
        Ok(descriptor) => std::fs::File::from(descriptor),
        Err(rustix::io::Errno::NOENT) if grant.optional => return Ok(ruleset),
        Err(error) => return Err(failed(error.into())),
    };
    let is_folder = file.metadata().map_err(failed)?.is_dir();
    let access = access(grant.rights, is_folder, kernel);
    if access.is_empty() {
        // The kernel takes no empty rule; and what it does not govern needs none.
        return Ok(ruleset);
    }
    ruleset
        .add_rule(PathBeneath::new(file, access))
        .map_err(|error| ConfineError::landlock("granting a path", error))
}

/// The rights in Landlock's terms, without those that this kind of file or this ABI does not have.
fn access(rights: Rights, is_folder: bool, kernel: KernelSupport) -> BitFlags<AccessFs> {
    let abi = kernel.landlock_abi();
    let possible = if is_folder { AccessFs::from_all(abi) } else { AccessFs::from_file(abi) };
    let wanted = NAMES.iter().filter(|(right, _)| rights.contains(*right));
    wanted.fold(BitFlags::EMPTY, |all, (_, name)| all | *name) & possible
}

fn require_enforced(status: &RestrictionStatus) -> Result<(), ConfineError> {
    if status.ruleset == RulesetStatus::FullyEnforced && status.no_new_privs {
        return Ok(());
    }
    Err(ConfineError::NotEnforced(format!(
        "ruleset {:?}, no_new_privs {}",
        status.ruleset, status.no_new_privs
    )))
}

/// The text of a panic, when it has one.
fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::{self, Read};
    use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
    use std::os::fd::AsFd;
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::path::Path;
    use std::process::Command;

    use nix::errno::Errno;
    use tempfile::TempDir;

    use super::*;

    /// A folder with a granted tree and a file beside it.
    struct World {
        folder: TempDir,
    }

    impl World {
        fn new() -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            fs::create_dir(folder.path().join("tree")).expect("a tree");
            fs::write(folder.path().join("tree/inside"), "inside").expect("a file");
            fs::write(folder.path().join("outside"), "outside").expect("a file");
            Self { folder }
        }

        fn path(&self, name: &str) -> std::path::PathBuf {
            self.folder.path().join(name)
        }

        fn domain(&self, rights: Rights) -> Domain {
            self.domain_at(rights, KernelSupport::detect())
        }

        fn domain_at(&self, rights: Rights, kernel: KernelSupport) -> Domain {
            let grants = Grants::files(vec![Grant::new(self.path("tree"), rights, "a test")]);
            Domain::build(&grants, &kernel).expect("a domain")
        }
    }

    /// The number of the error that the kernel gave, or 0 for success.
    fn number<T>(result: io::Result<T>) -> i32 {
        result.err().map_or(0, |error| error.raw_os_error().expect("a kernel's error"))
    }

    const ALLOWED: i32 = 0;
    const EACCES: i32 = Errno::EACCES as i32;
    const EPERM: i32 = Errno::EPERM as i32;

    #[test]
    fn given_a_readable_tree_then_reading_ends_at_its_edge() {
        let world = World::new();
        let [inside, outside, dotted] = world
            .domain(Rights::READ)
            .run(|| {
                ["tree/inside", "outside", "tree/../outside"]
                    .map(|name| number(fs::read(world.path(name))))
            })
            .expect("the domain");
        assert_eq!([inside, outside, dotted], [ALLOWED, EACCES, EACCES]);
        assert_eq!(number(fs::read(world.path("outside"))), ALLOWED, "other threads are free");
    }

    #[test]
    fn given_a_readable_tree_then_nothing_in_it_can_change() {
        let world = World::new();
        let attempts = |world: &World| {
            let inside = world.path("tree/inside");
            [
                number(fs::write(&inside, "changed")),
                number(File::options().write(true).open(&inside)),
                number(nix::unistd::truncate(&inside, 0).map_err(io::Error::from)),
                number(fs::write(world.path("tree/new"), "")),
                number(fs::create_dir(world.path("tree/folder"))),
                number(std::os::unix::fs::symlink("inside", world.path("tree/link"))),
                number(fs::remove_file(&inside)),
            ]
        };
        let read = world.domain(Rights::READ).run(|| attempts(&world)).expect("the domain");
        assert_eq!(read, [EACCES; 7]);
        let write = world.domain(Rights::WRITE_TREE).run(|| attempts(&world)).expect("the domain");
        assert_eq!(write, [ALLOWED; 7]);
    }

    #[test]
    fn given_a_writable_tree_then_nothing_leaves_or_enters_it() {
        let world = World::new();
        let (inside, outside) = (world.path("tree/inside"), world.path("outside"));
        let results = world
            .domain(Rights::WRITE_TREE)
            .run(|| {
                [
                    number(fs::rename(&outside, world.path("tree/taken"))),
                    number(fs::hard_link(&inside, world.path("leaked"))),
                    number(fs::hard_link(&inside, world.path("tree/twin"))),
                ]
            })
            .expect("the domain");
        assert_eq!(results, [EACCES, EACCES, ALLOWED]);
    }

    #[test]
    fn a_thread_starts_no_program_even_one_that_its_domain_may_execute() {
        let grants = Grants::files(vec![
            Grant::new(
                "/",
                Rights::READ | Rights::EXECUTE,
                "everything, so that only seccomp says no",
            ),
            crate::grants::dev_null(),
        ]);
        let domain = Domain::build(&grants, &KernelSupport::detect()).expect("a domain");
        let run = || Command::new("/bin/true").status();
        assert_eq!(number(domain.run(run).expect("the domain")), EPERM);
        assert_eq!(number(run()), ALLOWED);
    }

    #[test]
    fn a_connection_reaches_granted_ports_only() {
        let listen = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let listeners = [listen(), listen()];
        let [granted, other] =
            listeners.each_ref().map(|one| one.local_addr().expect("a bound listener"));
        let grants = Grants { files: Vec::new(), connect_ports: vec![granted.port()] };
        let domain = Domain::build(&grants, &KernelSupport::detect()).expect("a domain");
        let results = domain.run(|| {
            [
                number(TcpStream::connect(granted)),
                number(TcpStream::connect(other)),
                number(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))),
            ]
        });
        assert_eq!(results.expect("the domain"), [ALLOWED, EACCES, EPERM]);
        assert_eq!(number(TcpStream::connect(other)), ALLOWED);
    }

    #[test]
    fn without_ports_there_is_no_socket_of_any_kind() {
        let world = World::new();
        let listener = UnixListener::bind(world.path("tree/socket")).expect("a socket");
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = port.local_addr().expect("bound");
        let attempts = || {
            [
                number(TcpStream::connect(address)),
                number(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))),
                number(UnixStream::connect(world.path("tree/socket"))),
                number(UnixStream::pair()),
            ]
        };
        assert_eq!(world.domain(Rights::READ).run(attempts).expect("the domain"), [EPERM; 4]);
        assert_eq!(attempts(), [ALLOWED; 4]);
        drop(listener);
    }

    #[test]
    fn a_thread_with_ports_still_makes_no_unix_socket() {
        let world = World::new();
        let _listener = UnixListener::bind(world.path("tree/socket")).expect("a socket");
        let grants = Grants {
            files: vec![Grant::new(world.path("tree"), Rights::WRITE_TREE, "a test")],
            connect_ports: vec![1],
        };
        let domain = Domain::build(&grants, &KernelSupport::detect()).expect("a domain");
        let connect = || number(UnixStream::connect(world.path("tree/socket")));
        assert_eq!(domain.run(connect).expect("the domain"), EPERM);
        assert_eq!(connect(), ALLOWED);
    }

    #[test]
    fn descriptors_opened_before_are_gone_unless_kept() {
        let world = World::new();
        let secret = File::open(world.path("outside")).expect("a file");
        let domain = world.domain(Rights::READ);
        let read = || {
            let mut text = String::new();
            (&secret).read_to_string(&mut text).map(|_| text)
        };
        assert_eq!(number(domain.run(read).expect("the domain")), Errno::EBADF as i32);
        let kept = domain.run_keeping(&[secret.as_fd()], read).expect("the domain");
        assert_eq!(kept.expect("a kept descriptor"), "outside");
        assert!(secret.metadata().is_ok(), "ours is still open");
    }

    #[test]
    fn a_thread_signals_nobody_and_changes_no_limit_and_no_mode() {
        let world = World::new();
        let inside = world.path("tree/inside");
        let mut other = Command::new("/bin/sleep").arg("100").spawn().expect("a process");
        let pid = nix::unistd::Pid::from_raw(other.id().cast_signed());
        let attempts = || {
            use std::os::unix::fs::PermissionsExt;
            [
                number(nix::sys::signal::kill(pid, None).map_err(io::Error::from)),
                number(
                    rustix::process::setrlimit(
                        rustix::process::Resource::Core,
                        rustix::process::getrlimit(rustix::process::Resource::Core),
                    )
                    .map_err(io::Error::from),
                ),
                number(fs::set_permissions(&inside, fs::Permissions::from_mode(0o600))),
            ]
        };
        let results = world.domain(Rights::WRITE_TREE).run(attempts).expect("the domain");
        assert_eq!(results, [EPERM; 3]);
        assert_eq!(attempts(), [ALLOWED; 3]);
        other.kill().and_then(|()| other.wait()).expect("an end");
    }

    #[test]
    fn a_panic_is_an_error_and_the_domain_still_works() {
        let world = World::new();
        let domain = world.domain(Rights::READ);
        let panicked = domain.run(|| panic!("on purpose"));
        assert!(matches!(panicked, Err(ConfineError::Panicked(text)) if text == "on purpose"));
        assert_eq!(domain.run(|| 7).expect("the domain"), 7);
    }

    #[test]
    fn a_thread_has_its_own_working_folder() {
        let world = World::new();
        let before = std::env::current_dir().expect("a folder");
        let domain = world.domain(Rights::READ);
        let moved = domain.run(|| number(std::env::set_current_dir(world.path("tree"))));
        assert_eq!(moved.expect("the domain"), ALLOWED);
        assert_eq!(std::env::current_dir().expect("a folder"), before);
    }

    #[test]
    fn a_missing_path_is_named_unless_it_is_optional() {
        let kernel = KernelSupport::detect();
        let missing = Path::new("/nonexistent/place");
        let strict = Grants::files(vec![Grant::new(missing, Rights::READ, "the reason")]);
        let error = Domain::build(&strict, &kernel).expect_err("a missing path").to_string();
        assert!(error.contains("/nonexistent/place") && error.contains("the reason"), "{error}");
        let lenient = Grants::files(vec![Grant::optional(missing, Rights::READ, "the reason")]);
        assert!(Domain::build(&lenient, &kernel).is_ok());
    }

    #[test]
    fn on_every_abi_from_the_minimum_up_the_edge_holds() {
        let world = World::new();
        let kernel = KernelSupport::detect();
        for abi in 3..=kernel.abi() {
            let domain = world.domain_at(Rights::READ, kernel.limited_to(abi));
            let results = domain.run(|| {
                [
                    number(fs::read(world.path("tree/inside"))),
                    number(fs::read(world.path("outside"))),
                    number(fs::write(world.path("tree/inside"), "")),
                    number(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))),
                    number(UnixStream::pair()),
                ]
            });
            let expected = [ALLOWED, EACCES, EACCES, EPERM, EPERM];
            assert_eq!(results.expect("the domain"), expected, "ABI {abi}");
        }
    }

    #[test]
    fn below_the_minimum_truncation_is_what_would_be_lost() {
        let world = World::new();
        let old = KernelSupport::detect().limited_to(2);
        let grants = Grants::files(vec![Grant::new(world.path("tree"), Rights::READ, "a test")]);
        assert!(matches!(
            Domain::build(&grants, &old),
            Err(ConfineError::KernelTooOld { found: 2, needed: 3, .. })
        ));
        let domain = world.domain_at(Rights::READ, old.allow_degraded(true));
        let inside = world.path("tree/inside");
        let cut = domain.run(|| nix::unistd::truncate(&inside, 0)).expect("the domain");
        assert_eq!(cut, Ok(()), "the trap that the minimum is there for");
    }
}
