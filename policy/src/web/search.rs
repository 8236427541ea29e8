//! The search instance that the operator names, and what may be asked of it.

use core::net::IpAddr;

use protocol::refusal::{Code, Refusal};
use url::{Host, Url};

use crate::secret;

/// The longest query, in characters.
pub const MAX_QUERY_CHARS: usize = 1000;

/// A SearXNG instance. The operator names it, so its address is not judged as a page's is; plain http
/// goes to this machine alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchBase {
    url: Url,
    host: SearchHost,
    port: u16,
}

/// Where an instance is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SearchHost {
    /// A name to resolve.
    Name(String),
    /// An address.
    Address(IpAddr),
}

impl SearchBase {
    /// Parses the configured base URL.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut url = Url::parse(text).map_err(|error| format!("{text:?} is no URL: {error}"))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err("it names a user; an instance that needs one is not supported".to_owned());
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err("give the instance's base URL, without `?` and `#`".to_owned());
        }
        let host = match url.host() {
            Some(Host::Ipv4(ip)) => SearchHost::Address(IpAddr::V4(ip)),
            Some(Host::Ipv6(ip)) => SearchHost::Address(IpAddr::V6(ip)),
            Some(Host::Domain(name)) => SearchHost::Name(name.trim_end_matches('.').to_owned()),
            None => return Err(format!("{text:?} names no host")),
        };
        let loopback = matches!(host, SearchHost::Address(ip) if ip.is_loopback());
        match url.scheme() {
            "https" => {}
            "http" if loopback => {}
            "http" => {
                return Err(
                    "plain http is for this machine alone: use http://127.0.0.1:PORT, or https"
                        .to_owned(),
                );
            }
            other => return Err(format!("{other} is neither http nor https")),
        }
        let port = url.port_or_known_default().ok_or("it has no port")?;
        if port == 0 {
            return Err("there is no port 0".to_owned());
        }
        let path = format!("{}/search", url.path().trim_end_matches('/'));
        url.set_path(&path);
        Ok(Self { url, host, port })
    }

    /// The URL of a search.
    #[must_use]
    pub fn search(&self, query: &Query) -> String {
        let mut url = self.url.clone();
        url.query_pairs_mut().append_pair("q", &query.0).append_pair("format", "json");
        url.into()
    }

    /// Where the instance is.
    #[must_use]
    pub fn host(&self) -> &SearchHost {
        &self.host
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether it is asked over TLS.
    #[must_use]
    pub fn is_https(&self) -> bool {
        self.url.scheme() == "https"
    }
}

/// A query: not blank, bounded, and without a credential, since a search engine would read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query(String);

impl Query {
    /// Parses a query.
    ///
    /// # Errors
    /// `invalid_arguments` or `credential_shape`.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let text = text.trim();
        if text.is_empty()
            || text.chars().count() > MAX_QUERY_CHARS
            || text.contains(|c: char| c.is_control())
        {
            return Err(Refusal::new(
                Code::InvalidArguments,
                format!("A query has 1 to {MAX_QUERY_CHARS} characters on one line."),
                "Ask in a few words.",
            ));
        }
        match secret::find(text) {
            None => Ok(Self(text.to_owned())),
            Some(finding) => Err(Refusal::new(
                Code::CredentialShape,
                format!("The query holds something shaped like a {}.", finding.name),
                "Ask without it; if it is a real one, revoke it.",
            )),
        }
    }

    /// The query's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
