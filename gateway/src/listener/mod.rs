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
use tokio::time::{Instant, sleep, timeout_at};

use crate::config::{Limits, Protocol};
use crate::host::Host;
use crate::recent::{Kind, Origin};
use crate::session::gate::Refused;
use crate::session::peer::Peer;
use crate::session::{Context, connection};

pub use addresses::Connections;

use door::Door;
use stream::Layered;
use tls::Tls;

mod addresses;
pub mod door;
mod stream;
pub mod tls;
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

/// Accepts from `listener` until its door closes.
pub async fn accept(
    listener: TcpListener,
    door: Arc<Door>,
    connections: Connections,
    context: Arc<Context>,
) {
    let closing = door.closing();
    loop {
        let accepted = tokio::select! {
            biased;
            () = closing.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => open(stream, peer, &door, &connections, &context),
            Err(error) => {
                if let Some(left_out) = context.lines.accept.allow(Instant::now()) {
                    tracing::warn!(listener = %door.address, %error, left_out, "cannot accept a connection; if descriptors are used up, raise the limit (ulimit -n)");
                }
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn open(
    stream: TcpStream,
    address: SocketAddr,
    door: &Arc<Door>,
    connections: &Connections,
    context: &Arc<Context>,
) {
    let limits = &context.config.limits;
    let host = Host::from(address.ip());
    let (counted, all, here) = connections.count(host);
    if all > limits.max_connections.saturating_add(MAX_TURNED_AWAY) {
        context.counters.connects_refused.increment();
        context.counters.connects_refused_silently.increment();
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
    if let Some(refused @ Refused::TooOften { .. }) = &refuse
        && door.tls.is_some()
    {
        // To be told so in words it would need the handshake, which is what a flood is after.
        context.counters.connects_refused.increment();
        context.counters.connects_refused_silently.increment();
        let origin = Origin {
            peer: Some(address),
            listener: Some(door.address),
            connection: None,
        };
        let lines = &context.lines.refused;
        context.recent.note(
            lines,
            Kind::Connect,
            origin.into(),
            None,
            "closed before the handshake",
            || refused,
        );
        return;
    }
    // Acknowledgements are small and must not wait for more of them.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(peer = %address, %error, "TCP_NODELAY not set");
    }
    let peer = Box::new(Peer {
        id: context.sessions.next_id(),
        address,
        visit: door.enter(),
        certificate: None,
        deadline: Instant::now() + limits.connect_timeout,
        admitted: Arc::default(),
        refuse,
    });
    let (context, listener, id) = (context.clone(), door.address, peer.id);
    connections.tasks.spawn(async move {
        let _counted = counted;
        let counters = context.counters.clone();
        counters.connections_opened.increment();
        let serving = serve(stream, peer, context);
        if AssertUnwindSafe(serving).catch_unwind().await.is_err() {
            counters.connection_panics.increment();
            tracing::error!(peer = %address, listener = %listener, connection = id.0, "the task of a connection panicked; the connection is closed. Please report this");
        }
        counters.connections_closed.increment();
    });
}

/// Serves the client at the other end of `stream`, in whatever its bytes are wrapped.
async fn serve(stream: TcpStream, peer: Box<Peer>, context: Arc<Context>) {
    let tls = peer.door().tls.clone();
    if tls.is_none() && peer.door().config.protocol == Protocol::Mqtt {
        let (read, write) = stream.into_split();
        return connection::serve(context, read, write, peer).await;
    }
    let closing = peer.door().closing();
    let origin = peer.origin();
    let opening = timeout_at(
        peer.deadline,
        unwrap(stream, peer, tls, &context.config.limits),
    );
    // On the heap while it lasts, which is not long.
    let opened = tokio::select! {
        biased;
        () = closing.cancelled() => return,
        opened = Box::pin(opening) => opened,
    };
    let why = match opened {
        Ok(Ok((stream, peer))) => {
            // Both halves share one state, behind a lock that is never waited for: the task that holds one holds the other.
            let (read, write) = tokio::io::split(stream);
            return connection::serve(context, read, write, peer).await;
        }
        Ok(Err(error)) => error,
        Err(_) => HandshakeError::TimedOut,
    };
    context.counters.handshakes_failed.increment();
    context.counters.connects_unfinished.increment();
    // A device whose certificate is not accepted is one to see to; so is one that speaks no TLS where it has to. But scanners
    // do the same all the time.
    let lines = &context.lines.handshakes;
    context.recent.note(
        lines,
        Kind::Connect,
        origin.into(),
        None,
        "closed: no handshake",
        || why,
    );
}

/// Makes the handshakes of the listener.
async fn unwrap(
    stream: TcpStream,
    mut peer: Box<Peer>,
    tls: Option<Arc<Tls>>,
    limits: &Limits,
) -> Result<(Layered, Box<Peer>), HandshakeError> {
    let config = peer.door().config.clone();
    let (path, admitted) = (config.path.clone(), peer.admitted.clone());
    let stream = match (config.protocol, tls) {
        (Protocol::Mqtt, None) => Layered::Tcp(stream),
        (Protocol::WebSocket, None) => {
            let stream = websocket::accept(stream, &path, admitted, limits).await?;
            Layered::WebSocket(Box::new(stream))
        }
        (protocol, Some(tls)) => {
            let (stream, certificate) = tls.accept(stream).await.map_err(HandshakeError::Tls)?;
            peer.certificate = certificate;
            match protocol {
                Protocol::Mqtt => Layered::Tls(Box::new(stream)),
                Protocol::WebSocket => {
                    let stream = websocket::accept(stream, &path, admitted, limits).await?;
                    Layered::WebSocketOverTls(Box::new(stream))
                }
            }
        }
    };
    Ok((stream, peer))
}

/// Why a socket does not become a stream of MQTT.
#[derive(Debug, thiserror::Error)]
enum HandshakeError {
    /// In TLS.
    #[error("TLS: {0}")]
    Tls(io::Error),
    /// In WebSocket.
    #[error("WebSocket: {0}")]
    WebSocket(#[from] websocket::Refused),
    /// It took too long.
    #[error("no handshake within connect_timeout")]
    TimedOut,
}
