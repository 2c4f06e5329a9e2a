//! The gate: from an accepted socket to a client that may come in, or a refusal.
//!
//! What always holds: until CONNECT has come whole and was accepted, a socket costs no more than a small buffer and the
//! connect timeout; every refusal has one reason, and the client is told the code that 3.2.2.3 has for it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::AsyncRead;
use tokio::time::{Instant, timeout_at};

use super::Context;
use super::incoming::{Incoming, Read};
use super::peer::Peer;
use crate::access::{Denied, Identity};
use crate::delivery::ConnectionId;
use crate::listener::door::Visit;
use crate::mqtt::ClientId;
use crate::wire::{Connect, ConnectReturnCode, Packet, Violation};

/// A client that may come in.
#[derive(Debug)]
pub struct Admitted {
    /// Its id; made here if it gave none.
    pub client: ClientId,
    /// Who it is.
    pub identity: Identity,
    /// The number of its connection.
    pub id: ConnectionId,
    /// Its place at its listener.
    pub visit: Visit,
    /// How long it may be silent; `None` for ever. One and a half times what it announced (3.1.2-24).
    pub max_silence: Option<Duration>,
}

/// Why a socket is closed without being served.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// It closed, or timed out, before a whole CONNECT had come.
    #[error("no CONNECT came{}", if *.timed_out { " within connect_timeout" } else { "" })]
    Unfinished {
        /// Whether it was for the time.
        timed_out: bool,
    },
    /// What came before its CONNECT is against the rules of the stream.
    #[error("{0}")]
    Unreadable(std::io::Error),
    /// Its CONNECT breaks the protocol.
    #[error("{0}")]
    Violation(#[from] Violation),
    /// It asks for a session that outlives the connection.
    #[error(
        "client {client}: CleanSession 0 is not served yet: no persistent sessions; connect with a clean session"
    )]
    PersistentSession {
        /// Who asks.
        client: String,
    },
    /// It leaves a Will.
    #[error("client {client}: Wills are not served yet; connect without one")]
    Will {
        /// Who leaves it.
        client: String,
    },
    /// Iggy has been away for longer than `iggy_grace`.
    #[error("Iggy has not been reachable for {0:?}")]
    IggyAway(Duration),
    /// It is closed for the same reason again and again.
    #[error(
        "client {client}: closed for {reason} flap_limit times within a minute, and kept out for {remaining:?} more; see why its messages are refused"
    )]
    Flapping {
        /// Who.
        client: String,
        /// Why it is closed.
        reason: &'static str,
        /// How long it is kept out.
        remaining: Duration,
    },
    /// It is not known, or not believed.
    #[error("client {client}: {denied}")]
    Denied {
        /// Who says to be there.
        client: String,
        /// Why not.
        denied: Denied,
    },
    /// It, or others of its address, connect too often.
    #[error(
        "{who} more often than {limit} = {rate} a second allows; it must wait longer before it tries again, or the limit be raised"
    )]
    TooOften {
        /// Who does.
        who: String,
        /// The limit.
        rate: u32,
        /// Its key.
        limit: &'static str,
    },
    /// There are as many connections as are allowed.
    #[error(
        "{0} connections are open, which is the limit {1}; raise it, or find out who opens so many"
    )]
    TooMany(usize, &'static str),
}

impl Refused {
    /// The code that the client is told before the close; `None` closes without a word.
    pub fn answer(&self) -> Option<ConnectReturnCode> {
        match self {
            Self::Unfinished { .. } | Self::Unreadable(_) => None,
            Self::Violation(violation) => violation.answer(),
            Self::PersistentSession { .. } | Self::Will { .. } => {
                Some(ConnectReturnCode::NotAuthorized)
            }
            Self::Denied { denied, .. } => Some(match denied {
                Denied::NoCredentials | Denied::NotItsClientId => ConnectReturnCode::NotAuthorized,
                Denied::Wrong => ConnectReturnCode::BadUserNameOrPassword,
                Denied::Unavailable(_) | Denied::TooLate => ConnectReturnCode::ServerUnavailable,
            }),
            Self::IggyAway(_)
            | Self::Flapping { .. }
            | Self::TooOften { .. }
            | Self::TooMany(..) => Some(ConnectReturnCode::ServerUnavailable),
        }
    }
}

/// Waits for the CONNECT and decides. A client against whom the listener has found something is still heard, so that it can
/// be told.
pub async fn admit<R: AsyncRead + Unpin>(
    context: &Context,
    incoming: &mut Incoming<R>,
    mut peer: Box<Peer>,
) -> Result<Admitted, Refused> {
    let connect = timeout_at(peer.deadline, first_packet(incoming))
        .await
        .map_err(|_| Refused::Unfinished { timed_out: true })??;
    if let Some(refused) = peer.refuse.take() {
        return Err(refused);
    }
    let name = || {
        let client = connect.client_id.as_ref();
        client.map_or_else(|| "without an id".to_owned(), ToString::to_string)
    };
    if connect.will {
        return Err(Refused::Will { client: name() });
    }
    if !connect.clean_session {
        return Err(Refused::PersistentSession { client: name() });
    }
    if let Some(away) = context.health.away_for()
        && away >= context.config.iggy.grace
    {
        return Err(Refused::IggyAway(away));
    }
    if let Some(client) = &connect.client_id
        && let Some(flapping) = context.flaps.check(client, Instant::now())
    {
        context.counters.connects_flapping.increment();
        return Err(Refused::Flapping {
            client: name(),
            reason: flapping.reason,
            remaining: flapping.remaining,
        });
    }
    // Last, because it is what costs most. Who does not know who somebody is learns above only what everyone may know.
    let authenticated =
        context
            .access
            .authenticate(&peer.door().config, peer.certificate.as_ref(), &connect);
    let identity = match timeout_at(peer.deadline, authenticated).await {
        Ok(Ok(identity)) => identity,
        Ok(Err(denied)) => {
            return Err(Refused::Denied {
                client: name(),
                denied,
            });
        }
        Err(_) => {
            return Err(Refused::Denied {
                client: name(),
                denied: Denied::TooLate,
            });
        }
    };
    // The last check: who only claims an id must not use up what its owner may.
    if let Some(client) = &connect.client_id
        && !context.rates.may_connect(client, Instant::now())
    {
        context.counters.connects_over_rate.increment();
        return Err(Refused::TooOften {
            who: format!("client {client}: connects"),
            rate: context.config.limits.connect_rate,
            limit: "connect_rate",
        });
    }
    peer.admitted.store(true, Ordering::Relaxed);
    let max_silence = max_silence(connect.keep_alive, context.config.limits.max_keep_alive);
    let Peer { id, mut visit, .. } = *peer;
    visit.admitted();
    Ok(Admitted {
        id,
        visit,
        client: connect.client_id.unwrap_or_else(generated_id),
        identity,
        max_silence,
    })
}

async fn first_packet<R: AsyncRead + Unpin>(
    incoming: &mut Incoming<R>,
) -> Result<Connect, Refused> {
    loop {
        match incoming.packet()? {
            Some(Packet::Connect(connect)) => return Ok(*connect),
            // The decoder lets nothing else be first.
            Some(_) => {
                return Err(Violation::NotConnect {
                    packet: "another packet",
                }
                .into());
            }
            None => {}
        }
        match incoming.more().await {
            Read::Bytes => {}
            Read::End => return Err(Refused::Unfinished { timed_out: false }),
            Read::Unreadable(error) => return Err(Refused::Unreadable(error)),
        }
    }
}

/// One and a half times the keep-alive, which is the cap if the client announced none or more.
fn max_silence(keep_alive: u16, cap: Duration) -> Option<Duration> {
    let announced = Duration::from_secs(keep_alive.into());
    let effective = if announced.is_zero() {
        cap
    } else {
        announced.min(cap)
    };
    effective.checked_mul(3).map(|thrice| thrice / 2)
}

/// An id for a client that gave none: every such client is one of its own (3.1.3-6).
fn generated_id() -> ClientId {
    loop {
        if let Some(id) = ClientId::new(&format!("anonymous-{:032x}", rand::random::<u128>())) {
            return id;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_allowed_for_one_and_a_half_keep_alives_and_at_most_of_the_cap() {
        let cap = Duration::from_secs(3_600);
        assert_eq!(max_silence(2, cap), Some(Duration::from_secs(3)));
        assert_eq!(max_silence(0, cap), Some(Duration::from_secs(5_400)));
        assert_eq!(max_silence(u16::MAX, cap), Some(Duration::from_secs(5_400)));
    }

    #[test]
    fn b42_clients_without_an_id_get_ids_of_their_own() {
        assert_ne!(generated_id(), generated_id());
    }
}
