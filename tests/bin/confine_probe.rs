//! Plays, for the confinement tests, what needs a process of its own: the launcher role, daemons to
//! be attacked, killed and watched, and a git or python that attempts what it should not.

use std::fmt::Debug;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, ExitCode};

use ::confine::cancel;
use ::confine::child::ChildSpec;
use ::confine::daemon::{self, DaemonPlan, Enforced};
use ::confine::domain::Domain;
use ::confine::grants::{self, Grant, Grants, Rights};
use ::confine::kernel::KernelSupport;
use ::confine::launcher::{self, Launcher};
use connector::binding::Binding;
use connector::confinement;
use connector::engine::AnyEngine;
use harness::rows::Setting;
use harness::{confine, escapes};
use policy::authority::TABLE;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        [_, launcher::ROLE] => {
            take_a_grant();
            launcher::role_main()
        }
        ["git", ..] | [_, executor::tools::web::page::ROLE] => as_git(),
        ["python3", ..] => as_python(),
        [_, "--version"] => say("git version 2.99.0"),
        [_, "--exec-path"] => say("/nonexistent"),
        [_, "run-git", git, repository] => run_git(Path::new(git), Path::new(repository)),
        [_, "hang", tree] => run_hanging(Path::new(tree)),
        [_, "attack", tree, outside] => attack(Path::new(tree), Path::new(outside)),
        [_, "connector", binding] => as_connector(Path::new(binding)),
        [_, "rows", folder, ports, aim] => rows(Path::new(folder), ports, aim),
        [_, "escape", name, aim] => escape(name, aim),
        [_, "raw", code] => raw(code),
        [_, "threads"] => with_a_second_thread(),
        [_, "degraded", abi] => degraded(abi.parse().expect("a number")),
        _ => ExitCode::from(2),
    }
}

fn say(text: &str) -> ExitCode {
    println!("{text}");
    ExitCode::SUCCESS
}

/// Where a file `take` lies beside this program: notes every grant of the child in `seen`, files and
/// ports, and takes away the one that `take` names, under all names that its file has.
fn take_a_grant() {
    let own = std::env::current_exe().expect("a program has a path");
    let Ok(taken) = std::fs::read_to_string(own.with_file_name("take")) else { return };
    let mut input = Vec::new();
    io::stdin().read_to_end(&mut input).expect("a frame, and what the program reads");
    let (length, rest) = input.split_first_chunk::<4>().expect("a length");
    let (json, rest) = rest.split_at(u32::from_be_bytes(*length) as usize);
    let mut frame: serde_json::Value = serde_json::from_slice(json).expect("JSON");
    let seen = File::options().create(true).append(true).open(own.with_file_name("seen"));
    let mut seen = seen.expect("a file");
    let grants = frame["grants"]["files"].as_array_mut().expect("grants");
    let whole = taken.clone();
    let taken = taken.split_once('\t').map(|(path, _)| file_of(path));
    grants.retain(|grant| {
        let [path, reason] = ["path", "reason"].map(|key| grant[key].as_str().expect("text"));
        // What a skeleton is called differs from call to call.
        let shown = if reason == "the skeleton git directory" { reason } else { path };
        // One that is left out, as nothing is there, is no grant.
        if std::fs::exists(path).expect("it can be looked for") {
            writeln!(seen, "{shown}\t{reason}").expect("a line");
        }
        taken.as_ref() != Some(&file_of(shown))
    });
    let ports = frame["grants"]["connect_ports"].as_array_mut().expect("ports");
    ports.retain(|port| {
        let shown = format!("port {port}\tconnect");
        writeln!(seen, "{shown}").expect("a line");
        shown != whole
    });
    let json = serde_json::to_vec(&frame).expect("JSON");
    let mut changed = tempfile::tempfile().expect("a file");
    let length = u32::try_from(json.len()).expect("it is short").to_be_bytes();
    changed.write_all(&[&length[..], &json, rest].concat()).expect("room");
    changed.rewind().expect("a file can be read again");
    nix::unistd::dup2_stdin(&changed).expect("a descriptor");
}

/// The file that a path leads to, under whatever name, or else the path.
fn file_of(path: &str) -> Result<(u64, u64), String> {
    let metadata = std::fs::metadata(path).map_err(|_| path.to_owned())?;
    Ok((metadata.dev(), metadata.ino()))
}

/// Attempts what standard input lists.
fn as_git() -> ExitCode {
    let lines = io::read_to_string(io::stdin()).expect("it is told what to attempt");
    say(&confine::attempts(&lines))
}

/// Attempts what a file lists, and then says no, as only that is reported whole.
fn as_python() -> ExitCode {
    let lines = std::fs::read_to_string("attempts").expect("it is told what to attempt");
    println!("{}", confine::attempts(&lines));
    ExitCode::FAILURE
}

/// Enters with what these children need in union.
fn enter(children: &[&ChildSpec], more: Vec<Grant>) -> (Enforced, Launcher) {
    let own = std::env::current_exe().expect("a program has a path");
    let mut all = Grants::files(more);
    for child in children {
        all.extend(&child.grants);
    }
    let program = grants::program(&own, "the launcher role").expect("it is an ELF program");
    all.extend(&Grants::files(program));
    all.extend(&Grants::files(grants::system_libraries()));
    let kernel = KernelSupport::detect();
    let plan = DaemonPlan { grants: all, kernel, open_files: 1024 };
    (daemon::enter(&plan).expect("confinement"), Launcher::new(kernel))
}

fn run_git(git: &Path, repository: &Path) -> ExitCode {
    let spec = confine::git(git, &["status", "--porcelain"], repository, Rights::WRITE_TREE);
    let (enforced, launcher) = enter(&[&spec], Vec::new());
    assert!(enforced.abi() > 0 && enforced.degraded().is_empty());
    let (_guard, cancel) = cancel::pair().expect("descriptors");
    let output = launcher.run(&spec, &cancel).expect("git runs");
    print!("{}", String::from_utf8_lossy(&output.stdout));
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    ExitCode::from(u8::from(!output.status.success()))
}

fn run_hanging(tree: &Path) -> ExitCode {
    let files = vec![Grant::new(tree, Rights::WRITE_TREE, "the tree")];
    let code = "
open('pid.new', 'w').write(str(os.getpid()))
os.rename('pid.new', 'pid')
time.sleep(1000)
";
    let mut spec = confine::python(code, files);
    spec.cwd = tree.to_owned();
    spec.limits.wall = std::time::Duration::from_secs(1000);
    let (_, launcher) = enter(&[&spec], Vec::new());
    let (_guard, cancel) = cancel::pair().expect("descriptors");
    let _ = launcher.run(&spec, &cancel);
    ExitCode::SUCCESS
}

/// Prints what the daemon itself, and threads in it, can and cannot do.
fn attack(tree: &Path, outside: &Path) -> ExitCode {
    let more = vec![
        Grant::new(tree, Rights::WRITE_TREE | Rights::MAKE_SOCKET, "the tree"),
        grants::dev_null(),
    ];
    let kernel = KernelSupport::detect();
    let row = Grants::files(vec![Grant::new(tree, Rights::READ, "a row")]);
    let (_, _launcher) = enter(&[], more);
    // Rows may be built inside, as long as the daemon has what they grant.
    let domain = Domain::build(&row, &kernel).expect("a domain");
    tell("read-inside", std::fs::read(tree.join("inside")));
    tell("read-outside", std::fs::read(outside));
    tell("write-inside", std::fs::write(tree.join("new"), ""));
    tell("unix-listener", UnixListener::bind(tree.join("socket")));
    tell("unix-datagram", UnixDatagram::unbound());
    tell("udp", UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)));
    tell("tcp-bind", TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
    tell("environ", std::fs::read("/proc/self/environ"));
    tell("shell", Command::new("/bin/sh").status());
    tell("row-read", domain.run(|| std::fs::read(tree.join("inside"))).expect("the row"));
    tell("row-write", domain.run(|| std::fs::write(tree.join("new"), "")).expect("the row"));
    let user = nix::sched::CloneFlags::CLONE_NEWUSER;
    tell("user-namespace", nix::sched::unshare(user).map_err(io::Error::from));
    ExitCode::SUCCESS
}

/// Becomes what `sage-connector run` is for this binding, and attempts what standard input lists.
fn as_connector(path: &Path) -> ExitCode {
    let lines = io::read_to_string(io::stdin()).expect("it is told what to attempt");
    let binding = Binding::load(path).expect("a binding");
    let engine = AnyEngine::new(&binding.engine, &binding.folder()).expect("an engine");
    let plan = confinement::plan(path, &binding, &engine, true).expect("a plan");
    let executor = binding.executor.socket.clone();
    daemon::enter(&plan).expect("confinement");
    println!("{}", confine::attempts(&lines));
    tell("the-executor", UnixStream::connect(executor));
    tell("udp", UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)));
    tell("listening", TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
    tell("environ", std::fs::read("/proc/self/environ"));
    let user = nix::sched::CloneFlags::CLONE_NEWUSER;
    tell("user-namespace", nix::sched::unshare(user).map_err(io::Error::from));
    ExitCode::SUCCESS
}

/// Becomes a daemon as the executor does, and tries every escape in every row of it.
fn rows(folder: &Path, ports: &str, aim: &str) -> ExitCode {
    let ports: [u16; 2] = serde_json::from_str(ports).expect("two ports");
    let own = std::env::current_exe().expect("a program has a path");
    let setting = Setting::open(folder, ports, &own);
    let kernel = KernelSupport::detect();
    let plan = DaemonPlan { grants: setting.daemon_grants(), kernel, open_files: 1024 };
    let enforced = daemon::enter(&plan).expect("confinement");
    assert!(enforced.degraded().is_empty(), "{enforced:?}");
    for row in TABLE {
        let told = setting.run(row.step, &format!("escapes {aim}"));
        println!("{}: {}", row.step.as_str(), told.trim_end());
    }
    ExitCode::SUCCESS
}

/// Tries one escape with nothing around it.
fn escape(name: &str, aim: &str) -> ExitCode {
    let aim = serde_json::from_str(aim).expect("an aim");
    println!("{}", escapes::try_one(name, &aim));
    ExitCode::SUCCESS
}

/// Runs python under the daemon's own filter, and no other.
fn raw(code: &str) -> ExitCode {
    let spec = confine::python(code, Vec::new());
    let (_, _launcher) = enter(&[&spec], Vec::new());
    let status = Command::new(&spec.program).args(&spec.args).status().expect("python starts");
    ExitCode::from(u8::from(!status.success()))
}

fn tell<T: Debug>(name: &str, result: io::Result<T>) {
    println!("{name} {}", confine::number(result));
}

fn with_a_second_thread() -> ExitCode {
    let (sender, receiver) = std::sync::mpsc::channel::<()>();
    let second = std::thread::spawn(move || receiver.recv());
    let plan =
        DaemonPlan { grants: Grants::default(), kernel: KernelSupport::detect(), open_files: 64 };
    println!("{}", daemon::enter(&plan).expect_err("two threads"));
    drop(sender);
    let _ = second.join();
    ExitCode::SUCCESS
}

fn degraded(abi: u32) -> ExitCode {
    let kernel = KernelSupport::detect().limited_to(abi);
    let mut plan = DaemonPlan {
        grants: Grants { files: vec![grants::dev_null()], connect_ports: vec![443] },
        kernel,
        open_files: 64,
    };
    match daemon::enter(&plan) {
        Ok(enforced) => println!("enforced with ABI {}", enforced.abi()),
        Err(error) => {
            println!("{error}");
            plan.kernel = kernel.allow_degraded(true);
            let enforced = daemon::enter(&plan).expect("degraded");
            println!("degraded: {}", enforced.degraded().join("; "));
        }
    }
    ExitCode::SUCCESS
}
