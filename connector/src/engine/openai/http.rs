//! One request, one connection.
//!
//! Nothing here retries, follows a redirect, or takes a proxy from the environment: whoever asks
//! decides what a failure means. A connection lives as long as its [`Response`]; dropping that, or the
//! future that waits for it, closes the connection at once, so that an endpoint stops working for a
//! turn that is over. Without TLS it connects to this machine and to nothing else.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, RETRY_AFTER, USER_AGENT,
};
use hyper::http::request::Builder;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use super::config::Endpoint;
use crate::private_file::Secret;
use crate::tls;

/// How long one address may take to connect, TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The way to an endpoint.
pub(super) struct Http {
    endpoint: Endpoint,
    tls: Option<TlsConnector>,
    key: Option<Secret>,
    idle: Duration,
}

/// Why there is no response, or no more of it.
#[derive(Debug, thiserror::Error)]
pub(super) enum HttpError {
    /// No connection; the endpoint saw nothing of the request.
    #[error("cannot connect to the model's endpoint: {0}")]
    Connect(String),
    /// The connection ended before the response did.
    #[error("the connection to the model's endpoint ended too early: {0}")]
    Cut(String),
    /// Nothing came for too long.
    #[error("the model's endpoint said nothing for {} seconds", .0.as_secs())]
    Silent(Duration),
}

/// A response whose body is still to come.
pub(super) struct Response {
    pub(super) status: StatusCode,
    headers: HeaderMap,
    body: Incoming,
    idle: Duration,
    _connection: Connection,
}

/// The task that drives a connection; dropping it closes the connection.
struct Connection(JoinHandle<()>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Http {
    pub(super) fn new(
        endpoint: Endpoint,
        ca_file: Option<&Path>,
        key: Option<Secret>,
        idle: Duration,
    ) -> Result<Self, String> {
        let tls = if endpoint.tls { Some(tls::connector(ca_file)?) } else { None };
        Ok(Self { endpoint, tls, key, idle })
    }

    /// The port that it connects to.
    pub(super) fn port(&self) -> u16 {
        self.endpoint.port
    }

    /// A text for people, without the key should the endpoint have quoted it.
    pub(super) fn mask(&self, text: &str) -> String {
        self.key.as_ref().map_or_else(|| text.to_owned(), |key| key.mask(text))
    }

    /// Sends a question; waits for the head of the response.
    pub(super) async fn post(&self, body: Vec<u8>) -> Result<Response, HttpError> {
        let path = self.endpoint.path("chat/completions");
        let request = Request::post(path).header(CONTENT_TYPE, "application/json");
        self.send(request, body).await
    }

    /// Asks for the list of models, which costs nothing and tells nothing.
    pub(super) async fn models(&self) -> Result<Response, HttpError> {
        self.send(Request::get(self.endpoint.path("models")), Vec::new()).await
    }

    async fn send(&self, request: Builder, body: Vec<u8>) -> Result<Response, HttpError> {
        let request = self.complete(request, body)?;
        let (mut sender, connection) = self.connect().await?;
        let response = match timeout(self.idle, sender.send_request(request)).await {
            Ok(response) => response.map_err(|error| HttpError::Cut(error.to_string()))?,
            Err(_) => return Err(HttpError::Silent(self.idle)),
        };
        let (head, body) = response.into_parts();
        Ok(Response {
            status: head.status,
            headers: head.headers,
            body,
            idle: self.idle,
            _connection: connection,
        })
    }

    fn complete(&self, request: Builder, body: Vec<u8>) -> Result<Request<Full<Bytes>>, HttpError> {
        let mut request = request
            .header(HOST, &self.endpoint.authority)
            .header(ACCEPT, "text/event-stream, application/json")
            .header(USER_AGENT, concat!("sage-connector/", env!("CARGO_PKG_VERSION")));
        if let Some(key) = &self.key {
            request = request.header(AUTHORIZATION, format!("Bearer {}", key.expose()));
        }
        request
            .body(Full::new(body.into()))
            .map_err(|_| HttpError::Connect("the request cannot be put together".to_owned()))
    }

    async fn connect(&self) -> Result<(http1::SendRequest<Full<Bytes>>, Connection), HttpError> {
        let Endpoint { host, port, tls, .. } = &self.endpoint;
        let found = timeout(CONNECT_TIMEOUT, tokio::net::lookup_host((host.as_str(), *port))).await;
        let addresses: Vec<SocketAddr> = found
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
            .map_err(|error| HttpError::Connect(format!("{host}: {error}")))?
            .filter(|address| *tls || address.ip().is_loopback())
            .collect();
        let mut last = format!("{host} has no address that may be used");
        for address in addresses {
            let failed = |error: io::Error| format!("{address}: {error}");
            match timeout(CONNECT_TIMEOUT, self.connect_to(address)).await {
                Ok(Ok(connected)) => return Ok(connected),
                Ok(Err(error)) => last = failed(error),
                Err(_) => last = failed(io::ErrorKind::TimedOut.into()),
            }
        }
        Err(HttpError::Connect(last))
    }

    async fn connect_to(
        &self,
        address: SocketAddr,
    ) -> io::Result<(http1::SendRequest<Full<Bytes>>, Connection)> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let Some(tls) = &self.tls else { return speak(stream).await };
        let name = ServerName::try_from(self.endpoint.host.clone()).map_err(io::Error::other)?;
        speak(tls.connect(name, stream).await?).await
    }
}

async fn speak<S>(stream: S) -> io::Result<(http1::SendRequest<Full<Bytes>>, Connection)>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    // How it ended, the sender and the body tell.
    let task = tokio::spawn(async move { drop(connection.await) });
    Ok((sender, Connection(task)))
}

impl Response {
    /// The next piece of the body; `None` at its end.
    pub(super) async fn chunk(&mut self) -> Result<Option<Bytes>, HttpError> {
        loop {
            let frame = match timeout(self.idle, self.body.frame()).await {
                Ok(None) => return Ok(None),
                Ok(Some(frame)) => frame.map_err(|error| HttpError::Cut(error.to_string()))?,
                Err(_) => return Err(HttpError::Silent(self.idle)),
            };
            if let Ok(data) = frame.into_data() {
                return Ok(Some(data));
            }
        }
    }

    /// The beginning of the body, at most so many bytes of it.
    pub(super) async fn beginning(&mut self, most: usize) -> Result<Vec<u8>, HttpError> {
        let mut bytes = Vec::new();
        while bytes.len() < most
            && let Some(chunk) = self.chunk().await?
        {
            bytes.extend_from_slice(&chunk);
        }
        bytes.truncate(most);
        Ok(bytes)
    }

    /// Whether the body is a stream of events.
    pub(super) fn is_event_stream(&self) -> bool {
        let kind = self.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        kind.is_some_and(|kind| kind.trim_start().starts_with("text/event-stream"))
    }

    /// How long the endpoint wants to be left alone: seconds, or a date.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        let text = self.headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
        wait_of(text, Timestamp::now())
    }
}

fn wait_of(text: &str, now: Timestamp) -> Option<Duration> {
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let until = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
    Some(Duration::try_from(until.duration_since(now)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::wait_of;

    #[test]
    fn a_wait_is_seconds_or_a_date() {
        let now = "2031-05-06T12:00:00Z".parse().expect("a time");
        for (text, wait) in [
            ("3", Some(Duration::from_secs(3))),
            ("0.5", Some(Duration::from_millis(500))),
            ("Tue, 06 May 2031 12:00:07 GMT", Some(Duration::from_secs(7))),
            ("Tue, 06 May 2031 11:00:00 GMT", Some(Duration::ZERO)),
            ("-1", None),
            ("soon", None),
            ("1e400", None),
            ("NaN", None),
        ] {
            assert_eq!(wait_of(text, now), wait, "{text}");
        }
    }
}
