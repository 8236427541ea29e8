//! Attacker code in each step of a fetch: it gets nowhere. Each refusal has a control that shows the same
//! attempt succeeding outside.

use std::fs::File;
use std::io::Read as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::process::Command;

use ::confine::kernel::KernelSupport;
use executor::tools::web::dns::Dns;
use harness::confine::{Ground, number};
use harness::web::server::html;
use harness::web::world::WebWorld;
use nix::errno::Errno;

const ALLOWED: i32 = 0;
const EACCES: i32 = Errno::EACCES as i32;
const EPERM: i32 = Errno::EPERM as i32;

/// What code that took a step over would try first.
fn attempts(secret: &str, listener: SocketAddr) -> Vec<i32> {
    vec![
        number(File::open(secret)),
        number(std::fs::write(format!("{secret}.new"), "x")),
        number(File::open("/etc/passwd")),
        number(File::open("/proc/self/environ")),
        number(Command::new("/bin/true").status()),
        number(TcpStream::connect(listener)),
        number(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))),
        number(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))),
        number(UnixStream::pair()),
        number(nix::sys::signal::kill(nix::unistd::getppid(), None).map_err(std::io::Error::from)),
    ]
}

#[test]
fn code_that_takes_over_the_fetch_reads_one_connection_and_reaches_nothing_else() {
    let ground = Ground::new();
    let secret = ground.path("outside").display().to_string();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let world = WebWorld::new(|_| html("<p>x"));
    let stream = TcpStream::connect(world.server.address()).expect("the server is there");
    let (numbers, own) = world
        .web
        .in_exchange(&stream, || {
            // Also through what is left of its own connection.
            let own = number(stream.peer_addr());
            (attempts(&secret, address), own)
        })
        .expect("the thread runs");
    assert_eq!(own, ALLOWED, "its own connection is there");
    // Sockets of every kind are refused before an address matters.
    assert_eq!(numbers, [EACCES, EACCES, EACCES, EACCES, EPERM, EPERM, EPERM, EPERM, EPERM, EPERM]);
    let free = attempts(&secret, address);
    assert_eq!(free, [ALLOWED; 10], "nothing but the domain refuses any of it");
}

#[test]
fn code_that_takes_over_the_resolver_reaches_no_port_but_that_of_dns() {
    let ground = Ground::new();
    let secret = ground.path("outside").display().to_string();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let dns = Dns::open(&KernelSupport::detect()).expect("a domain");
    let (numbers, resolver) = dns
        .in_domain(|| {
            let mut text = String::new();
            let read =
                File::open("/etc/resolv.conf").and_then(|mut file| file.read_to_string(&mut text));
            (attempts(&secret, address), number(read))
        })
        .expect("the thread runs");
    assert_eq!(resolver, ALLOWED, "it reads the resolver's configuration");
    // Binding and datagrams are seccomp's; a UDP socket is the daemon's filter's, which this process
    // does not have: see confinement::daemon.
    assert_eq!(numbers[..6], [EACCES, EACCES, EACCES, EACCES, EPERM, EACCES]);
    assert_eq!((numbers[6], numbers[8], numbers[9]), (EPERM, EPERM, EPERM));
}
