//! The order in which one connection's QoS 1 PUBLISHes are acknowledged.
//!
//! What always holds: PUBACKs leave in the order in which the PUBLISHes arrived (4.6.0-2, N3), also when they went to
//! different lanes and were stored in another order; a PUBACK is released only for a slot that was settled with the
//! evidence of a committed append (N1); the first slot that cannot be acknowledged ends the connection, after the
//! acknowledgements before it. [`AckOrder`] is pure; [`Acks`] puts a lock around it and writes what it releases.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::lane::Committed;
use crate::mqtt::PacketId;

/// How a PUBLISH ended that was to be acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is in the log.
    Acknowledge(Committed),
    /// It is not, and will not be: the connection is closed, so that the client knows.
    Close,
}

/// What may be done now.
#[derive(Debug, PartialEq, Eq)]
pub enum Released {
    /// Send a PUBACK.
    PubAck(PacketId),
    /// Close the connection; nothing is released after this.
    Close,
}

/// The PUBLISHes of one connection that wait for their PUBACK, oldest first.
#[derive(Debug, Default)]
pub struct AckOrder {
    /// The number of the oldest slot.
    first: u64,
    slots: VecDeque<(PacketId, Option<Verdict>)>,
    closed: bool,
}

impl AckOrder {
    /// A place for the PUBLISH that has arrived now; returns its number.
    pub fn expect(&mut self, id: PacketId) -> u64 {
        self.slots.push_back((id, None));
        self.first + self.slots.len() as u64 - 1
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.slots.len()
    }

    /// Settles slot `number` and hands out everything that has come to be the oldest.
    pub fn settle(&mut self, number: u64, verdict: Verdict, mut release: impl FnMut(Released)) {
        let slot = number
            .checked_sub(self.first)
            .and_then(|at| self.slots.get_mut(usize::try_from(at).ok()?));
        if let Some((_, settled)) = slot {
            settled.get_or_insert(verdict);
        }
        while let Some(&(id, Some(verdict))) = self.slots.front() {
            self.slots.pop_front();
            self.first += 1;
            match verdict {
                _ if self.closed => {}
                Verdict::Acknowledge(Committed { .. }) => release(Released::PubAck(id)),
                Verdict::Close => {
                    self.closed = true;
                    release(Released::Close);
                }
            }
        }
    }
}

/// Where released acknowledgements go: the connection.
pub trait AckWriter: Send + Sync {
    /// Sends a PUBACK.
    fn puback(&self, id: PacketId);
    /// Closes the connection, after the PUBACKs that were sent before.
    fn close(&self);
}

/// The acknowledgements of one connection, shared by its tickets.
pub struct Acks {
    order: Mutex<AckOrder>,
    writer: Arc<dyn AckWriter>,
    room: Notify,
}

impl Acks {
    /// Nothing waits yet.
    pub fn new(writer: Arc<dyn AckWriter>) -> Arc<Self> {
        Arc::new(Self {
            order: Mutex::default(),
            writer,
            room: Notify::new(),
        })
    }

    /// See [`AckOrder::expect`].
    pub fn expect(&self, id: PacketId) -> u64 {
        self.order.lock().expect(id)
    }

    /// See [`AckOrder::settle`]. What is released is written under the lock: two lanes that settle at the same time must
    /// not overtake each other on the way to the socket.
    pub fn settle(&self, number: u64, verdict: Verdict) {
        let mut order = self.order.lock();
        order.settle(number, verdict, |released| match released {
            Released::PubAck(id) => self.writer.puback(id),
            Released::Close => self.writer.close(),
        });
        drop(order);
        self.room.notify_one();
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.order.lock().waiting()
    }

    /// Waits until fewer than `window` wait.
    pub async fn below(&self, window: usize) {
        while self.waiting() >= window {
            self.room.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STORED: Verdict = Verdict::Acknowledge(Committed::for_tests());

    fn id(id: u16) -> PacketId {
        PacketId::new(id).unwrap()
    }

    #[test]
    fn a_settled_publish_waits_for_those_before_it() {
        let mut order = AckOrder::default();
        let numbers: Vec<u64> = (1..=3).map(|n| order.expect(id(n))).collect();
        let mut released = Vec::new();
        order.settle(numbers[2], STORED, |r| released.push(r));
        order.settle(numbers[1], STORED, |r| released.push(r));
        assert!(released.is_empty());
        order.settle(numbers[0], STORED, |r| released.push(r));
        assert_eq!(released, [1, 2, 3].map(|n| Released::PubAck(id(n))));
        assert_eq!(order.waiting(), 0);
    }

    #[test]
    fn a_publish_that_failed_closes_after_the_acks_before_it_and_releases_nothing_after() {
        let mut order = AckOrder::default();
        let numbers: Vec<u64> = (1..=3).map(|n| order.expect(id(n))).collect();
        let mut released = Vec::new();
        order.settle(numbers[1], Verdict::Close, |r| released.push(r));
        order.settle(numbers[2], STORED, |r| released.push(r));
        order.settle(numbers[0], STORED, |r| released.push(r));
        assert_eq!(released, [Released::PubAck(id(1)), Released::Close]);
    }

    #[test]
    fn a_slot_keeps_its_first_verdict() {
        let mut order = AckOrder::default();
        let first = order.expect(id(1));
        let second = order.expect(id(2));
        let mut released = Vec::new();
        order.settle(second, Verdict::Close, |r| released.push(r));
        order.settle(second, STORED, |r| released.push(r));
        order.settle(first, STORED, |r| released.push(r));
        assert_eq!(released, [Released::PubAck(id(1)), Released::Close]);
    }

    proptest! {
        #[test]
        fn n3_pubacks_leave_in_publish_order_whatever_the_order_of_appends(order_of_settling in Just((1u16..200).collect::<Vec<_>>()).prop_shuffle()) {
            let mut order = AckOrder::default();
            let numbers: Vec<u64> = (1..200).map(|n| order.expect(id(n))).collect();
            let mut released = Vec::new();
            for n in order_of_settling {
                order.settle(numbers[usize::from(n) - 1], STORED, |r| released.push(r));
            }
            prop_assert_eq!(released, (1..200).map(|n| Released::PubAck(id(n))).collect::<Vec<_>>());
        }
    }
}
