//! A model's endpoint that says what the test wrote: chat completions over HTTP on this machine.
//!
//! It answers each request with the next [`Reply`] of its script, keeps what it was asked, and refuses
//! a conversation that a real endpoint would refuse: a call without its result, a result without its
//! call, arguments that are no JSON. Any engine that speaks this protocol can be pointed at
//! [`ModelServer::base_url`].

mod reply;

mod rules;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::header;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

use self::reply::Pieces;
pub use self::reply::{Reply, call_piece, delta, finish, usage};

/// One request as it came.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Method and target.
    pub line: String,
    /// The `Authorization` header.
    pub authorization: Option<String>,
    /// The body.
    pub body: Value,
}

impl Asked {
    /// The messages.
    #[must_use]
    pub fn messages(&self) -> &[Value] {
        self.body["messages"].as_array().map_or(&[], Vec::as_slice)
    }

    /// The text of the last message.
    #[must_use]
    pub fn last_text(&self) -> String {
        self.messages().last().map(text_of).unwrap_or_default()
    }

    /// The text of the system prompt.
    #[must_use]
    pub fn system(&self) -> String {
        self.messages().first().map(text_of).unwrap_or_default()
    }
}

/// A message's text: one, or the texts of its parts.
fn text_of(message: &Value) -> String {
    let content = &message["content"];
    let parts = content.as_array().into_iter().flatten();
    let parts: String = parts.filter_map(|part| part["text"].as_str()).collect();
    content.as_str().map_or(parts, str::to_owned)
}

/// How many connections there were, and how many are over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Connections {
    /// Taken.
    pub opened: u64,
    /// Over.
    pub closed: u64,
}

/// A running endpoint. Dropping it ends it.
#[derive(Debug)]
pub struct ModelServer {
    address: SocketAddr,
    tls: bool,
    shared: Arc<Shared>,
    connections: watch::Receiver<Connections>,
    runtime: Runtime,
}

#[derive(Debug)]
struct Shared {
    script: Mutex<VecDeque<Reply>>,
    asked: Mutex<Vec<Asked>>,
    faults: Mutex<Vec<String>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ModelServer {
    /// Starts with a script.
    #[must_use]
    pub fn start(script: impl IntoIterator<Item = Reply>) -> Self {
        Self::listen(script, None)
    }

    /// Starts with a script, over TLS.
    #[must_use]
    pub fn start_tls(script: impl IntoIterator<Item = Reply>, tls: Arc<ServerConfig>) -> Self {
        Self::listen(script, Some(tls.into()))
    }

    fn listen(script: impl IntoIterator<Item = Reply>, tls: Option<TlsAcceptor>) -> Self {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime can be made");
        let listener = runtime.block_on(TcpListener::bind(("127.0.0.1", 0)));
        let listener = listener.expect("a loopback port is free");
        let address = listener.local_addr().expect("it listens");
        let shared = Arc::new(Shared {
            script: Mutex::new(script.into_iter().collect()),
            asked: Mutex::default(),
            faults: Mutex::default(),
        });
        let (counter, connections) = watch::channel(Connections::default());
        let is_tls = tls.is_some();
        runtime.spawn(accept(listener, tls, Arc::clone(&shared), counter));
        Self { address, tls: is_tls, shared, connections, runtime }
    }

    /// What an engine's configuration names.
    #[must_use]
    pub fn base_url(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://{}/v1", self.address)
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Adds to the end of the script.
    pub fn add(&self, replies: impl IntoIterator<Item = Reply>) {
        lock(&self.shared.script).extend(replies);
    }

    /// Every request so far.
    #[must_use]
    pub fn asked(&self) -> Vec<Asked> {
        lock(&self.shared.asked).clone()
    }

    /// What a real endpoint would have refused, and requests beyond the script.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        lock(&self.shared.faults).clone()
    }

    /// Asserts that the whole script was used and that nothing was wrong with any request.
    ///
    /// # Panics
    /// Says what was.
    pub fn assert_played(&self) {
        assert_eq!(self.faults(), [""; 0], "the endpoint refused a request");
        let left = lock(&self.shared.script).len();
        assert_eq!(left, 0, "replies of the script were not asked for");
    }

    /// How many connections there were so far.
    #[must_use]
    pub fn connections(&self) -> Connections {
        *self.connections.borrow()
    }

    /// Waits until the connections are as wanted.
    pub fn wait_for(&self, wanted: impl FnMut(&Connections) -> bool) {
        let mut connections = self.connections.clone();
        // The sender lives as long as the server; the test runner bounds the wait.
        let _ = self.runtime.block_on(connections.wait_for(wanted));
    }
}

async fn accept(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    shared: Arc<Shared>,
    counter: watch::Sender<Connections>,
) {
    let counter = Arc::new(counter);
    while let Ok((stream, _)) = listener.accept().await {
        counter.send_modify(|now| now.opened += 1);
        let (tls, shared, counter) = (tls.clone(), Arc::clone(&shared), Arc::clone(&counter));
        tokio::spawn(async move {
            match tls {
                // A client that does not trust the certificate hangs up.
                Some(tls) => {
                    if let Ok(stream) = tls.accept(stream).await {
                        serve(stream, &shared).await;
                    }
                }
                None => serve(stream, &shared).await,
            }
            counter.send_modify(|now| now.closed += 1);
        });
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin>(stream: S, shared: &Arc<Shared>) {
    let service = service_fn(|request| {
        let shared = Arc::clone(shared);
        async move { Ok::<_, Infallible>(respond(&shared, request).await) }
    });
    let http = hyper::server::conn::http1::Builder::new();
    // A client that hangs up is no fault, and neither is a reply that is cut on purpose.
    let _ = http.serve_connection(TokioIo::new(stream), service).await;
}

async fn respond(shared: &Shared, request: hyper::Request<Incoming>) -> hyper::Response<Pieces> {
    let (head, body) = request.into_parts();
    let authorization = head.headers.get(header::AUTHORIZATION);
    let authorization = authorization.and_then(|value| value.to_str().ok()).map(str::to_owned);
    let line = format!("{} {}", head.method, head.uri);
    let bytes = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    let problem = rules::problem(&line, &body);
    lock(&shared.asked).push(Asked { line, authorization, body });
    let reply = match problem {
        Some(problem) => Err((400, problem)),
        None => {
            lock(&shared.script).pop_front().ok_or((400, "the script is at its end".to_owned()))
        }
    };
    let reply = reply.unwrap_or_else(|(status, problem)| {
        lock(&shared.faults).push(problem.clone());
        Reply::error(status, &problem)
    });
    if reply.is_silent() {
        return std::future::pending().await;
    }
    reply.into_response()
}
