//! The real executor, seen from outside: what the kernel says of it, what others may do to it, and
//! that it does not start where it could not be confined.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use harness::confine::{attack, python_program, unconfined};
use harness::programs::program;
use harness::world::World;
use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{ALLOWED, EACCES, expect, kernel, read};

/// What the kernel says of a confined process or thread.
fn facts() -> Vec<&'static str> {
    let mut facts = vec![
        "NoNewPrivs:\t1",
        "Seccomp:\t2",
        "CapInh:\t0000000000000000",
        "CapPrm:\t0000000000000000",
        "CapEff:\t0000000000000000",
        "CapAmb:\t0000000000000000",
    ];
    // Only one who may can empty the bounding set. Without new privileges it decides nothing.
    if nix::unistd::geteuid().is_root() {
        facts.push("CapBnd:\t0000000000000000");
    }
    facts
}

fn threads(pid: u32) -> Vec<PathBuf> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    tasks.map(|task| task.expect("a thread").path().join("status")).collect()
}

#[test]
fn every_thread_of_the_executor_is_without_privileges_and_filtered() {
    let _ = kernel();
    let world = World::new_plain();
    // An answer, so that the threads that serve are there.
    assert!(!world.describe().tools.is_empty());
    let threads = threads(world.executor_pid());
    assert!(threads.len() > 1, "the runtime has threads of its own");
    for status in threads.iter().map(|thread| read(thread)) {
        for fact in facts() {
            assert!(status.lines().any(|line| line == fact), "{fact} in {status}");
        }
    }
    let own = read(Path::new("/proc/self/status"));
    let held = |fact: &&str| own.lines().any(|line| line == *fact);
    assert!(!facts().iter().all(held), "this very process is not confined");
}

/// Opens what shows a process's memory. `mem` asks the kernel for the right to attach, the others
/// for the right to read.
const MEMORY: [&str; 4] = ["mem", "environ", "maps", "auxv"];

/// Gives every capability away and spies: on a sleeper of its own, and on the executor. Only so is it
/// not a smaller set of capabilities that refuses, but that the executor is not dumpable.
fn spy(executor: u32) -> String {
    let mut code = "
import subprocess
sleeper = subprocess.Popen(['/bin/sleep', '1000'])
"
    .to_owned();
    for (name, pid) in [("sleeper", "sleeper.pid"), ("executor", &executor.to_string())] {
        for file in MEMORY {
            let open = format!("open(f'/proc/{{{pid}}}/{file}', 'rb').close()");
            code += &format!("attempt('{name}-{file}', lambda: {open})\n");
        }
    }
    code += "sleeper.kill()\nsleeper.wait()\n";
    format!(
        "
for capability in range(64):
    libc.prctl(24, capability, 0, 0, 0)
os.execv(sys.executable, [sys.executable, '-I', '-S', '-c', {:?}])
",
        attack(&code)
    )
}

#[test]
fn nobody_of_the_same_user_reads_the_executors_memory_or_environment() {
    let _ = kernel();
    let world = World::new_plain();
    let seen = unconfined(&spy(world.executor_pid()), world.base());
    let expected = MEMORY.map(|file| [("sleeper", file, ALLOWED), ("executor", file, EACCES)]);
    let expected: Vec<(String, i32)> = expected
        .into_iter()
        .flatten()
        .map(|(whose, file, number)| (format!("{whose}-{file}"), number))
        .collect();
    let expected: Vec<_> = expected.iter().map(|(name, number)| (&**name, *number)).collect();
    expect(&seen, &expected);
}

/// The executor on a kernel that does not know one system call, which a filter plays.
fn without(call: i64, world: &World) -> Command {
    let code = format!(
        "
import struct
rules = [(0x20, 0, 0, 0), (0x15, 0, 1, {call}), (6, 0, 0, 0x50026), (6, 0, 0, 0x7fff0000)]
rules = b''.join(struct.pack('HBBI', *rule) for rule in rules)
rules = ctypes.create_string_buffer(rules, len(rules))
class Filter(ctypes.Structure):
    _fields_ = [('length', ctypes.c_ushort), ('rules', ctypes.c_void_p)]
filter = Filter(4, ctypes.addressof(rules))
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.byref(filter), 0, 0):
    sys.exit('the filter is refused')
os.execve(sys.argv[1], sys.argv[1:], {{}})
"
    );
    let mut command = Command::new(python_program());
    command
        .args(["-I", "-S", "-c", &attack(&code)])
        .arg(program("sage-executor"))
        .args(["serve", "--config"])
        .arg(world.base().join("executor.json"))
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    command
}

#[test]
fn the_executor_does_not_start_where_a_ring_is_missing_and_says_which() {
    let _ = kernel();
    let mut world = World::builder().build_stopped();
    let no_landlock = "Landlock ABI 0 is too old: these rights need ABI 3 (Linux 6.2)";
    for (call, said) in [
        (libc::SYS_landlock_create_ruleset, no_landlock),
        (libc::SYS_landlock_restrict_self, no_landlock),
        (libc::SYS_seccomp, "seccomp: "),
        (libc::SYS_capset, "capabilities, "),
    ] {
        let output = without(call, &world).output().expect("python starts");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}: {errors}");
        assert!(errors.contains(said), "{said}: {errors}");
    }
    // The same world, with everything there.
    world.start();
    assert!(world.describe().degraded.is_empty());
}

#[test]
fn the_executor_starts_without_landlock_where_that_is_allowed_and_says_so_loudly() {
    let _ = kernel();
    let world = World::builder().build_stopped();
    let path = world.base().join("executor.json");
    let mut config: serde_json::Value = serde_json::from_str(&read(&path)).expect("it is JSON");
    config["allowDegraded"] = true.into();
    std::fs::write(&path, config.to_string()).expect("it can be written");
    let mut command = without(libc::SYS_landlock_create_ruleset, &world);
    let mut executor = command.stderr(Stdio::piped()).spawn().expect("python starts");
    let mut said = Vec::new();
    for line in BufReader::new(executor.stderr.take().expect("it is piped")).lines() {
        let line = line.expect("it is UTF-8");
        let ready = line.contains("ready");
        said.push(line);
        if ready {
            break;
        }
    }
    let pid = Pid::from_raw(executor.id().cast_signed());
    let _ = kill(pid, Signal::SIGTERM);
    let status = executor.wait().expect("it is our child");
    let degraded = said.iter().filter(|line| line.contains("DEGRADED")).count();
    assert!(status.success() && degraded >= 2, "{status}: {said:#?}");
}
