//! The socket (A3, B4, B6): who may connect, in which version, and what a bad client does to others.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use harness::calls::{self, ROOT};
use harness::world::World;
use protocol::reply::{Roots, Status};
use protocol::wire::{MAX_FRAME_BYTES, PROTOCOL_VERSION};

/// Connects, and will not wait for ever.
fn connect(world: &World) -> UnixStream {
    let stream = UnixStream::connect(world.socket()).expect("the executor listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a time is a time");
    stream
}

fn greeting(version: u32) -> [u8; 8] {
    let mut greeting = *b"SAGE\0\0\0\0";
    greeting[4..].copy_from_slice(&version.to_be_bytes());
    greeting
}

/// What the server says to a greeting: its version, and what it thinks.
fn greet(stream: &mut UnixStream, version: u32) -> (u32, u8) {
    stream.write_all(&greeting(version)).expect("it can be written");
    let mut answer = [0; 9];
    stream.read_exact(&mut answer).expect("the server answers");
    assert_eq!(&answer[..4], b"SAGE");
    (u32::from_be_bytes([answer[4], answer[5], answer[6], answer[7]]), answer[8])
}

/// The other end hangs up.
fn hung_up(mut stream: UnixStream) {
    let mut rest = Vec::new();
    // A reset says so as well as an end.
    let _ = stream.read_to_end(&mut rest);
    assert!(rest.is_empty(), "{rest:?}");
}

#[test]
fn another_version_is_told_so_and_turned_away() {
    let world = World::new_plain();
    for version in [0, PROTOCOL_VERSION + 1, u32::MAX] {
        let mut stream = connect(&world);
        assert_eq!(greet(&mut stream, version), (PROTOCOL_VERSION, 1));
        hung_up(stream);
    }
    let mut stream = connect(&world);
    assert_eq!(greet(&mut stream, PROTOCOL_VERSION), (PROTOCOL_VERSION, 0));
    world.turn("Owner").reply::<Roots>(calls::list_roots());
}

#[test]
fn a_client_that_talks_nonsense_disturbs_nobody() {
    let world = World::new_plain();
    let turn = world.turn("Owner");
    let huge = u32::try_from(MAX_FRAME_BYTES + 1).expect("it fits").to_be_bytes();
    let garbage: [&[u8]; 5] =
        [b"\0\0\0\x05hello", &huge, &[0xff; 4], b"\0\0\x10\0half a frame", &[0; 64]];
    let mut open = Vec::new();
    for bytes in garbage {
        let mut stream = connect(&world);
        assert_eq!(greet(&mut stream, PROTOCOL_VERSION).1, 0);
        stream.write_all(bytes).expect("it can be written");
        open.push(stream);
        turn.reply::<Status>(calls::status(ROOT, ""));
    }
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"SAG", b""] {
        let mut stream = connect(&world);
        stream.write_all(bytes).expect("it can be written");
        open.push(stream);
        turn.reply::<Status>(calls::status(ROOT, ""));
    }
    // What announced too long a frame was hung up on; nothing of its size was allocated.
    hung_up(open.swap_remove(1));
    turn.reply::<Status>(calls::status(ROOT, ""));
}

#[test]
fn clients_that_never_speak_are_seats_and_no_more() {
    let world = World::builder().limit("maxConnections", 4).build();
    // The world's own client has one seat.
    let mut seated = Vec::new();
    for _ in 0..3 {
        let mut stream = connect(&world);
        assert_eq!(greet(&mut stream, PROTOCOL_VERSION).1, 0);
        seated.push(stream);
    }
    let mut late = connect(&world);
    assert_eq!(greet(&mut late, PROTOCOL_VERSION).1, 3, "busy");
    hung_up(late);
    world.turn("Owner").reply::<Roots>(calls::list_roots());
    drop(seated);
    let mut welcome = 3;
    while welcome == 3 {
        welcome = greet(&mut connect(&world), PROTOCOL_VERSION).1;
    }
    assert_eq!(welcome, 0);
}

#[test]
fn calls_of_one_peer_at_once_are_limited() {
    let world = World::builder().limit("maxCallsInFlight", 2).build();
    let busy = std::thread::scope(|scope| {
        let calls: Vec<_> = (0..16)
            .map(|_| scope.spawn(|| world.turn("Owner").call(calls::status(ROOT, ""))))
            .collect();
        let outcomes = calls.into_iter().map(|call| call.join().expect("it did not panic"));
        outcomes.filter(|outcome| format!("{outcome:?}").contains("Busy")).count()
    });
    assert!(busy > 0, "16 calls at once, and none was told to wait");
    world.turn("Owner").reply::<Status>(calls::status(ROOT, ""));
}

/// Not a test by itself: what the next one runs as another user.
#[test]
fn helper_that_greets_as_another_user() {
    let Some(socket) = std::env::var_os("SAGE_TEST_SOCKET") else { return };
    let mut stream = UnixStream::connect(socket).expect("the socket is open to all");
    let answer = greet(&mut stream, PROTOCOL_VERSION);
    assert_eq!(answer, (PROTOCOL_VERSION, 2), "an unknown peer");
    hung_up(stream);
}

#[test]
fn a_user_who_is_not_listed_is_turned_away_and_audited() {
    assert!(nix::unistd::geteuid().is_root(), "only root can become another user for this");
    let world = World::new_plain();
    // Another user must get as far as the socket; the executor's own check is what is tested.
    for folder in ["", "run"] {
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o711);
        std::fs::set_permissions(world.base().join(folder), open).expect("it is ours");
    }
    let test = world.base().join("run/test");
    std::fs::copy(std::env::current_exe().expect("a test has a file"), &test).expect("it copies");
    let nobody = 65534;
    let output = Command::new(&test)
        .args(["--exact", "wire::helper_that_greets_as_another_user", "--nocapture"])
        .env("SAGE_TEST_SOCKET", world.socket())
        .current_dir("/")
        .uid(nobody)
        .gid(nobody)
        .output()
        .expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let lines = world.audit_lines();
    let line = lines.iter().find(|line| line["event"] == "turned_away").expect("it is audited");
    assert_eq!(line["peer"], nobody);
    world.turn("Owner").reply::<Roots>(calls::list_roots());
}
