//! Finding the addresses of a name: DNS over TCP, since nothing in this process can use UDP.
//!
//! The servers are those of `/etc/resolv.conf`. `/etc/hosts` is not read, and no search list is used:
//! a name is taken as it is. Both address families are asked for, over one connection, each once.

use std::fmt::Debug;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use confine::domain::Domain;
use confine::grants::{Grant, Grants, Rights};
use confine::kernel::KernelSupport;
use hickory_proto::op::{Message, MessageType, Query, ResponseCode};
use hickory_proto::rr::{Name, RData, RecordType};
use rustix::event::PollFlags;

use super::budget::Budget;
use super::dial::{Dial, Tcp};
use super::unreachable;
use crate::tools::Failure;

/// Where DNS servers listen.
pub const DNS_PORT: u16 = 53;
/// How long one server may take before the next is asked.
const PER_SERVER: Duration = Duration::from_secs(4);
/// How many servers are asked, as every resolver does it.
const MOST_SERVERS: usize = 3;
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// A way to find the addresses of names.
pub trait Names: Debug + Send + Sync {
    /// The addresses of a name, at least one, IPv4 first. Judging them is the caller's.
    ///
    /// # Errors
    /// `host_unreachable`, `timed_out` or `cancelled`.
    fn lookup(&self, name: &str, budget: &Budget) -> Result<Vec<IpAddr>, Failure>;
}

/// DNS, asked on a thread that can do nothing else.
#[derive(Debug)]
pub struct Dns {
    domain: Domain,
    /// A resolver's configuration that is replaced by rename is another file to Landlock, and can no
    /// longer be read: then these are asked.
    at_start: Vec<IpAddr>,
}

/// What the thread may read.
#[must_use]
pub fn grants() -> Vec<Grant> {
    vec![Grant::optional(RESOLV_CONF, Rights::READ_FILE, "the resolver")]
}

impl Dns {
    /// Builds the thread's domain.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn open(kernel: &KernelSupport) -> Result<Self, String> {
        let grants = Grants { files: grants(), connect_ports: vec![DNS_PORT] };
        let domain = Domain::build(&grants, kernel).map_err(|error| error.to_string())?;
        Ok(Self { domain, at_start: servers(Path::new(RESOLV_CONF)).unwrap_or_default() })
    }

    /// The thread itself, for tests that put other code into it.
    ///
    /// # Errors
    /// As [`Domain::run`].
    pub fn in_domain<T: Send>(
        &self,
        work: impl FnOnce() -> T + Send,
    ) -> Result<T, confine::ConfineError> {
        self.domain.run(work)
    }
}

impl Names for Dns {
    fn lookup(&self, name: &str, budget: &Budget) -> Result<Vec<IpAddr>, Failure> {
        self.domain.run_keeping(&[budget.cancel().as_fd()], || {
            let servers = servers(Path::new(RESOLV_CONF)).unwrap_or_else(|| self.at_start.clone());
            let servers: Vec<SocketAddr> =
                servers.iter().map(|ip| SocketAddr::new(*ip, DNS_PORT)).collect();
            ask_all(&servers, name, &Tcp, budget)
        })?
    }
}

/// The servers of a resolver's configuration; `None` when it cannot be read. Where it names none, this
/// machine is asked, as the C library does it.
fn servers(path: &Path) -> Option<Vec<IpAddr>> {
    let text = std::fs::read(path).ok()?;
    let (config, _) = resolv_conf::Config::parse_with_errors(&text);
    let mut servers: Vec<IpAddr> = config.nameservers.iter().map(IpAddr::from).collect();
    if servers.is_empty() {
        servers.push(Ipv4Addr::LOCALHOST.into());
    }
    Some(servers)
}

/// Asks one server after the other, until one knows.
///
/// # Errors
/// As [`Names::lookup`].
pub fn ask_all(
    servers: &[SocketAddr],
    name: &str,
    dial: &dyn Dial,
    budget: &Budget,
) -> Result<Vec<IpAddr>, Failure> {
    let parsed = Name::from_ascii(format!("{name}."))
        .map_err(|_| unreachable(format!("{name} is no name that DNS has.")))?;
    let mut said = "no server is configured".to_owned();
    for server in servers.iter().take(MOST_SERVERS) {
        match ask(*server, &parsed, dial, &budget.part(PER_SERVER)) {
            Ok(Answer::Addresses(addresses)) => return Ok(addresses),
            Ok(Answer::NoSuchName) => {
                return Err(unreachable(format!("There is no host named {name}.")));
            }
            Ok(Answer::NoAddress) => {
                return Err(unreachable(format!("{name} has no address.")));
            }
            Err(error) => {
                budget.check()?;
                said = error.to_string();
            }
        }
    }
    Err(unreachable(format!("The name {name} cannot be resolved now: {said}.")))
}

enum Answer {
    Addresses(Vec<IpAddr>),
    NoSuchName,
    NoAddress,
}

fn ask(server: SocketAddr, name: &Name, dial: &dyn Dial, budget: &Budget) -> io::Result<Answer> {
    let mut line = Line { stream: dial.dial(server, budget)?, budget };
    let kinds = [RecordType::A, RecordType::AAAA];
    let queries = kinds.map(|kind| {
        let mut message = Message::query();
        message.metadata.recursion_desired = true;
        message.add_query(Query::query(name.clone(), kind));
        message
    });
    // Both in one go; a server may answer them in any order.
    let mut sent = Vec::new();
    for query in &queries {
        let bytes = query.to_vec().map_err(io::Error::other)?;
        let length = u16::try_from(bytes.len()).map_err(io::Error::other)?;
        sent.extend_from_slice(&length.to_be_bytes());
        sent.extend_from_slice(&bytes);
    }
    line.write_all(&sent)?;
    let mut found = [Vec::new(), Vec::new()];
    let mut open = vec![0, 1];
    let mut missing = false;
    while !open.is_empty() {
        let answer = line.message()?;
        let asked = open.iter().position(|at| answers(&queries[*at], &answer));
        let at =
            open.remove(asked.ok_or_else(|| io::Error::other("an answer to another question"))?);
        match answer.metadata.response_code {
            ResponseCode::NoError => found[at] = addresses(&answer),
            ResponseCode::NXDomain => missing = true,
            other => return Err(io::Error::other(format!("the server says {other}"))),
        }
    }
    let all = found.concat();
    Ok(match (all.is_empty(), missing) {
        (false, _) => Answer::Addresses(all),
        (true, true) => Answer::NoSuchName,
        (true, false) => Answer::NoAddress,
    })
}

fn answers(query: &Message, answer: &Message) -> bool {
    answer.metadata.id == query.metadata.id
        && answer.metadata.message_type == MessageType::Response
        && !answer.metadata.truncation
        && answer.queries == query.queries
}

/// Every address in an answer, whatever chain of aliases leads there: each will be judged.
fn addresses(answer: &Message) -> Vec<IpAddr> {
    let address = |data: &RData| match data {
        RData::A(a) => Some(IpAddr::V4(a.0)),
        RData::AAAA(aaaa) => Some(IpAddr::V6(aaaa.0)),
        _ => None,
    };
    answer.answers.iter().filter_map(|record| address(&record.data)).collect()
}

/// A stream that waits within a budget.
struct Line<'a> {
    stream: TcpStream,
    budget: &'a Budget,
}

impl Line<'_> {
    fn message(&mut self) -> io::Result<Message> {
        let mut length = [0; 2];
        self.read_exact(&mut length)?;
        let mut bytes = vec![0; usize::from(u16::from_be_bytes(length))];
        self.read_exact(&mut bytes)?;
        Message::from_vec(&bytes)
            .map_err(|error| io::Error::other(format!("its answer is broken: {error}")))
    }
}

impl Read for Line<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.budget.wait(self.stream.as_fd(), PollFlags::IN)?;
        self.stream.read(buffer)
    }
}

impl Write for Line<'_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.budget.wait(self.stream.as_fd(), PollFlags::OUT)?;
        self.stream.write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
