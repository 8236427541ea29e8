//! Which URLs are fetched: https, port 443, and nothing that leads to a host that is not public.
//!
//! A URL is parsed once, with the parser that browsers agree on, so that every spelling of an address
//! (decimal, octal, hexadecimal, short, percent-encoded, full-width, with a final dot) is one address
//! by the time it is judged. A name is judged by [`address::judge`] once more for each address that it
//! resolves to, and the connection goes to a judged address: see the executor's `tools/web`.

pub mod address;
pub mod search;

use core::net::IpAddr;

use protocol::refusal::{Code, Refusal};
use url::{Host, Url};

use crate::path::shown;
use crate::secret;

/// The longest URL, in bytes.
pub const MAX_URL_BYTES: usize = 4096;

/// How often a fetch is sent elsewhere before it is refused.
pub const MAX_REDIRECTS: usize = 3;

/// A URL that may be fetched, as far as it can be judged without resolving its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchUrl {
    url: Url,
    target: Target,
}

/// Where a URL leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A name to resolve: ASCII, lower case, without a final dot, with a dot inside.
    Name(String),
    /// A public address.
    Address(IpAddr),
}

/// Names that never lead to a public host, whatever a resolver says. Each covers all names below it.
const SPECIAL_NAMES: &[(&str, &str)] = &[
    ("localhost", "RFC 6761"),
    ("localdomain", "a customary name of this machine"),
    ("local", "RFC 6762"),
    ("internal", "ICANN resolution 2024.07.29.06"),
    ("home.arpa", "RFC 8375"),
    ("test", "RFC 6761"),
    ("invalid", "RFC 6761"),
    ("onion", "RFC 7686"),
    ("alt", "RFC 9476"),
    ("lan", "a customary name of local networks"),
    ("intranet", "RFC 6762, appendix G"),
    ("private", "RFC 6762, appendix G"),
    ("corp", "RFC 6762, appendix G"),
    ("home", "RFC 6762, appendix G"),
];

impl FetchUrl {
    /// Parses a URL as a person or a model wrote it.
    ///
    /// # Errors
    /// `invalid_url`, `address_refused`, or `credential_shape`: what is in a URL, others read.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        plain(text)?;
        let url = Url::parse(text).map_err(|error| {
            invalid(
                format!("{} is no URL: {error}.", shown(text)),
                "Give one like https://host/path.",
            )
        })?;
        let url = Self::judge(url, text)?;
        match secret::find(text) {
            None => Ok(url),
            Some(finding) => Err(Refusal::new(
                Code::CredentialShape,
                format!("The URL holds something shaped like a {}.", finding.name),
                "Give the URL without it; if it is a real one, revoke it.",
            )),
        }
    }

    /// Where a redirect leads, from here.
    ///
    /// # Errors
    /// As [`FetchUrl::parse`].
    pub fn join(&self, location: &str) -> Result<Self, Refusal> {
        plain(location)?;
        let url = self.url.join(location).map_err(|error| {
            invalid(
                format!("The page redirects to {}, which is no URL: {error}.", shown(location)),
                "Fetch another page.",
            )
        })?;
        Self::judge(url, location)
    }

    fn judge(mut url: Url, text: &str) -> Result<Self, Refusal> {
        if url.scheme() != "https" {
            return Err(invalid(
                format!("{} is not https.", shown(text)),
                "Only https pages are fetched.",
            ));
        }
        if !url.username().is_empty() || url.password().is_some() || has_userinfo(text) {
            return Err(invalid(
                "The URL names a user or a password.".to_owned(),
                "Give the URL without them; pages are fetched as nobody.",
            ));
        }
        if let Some(port) = url.port() {
            return Err(invalid(
                format!("The URL names port {port}."),
                "Only port 443 is fetched from.",
            ));
        }
        let target = match url.host() {
            Some(Host::Ipv4(ip)) => Target::address(IpAddr::V4(ip))?,
            Some(Host::Ipv6(ip)) => Target::address(IpAddr::V6(ip))?,
            Some(Host::Domain(name)) => Target::name(name)?,
            None => return Err(invalid("The URL names no host.".to_owned(), "Name one.")),
        };
        if let Target::Name(name) = &target {
            // The certificate is for the name without the final dot.
            let name = name.clone();
            url.set_host(Some(&name)).map_err(|error| {
                invalid(format!("The host {} is no name: {error}.", shown(&name)), "Name another.")
            })?;
        }
        url.set_fragment(None);
        Ok(Self { url, target })
    }

    /// The URL, normalised.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.url.as_str()
    }

    /// Where it leads.
    #[must_use]
    pub fn target(&self) -> &Target {
        &self.target
    }
}

impl Target {
    fn address(ip: IpAddr) -> Result<Self, Refusal> {
        address::judge(ip).map_err(|range| range.refusal(&ip.to_string(), ip))?;
        Ok(Self::Address(ip))
    }

    fn name(name: &str) -> Result<Self, Refusal> {
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        let labels_fit = name.split('.').all(|label| (1..=63).contains(&label.len()));
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.len() > 253 || !labels_fit || !name.chars().all(plain) {
            return Err(invalid(
                format!("{} is no host name.", shown(&name)),
                "Give the URL as the page's own links have it.",
            ));
        }
        let below = |special: &str| {
            name.strip_suffix(special).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        };
        if let Some((special, source)) = SPECIAL_NAMES.iter().find(|(special, _)| below(special)) {
            return Err(Refusal::new(
                Code::AddressRefused,
                format!("{name} is not public: {special} is for special use ({source})."),
                "Only public hosts are fetched from.",
            ));
        }
        if !name.contains('.') {
            return Err(Refusal::new(
                Code::AddressRefused,
                format!("{name} is not public: a name without a dot is one of a local network."),
                "Only public hosts are fetched from.",
            ));
        }
        Ok(Self::Name(name))
    }
}

/// What the URL parser would quietly drop or turn into something else.
fn plain(text: &str) -> Result<(), Refusal> {
    if text.len() > MAX_URL_BYTES {
        return Err(invalid(
            format!("The URL has {} bytes; the limit is {MAX_URL_BYTES}.", text.len()),
            "Give a shorter one.",
        ));
    }
    if text.is_empty() || text.contains(|c: char| c.is_control() || c.is_whitespace() || c == '\\')
    {
        return Err(invalid(
            "A URL is not empty and holds no spaces, control characters or backslashes.".to_owned(),
            "Give one like https://host/path, with %20 for a space.",
        ));
    }
    Ok(())
}

/// Also an empty one (`https://@host/`), which the parser drops.
fn has_userinfo(text: &str) -> bool {
    let after = match text.split_once("://") {
        Some((_, after)) => after,
        None => match text.strip_prefix("//") {
            Some(after) => after,
            None => return false,
        },
    };
    let authority = after.split(['/', '?', '#']).next().unwrap_or_default();
    authority.contains('@')
}

fn invalid(message: String, hint: &str) -> Refusal {
    Refusal::new(Code::InvalidUrl, message, hint)
}

#[cfg(test)]
mod tests;
