//! `web_fetch` and `web_search`: pages of public hosts, and nothing of this machine or its network.
//!
//! The way of a fetch, one row of authority for each step:
//!
//! 1. [`dns`]: the name becomes addresses, on a thread that reads the resolver's configuration and
//!    reaches DNS over TCP;
//! 2. every address is judged by [`policy::web::address`], and one that is not public refuses them all;
//! 3. [`dial`]: a connection to exactly a judged address, made by code that reads nothing from it;
//! 4. [`http`]: TLS and HTTP over that connection, on a thread that can make no other: it has no
//!    socket to make, no file but the certificate authorities, nothing to execute;
//! 5. a redirect starts again at 1, three times at most;
//! 6. [`page`]: the bytes become text in a child with no file, no network, and bounded memory and time.
//!
//! What must stay true: a name is resolved once per hop, and what was judged is what is connected to.
//! One budget of 15 seconds lies over everything ([`budget`]), and whoever called can end it.

mod body;
pub mod budget;
pub mod dial;
pub mod dns;
pub mod http;
pub mod page;
pub mod searx;

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use confine::cancel::Cancel;
use confine::domain::Domain;
use confine::grants::{self, Grant, Grants, Rights};
use confine::kernel::KernelSupport;
use confine::launcher::Launcher;
use policy::fence::{Permit, WebFetch, WebSearch};
use policy::secret;
use policy::web::search::{Query, SearchBase, SearchHost};
use policy::web::{FetchUrl, MAX_REDIRECTS, Target, address};
use protocol::refusal::Code;
use protocol::reply::{SearchResults, Untrusted, WebPage};
use sha2::{Digest, Sha256};

use self::budget::Budget;
use self::dial::{Dial, Tcp};
use self::dns::{DNS_PORT, Dns, Names};
use self::http::{Answer, Asked};
use self::page::Reader;
use super::Failure;
use crate::config::WebConfig;
use crate::session::Session;
use crate::workplace::Workplace;

/// How long a call may take, whatever it is busy with.
pub const BUDGET: Duration = Duration::from_secs(15);

/// The one port that pages are fetched from.
pub const HTTPS_PORT: u16 = 443;

/// The longest title, and the longest of a search's texts, in characters.
const MAX_TITLE_CHARS: usize = 300;

/// Everything that calls to the web work with.
#[derive(Debug)]
pub struct Web {
    names: Box<dyn Names>,
    dial: Box<dyn Dial>,
    exchange: Domain,
    authorities: Authorities,
    reader: Reader,
    search: Option<SearchBase>,
    max_fetch_bytes: usize,
}

/// Which certificates are trusted.
#[derive(Debug, Clone)]
pub enum Authorities {
    /// The system's.
    System,
    /// Those of a PEM file.
    File(PathBuf),
}

impl Authorities {
    fn grants(&self) -> Vec<Grant> {
        match self {
            Self::File(path) => {
                vec![Grant::new(path, Rights::READ_FILE, "certificate authorities")]
            }
            Self::System => [
                "/etc/ssl",
                "/usr/lib/ssl",
                "/usr/share/ca-certificates",
                "/usr/local/share/ca-certificates",
                "/etc/pki",
                "/etc/ca-certificates",
            ]
            .iter()
            .map(|path| Grant::optional(*path, Rights::READ, "certificate authorities"))
            .collect(),
        }
    }
}

impl Web {
    /// Checks and opens what the configuration names.
    ///
    /// # Errors
    /// What is wrong.
    pub fn open(
        config: &WebConfig,
        kernel: &KernelSupport,
        launcher: &Launcher,
        own: &Path,
    ) -> Result<Self, String> {
        let names = Box::new(Dns::open(kernel)?);
        Self::with_parts(config, kernel, Reader::new(launcher.clone(), own)?, names, Box::new(Tcp))
    }

    /// As [`Web::open`], with another way to find addresses and to connect to them: for tests, which
    /// reach nothing but this machine. No configuration leads here.
    ///
    /// # Errors
    /// What is wrong.
    pub fn with_parts(
        config: &WebConfig,
        kernel: &KernelSupport,
        reader: Reader,
        names: Box<dyn Names>,
        dial: Box<dyn Dial>,
    ) -> Result<Self, String> {
        let authorities = config.ca_file.clone().map_or(Authorities::System, Authorities::File);
        let grants = Grants::files(authorities.grants());
        let exchange = Domain::build(&grants, kernel).map_err(|error| error.to_string())?;
        let search = config.searxng.as_deref().map(SearchBase::parse).transpose()?;
        let max_fetch_bytes = usize::try_from(config.max_fetch_bytes).unwrap_or(usize::MAX);
        Ok(Self { names, dial, exchange, authorities, reader, search, max_fetch_bytes })
    }

    /// What the daemon's own domain must allow for all this.
    #[must_use]
    pub fn daemon_grants(&self) -> Grants {
        let mut files = self.authorities.grants();
        files.extend(dns::grants());
        let mut connect_ports = vec![HTTPS_PORT, DNS_PORT];
        connect_ports.extend(self.search.as_ref().map(SearchBase::port));
        Grants { files, connect_ports }
    }

    /// Fetches a page, following redirects.
    ///
    /// # Errors
    /// See the module; nothing was sent to an address that is not public.
    pub fn fetch(&self, url: &FetchUrl, budget: &Budget) -> Result<Fetched, Failure> {
        let mut url = url.clone();
        for _ in 0..=MAX_REDIRECTS {
            let addresses = match url.target() {
                Target::Address(ip) => vec![*ip],
                Target::Name(name) => self.public(name, budget)?,
            };
            let asked = Asked {
                url: url.as_str(),
                accept: "text/html, text/*;q=0.9, */*;q=0.1",
                https: true,
                max_bytes: self.max_fetch_bytes,
            };
            let answer = self.exchange(&addresses, HTTPS_PORT, &asked, budget)?;
            match answer.redirect()? {
                None => return Ok(Fetched { url, answer }),
                Some(location) => url = url.join(location)?,
            }
        }
        Err(Failure::refuse(
            Code::BadRedirect,
            format!("The page redirects more than {MAX_REDIRECTS} times."),
            "Fetch the page that it should lead to, or another.",
        ))
    }

    /// The addresses of a name, all of them public.
    fn public(&self, name: &str, budget: &Budget) -> Result<Vec<IpAddr>, Failure> {
        let addresses = self.names.lookup(name, budget)?;
        for ip in &addresses {
            address::judge(*ip).map_err(|range| range.refusal(name, *ip))?;
        }
        Ok(addresses)
    }

    /// Asks one host, at the first of its addresses that answers.
    fn exchange(
        &self,
        addresses: &[IpAddr],
        port: u16,
        asked: &Asked<'_>,
        budget: &Budget,
    ) -> Result<Answer, Failure> {
        let stream = self.connect(addresses, port, budget)?;
        let kept = [stream.as_fd(), budget.cancel().as_fd()];
        self.exchange.run_keeping(&kept, || {
            // A copy of the descriptor, which ends in the table that it is in.
            let own = stream.as_fd().try_clone_to_owned().map_err(Failure::io)?;
            http::exchange(own.into(), asked, &self.authorities, budget)
        })?
    }

    fn connect(
        &self,
        addresses: &[IpAddr],
        port: u16,
        budget: &Budget,
    ) -> Result<std::net::TcpStream, Failure> {
        /// A name may have hundreds; the first few are tried.
        const MOST_TRIED: usize = 4;
        let mut said = "it has no address".to_owned();
        let tried = &addresses[..addresses.len().min(MOST_TRIED)];
        for (at, ip) in tried.iter().enumerate() {
            // One that swallows what it is sent leaves time for those after it.
            let waiting = u32::try_from(tried.len() - at).unwrap_or(1);
            let share = budget.part(budget.left() / waiting);
            match self.dial.dial(SocketAddr::new(*ip, port), &share) {
                Ok(stream) => return Ok(stream),
                Err(error) => {
                    budget.check()?;
                    said = format!("{ip}: {error}");
                }
            }
        }
        Err(unreachable(format!("No connection to the host: {said}.")))
    }

    /// Asks the search instance.
    ///
    /// # Errors
    /// `search_unavailable` and the like.
    pub fn ask_instance(&self, query: &Query, budget: &Budget) -> Result<Vec<u8>, Failure> {
        let base = self.search.as_ref().ok_or_else(|| {
            Failure::fault("no search instance is configured; the fence should have said so")
        })?;
        let addresses = match base.host() {
            SearchHost::Address(ip) => vec![*ip],
            SearchHost::Name(name) => self.names.lookup(name, budget)?,
        };
        let url = base.search(query);
        let asked = Asked {
            url: &url,
            accept: "application/json",
            https: base.is_https(),
            max_bytes: searx::MAX_ANSWER_BYTES,
        };
        let answer = self.exchange(&addresses, base.port(), &asked, budget).map_err(searx::why)?;
        searx::accept(answer)
    }

    /// The thread that asks hosts, for tests that put other code into it.
    ///
    /// # Errors
    /// As [`Domain::run_keeping`].
    pub fn in_exchange<T: Send>(
        &self,
        stream: &std::net::TcpStream,
        work: impl FnOnce() -> T + Send,
    ) -> Result<T, confine::ConfineError> {
        self.exchange.run_keeping(&[stream.as_fd()], work)
    }

    /// What turns pages into text.
    #[must_use]
    pub fn reader(&self) -> &Reader {
        &self.reader
    }
}

/// A page as the server gave it.
#[derive(Debug)]
pub struct Fetched {
    /// Where it was in the end.
    pub url: FetchUrl,
    /// What the server said.
    pub answer: Answer,
}

/// `web_fetch`.
///
/// # Errors
/// See [`Web::fetch`] and [`page::Reader::read`].
pub fn fetch(
    place: &Workplace,
    permit: &Permit<WebFetch>,
    session: &mut Session,
    cancel: &Cancel,
) -> Result<WebPage, Failure> {
    let web = web(place)?;
    let budget = Budget::new(BUDGET, cancel);
    page_of(web, &permit.action().url, session, place.limits.max_bytes, &budget)
}

/// Fetches a page and makes it a reply.
///
/// # Errors
/// As [`fetch`].
pub fn page_of(
    web: &Web,
    url: &FetchUrl,
    session: &mut Session,
    shown_bytes: u64,
    budget: &Budget,
) -> Result<WebPage, Failure> {
    let Fetched { url, answer } = web.fetch(url, budget)?;
    let (bytes, digest) = (answer.body.len() as u64, hex(&answer.body));
    let read = web.reader.read(&answer, url.as_str(), budget)?;
    let text = secret::mask(&read.text).into_owned();
    let masked = |text: &str| Untrusted(secret::mask(&short(text)).into_owned());
    Ok(WebPage {
        untrusted_url: Untrusted(secret::mask(url.as_str()).into_owned()),
        status: answer.status,
        untrusted_content_type: answer.content_type.as_deref().map(masked),
        untrusted_title: read.title.as_deref().map(masked),
        // No root has this text, and seeing it reviews nothing.
        untrusted_text: session.cut(0, text, shown_bytes, Vec::new()),
        bytes,
        digest,
        truncated: answer.truncated || read.truncated,
        lossy: read.lossy,
        hidden_left_out: read.hidden_left_out,
        bare: read.bare,
    })
}

/// `web_search`.
///
/// # Errors
/// See [`Web::ask_instance`] and [`searx::results`].
pub fn search(
    place: &Workplace,
    permit: &Permit<WebSearch>,
    cancel: &Cancel,
) -> Result<SearchResults, Failure> {
    let web = web(place)?;
    results_of(web, &permit.action().query, &Budget::new(BUDGET, cancel))
}

/// Searches and makes it a reply.
///
/// # Errors
/// As [`search`].
pub fn results_of(web: &Web, query: &Query, budget: &Budget) -> Result<SearchResults, Failure> {
    let body = web.ask_instance(query, budget)?;
    // On the thread that asked: it holds the answer's parser to nothing.
    let found = web.exchange.run(|| searx::results(&body))??;
    Ok(SearchResults { bytes: body.len() as u64, digest: hex(&body), ..found })
}

fn web(place: &Workplace) -> Result<&Web, Failure> {
    let missing = || Failure::fault("the web is not configured; the fence should have said so");
    place.web.as_ref().ok_or_else(missing)
}

fn unreachable(message: String) -> Failure {
    Failure::refuse(
        Code::HostUnreachable,
        message,
        "Check the URL; if it is right, try again later, or fetch another page.",
    )
}

/// One line, cut.
fn short(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().take(MAX_TITLE_CHARS).collect()
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What the page reader's child needs to start.
fn own_program(own: &Path) -> Result<Vec<Grant>, String> {
    let mut files = grants::program(own, "reading pages")
        .map_err(|error| format!("{}: {error}", own.display()))?;
    files.extend(grants::system_libraries());
    Ok(files)
}
