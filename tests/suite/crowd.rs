//! Peers in great numbers, and peers that stop half way (B4): others are served meanwhile, and when they
//! are gone nothing of them is left.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use harness::calls::{self, ROOT};
use harness::world::World;
use protocol::reply::Status;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// How many connections at once.
const CROWD: usize = 10_000;
/// How much more memory the executor may hold for them, in KiB. Each greeting under way costs a task and
/// a buffer of some bytes, and there are only so many of them.
const MOST_KIB: u64 = 32 << 10;
/// How long something may take before a test says that it hangs.
const PATIENCE: Duration = Duration::from_secs(90);

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

fn descriptors(world: &World) -> usize {
    let folder = format!("/proc/{}/fd", world.executor_pid());
    std::fs::read_dir(folder).expect("it runs").count()
}

fn resident_kib(world: &World) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", world.executor_pid()));
    let status = status.expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it is told");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

fn children(world: &World) -> String {
    let pid = world.executor_pid();
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    let of = |task: &Path| std::fs::read_to_string(task.join("children")).unwrap_or_default();
    tasks.map(|task| of(&task.expect("a thread").path())).collect()
}

/// Waits until the executor has no more descriptors than before, and no child.
fn nothing_is_left(world: &World, before: usize) {
    let end = Instant::now() + PATIENCE;
    while descriptors(world) > before || !children(world).is_empty() {
        let now = (descriptors(world), children(world));
        assert!(Instant::now() < end, "{before} descriptors before, and now {now:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
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
