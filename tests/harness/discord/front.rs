//! TLS in front of the fake, as Discord has it: one port for REST and gateway, told apart by the path.

use std::net::SocketAddr;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// What is behind it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Backends {
    pub(super) gateway: SocketAddr,
    pub(super) rest: SocketAddr,
}

/// Serves until the runtime goes.
pub(super) async fn serve(listener: TcpListener, tls: TlsAcceptor, backends: Backends) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(pass(stream, tls.clone(), backends));
    }
}

/// One connection. One that ends badly ends.
async fn pass(stream: TcpStream, tls: TlsAcceptor, backends: Backends) -> Option<()> {
    let mut client = BufReader::new(tls.accept(stream).await.ok()?);
    let mut line = Vec::new();
    client.read_until(b'\n', &mut line).await.ok()?;
    let rest = line.split(|byte| *byte == b' ').nth(1)?.starts_with(b"/api/");
    let address = if rest { backends.rest } else { backends.gateway };
    let mut backend = TcpStream::connect(address).await.ok()?;
    backend.write_all(&line).await.ok()?;
    tokio::io::copy_bidirectional(&mut client, &mut backend).await.ok()?;
    Some(())
}
