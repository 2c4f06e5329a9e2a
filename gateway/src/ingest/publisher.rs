//! One connection as ingest sees it: whose messages these are, and their acknowledgements.
//!
//! What always holds: a PUBLISH that is received gets a ticket, or is the same message as one that has one; a message
//! that is sent again with DUP, on this connection or on the next of its client, is acknowledged through the first copy
//! if that is known, and never dropped for DUP alone; once a connection has left, nothing of it is queued any more.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use twox_hash::XxHash3_64;

use super::acks::{AckOrder, Content, Evidence, Expected, Joined, Released, Verdict, Why};
use super::history::History;
use super::room::Share;
use super::ticket::Ticket;
use crate::mqtt::{ClientId, PacketId};
use crate::observe::Counters;
use crate::recent::Origin;
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
    /// By which connection.
    pub origin: Origin,
    pub(super) counters: Arc<Counters>,
    history: Arc<History>,
    state: Mutex<State>,
    /// The number of the first slot that is not queued yet; with [`LEFT`] when nothing more may be queued.
    queued: AtomicU64,
    /// How many PUBLISHes have come.
    places: AtomicU64,
    /// The place of the first that has closed the connection.
    closed_at: AtomicU64,
    writer: Box<dyn AckWriter>,
    room_in_window: Notify,
}

struct State {
    order: AckOrder,
    /// When it ended.
    left: Option<Instant>,
}

/// Set in [`Publisher::queued`] when the connection has left.
const LEFT: u64 = 1 << 63;

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher")
            .field("client", &self.client)
            .field("origin", &self.origin)
            .finish_non_exhaustive()
    }
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
    /// A connection that has published nothing yet. What it is sent again is looked for in `history`, once it has begun
    /// there.
    pub fn new(
        client: ClientId,
        origin: Origin,
        counters: Arc<Counters>,
        history: Arc<History>,
        writer: Box<dyn AckWriter>,
    ) -> Arc<Self> {
        Arc::new(Self {
            client,
            origin,
            counters,
            state: Mutex::new(State {
                order: AckOrder::new(history.window()),
                left: None,
            }),
            history,
            queued: AtomicU64::new(0),
            places: AtomicU64::new(0),
            closed_at: AtomicU64::new(u64::MAX),
            writer,
            room_in_window: Notify::new(),
        })
    }

    #[cfg(test)]
    pub(crate) fn for_tests() -> Arc<Self> {
        let publisher = Self::of_history(History::new(8, std::time::Duration::from_secs(60)));
        publisher.begin(Instant::now());
        publisher
    }

    #[cfg(test)]
    fn of_history(history: Arc<History>) -> Arc<Self> {
        struct Nowhere;
        impl AckWriter for Nowhere {
            fn puback(&self, _: PacketId) {}
            fn close(&self, _: Why) {}
        }
        let client = ClientId::new("test").unwrap();
        Self::new(
            client,
            Origin::default(),
            Arc::default(),
            history,
            Box::new(Nowhere),
        )
    }

    /// Its client's share of the room.
    pub(super) fn share(&self) -> &Share {
        &self.history.share
    }

    /// This is its client's connection from now on.
    pub fn begin(self: &Arc<Self>, now: Instant) {
        self.history.begin(self, now);
    }

    /// The connection has ended: what is queued goes on, and is remembered; nothing else is queued.
    pub fn leave(self: &Arc<Self>, now: Instant) {
        self.queued.fetch_or(LEFT, Ordering::SeqCst);
        let mut state = self.state.lock();
        if state.left.is_some() {
            return;
        }
        state.left = Some(now);
        let stored = state.order.take_stored();
        // Under the lock, so that a message is always known either here or there.
        self.history.left(self, stored, now);
    }

    /// Takes a PUBLISH that has arrived now.
    pub fn receive(self: &Arc<Self>, publish: &Publish) -> Received {
        let (counters, bytes) = (&self.counters, publish.payload.len() as u64);
        let Some(id) = publish.packet_id else {
            counters.publishes_received.increment();
            counters.publishes_received_qos0.increment();
            counters.payload_bytes_received_qos0.add(bytes);
            return Received::New(Ticket::new(self, None));
        };
        counters.publishes_received_qos1.increment();
        counters.payload_bytes_received_qos1.add(bytes);
        let content = content(publish);
        let expected = self.state.lock().order.expect(id, content);
        let ticket = match expected {
            Expected::Conflict => return Received::Conflict(id),
            Expected::TooLate => {
                self.counters.publishes_received.increment();
                // It has failed: the connection ends, and its client sends it again behind the one that ends it.
                drop(Ticket::new(self, None));
                return Received::Known;
            }
            Expected::Again => {
                self.counters.publishes_received.increment();
                return Received::Known;
            }
            Expected::New(number) => {
                self.counters.publishes_received.increment();
                Ticket::new(self, Some(number))
            }
        };
        if !publish.dup {
            return Received::New(ticket);
        }
        match self.history.join(id, content, ticket, Instant::now()) {
            Joined::Stored(evidence, ticket) => {
                ticket.stored_already(evidence);
                Received::Known
            }
            Joined::Waiting(replaced) => {
                drop(replaced);
                Received::Known
            }
            Joined::Unknown(ticket) => Received::New(ticket),
        }
    }

    /// Slot `number` goes to its lane now, and no longer ends with the connection. Says whether it may: not when the
    /// connection has left, because its client sends it again and nobody would know of this one.
    pub(super) fn may_queue(&self, number: u64) -> bool {
        let queue = |queued: u64| (queued & LEFT == 0).then_some(number + 1);
        let (set, fetch) = (Ordering::SeqCst, Ordering::SeqCst);
        self.queued.fetch_update(set, fetch, queue).is_ok()
    }

    /// Slot `number` is in a lane already, through the first copy of its message.
    fn is_queued(&self, number: u64) {
        let queue = |queued: u64| Some((queued & LEFT) | (queued & !LEFT).max(number + 1));
        let (set, fetch) = (Ordering::SeqCst, Ordering::SeqCst);
        let _ = self.queued.fetch_update(set, fetch, queue);
    }

    /// Takes who waits for slot `number` on a later connection, to go on in its place.
    pub(super) fn take_follower(&self, number: u64) -> Option<Ticket> {
        let follower = self.state.lock().order.take_follower(number)?;
        if let Some(number) = follower.slot() {
            follower.publisher().is_queued(number);
        }
        Some(follower)
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

    /// Lets `ticket`, of a later connection, share the fate of the message with that id and content.
    pub(super) fn join(&self, id: PacketId, content: Content, ticket: Ticket) -> Joined {
        let queued = self.queued.load(Ordering::SeqCst) & !LEFT;
        let mut state = self.state.lock();
        state.order.join(id, content, ticket, queued)
    }

    /// Settles slot `number`. What is released is written under the lock: two lanes that settle at the same time must
    /// not overtake each other on the way to the socket.
    pub(super) fn settle(&self, number: u64, verdict: Verdict) {
        let mut state = self.state.lock();
        let follower = state
            .order
            .settle(number, verdict, |released| match released {
                Released::PubAck(id) => self.writer.puback(id),
                Released::Close(why) => self.writer.close(why),
                Released::Copies(copies, verdict) => self.count_copies(copies as u64, verdict),
            });
        if let Some(left) = state.left {
            self.history.remember(state.order.take_stored(), left);
        }
        drop(state);
        self.room_in_window.notify_one();
        if let Some(follower) = follower {
            follower.share_fate(verdict);
        }
    }

    /// Copies that came while their message waited have ended as it did.
    fn count_copies(&self, copies: u64, verdict: Verdict) {
        let counters = &self.counters;
        match verdict {
            Verdict::Acknowledge(Evidence::Committed(_)) => {
                counters.publishes_deduplicated.add(copies);
                counters.publishes_stored.add(copies);
            }
            Verdict::Acknowledge(Evidence::Waived(reason)) => {
                counters.publishes_refused.add(copies);
                reason.counter(counters).add(copies);
            }
            Verdict::Close(_) => counters.publishes_failed.add(copies),
        }
    }

    /// How many messages wait for their PUBACK.
    pub fn waiting(&self) -> usize {
        self.state.lock().order.waiting()
    }

    /// Waits until fewer than `window` wait.
    pub async fn below(&self, window: usize) {
        while self.waiting() >= window {
            self.room_in_window.notified().await;
        }
    }
}

/// Topic, payload and the retain flag: what a client that sends a message again sends again (3.3.1.1).
fn content(publish: &Publish) -> Content {
    let seed = u64::from(publish.retain);
    let topic = XxHash3_64::oneshot_with_seed(seed, publish.topic.as_str().as_bytes());
    Content(XxHash3_64::oneshot_with_seed(topic, &publish.payload))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ingest::lane::Committed;
    use crate::mqtt::{QoS, TopicName};

    fn message(id: u16, dup: bool) -> Publish {
        Publish {
            dup,
            qos: QoS::AtLeastOnce,
            retain: false,
            topic: TopicName::new("t").unwrap(),
            packet_id: PacketId::new(id),
            payload: bytes::Bytes::from_static(b"x"),
        }
    }

    fn ticket(publisher: &Arc<Publisher>, id: u16) -> Ticket {
        match publisher.receive(&message(id, false)) {
            Received::New(ticket) => ticket,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_queued_any_more_when_its_connection_has_left() {
        let publisher = Publisher::for_tests();
        let tickets = [1, 2, 3].map(|id| ticket(&publisher, id));
        assert!(tickets[0].may_queue());
        publisher.leave(Instant::now());
        assert!(!tickets[1].may_queue() && !tickets[2].may_queue());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_has_left_when_the_next_of_its_client_begins() {
        let publisher = Publisher::for_tests();
        let waits = ticket(&publisher, 1);
        Publisher::of_history(publisher.history.clone()).begin(Instant::now());
        assert!(!waits.may_queue());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_stored_after_its_connection_has_left_is_known_to_the_next() {
        let publisher = Publisher::for_tests();
        let queued = ticket(&publisher, 1);
        assert!(queued.may_queue());
        publisher.leave(Instant::now());
        queued.stored(Committed::for_tests());
        let next = Publisher::of_history(publisher.history.clone());
        next.begin(Instant::now());
        assert!(matches!(next.receive(&message(1, true)), Received::Known));
        assert_eq!(next.waiting(), 0, "it has its PUBACK");
    }
}
