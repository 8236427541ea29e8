//! The executor's way to the web, in this process, with names and connections of the test's.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use ::confine::cancel::{self, Cancel, CancelGuard};
use ::confine::kernel::KernelSupport;
use ::confine::launcher::Launcher;
use executor::config::WebConfig;
use executor::session::Session;
use executor::tools::Failure;
use executor::tools::web::budget::Budget;
use executor::tools::web::page::Reader;
use executor::tools::web::{self, BUDGET, Web};
use policy::web::FetchUrl;
use policy::web::search::Query;
use protocol::refusal::{Code, Refusal};
use protocol::reply::{SearchResults, WebPage};
use tempfile::TempDir;

use super::net::{FakeNames, PUBLIC, RecordingDial};
use super::server::{Act, Seen, Server};
use crate::https::authority::Authority;
use crate::programs::program;

/// The hosts that the server has a certificate for, and that lead to it.
pub const HOSTS: [&str; 4] = ["pub.example", "ok.example", "rb.example", "other.example"];

/// A server that stands for every host, and the way to it.
pub struct WebWorld {
    /// What names lead to.
    pub names: FakeNames,
    /// What was connected to.
    pub dial: RecordingDial,
    /// The server.
    pub server: Server,
    /// The executor's side.
    pub web: Web,
    /// How long a call may take.
    pub budget: Duration,
    guard: Mutex<Option<CancelGuard>>,
    cancel: Cancel,
    _folder: TempDir,
}

impl WebWorld {
    /// A world whose server does what the script says.
    #[must_use]
    pub fn new(script: impl Fn(&Seen) -> Vec<Act> + Send + Sync + 'static) -> Self {
        Self::with_cap(1 << 20, script)
    }

    /// As [`WebWorld::new`], with a cap on the body.
    ///
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    pub fn with_cap(
        max_fetch_bytes: u64,
        script: impl Fn(&Seen) -> Vec<Act> + Send + Sync + 'static,
    ) -> Self {
        let authority = Authority::new().expect("an authority");
        let mut names: Vec<&str> = HOSTS.to_vec();
        names.push("93.184.216.34");
        let server =
            Server::start(Some(authority.serve_names(&names).expect("a certificate")), script);
        let folder = tempfile::Builder::new().prefix("sage-web-").tempdir().expect("a folder");
        let ca_file = folder.path().canonicalize().expect("it is there").join("ca.pem");
        std::fs::write(&ca_file, authority.pem()).expect("a file can be written");
        let config = WebConfig { searxng: None, max_fetch_bytes, ca_file: Some(ca_file) };
        let (names, dial) = (FakeNames::default(), RecordingDial::default());
        for host in HOSTS {
            names.set(host, &[&[PUBLIC]]);
        }
        dial.stand_in(SocketAddr::new(PUBLIC, 443), server.address());
        let web = open(&config, &names, &dial);
        let (guard, cancel) = cancel::pair().expect("descriptors");
        let guard = Mutex::new(Some(guard));
        Self { names, dial, server, web, budget: BUDGET, guard, cancel, _folder: folder }
    }

    fn budget(&self) -> Budget {
        Budget::new(self.budget, &self.cancel)
    }

    /// Goes away, as a caller does: whatever is under way ends.
    ///
    /// # Panics
    /// When a test panicked elsewhere.
    pub fn go_away(&self) {
        self.guard.lock().expect("no panic").take();
    }

    /// Fetches.
    ///
    /// # Errors
    /// What `web_fetch` says, a URL that is refused included.
    pub fn try_fetch(&self, url: &str) -> Result<WebPage, Failure> {
        let url = FetchUrl::parse(url)?;
        web::page_of(&self.web, &url, &mut Session::default(), 1 << 20, &self.budget())
    }

    /// Fetches a page that is there.
    ///
    /// # Panics
    /// When it is not.
    #[must_use]
    pub fn fetch(&self, url: &str) -> WebPage {
        self.try_fetch(url).unwrap_or_else(|failure| panic!("{url}: {failure:?}"))
    }

    /// Fetches what must be refused by this rule.
    ///
    /// # Panics
    /// When it is not.
    pub fn refused(&self, code: Code, url: &str) -> Refusal {
        match self.try_fetch(url) {
            Err(Failure::Refusal(no)) => {
                assert_eq!(no.code, code, "{url}: {no}");
                no
            }
            other => panic!("{url}: {other:?}"),
        }
    }
}

/// An instance that answers a search as the script says, and what is made of it.
///
/// # Errors
/// What `web_search` says.
///
/// # Panics
/// When it cannot be made.
pub fn search(
    path: &str,
    query: &str,
    script: impl Fn(&Seen) -> Vec<Act> + Send + Sync + 'static,
) -> (Result<SearchResults, Failure>, Vec<Seen>) {
    let server = Server::start(None, script);
    let config = WebConfig {
        searxng: Some(format!("http://{}{path}", server.address())),
        max_fetch_bytes: 1 << 20,
        ca_file: None,
    };
    let dial = RecordingDial::default();
    dial.stand_in(server.address(), server.address());
    let web = open(&config, &FakeNames::default(), &dial);
    let (_guard, cancel) = cancel::pair().expect("descriptors");
    let budget = Budget::new(BUDGET, &cancel);
    let found = Query::parse(query)
        .map_err(Failure::from)
        .and_then(|query| web::results_of(&web, &query, &budget));
    (found, server.seen())
}

fn open(config: &WebConfig, names: &FakeNames, dial: &RecordingDial) -> Web {
    let kernel = KernelSupport::detect();
    let (names, dial) = (Box::new(names.clone()), Box::new(dial.clone()));
    Web::with_parts(config, &kernel, reader(&kernel), names, dial).expect("it is configured")
}

/// The page reader, in the real program.
fn reader(kernel: &KernelSupport) -> Reader {
    let executor = program("sage-executor");
    let launcher = Launcher::with_binary(&executor, *kernel);
    Reader::new(launcher, Path::new(&executor)).expect("a program")
}
