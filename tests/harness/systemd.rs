//! A real systemd in a box: namespaces of its own over this machine's root, with Sage's Debian
//! packages installed. See `tests/box/box`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, setns};
use tempfile::TempDir;

use crate::programs::program;

/// How long anything in a box may take. Boxes share the machine with every other test.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running box. Dropping it ends it and removes everything.
#[derive(Debug)]
pub struct SystemdBox {
    folder: PathBuf,
    lower: PathBuf,
    _temporary: TempDir,
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("box/box")
}

/// The two Debian packages, made of the programs under test.
///
/// # Panics
/// When they cannot be made.
pub fn packages(into: &Path) {
    static BIN: OnceLock<PathBuf> = OnceLock::new();
    let bin = BIN.get_or_init(|| {
        let program = program("sage-executor");
        program.parent().expect("it is in a folder").to_owned()
    });
    let output = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging/deb"))
        .args([bin, into])
        .output()
        .expect("the script starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

impl SystemdBox {
    /// Boots a box with both packages installed.
    ///
    /// # Panics
    /// When this machine cannot: it takes root, overlayfs and cgroups.
    #[must_use]
    pub fn new() -> Self {
        Self::over(Path::new("/"))
    }

    /// The same with the next Debian's systemd.
    ///
    /// # Panics
    /// When there is none and it cannot be fetched; or as [`Self::new`].
    #[must_use]
    pub fn newer() -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/install/trixie");
        let output = Command::new(script).output().expect("the script starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let folder = String::from_utf8(output.stdout).expect("it is UTF-8");
        Self::over(Path::new(folder.trim()))
    }

    fn over(lower: &Path) -> Self {
        let temporary = tempfile::Builder::new().prefix("sage-box-").tempdir().expect("a folder");
        let folder = temporary.path().canonicalize().expect("it is there");
        let booted = Self { folder, lower: lower.to_owned(), _temporary: temporary };
        fs::create_dir(booted.shared()).expect("it is ours");
        packages(&booted.shared());
        let output = booted.script("boot", &[]);
        assert!(output.status.success(), "no box: {}", String::from_utf8_lossy(&output.stderr));
        booted.run(&format!("dpkg --install {}/*.deb", booted.shared().display()));
        booted
    }

    /// A folder that is there inside and outside, at the same path.
    #[must_use]
    pub fn shared(&self) -> PathBuf {
        self.folder.join("shared")
    }

    fn script(&self, action: &str, more: &[&str]) -> Output {
        let mut script = Command::new(script());
        script.arg(action).arg(&self.folder).args(more).stdin(Stdio::null());
        script.env("SAGE_BOX_LOWER", &self.lower);
        script.output().expect("the box's script starts")
    }

    /// Runs a line of shell as root inside, whatever becomes of it.
    #[must_use]
    pub fn try_run(&self, line: &str) -> Output {
        self.script("run", &["bash", "-c", line])
    }

    /// Runs a line of shell as root inside; what it printed, without the last line end.
    ///
    /// # Panics
    /// When it fails.
    pub fn run(&self, line: &str) -> String {
        let output = self.try_run(line);
        let text = String::from_utf8_lossy(&output.stdout).trim_end().to_owned();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {}\n{text}\n{said}", output.status);
        text
    }

    /// Runs a line of shell as another user.
    #[must_use]
    pub fn try_run_as(&self, user: &str, line: &str) -> Output {
        self.script("run", &["runuser", "-u", user, "--", "bash", "-c", line])
    }

    /// A property of a unit, as systemd shows it.
    #[must_use]
    pub fn property(&self, unit: &str, name: &str) -> String {
        self.run(&format!("systemctl show --value -p {name} '{unit}'"))
    }

    /// What a unit said so far.
    #[must_use]
    pub fn journal(&self, unit: &str) -> String {
        self.run(&format!("journalctl --no-pager --output=cat --unit '{unit}'"))
    }

    /// Waits until something holds.
    ///
    /// # Panics
    /// When it does not in two minutes.
    pub fn until(&self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let limit = Instant::now() + PATIENCE;
        while !holds(self) {
            assert!(Instant::now() < limit, "it never came about that {what}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Does something on a thread whose network is the box's: a socket that is opened there belongs to
    /// the box's loopback for good.
    ///
    /// # Panics
    /// When the thread cannot get there, or panics itself.
    pub fn in_network<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let leader = fs::read_to_string(self.folder.join("leader")).expect("it runs");
        let pid = leader.split(' ').next().expect("it begins with the process");
        let network = fs::File::open(format!("/proc/{pid}/ns/net")).expect("it runs");
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                setns(&network, CloneFlags::CLONE_NEWNET).expect("root may enter it");
                work()
            });
            thread.join().expect("the work is done")
        })
    }
}

impl Default for SystemdBox {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for SystemdBox {
    fn drop(&mut self) {
        let output = self.script("end", &[]);
        if !output.status.success() && !std::thread::panicking() {
            panic!("the box does not end: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
}
