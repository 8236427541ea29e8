//! The record protocol (F), with the scripts that the demo ships.

use std::process::{Command, Output};

use harness::builder::Builder;
use harness::calls::{self, ROOT};
use harness::world::World;
use protocol::refusal::Code;
use protocol::reply::{Committed, Reserved, Status, Written};

use crate::check;

const RECORD: &str = "vault/Decisions/DEC-0003-pick-a-name.md";
const TEXT: &str =
    "---\nid: DEC-0003\ntitle: Pick a name\nstatus: proposed\n---\n\n# Pick a name\n";

/// The files of the demo's repository, from its sources.
const FILES: &[(&str, &str)] = &[
    (".gitignore", include_str!("../../connector/src/demo/vault/.gitignore")),
    ("docs/ID-REGISTRY.txt", include_str!("../../connector/src/demo/vault/docs/ID-REGISTRY.txt")),
    (
        "tools/validate_vault.py",
        include_str!("../../connector/src/demo/vault/tools/validate_vault.py"),
    ),
    ("tools/vault_lock.py", include_str!("../../connector/src/demo/vault/tools/vault_lock.py")),
    (
        "vault/Decisions/DEC-0001-records-are-plain-text-files.md",
        include_str!(
            "../../connector/src/demo/vault/vault/Decisions/DEC-0001-records-are-plain-text-files.md"
        ),
    ),
];

pub(crate) fn builder(script: Option<(&str, &str)>) -> Builder {
    let mut builder = World::builder().vault();
    for (path, text) in FILES {
        let text = script.filter(|(name, _)| name == path).map_or(*text, |(_, text)| text);
        builder = builder.file(path, text);
    }
    builder
}

pub(crate) fn world_with(script: Option<(&str, &str)>) -> World {
    builder(script).build()
}

pub(crate) fn world() -> World {
    world_with(None)
}

/// The lock tool, as a person runs it.
fn lock_tool(world: &World, owner: &str, arguments: &[&str]) -> Output {
    Command::new("python3")
        .arg("tools/vault_lock.py")
        .args(arguments)
        .current_dir(world.clone_dir().dir())
        .env("VAULT_LOCK_OWNER", owner)
        .output()
        .expect("python3 starts")
}

fn locks(world: &World) -> usize {
    let entries = std::fs::read_dir(world.clone_dir().path(".vault-locks"));
    let is_lock =
        |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().ends_with(".json");
    entries.map_or(0, |entries| entries.flatten().filter(is_lock).count())
}

#[test]
fn a_reservation_rides_with_the_next_commit_exactly_once() {
    let world = world();
    let turn = world.turn("Owner");
    let reserved: Reserved = turn.reply(calls::reserve(ROOT, "Pick a name"));
    assert_eq!(reserved.id, "DEC-0003");
    let status: Status = turn.reply(calls::status(ROOT, ""));
    let pending: Vec<_> = status.untrusted_reserved.iter().map(|id| id.as_str()).collect();
    assert_eq!(pending, ["DEC-0003"]);
    turn.reply::<Written>(calls::write(ROOT, RECORD, TEXT));
    let done: Committed = turn.reply(calls::commit(ROOT, "Pick a name", &[RECORD]));
    let files: Vec<_> = done.untrusted_files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(files, ["docs/ID-REGISTRY.txt", RECORD]);
    let status: Status = turn.reply(calls::status(ROOT, ""));
    assert!(status.clean && status.untrusted_reserved.is_empty(), "{status:?}");
    turn.reply::<Written>(calls::write(ROOT, RECORD, &TEXT.replace("proposed", "accepted")));
    let done: Committed = turn.reply(calls::commit(ROOT, "Accept it", &[RECORD]));
    assert_eq!(done.untrusted_files.len(), 1);
    check::sound(&world);
}

#[test]
fn a_record_that_the_validator_refuses_is_not_committed() {
    let world = world();
    let turn = world.turn("Owner");
    let head = world.clone_dir().head();
    turn.reply::<Reserved>(calls::reserve(ROOT, "Pick a name"));
    turn.reply::<Written>(calls::write(ROOT, RECORD, &TEXT.replace("status: proposed\n", "")));
    let call = || calls::commit(ROOT, "Pick a name", &[RECORD]);
    let refusal = turn.refused_by(Code::RecordProtocol, call());
    let said = &refusal.message;
    assert!(said.contains(RECORD) && said.contains("status"), "{said}");
    assert_eq!(world.clone_dir().head(), head);
    check::sound(&world);
    turn.reply::<Written>(calls::write(ROOT, RECORD, TEXT));
    turn.reply::<Committed>(call());
}

#[test]
fn a_registry_that_did_not_only_grow_stops_a_commit() {
    let world = world();
    let turn = world.turn("Owner");
    turn.reply::<Reserved>(calls::reserve(ROOT, "Pick a name"));
    turn.reply::<Written>(calls::write(ROOT, RECORD, TEXT));
    let registry = world.clone_dir().text("docs/ID-REGISTRY.txt");
    world.clone_dir().write(
        "docs/ID-REGISTRY.txt",
        registry.replacen("DEC-0002\teditors", "DEC-0002\tothers", 1),
    );
    let call = || calls::commit(ROOT, "Pick a name", &[RECORD]);
    let refusal = turn.refused_by(Code::RecordProtocol, call());
    assert!(refusal.message.contains("appending"), "{}", refusal.message);
    world.clone_dir().write("docs/ID-REGISTRY.txt", registry);
    turn.reply::<Committed>(call());
}

#[test]
fn a_lock_of_somebody_else_stops_a_write_and_a_commit_and_is_named() {
    let world = world();
    let turn = world.turn("Owner");
    turn.reply::<Reserved>(calls::reserve(ROOT, "Pick a name"));
    turn.reply::<Written>(calls::write(ROOT, RECORD, TEXT));
    assert_eq!(locks(&world), 0, "a write lets its lock go");
    assert!(lock_tool(&world, "partner", &["lock", RECORD]).status.success());
    for call in [calls::write(ROOT, RECORD, "x"), calls::commit(ROOT, "Locked", &[RECORD])] {
        let refusal = turn.refused_by(Code::RecordProtocol, call);
        assert!(refusal.message.contains("partner"), "{}", refusal.message);
    }
    assert_eq!(world.clone_dir().text(RECORD), TEXT);
    assert!(lock_tool(&world, "partner", &["unlock", RECORD]).status.success());
    turn.reply::<Committed>(calls::commit(ROOT, "Free again", &[RECORD]));
}

#[test]
fn a_script_that_is_not_the_committed_one_does_not_run() {
    let world = world();
    let turn = world.turn("Owner");
    for script in ["tools/validate_vault.py", "tools/vault_lock.py"] {
        let committed = world.clone_dir().text(script);
        let marker = world.markers().join("ran");
        let trap = format!("open({marker:?}, 'w')\n{committed}");
        world.clone_dir().write(script, trap);
        let ran = Command::new("python3").arg(script).current_dir(world.clone_dir().dir()).output();
        ran.expect("python3 starts");
        std::fs::remove_file(&marker).expect("the trap fires for a person");
        world.clone_dir().write("plans/one.md", "changed\n");
        let calls = match script {
            "tools/vault_lock.py" => {
                [calls::write(ROOT, "plans/one.md", "x"), calls::reserve(ROOT, "X")]
            }
            _ => [
                calls::commit(ROOT, "X", &["plans/one.md"]),
                calls::commit(ROOT, "Y", &["plans/one.md"]),
            ],
        };
        for call in calls {
            let refusal = turn.refused_by(Code::RecordProtocol, call);
            assert!(refusal.message.contains("differs from the committed"), "{}", refusal.message);
        }
        assert!(!marker.exists());
        world.clone_dir().write(script, committed);
    }
    turn.reply::<Reserved>(calls::reserve(ROOT, "Pick a name"));
}

/// A validator that tries something and says with its exit status whether it could.
fn validator_cannot(attempt: &str) {
    let script = format!(
        "import os, socket, subprocess, sys\ntry:\n    {attempt}\nexcept OSError as e:\n    sys.exit(0)\nprint('it could')\nsys.exit(1)\n"
    );
    let world = world_with(Some(("tools/validate_vault.py", &script)));
    let control =
        Command::new("python3").args(["-c", &script]).current_dir(world.clone_dir().dir()).output();
    assert_eq!(control.expect("python3 starts").status.code(), Some(1), "a person can: {attempt}");
    world.git(&["checkout", "-q", "--", "."]);
    world.clone_dir().write("plans/one.md", "changed\n");
    let turn = world.turn("Owner");
    turn.reply::<Committed>(calls::commit(ROOT, "It could not", &["plans/one.md"]));
}

#[test]
fn a_validator_reaches_nothing_and_writes_nothing() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("it is bound").port();
    for attempt in [
        "open('README.md', 'a').write('x')",
        "os.listdir('/etc')",
        "open('/etc/hostname').read()",
        "subprocess.run(['/bin/true'])",
        "os.fork() or os._exit(0)",
        &format!("socket.create_connection(('127.0.0.1', {port}))"),
        "socket.socket(socket.AF_UNIX)",
        "os.chmod('README.md', 0o600)",
    ] {
        validator_cannot(attempt);
    }
    listener.set_nonblocking(true).expect("it is ours");
    let mut connections = 0;
    while listener.accept().is_ok() {
        connections += 1;
    }
    assert_eq!(connections, 1, "the control's alone");
}

#[test]
fn eight_that_reserve_at_once_get_eight_ids_and_whole_lines() {
    let world = world();
    let ids: std::collections::BTreeSet<String> = std::thread::scope(|scope| {
        let reserve = |n: usize| {
            let world = &world;
            scope.spawn(move || {
                let output = lock_tool(world, &format!("owner{n}"), &["reserve", "DEC", "At once"]);
                String::from_utf8_lossy(&output.stdout).trim().to_owned()
            })
        };
        let racers: Vec<_> = (0..8).map(reserve).collect();
        racers.into_iter().map(|racer| racer.join().expect("it ends")).collect()
    });
    assert_eq!(ids.len(), 8, "{ids:?}");
    let registry = world.clone_dir().text("docs/ID-REGISTRY.txt");
    let whole = registry.lines().filter(|line| line.ends_with("\tAt once")).count();
    assert_eq!(whole, 8, "{registry}");
    assert!(registry.ends_with('\n'));
}
