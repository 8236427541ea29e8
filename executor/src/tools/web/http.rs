//! One request over one connection that is already there: TLS by rustls, HTTP by ureq.
//!
//! ureq would resolve, connect, pool, follow redirects, send cookies and use proxies of the
//! environment. Here it does none of that: its resolver and its connector hand it what it is given,
//! once.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use protocol::refusal::Code;
use rustix::event::PollFlags;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use ureq::config::Config;
use ureq::http::{HeaderMap, Uri, header};
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, RustlsConnector, Transport,
};

use super::body;
use super::budget::Budget;
use super::{Authorities, unreachable};
use crate::tools::Failure;

/// What the server is told of who asks.
pub const USER_AGENT: &str =
    concat!("Sage/", env!("CARGO_PKG_VERSION"), " (a bot that reads pages for a person)");

/// The most that is read of a head, in bytes.
const MAX_HEAD_BYTES: usize = 64 * 1024;
const BUFFER_BYTES: usize = 64 * 1024;

/// What to ask.
#[derive(Debug)]
pub struct Asked<'a> {
    /// The URL.
    pub url: &'a str,
    /// The types that are wanted.
    pub accept: &'static str,
    /// Whether over TLS.
    pub https: bool,
    /// How much of the body is read, in bytes after decompression.
    pub max_bytes: usize,
}

/// What a server answered.
#[derive(Debug, Default)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Every `Location`.
    pub locations: Vec<Vec<u8>>,
    /// The first `Retry-After`.
    pub retry_after: Option<String>,
    /// The first `Content-Type`.
    pub content_type: Option<String>,
    /// The body, decompressed.
    pub body: Vec<u8>,
    /// Whether there is more of it.
    pub truncated: bool,
}

impl Answer {
    /// Where the page is instead, if it is elsewhere.
    ///
    /// # Errors
    /// `bad_redirect` when it should be and does not say where.
    pub fn redirect(&self) -> Result<Option<&str>, Failure> {
        let bad = |message: &str| {
            Failure::refuse(
                Code::BadRedirect,
                message,
                "Fetch the page that it should lead to, or another.",
            )
        };
        match self.status {
            301 | 302 | 303 | 307 | 308 => {}
            304 => return Err(bad("The page says that it did not change, which nobody asked.")),
            _ => return Ok(None),
        }
        let [location] = &self.locations[..] else {
            return Err(bad(match self.locations.len() {
                0 => "The page redirects, and does not say where.",
                _ => "The page redirects to several places at once.",
            }));
        };
        match std::str::from_utf8(location) {
            Ok(text) if text.is_ascii() && !text.trim().is_empty() => Ok(Some(text.trim())),
            _ => Err(bad("The page redirects to what is no URL.")),
        }
    }
}

/// Makes the request and reads the answer.
///
/// # Errors
/// `host_unreachable`, `bad_response`, `unsupported_type`, `timed_out` or `cancelled`.
pub(super) fn exchange(
    stream: TcpStream,
    asked: &Asked<'_>,
    authorities: &Authorities,
    budget: &Budget,
) -> Result<Answer, Failure> {
    let roots = if asked.https { roots(authorities)? } else { Vec::new() };
    let tls = TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .root_certs(RootCerts::Specific(Arc::new(roots)))
        .build();
    let config = Config::builder()
        .https_only(asked.https)
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .proxy(None)
        .user_agent(USER_AGENT)
        .accept(asked.accept)
        .accept_encoding("gzip")
        .max_response_header_size(MAX_HEAD_BYTES)
        .max_idle_connections(0)
        .tls_config(tls)
        .build();
    let buffers = LazyBuffers::new(BUFFER_BYTES, BUFFER_BYTES);
    let line = Line { stream, buffers, budget: budget.clone() };
    let connector = Handed(Mutex::new(Some(line))).chain(RustlsConnector::default());
    let agent = ureq::Agent::with_parts(config, connector, Nowhere);
    let failed = |error: &dyn std::fmt::Display| match budget.check() {
        Err(failure) => failure,
        Ok(()) => broken(&format!("{error}")),
    };
    let response = agent.get(asked.url).call().map_err(|error| match budget.check() {
        Err(failure) => failure,
        Ok(()) => explain(&error),
    })?;
    let (parts, content) = response.into_parts();
    let mut answer = Answer {
        status: parts.status.as_u16(),
        locations: parts
            .headers
            .get_all(header::LOCATION)
            .iter()
            .map(|value| value.as_bytes().to_vec())
            .collect(),
        retry_after: first(&parts.headers, header::RETRY_AFTER),
        content_type: first(&parts.headers, header::CONTENT_TYPE),
        ..Answer::default()
    };
    lengths_agree(&parts.headers)?;
    if parts.status.is_redirection() && answer.status != 300 {
        return Ok(answer);
    }
    let coding = body::Coding::of(&all(&parts.headers, header::CONTENT_ENCODING))?;
    let mut reader = content.into_reader();
    let (read, truncated) =
        body::read(&mut reader, coding, asked.max_bytes).map_err(|error| failed(&error))?;
    (answer.body, answer.truncated) = (read, truncated);
    Ok(answer)
}

fn first(headers: &HeaderMap, name: header::HeaderName) -> Option<String> {
    headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
}

fn all(headers: &HeaderMap, name: header::HeaderName) -> String {
    let values: Vec<_> = headers
        .get_all(name)
        .iter()
        .map(|value| String::from_utf8_lossy(value.as_bytes()))
        .collect();
    values.join(",")
}

/// A length that is no number, or two that differ, is how one answer is made to look like another.
fn lengths_agree(headers: &HeaderMap) -> Result<(), Failure> {
    let said = all(headers, header::CONTENT_LENGTH);
    let mut lengths = said.split(',').map(str::trim).filter(|_| !said.is_empty());
    let Some(first) = lengths.next() else { return Ok(()) };
    let number = first.bytes().all(|byte| byte.is_ascii_digit()) && first.parse::<u64>().is_ok();
    if number && lengths.all(|other| other == first) {
        return Ok(());
    }
    Err(broken("it gives its length in no way that can be read"))
}

fn broken(why: &str) -> Failure {
    Failure::refuse(
        Code::BadResponse,
        format!("The server's answer is broken or incomplete: {why}."),
        "Try again later, or fetch another page.",
    )
}

fn explain(error: &ureq::Error) -> Failure {
    match error {
        ureq::Error::Rustls(error) => tls_failed(error),
        ureq::Error::Tls(error) => tls_failed(error),
        ureq::Error::Io(io) => {
            match io.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
                Some(error) => tls_failed(error),
                None => broken(&io.to_string()),
            }
        }
        other => broken(&other.to_string()),
    }
}

fn tls_failed(error: &dyn std::fmt::Display) -> Failure {
    unreachable(format!("No trusted connection to the host: {error}."))
}

/// The certificates to trust.
fn roots(authorities: &Authorities) -> Result<Vec<Certificate<'static>>, Failure> {
    let found = match authorities {
        Authorities::System => rustls_native_certs::load_native_certs().certs,
        Authorities::File(path) => from_file(path)?,
    };
    if found.is_empty() {
        return Err(Failure::fault(
            "no certificate authorities are found; the operator installs ca-certificates or sets web.caFile",
        ));
    }
    Ok(found.iter().map(|der| Certificate::from_der(der).to_owned()).collect())
}

fn from_file(path: &Path) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let text = std::fs::read(path)
        .map_err(|error| Failure::fault(format!("web.caFile cannot be read: {error}")))?;
    CertificateDer::pem_slice_iter(&text)
        .collect::<Result<_, _>>()
        .map_err(|error| Failure::fault(format!("web.caFile is no PEM file: {error}")))
}

/// Resolves nothing: the connection is there.
#[derive(Debug)]
struct Nowhere;

impl Resolver for Nowhere {
    fn resolve(
        &self,
        _: &Uri,
        _: &Config,
        _: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let mut none = self.empty();
        none.push(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
        Ok(none)
    }
}

/// Connects to nothing: it hands on the one connection, once.
#[derive(Debug)]
struct Handed(Mutex<Option<Line>>);

impl Connector<()> for Handed {
    type Out = Line;

    fn connect(
        &self,
        _: &ConnectionDetails<'_>,
        _: Option<()>,
    ) -> Result<Option<Line>, ureq::Error> {
        let line = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        line.map(Some).ok_or(ureq::Error::ConnectionFailed)
    }
}

/// The connection, within the budget.
#[derive(Debug)]
struct Line {
    stream: TcpStream,
    buffers: LazyBuffers,
    budget: Budget,
}

impl Transport for Line {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, _: NextTimeout) -> Result<(), ureq::Error> {
        let mut rest = &self.buffers.output()[..amount];
        while !rest.is_empty() {
            self.budget.wait(self.stream.as_fd(), PollFlags::OUT)?;
            match self.stream.write(rest) {
                Ok(sent) => rest = &rest[sent..],
                Err(error) if again(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn await_input(&mut self, _: NextTimeout) -> Result<bool, ureq::Error> {
        loop {
            self.budget.wait(self.stream.as_fd(), PollFlags::IN)?;
            match self.stream.read(self.buffers.input_append_buf()) {
                Ok(amount) => {
                    self.buffers.input_appended(amount);
                    return Ok(amount > 0);
                }
                Err(error) if again(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn is_open(&mut self) -> bool {
        false
    }
}

fn again(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
