//! What a PUBLISH waits on: a ticket that is settled exactly once.
//!
//! What always holds: every PUBLISH that was received has one ticket, and every ticket ends in exactly one counted
//! outcome (N7); one that is dropped unsettled, in whatever way its holder ended, counts as failed and never as stored.

use std::fmt;
use std::sync::Arc;

use super::acks::{Evidence, Verdict, Why};
use super::lane::Committed;
use super::publisher::Publisher;
use super::refusal::Reason;
use crate::config::OnDenied;

/// See the module.
#[must_use = "a ticket that is dropped means that its publish failed"]
pub struct Ticket {
    publisher: Arc<Publisher>,
    /// The slot of its acknowledgement; `None` for QoS 0, and for one sent again while its first copy has a slot.
    slot: Option<u64>,
    /// Its place among all that its connection has published.
    place: u64,
    /// Why it goes to the dead-letter topic, if it does.
    dead_letter: Option<Reason>,
    settled: bool,
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket")
            .field("client", &self.publisher.client)
            .field("slot", &self.slot)
            .finish_non_exhaustive()
    }
}

impl Ticket {
    /// The ticket of a PUBLISH that has arrived now.
    pub(super) fn new(publisher: &Arc<Publisher>, slot: Option<u64>) -> Self {
        Self {
            publisher: publisher.clone(),
            slot,
            place: publisher.next_place(),
            dead_letter: None,
            settled: false,
        }
    }

    #[cfg(test)]
    pub(super) fn for_tests() -> Self {
        let mut ticket = Self::new(&Publisher::for_tests(), None);
        // Nothing was received.
        ticket.settled = true;
        ticket
    }

    /// Whose it is.
    pub fn publisher(&self) -> &Arc<Publisher> {
        &self.publisher
    }

    /// Whether it is to be acknowledged.
    pub fn has_slot(&self) -> bool {
        self.slot.is_some()
    }

    pub(super) fn slot(&self) -> Option<u64> {
        self.slot
    }

    /// It goes to its lane now; says whether it may (see [`Publisher::may_queue`]).
    pub(super) fn may_queue(&self) -> bool {
        self.slot
            .is_none_or(|number| self.publisher.may_queue(number))
    }

    /// Whether it may still be stored. Not when a publish before it has closed the connection: this one would come before
    /// that one, which is sent again (N2). If its client waits for the same message on a later connection, that goes on in
    /// its place.
    pub(super) fn is_in_time(&mut self) -> bool {
        while self.publisher.is_closed_before(self.place) {
            let follower = self
                .slot
                .and_then(|number| self.publisher.take_follower(number));
            match follower {
                Some(follower) => *self = follower,
                None => return false,
            }
        }
        true
    }

    fn settle(&mut self, verdict: Verdict) {
        self.settled = true;
        if matches!(verdict, Verdict::Close(_)) && self.slot.is_some() {
            self.publisher.close_behind(self.place);
        }
        if let Some(number) = self.slot {
            self.publisher.settle(number, verdict);
        }
    }

    fn count_refused(&self, reason: Reason) {
        let counters = &self.publisher.counters;
        counters.publishes_refused.increment();
        reason.counter(counters).increment();
    }

    /// It is stored: where it should be, or in the dead-letter topic.
    pub fn stored(mut self, evidence: Committed) {
        let counters = &self.publisher.counters;
        match self.dead_letter {
            None => counters.publishes_stored.increment(),
            Some(reason) => {
                counters.dead_letters.increment();
                self.count_refused(reason);
            }
        }
        self.settle(Verdict::Acknowledge(Evidence::Committed(evidence)));
    }

    /// It is the same message as one that is stored.
    pub(super) fn stored_already(self, evidence: Committed) {
        self.publisher.counters.publishes_deduplicated.increment();
        self.stored(evidence);
    }

    /// It is the same message as one that has ended with `verdict`.
    pub(super) fn share_fate(mut self, verdict: Verdict) {
        match verdict {
            Verdict::Acknowledge(Evidence::Committed(evidence)) => self.stored_already(evidence),
            Verdict::Acknowledge(Evidence::Waived(reason)) => {
                self.count_refused(reason);
                self.settle(verdict);
            }
            // Failed, for this copy of it.
            Verdict::Close(_) => {
                self.publisher.counters.publishes_failed.increment();
                self.settle(verdict);
            }
        }
    }

    /// It cannot be stored where it should, and goes to the dead-letter topic.
    pub(super) fn becomes_dead_letter(&mut self, reason: Reason) {
        self.dead_letter = Some(reason);
    }

    /// Why it goes to the dead-letter topic, if it does.
    pub(super) fn dead_letter(&self) -> Option<Reason> {
        self.dead_letter
    }

    /// It can never be stored: a QoS 0 publish is dropped, a QoS 1 publish closes its connection.
    pub fn refused(mut self, reason: Reason) {
        self.count_refused(reason);
        self.settle(Verdict::Close(Why::Refused(reason)));
    }

    /// Its client may not publish it.
    pub fn denied(mut self, reason: Reason, then: OnDenied) {
        self.count_refused(reason);
        self.settle(match then {
            OnDenied::Close => Verdict::Close(Why::Refused(reason)),
            OnDenied::Acknowledge => Verdict::Acknowledge(Evidence::Waived(reason)),
        });
    }

    /// It was QoS 0 and there was no room for it.
    pub fn shed(mut self) {
        self.publisher.counters.publishes_shed.increment();
        self.settle(Verdict::Close(Why::Failed));
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.settled {
            self.publisher.counters.publishes_failed.increment();
            self.settle(Verdict::Close(Why::Failed));
        }
    }
}
