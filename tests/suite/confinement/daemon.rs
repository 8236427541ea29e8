//! Daemons: processes that confined themselves whole.

use std::process::{Command, Stdio};

use harness::confine::Ground;
use harness::git::installed;

use super::{
    ALLOWED, EACCES, EPERM, PROBE, expect, is_dead, kernel, read, text, wait_for, wait_until_dead,
};

fn daemon(args: &[&str]) -> Command {
    let mut command = Command::new(PROBE);
    command.args(args).stdin(Stdio::null());
    command
}

/// What a daemon said before it ended well.
fn told(args: &[&str]) -> String {
    // The kernel is looked at here, so that an old one fails in words.
    let _ = kernel();
    let output = daemon(args).output().expect("a daemon starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?} {}: {errors}", output.status);
    assert_eq!(errors, "");
    String::from_utf8(output.stdout).expect("it is UTF-8")
}

#[test]
fn a_confined_daemon_runs_rows_and_serves_but_reaches_nothing_else() {
    let ground = Ground::new();
    let (tree, outside) = (ground.path("tree"), ground.path("outside"));
    assert_eq!(read(&outside), "outside", "it is there to be read");
    expect(
        &told(&["attack", text(&tree), text(&outside)]),
        &[
            ("read-inside", ALLOWED),
            ("read-outside", EACCES),
            ("write-inside", ALLOWED),
            ("unix-listener", ALLOWED),
            ("unix-datagram", ALLOWED),
            ("udp", EPERM),
            ("tcp-bind", EACCES),
            ("environ", EACCES),
            ("shell", EACCES),
            ("row-read", ALLOWED),
            ("row-write", EACCES),
            ("user-namespace", EPERM),
        ],
    );
}

#[test]
fn a_confined_daemon_runs_every_git() {
    for git in installed() {
        let ground = Ground::new();
        let tree = ground.repository(&git);
        tree.write("new", "");
        assert_eq!(told(&["run-git", text(&git), text(tree.dir())]), "?? new\n");
    }
}

#[test]
fn a_killed_daemon_takes_its_children_with_it() {
    let _ = kernel();
    let ground = Ground::new();
    let tree = ground.path("tree");
    let mut process = daemon(&["hang", text(&tree)]).spawn().expect("a daemon starts");
    let pid = wait_for("the child", || std::fs::read_to_string(tree.join("pid")).ok());
    assert!(!is_dead(pid.parse().expect("a number")), "the child runs");
    process.kill().expect("SIGKILL");
    process.wait().expect("an end");
    wait_until_dead(&pid);
}

#[test]
fn a_daemon_with_a_second_thread_refuses_to_start() {
    assert_eq!(
        told(&["threads"]),
        "the process has 2 threads; confinement must come before the second\n"
    );
}

#[test]
fn an_old_kernel_is_refused_unless_degrading_is_allowed() {
    assert_eq!(told(&["degraded", "4"]), "enforced with ABI 4\n");
    let two = told(&["degraded", "2"]);
    assert!(
        two.starts_with("Landlock ABI 2 is too old: these rights need ABI 4 (Linux 6.7)"),
        "{two}"
    );
    assert!(
        two.contains("degraded: emptying files that may only be read; which TCP ports"),
        "{two}"
    );
    let none = told(&["degraded", "0"]);
    assert!(none.contains("degraded: reading, writing, creating"), "{none}");
}
