//! A connection and what is known of it, and the lending of it.
//!
//! What always holds: a lease ends in exactly one of: given back, broken, or dropped; only the first lets the connection be
//! lent again.

use std::sync::Arc;

use tokio::time::{Instant, timeout};

use super::{CHECK_TIMEOUT, Dial, Shared};

/// A connection and what is known of it.
pub(super) struct Slot<C> {
    pub(super) connection: Arc<C>,
    pub(super) made: Instant,
    /// When it was last lent or checked.
    pub(super) used: Instant,
    /// The suspicion of the pool up to which it is known to be sound.
    pub(super) sound_at: u64,
}

impl<C> Clone for Slot<C> {
    fn clone(&self) -> Self {
        Self {
            connection: self.connection.clone(),
            ..*self
        }
    }
}

/// A borrowed connection. Unless it is given back, it counts as unusable: an exchange may still be going on in it.
pub(in crate::log::iggy) struct Lease<D: Dial> {
    shared: Arc<Shared<D>>,
    slot: Slot<D::Connection>,
    /// Whether the pool knows what became of the connection.
    settled: bool,
}

impl<D: Dial> Lease<D> {
    pub(super) fn new(shared: Arc<Shared<D>>, slot: Slot<D::Connection>) -> Self {
        Self {
            shared,
            slot,
            settled: false,
        }
    }

    /// The connection, for one request.
    pub(in crate::log::iggy) fn connection(&self) -> Arc<D::Connection> {
        self.slot.connection.clone()
    }

    /// Gives the connection back: its exchange is over and it is sound.
    pub(in crate::log::iggy) fn give_back(mut self) {
        self.settled = true;
        self.shared.returned(self.slot.clone());
    }

    /// Drops the connection because it broke, which makes the others suspect.
    pub(in crate::log::iggy) fn broken(mut self) {
        self.settled = true;
        self.shared.lost(self.slot.made, true);
    }

    /// Whether another connection broke since this one was last known to be sound.
    pub(super) fn is_suspect(&self) -> bool {
        self.slot.sound_at < self.shared.suspicion()
    }

    /// The lease again, if the connection answers.
    pub(super) async fn checked(mut self) -> Option<Self> {
        let suspicion = self.shared.suspicion();
        let check = timeout(CHECK_TIMEOUT, self.shared.dial.check(&self.slot.connection));
        if !check.await.unwrap_or(false) {
            self.broken();
            return None;
        }
        self.slot.sound_at = suspicion;
        Some(self)
    }
}

impl<D: Dial> Drop for Lease<D> {
    fn drop(&mut self) {
        if !self.settled {
            self.shared.lost(self.slot.made, false);
        }
    }
}
