//! The socket (A3, B4, B6): who may connect, in which version, and what a bad client does to others.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use harness::calls::{self, ROOT};
use harness::wire::Raw;
use harness::world::World;
use protocol::reply::{Roots, Status};
use protocol::wire::{MAX_FRAME_BYTES, PROTOCOL_VERSION};

#[test]
fn another_version_is_told_so_and_turned_away() {
    let world = World::new_plain();
    for version in [0, PROTOCOL_VERSION + 1, u32::MAX] {
        let mut raw = Raw::connect(&world);
        assert_eq!(raw.greet(version), (PROTOCOL_VERSION, 1));
        raw.hung_up();
    }
    let _welcome = Raw::welcome(&world);
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
        let mut raw = Raw::welcome(&world);
        raw.send(bytes);
        open.push(raw);
        turn.reply::<Status>(calls::status(ROOT, ""));
    }
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"SAG", b""] {
        let mut raw = Raw::connect(&world);
        raw.send(bytes);
        open.push(raw);
        turn.reply::<Status>(calls::status(ROOT, ""));
    }
    // What announced too long a frame was hung up on; nothing of its size was allocated.
    open.swap_remove(1).hung_up();
    turn.reply::<Status>(calls::status(ROOT, ""));
}

#[test]
fn clients_that_never_speak_are_seats_and_no_more() {
    let world = World::builder().limit("maxConnections", 4).build();
    // The world's own client has one seat.
    let mut seated = Vec::new();
    for _ in 0..3 {
        seated.push(Raw::welcome(&world));
    }
    let mut late = Raw::connect(&world);
    assert_eq!(late.greet(PROTOCOL_VERSION).1, 3, "busy");
    late.hung_up();
    world.turn("Owner").reply::<Roots>(calls::list_roots());
    drop(seated);
    let mut welcome = 3;
    while welcome == 3 {
        welcome = Raw::connect(&world).greet(PROTOCOL_VERSION).1;
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

/// Not a test by itself: what others run as another user.
#[test]
fn helper_that_greets_as_another_user() {
    let Some(socket) = std::env::var_os("SAGE_TEST_SOCKET") else { return };
    let expected = std::env::var("SAGE_TEST_WELCOME").expect("it comes with the socket");
    let mut raw = Raw::open(Path::new(&socket));
    let (version, welcome) = raw.greet(PROTOCOL_VERSION);
    assert_eq!((version, welcome.to_string()), (PROTOCOL_VERSION, expected));
    if welcome != 0 {
        raw.hung_up();
    }
}

/// Greets as a user who owns nothing here, and checks what the executor thinks of them.
fn greets_as_nobody(world: &World, expected: u8) {
    assert!(nix::unistd::geteuid().is_root(), "only root can become another user for this");
    // Another user must get as far as the socket; the executor's own check is what is tested.
    for folder in ["", "run"] {
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o711);
        std::fs::set_permissions(world.base().join(folder), open).expect("it is ours");
    }
    let test = world.base().join("run/test");
    std::fs::copy(std::env::current_exe().expect("a test has a file"), &test).expect("it copies");
    let output = Command::new(&test)
        .args(["--exact", "wire::helper_that_greets_as_another_user", "--nocapture"])
        .env("SAGE_TEST_SOCKET", world.socket())
        .env("SAGE_TEST_WELCOME", expected.to_string())
        .current_dir("/")
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// A user of that name is on every system.
const NOBODY: u32 = 65534;

#[test]
fn a_user_who_is_not_listed_is_turned_away_and_audited() {
    let world = World::new_plain();
    greets_as_nobody(&world, 2);
    let lines = world.audit_lines();
    let line = lines.iter().find(|line| line["event"] == "turned_away").expect("it is audited");
    assert_eq!(line["peer"], NOBODY);
    world.turn("Owner").reply::<Roots>(calls::list_roots());
}

#[test]
fn one_peer_cannot_take_the_seats_of_another() {
    let world = World::builder().peer(NOBODY, &["Partner"]).limit("maxConnections", 2).build();
    let _all = Raw::welcome(&world);
    assert_eq!(Raw::connect(&world).greet(PROTOCOL_VERSION).1, 3, "no seat is left for us");
    greets_as_nobody(&world, 0);
}
