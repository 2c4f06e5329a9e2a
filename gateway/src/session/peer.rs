//! What the listener knows of a client before it has sent anything as one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio::time::Instant;

use super::gate::Refused;
use crate::access::certificate::PeerCertificate;
use crate::delivery::ConnectionId;
use crate::listener::door::{Door, Visit};
use crate::recent::Origin;

/// The other end of a connection.
pub struct Peer {
    /// The number of its connection.
    pub id: ConnectionId,
    /// Where it comes from.
    pub address: SocketAddr,
    /// Its place at the listener that it came to.
    pub visit: Visit,
    /// The certificate that it has shown, if it was asked and had one.
    pub certificate: Option<PeerCertificate>,
    /// By when it must have been let in.
    pub deadline: Instant,
    /// Set when it is let in: below, a stream may from then on buffer more for it.
    pub admitted: Arc<AtomicBool>,
    /// What the listener has found against it.
    pub refuse: Option<Refused>,
}

impl Peer {
    /// The listener that it came to.
    pub fn door(&self) -> &Arc<Door> {
        self.visit.door()
    }

    /// Its connection, for log lines.
    pub fn origin(&self) -> Origin {
        Origin {
            peer: Some(self.address),
            listener: Some(self.door().address),
            connection: Some(self.id),
        }
    }
}
