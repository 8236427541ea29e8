//! Peers in great numbers, and peers that stop half way (B4): others are served meanwhile, and when they
//! are gone nothing of them is left.

use std::io::Write;
use std::os::unix::net::UnixStream;

use harness::calls::{self, ROOT};
use harness::footprint::{descriptors, nothing_is_left, resident_kib};
use harness::world::World;
use protocol::reply::Status;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// How many connections at once.
const CROWD: usize = 10_000;
/// How much more memory the executor may hold for them, in KiB. Each greeting under way costs a task and
/// a buffer of some bytes, and there are only so many of them.
const MOST_KIB: u64 = 32 << 10;

/// Lets this process hold the crowd.
fn make_room() {
    let limit = getrlimit(Resource::Nofile);
    let needed = CROWD as u64 + 200;
    assert!(
        limit.maximum.is_none_or(|most| most >= needed),
        "this test holds {needed} descriptors, and the hard limit (`ulimit -Hn`) is {limit:?}"
    );
    setrlimit(Resource::Nofile, Rlimit { current: Some(needed), ..limit }).expect("a lower limit");
}

#[test]
fn ten_thousand_connections_leave_others_served_memory_bounded_and_nothing_behind() {
    make_room();
    let world = World::new_plain();
    let turn = world.turn("Owner");
    turn.reply::<Status>(calls::status(ROOT, ""));
    let (before, memory) = (descriptors(&world), resident_kib(&world));
    let mut crowd = Vec::with_capacity(CROWD);
    for number in 0..CROWD {
        let mut stream = UnixStream::connect(world.socket()).expect("the executor accepts");
        // One in three says nothing, one half a greeting, and one no greeting at all. The other end
        // may have hung up already.
        let said: &[u8] = [&b""[..], b"SAGE\0", b"GET / HTTP/1.1\r\n"][number % 3];
        let _ = stream.write_all(said);
        crowd.push(stream);
        if number % 500 == 0 {
            turn.reply::<Status>(calls::status(ROOT, ""));
        }
    }
    turn.reply::<Status>(calls::status(ROOT, ""));
    let more = resident_kib(&world).saturating_sub(memory);
    assert!(more < MOST_KIB, "{more} KiB more than before");
    drop(crowd);
    nothing_is_left(&world, before);
    turn.reply::<Status>(calls::status(ROOT, ""));
}
