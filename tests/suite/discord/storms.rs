//! Storms (C05): a gateway that ends every connection at once, each way it can, is met ever more rarely.
//! The client here runs in this process, and its time moves only when the test moves it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use connector::discord::gateway::{self, Happened};
use harness::discord::{
    Command, Counts, FakeDiscord, GatewayScript, OnConnect, OnIdentify, OnResume,
};
use tempfile::TempDir;
use tokio::sync::mpsc::Receiver;
use tokio::sync::mpsc::error::TryRecvError;

use super::{alone, client, counted, each};

/// What a gateway does in a storm.
struct Weather {
    script: Box<dyn FnOnce(&mut GatewayScript)>,
    /// What it does once a session has begun or goes on.
    end: Option<Command>,
}

impl Weather {
    fn new(script: impl FnOnce(&mut GatewayScript) + 'static) -> Self {
        Self { script: Box::new(script), end: None }
    }

    fn connects(what: OnConnect) -> Self {
        Self::new(|script| script.on_connect = always(what))
    }

    fn sessions(end: Command) -> Self {
        Self { end: Some(end), ..Self::new(|_| {}) }
    }
}

fn always<T: Clone>(what: T) -> VecDeque<T> {
    vec![what; 10_000].into()
}

/// A client in this process.
struct Client {
    fake: FakeDiscord,
    events: Receiver<Happened>,
    end: Option<Command>,
    /// When it connected, from the beginning on.
    connects: Vec<Duration>,
    began: tokio::time::Instant,
    _folder: TempDir,
}

/// How a storm of this length went: when there were connections, and all counts.
fn storm(weather: Weather, length: Duration) -> (Vec<Duration>, Counts) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build().expect("a runtime can be made");
    let (release, held) = std::sync::mpsc::channel::<()>();
    // Time that stands runs on by itself when there is nothing to do, but not beside a blocking task.
    runtime.spawn_blocking(move || held.recv());
    let (connects, counts) = runtime.block_on(async {
        let mut client = Client::start(weather);
        while client.began.elapsed() < length {
            client.step().await;
        }
        (client.connects, client.fake.seen().gateway)
    });
    drop(release);
    (connects, counts)
}

/// A while of real time.
async fn real_while() {
    let slept = tokio::task::spawn_blocking(|| std::thread::sleep(Duration::from_millis(1)));
    slept.await.expect("it sleeps");
}

impl Client {
    fn start(weather: Weather) -> Self {
        let folder = TempDir::with_prefix("sage-test-").expect("a folder can be made");
        let fake = FakeDiscord::start().expect("loopback has ports");
        fake.gateway(|script| {
            script.max_concurrency = 1;
            (weather.script)(script);
        });
        let (config, rest) = client(&fake, folder.path());
        let events = gateway::start(config, rest);
        let began = tokio::time::Instant::now();
        let mut client =
            Self { fake, events, end: weather.end, connects: Vec::new(), began, _folder: folder };
        client.connects.push(Duration::ZERO);
        client
    }

    /// From one end to the next connection.
    async fn step(&mut self) {
        let next = self.down().await;
        // Whoever waits for the next try holds no connection any more.
        let limit = Instant::now() + Duration::from_secs(60);
        while self.fake.seen().gateway.open > 0 {
            assert!(Instant::now() < limit, "the connection stays open");
            real_while().await;
        }
        self.advance(next + Duration::from_millis(1)).await;
        // Before an IDENTIFY up to five seconds more are waited. It is less than anything takes that is
        // given up for its length.
        let known = self.connects.len() as u64;
        let limit = Instant::now() + Duration::from_secs(60);
        let mut more = 0;
        while self.fake.seen().gateway.connections <= known {
            assert!(Instant::now() < limit, "no connection came");
            real_while().await;
            if more < 60 {
                more += 1;
                self.advance(Duration::from_millis(100)).await;
            }
        }
        self.connects.push(self.began.elapsed());
    }

    /// Waits in real time until the connection is over; how long the client will wait.
    async fn down(&mut self) -> Duration {
        let limit = Instant::now() + Duration::from_secs(60);
        loop {
            match self.events.try_recv() {
                Ok(Happened::Down { next, .. }) => return next,
                Ok(Happened::Ready { .. } | Happened::Resumed) => {
                    if let Some(end) = &self.end {
                        self.fake.command(end);
                    }
                }
                Ok(Happened::Event { .. }) => {}
                Ok(Happened::Fatal { what, .. }) => panic!("{what}"),
                Err(TryRecvError::Disconnected) => panic!("the client is gone"),
                Err(TryRecvError::Empty) => {
                    assert!(Instant::now() < limit, "the connection does not end");
                    real_while().await;
                }
            }
        }
    }

    async fn advance(&self, by: Duration) {
        self.fake.clock(|clock| clock.advance(by));
        tokio::time::advance(by).await;
    }
}

/// The most connections in any minute that begins at or after `from`.
fn in_a_minute(connects: &[Duration], from: Duration) -> usize {
    let minute = Duration::from_secs(60);
    let from = connects.iter().filter(|at| **at >= from);
    let counts =
        from.map(|from| connects.iter().filter(|at| *at >= from && **at - *from < minute).count());
    counts.max().unwrap_or(0)
}

#[test]
fn in_a_storm_of_any_kind_the_connections_of_a_minute_are_few_and_then_fewer() {
    let kinds = [
        ("end of file after the handshake", Weather::connects(OnConnect::Cut)),
        ("reset before the handshake", Weather::connects(OnConnect::Reset)),
        ("a close instead of HELLO", Weather::connects(OnConnect::Close(4000))),
        ("op 7 instead of HELLO", Weather::connects(OnConnect::Reconnect)),
        (
            "no IDENTIFY is valid",
            Weather::new(|script| script.on_identify = always(OnIdentify::Invalid)),
        ),
        (
            "no RESUME is valid, yet",
            Weather {
                end: Some(Command::Cut),
                ..Weather::new(|script| {
                    script.on_resume = always(OnResume::Invalid { resumable: true });
                })
            },
        ),
        ("each session is cut", Weather::sessions(Command::Cut)),
        ("op 7 in each session", Weather::sessions(Command::Reconnect)),
        ("each session times out", Weather::sessions(Command::Close(4009))),
        ("each session is called invalid", Weather::sessions(Command::InvalidSession(false))),
    ];
    for (kind, weather) in kinds {
        let (connects, counts) = storm(weather, Duration::from_secs(2 * 3600));
        assert!(connects.len() > 30, "{kind}: it goes on trying: {}", connects.len());
        let first = in_a_minute(&connects, Duration::ZERO);
        assert!(first <= 7, "{kind}: {first} in a minute: {connects:?}");
        let later = in_a_minute(&connects, Duration::from_secs(300));
        assert!(later <= 2, "{kind}: {later} in a later minute: {connects:?}");
        assert_eq!((counts.crowded_identifies, counts.most_open <= 1), (0, true), "{kind}");
    }
}

#[test]
fn a_day_without_a_valid_session_takes_fewer_identifies_than_discord_gives() {
    let weather = Weather::new(|script| script.on_identify = always(OnIdentify::Invalid));
    let (_, counts) = storm(weather, Duration::from_secs(24 * 3600));
    assert!((500..1000).contains(&counts.identifies), "{}", counts.identifies);
}

#[test]
fn the_program_itself_waits_longer_each_time() {
    each([OnConnect::Cut, OnConnect::Close(4000)], |end| {
        let (_folder, place) = alone();
        place.fake.gateway(|script| script.on_connect = always(end.clone()));
        let _sage = place.launch(&["run"]);
        let seen = counted(&place, "four connections", |gateway| gateway.connections == 4);
        let handshakes = seen.handshakes.windows(2);
        let waits: Vec<u64> = handshakes.map(|pair| pair[1].at - pair[0].at).collect();
        // No upper bound: a machine may be slow. 20 ms are for two clocks.
        for (wait, least) in waits.iter().zip([1000, 2000, 4000]) {
            assert!(wait + 20 >= least, "{end:?}: {waits:?}");
        }
    });
}
