//! The listener: accepts sockets and gives each a task of its own.
//!
//! What always holds: connections are counted, in all and by address, before anything is read from them; a socket over a
//! limit is only heard long enough to be told so; a panic in one connection's task costs that connection only. A session
//! sees halves of a byte stream, so that another kind of stream (TLS, WebSocket) is one more way to make them.

use std::io;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::{Instant, sleep};

use crate::host::Host;
use crate::session::gate::Refused;
use crate::session::{Context, connection};

pub use addresses::Connections;

mod addresses;
pub mod websocket;

/// So many sockets over the limit of connections are told so; more are closed at once.
const MAX_TURNED_AWAY: usize = 256;
/// How many connections the kernel may complete before they are accepted. A fleet that comes back all at once waits here;
/// who finds no place is not told, and tries again a second later. Linux allows net.core.somaxconn of them, 4,096 by default.
const BACKLOG: u32 = 4_096;
/// How long accepting pauses when the system has no descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Binds `address`.
///
/// # Errors
/// The operating system's: the port is in use, or the address is not one of this machine.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    // As everywhere on Unix: a restart need not wait until the kernel has forgotten the old connections.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Accepts from `listener` for as long as it is polled.
pub async fn accept(listener: TcpListener, connections: Connections, context: Arc<Context>) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => open(stream, peer, &connections, &context),
            Err(error) => {
                if let Some(left_out) = context.lines.accept.allow(Instant::now()) {
                    tracing::warn!(%error, left_out, "cannot accept a connection; if descriptors are used up, raise the limit (ulimit -n)");
                }
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn open(stream: TcpStream, peer: SocketAddr, connections: &Connections, context: &Arc<Context>) {
    let limits = &context.config.limits;
    let host = Host::from(peer.ip());
    let (counted, all, here) = connections.count(host);
    if all > limits.max_connections.saturating_add(MAX_TURNED_AWAY) {
        context.counters.connects_refused.increment();
        return;
    }
    let refuse = if all > limits.max_connections {
        Some(Refused::TooMany(limits.max_connections, "max_connections"))
    } else if here > limits.max_connections_per_address {
        Some(Refused::TooMany(
            limits.max_connections_per_address,
            "max_connections_per_address",
        ))
    } else if !context.rates.may_connect_from(host, Instant::now()) {
        context.counters.connects_over_rate.increment();
        Some(Refused::TooOften {
            who: "clients of its address connect".to_owned(),
            rate: limits.connect_rate_per_address,
            limit: "connect_rate_per_address",
        })
    } else {
        None
    };
    // Acknowledgements are small and must not wait for more of them.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%peer, %error, "TCP_NODELAY not set");
    }
    let context = context.clone();
    connections.tasks.spawn(async move {
        let _counted = counted;
        let counters = context.counters.clone();
        counters.connections_opened.increment();
        let (read, write) = stream.into_split();
        let serving = connection::serve(context, read, write, peer, refuse);
        if AssertUnwindSafe(serving).catch_unwind().await.is_err() {
            counters.connection_panics.increment();
            tracing::error!(%peer, "the task of a connection panicked; the connection is closed. Please report this");
        }
        counters.connections_closed.increment();
    });
}
