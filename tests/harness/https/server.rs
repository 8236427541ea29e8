//! The server: TLS, HTTP/1.1, a token, and a record of everything that was asked.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderMap, HeaderName};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

use super::backend::{Backend, CgiRequest};

/// What a server does with a request that carries the token.
#[derive(Debug, Clone)]
pub enum Answer {
    /// What git says.
    Git,
    /// What git says, once the gate's keeper has looked around.
    GitBehind(Arc<Gate>),
    /// The same status code, with or without a token.
    Status(u16),
    /// A redirect to this origin, with or without a token.
    Redirect(String),
    /// A redirect to this origin for who has the token.
    RedirectBehindToken(String),
    /// Nothing, ever, with or without a token.
    Hang,
}

/// One request as it came.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The `Host` header.
    pub host: String,
    /// Method and target.
    pub line: String,
    /// The `Authorization` header.
    pub authorization: Option<String>,
    /// How the body came: `chunked`, `gzip`, both or neither.
    pub body_coding: Vec<&'static str>,
}

/// Holds requests until somebody who watches lets them through.
#[derive(Debug)]
pub struct Gate {
    arrived: watch::Sender<u64>,
    released: watch::Sender<u64>,
}

impl Default for Gate {
    fn default() -> Self {
        Self { arrived: watch::Sender::new(0), released: watch::Sender::new(0) }
    }
}

impl Gate {
    /// How many requests have come.
    #[must_use]
    pub fn arrived(&self) -> u64 {
        *self.arrived.borrow()
    }

    /// Lets through the first `count` requests.
    pub fn release(&self, count: u64) {
        self.released.send_if_modified(|now| {
            let more = count > *now;
            *now = count.max(*now);
            more
        });
    }

    async fn pass(&self) {
        let mut released = self.released.subscribe();
        let mut ticket = 0;
        self.arrived.send_modify(|count| {
            *count += 1;
            ticket = *count;
        });
        // The sender lives as long as `self`.
        let _ = released.wait_for(|count| *count >= ticket).await;
    }
}

/// A running server. Dropping it ends it.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    connections: watch::Receiver<Connections>,
    runtime: Option<Runtime>,
}

/// How many connections there were, and how many are over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Connections {
    /// Taken.
    pub opened: u64,
    /// Over.
    pub closed: u64,
}

#[derive(Debug)]
struct Shared {
    backend: Backend,
    token: String,
    answer: Mutex<Answer>,
    seen: Mutex<Vec<Seen>>,
    faults: Mutex<Vec<String>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    /// Starts on a loopback address, at a port (0 for any free one).
    ///
    /// # Errors
    /// When the port is taken.
    pub fn start(
        ip: impl Into<IpAddr>,
        port: u16,
        tls: Arc<ServerConfig>,
        backend: Backend,
        token: &str,
    ) -> Result<Self> {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let address = SocketAddr::new(ip.into(), port);
        let listener = runtime
            .block_on(TcpListener::bind(address))
            .with_context(|| format!("cannot listen on {address}"))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            backend,
            token: token.to_owned(),
            answer: Mutex::new(Answer::Git),
            seen: Mutex::default(),
            faults: Mutex::default(),
        });
        let (counter, connections) = watch::channel(Connections::default());
        let acceptor = TlsAcceptor::from(tls);
        runtime.spawn(accept(listener, acceptor, Arc::clone(&shared), counter));
        Ok(Self { address, shared, connections, runtime: Some(runtime) })
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// From now on, answers like this.
    pub fn answer(&self, answer: Answer) {
        *lock(&self.shared.answer) = answer;
    }

    /// Every request so far.
    #[must_use]
    pub fn seen(&self) -> Vec<Seen> {
        lock(&self.shared.seen).clone()
    }

    /// Forgets the requests so far.
    pub fn forget(&self) {
        lock(&self.shared.seen).clear();
    }

    /// What broke in the server itself; a test that sees anything here saw nothing of the executor.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        lock(&self.shared.faults).clone()
    }

    /// How many connections there were so far.
    #[must_use]
    pub fn connections(&self) -> Connections {
        *self.connections.borrow()
    }

    /// Ends it: nothing listens at its port when this returns.
    pub fn end(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Requests under way are dropped; what git still does for them is waited for.
            drop(runtime);
        }
    }

    /// Waits until the connections are as wanted.
    pub async fn reached(&self, wanted: impl FnMut(&Connections) -> bool) {
        // The sender lives as long as the server.
        let _ = self.connections.clone().wait_for(wanted).await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

async fn accept(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    shared: Arc<Shared>,
    counter: watch::Sender<Connections>,
) {
    let counter = Arc::new(counter);
    while let Ok((stream, _)) = listener.accept().await {
        counter.send_modify(|now| now.opened += 1);
        let (acceptor, shared, counter) =
            (acceptor.clone(), Arc::clone(&shared), Arc::clone(&counter));
        tokio::spawn(async move {
            serve(stream, &acceptor, &shared).await;
            counter.send_modify(|now| now.closed += 1);
        });
    }
}

/// A client that hangs up, or that does not trust the certificate, is no fault.
async fn serve(stream: TcpStream, acceptor: &TlsAcceptor, shared: &Arc<Shared>) {
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let service = service_fn(|request| {
        let shared = Arc::clone(shared);
        async move { Ok::<_, Infallible>(respond(&shared, request).await) }
    });
    let http = hyper::server::conn::http1::Builder::new();
    let _ = http.serve_connection(TokioIo::new(stream), service).await;
}

type Response = hyper::Response<Full<Bytes>>;

async fn respond(shared: &Arc<Shared>, request: hyper::Request<Incoming>) -> Response {
    let seen = look(&request);
    let authorized = seen.authorization.as_deref().is_some_and(|text| opens(text, &shared.token));
    lock(&shared.seen).push(seen);
    let answer = lock(&shared.answer).clone();
    match answer {
        Answer::Hang => return std::future::pending().await,
        Answer::Status(code) => return plain(code, &[]),
        Answer::Redirect(origin) => return redirect(&origin, &request),
        _ if !authorized => {
            return plain(401, &[(header::WWW_AUTHENTICATE, "Basic realm=\"git\"")]);
        }
        Answer::RedirectBehindToken(origin) => return redirect(&origin, &request),
        Answer::GitBehind(gate) => gate.pass().await,
        Answer::Git => {}
    }
    match ask_git(shared, request).await {
        Ok(response) => response,
        Err(error) => {
            lock(&shared.faults).push(format!("{error:#}"));
            plain(500, &[])
        }
    }
}

/// Whether a Basic `Authorization` carries the token as its password.
fn opens(authorization: &str, token: &str) -> bool {
    let decoded = authorization.strip_prefix("Basic ").and_then(|text| STANDARD.decode(text).ok());
    let text = decoded.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
    text.split_once(':').is_some_and(|(_, password)| password == token)
}

fn look(request: &hyper::Request<Incoming>) -> Seen {
    let headers = request.headers();
    let coding = [
        (text(headers, &header::TRANSFER_ENCODING), "chunked"),
        (text(headers, &header::CONTENT_ENCODING), "gzip"),
    ];
    Seen {
        host: text(headers, &header::HOST).unwrap_or_default(),
        line: format!("{} {}", request.method(), request.uri()),
        authorization: text(headers, &header::AUTHORIZATION),
        body_coding: coding
            .into_iter()
            .filter(|(value, word)| value.as_deref() == Some(word))
            .map(|(_, word)| word)
            .collect(),
    }
}

fn text(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
}

fn redirect(origin: &str, request: &hyper::Request<Incoming>) -> Response {
    plain(302, &[(header::LOCATION, &format!("{origin}{}", request.uri()))])
}

fn plain(code: u16, headers: &[(HeaderName, &str)]) -> Response {
    let mut response = hyper::Response::builder().status(code);
    for (name, value) in headers {
        response = response.header(name, *value);
    }
    response.body(Full::default()).expect("fixed headers are well formed")
}

async fn ask_git(shared: &Arc<Shared>, request: hyper::Request<Incoming>) -> Result<Response> {
    let (parts, body) = request.into_parts();
    let wanted = [
        (header::CONTENT_TYPE, "CONTENT_TYPE"),
        (header::CONTENT_ENCODING, "HTTP_CONTENT_ENCODING"),
        (HeaderName::from_static("git-protocol"), "HTTP_GIT_PROTOCOL"),
    ];
    let headers = wanted.iter().filter_map(|(name, cgi)| Some((*cgi, text(&parts.headers, name)?)));
    let cgi = CgiRequest {
        method: parts.method.to_string(),
        path: parts.uri.path().to_owned(),
        query: parts.uri.query().unwrap_or_default().to_owned(),
        headers: headers.collect(),
        body: body.collect().await?.to_bytes().to_vec(),
    };
    let backend = shared.backend.clone();
    let answer = tokio::task::spawn_blocking(move || backend.answer(&cgi)).await??;
    let mut response = hyper::Response::builder().status(answer.status);
    for (name, value) in answer.headers {
        response = response.header(name, value);
    }
    Ok(response.body(Full::new(Bytes::from(answer.body)))?)
}
