//! More of the record protocol (F): the demo's scripts by themselves and through the executor, and
//! scripts that misbehave. The usual way is in `vault`.

use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use harness::builder::Builder;
use harness::world::World;

mod broken;

mod confined;

mod links;

mod locks;

mod registry;

mod tool;

mod kills;

const REGISTRY: &str = "docs/ID-REGISTRY.txt";
const VALIDATOR: &str = "tools/validate_vault.py";
const LOCK_TOOL: &str = "tools/vault_lock.py";
const DECISION: &str = "vault/Decisions/DEC-0001-records-are-plain-text-files.md";
const RECORD: &str = "vault/Decisions/DEC-0003-pick-a-name.md";
const TEXT: &str =
    "---\nid: DEC-0003\ntitle: Pick a name\nstatus: proposed\n---\n\n# Pick a name\n";

/// The files of the demo's repository, from its sources.
const FILES: &[(&str, &str)] = &[
    (".gitignore", include_str!("../../connector/src/demo/vault/.gitignore")),
    (REGISTRY, include_str!("../../connector/src/demo/vault/docs/ID-REGISTRY.txt")),
    (VALIDATOR, include_str!("../../connector/src/demo/vault/tools/validate_vault.py")),
    (LOCK_TOOL, include_str!("../../connector/src/demo/vault/tools/vault_lock.py")),
    (
        DECISION,
        include_str!(
            "../../connector/src/demo/vault/vault/Decisions/DEC-0001-records-are-plain-text-files.md"
        ),
    ),
];

/// The text of one of them.
fn shipped(path: &str) -> &'static str {
    FILES.iter().find(|(name, _)| *name == path).expect("the demo has it").1
}

/// A vault whose repository has some files otherwise.
fn vault_like(builder: Builder, others: &[(&str, &str)]) -> Builder {
    let vault = FILES.iter().fold(builder.vault(), |b, (path, text)| b.file(path, text));
    others.iter().fold(vault, |b, (path, text)| b.file(path, text))
}

fn world_with(others: &[(&str, &str)]) -> World {
    vault_like(World::builder(), others).build()
}

fn world() -> World {
    world_with(&[])
}

/// What a program said, and how it ended.
#[derive(Debug)]
struct Said {
    code: Option<i32>,
    signal: Option<i32>,
    out: String,
    err: String,
}

impl Said {
    fn by(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
        let (code, signal) = (output.status.code(), output.status.signal());
        Self { code, signal, out: text(&output.stdout), err: text(&output.stderr) }
    }

    /// It ended well; what it printed.
    fn fine(self) -> String {
        assert!(self.code == Some(0), "{self:?}");
        self.out
    }

    /// It refused, printed nothing and said this.
    fn no(self, why: &str) {
        assert!(self.code == Some(1) && self.out.is_empty(), "{why}: {self:?}");
        assert!(self.err.contains(why), "{why}: {self:?}");
        assert!(!self.err.contains("Traceback"), "{self:?}");
    }
}

/// Python in a folder, as a person runs it.
fn python<A: AsRef<OsStr>>(folder: &Path, owner: &str, arguments: &[A]) -> Command {
    let mut python = Command::new("python3");
    python.arg("-B").args(arguments).current_dir(folder).env_clear();
    python.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("VAULT_LOCK_OWNER", owner);
    python
}

/// The lock tool in a folder, as a person runs it.
fn lock_tool<A: AsRef<OsStr>>(folder: &Path, owner: &str, arguments: &[A]) -> Said {
    let output = python(folder, owner, &[LOCK_TOOL]).args(arguments).output();
    Said::by(&output.expect("python3 starts"))
}

/// The locks in a folder, as the files hold them.
fn locks(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder.join(".vault-locks")).into_iter().flatten().flatten();
    let files = entries.map(|entry| entry.path());
    let locks = files.filter(|path| path.extension() == Some(OsStr::new("json")));
    locks.map(|path| std::fs::read_to_string(path).unwrap_or_default()).collect()
}

/// No script works in the clone any more.
fn no_script_is_left(world: &World) {
    let clone = world.clone_dir().dir();
    let processes = std::fs::read_dir("/proc").expect("it is there").flatten();
    for process in processes.filter(|p| p.file_name().to_string_lossy().parse::<u32>().is_ok()) {
        if std::fs::read_link(process.path().join("cwd")).is_ok_and(|cwd| cwd == clone) {
            let words = std::fs::read_to_string(process.path().join("cmdline")).unwrap_or_default();
            assert!(!words.contains(".py"), "{} is left: {words}", process.path().display());
        }
    }
}

/// Waits until something has come about that another process does.
fn until(what: &str, mut it_is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !it_is_so() {
        assert!(Instant::now() < deadline, "it never came about: {what}");
        std::thread::yield_now();
    }
}
