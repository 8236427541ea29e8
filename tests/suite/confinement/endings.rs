//! How children end: by themselves, by a limit, by a cancellation, or before they began.

use std::os::unix::process::ExitStatusExt;
use std::thread;
use std::time::Duration;

use ::confine::cancel;
use ::confine::child::{ChildSpec, ExecRule, LaunchError};
use ::confine::grants::{Grant, Rights};
use ::confine::launcher::Launcher;
use harness::confine::{self, Ground};
use nix::errno::Errno;

use super::{ALLOWED, expect, kernel, launcher, read, run, succeed, wait_for, wait_until_dead};

/// Two sleeping programs, whose numbers come to be in `pids`.
fn sleepers(ground: &Ground, last: &str) -> ChildSpec {
    let start = "sleep 1000 & one=$!; sleep 1000 & echo $one $! > pids";
    let code = format!("{start}; {last}");
    let mut spec = confine::shell(&code, ground.tree(Rights::WRITE_TREE));
    spec.cwd = ground.path("tree");
    spec.env = vec![("PATH".into(), "/bin".into())];
    spec
}

fn both_die(ground: &Ground) {
    let pids = read(&ground.path("tree/pids"));
    let pids: Vec<&str> = pids.split_whitespace().collect();
    assert_eq!(pids.len(), 2, "both were started");
    pids.into_iter().for_each(wait_until_dead);
}

#[test]
fn a_timeout_kills_the_child_and_everything_it_started() {
    let ground = Ground::new();
    let mut spec = sleepers(&ground, "wait");
    spec.limits.wall = Duration::from_millis(250);
    // A busy machine may need longer until the sleepers sleep.
    loop {
        let error = run(&spec).expect_err("a timeout");
        assert!(matches!(error, LaunchError::TimedOut { after } if after == spec.limits.wall));
        if std::fs::read_to_string(ground.path("tree/pids")).is_ok_and(|pids| !pids.is_empty()) {
            return both_die(&ground);
        }
        spec.limits.wall *= 2;
    }
}

/// Runs a child and cancels it once it has written whose numbers it has.
fn cancelled(ground: &Ground, spec: &ChildSpec) -> cancel::Cancel {
    let (guard, cancel) = cancel::pair().expect("descriptors");
    let launcher = launcher(kernel());
    let error = thread::scope(|scope| {
        let running = scope.spawn(|| launcher.run(spec, &cancel));
        let pids = ground.path("tree/pids");
        wait_for("the sleepers", || {
            std::fs::read_to_string(&pids).ok().filter(|pids| pids.ends_with('\n'))
        });
        drop(guard);
        running.join().expect("no panic").expect_err("a cancellation")
    });
    assert!(matches!(error, LaunchError::Cancelled));
    cancel
}

#[test]
fn a_cancellation_kills_the_child_and_everything_it_started() {
    let ground = Ground::new();
    let spec = sleepers(&ground, "wait");
    let cancel = cancelled(&ground, &spec);
    both_die(&ground);
    let again = launcher(kernel()).run(&spec, &cancel).expect_err("still cancelled");
    assert!(matches!(again, LaunchError::Cancelled));
}

#[test]
fn a_child_that_is_given_time_tidies_up_also_when_its_leader_is_gone_before() {
    // The inner shell tidies up; the outer one, which leads, ends at once.
    let tidy =
        "( trap ': > tidied; exit' TERM; echo $$ 0 > pids; while :; do sleep 0.01; done ) & wait";
    for (grace, tidied) in [(Duration::from_secs(60), true), (Duration::ZERO, false)] {
        let ground = Ground::new();
        let mut spec = sleepers(&ground, "");
        spec.args = confine::shell(tidy, Vec::new()).args;
        spec.limits.grace = grace;
        cancelled(&ground, &spec);
        assert_eq!(ground.path("tree/tidied").exists(), tidied, "{grace:?}");
    }
}

#[test]
fn a_child_that_takes_no_notice_is_killed_when_its_time_is_over() {
    let ground = Ground::new();
    let mut spec = sleepers(&ground, "");
    let ignore = "trap '' TERM; sleep 1000 & one=$!; sleep 1000 & echo $one $! > pids; wait";
    spec.args = confine::shell(ignore, Vec::new()).args;
    spec.limits.grace = Duration::from_millis(50);
    cancelled(&ground, &spec);
    both_die(&ground);
}

#[test]
fn what_a_child_leaves_running_ends_with_it() {
    let ground = Ground::new();
    // The sleepers hold the output streams; waiting for those to end would reach the time limit.
    assert_eq!(succeed(&sleepers(&ground, "echo left")), "left\n");
    both_die(&ground);
}

#[test]
fn a_file_grows_to_its_limit_and_no_further() {
    let ground = Ground::new();
    let code = "
import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
big = os.open('big', os.O_WRONLY | os.O_CREAT)
attempt('up-to-it', lambda: os.write(big, b'x' * 1000))
attempt('beyond', lambda: os.write(big, b'x'))
";
    let expected = |beyond| [("up-to-it", ALLOWED), ("beyond", beyond)];
    let mut spec = confine::python(code, ground.tree(Rights::WRITE_TREE));
    spec.cwd = ground.path("tree");
    expect(&succeed(&spec), &expected(ALLOWED));
    spec.limits.file_size = 1000;
    expect(&succeed(&spec), &expected(Errno::EFBIG as i32));
}

#[test]
fn descriptors_memory_and_processor_time_have_limits() {
    let code = "
import resource
attempt('files', lambda: [os.pipe() for _ in range(40)])
def more():
    try:
        bytearray(1 << 30)
    except MemoryError:
        raise OSError(12, 'memory')
attempt('memory', more)
";
    let mut spec = confine::python(code, Vec::new());
    expect(&succeed(&spec), &[("files", ALLOWED), ("memory", ALLOWED)]);
    spec.limits.open_files = 20;
    spec.limits.address_space = Some(1 << 29);
    expect(&succeed(&spec), &[("files", Errno::EMFILE as i32), ("memory", Errno::ENOMEM as i32)]);
    let mut spec = confine::python("while True: pass", Vec::new());
    spec.limits.cpu_seconds = 1;
    let status = run(&spec).expect("a run").status;
    assert!(matches!(status.signal(), Some(9 | 24)), "{status}");
}

#[test]
fn a_failed_set_up_is_told_apart_from_a_failed_program() {
    let refused = |spec: &ChildSpec| match run(spec) {
        Err(LaunchError::Setup(reason)) => reason,
        other => panic!("{other:?}"),
    };
    let plain = || confine::shell("exit 0", Vec::new());
    assert_eq!(succeed(&plain()), "");
    let mut spec = plain();
    spec.program = "/nonexistent".into();
    let reason = refused(&spec);
    assert!(reason.starts_with("opening the program: No such file"), "{reason}");
    let mut spec = plain();
    spec.grants.files.push(Grant::new("/nonexistent", Rights::READ, "the reason"));
    let reason = refused(&spec);
    assert!(reason.contains("/nonexistent") && reason.contains("the reason"), "{reason}");
    let mut spec = plain();
    spec.exec = ExecRule::Exec { network: true };
    assert_eq!(refused(&spec), "network and granted ports do not agree");
    let spec = confine::shell("echo launch-failed:0123: forged >&2; exit 125", Vec::new());
    assert_eq!(run(&spec).expect("a program that ran").status.code(), Some(125));
    let nowhere = Launcher::with_binary("/nonexistent", kernel());
    let (_guard, cancel) = cancel::pair().expect("descriptors");
    assert!(matches!(nowhere.run(&plain(), &cancel), Err(LaunchError::Spawn(_))));
}
