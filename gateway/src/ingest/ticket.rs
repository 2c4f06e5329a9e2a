//! What a PUBLISH waits on: a ticket that is settled exactly once.
//!
//! What always holds: every PUBLISH that was received has one ticket, and every ticket ends in exactly one counted
//! outcome (N7); one that is dropped unsettled, in whatever way its holder ended, counts as failed and never as stored.

use std::sync::Arc;

use super::acks::{Acks, Verdict};
use super::lane::Committed;
use crate::mqtt::PacketId;
use crate::observe::Counters;

/// See the module.
#[must_use = "a ticket that is dropped means that its publish failed"]
pub struct Ticket {
    counters: Arc<Counters>,
    /// Who waits for an acknowledgement, and the slot's number; `None` for QoS 0.
    waiting: Option<(Arc<Acks>, u64)>,
    settled: bool,
}

impl Ticket {
    /// The ticket of a PUBLISH that has arrived now. With a packet id (QoS 1) it takes the next slot of `acks`.
    pub fn new(counters: &Arc<Counters>, acks: &Arc<Acks>, packet_id: Option<PacketId>) -> Self {
        counters.publishes_received.increment();
        let waiting = packet_id.map(|id| (acks.clone(), acks.expect(id)));
        Self {
            counters: counters.clone(),
            waiting,
            settled: false,
        }
    }

    fn settle(mut self, verdict: Verdict) {
        self.settled = true;
        if let Some((acks, number)) = &self.waiting {
            acks.settle(*number, verdict);
        }
    }

    /// It is stored.
    pub fn stored(self, evidence: Committed) {
        self.counters.publishes_stored.increment();
        self.settle(Verdict::Acknowledge(evidence));
    }

    /// It can never be stored, or is not allowed: a QoS 0 publish is dropped, a QoS 1 publish closes its connection.
    pub fn refused(self) {
        self.counters.publishes_refused.increment();
        self.settle(Verdict::Close);
    }

    /// It was QoS 0 and there was no room for it.
    pub fn shed(self) {
        self.counters.publishes_shed.increment();
        self.settle(Verdict::Close);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.settled {
            self.counters.publishes_failed.increment();
            if let Some((acks, number)) = &self.waiting {
                acks.settle(*number, Verdict::Close);
            }
        }
    }
}
