//! A fake Discord on loopback: gateway v10 over `ws://`, REST v10 over `http://`.
//!
//! Start reading at [`FakeDiscord`]. It has a clock that only the test moves, does what Discord does
//! with what it is sent, keeps everything that it saw, and fails in the ways a test asks for. It must
//! stay true that twilight, a client nobody here wrote, is content with it (suite `discord::fake`).

mod api;

mod buckets;

mod clock;

mod event;

mod fault;

mod front;

mod gateway;

mod model;

mod rest;

mod routes;

mod script;

mod socket;

mod state;

pub use api::FakeDiscord;
pub use clock::Clock;
pub use fault::{Fault, Gate, RateLimit, route};
pub use model::{Callback, Channel, Counts, Handshake, Message, Reaction, Request, Seen, Typing};
pub use script::{Command, GatewayScript, OnConnect, OnIdentify, OnResume};
