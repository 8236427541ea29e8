//! What the gateway does by order of a test.

use std::collections::VecDeque;
use std::time::Duration;

/// What happens to the next connections, and how the gateway behaves from now on.
#[derive(Debug, Clone)]
pub struct GatewayScript {
    /// `heartbeat_interval` of the next HELLO, in real time.
    pub heartbeat_interval: Duration,
    /// Heartbeats are acknowledged; false makes zombies.
    pub acks: bool,
    /// The message content intent is granted; otherwise who asks for it is closed with 4014.
    pub message_content: bool,
    /// `resume_gateway_url`; the gateway's own when none.
    pub resume_url: Option<String>,
    /// IDENTIFYs that are allowed in five seconds of the fake's clock.
    pub max_concurrency: u64,
    /// `session_start_limit.remaining` of GET /gateway/bot.
    pub remaining_identifies: u64,
    /// `session_start_limit.reset_after` of GET /gateway/bot.
    pub reset_after: Duration,
    /// What the next connections meet, first come first served; then `Hello`.
    pub on_connect: VecDeque<OnConnect>,
    /// What the next IDENTIFYs meet; then `Ready`.
    pub on_identify: VecDeque<OnIdentify>,
    /// What the next RESUMEs meet; then `Replay`.
    pub on_resume: VecDeque<OnResume>,
}

impl Default for GatewayScript {
    fn default() -> Self {
        Self {
            heartbeat_interval: Duration::from_millis(41_250),
            acks: true,
            message_content: true,
            resume_url: None,
            max_concurrency: 1000,
            remaining_identifies: 1000,
            reset_after: Duration::from_secs(14_400),
            on_connect: VecDeque::new(),
            on_identify: VecDeque::new(),
            on_resume: VecDeque::new(),
        }
    }
}

/// What a connection meets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OnConnect {
    /// HELLO.
    Hello,
    /// The websocket is open, nothing comes.
    Silent,
    /// TCP is reset before the websocket handshake.
    Reset,
    /// TCP is accepted, the websocket handshake is never answered.
    NoHandshake,
    /// The websocket is open, and TCP is closed without a close frame.
    Cut,
    /// The websocket is open, and closed with this code.
    Close(u16),
    /// Op 7 before HELLO.
    Reconnect,
    /// This text instead of HELLO.
    Text(String),
}

/// What an IDENTIFY meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnIdentify {
    /// READY, unless token or intents are wrong.
    Ready,
    /// Nothing.
    Silent,
    /// A close code.
    Close(u16),
    /// Op 9 false.
    Invalid,
    /// TCP is closed without a close frame.
    Cut,
}

/// What a RESUME meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnResume {
    /// What was missed, then RESUMED; op 9 false when there is no such session.
    Replay,
    /// Op 9; the session is over when it says false.
    Invalid {
        /// Its `d`.
        resumable: bool,
    },
    /// Nothing.
    Silent,
    /// A close code.
    Close(u16),
    /// So many of the missed events, then TCP is closed without a close frame.
    CutAfter(usize),
}

/// What the gateway does to the open connections.
#[derive(Debug, Clone)]
pub enum Command {
    /// A close frame with this code.
    Close(u16),
    /// A close frame without a code.
    CloseWithoutCode,
    /// TCP is closed without a close frame.
    Cut,
    /// TCP is reset.
    Reset,
    /// Op 7.
    Reconnect,
    /// Op 9; the session is over when it says false.
    InvalidSession(bool),
    /// Op 1: heartbeat at once.
    Heartbeat,
    /// A text frame as it is (not compressed).
    Text(String),
    /// A binary frame as it is.
    Binary(Vec<u8>),
    /// The head of a frame that says more bytes than follow, then TCP is closed.
    CutFrame,
}
