//! Killed right after each single change of the journal's files, in the order in which one turn with an
//! answer in several parts makes them.

use std::time::{Duration, Instant};

use harness::service::Place;
use harness::world::World;
use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use serde_json::json;

use super::{Day, LONG};

/// What happens to the journal's files, as the kernel tells it.
struct Changes(Inotify);

impl Changes {
    fn of(place: &Place) -> Self {
        let watch =
            Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).expect("it is made");
        let what = AddWatchFlags::IN_MODIFY
            | AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_DELETE;
        for folder in ["", "pending", "turns"] {
            watch.add_watch(&place.folder().join(folder), what).expect("it is there");
        }
        Self(watch)
    }

    /// Waits for so many; false when there are fewer, and nothing comes any more.
    fn come_to(&self, count: usize) -> bool {
        let mut seen = 0;
        let mut last = Instant::now();
        while seen < count && last.elapsed() < Duration::from_secs(2) {
            match self.0.read_events() {
                Ok(events) => {
                    seen += events.len();
                    last = Instant::now();
                }
                Err(Errno::EAGAIN) => std::thread::sleep(Duration::from_micros(50)),
                Err(error) => panic!("{error}"),
            }
        }
        seen >= count
    }
}

#[test]
fn killed_after_any_change_of_the_journal_the_next_start_brings_all_in_order() {
    let mut day = Day::new(8, World::new_plain(), &json!({"turnsPerDay": 100_000}));
    let mut count = 1;
    loop {
        let sage = day.place.start_supervised();
        let changes = Changes::of(&day.place);
        day.say(LONG);
        let reached = changes.come_to(count);
        sage.strike();
        if !reached {
            break;
        }
        count += 1;
    }
    assert!(count > 20, "a turn with a long answer has many steps: {count}");
    day.end();
}
