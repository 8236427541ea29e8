//! What a domain may reach, as plain data: paths with rights and reasons, and TCP ports.
//!
//! Rights only add up. A grant on a folder covers everything below it, and nothing inside can be
//! carved out again, so the smallest folder that does is the right one. A grant binds to the file
//! that the path names when the ruleset is built: a file replaced by rename afterwards is another.

use std::fmt;
use std::io;
use std::ops::BitOr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::elf;

/// A set of file rights. Everything that is not in the set is refused.
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rights(u16);

impl Rights {
    /// Open a file for reading.
    pub const READ_FILE: Self = Self(1);
    /// List a folder.
    pub const READ_DIR: Self = Self(1 << 1);
    /// Execute a file.
    pub const EXECUTE: Self = Self(1 << 2);
    /// Open a file for writing.
    pub const WRITE_FILE: Self = Self(1 << 3);
    /// Shorten a file.
    pub const TRUNCATE: Self = Self(1 << 4);
    /// Make a regular file.
    pub const MAKE_FILE: Self = Self(1 << 5);
    /// Make a folder.
    pub const MAKE_DIR: Self = Self(1 << 6);
    /// Make a symbolic link.
    pub const MAKE_SYM: Self = Self(1 << 7);
    /// Remove or rename a file.
    pub const REMOVE_FILE: Self = Self(1 << 8);
    /// Remove or rename a folder.
    pub const REMOVE_DIR: Self = Self(1 << 9);
    /// Move or link between folders.
    pub const REFER: Self = Self(1 << 10);
    /// Make a Unix socket, as binding one does.
    pub const MAKE_SOCKET: Self = Self(1 << 11);
    /// Connect to a Unix socket below this path. Landlock governs it from ABI 9 on.
    pub const CONNECT_UNIX: Self = Self(1 << 12);

    /// Read a tree: files and listings.
    pub const READ: Self = Self(Self::READ_FILE.0 | Self::READ_DIR.0);
    /// Read and execute one program, or the loader that it needs.
    pub const EXEC: Self = Self(Self::READ_FILE.0 | Self::EXECUTE.0);
    /// Read and write one device file, such as /dev/null.
    pub const DEVICE: Self = Self(Self::READ_FILE.0 | Self::WRITE_FILE.0);
    /// Do everything in a tree that git does in one. Execution is not part of it.
    pub const WRITE_TREE: Self = Self(
        Self::READ.0
            | Self::WRITE_FILE.0
            | Self::TRUNCATE.0
            | Self::MAKE_FILE.0
            | Self::MAKE_DIR.0
            | Self::MAKE_SYM.0
            | Self::REMOVE_FILE.0
            | Self::REMOVE_DIR.0
            | Self::REFER.0,
    );

    /// Every single right with its letter, in the order in which they are shown.
    const LETTERS: [(Self, char); 13] = [
        (Self::READ_FILE, 'r'),
        (Self::READ_DIR, 'l'),
        (Self::EXECUTE, 'x'),
        (Self::WRITE_FILE, 'w'),
        (Self::TRUNCATE, 't'),
        (Self::MAKE_FILE, 'f'),
        (Self::MAKE_DIR, 'd'),
        (Self::MAKE_SYM, 's'),
        (Self::REMOVE_FILE, 'u'),
        (Self::REMOVE_DIR, 'D'),
        (Self::REFER, 'R'),
        (Self::MAKE_SOCKET, 'k'),
        (Self::CONNECT_UNIX, 'c'),
    ];

    /// Whether every right of `other` is in this set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether the set has no right at all.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl BitOr for Rights {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        Self::LETTERS
            .iter()
            .filter(|(right, _)| self.contains(*right))
            .try_for_each(|(_, letter)| write!(out, "{letter}"))
    }
}

impl fmt::Debug for Rights {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Rights({self})")
    }
}

/// Rights on one path, and why they are given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// An absolute path. Symbolic links in it are followed when the ruleset is built.
    pub path: PathBuf,
    /// What may be done there. On a file, the rights that only folders have are left out.
    pub rights: Rights,
    /// Why, for people.
    pub reason: String,
    /// Whether a path that does not exist is simply left out. Otherwise it is an error.
    pub optional: bool,
}

impl Grant {
    /// A grant whose path must exist.
    pub fn new(path: impl Into<PathBuf>, rights: Rights, reason: impl Into<String>) -> Self {
        Self { path: path.into(), rights, reason: reason.into(), optional: false }
    }

    /// A grant that is left out when its path does not exist.
    pub fn optional(path: impl Into<PathBuf>, rights: Rights, reason: impl Into<String>) -> Self {
        Self { optional: true, ..Self::new(path, rights, reason) }
    }
}

/// Everything that one domain may reach.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Grants {
    /// Files and folders.
    pub files: Vec<Grant>,
    /// TCP ports that may be connected to, on any host. Landlock governs them from ABI 4 on.
    pub connect_ports: Vec<u16>,
}

impl Grants {
    /// Grants of files only.
    #[must_use]
    pub fn files(files: Vec<Grant>) -> Self {
        Self { files, connect_ports: Vec::new() }
    }

    /// Adds everything of `other`. Equal grants are kept once.
    pub fn extend(&mut self, other: &Self) {
        for grant in &other.files {
            if !self.files.contains(grant) {
                self.files.push(grant.clone());
            }
        }
        for port in &other.connect_ports {
            if !self.connect_ports.contains(port) {
                self.connect_ports.push(*port);
            }
        }
    }
}

/// Folders where shared libraries live, on the systems we know.
const LIBRARY_FOLDERS: [&str; 7] =
    ["/lib", "/lib64", "/lib32", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/local/lib64"];

/// Reading of the shared library folders. Loading a library is reading it, so no execution.
#[must_use]
pub fn system_libraries() -> Vec<Grant> {
    let mut grants: Vec<Grant> = LIBRARY_FOLDERS
        .iter()
        .map(|folder| Grant::optional(*folder, Rights::READ, "shared libraries"))
        .collect();
    grants.push(Grant::optional("/etc/ld.so.cache", Rights::READ_FILE, "where libraries are"));
    grants
}

/// Running one program: the program itself, and the loader that its header names.
///
/// The libraries are apart: see [`system_libraries`].
///
/// # Errors
/// The program cannot be read, or is no ELF program of this machine's word size. A script is one
/// such: grant its interpreter and reading of the script instead.
pub fn program(path: &Path, reason: &str) -> io::Result<Vec<Grant>> {
    let mut grants = vec![Grant::new(path, Rights::EXEC, reason)];
    if let Some(loader) = elf::interpreter(path)? {
        grants.push(Grant::new(loader, Rights::EXEC, format!("the loader of: {reason}")));
    }
    Ok(grants)
}

/// Reading and writing /dev/null, which programs and `std::process` open for unused streams.
#[must_use]
pub fn dev_null() -> Grant {
    Grant::new("/dev/null", Rights::DEVICE, "unused streams")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_shown_as_letters_in_a_fixed_order() {
        assert_eq!(Rights::WRITE_TREE.to_string(), "rlwtfdsuDR");
        assert_eq!((Rights::EXECUTE | Rights::READ_FILE).to_string(), "rx");
        assert_eq!(Rights::default().to_string(), "");
    }

    #[test]
    fn writing_a_tree_never_includes_execution() {
        assert!(!Rights::WRITE_TREE.contains(Rights::EXECUTE));
        assert!(!Rights::WRITE_TREE.contains(Rights::MAKE_SOCKET));
    }

    #[test]
    fn a_union_keeps_equal_grants_once() {
        let mut union = Grants { files: vec![dev_null()], connect_ports: vec![443] };
        union.extend(&Grants { files: vec![dev_null()], connect_ports: vec![443, 8080] });
        assert_eq!(union, Grants { files: vec![dev_null()], connect_ports: vec![443, 8080] });
    }

    #[test]
    fn a_dynamic_program_is_granted_with_its_loader() {
        let grants = program(Path::new("/bin/sh"), "a shell").expect("an ELF program");
        assert_eq!(grants.len(), 2, "{grants:?}");
        assert!(grants[1].path.exists() && grants[1].rights == Rights::EXEC);
    }

    #[test]
    fn grants_survive_the_way_to_a_child() {
        let grants = Grants { files: vec![dev_null()], connect_ports: vec![1] };
        let text = serde_json::to_string(&grants).expect("plain data");
        assert_eq!(serde_json::from_str::<Grants>(&text).expect("the same"), grants);
    }
}
