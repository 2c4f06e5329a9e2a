//! The QoS 1 copies that are out: sent to one client and not acknowledged yet.
//!
//! What always holds: each is out under a packet id of its own (1 to 65,535), not given again while it is out; they are
//! kept in the order in which they were sent, which is the order of retransmission (4.6.0-1); how long the oldest has
//! been the oldest is known, so that a client cannot hold back an offset for ever by acknowledging only others. Pure:
//! time is passed in. Finding an id takes the logarithm of the window, not a hash.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::ledger::Entry;
use super::outbox::Message;
use crate::mqtt::PacketId;

/// How many packet ids there are.
const IDS: u64 = u16::MAX as u64;

/// A copy that is out.
#[derive(Debug)]
pub struct Out {
    /// Copies are numbered as they are sent; the packet id follows from the number.
    number: u64,
    /// What keeps the record open.
    pub entry: Arc<Entry>,
    /// What to send again, if that is wanted.
    pub message: Option<Arc<Message>>,
    /// When it was sent last.
    sent: Instant,
    /// How often it was sent again.
    again: u32,
}

impl Out {
    /// When it was sent last.
    pub fn sent(&self) -> Instant {
        self.sent
    }

    fn id(&self) -> PacketId {
        id_of(self.number)
    }
}

fn id_of(number: u64) -> PacketId {
    // Between 0 and 65,534, plus 1.
    PacketId::new((number % IDS) as u16 + 1).unwrap_or(PacketId::LAST)
}

/// See the module.
#[derive(Debug)]
pub struct Unacknowledged {
    out: VecDeque<Out>,
    next: u64,
    /// Since when the oldest has been the oldest.
    oldest_since: Instant,
}

impl Unacknowledged {
    /// Nothing is out.
    pub fn new(now: Instant) -> Self {
        Self {
            out: VecDeque::new(),
            next: 0,
            oldest_since: now,
        }
    }

    /// How many are out.
    pub fn len(&self) -> usize {
        self.out.len()
    }

    /// Whether none is out.
    pub fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    /// A copy is sent now. `None`, and not sent, if all packet ids are out.
    pub fn send(
        &mut self,
        entry: Arc<Entry>,
        message: Option<Arc<Message>>,
        now: Instant,
    ) -> Option<PacketId> {
        let number = self.free_number()?;
        if self.out.is_empty() {
            self.oldest_since = now;
        }
        self.next = number + 1;
        self.out.push_back(Out {
            number,
            entry,
            message,
            sent: now,
            again: 0,
        });
        Some(id_of(number))
    }

    /// The number whose id is free, from `next` on.
    fn free_number(&self) -> Option<u64> {
        let Some(oldest) = self.out.front() else {
            return Some(self.next);
        };
        // Before the ids have come round to the oldest one, the next is free for certain.
        if self.next - oldest.number < IDS {
            return Some(self.next);
        }
        (self.next..self.next + IDS).find(|number| self.find(id_of(*number)).is_none())
    }

    /// Where the copy with this id is.
    fn find(&self, id: PacketId) -> Option<usize> {
        let oldest = self.out.front()?.number;
        // The newest number with this id, then those a round earlier each.
        let last = self.next.checked_sub(1)?;
        let wanted = u64::from(id.get() - 1);
        let mut number = last.checked_sub((last % IDS + IDS - wanted) % IDS)?;
        loop {
            if number < oldest {
                return None;
            }
            if let Ok(at) = self.out.binary_search_by_key(&number, |out| out.number) {
                return Some(at);
            }
            number = number.checked_sub(IDS)?;
        }
    }

    /// The client acknowledges `id`; `None` if it is not out (L3).
    pub fn acknowledge(&mut self, id: PacketId, now: Instant) -> Option<Out> {
        let at = self.find(id)?;
        if at == 0 {
            self.oldest_since = now;
        }
        self.out.remove(at)
    }

    /// Since when the client has owed the acknowledgement of the oldest copy; `None` if it owes none. For one that
    /// acknowledges in order, however slowly, that is since its last acknowledgement.
    pub fn owes_since(&self) -> Option<Instant> {
        (!self.out.is_empty()).then_some(self.oldest_since)
    }

    /// When the copy that was sent longest ago was sent.
    pub fn oldest_sent(&self) -> Option<Instant> {
        let first = self.out.front()?;
        // They are in the order in which they were sent first.
        match first.again {
            0 => Some(first.sent),
            _ => self.out.iter().map(|out| out.sent).min(),
        }
    }

    /// The copies that are to be sent again now, because `interval` has passed since each was sent: calls `again` for
    /// them in the order in which they were sent first. One that was sent again `most` times already is left; says
    /// whether there is such a one.
    pub fn retransmit(
        &mut self,
        interval: Duration,
        most: u32,
        now: Instant,
        mut again: impl FnMut(PacketId, &Message),
    ) -> bool {
        let mut exhausted = false;
        for out in &mut self.out {
            if now.duration_since(out.sent) < interval {
                continue;
            }
            if out.again >= most {
                exhausted = true;
                continue;
            }
            if let Some(message) = &out.message {
                out.again += 1;
                out.sent = now;
                again(out.id(), message);
            }
        }
        exhausted
    }

    /// Whether [`Unacknowledged::retransmit`] has anything to do or to say.
    pub fn is_due(&self, interval: Duration, now: Instant) -> bool {
        self.oldest_sent()
            .is_some_and(|sent| now.duration_since(sent) >= interval)
    }

    /// All copies that are out, in the order in which they were sent.
    pub fn iter(&self) -> impl Iterator<Item = &Out> {
        self.out.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::super::ledger::SharedLedger;
    use super::*;
    use proptest::prelude::*;

    fn entry() -> Arc<Entry> {
        Arc::new(SharedLedger::starting_at(0).enter(0))
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_ages_though_others_are_acknowledged() {
        let begin = Instant::now();
        let mut all = Unacknowledged::new(begin);
        let ids: Vec<_> = (0..3)
            .map(|_| all.send(entry(), None, begin).unwrap())
            .collect();
        let later = begin + Duration::from_secs(5);
        assert!(all.acknowledge(ids[1], later).is_some());
        assert_eq!(all.owes_since(), Some(begin));
        assert!(all.acknowledge(ids[0], later).is_some());
        assert_eq!(all.owes_since(), Some(later));
        assert!(all.acknowledge(ids[2], later).is_some());
        assert_eq!(all.owes_since(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_one_that_was_sent_longest_ago_is_found_though_the_first_was_sent_again() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut all = Unacknowledged::new(begin);
        assert_eq!(all.oldest_sent(), None);
        let message = Arc::new(Message {
            topic: crate::mqtt::TopicName::new("t").unwrap(),
            payload: bytes::Bytes::new(),
        });
        let mut send = |seconds| {
            let sent = all.send(entry(), Some(message.clone()), at(seconds));
            sent.unwrap()
        };
        let first = send(0);
        send(3);
        assert_eq!(all.oldest_sent(), Some(at(0)));
        all.retransmit(Duration::from_secs(4), 5, at(5), |_, _| {});
        assert_eq!(all.oldest_sent(), Some(at(3)), "the first was sent again");
        assert!(all.acknowledge(first, at(6)).is_some());
        assert_eq!(all.oldest_sent(), Some(at(3)));
    }

    proptest! {
        /// L3 and the packet ids, against a list: an id is never given twice while it is out, and exactly those that are
        /// out can be acknowledged. Starts just before the ids come round, and leaves some out for whole rounds.
        #[test]
        fn l3_packet_ids_are_unique_while_out(
            start in 65_500u64..65_536,
            steps in prop::collection::vec((0u8..5, 1u16..), 1..300),
        ) {
            let now = Instant::now();
            let entry = entry();
            let mut all = Unacknowledged { next: start, ..Unacknowledged::new(now) };
            let mut model: Vec<PacketId> = Vec::new();
            for (step, number) in steps {
                match step {
                    0..=1 => {
                        let id = all.send(entry.clone(), None, now).unwrap();
                        prop_assert!(!model.contains(&id));
                        model.push(id);
                    }
                    2 if !model.is_empty() => {
                        let id = model.remove(usize::from(number) % model.len());
                        prop_assert!(all.acknowledge(id, now).is_some());
                        prop_assert!(all.acknowledge(id, now).is_none());
                    }
                    // A round of ids goes by.
                    3 => all.next += 65_530,
                    _ => {
                        let id = PacketId::new(number).unwrap();
                        prop_assert_eq!(all.find(id).is_some(), model.contains(&id));
                    }
                }
                prop_assert_eq!(all.len(), model.len());
                let ids: Vec<_> = all.iter().map(Out::id).collect();
                prop_assert_eq!(&ids, &model);
            }
        }
    }
}
