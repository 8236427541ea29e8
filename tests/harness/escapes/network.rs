//! Every kind of socket, and every way round a port rule.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};

use nix::errno::Errno;
use rustix::net::{AddressFamily, Protocol, RawProtocol, SendFlags, SocketType, socket};

use super::Barrier::{Filter, Port, Row};
use super::{ALLOWED, Attempt, EPERM, attempt};

/// `MSG_FASTOPEN`.
const FAST_OPEN: u32 = 0x2000_0000;
const ABSENT: &[Errno] =
    &[Errno::EAFNOSUPPORT, Errno::EPROTONOSUPPORT, Errno::ESOCKTNOSUPPORT, Errno::ENOPROTOOPT];
const UNBUILT: &str = "this kernel may not have the protocol";

pub(super) const TABLE: &[Attempt] = &[
    attempt("tcp-other-port", Port, |aim| TcpStream::connect(loopback(aim.tcp)).map(drop)),
    attempt("tcp-mapped", Port, |aim| {
        TcpStream::connect((Ipv4Addr::LOCALHOST.to_ipv6_mapped(), aim.tcp)).map(drop)
    }),
    attempt("tcp-6", Port, |aim| TcpStream::connect((Ipv6Addr::LOCALHOST, aim.tcp)).map(drop))
        .answers(&[Errno::ECONNREFUSED, Errno::EADDRNOTAVAIL], "the listener is on IPv4"),
    attempt("tcp-listen", Filter, |_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map(drop)),
    attempt("tcp-listen-unbound", Filter, |_| {
        let stream = socket(AddressFamily::INET, SocketType::STREAM, None)?;
        Ok(rustix::net::listen(stream, 1)?)
    }),
    attempt("tcp-fast-open", Filter, |aim| {
        let stream = socket(AddressFamily::INET, SocketType::STREAM, None)?;
        let flags = SendFlags::from_bits_retain(FAST_OPEN);
        Ok(rustix::net::sendto(stream, b"x", flags, &loopback(aim.tcp)).map(drop)?)
    }),
    attempt("mptcp", Filter, |aim| {
        let stream = of(AddressFamily::INET, SocketType::STREAM, 262)?;
        Ok(rustix::net::connect(stream, &loopback(aim.tcp))?)
    })
    .answers(ABSENT, UNBUILT),
    attempt("mptcp-6", Filter, |_| of(AddressFamily::INET6, SocketType::STREAM, 262).map(drop))
        .answers(ABSENT, UNBUILT),
    attempt("sctp", Filter, |_| of(AddressFamily::INET, SocketType::STREAM, 132).map(drop))
        .answers(ABSENT, UNBUILT),
    attempt("dccp", Filter, |_| of(AddressFamily::INET, SocketType::from_raw(6), 33).map(drop))
        .answers(ABSENT, UNBUILT),
    attempt("udp", Filter, |aim| {
        UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?.send_to(b"x", loopback(aim.udp)).map(drop)
    }),
    attempt("udp-6", Filter, |_| UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).map(drop))
        .answers(&[Errno::EADDRNOTAVAIL, Errno::EAFNOSUPPORT], "not every container has IPv6"),
    attempt("udp-lite", Filter, |_| of(AddressFamily::INET, SocketType::DGRAM, 136).map(drop))
        .answers(ABSENT, UNBUILT),
    attempt("ping", Filter, |_| of(AddressFamily::INET, SocketType::DGRAM, 1).map(drop))
        .answers(&[Errno::EACCES], "net.ipv4.ping_group_range decides"),
    attempt("raw", Filter, |_| of(AddressFamily::INET, SocketType::RAW, 255).map(drop))
        .answers(&[Errno::EPERM], "only root may"),
    attempt("packet", Filter, |_| of(AddressFamily::PACKET, SocketType::RAW, 0).map(drop))
        .answers(&[Errno::EPERM, Errno::EAFNOSUPPORT], "only root may"),
    attempt("netlink", Filter, |_| of(AddressFamily::NETLINK, SocketType::RAW, 0).map(drop)),
    attempt("netlink-audit", Filter, |_| of(AddressFamily::NETLINK, SocketType::RAW, 9).map(drop))
        .answers(ABSENT, UNBUILT),
    attempt("vsock", Filter, |_| of(AddressFamily::VSOCK, SocketType::STREAM, 0).map(drop))
        .answers(ABSENT, UNBUILT),
    attempt("crypto", Filter, |_| {
        of(AddressFamily::from_raw(38), SocketType::SEQPACKET, 0).map(drop)
    })
    .answers(ABSENT, UNBUILT),
    attempt("bluetooth", Filter, |_| of(AddressFamily::BLUETOOTH, SocketType::RAW, 1).map(drop))
        .answers(ABSENT, UNBUILT),
    attempt("unix", Filter, |aim| UnixStream::connect(&aim.socket).map(drop)),
    attempt("unix-datagram", Filter, |_| UnixDatagram::unbound().map(drop)),
    attempt("unix-packets", Filter, |_| {
        of(AddressFamily::UNIX, SocketType::SEQPACKET, 0).map(drop)
    }),
    attempt("unix-abstract", Filter, |aim| {
        let name = std::os::unix::net::SocketAddr::from_abstract_name(&aim.name)?;
        UnixStream::connect_addr(&name).map(drop)
    }),
    attempt("unix-pair", Row(pair), |_| UnixDatagram::pair().map(drop)),
    attempt("unix-listen", Filter, |aim| UnixListener::bind(aim.elsewhere.join("bound")).map(drop)),
];

/// libcurl wakes itself up through a pair, which reaches nobody else.
fn pair(row: &policy::authority::Row) -> i32 {
    if row.network == policy::authority::Network::RemotePort { ALLOWED } else { EPERM }
}

fn loopback(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

fn of(family: AddressFamily, kind: SocketType, protocol: u32) -> io::Result<rustix::fd::OwnedFd> {
    let protocol = RawProtocol::new(protocol).map(Protocol::from_raw);
    Ok(socket(family, kind, protocol)?)
}
