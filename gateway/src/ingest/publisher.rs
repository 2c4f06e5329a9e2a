//! One connection as ingest sees it: whose messages these are, their acknowledgements, and their share of the room.
//!
//! What always holds: a PUBLISH that is received gets a ticket, or is the same message as one that has one; a message
//! that is sent again with DUP, on this connection or on the next of its client, is acknowledged through the first copy
//! if that is known, and never dropped for DUP alone.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use twox_hash::XxHash3_64;

use super::acks::{AckOrder, Content, Expected, Joined, Released, Verdict, Why};
use super::room::{Room, Share};
use super::ticket::Ticket;
use crate::mqtt::{ClientId, PacketId};
use crate::observe::Counters;
use crate::wire::Publish;

/// Where released acknowledgements go: the connection.
pub trait AckWriter: Send + Sync {
    /// Sends a PUBACK.
    fn puback(&self, id: PacketId);
    /// Closes the connection, after the PUBACKs that were sent before.
    fn close(&self, why: Why);
}

/// See the module.
pub struct Publisher {
    /// Who publishes.
    pub client: ClientId,
    /// From where.
    pub peer: SocketAddr,
    pub(super) counters: Arc<Counters>,
    pub(super) share: Share,
    order: Mutex<AckOrder>,
    /// How many PUBLISHes have come.
    places: AtomicU64,
    /// The place of the first that has closed the connection.
    closed_at: AtomicU64,
    /// The client's connection before this one, for what is sent again, and until when it counts.
    before: Mutex<Option<(Arc<Publisher>, Instant)>>,
    writer: Box<dyn AckWriter>,
    room_in_window: Notify,
}

/// What a received PUBLISH is.
#[derive(Debug)]
pub enum Received {
    /// A message to be stored.
    New(Ticket),
    /// One that is being stored, or is stored, already; or that comes too late on a connection that is about to end.
    Known,
    /// A protocol error: its packet id is that of another message, which still waits for its PUBACK.
    Conflict(PacketId),
}

impl Publisher {
    /// A connection that has published nothing yet. `memory` is how many stored messages it remembers; `before` is the
    /// client's connection before this one, and until when it counts.
    pub fn new(
        client: ClientId,
        peer: SocketAddr,
        counters: Arc<Counters>,
        memory: usize,
        before: Option<(Arc<Self>, Instant)>,
        writer: Box<dyn AckWriter>,
    ) -> Arc<Self> {
        // One connection back is enough, and more would be a chain without end. Only one that has published nothing is
        // passed over.
        let before = before.and_then(|(before, until)| {
            let earlier = before.before.lock().take();
            match before.is_blank() {
                true => earlier,
                false => Some((before, until)),
            }
        });
        Arc::new(Self {
            client,
            peer,
            counters,
            share: Room::share(),
            order: Mutex::new(AckOrder::new(memory)),
            places: AtomicU64::new(0),
            closed_at: AtomicU64::new(u64::MAX),
            before: Mutex::new(before),
            writer,
            room_in_window: Notify::new(),
        })
    }

    #[cfg(test)]
    pub(super) fn for_tests() -> Arc<Self> {
        Self::for_tests_of("test", None)
    }

    #[cfg(test)]
    fn for_tests_of(name: &str, before: Option<(Arc<Self>, Instant)>) -> Arc<Self> {
        struct Nowhere;
        impl AckWriter for Nowhere {
            fn puback(&self, _: PacketId) {}
            fn close(&self, _: Why) {}
        }
        let client = ClientId::new(name).unwrap();
        let peer = "192.0.2.1:1".parse().unwrap();
        Self::new(client, peer, Arc::default(), 8, before, Box::new(Nowhere))
    }

    /// Whether it has nothing to remember.
    pub fn is_blank(&self) -> bool {
        self.order.lock().is_blank()
    }

    /// Takes a PUBLISH that has arrived now.
    pub fn receive(self: &Arc<Self>, publish: &Publish) -> Received {
        let Some(id) = publish.packet_id else {
            self.counters.publishes_received.increment();
            return Received::New(Ticket::new(self, None));
        };
        let content = content(publish);
        let mut order = self.order.lock();
        let (ticket, with) = match order.expect(id, content) {
            Expected::Conflict => return Received::Conflict(id),
            Expected::TooLate => {
                drop(order);
                self.counters.publishes_received.increment();
                // It has failed: the connection ends, and its client sends it again behind the one that ends it.
                drop(Ticket::new(self, None));
                return Received::Known;
            }
            Expected::Again => {
                let joined = order.join(id, content, Ticket::new(self, None));
                drop(order);
                self.counters.publishes_received.increment();
                return settle_joined(joined);
            }
            Expected::New(number) => {
                drop(order);
                self.counters.publishes_received.increment();
                let before = publish.dup.then(|| self.before()).flatten();
                (Ticket::new(self, Some(number)), before)
            }
        };
        match with {
            None => Received::New(ticket),
            Some(before) => settle_joined(before.join(id, content, ticket)),
        }
    }

    pub(super) fn next_place(&self) -> u64 {
        self.places.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn close_behind(&self, place: u64) {
        self.closed_at.fetch_min(place, Ordering::SeqCst);
    }

    pub(super) fn is_closed_before(&self, place: u64) -> bool {
        self.closed_at.load(Ordering::SeqCst) < place
    }

    /// The connection before this one, as long as it counts.
    fn before(&self) -> Option<Arc<Self>> {
        let mut before = self.before.lock();
        before.take_if(|(_, until)| *until <= Instant::now());
        before.as_ref().map(|(before, _)| before.clone())
    }

    /// Lets `ticket` share the fate of the message with that id and content.
    fn join(&self, id: PacketId, content: Content, ticket: Ticket) -> Joined {
        self.order.lock().join(id, content, ticket)
    }

    /// Settles slot `number`. What is released is written under the lock: two lanes that settle at the same time must
    /// not overtake each other on the way to the socket.
    pub(super) fn settle(&self, number: u64, verdict: Verdict) {
        let mut order = self.order.lock();
        let followers = order.settle(number, verdict, |released| match released {
            Released::PubAck(id) => self.writer.puback(id),
            Released::Close(why) => self.writer.close(why),
        });
        drop(order);
        self.room_in_window.notify_one();
        for follower in followers {
            follower.share_fate(verdict);
        }
    }

    /// How many messages wait for their PUBACK.
    pub fn waiting(&self) -> usize {
        self.order.lock().waiting()
    }

    /// Waits until fewer than `window` wait.
    pub async fn below(&self, window: usize) {
        while self.waiting() >= window {
            self.room_in_window.notified().await;
        }
    }
}

fn settle_joined(joined: Joined) -> Received {
    match joined {
        Joined::Stored(evidence, ticket) => {
            ticket.stored_already(evidence);
            Received::Known
        }
        Joined::Waiting => Received::Known,
        Joined::Unknown(ticket) => Received::New(ticket),
    }
}

/// Topic, payload and the retain flag: what a client that sends a message again sends again (3.3.1.1).
fn content(publish: &Publish) -> Content {
    let seed = u64::from(publish.retain);
    let topic = XxHash3_64::oneshot_with_seed(seed, publish.topic.as_str().as_bytes());
    Content(XxHash3_64::oneshot_with_seed(topic, &publish.payload))
}

/// The connections that have ended, for clients that come back and send again what they got no PUBACK for.
///
/// What always holds: at most as many as connections are allowed, each for `dedup_time` at most.
pub struct Departed {
    keep: Duration,
    most: usize,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    by_client: HashMap<ClientId, (Instant, Arc<Publisher>)>,
    /// In the order of their ends; an entry may be older than what is known.
    ends: VecDeque<(Instant, ClientId)>,
}

impl Departed {
    /// Nobody has left yet.
    pub fn new(keep: Duration, most: usize) -> Self {
        Self {
            keep,
            most,
            known: Mutex::default(),
        }
    }

    /// The connection has ended.
    pub fn add(&self, publisher: &Arc<Publisher>, now: Instant) {
        if publisher.is_blank() {
            return;
        }
        let mut known = self.known.lock();
        let client = publisher.client.clone();
        known
            .by_client
            .insert(client.clone(), (now, publisher.clone()));
        known.ends.push_back((now, client));
        while let Some((ended, _)) = known.ends.front()
            && (known.ends.len() > self.most || now.duration_since(*ended) >= self.keep)
        {
            let Some((ended, client)) = known.ends.pop_front() else {
                break;
            };
            if known
                .by_client
                .get(&client)
                .is_some_and(|(at, _)| *at == ended)
            {
                known.by_client.remove(&client);
            }
        }
    }

    /// The client has come back: its connection, and until when it counts.
    pub fn take(&self, client: &ClientId, now: Instant) -> Option<(Arc<Publisher>, Instant)> {
        let (ended, publisher) = self.known.lock().by_client.remove(client)?;
        let until = ended + self.keep;
        (now < until).then_some((publisher, until))
    }

    /// Until when a connection counts that ends now.
    pub fn until(&self, now: Instant) -> Instant {
        now + self.keep
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mqtt::{QoS, TopicName};

    fn message(id: u16) -> Publish {
        Publish {
            dup: false,
            qos: QoS::AtLeastOnce,
            retain: false,
            topic: TopicName::new("t").unwrap(),
            packet_id: PacketId::new(id),
            payload: bytes::Bytes::from_static(b"x"),
        }
    }

    fn publisher(
        name: &str,
        before: Option<(Arc<Publisher>, Instant)>,
    ) -> (Arc<Publisher>, Ticket) {
        let publisher = Publisher::for_tests_of(name, before);
        match publisher.receive(&message(1)) {
            Received::New(ticket) => (publisher, ticket),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reconnects_for_ever_keeps_one_connection_back_in_memory() {
        let until = Instant::now() + Duration::from_secs(60);
        let (mut last, first_ticket) = publisher("a", None);
        let first = Arc::downgrade(&last);
        drop(first_ticket);
        for _ in 0..10 {
            let (next, ticket) = publisher("a", Some((last, until)));
            // It is in flight for as long as the test runs, so that it is no blank one.
            std::mem::forget(ticket);
            last = next;
        }
        assert!(first.upgrade().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn those_that_have_left_are_known_for_a_while_and_are_not_too_many() {
        let keep = Duration::from_secs(60);
        let departed = Departed::new(keep, 3);
        let start = Instant::now();
        let blank = Publisher::for_tests_of("blank", None);
        departed.add(&blank, start);
        assert!(departed.take(&blank.client, start).is_none());
        let all: Vec<_> = (0..5).map(|n| publisher(&format!("c{n}"), None)).collect();
        for (publisher, _) in &all {
            departed.add(publisher, start);
        }
        let known = |n: usize, now| departed.take(&all[n].0.client, now).is_some();
        assert!(!known(0, start) && !known(1, start), "the oldest go first");
        assert!(known(2, start));
        assert!(!known(2, start), "it has come back");
        assert!(known(3, start + keep - Duration::from_millis(1)));
        assert!(!known(4, start + keep));
        let known = departed.known.lock();
        assert!(known.by_client.len() <= 3 && known.ends.len() <= 3);
    }
}
