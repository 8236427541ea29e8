//! What is going to be done, in order: checked as a whole first, then done and said step by step.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};

use crate::Error;
use crate::layout::Scope;

/// How every file begins that is written here.
const MARKER: &str = "# Written by `";

/// What stands before the digest of what follows the first line.
const DIGEST: &str = "sha256 ";

/// Whose a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// There is none.
    Nobodys,
    /// It is as it was written here.
    Ours,
    /// It was written here, and changed since.
    Changed,
    /// Somebody else's.
    Others,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Something to know.
    Note(String),
    /// A file is written, in one piece.
    Write(PathBuf, String),
    /// A file is removed that begins with the marker.
    Remove(PathBuf),
    /// A private folder is made.
    Folder(PathBuf),
    /// A folder is removed if nothing is in it.
    RemoveFolder(PathBuf),
    /// The manager is told something.
    Systemctl(Scope, Vec<String>),
    /// A program is run.
    Command(&'static str, Vec<String>),
}

/// Steps in order.
#[derive(Debug)]
pub struct Plan {
    marker: String,
    steps: Vec<Step>,
    next: Option<String>,
}

/// Whether a file was written here.
#[must_use]
pub fn is_ours(path: &Path) -> bool {
    current(path).is_ok_and(|text| matches!(whose(text.as_deref()), Whose::Ours | Whose::Changed))
}

fn whose(text: Option<&str>) -> Whose {
    let Some(text) = text else { return Whose::Nobodys };
    let Some((first, rest)) = text.split_once('\n').filter(|(first, _)| first.starts_with(MARKER))
    else {
        return Whose::Others;
    };
    if first.ends_with(&format!("{DIGEST}{}", digest(rest))) { Whose::Ours } else { Whose::Changed }
}

fn digest(text: &str) -> String {
    Sha256::digest(text).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// What is in a file; nothing where there is none. A link is no file of ours.
fn current(path: &Path) -> std::io::Result<Option<String>> {
    match path.symlink_metadata() {
        Ok(meta) if !meta.is_file() => Ok(Some(String::new())),
        Ok(_) => {
            let mut bytes = Vec::new();
            fs::File::open(path)?.take(1 << 20).read_to_end(&mut bytes)?;
            Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

impl Plan {
    pub(crate) fn new(program: &str) -> Self {
        let marker = format!(
            "{MARKER}{program} install`; `{program} uninstall` removes it. Changes belong into a drop-in of their own."
        );
        Self { marker, steps: Vec::new(), next: None }
    }

    pub(crate) fn step(&mut self, step: Step) {
        self.steps.push(step);
    }

    pub(crate) fn note(&mut self, text: String) {
        self.steps.push(Step::Note(text));
    }

    pub(crate) fn next(&mut self, text: String) {
        self.next = Some(text);
    }

    pub(crate) fn write(&mut self, path: PathBuf, text: &str) -> Result<(), Error> {
        let there = current(&path)
            .map_err(|error| Error::Refused(format!("{}: {error}", path.display())))?;
        let text = format!("{} {DIGEST}{}\n{text}", self.marker, digest(text));
        let shown = path.display();
        match whose(there.as_deref()) {
            Whose::Others => Err(Error::Refused(format!(
                "{shown} is there and was not written by install; move it away, or keep it and leave this \
                 program's units to it"
            ))),
            Whose::Changed => Err(Error::Refused(format!(
                "{shown} was changed since install wrote it; put the change into a drop-in of its own, and \
                 remove this file"
            ))),
            Whose::Ours if there.as_deref() == Some(&text) => {
                self.note(format!("{shown} is as it should be"));
                Ok(())
            }
            Whose::Ours | Whose::Nobodys => {
                self.steps.push(Step::Write(path, text));
                Ok(())
            }
        }
    }

    pub(crate) fn remove(&mut self, path: PathBuf) {
        let shown = path.display();
        match current(&path).map(|text| whose(text.as_deref())) {
            Ok(Whose::Nobodys) => {}
            Ok(Whose::Ours) => self.steps.push(Step::Remove(path)),
            Ok(Whose::Changed) => {
                self.note(format!("{shown} stays: it was changed since install wrote it"));
            }
            Ok(Whose::Others) => self.note(format!("{shown} stays: install did not write it")),
            Err(error) => self.note(format!("{shown} stays: {error}")),
        }
    }

    /// Whether there is nothing of ours to take away.
    pub(crate) fn is_idle(&self) -> bool {
        !self.steps.iter().any(|step| matches!(step, Step::Remove(_)))
    }

    /// The steps.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Says what would be done.
    ///
    /// # Errors
    /// When nobody reads it.
    pub fn show(&self, out: &mut impl Write) -> std::io::Result<()> {
        for step in &self.steps {
            match step {
                Step::Note(text) => writeln!(out, "{text}")?,
                Step::Write(path, text) => {
                    writeln!(out, "would write {}:", path.display())?;
                    for line in text.lines() {
                        writeln!(out, "{}", format!("  | {line}").trim_end())?;
                    }
                }
                other => writeln!(out, "would {}", other.doing())?,
            }
        }
        match &self.next {
            Some(next) => writeln!(out, "next: {next}"),
            None => Ok(()),
        }
    }

    /// Does it, and says each thing once it is done.
    ///
    /// # Errors
    /// The first step that failed; those before it stand, and doing it all again goes on from there.
    pub fn perform(&self, out: &mut impl Write) -> Result<(), Error> {
        for step in &self.steps {
            let why = |why: String| Error::Failed { step: step.doing(), why };
            if let Some(done) = step.perform().map_err(why)? {
                // When nobody listens it is still done.
                let _ = writeln!(out, "{done}");
            }
        }
        if let Some(next) = &self.next {
            let _ = writeln!(out, "next: {next}");
        }
        Ok(())
    }
}

impl Step {
    fn doing(&self) -> String {
        match self {
            Self::Note(text) => text.clone(),
            Self::Write(path, _) => format!("write {}", path.display()),
            Self::Remove(path) => format!("remove {}", path.display()),
            Self::Folder(path) => format!("make the folder {}", path.display()),
            Self::RemoveFolder(path) => {
                format!("remove the folder {} if it is empty", path.display())
            }
            Self::Systemctl(scope, arguments) => {
                format!("run {} {}", scope.systemctl(), arguments.join(" "))
            }
            Self::Command(program, arguments) => format!("run {program} {}", arguments.join(" ")),
        }
    }

    /// Does it; what was done, if anything.
    fn perform(&self) -> Result<Option<String>, String> {
        let said = |error: std::io::Error| error.to_string();
        match self {
            Self::Note(text) => Ok(Some(text.clone())),
            Self::Write(path, text) => {
                write(path, text).map_err(said)?;
                Ok(Some(format!("wrote {}", path.display())))
            }
            Self::Remove(path) => {
                fs::remove_file(path).map_err(said)?;
                Ok(Some(format!("removed {}", path.display())))
            }
            Self::Folder(path) => {
                if path.is_dir() {
                    return Ok(None);
                }
                fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(said)?;
                Ok(Some(format!("made the folder {}", path.display())))
            }
            Self::RemoveFolder(path) => match fs::remove_dir(path) {
                Ok(()) => Ok(Some(format!("removed the folder {}", path.display()))),
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
                Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => Ok(Some(format!(
                    "the folder {} stays: something else is in it",
                    path.display()
                ))),
                Err(error) => Err(error.to_string()),
            },
            Self::Systemctl(scope, arguments) => {
                // The documented test of sd_booted(3).
                if !Path::new("/run/systemd/system").is_dir() {
                    return Ok(Some(format!(
                        "systemd does not run here: not told to {}",
                        arguments.join(" ")
                    )));
                }
                let user = (*scope == Scope::User).then(|| "--user".to_owned());
                run("systemctl", user.iter().chain(arguments))?;
                Ok(Some(format!("ran {} {}", scope.systemctl(), arguments.join(" "))))
            }
            Self::Command(program, arguments) => {
                run(program, arguments.iter())?;
                Ok(Some(format!("ran {program} {}", arguments.join(" "))))
            }
        }
    }
}

/// Whole or not at all, also when the power goes.
fn write(path: &Path, text: &str) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder)?;
    let mut file = tempfile::Builder::new().prefix(".sage-").tempfile_in(folder)?;
    file.write_all(text.as_bytes())?;
    file.as_file().set_permissions(fs::Permissions::from_mode(0o644))?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    fs::File::open(folder)?.sync_all()
}

fn run<'a>(program: &str, arguments: impl Iterator<Item = &'a String>) -> Result<(), String> {
    let output =
        Command::new(program).args(arguments).output().map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{}: {}", output.status, said.trim()))
}
