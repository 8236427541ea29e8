//! Names and connections as a test wants them.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};

use executor::tools::Failure;
use executor::tools::web::budget::Budget;
use executor::tools::web::dial::Dial;
use executor::tools::web::dns::Names;
use protocol::refusal::Code;

/// Stands for any public address.
pub const PUBLIC: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(93, 184, 216, 34));

/// What names lead to. Shared: a clone sees the same.
#[derive(Debug, Clone, Default)]
pub struct FakeNames(Arc<Mutex<NameTable>>);

#[derive(Debug, Default)]
struct NameTable {
    answers: HashMap<String, Vec<Vec<IpAddr>>>,
    asked: Vec<String>,
}

impl FakeNames {
    /// Lets a name lead somewhere: the first time to the first, the last time and later to the last.
    ///
    /// # Panics
    /// When a test panicked elsewhere.
    pub fn set(&self, name: &str, answers: &[&[IpAddr]]) {
        let answers = answers.iter().map(|answer| answer.to_vec()).collect();
        self.0.lock().expect("no panic").answers.insert(name.to_owned(), answers);
    }

    /// Every name that was asked for.
    ///
    /// # Panics
    /// When a test panicked elsewhere.
    #[must_use]
    pub fn asked(&self) -> Vec<String> {
        self.0.lock().expect("no panic").asked.clone()
    }
}

impl Names for FakeNames {
    fn lookup(&self, name: &str, budget: &Budget) -> Result<Vec<IpAddr>, Failure> {
        budget.check()?;
        let mut table = self.0.lock().expect("no panic");
        table.asked.push(name.to_owned());
        let Some(answers) = table.answers.get_mut(name) else {
            return Err(Failure::refuse(
                Code::HostUnreachable,
                format!("There is no host named {name}."),
                "x",
            ));
        };
        Ok(if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() })
    }
}

/// Connects to loopback ports in the place of public addresses, and remembers what it was asked.
#[derive(Debug, Clone, Default)]
pub struct RecordingDial(Arc<Mutex<DialTable>>);

#[derive(Debug, Default)]
struct DialTable {
    stand_ins: HashMap<SocketAddr, SocketAddr>,
    asked: Vec<SocketAddr>,
}

impl RecordingDial {
    /// Lets an address on this machine stand for a public one.
    ///
    /// # Panics
    /// When the stand-in is not on this machine.
    pub fn stand_in(&self, public: SocketAddr, here: SocketAddr) {
        assert!(here.ip().is_loopback(), "tests reach nothing else");
        self.0.lock().expect("no panic").stand_ins.insert(public, here);
    }

    /// Every address that a connection was asked to.
    ///
    /// # Panics
    /// When a test panicked elsewhere.
    #[must_use]
    pub fn asked(&self) -> Vec<SocketAddr> {
        self.0.lock().expect("no panic").asked.clone()
    }
}

impl Dial for RecordingDial {
    fn dial(&self, address: SocketAddr, budget: &Budget) -> io::Result<TcpStream> {
        let here = {
            let mut table = self.0.lock().expect("no panic");
            table.asked.push(address);
            table.stand_ins.get(&address).copied()
        };
        let here = here.ok_or(io::ErrorKind::ConnectionRefused)?;
        executor::tools::web::dial::Tcp.dial(here, budget)
    }
}
