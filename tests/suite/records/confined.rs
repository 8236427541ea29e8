//! Scripts that try to reach what is none of their business: each attempt works for a person, and
//! none works for a script that Sage runs.

use std::net::TcpListener;

use harness::calls::{self, ROOT};
use harness::snapshot::Snapshot;
use harness::world::World;
use protocol::refusal::Code;
use protocol::reply::{Committed, Reserved, Written};
use protocol::tool::ToolCall;

use super::{LOCK_TOOL, Said, VALIDATOR, no_script_is_left, python, shipped, vault_like};

/// A script that makes attempts and says which of them worked.
const TRY: &str = "
import os, socket, sys
def open_and(path, mode, do):
    with open(path, mode) as file:
        do(file)
def touch(path, flags=os.O_WRONLY | os.O_CREAT):
    os.close(os.open(path, flags, 0o600))
def passing(path):
    touch(path)
    os.unlink(path)
def forked():
    if os.fork() == 0:
        os._exit(0)
    os.wait()
def spawned():
    os.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0)
worked = []
def attempt(name, do):
    try:
        do()
    except OSError:
        return
    worked.append(name)
";

/// Reading what lies outside the root: name, Python.
const OUTSIDE: &[(&str, &str)] = &[
    ("list above", "os.listdir('..')"),
    ("another root", "open('../notes/private.md').read()"),
    ("the configuration", "open('../executor.json').read()"),
    ("the token", "open('../token').read()"),
    ("the audit", "open('../state/audit.jsonl').read()"),
    ("the remote", "open('../remote.git/HEAD').read()"),
    ("the machine", "open('/etc/passwd').read()"),
    ("who started it", "open('/proc/%d/environ' % os.getppid()).read()"),
    ("itself by /proc", "open('/proc/self/status').read()"),
    ("write above", "touch('../markers/was-here')"),
    ("write to the state", "touch('../state/was-here')"),
    ("write a temporary file", "passing('/tmp/sage-test-%d' % os.getpid())"),
];

/// Changing something in the root.
const INSIDE: &[(&str, &str)] = &[
    ("a new file", "touch('new.md')"),
    ("a file", "open_and('README.md', 'a', lambda f: f.write('x'))"),
    ("an empty file", "touch('plans/two.md', os.O_WRONLY | os.O_TRUNC)"),
    ("truncate", "os.truncate('plans/two.md', 1)"),
    ("git's configuration", "open_and('.git/config', 'a', lambda f: f.write('# x'))"),
    ("a ref", "touch('.git/refs/heads/other')"),
    ("a hook", "touch('.git/post-commit')"),
    ("itself", "open_and(sys.argv[0], 'a', lambda f: f.write('# x'))"),
    ("a folder", "os.mkdir('folder')"),
    ("remove", "os.unlink('plans/one.md')"),
    ("rename", "os.rename('plans/two.md', 'plans/deux.md')"),
    ("symlink", "os.symlink('README.md', 'link.md')"),
    ("hard link", "os.link('README.md', 'hard.md')"),
    ("fifo", "os.mkfifo('fifo')"),
    ("chmod", "os.chmod('README.md', 0o600)"),
    ("fchmod", "os.fchmod(os.open('README.md', os.O_RDONLY), 0o640)"),
    ("chown", "os.chown('README.md', os.getuid(), os.getgid())"),
    ("utime", "os.utime('README.md', (1, 1))"),
];

/// Other processes and the network.
const REACH: &[(&str, &str)] = &[
    ("fork", "forked()"),
    ("spawn", "spawned()"),
    ("signal its parent", "os.kill(os.getppid(), 0)"),
    ("connect", "socket.create_connection(('127.0.0.1', PORT)).close()"),
    ("listen", "socket.create_server(('127.0.0.1', 0)).close()"),
    ("udp", "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close()"),
    ("unix", "socket.socket(socket.AF_UNIX).close()"),
    ("netlink", "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).close()"),
    ("a pair", "[s.close() for s in socket.socketpair()]"),
];

const REGISTRY_AND_LOCKS: &[(&str, &str)] = &[
    ("the registry", "open_and('docs/ID-REGISTRY.txt', 'a', lambda f: f.write(''))"),
    ("a lock", "touch('.vault-locks/x')"),
];

const LOCKS: &[(&str, &str)] = &[REGISTRY_AND_LOCKS[1]];

fn attempts(lists: &[&[(&str, &str)]], port: u16) -> String {
    let calls = lists.iter().flat_map(|list| *list).map(|(name, python)| {
        format!("attempt({name:?}, lambda: {})\n", python.replace("PORT", &port.to_string()))
    });
    format!("{TRY}{}", calls.collect::<String>())
}

fn names(lists: &[&[(&str, &str)]]) -> String {
    let names = lists.iter().flat_map(|list| *list).map(|(name, _)| *name);
    names.collect::<Vec<_>>().join(", ")
}

/// A world with something to find outside the root.
fn world(script: &str, text: &str) -> World {
    let world = vault_like(World::builder().notes(), &[(script, text)]).build_stopped();
    for (path, text) in [("notes/private.md", "private\n"), ("token", "a token\n")] {
        std::fs::write(world.base().join(path), text).expect("it can be written");
    }
    let mut world = world;
    world.start();
    world
}

/// The same attempts by a person, in another world: all of them work.
fn a_person_can(script: &str, text: &str, arguments: &[&str], all: &str) {
    let world = world(script, text);
    std::fs::create_dir_all(world.clone_dir().path(".vault-locks")).expect("a folder");
    let output = python(world.clone_dir().dir(), "x", &[script]).args(arguments).output();
    let said = Said::by(&output.expect("python3 starts"));
    assert_eq!(
        (said.code, said.out.as_str()),
        (Some(1), format!("worked: {all}").as_str()),
        "{said:?}"
    );
}

/// The end of such a script.
const TELL: &str = "if worked:\n    print('worked:', ', '.join(worked))\n    sys.exit(1)\n";

#[test]
fn a_validator_only_reads_the_root() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("it is bound").port();
    let lists = [OUTSIDE, INSIDE, REACH, REGISTRY_AND_LOCKS];
    let script = attempts(&lists, port) + TELL;
    a_person_can(VALIDATOR, &script, &[], &names(&lists));
    drop(listener.accept().expect("the control's"));
    let world = world(VALIDATOR, &script);
    world.turn("Owner").reply::<Written>(calls::write(ROOT, "README.md", "changed\n"));
    world.turn("Owner").reply::<Committed>(calls::commit(ROOT, "It could not", &["README.md"]));
    listener.set_nonblocking(true).expect("it is ours");
    assert!(listener.accept().is_err(), "nobody came");
    no_script_is_left(&world);
}

/// A lock tool that makes attempts in one of its steps, and does all else as shipped.
fn tool_that_tries(step: &str, lists: &[&[(&str, &str)]]) -> String {
    let tries = attempts(lists, 0) + TELL;
    let tool = shipped(LOCK_TOOL);
    let (head, body) = tool.split_once("import sys\n").expect("it imports sys");
    format!("{head}import sys\nif sys.argv[1] == '{step}':\n    exec({tries:?})\n{body}")
}

fn is_kept_in(step: &str, arguments: &[&str], lists: &[&[(&str, &str)]], call: ToolCall) {
    let tool = tool_that_tries(step, lists);
    a_person_can(LOCK_TOOL, &tool, arguments, &names(lists));
    let world = world(LOCK_TOOL, &tool);
    let outside = |world: &World| {
        Snapshot::of(world.base())
            .without(ROOT)
            .without("state")
            .without("remote.git")
            .without("executor.log")
    };
    world.clone_dir().write("plans/one.md", "changed\n");
    let before = outside(&world);
    let turn = world.turn("Owner");
    match step {
        "lock" | "unlock" => drop(turn.reply::<Written>(call)),
        "check" => drop(turn.reply::<Committed>(call)),
        _ => drop(turn.reply::<Reserved>(call)),
    }
    before.assert_same(&outside(&world), step);
    no_script_is_left(&world);
}

#[test]
fn asking_for_locks_only_reads_the_root() {
    let call = calls::commit(ROOT, "Words", &["plans/one.md"]);
    let lists = [OUTSIDE, INSIDE, REGISTRY_AND_LOCKS];
    is_kept_in("check", &["check", "plans/one.md"], &lists, call);
}

#[test]
fn locking_writes_locks_alone() {
    let lists = [OUTSIDE, INSIDE, &REGISTRY_AND_LOCKS[..1]];
    for step in ["lock", "unlock"] {
        let call = calls::write(ROOT, "plans/one.md", "changed\n");
        is_kept_in(step, &[step, "plans/one.md"], &lists, call);
    }
}

#[test]
fn reserving_writes_the_registry_and_locks_alone() {
    let lists = [OUTSIDE, INSIDE];
    let call = calls::reserve(ROOT, "A title");
    is_kept_in("reserve", &["reserve", "DEC", "A title"], &lists, call);
}

#[test]
fn what_a_step_may_write_it_can_write() {
    for (step, lists) in [("lock", &[LOCKS][..]), ("reserve", &[REGISTRY_AND_LOCKS][..])] {
        let world = world(LOCK_TOOL, &tool_that_tries(step, lists));
        let call = match step {
            "lock" => calls::write(ROOT, "plans/one.md", "x"),
            _ => calls::reserve(ROOT, "A title"),
        };
        let refusal = world.turn("Owner").refused_by(Code::RecordProtocol, call);
        // The tool tells on its standard output, and a refusal shows what it said.
        assert!(refusal.message.contains(&format!("worked: {}", names(lists))), "{refusal}");
    }
}
