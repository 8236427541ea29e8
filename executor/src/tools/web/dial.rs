//! Connecting to exactly one address. Nothing is read here, so there is nothing to be taken over by.

use std::fmt::Debug;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;

use rustix::event::PollFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};

use super::budget::Budget;

/// A way to connect.
pub trait Dial: Debug + Send + Sync {
    /// Connects to an address, and to no other; the stream does not block.
    ///
    /// # Errors
    /// What the system said, or the budget.
    fn dial(&self, address: SocketAddr, budget: &Budget) -> io::Result<TcpStream>;
}

/// TCP itself.
#[derive(Debug, Clone, Copy)]
pub struct Tcp;

impl Dial for Tcp {
    fn dial(&self, address: SocketAddr, budget: &Budget) -> io::Result<TcpStream> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        match connect(&socket, &address) {
            Ok(()) => {}
            Err(rustix::io::Errno::INPROGRESS) => {
                budget.wait(socket.as_fd(), PollFlags::OUT)?;
                sockopt::socket_error(&socket)??;
            }
            Err(error) => return Err(error.into()),
        }
        Ok(socket.into())
    }
}
