//! One socket, from its handshake to its end.

use std::time::Duration;

use flate2::{Decompress, FlushDecompress};
use futures::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message as Frame;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::{HeaderValue, Uri, header};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, WebSocketConfig};

use super::close::{self, Next};
use super::{Config, Happened, INTENTS, Session};
use crate::discord::rest::USER_AGENT;

/// The longest frame that is read, in bytes, packed or unpacked. READY and GUILD_CREATE of a large guild
/// have some megabytes.
const MAX_FRAME: usize = 16 << 20;

/// How a connection ended, and what that means for the session.
#[derive(Debug)]
pub(super) enum End {
    /// It can be resumed.
    Resume(String),
    /// It can be resumed, once there is room for its events.
    Full,
    /// It is over.
    Anew(String),
    /// No connection came about at this address, or nobody there who could be told of the session.
    Unreachable(String),
    /// The same again, and not before so long.
    Later(String, Duration),
    /// Discord will not have us.
    Fatal { code: u16, what: String },
    /// Whoever wanted the events is gone.
    NobodyListens,
}

/// What a connection is opened with.
pub(super) struct Opening<'a> {
    pub(super) url: &'a str,
    pub(super) tls: Option<&'a TlsConnector>,
    pub(super) config: &'a Config,
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

pub(super) struct Connection<'a> {
    socket: WebSocketStream<Box<dyn Stream>>,
    config: &'a Config,
    unpack: Option<Unpack>,
    pub(super) session: Option<Session>,
    /// When IDENTIFY or RESUME was sent.
    pub(super) greeted: Option<Instant>,
    /// Whether READY or RESUMED came.
    pub(super) was_ready: bool,
    beat: Beat,
}

/// The heartbeat.
struct Beat {
    every: Duration,
    next: Instant,
    answered: bool,
}

impl<'a> Connection<'a> {
    /// Connects and waits for HELLO.
    pub(super) async fn open(opening: Opening<'a>) -> Result<Self, String> {
        let Opening { url, tls, config } = opening;
        let opened = timeout(config.patience, handshake(url, tls, config.compress)).await;
        let socket = opened.map_err(|_| "the connection took too long".to_owned())??;
        Ok(Self {
            socket,
            config,
            unpack: config.compress.then(Unpack::new),
            session: None,
            greeted: None,
            was_ready: false,
            // Until HELLO says more.
            beat: Beat { every: config.patience, next: Instant::now(), answered: true },
        })
    }

    /// Everything from HELLO to the end. The session that is left is in `self.session`.
    pub(super) async fn serve(
        &mut self,
        session: Option<Session>,
        before: Option<Instant>,
        events: &mpsc::Sender<Happened>,
    ) -> End {
        self.session = session;
        match timeout(self.config.patience, self.hello()).await {
            Ok(Ok(())) => {}
            // Nothing was said of the session, so nothing is known of it.
            Ok(Err(End::Resume(reason))) => return End::Unreachable(reason),
            Ok(Err(end)) => return end,
            Err(_) => return End::Unreachable("there was no HELLO".to_owned()),
        }
        if let Err(end) = self.greet().await {
            return end;
        }
        let ready_by = Instant::now() + self.config.patience;
        loop {
            let step = tokio::select! {
                frame = self.socket.next() => self.frame(frame, before, events),
                () = tokio::time::sleep_until(self.beat.next) => self.beat().await,
                () = tokio::time::sleep_until(ready_by), if !self.was_ready => {
                    Err(End::Resume("there was no READY".to_owned()))
                }
                () = events.closed() => Err(End::NobodyListens),
            };
            let step = match step {
                Ok(Asks::Nothing) => Ok(()),
                Ok(Asks::Heartbeat) => self.heartbeat().await,
                Err(end) => Err(end),
            };
            if let Err(end) = step {
                return end;
            }
        }
    }

    async fn hello(&mut self) -> Result<(), End> {
        loop {
            let payload = match self.payload().await? {
                Some(payload) => payload,
                None => continue,
            };
            match payload["op"].as_u64() {
                Some(10) => {
                    let every = payload["d"]["heartbeat_interval"].as_u64().unwrap_or(41_250);
                    let every = Duration::from_millis(every.clamp(50, 600_000));
                    let next = Instant::now() + every.mul_f64(fastrand::f64());
                    self.beat = Beat { every, next, answered: true };
                    return Ok(());
                }
                Some(7) => return Err(End::Resume("Discord asks to connect anew".to_owned())),
                _ => {}
            }
        }
    }

    async fn payload(&mut self) -> Result<Option<Value>, End> {
        let frame = self.socket.next().await;
        let text = self.text(frame)?;
        Ok(text.and_then(|text| serde_json::from_slice(&text).ok()))
    }

    /// Resumes the session, or begins one.
    async fn greet(&mut self) -> Result<(), End> {
        self.greeted = Some(Instant::now());
        let token = self.config.token.secret();
        let payload = match &self.session {
            Some(session) => json!({
                "op": 6, "d": {"token": token, "session_id": session.id, "seq": session.seq},
            }),
            None => json!({
                "op": 2, "d": {
                    "token": token,
                    "intents": INTENTS,
                    "properties": {"os": "linux", "browser": "sage", "device": "sage"},
                },
            }),
        };
        self.send(&payload).await
    }

    async fn send(&mut self, payload: &Value) -> Result<(), End> {
        let sent =
            timeout(self.config.patience, self.socket.send(Frame::text(payload.to_string())));
        match sent.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(End::Resume(error.to_string())),
            Err(_) => Err(End::Resume("nothing could be sent any more".to_owned())),
        }
    }

    /// It is time to beat. A beat that nobody answered means that nobody is there.
    async fn beat(&mut self) -> Result<Asks, End> {
        if !self.beat.answered {
            return Err(End::Resume("the last heartbeat was not acknowledged".to_owned()));
        }
        self.beat.answered = false;
        self.beat.next = Instant::now() + self.beat.every;
        Ok(Asks::Heartbeat)
    }

    async fn heartbeat(&mut self) -> Result<(), End> {
        let seq = self.session.as_ref().map(|session| session.seq).filter(|seq| *seq > 0);
        self.send(&json!({"op": 1, "d": seq})).await
    }

    fn text(
        &mut self,
        frame: Option<Result<Frame, tokio_tungstenite::tungstenite::Error>>,
    ) -> Result<Option<Vec<u8>>, End> {
        match frame {
            None => Err(End::Resume("the connection ended".to_owned())),
            Some(Err(error)) => Err(End::Resume(error.to_string())),
            Some(Ok(Frame::Text(text))) => Ok(Some(text.as_bytes().to_vec())),
            Some(Ok(Frame::Binary(bytes))) => match &mut self.unpack {
                Some(unpack) => unpack.push(&bytes).map_err(End::Resume),
                None => Ok(None),
            },
            Some(Ok(Frame::Close(close))) => {
                let code = close.map(|close| u16::from(close.code));
                let shown = code.map_or_else(|| "no code".to_owned(), |code| code.to_string());
                Err(match close::next(code) {
                    Next::Resume => End::Resume(format!("Discord closed with {shown}")),
                    Next::Anew => End::Anew(format!("Discord closed with {shown}")),
                    Next::Fatal(what) => {
                        End::Fatal { code: code.unwrap_or(0), what: what.to_owned() }
                    }
                })
            }
            Some(Ok(_)) => Ok(None),
        }
    }

    /// Deals with one frame.
    fn frame(
        &mut self,
        frame: Option<Result<Frame, tokio_tungstenite::tungstenite::Error>>,
        before: Option<Instant>,
        events: &mpsc::Sender<Happened>,
    ) -> Result<Asks, End> {
        let Some(text) = self.text(frame)? else { return Ok(Asks::Nothing) };
        // What cannot be read is passed over.
        let Ok(mut payload) = serde_json::from_slice::<Value>(&text) else {
            tracing::debug!(bytes = text.len(), "a frame that cannot be read");
            return Ok(Asks::Nothing);
        };
        match payload["op"].as_u64() {
            Some(0) => {
                let data = payload["d"].take();
                let kind = payload["t"].as_str().unwrap_or_default().to_owned();
                self.dispatch(kind, data, payload["s"].as_u64(), before, events)?;
            }
            Some(1) => return Ok(Asks::Heartbeat),
            Some(7) => return Err(End::Resume("Discord asks to connect anew".to_owned())),
            Some(9) if payload["d"] == true => {
                return Err(End::Resume("the session was not resumed".to_owned()));
            }
            Some(9) => return Err(End::Anew("the session is over".to_owned())),
            Some(11) => self.beat.answered = true,
            _ => {}
        }
        Ok(Asks::Nothing)
    }

    fn dispatch(
        &mut self,
        kind: String,
        data: Value,
        seq: Option<u64>,
        before: Option<Instant>,
        events: &mpsc::Sender<Happened>,
    ) -> Result<(), End> {
        let mut begun = None;
        let happened = match kind.as_str() {
            "READY" => {
                let url = data["resume_gateway_url"].as_str().unwrap_or_default().to_owned();
                let id = data["session_id"].as_str().unwrap_or_default().to_owned();
                begun = Some(Session { id, url, seq: 0 });
                let bot = data["user"]["id"].as_str().unwrap_or_default().to_owned();
                Happened::Ready { bot, gap: before.map(|before| before.elapsed()) }
            }
            "RESUMED" => Happened::Resumed,
            _ => Happened::Event { kind, data },
        };
        let ready = !matches!(happened, Happened::Event { .. });
        match events.try_send(happened) {
            Ok(()) => {}
            // It is not counted as received, so that it comes again.
            Err(mpsc::error::TrySendError::Full(_)) => {
                return Err(End::Full);
            }
            Err(mpsc::error::TrySendError::Closed(_)) => return Err(End::NobodyListens),
        }
        self.was_ready |= ready;
        if begun.is_some() {
            self.session = begun;
        }
        if let (Some(session), Some(seq)) = (&mut self.session, seq) {
            session.seq = session.seq.max(seq);
        }
        Ok(())
    }

    /// Ends the socket. 1000 would end the session as well, so only who is done with it says that.
    pub(super) async fn close(mut self, end: &End) {
        let code = match end {
            End::NobodyListens | End::Anew(_) | End::Fatal { .. } => CloseCode::Normal,
            End::Resume(_) | End::Full | End::Unreachable(_) | End::Later(..) => {
                CloseCode::Library(4900)
            }
        };
        let frame = CloseFrame { code, reason: "".into() };
        // Whoever is not there any more need not be told.
        let _ = timeout(Duration::from_secs(1), self.socket.close(Some(frame))).await;
    }
}

/// What a step asks for.
enum Asks {
    Nothing,
    Heartbeat,
}

async fn handshake(
    url: &str,
    tls: Option<&TlsConnector>,
    compress: bool,
) -> Result<WebSocketStream<Box<dyn Stream>>, String> {
    let packed = if compress { "&compress=zlib-stream" } else { "" };
    let url = format!("{}/?v=10&encoding=json{packed}", url.trim_end_matches('/'));
    let uri: Uri = url.parse().map_err(|_| "the gateway's URL is none".to_owned())?;
    let host = uri.host().unwrap_or_default().to_owned();
    let secure = uri.scheme_str() == Some("wss");
    let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
    let stream = TcpStream::connect((host.as_str(), port)).await.map_err(|e| e.to_string())?;
    let _ = stream.set_nodelay(true);
    let stream: Box<dyn Stream> = match (secure, tls) {
        (true, Some(tls)) => {
            let name = ServerName::try_from(host).map_err(|error| error.to_string())?;
            Box::new(tls.connect(name, stream).await.map_err(|error| error.to_string())?)
        }
        (false, None) => Box::new(stream),
        _ => return Err("the gateway's URL does not say how it is secured".to_owned()),
    };
    let mut request = url.as_str().into_client_request().map_err(|error| error.to_string())?;
    request.headers_mut().insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
    let limits = WebSocketConfig::default()
        .max_message_size(Some(MAX_FRAME))
        .max_frame_size(Some(MAX_FRAME));
    let opened = tokio_tungstenite::client_async_with_config(request, stream, Some(limits)).await;
    opened.map(|(socket, _)| socket).map_err(|error| error.to_string())
}

/// `zlib-stream`: one stream over all frames, each message flushed.
struct Unpack {
    stream: Decompress,
    packed: Vec<u8>,
}

impl Unpack {
    fn new() -> Self {
        Self { stream: Decompress::new(true), packed: Vec::new() }
    }

    /// A message, once its last piece is there.
    fn push(&mut self, bytes: &[u8]) -> Result<Option<Vec<u8>>, String> {
        self.packed.extend_from_slice(bytes);
        if self.packed.len() > MAX_FRAME {
            return Err("a packed message is too long".to_owned());
        }
        if !self.packed.ends_with(&[0, 0, 0xff, 0xff]) {
            return Ok(None);
        }
        let packed = std::mem::take(&mut self.packed);
        let mut text = Vec::with_capacity(packed.len() * 4);
        let mut from = 0;
        loop {
            text.reserve(text.len().max(4096));
            let before = self.stream.total_in();
            self.stream
                .decompress_vec(&packed[from..], &mut text, FlushDecompress::Sync)
                .map_err(|error| format!("a packed message cannot be unpacked: {error}"))?;
            from += usize::try_from(self.stream.total_in() - before).unwrap_or(usize::MAX);
            if text.len() > MAX_FRAME {
                return Err("a message is too long".to_owned());
            }
            if from >= packed.len() && text.len() < text.capacity() {
                return Ok(Some(text));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use flate2::{Compress, Compression, FlushCompress};
    use proptest::prelude::*;

    use super::Unpack;

    proptest! {
        #[test]
        fn packed_messages_come_out_whole_however_they_are_cut(
            messages in prop::collection::vec(".{1,600}", 1..5), cut in 1_usize..64,
        ) {
            let mut pack = Compress::new(Compression::default(), true);
            let mut unpack = Unpack::new();
            for message in &messages {
                let mut packed = Vec::with_capacity(message.len() + 256);
                pack.compress_vec(message.as_bytes(), &mut packed, FlushCompress::Sync).expect("room");
                let mut got = None;
                for piece in packed.chunks(cut) {
                    prop_assert!(got.is_none());
                    got = unpack.push(piece).expect("it unpacks");
                }
                prop_assert_eq!(got.as_deref(), Some(message.as_bytes()));
            }
        }

        #[test]
        fn no_bytes_are_too_much(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let mut unpack = Unpack::new();
            let _ = unpack.push(&bytes);
            let _ = unpack.push(&[0, 0, 0xff, 0xff]);
        }
    }
}
