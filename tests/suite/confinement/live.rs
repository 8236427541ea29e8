//! A child that lives on: what it gets, how it ends, and what it says when it cannot be confined.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::thread;

use ::confine::child::{ChildSpec, ExecRule, LaunchError};
use ::confine::grants::{Grant, Rights};
use harness::confine::{self, Ground};

use super::{kernel, launcher, wait_until_dead};

/// Says what comes in, line by line, once on its output and once on the descriptor it was given.
const ECHO: &str = "
import os
number = int(os.environ['NUMBER'])
open_ones = [n for n in range(1024) if libc.fcntl(n, 1) >= 0]
print(open_ones, flush=True)
for line in sys.stdin:
    print('heard', line, end='', flush=True)
    os.write(number, line.encode())
    print('back', os.read(number, 100).decode(), flush=True)
";

fn echo(number: i32) -> ChildSpec {
    let mut spec = confine::python(ECHO, Vec::new());
    spec.exec = ExecRule::NoExec;
    spec.env = vec![("NUMBER".into(), number.to_string().into())];
    spec
}

fn read_line(source: &mut impl Read) -> String {
    let mut line = Vec::new();
    let mut byte = [0];
    while source.read(&mut byte).expect("it can be read") == 1 && byte != *b"\n" {
        line.push(byte[0]);
    }
    String::from_utf8(line).expect("it is text")
}

#[test]
fn it_is_spoken_with_for_as_long_as_its_owner_likes_and_has_one_descriptor_more() {
    let (mut ours, its) = UnixStream::pair().expect("descriptors");
    let ground = Ground::new();
    let other = File::open(ground.path("outside")).expect("a file");
    let stays = nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty());
    nix::fcntl::fcntl(&other, stays).expect("a descriptor that children inherit");
    let number = its.as_raw_fd();
    let child = launcher(kernel()).start(&echo(number), Some(OwnedFd::from(its)));
    let mut child = child.expect("it starts");
    let (mut stdin, mut stdout, _stderr) = child.take_streams().expect("the first time");
    assert!(child.take_streams().is_none());
    assert_eq!(read_line(&mut stdout), format!("[0, 1, 2, {number}]"));
    for word in ["one", "two"] {
        writeln!(stdin, "{word}").expect("it reads");
        assert_eq!(read_line(&mut stdout), format!("heard {word}"));
        assert_eq!(read_line(&mut ours), word);
        ours.write_all(format!("{word} too").as_bytes()).expect("it reads");
        assert_eq!(read_line(&mut stdout), format!("back {word} too"));
    }
    drop(stdin);
    assert_eq!(stdout.read(&mut [0]).expect("its end"), 0);
    // Its end of the socket is nobody else's: with the child it is gone.
    assert_eq!(ours.read(&mut [0]).expect("its end"), 0);
}

#[test]
fn it_dies_with_its_owner() {
    let (_ours, its) = UnixStream::pair().expect("descriptors");
    let number = its.as_raw_fd();
    let mut child = launcher(kernel()).start(&echo(number), Some(its.into())).expect("it starts");
    let (_stdin, mut stdout, _stderr) = child.take_streams().expect("the first time");
    read_line(&mut stdout);
    let pid = child.id().to_string();
    drop(child);
    wait_until_dead(&pid);
}

#[test]
fn it_dies_with_the_thread_that_started_it() {
    let (_ours, its) = UnixStream::pair().expect("descriptors");
    let number = its.as_raw_fd();
    let start = || {
        let child = launcher(kernel()).start(&echo(number), Some(its.into()));
        let mut child = child.expect("it starts");
        let mut streams = child.take_streams().expect("the first time");
        // Its life is tied to the thread's by the time it runs.
        read_line(&mut streams.1);
        (child, streams)
    };
    let started = thread::scope(|scope| scope.spawn(start).join().expect("no panic"));
    let (child, (_stdin, mut stdout, _stderr)) = started;
    assert_eq!(stdout.read(&mut [0]).expect("it ends"), 0);
    let status = child.kill().expect("it can be waited for");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9));
}

#[test]
fn that_it_could_not_be_confined_is_told_from_what_it_says_itself() {
    let missing = Grant::new("/nonexistent/place", Rights::READ, "nothing");
    let mut spec = confine::python("sys.exit('launch-failed:x: a lie')", vec![missing]);
    let said = |spec: &ChildSpec| {
        let mut child = launcher(kernel()).start(spec, None).expect("it starts");
        let (_stdin, _stdout, mut stderr) = child.take_streams().expect("the first time");
        let mut text = String::new();
        stderr.read_to_string(&mut text).expect("it is text");
        child.setup_failure(&text).map(str::to_owned)
    };
    let failure = said(&spec).expect("it is not confined");
    assert!(failure.contains("/nonexistent/place"), "{failure}");
    spec.grants.files.retain(|grant| !grant.path.starts_with("/nonexistent"));
    assert_eq!(said(&spec), None);
}

#[test]
fn ports_and_sockets_must_agree() {
    let mut spec = confine::python("", Vec::new());
    spec.exec = ExecRule::NoExecNetwork;
    let error = launcher(kernel()).start(&spec, None).expect_err("no port is granted");
    assert!(matches!(error, LaunchError::Setup(reason) if reason.contains("do not agree")));
}
