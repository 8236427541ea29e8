//! Gateway v10: one task per connection.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use flate2::{Compress, Compression, FlushCompress};
use futures::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message as Frame;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, frame::coding::CloseCode};

use super::FakeDiscord;
use super::model::Handshake;
use super::script::{Command, OnConnect, OnIdentify, OnResume};
use super::state::{Order, Session, Shared, State};

/// What comes after something was done.
type Next = Result<(), Gone>;

/// The connection is over.
#[derive(Debug)]
struct Gone;

struct Connection {
    id: u64,
    shared: Arc<Shared>,
    socket: WebSocketStream<TcpStream>,
    zlib: Option<Compress>,
    session: Option<String>,
    /// After a close frame was sent nothing else is: the client's answer is awaited.
    closing: bool,
}

/// Serves until the runtime goes.
pub(super) async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(connection(stream, Arc::clone(&shared)));
    }
}

async fn connection(stream: TcpStream, shared: Arc<Shared>) {
    let (id, start) = shared.with(|state| {
        state.seen.gateway.connections += 1;
        let start = state.script.on_connect.pop_front().unwrap_or(OnConnect::Hello);
        (state.seen.gateway.connections, start)
    });
    let _ = stream.set_nodelay(true);
    match start {
        OnConnect::Reset => {
            let _ = stream.set_zero_linger();
            return;
        }
        OnConnect::NoHandshake => {
            // Held until the client gives up.
            let mut stream = stream;
            let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
            return;
        }
        _ => {}
    }
    let Some((socket, handshake)) = handshake(stream).await else { return };
    let zlib = handshake.query.contains("compress=zlib-stream");
    let zlib = zlib.then(|| Compress::new(Compression::fast(), true));
    let (sender, orders) = unbounded_channel();
    shared.with(|state| {
        state.connections.insert(id, sender);
        let at = state.clock.now();
        state.seen.handshakes.push(Handshake { at, ..handshake });
        let counts = &mut state.seen.gateway;
        counts.open += 1;
        counts.most_open = counts.most_open.max(1);
    });
    tokio::spawn(look_again(Arc::clone(&shared)));
    let mut connection =
        Connection { id, shared: Arc::clone(&shared), socket, zlib, session: None, closing: false };
    let _ = connection.run(start, orders).await;
    shared.with(|state| {
        state.connections.remove(&id);
        state.seen.gateway.open -= 1;
        for session in state.sessions.values_mut() {
            session.connection.take_if(|connection| *connection == id);
        }
    });
}

/// Counts what is open, once whoever left just now had the time to be gone: that a client has closed one
/// connection is known here a little later than that it has opened the next.
async fn look_again(shared: Arc<Shared>) {
    tokio::time::sleep(Duration::from_millis(300)).await;
    shared.with(|state| {
        let counts = &mut state.seen.gateway;
        counts.most_open = counts.most_open.max(counts.open);
    });
}

/// The websocket's own beginning, and what the client said in it.
async fn handshake(stream: TcpStream) -> Option<(WebSocketStream<TcpStream>, Handshake)> {
    let said = Arc::new(Mutex::new(Handshake::default()));
    let kept = Arc::clone(&said);
    #[expect(clippy::result_large_err, reason = "tungstenite's own signature")]
    let keep = move |request: &Request, response: Response| {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let headers = request.headers().iter().map(|(name, value)| {
            (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
        });
        *kept.lock().unwrap_or_else(PoisonError::into_inner) =
            Handshake { query, headers: headers.collect(), at: 0 };
        Ok(response)
    };
    let socket = tokio_tungstenite::accept_hdr_async(stream, keep).await.ok()?;
    let said = said.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Some((socket, said))
}

impl Connection {
    async fn run(&mut self, start: OnConnect, mut orders: UnboundedReceiver<Order>) -> Next {
        match start {
            OnConnect::Cut => return Err(Gone),
            OnConnect::Close(code) => self.close(Some(code)).await?,
            OnConnect::Text(text) => self.frame(Frame::text(text)).await?,
            OnConnect::Reconnect => self.send(&json!({ "op": 7, "d": null }).to_string()).await?,
            OnConnect::Silent => {}
            _ => self.hello().await?,
        }
        loop {
            tokio::select! {
                order = orders.recv() => match order.ok_or(Gone)? {
                    Order::Send(text) => self.send(&text).await?,
                    Order::Do(command) => self.obey(command).await?,
                },
                frame = self.socket.next() => match frame {
                    Some(Ok(Frame::Text(text))) => self.heard(&text).await?,
                    Some(Ok(Frame::Close(close))) => {
                        let code = close.map(|close| u16::from(close.code));
                        self.client_closed(code);
                    }
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => return Err(Gone),
                },
            }
        }
    }

    /// A session that its client closed with 1000 or 1001 is over.
    fn client_closed(&self, code: Option<u16>) {
        self.shared.with(|state| {
            state.seen.client_closes.push(code);
            if !self.closing && matches!(code, Some(1000 | 1001)) {
                state.sessions.retain(|id, _| Some(id) != self.session.as_ref());
            }
        });
    }

    async fn hello(&mut self) -> Next {
        let interval = self.shared.lock().script.heartbeat_interval.as_millis();
        let interval = u64::try_from(interval).unwrap_or(u64::MAX);
        let hello = json!({
            "op": 10, "d": { "heartbeat_interval": interval, "_trace": ["fake"] }, "s": null, "t": null,
        });
        self.send(&hello.to_string()).await
    }

    async fn frame(&mut self, frame: Frame) -> Next {
        self.socket.send(frame).await.map_err(|_| Gone)
    }

    async fn send(&mut self, text: &str) -> Next {
        if self.closing {
            return Ok(());
        }
        let Some(zlib) = &mut self.zlib else { return self.frame(Frame::text(text)).await };
        let mut packed = Vec::with_capacity(text.len() + 64);
        let mut rest = text.as_bytes();
        loop {
            packed.reserve(256);
            let before = zlib.total_in();
            zlib.compress_vec(rest, &mut packed, FlushCompress::Sync).map_err(|_| Gone)?;
            let taken = usize::try_from(zlib.total_in() - before).map_err(|_| Gone)?;
            rest = &rest[taken..];
            if rest.is_empty() && packed.ends_with(&[0, 0, 0xff, 0xff]) {
                break;
            }
        }
        self.frame(Frame::binary(packed)).await
    }

    async fn close(&mut self, code: Option<u16>) -> Next {
        let close = code.map(|code| CloseFrame {
            code: CloseCode::from(code),
            reason: format!("close {code}").into(),
        });
        self.closing = true;
        self.shared.with(|state| {
            if matches!(code, Some(4003 | 4004 | 4007 | 4009 | 4010..=4014)) {
                state.sessions.retain(|id, _| Some(id) != self.session.as_ref());
            }
        });
        self.socket.close(close).await.map_err(|_| Gone)
    }

    async fn obey(&mut self, command: Command) -> Next {
        match command {
            Command::Close(code) => self.close(Some(code)).await,
            Command::CloseWithoutCode => self.close(None).await,
            Command::Cut => Err(Gone),
            Command::Reset => {
                let _ = self.socket.get_ref().set_zero_linger();
                Err(Gone)
            }
            Command::Reconnect => self.send(&json!({ "op": 7, "d": null }).to_string()).await,
            Command::InvalidSession(resumable) => self.invalid(resumable).await,
            Command::Heartbeat => self.send(&json!({ "op": 1, "d": null }).to_string()).await,
            Command::Text(text) => self.frame(Frame::text(text)).await,
            Command::Binary(bytes) => self.frame(Frame::binary(bytes)).await,
            Command::CutFrame => {
                // A text frame of 100 bytes, of which four come.
                let _ = self.socket.get_mut().write_all(b"\x81\x64{\"op").await;
                Err(Gone)
            }
        }
    }

    async fn invalid(&mut self, resumable: bool) -> Next {
        if !resumable {
            self.shared.with(|state| {
                state.sessions.retain(|id, _| Some(id) != self.session.as_ref());
            });
        }
        self.send(&json!({ "op": 9, "d": resumable }).to_string()).await
    }

    async fn heard(&mut self, text: &str) -> Next {
        let Ok(payload) = serde_json::from_str::<Value>(text) else {
            return self.close(Some(4002)).await;
        };
        if matches!(payload["op"].as_u64(), Some(2 | 6)) {
            self.shared.with(|state| state.seen.greetings.push(payload.clone()));
        }
        match payload["op"].as_u64() {
            Some(1) => {
                let acks = self.shared.with(|state| {
                    state.seen.gateway.heartbeats += 1;
                    state.seen.gateway.last_heartbeat = payload["d"].as_u64();
                    state.script.acks
                });
                if acks {
                    self.send(&json!({ "op": 11, "d": null }).to_string()).await
                } else {
                    Ok(())
                }
            }
            Some(2) if self.session.is_some() => self.close(Some(4005)).await,
            Some(2) => self.identify(&payload["d"]).await,
            Some(6) => self.resume(&payload["d"]).await,
            Some(3 | 4 | 8 | 31) if self.session.is_some() => Ok(()),
            Some(3 | 4 | 8 | 31) => self.close(Some(4003)).await,
            _ => self.close(Some(4001)).await,
        }
    }

    async fn identify(&mut self, data: &Value) -> Next {
        let (how, crowded) = self.shared.with(|state| {
            state.seen.gateway.identifies += 1;
            let how = state.script.on_identify.pop_front().unwrap_or(OnIdentify::Ready);
            let now = state.clock.now();
            // Half a second less than the five: a client that waits exactly so long is not early.
            state.identified_at.retain(|at| at + 4500 > now);
            state.identified_at.push(now);
            let crowded = state.identified_at.len() as u64 > state.script.max_concurrency;
            state.seen.gateway.crowded_identifies += u64::from(crowded);
            (how, crowded)
        });
        match how {
            OnIdentify::Silent => return Ok(()),
            OnIdentify::Close(code) => return self.close(Some(code)).await,
            OnIdentify::Cut => return Err(Gone),
            OnIdentify::Invalid => return self.invalid(false).await,
            OnIdentify::Ready => {}
        }
        if let Some(code) = self.shared.with(|state| refusal(state, data)) {
            return self.close(Some(code)).await;
        }
        if crowded {
            return self.invalid(false).await;
        }
        let session = self.shared.with(|state| ready(state, self.id, data["intents"].as_u64()));
        self.session = Some(session);
        Ok(())
    }

    async fn resume(&mut self, data: &Value) -> Next {
        let how = self.shared.with(|state| {
            state.seen.gateway.resumes += 1;
            state.script.on_resume.pop_front().unwrap_or(OnResume::Replay)
        });
        let id = data["session_id"].as_str().unwrap_or_default().to_owned();
        match how {
            OnResume::Silent => return Ok(()),
            OnResume::Close(code) => return self.close(Some(code)).await,
            OnResume::Invalid { resumable } => {
                self.session = Some(id);
                let next = self.invalid(resumable).await;
                self.session = None;
                return next;
            }
            OnResume::Replay | OnResume::CutAfter(_) => {}
        }
        if self.shared.lock().authorised(data["token"].as_str()).is_none() {
            return self.close(Some(4004)).await;
        }
        let seq = usize::try_from(data["seq"].as_u64().unwrap_or(0)).unwrap_or(usize::MAX);
        let missed = self.shared.with(|state| {
            let session = state.sessions.get_mut(&id)?;
            let Some(missed) = session.events.get(seq..) else { return Some(Err(4007)) };
            let mut missed = missed.to_vec();
            if let OnResume::CutAfter(count) = how {
                missed.truncate(count);
                return Some(Ok(missed));
            }
            session.connection = Some(self.id);
            let number = session.events.len() + 1;
            let resumed = json!({ "op": 0, "t": "RESUMED", "s": number, "d": { "_trace": [] } });
            session.events.push(resumed.to_string());
            missed.push(resumed.to_string());
            state.seen.gateway.resumed += 1;
            Some(Ok(missed))
        });
        match missed {
            None => self.invalid(false).await,
            Some(Err(code)) => self.close(Some(code)).await,
            Some(Ok(missed)) => {
                self.session = Some(id);
                for event in missed {
                    self.send(&event).await?;
                }
                if matches!(how, OnResume::CutAfter(_)) { Err(Gone) } else { Ok(()) }
            }
        }
    }
}

impl State {
    /// Something when this is the bot's token and it is still good.
    pub(super) fn authorised(&self, token: Option<&str>) -> Option<()> {
        let token = token?.trim_start_matches("Bot ");
        (self.token_valid && token == FakeDiscord::TOKEN).then_some(())
    }
}

fn refusal(state: &State, data: &Value) -> Option<u16> {
    let known_intents = (1 << 26) - 1;
    if state.authorised(data["token"].as_str()).is_none() {
        return Some(4004);
    }
    let Some(intents) = data["intents"].as_u64() else { return Some(4013) };
    if intents > known_intents || !data["properties"].is_object() {
        return Some(if intents > known_intents { 4013 } else { 4002 });
    }
    if data["shard"].as_array().is_some_and(|shard| shard.len() != 2) {
        return Some(4010);
    }
    (intents & (1 << 15) != 0 && !state.script.message_content).then_some(4014)
}

/// Makes a session, and dispatches READY and the guilds in it.
fn ready(state: &mut State, connection: u64, intents: Option<u64>) -> String {
    state.seen.gateway.readies += 1;
    let id = format!("session-{:08x}", state.seen.gateway.readies);
    let joined: Vec<u64> =
        state.guilds.iter().filter(|(_, guild)| guild.joined).map(|(id, _)| *id).collect();
    let stubs = joined.iter().map(|id| json!({ "id": id.to_string(), "unavailable": true }));
    let url = state.script.resume_url.as_ref().unwrap_or(&state.gateway_url);
    let mut user = state.user_json(FakeDiscord::BOT);
    // Of itself a bot is told more.
    for (key, value) in
        [("mfa_enabled", json!(true)), ("verified", json!(true)), ("email", Value::Null)]
    {
        user[key] = value;
    }
    let data = json!({
        "v": 10, "user": user, "session_id": id,
        "resume_gateway_url": url, "guilds": stubs.collect::<Vec<_>>(),
        "application": { "id": FakeDiscord::BOT.to_string(), "flags": 1 << 18 },
        "shard": [0, 1], "session_type": "normal", "user_settings": {}, "relationships": [],
    });
    let session =
        Session { events: Vec::new(), connection: Some(connection), intents: intents.unwrap_or(0) };
    // Only this session gets these.
    let others = std::mem::take(&mut state.sessions);
    state.sessions.insert(id.clone(), session);
    state.dispatch("READY", &data, 0);
    for guild in joined {
        let guild = state.guild_json(guild, true);
        state.dispatch("GUILD_CREATE", &guild, 1);
    }
    state.sessions.extend(others);
    id
}
