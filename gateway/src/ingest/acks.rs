//! The order in which one connection's QoS 1 PUBLISHes are acknowledged, and the memory of those that were.
//!
//! What always holds: PUBACKs leave in the order in which the PUBLISHes arrived (4.6.0-2, N3), also when they went to
//! different lanes and were stored in another order; a PUBACK is released only for a slot that was settled with
//! evidence (N1); the first slot that cannot be acknowledged ends the connection, after the acknowledgements before it.
//! A packet id that is still waiting means the same message or a protocol error, never a second message; a message that is
//! sent again while it waits takes a place in the window like any other (N4). [`AckOrder`] is pure;
//! [`Publisher`](super::publisher::Publisher) puts a lock around it and writes what it releases.

use std::collections::{HashMap, VecDeque};

use super::history::Stored;
use super::lane::Committed;
use super::refusal::Reason;
use super::ticket::Ticket;
use crate::mqtt::PacketId;

/// Why a PUBLISH may be acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// The log has confirmed its append.
    Committed(Committed),
    /// Its client may not publish it, and the operator wants such messages acknowledged and forgotten.
    Waived(Reason),
}

/// Why a PUBLISH closes its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Why {
    /// It was refused, and nothing else tells its client.
    Refused(Reason),
    /// It was given up.
    Failed,
}

impl Why {
    /// For log lines, and for telling apart why a client is closed again and again.
    pub fn name(self) -> &'static str {
        match self {
            Self::Refused(reason) => reason.name(),
            Self::Failed => "failed",
        }
    }
}

/// How a PUBLISH ended that was to be acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// A PUBACK may be sent.
    Acknowledge(Evidence),
    /// None: the connection is closed, so that the client knows.
    Close(Why),
}

/// What may be done now.
#[derive(Debug, PartialEq, Eq)]
pub enum Released {
    /// Send a PUBACK.
    PubAck(PacketId),
    /// Close the connection; no PUBACK is released after this.
    Close(Why),
    /// So many more copies of a message have come while it waited; they end as it did.
    Copies(usize, Verdict),
}

/// A digest of what makes two PUBLISHes with the same packet id the same message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Content(pub(super) u64);

/// What a PUBLISH with a packet id is.
#[derive(Debug, PartialEq, Eq)]
pub enum Expected {
    /// A new message: the number of its slot.
    New(u64),
    /// One that waits for its PUBACK already.
    Again,
    /// Another message than the one that has the packet id.
    Conflict,
    /// A message behind one that closes the connection: stored, it would come before that one, which is sent again.
    TooLate,
}

/// What is known of a message.
#[derive(Debug)]
pub enum Joined {
    /// It is stored.
    Stored(Committed, Ticket),
    /// It is on its way; the ticket is settled with it, and the one that waited for it before has failed when it is dropped.
    Waiting(Option<Ticket>),
    /// Nothing.
    Unknown(Ticket),
}

#[derive(Debug)]
struct Slot {
    id: PacketId,
    content: Content,
    verdict: Option<Verdict>,
    /// How often it has come again while it waited.
    copies: usize,
    /// The same message, sent again on a later connection.
    follower: Option<Ticket>,
}

/// The PUBLISHes of one connection that wait for their PUBACK, oldest first, and the last of those that got it.
#[derive(Debug)]
pub struct AckOrder {
    /// The number of the oldest slot.
    first: u64,
    slots: VecDeque<Slot>,
    numbers: HashMap<PacketId, u64>,
    /// The copies of all slots.
    copies: usize,
    stored: VecDeque<Stored>,
    /// How many stored ones are remembered.
    memory: usize,
    /// Whether a PUBLISH has closed the connection, or will when it is the oldest.
    doomed: bool,
    closed: bool,
}

impl AckOrder {
    /// Nothing waits; `memory` stored ones are remembered.
    pub fn new(memory: usize) -> Self {
        Self {
            first: 0,
            slots: VecDeque::new(),
            numbers: HashMap::new(),
            copies: 0,
            stored: VecDeque::new(),
            memory,
            doomed: false,
            closed: false,
        }
    }

    /// A place for the PUBLISH that has arrived now, if it is a new one.
    pub fn expect(&mut self, id: PacketId, content: Content) -> Expected {
        if self.doomed {
            return Expected::TooLate;
        }
        if let Some(slot) = self.slot(id) {
            if slot.content != content {
                return Expected::Conflict;
            }
            slot.copies += 1;
            self.copies += 1;
            return Expected::Again;
        }
        let number = self.first + self.slots.len() as u64;
        self.slots.push_back(Slot {
            id,
            content,
            verdict: None,
            copies: 0,
            follower: None,
        });
        self.numbers.insert(id, number);
        Expected::New(number)
    }

    fn at(&self, number: u64) -> Option<usize> {
        usize::try_from(number.checked_sub(self.first)?).ok()
    }

    fn slot(&mut self, id: PacketId) -> Option<&mut Slot> {
        let at = self.at(*self.numbers.get(&id)?)?;
        self.slots.get_mut(at)
    }

    /// Lets `ticket`, of a later connection, share the fate of the message with that id and content, if there is one among
    /// the slots before `queued`: what is not queued yet ends with its connection.
    pub fn join(&mut self, id: PacketId, content: Content, ticket: Ticket, queued: u64) -> Joined {
        let is_queued = self.numbers.get(&id).is_some_and(|number| *number < queued);
        match self.slot(id) {
            Some(slot) if slot.content == content => match slot.verdict {
                Some(Verdict::Acknowledge(Evidence::Committed(evidence))) => {
                    Joined::Stored(evidence, ticket)
                }
                None if is_queued => Joined::Waiting(slot.follower.replace(ticket)),
                _ => Joined::Unknown(ticket),
            },
            _ => Joined::Unknown(ticket),
        }
    }

    /// Takes who shares the fate of slot `number`.
    pub fn take_follower(&mut self, number: u64) -> Option<Ticket> {
        let at = self.at(number)?;
        self.slots.get_mut(at)?.follower.take()
    }

    /// How many wait, copies included.
    pub fn waiting(&self) -> usize {
        self.slots.len() + self.copies
    }

    /// Takes what was stored, oldest first.
    pub fn take_stored(&mut self) -> VecDeque<Stored> {
        std::mem::take(&mut self.stored)
    }

    /// Settles slot `number` and hands out everything that has come to be the oldest. Returns who shares the fate of the
    /// slot, to be settled likewise without a lock on this.
    #[must_use = "whoever shares the fate waits to be told"]
    pub fn settle(
        &mut self,
        number: u64,
        verdict: Verdict,
        mut release: impl FnMut(Released),
    ) -> Option<Ticket> {
        let at = self.at(number);
        let mut follower = None;
        if let Some(slot) = at.and_then(|at| self.slots.get_mut(at)) {
            let verdict = *slot.verdict.get_or_insert(verdict);
            self.doomed |= matches!(verdict, Verdict::Close(_));
            follower = slot.follower.take();
        }
        while let Some((verdict, slot)) = self.next_settled() {
            if slot.copies > 0 {
                release(Released::Copies(slot.copies, verdict));
            }
            match verdict {
                Verdict::Acknowledge(evidence) => {
                    if let Evidence::Committed(evidence) = evidence {
                        self.remember(slot.id, slot.content, evidence);
                    }
                    if !self.closed {
                        release(Released::PubAck(slot.id));
                    }
                }
                Verdict::Close(why) => {
                    if !std::mem::replace(&mut self.closed, true) {
                        release(Released::Close(why));
                    }
                }
            }
        }
        follower
    }

    /// Takes the oldest slot if it is settled.
    fn next_settled(&mut self) -> Option<(Verdict, Slot)> {
        let verdict = self.slots.front()?.verdict?;
        let slot = self.slots.pop_front()?;
        self.numbers.remove(&slot.id);
        self.copies -= slot.copies;
        self.first += 1;
        Some((verdict, slot))
    }

    fn remember(&mut self, id: PacketId, content: Content, evidence: Committed) {
        if self.memory == 0 {
            return;
        }
        if self.stored.len() == self.memory {
            self.stored.pop_front();
        }
        self.stored.push_back((id, content, evidence));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STORED: Verdict = Verdict::Acknowledge(Evidence::Committed(Committed::for_tests()));
    const FAILED: Verdict = Verdict::Close(Why::Failed);

    fn id(id: u16) -> PacketId {
        PacketId::new(id).unwrap()
    }

    fn expect(order: &mut AckOrder, n: u16) -> u64 {
        match order.expect(id(n), Content(n.into())) {
            Expected::New(number) => number,
            other => panic!("{other:?}"),
        }
    }

    fn settle(order: &mut AckOrder, number: u64, verdict: Verdict) -> Vec<Released> {
        let mut released = Vec::new();
        let follower = order.settle(number, verdict, |r| released.push(r));
        assert!(follower.is_none());
        released
    }

    #[test]
    fn a_settled_publish_waits_for_those_before_it() {
        let mut order = AckOrder::new(0);
        let numbers: Vec<u64> = (1..=3).map(|n| expect(&mut order, n)).collect();
        assert!(settle(&mut order, numbers[2], STORED).is_empty());
        assert!(settle(&mut order, numbers[1], STORED).is_empty());
        let released = settle(&mut order, numbers[0], STORED);
        assert_eq!(released, [1, 2, 3].map(|n| Released::PubAck(id(n))));
        assert_eq!(order.waiting(), 0);
    }

    #[test]
    fn a_publish_that_failed_closes_after_the_acks_before_it_and_releases_nothing_after() {
        let mut order = AckOrder::new(0);
        let numbers: Vec<u64> = (1..=3).map(|n| expect(&mut order, n)).collect();
        assert!(settle(&mut order, numbers[1], FAILED).is_empty());
        assert!(settle(&mut order, numbers[2], STORED).is_empty());
        let released = settle(&mut order, numbers[0], STORED);
        let close = Released::Close(Why::Failed);
        assert_eq!(released, [Released::PubAck(id(1)), close]);
    }

    #[test]
    fn n2_nothing_is_taken_behind_a_publish_that_closes_the_connection() {
        let mut order = AckOrder::new(0);
        let (first, second) = (expect(&mut order, 1), expect(&mut order, 2));
        settle(&mut order, second, FAILED);
        assert_eq!(order.expect(id(3), Content(3)), Expected::TooLate);
        settle(&mut order, first, STORED);
        assert_eq!(order.expect(id(4), Content(4)), Expected::TooLate);
    }

    #[test]
    fn a_slot_keeps_its_first_verdict() {
        let mut order = AckOrder::new(0);
        let (first, second) = (expect(&mut order, 1), expect(&mut order, 2));
        settle(&mut order, second, FAILED);
        settle(&mut order, second, STORED);
        let released = settle(&mut order, first, STORED);
        let close = Released::Close(Why::Failed);
        assert_eq!(released, [Released::PubAck(id(1)), close]);
    }

    #[test]
    fn a_packet_id_that_waits_is_the_same_message_or_an_error_and_free_again_after_its_puback() {
        let mut order = AckOrder::new(0);
        let (first, second) = (expect(&mut order, 1), expect(&mut order, 2));
        settle(&mut order, second, STORED);
        assert_eq!(order.expect(id(2), Content(2)), Expected::Again);
        assert_eq!(order.expect(id(2), Content(3)), Expected::Conflict);
        assert_eq!(order.waiting(), 3, "N4: a copy has its place in the window");
        let released = settle(&mut order, first, STORED);
        let copies = Released::Copies(1, STORED);
        assert_eq!(
            released,
            [Released::PubAck(id(1)), copies, Released::PubAck(id(2))]
        );
        assert_eq!(order.waiting(), 0);
        assert_eq!(order.expect(id(2), Content(3)), Expected::New(2));
    }

    #[test]
    fn the_last_stored_are_remembered_by_packet_id_and_content() {
        let mut order = AckOrder::new(2);
        for n in 1..=3 {
            let number = expect(&mut order, n);
            settle(&mut order, number, STORED);
        }
        let waived = expect(&mut order, 4);
        settle(
            &mut order,
            waived,
            Verdict::Acknowledge(Evidence::Waived(Reason::NoIngestRole)),
        );
        let stored = order.take_stored();
        let known: Vec<_> = stored.into_iter().map(|(id, what, _)| (id, what)).collect();
        assert_eq!(known, [2, 3].map(|n| (id(n), Content(n.into()))));
    }

    #[test]
    fn a_later_connection_joins_what_is_queued_and_the_last_one_that_did_waits() {
        let mut order = AckOrder::new(2);
        let (first, second) = (expect(&mut order, 1), expect(&mut order, 2));
        let mut join =
            |n: u16, content: u64| order.join(id(n), Content(content), Ticket::for_tests(), second);
        assert!(matches!(join(1, 1), Joined::Waiting(None)));
        assert!(matches!(join(1, 1), Joined::Waiting(Some(_))));
        assert!(matches!(join(1, 2), Joined::Unknown(_)), "another message");
        assert!(matches!(join(2, 2), Joined::Unknown(_)), "not queued yet");
        assert!(order.settle(first, STORED, |_| ()).is_some());
    }

    proptest! {
        #[test]
        fn n3_pubacks_leave_in_publish_order_whatever_the_order_of_appends(order_of_settling in Just((1u16..200).collect::<Vec<_>>()).prop_shuffle()) {
            let mut order = AckOrder::new(8);
            let numbers: Vec<u64> = (1..200).map(|n| expect(&mut order, n)).collect();
            let mut released = Vec::new();
            for n in order_of_settling {
                released.extend(settle(&mut order, numbers[usize::from(n) - 1], STORED));
            }
            prop_assert_eq!(released, (1..200).map(|n| Released::PubAck(id(n))).collect::<Vec<_>>());
        }
    }
}
