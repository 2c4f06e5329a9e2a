//! One connection as ingest sees it: whose messages these are, their acknowledgements, and their share of the room.
//!
//! What always holds: a PUBLISH that is received gets a ticket, or is the same message as one that has one; a message
//! that is sent again with DUP, on this connection or on the next of its client, is acknowledged through the first copy
//! if that is known, and never dropped for DUP alone.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
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
    /// The client's connection before this one, for what is sent again.
    before: Option<Arc<Publisher>>,
    writer: Box<dyn AckWriter>,
    room_in_window: Notify,
}

/// What a received PUBLISH is.
#[derive(Debug)]
pub enum Received {
    /// A message to be stored.
    New(Ticket),
    /// One that is being stored, or is stored, already.
    Known,
    /// A protocol error: its packet id is that of another message, which still waits for its PUBACK.
    Conflict(PacketId),
}

impl Publisher {
    /// A connection that has published nothing yet. `memory` is how many stored messages it remembers.
    pub fn new(
        client: ClientId,
        peer: SocketAddr,
        counters: Arc<Counters>,
        memory: usize,
        before: Option<Arc<Self>>,
        writer: Box<dyn AckWriter>,
    ) -> Arc<Self> {
        Arc::new(Self {
            client,
            peer,
            counters,
            share: Room::share(),
            order: Mutex::new(AckOrder::new(memory)),
            // What it does not remember itself, the one before it may.
            before: before.and_then(|before| match before.is_blank() {
                true => before.before.clone(),
                false => Some(before),
            }),
            writer,
            room_in_window: Notify::new(),
        })
    }

    #[cfg(test)]
    pub(super) fn for_tests() -> Arc<Self> {
        struct Nowhere;
        impl AckWriter for Nowhere {
            fn puback(&self, _: PacketId) {}
            fn close(&self, _: Why) {}
        }
        let client = ClientId::new("test").unwrap();
        let peer = "192.0.2.1:1".parse().unwrap();
        Self::new(client, peer, Arc::default(), 8, None, Box::new(Nowhere))
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
            Expected::Again => {
                let joined = order.join(id, content, Ticket::new(self, None));
                drop(order);
                self.counters.publishes_received.increment();
                return settle_joined(joined);
            }
            Expected::New(number) => {
                drop(order);
                self.counters.publishes_received.increment();
                let before = self.before.as_ref().filter(|_| publish.dup);
                (Ticket::new(self, Some(number)), before)
            }
        };
        match with {
            None => Received::New(ticket),
            Some(before) => settle_joined(before.join(id, content, ticket)),
        }
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
            follower.as_its_first(verdict);
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

    /// The client has come back.
    pub fn take(&self, client: &ClientId, now: Instant) -> Option<Arc<Publisher>> {
        let (ended, publisher) = self.known.lock().by_client.remove(client)?;
        (now.duration_since(ended) < self.keep).then_some(publisher)
    }
}
