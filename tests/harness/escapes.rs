//! The attacker of the escape suite: what code that took over a step would try, as a table.
//!
//! The same code runs in a thread of a row, in what takes the place of git, Python and the page
//! reader, and, for the control, in a process that nothing confines. Each [`Attempt`] says what must
//! come of it in each row, and what comes of it outside. All of it is harmless where it works: it aims
//! at a folder, a process and listeners that the suite makes, on loopback alone.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use policy::authority::{Exec, Files, Network, Row};
use serde::{Deserialize, Serialize};

mod files;
mod kernel;
mod network;
mod processes;
mod programs;

/// What an attempt that nothing stopped comes to.
pub const ALLOWED: i32 = 0;
const EPERM: i32 = Errno::EPERM as i32;
const EACCES: i32 = Errno::EACCES as i32;

/// What attempts aim at.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Aim {
    /// A root, with a file `inside` and a link `way-out` to the victim's file.
    pub tree: PathBuf,
    /// A folder that no row reaches, with what [`Aim::prepare`] puts there.
    pub elsewhere: PathBuf,
    /// A process of the same user, outside every ring.
    pub victim: i32,
    /// A TCP port with a listener that no row may reach.
    pub tcp: u16,
    /// A UDP port with a listener.
    pub udp: u16,
    /// A listening Unix socket, by path.
    pub socket: PathBuf,
    /// A listening Unix socket, by abstract name.
    pub name: String,
    /// A program that the https row alone may run.
    pub helper: PathBuf,
}

impl Aim {
    /// Puts there what attempts destroy.
    ///
    /// # Panics
    /// When it cannot.
    pub fn prepare(&self) {
        fs::create_dir_all(self.elsewhere.join("empty")).expect("a folder");
        for name in ["file", "doomed", "swapped", "moved"] {
            fs::write(self.elsewhere.join(name), "a secret").expect("a file");
        }
        let _ = fs::remove_file(self.tree.join("way-out"));
        std::os::unix::fs::symlink(self.file(), self.tree.join("way-out")).expect("a link");
        for name in ["inside", "leaving", "swapped-inside"] {
            fs::write(self.tree.join(name), "inside").expect("a file");
        }
    }

    fn file(&self) -> PathBuf {
        self.elsewhere.join("file")
    }

    fn inside(&self) -> PathBuf {
        self.tree.join("inside")
    }

    fn victim(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{name}", self.victim))
    }
}

/// What must come of an attempt in a row.
#[derive(Clone, Copy)]
pub enum Barrier {
    /// The filter refuses it everywhere: `EPERM`.
    Filter,
    /// Landlock refuses it everywhere: `EACCES`.
    Domain,
    /// The filter of a child refuses it; in a thread, Landlock does.
    FilterOrDomain,
    /// Without a network row there is no socket; with one, Landlock refuses this use of it.
    Port,
    /// Nothing refuses it: one of the things that `docs/threat-model.md` says are open.
    Open,
    /// As this says.
    Row(fn(&Row) -> i32),
}

impl Barrier {
    /// The error number in a row, 0 when nothing stops it.
    #[must_use]
    pub fn expected(self, row: &Row) -> i32 {
        match self {
            Self::Filter => EPERM,
            Self::Domain => EACCES,
            Self::FilterOrDomain if row.exec == Exec::None => EACCES,
            Self::FilterOrDomain => EPERM,
            Self::Port if makes_sockets(row) => EACCES,
            Self::Port => EPERM,
            Self::Open => ALLOWED,
            Self::Row(rule) => rule(row),
        }
    }
}

fn makes_sockets(row: &Row) -> bool {
    matches!(row.network, Network::RemotePort | Network::Dns)
}

/// Whether the row may read the root's files; one that may not refuses by Landlock.
fn reads_root(row: &Row) -> i32 {
    let reads = matches!(
        row.files,
        Files::ReadRoot
            | Files::WriteRoot
            | Files::WriteGitDir
            | Files::WriteLocks
            | Files::WriteRegistry
    );
    if reads { ALLOWED } else { EACCES }
}

/// What comes of it in a process that nothing confines.
#[derive(Clone, Copy)]
pub enum Control {
    /// It works.
    Works,
    /// The kernel looks at it, past any filter, and answers this for the reason given.
    Answers(&'static [Errno], &'static str),
}

/// One thing to try.
pub struct Attempt {
    /// Its name, unique.
    pub name: &'static str,
    /// What must come of it.
    pub barrier: Barrier,
    /// What comes of it outside.
    pub control: Control,
    /// Tries it.
    pub run: fn(&Aim) -> io::Result<()>,
}

const fn attempt(name: &'static str, barrier: Barrier, run: fn(&Aim) -> io::Result<()>) -> Attempt {
    Attempt { name, barrier, control: Control::Works, run }
}

impl Attempt {
    const fn answers(self, errors: &'static [Errno], why: &'static str) -> Self {
        Self { control: Control::Answers(errors, why), ..self }
    }
}

/// The table.
pub fn table() -> impl Iterator<Item = &'static Attempt> {
    [files::TABLE, processes::TABLE, programs::TABLE, network::TABLE, kernel::TABLE]
        .into_iter()
        .flatten()
}

/// Tries everything, and tells one character for each, in groups of eight: a refusal from a row must
/// fit a line of 300.
#[must_use]
pub fn try_all(aim: &Aim) -> String {
    let letters: Vec<char> =
        table().map(|one| letter(super::confine::number((one.run)(aim)))).collect();
    letters.chunks(8).map(|eight| eight.iter().collect()).collect::<Vec<String>>().join(" ")
}

/// What [`try_all`] told, by attempt.
#[must_use]
pub fn read(told: &str) -> Vec<char> {
    told.chars().filter(|letter| !letter.is_whitespace()).collect()
}

/// Tries one thing.
///
/// # Panics
/// When there is none of this name.
#[must_use]
pub fn try_one(name: &str, aim: &Aim) -> i32 {
    let one = table().find(|one| one.name == name).expect("it is in the table");
    super::confine::number((one.run)(aim))
}

/// An error number in one character.
#[must_use]
pub fn letter(number: i32) -> char {
    const LETTERS: [(Errno, char); 14] = [
        (Errno::EPERM, 'P'),
        (Errno::EACCES, 'A'),
        (Errno::EXDEV, 'X'),
        (Errno::ENOSYS, 'N'),
        (Errno::EBADF, 'B'),
        (Errno::ESRCH, 'S'),
        (Errno::ELOOP, 'L'),
        (Errno::ENOENT, 'E'),
        (Errno::EINVAL, 'I'),
        (Errno::EEXIST, 'T'),
        (Errno::EROFS, 'R'),
        (Errno::ENOTDIR, 'D'),
        (Errno::ECONNREFUSED, 'C'),
        (Errno::ENODEV, 'V'),
    ];
    if number == ALLOWED {
        return 'o';
    }
    LETTERS.iter().find(|(errno, _)| *errno as i32 == number).map_or('?', |(_, letter)| *letter)
}

fn open(path: &Path, flags: rustix::fs::OFlags) -> io::Result<rustix::fd::OwnedFd> {
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    Ok(rustix::fs::open(path, flags | rustix::fs::OFlags::CLOEXEC, mode)?)
}
