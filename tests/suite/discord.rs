//! Discord. The fake is judged by twilight, a client that nobody here wrote; Sage talks to it through
//! `sage-connector run`, and to a real executor.

mod buttons;
mod check;
mod controls;
mod crash;
mod day;
mod ends;
mod fake;
mod gateway;
mod greeting;
mod limits;
mod locks;
mod secret;
mod soak;
mod storms;
mod talk;

use std::path::Path;

use connector::binding::TokenRef;
use connector::discord::gateway as gateway_client;
use connector::discord::rest::Rest;
use harness::chat::write_private;
use harness::discord::{Counts, FakeDiscord, Seen};
use harness::service::Place;
use harness::world::World;
use tempfile::TempDir;

/// A place with everything but a model.
fn place() -> (World, Place) {
    let world = World::builder().build();
    let place = Place::new(world.base(), &world.socket());
    (world, place)
}

/// A place without an executor, for what does not need one.
fn alone() -> (TempDir, Place) {
    let folder = TempDir::with_prefix("sage-test-").expect("a folder can be made");
    let base = folder.path().canonicalize().expect("it is there");
    let place = Place::new(&base, Path::new("/nonexistent/executor.sock"));
    (folder, place)
}

/// What a client in this process needs to talk to a fake.
fn client(fake: &FakeDiscord, folder: &Path) -> (gateway_client::Config, Rest) {
    let file = folder.canonicalize().expect("it is there").join("token");
    write_private(&file, FakeDiscord::TOKEN);
    let token = TokenRef::File(file).read().expect("it is a token");
    let rest = Rest::new(Some(&fake.rest_url()), token.clone(), None).expect("no TLS");
    let config = gateway_client::Config::new(token, Some(fake.gateway_url()), None);
    (config.expect("no TLS"), rest)
}

/// Each case at the same time, in a place of its own.
fn each<T: Send>(cases: impl IntoIterator<Item = T>, run: impl Fn(T) + Sync) {
    std::thread::scope(|scope| {
        for case in cases {
            let run = &run;
            scope.spawn(move || run(case));
        }
    });
}

/// Waits until the program's log has `count` lines with this.
fn logged(place: &Place, word: &str, count: usize) {
    let limit = std::time::Instant::now() + std::time::Duration::from_secs(120);
    while place.log().matches(word).count() < count {
        assert!(std::time::Instant::now() < limit, "{word}, {count} times:\n{}", place.log());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// Waits until the gateway counted something.
fn counted(place: &Place, what: &str, mut holds: impl FnMut(&Counts) -> bool) -> Seen {
    place.fake.wait(what, |seen| holds(&seen.gateway))
}
