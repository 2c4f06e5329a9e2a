//! The streams that clients come over, other than plain TCP: one type for all of them, so that the connection loop is
//! compiled twice and not once for each.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use super::websocket::WebSocket;

/// A stream over something else than TCP alone. On the heap: most connections are none of these, or idle.
pub(super) enum Layered {
    /// TCP, with something else above.
    Tcp(TcpStream),
    /// TLS.
    Tls(Box<TlsStream<TcpStream>>),
    /// WebSocket.
    WebSocket(Box<WebSocket<TcpStream>>),
    /// WebSocket over TLS.
    WebSocketOverTls(Box<WebSocket<TlsStream<TcpStream>>>),
}

macro_rules! each {
    ($self:expr, $stream:ident => $call:expr) => {
        match $self.get_mut() {
            Layered::Tcp(stream) => {
                let $stream = Pin::new(stream);
                $call
            }
            Layered::Tls(stream) => {
                let $stream = Pin::new(stream);
                $call
            }
            Layered::WebSocket(stream) => {
                let $stream = Pin::new(stream);
                $call
            }
            Layered::WebSocketOverTls(stream) => {
                let $stream = Pin::new(stream);
                $call
            }
        }
    };
}

impl AsyncRead for Layered {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        each!(self, stream => stream.poll_read(context, buffer))
    }
}

impl AsyncWrite for Layered {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        each!(self, stream => stream.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        each!(self, stream => stream.poll_write_vectored(context, slices))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => stream.poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, stream => stream.poll_shutdown(context))
    }
}
