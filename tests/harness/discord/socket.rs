//! A TCP stream that can be told to end after some more bytes.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// How a connection is to end.
#[derive(Debug, Clone, Copy)]
pub(super) struct End {
    /// After so many more bytes.
    pub(super) bytes: usize,
    /// With a reset.
    pub(super) reset: bool,
}

/// Shared between the connection and who answers its requests.
pub(super) type Order = Arc<Mutex<Option<End>>>;

/// The stream.
pub(super) struct Cuttable {
    stream: TcpStream,
    order: Order,
}

impl Cuttable {
    pub(super) fn new(stream: TcpStream, order: Order) -> Self {
        Self { stream, order }
    }
}

impl AsyncRead for Cuttable {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Cuttable {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let order = *self.order.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(end) = order else {
            return Pin::new(&mut self.stream).poll_write(context, bytes);
        };
        if end.bytes == 0 {
            if end.reset {
                let _ = self.stream.set_zero_linger();
            }
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        let some = &bytes[..bytes.len().min(end.bytes)];
        let written = Pin::new(&mut self.stream).poll_write(context, some);
        if let Poll::Ready(Ok(count)) = written {
            let left = End { bytes: end.bytes - count, ..end };
            *self.order.lock().unwrap_or_else(PoisonError::into_inner) = Some(left);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
