//! The demo's scripts by themselves: how they end, and what they make of damaged registries and odd
//! titles (case B63).

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::Permissions;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use super::{DECISION, FILES, LOCK_TOOL, REGISTRY, Said, VALIDATOR, lock_tool, locks, python};

/// The demo's files in a folder, without git and without an executor.
#[derive(Debug)]
pub(super) struct Folder(tempfile::TempDir);

impl Folder {
    pub(super) fn new() -> Self {
        let open = Permissions::from_mode(0o755);
        let folder = tempfile::Builder::new().prefix("sage-test-").permissions(open).tempdir();
        let folder = Self(folder.expect("a temporary folder can be made"));
        for (path, text) in FILES {
            let path = folder.dir().join(path);
            std::fs::create_dir_all(path.parent().expect("it has one")).expect("a folder");
            std::fs::write(path, text).expect("it can be written");
        }
        folder
    }

    fn with(registry: impl AsRef<[u8]>) -> Self {
        let folder = Self::new();
        folder.set(registry);
        folder
    }

    pub(super) fn dir(&self) -> &Path {
        self.0.path()
    }

    pub(super) fn registry(&self) -> PathBuf {
        self.dir().join(REGISTRY)
    }

    pub(super) fn set(&self, text: impl AsRef<[u8]>) {
        std::fs::write(self.registry(), text).expect("it can be written");
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        std::fs::read(self.registry()).expect("it is there")
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8(self.bytes()).expect("it is UTF-8")
    }

    pub(super) fn reserve(&self) -> Said {
        lock_tool(self.dir(), "someone", &["reserve", "DEC", "A title"])
    }

    pub(super) fn validate(&self) -> Said {
        Said::by(&python(self.dir(), "x", &[VALIDATOR]).output().expect("python3 starts"))
    }
}

#[test]
fn the_lock_tool_ends_with_0_1_or_2() {
    let folder = Folder::new();
    let tool = |owner: &str, words: &[&str]| lock_tool(folder.dir(), owner, words);
    assert_eq!(tool("a", &["check", DECISION]).fine(), "free: 1");
    assert!(tool("a", &["lock", DECISION, "README.md"]).fine().starts_with("locked: 2 until "));
    assert_eq!(locks(folder.dir()).len(), 2);
    tool("a", &["lock", DECISION]).fine();
    for step in ["check", "lock", "unlock"] {
        tool("b", &[step, "other.md", DECISION]).no(&format!("{DECISION}: locked by a until 2"));
    }
    assert_eq!(locks(folder.dir()).len(), 2, "all or none");
    assert_eq!(tool("a", &["unlock", DECISION, "README.md"]).fine(), "unlocked: 2");
    tool("b", &["lock", DECISION]).fine();
    tool("", &["check", DECISION]).no("VAULT_LOCK_OWNER is not set");
    for path in ["/etc/passwd", "../x", "a/../../x", "a\nb", "."] {
        tool("b", &["lock", path]).no(":");
    }
    let usages: [&[&str]; 9] = [
        &[],
        &["check"],
        &["lock", "--"],
        &["steal", "x"],
        &["--help"],
        &["reserve"],
        &["reserve", "DEC"],
        &["reserve", "XYZ", "t"],
        &["reserve", "DEC", "t", "more"],
    ];
    let before = folder.bytes();
    for words in usages {
        let said = tool("b", words);
        assert!(said.code == Some(2) && said.out.is_empty(), "{words:?}: {said:?}");
        assert!(said.err.starts_with("usage: "), "{words:?}: {said:?}");
    }
    assert_eq!(folder.bytes(), before);
}

#[test]
fn the_validator_ends_with_0_1_or_2() {
    let folder = Folder::new();
    assert_eq!(folder.validate().fine(), "ok: 1 records");
    let more = python(folder.dir(), "x", &[VALIDATOR, "--fix"]).output().expect("python3 starts");
    assert_eq!(Said::by(&more).code, Some(2));
    let record = folder.dir().join(DECISION);
    let text = std::fs::read_to_string(&record).expect("it is there");
    std::fs::write(&record, text.replace("id: DEC-0001", "id: DEC-0009")).expect("it is ours");
    let said = folder.validate();
    assert!(said.code == Some(1) && said.out.contains(&format!("{DECISION}:2: id: ")), "{said:?}");
    std::fs::write(&record, text).expect("it is ours");
    folder.validate().fine();
}

#[test]
fn b63_a_torn_last_line_is_set_apart_and_its_number_not_given_out_again() {
    let cases = [
        ("DEC-0001\ta\tb\nDEC-0002\ted", "DEC-0003"),
        ("DEC-0001\ta\tb\nDEC-0002\t", "DEC-0003"),
        ("DEC-0001\ta\tb\nDEC-0002", "DEC-0003"),
        ("DEC-0001\ta\tb\nDEC-", "DEC-0002"),
        ("DEC-0001\ta\tb\nDEC-0002\ta\tbDEC-0003\ta\tb\n", "DEC-0004"),
        ("\u{feff}DEC-0007\ta\tb\n", "DEC-0008"),
    ];
    for (registry, id) in cases {
        let folder = Folder::with(registry);
        let said = folder.reserve();
        let torn = !registry.ends_with('\n');
        assert_eq!(said.err.contains("torn"), torn, "{registry:?}: {said:?}");
        assert_eq!(said.fine(), id, "{registry:?}");
        let apart = if torn { "\n" } else { "" };
        let expected = format!("{registry}{apart}{id}\tsomeone\tA title\n");
        assert_eq!(folder.text(), expected, "{registry:?}");
        assert_ne!(folder.reserve().fine(), id);
    }
}

#[test]
fn b63_eight_processes_with_many_reservations_leave_no_gap() {
    let folder = Folder::new();
    let before = folder.text();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let ids: Vec<String> = (0..8).map(|_| folder.reserve().fine()).collect();
                assert!(ids.is_sorted(), "{ids:?}");
            });
        }
    });
    let lines: String = (3..67).map(|n| format!("DEC-{n:04}\tsomeone\tA title\n")).collect();
    assert_eq!(folder.text(), before + &lines);
    folder.validate().fine();
}

#[test]
fn b63_a_title_is_one_physical_line_whatever_it_holds() {
    let titles: Vec<OsString> = vec![
        "two\nlines".into(),
        "two\u{2028}lines\u{2029}more\u{85}more".into(),
        "a\rb".into(),
        "a\tb".into(),
        "x".repeat(100_000).into(),
        "x\nDEC-0999\tsomeone\tlooks like a record".into(),
        "\u{202e}turned\u{200b}".into(),
        OsString::from_vec(b"not \xff\xfe UTF-8".to_vec()),
    ];
    let folder = Folder::new();
    for (title, n) in titles.iter().zip(3..) {
        let words: [&OsStr; 3] = ["reserve".as_ref(), "DEC".as_ref(), title];
        let id = lock_tool(folder.dir(), "someone", &words).fine();
        assert_eq!(id, format!("DEC-{n:04}"), "{title:?}");
        let text = folder.text();
        let last: Vec<&str> = text.lines().last().expect("there is one").split('\t').collect();
        assert_eq!(last[..2], [id.as_str(), "someone"], "{title:?}");
        assert!(last.len() == 3 && last[2].chars().count() <= 120, "{last:?}");
        assert_eq!(text.lines().count(), n, "{title:?}");
    }
    folder.validate().fine();
    let before = folder.bytes();
    for nothing in ["", " ", "\n", "\u{200b}"] {
        lock_tool(folder.dir(), "someone", &["reserve", "DEC", nothing]).no("the title is empty");
    }
    assert_eq!(folder.bytes(), before);
}

#[test]
fn b63_an_id_is_not_given_out_twice_though_the_registry_was_cut_or_emptied() {
    let folder = Folder::new();
    let mut given = BTreeSet::new();
    let shortened = [
        "DEC-0001\ta\tb\nDEC-0002\ta\tb\n",
        "",
        "\n\n\n\n",
        "DEC-0001\ta\tb\n\n\n\n\n",
        "\u{feff}DEC-0001\ta\tb\n",
        "DEC-0001\ta\tb\nDEC-0001\ta\tb\n",
    ];
    std::fs::create_dir(folder.dir().join(".vault-locks")).expect("a folder");
    for registry in shortened {
        folder.set(registry);
        for _ in 0..2 {
            let id = folder.reserve().fine();
            assert!(given.insert(id.clone()), "{id} a second time, after {registry:?}");
        }
        assert!(folder.text().starts_with(registry), "{registry:?} was only added to");
    }
    // In a clone that remembers nothing, the records still say which numbers are taken.
    let folder = Folder::with("");
    assert_eq!(folder.reserve().fine(), "DEC-0002");
}

#[test]
fn b63_a_number_that_is_too_large_is_an_error_and_no_id() {
    for number in ["999999", "1000000", "99999999999999999999"] {
        let registry = format!("DEC-0001\ta\tb\nDEC-{number}\ta\tb\n");
        let folder = Folder::with(&registry);
        folder.reserve().no("no number left");
        assert_eq!(folder.text(), registry);
        lock_tool(folder.dir(), "someone", &["reserve", "BUS", "Another"]).fine();
    }
    assert_eq!(Folder::with("DEC-999998\ta\tb\n").reserve().fine(), "DEC-999999");
}

#[test]
fn b63_without_a_registry_that_can_be_written_no_id_is_given_out() {
    let folder = Folder::new();
    let registry = folder.registry();
    let good = folder.text();
    std::fs::remove_file(&registry).expect("it is ours");
    folder.reserve().no("docs/ID-REGISTRY.txt: No such file or directory");
    std::fs::create_dir(&registry).expect("a folder");
    folder.reserve().no("docs/ID-REGISTRY.txt: Is a directory");
    std::fs::remove_dir(&registry).expect("it is ours");
    std::os::unix::fs::symlink("../README.md", &registry).expect("a link");
    folder.reserve().no("docs/ID-REGISTRY.txt: ");
    std::fs::remove_file(&registry).expect("it is ours");
    nix::unistd::mkfifo(&registry, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    folder.reserve().no("not a regular file");
    std::fs::remove_file(&registry).expect("it is ours");
    std::fs::remove_dir(folder.dir().join("docs")).expect("it is empty");
    folder.reserve().no("docs/ID-REGISTRY.txt: No such file or directory");
    std::fs::create_dir(folder.dir().join("docs")).expect("a folder");
    folder.set(good);
    assert_eq!(folder.reserve().fine(), "DEC-0003");
}

#[test]
fn b63_a_read_only_registry_is_an_error_and_no_id() {
    let folder = Folder::new();
    std::fs::set_permissions(folder.registry(), Permissions::from_mode(0o444)).expect("it is ours");
    let before = folder.bytes();
    let mut command = python(folder.dir(), "someone", &[LOCK_TOOL, "reserve", "DEC", "A title"]);
    if nix::unistd::geteuid().is_root() {
        // No mode stops root: somebody else tries.
        command.uid(65534).gid(65534);
    }
    Said::by(&command.output().expect("python3 starts"))
        .no("docs/ID-REGISTRY.txt: Permission denied");
    assert_eq!(folder.bytes(), before);
    std::fs::set_permissions(folder.registry(), Permissions::from_mode(0o644)).expect("it is ours");
    assert_eq!(folder.reserve().fine(), "DEC-0003");
}
