//! The fake Discord does what twilight expects of Discord.

use std::future::Future;
use std::time::Duration;

use harness::discord::{Command, FakeDiscord, Fault, OnIdentify, RateLimit, route};
use serde_json::json;
use tokio::runtime::Runtime;
use twilight_gateway::error::ReceiveMessageErrorType;
use twilight_gateway::queue::InMemoryQueue;
use twilight_gateway::{
    ConfigBuilder, Event, EventTypeFlags, Intents, Shard, ShardId, StreamExt as _,
};
use twilight_http::Client;
use twilight_http::request::channel::reaction::RequestReactionType;
use twilight_model::http::interaction::{InteractionResponse, InteractionResponseType};
use twilight_model::id::Id;

struct Judge {
    fake: FakeDiscord,
    runtime: Runtime,
    guild: u64,
    channel: u64,
    owner: u64,
}

impl Judge {
    fn new() -> Self {
        let fake = FakeDiscord::start().expect("loopback has ports");
        let guild = fake.guild("Guild");
        let channel = fake.channel(guild, "strategy");
        let owner = fake.user("Owner");
        fake.clock(|clock| clock.run(1));
        fake.gateway(|script| script.max_concurrency = 1000);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime can be made");
        Self { fake, runtime, guild, channel, owner }
    }

    fn wait<R>(&self, future: impl Future<Output = R>) -> R {
        self.runtime.block_on(async {
            tokio::time::timeout(Duration::from_secs(60), future)
                .await
                .expect("it comes in a minute")
        })
    }

    fn shard(&self) -> Shard {
        let _inside = self.runtime.enter();
        let intents = Intents::GUILDS | Intents::GUILD_MESSAGES | Intents::MESSAGE_CONTENT;
        let config = ConfigBuilder::new(FakeDiscord::TOKEN.to_owned(), intents)
            .proxy_url(self.fake.gateway_url())
            // It would wait between identifies; here there is nothing to spare.
            .queue(InMemoryQueue::new(0, 1000, Duration::from_secs(86_400), 1000))
            .build();
        Shard::with_config(ShardId::ONE, config)
    }

    /// The first event that is wanted; the others are passed over, and lost connections too.
    fn until(&self, shard: &mut Shard, wanted: impl Fn(&Event) -> bool) -> Event {
        self.wait(async {
            loop {
                let next = shard.next_event(EventTypeFlags::all()).await;
                match next.expect("the shard goes on") {
                    Ok(event) if wanted(&event) => return event,
                    Ok(_) => {}
                    Err(error) => assert!(
                        !matches!(error.kind(), ReceiveMessageErrorType::Deserializing { .. }),
                        "twilight cannot read it: {error:?}"
                    ),
                }
            }
        })
    }

    fn ready(&self) -> Shard {
        let mut shard = self.shard();
        self.until(&mut shard, |event| matches!(event, Event::GuildCreate(_)));
        shard
    }

    fn http(&self) -> Client {
        let _inside = self.runtime.enter();
        Client::builder()
            .token(FakeDiscord::TOKEN.to_owned())
            .proxy(self.fake.rest_authority(), true)
            .build()
    }

    fn send(&self, http: &Client, body: &serde_json::Value) -> Result<u64, String> {
        let body = body.to_string();
        self.wait(async {
            let sent =
                http.create_message(Id::new(self.channel)).payload_json(body.as_bytes()).await;
            let sent = sent.map_err(|error| error.to_string())?;
            sent.model().await.map(|message| message.id.get()).map_err(|error| error.to_string())
        })
    }
}

#[test]
fn a_message_reaches_an_identified_client() {
    let judge = Judge::new();
    let mut shard = judge.ready();
    let id = judge.fake.post(judge.channel, judge.owner, "Hello");
    let event = judge.until(&mut shard, |event| matches!(event, Event::MessageCreate(_)));
    let Event::MessageCreate(message) = event else { unreachable!() };
    assert_eq!((message.id.get(), message.content.as_str()), (id, "Hello"));
    assert_eq!(judge.fake.seen().gateway.identifies, 1);
}

#[test]
fn heartbeats_are_acknowledged() {
    let judge = Judge::new();
    judge.fake.gateway(|script| script.heartbeat_interval = Duration::from_millis(200));
    let mut shard = judge.ready();
    judge.until(&mut shard, |event| matches!(event, Event::GatewayHeartbeatAck));
    assert!(judge.fake.seen().gateway.heartbeats > 0);
}

#[test]
fn what_was_missed_is_replayed_after_a_cut() {
    let judge = Judge::new();
    let mut shard = judge.ready();
    judge.fake.command(&Command::Cut);
    judge.fake.wait("the cut", |seen| seen.gateway.open == 0);
    judge.fake.post(judge.channel, judge.owner, "one");
    judge.fake.post(judge.channel, judge.owner, "two");
    for text in ["one", "two"] {
        let event = judge.until(&mut shard, |event| matches!(event, Event::MessageCreate(_)));
        let Event::MessageCreate(message) = event else { unreachable!() };
        assert_eq!(message.content, text);
    }
    judge.until(&mut shard, |event| matches!(event, Event::Resumed));
    let counts = judge.fake.seen().gateway;
    assert_eq!((counts.identifies, counts.resumes, counts.most_open), (1, 1, 1));
}

#[test]
fn a_session_that_is_over_is_followed_by_a_new_one() {
    let judge = Judge::new();
    let mut shard = judge.ready();
    judge.fake.command(&Command::InvalidSession(false));
    judge.until(&mut shard, |event| matches!(event, Event::Ready(_)));
    let seen = judge.fake.seen();
    let counts = seen.gateway;
    assert_eq!((counts.identifies, counts.resumes, counts.most_open), (2, 0, 1));
    assert_eq!(seen.client_closes, [Some(1000)]);
}

#[test]
fn after_a_close_comes_what_its_code_leaves() {
    for (code, resumed) in [(4000, true), (4002, true), (4008, true), (4007, false), (4009, false)]
    {
        let judge = Judge::new();
        let mut shard = judge.ready();
        judge.fake.command(&Command::Close(code));
        judge.until(&mut shard, |event| matches!(event, Event::Resumed | Event::Ready(_)));
        let counts = judge.fake.seen().gateway;
        assert_eq!((counts.resumed == 1, counts.readies == 2), (resumed, !resumed), "{code}");
    }
}

#[test]
fn a_code_that_nothing_mends_ends_the_client() {
    for code in [4004, 4010, 4011, 4012, 4013, 4014] {
        let judge = Judge::new();
        judge.fake.gateway(|script| script.on_identify.push_back(OnIdentify::Close(code)));
        let mut shard = judge.shard();
        let closed = judge.until(&mut shard, |event| matches!(event, Event::GatewayClose(_)));
        let Event::GatewayClose(Some(frame)) = closed else { panic!("{closed:?}") };
        assert_eq!(frame.code, code);
        assert!(judge.wait(shard.next_event(EventTypeFlags::all())).is_none(), "it gave up");
        assert_eq!(judge.fake.seen().gateway.connections, 1);
    }
}

#[test]
fn a_nonce_makes_one_message_until_its_window_is_over() {
    let judge = Judge::new();
    let http = judge.http();
    let body = json!({ "content": "Reply", "nonce": "123-0", "enforce_nonce": true });
    let first = judge.send(&http, &body).expect("it is sent");
    assert_eq!(judge.send(&http, &body), Ok(first));
    judge.fake.clock(|clock| clock.advance(Duration::from_secs(301)));
    assert_ne!(judge.send(&http, &body), Ok(first));
    assert_eq!(judge.fake.seen().with_nonce("123-0"), 2);
}

#[test]
fn typing_reaction_thread_and_button_work() {
    let judge = Judge::new();
    let (http, mut shard) = (judge.http(), judge.ready());
    let thread = judge.fake.thread(judge.channel, "A thread");
    let id = judge.fake.post(thread, judge.owner, "Hello");
    let eyes = RequestReactionType::Unicode { name: "👀" };
    judge.wait(async {
        http.create_typing_trigger(Id::new(thread)).await.expect("typing is accepted");
        http.create_reaction(Id::new(thread), Id::new(id), &eyes).await.expect("it is accepted");
        let channel = http.channel(Id::new(thread)).await.expect("it is there").model().await;
        let parent = channel.expect("it is a channel").parent_id.map(Id::get);
        assert_eq!(parent, Some(judge.channel));
        let guild = http.guild(Id::new(judge.guild)).await.expect("it is there").model().await;
        assert_eq!(guild.expect("it is a guild").id.get(), judge.guild);
    });
    judge.fake.press(id, judge.owner, "yes");
    let event = judge.until(&mut shard, |event| matches!(event, Event::InteractionCreate(_)));
    let Event::InteractionCreate(pressed) = event else { unreachable!() };
    let update =
        InteractionResponse { kind: InteractionResponseType::DeferredUpdateMessage, data: None };
    let answer = || {
        judge.wait(async {
            let client = http.interaction(Id::new(FakeDiscord::BOT));
            client.create_response(pressed.id, &pressed.token, &update).await.is_ok()
        })
    };
    assert!(answer());
    assert!(!answer(), "once is enough");
    let seen = judge.fake.seen();
    assert_eq!((seen.typing.len(), seen.callbacks.len()), (1, 1));
    assert_eq!(seen.reactions[0].emoji, "👀");
}

#[test]
fn a_full_bucket_is_waited_for() {
    let judge = Judge::new();
    let limit = Fault::RateLimit(RateLimit::User { retry_after: 0.3 });
    judge.fake.fault(route("POST", "/channels/*/messages"), limit);
    judge.send(&judge.http(), &json!({ "content": "Hello" })).expect("it is sent in the end");
    assert_eq!(judge.fake.seen().requests_to("POST", "/channels/*/messages").len(), 2);
}

#[test]
fn a_lost_response_leaves_its_message() {
    let body = json!({ "content": "Reply", "nonce": "9-0", "enforce_nonce": true });
    for fault in [Fault::LoseResponse, Fault::ResetResponse, Fault::CutAfter(40)] {
        let judge = Judge::new();
        judge.fake.fault(route("POST", "/channels/*/messages"), fault.clone());
        assert!(judge.send(&judge.http(), &body).is_err(), "{fault:?}");
        assert!(judge.send(&judge.http(), &body).is_ok(), "{fault:?}");
        assert_eq!(judge.fake.seen().with_nonce("9-0"), 1, "{fault:?}");
    }
}

#[test]
fn a_request_that_was_not_done_leaves_nothing() {
    for fault in
        [Fault::Close, Fault::Reset, Fault::Html(502), Fault::Error { status: 403, code: 50_013 }]
    {
        let judge = Judge::new();
        judge.fake.fault(route("POST", "/channels/*/messages"), fault.clone());
        let sent = judge.send(&judge.http(), &json!({ "content": "Hello" }));
        assert!(sent.is_err(), "{fault:?}");
        assert!(judge.fake.seen().from_bot().is_empty(), "{fault:?}");
    }
}
