//! Sage's programs, built as the tests were.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The program of this name.
///
/// `SAGE_BIN_DIR` names a folder in which they are already. Otherwise they are built here, with the
/// profile and the target folder of the tests themselves, which is quick when nothing changed.
///
/// # Panics
/// When it cannot be built.
#[must_use]
pub fn program(name: &str) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let program = FOLDER.get_or_init(folder).join(name);
    assert!(program.is_file(), "{} is not there; run `cargo build --workspace`", program.display());
    program
}

fn folder() -> PathBuf {
    if let Some(folder) = std::env::var_os("SAGE_BIN_DIR") {
        return folder.into();
    }
    // …/target/PROFILE/deps/suite-HASH
    let test = std::env::current_exe().expect("a test has a file");
    let profile = test.parent().and_then(Path::parent).expect("tests lie in target/PROFILE/deps");
    build(profile);
    profile.to_owned()
}

/// Builds them, one process at a time: under nextest each test is a process of its own.
fn build(profile: &Path) {
    let target = profile.parent().expect("a profile lies in the target folder");
    let lock = File::create(target.join("sage-tests.lock")).expect("the target folder is writable");
    lock.lock().expect("the lock is free some time");
    let name = match profile.file_name().and_then(|name| name.to_str()) {
        None | Some("debug") => "dev",
        Some(name) => name,
    };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["build", "--quiet", "--workspace", "--bins", "--profile", name, "--target-dir"])
        .arg(target)
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .output()
        .expect("cargo starts");
    assert!(
        output.status.success(),
        "the programs under test do not build:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
