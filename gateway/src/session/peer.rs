//! What the listener knows of a client before it has sent anything as one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio::time::Instant;

use super::gate::Refused;
use crate::access::certificate::PeerCertificate;
use crate::config::ListenerConfig;

/// The other end of a connection.
pub struct Peer {
    /// Where it comes from.
    pub address: SocketAddr,
    /// Where it came to, and what is asked of clients there.
    pub listener: Arc<ListenerConfig>,
    /// The certificate that it has shown, if it was asked and had one.
    pub certificate: Option<PeerCertificate>,
    /// By when it must have been let in.
    pub deadline: Instant,
    /// Set when it is let in: below, a stream may from then on buffer more for it.
    pub admitted: Arc<AtomicBool>,
    /// What the listener has found against it.
    pub refuse: Option<Refused>,
}
