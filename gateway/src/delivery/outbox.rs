//! A client's outbox: what waits to be written to its socket, and what was written and waits for its PUBACK.
//!
//! What always holds: copies are bounded in bytes, by client and over all clients; at most `send_window` QoS 1 copies
//! are out at once, each under a packet id of its own (1 to 65,535, not reused while out); copies leave in the order in
//! which they came; control packets never wait behind copies and never count against the bound; after
//! [`Outbox::close`] nothing is queued any more and every copy it held is done (L4). Putting something in never waits.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::ledger::Entry;
use crate::config::Limits;
use crate::mqtt::{PacketId, QoS, TopicName};
use crate::observe::Counters;
use crate::wire::encode;

/// Numbers outboxes, and so connections, in the order in which they were made. Never used twice in one process, so that
/// the clean-up after an old connection cannot touch the one that replaced it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);

/// An MQTT message on its way out. Made once per record, shared by all its copies.
#[derive(Debug)]
pub struct Message {
    /// The topic it was published to.
    pub topic: TopicName,
    /// Its payload, a slice of what was read from Iggy.
    pub payload: Bytes,
}

impl Message {
    /// What a copy counts against the bounds, in bytes.
    fn size(&self) -> usize {
        /// About what the queue itself needs for a copy.
        const OVERHEAD: usize = 64;
        OVERHEAD + self.topic.as_str().len() + self.payload.len()
    }
}

/// One subscriber's copy of a message.
#[derive(Debug)]
pub struct Copy {
    /// What is sent.
    pub message: Arc<Message>,
    /// With which QoS: the lower one of the publish's and the subscription's.
    pub qos: QoS,
    /// Its place in the ledger.
    pub entry: Entry,
}

/// What became of a copy that was offered.
#[derive(Debug, PartialEq, Eq)]
pub enum Offered {
    /// It is queued.
    Queued,
    /// There was no room for it; it is done, and the outbox will say when there is room again.
    Full,
    /// The client has left; the copy is done.
    Closed,
}

#[derive(Debug)]
struct State {
    control: BytesMut,
    queue: VecDeque<Copy>,
    queued_bytes: usize,
    unacknowledged: HashMap<PacketId, Entry>,
    last_id: PacketId,
    /// When the client last gave a sign that it takes what it gets: it acknowledged, or it had nothing to acknowledge.
    progress: Instant,
    /// Whoever was told [`Offered::Full`] and wants to be told when there is room.
    waiting: Vec<Arc<Notify>>,
    closed: bool,
}

/// See the module.
#[derive(Debug)]
pub struct Outbox {
    id: ConnectionId,
    max_bytes: usize,
    max_bytes_total: usize,
    send_window: usize,
    /// Bytes queued in all outboxes together.
    total: Arc<AtomicUsize>,
    counters: Arc<Counters>,
    state: Mutex<State>,
    /// Set while more than half of the room is taken after an offer found none; cleared when it has drained.
    full: AtomicBool,
    writer: Notify,
    control_drained: Notify,
}

/// Up to this many bytes a payload is copied next to its head: one piece for the socket instead of two.
const COPY_BELOW: usize = 1_024;

/// What the writer gets to write at once: pieces in order.
#[derive(Debug, Default)]
pub struct Pieces {
    /// The bytes, in the order in which they go to the socket.
    pub pieces: Vec<Bytes>,
    /// How many copies are in them.
    pub copies: usize,
    /// The entries of the QoS 0 copies among them: done when this is dropped, that is after the write.
    pub at_most_once: Vec<Entry>,
}

impl Outbox {
    /// An empty outbox with the bounds of `limits`; `total` is shared by all outboxes of the gateway.
    pub fn new(
        id: ConnectionId,
        limits: &Limits,
        total: Arc<AtomicUsize>,
        counters: Arc<Counters>,
        now: Instant,
    ) -> Self {
        Self {
            id,
            max_bytes: limits.outbox_bytes,
            max_bytes_total: limits.outbox_bytes_total,
            send_window: limits.send_window,
            total,
            counters,
            state: Mutex::new(State {
                control: BytesMut::new(),
                queue: VecDeque::new(),
                queued_bytes: 0,
                unacknowledged: HashMap::new(),
                last_id: PacketId::LAST,
                progress: now,
                waiting: Vec::new(),
                closed: false,
            }),
            full: AtomicBool::new(false),
            writer: Notify::new(),
            control_drained: Notify::new(),
        }
    }

    /// Which connection this is the outbox of.
    pub fn id(&self) -> ConnectionId {
        self.id
    }

    /// Appends a control packet, ahead of all queued copies. Says whether there is still someone to send it to.
    pub fn control(&self, encode: impl FnOnce(&mut BytesMut)) -> bool {
        let mut state = self.state.lock();
        if state.closed {
            return false;
        }
        encode(&mut state.control);
        drop(state);
        self.writer.notify_one();
        true
    }

    /// Waits while more than `bytes` of control packets have not been taken by the writer. A client that asks and never
    /// reads is not read from either, so it cannot fill memory with our answers.
    pub async fn control_below(&self, bytes: usize) {
        loop {
            let drained = self.control_drained.notified();
            if self.state.lock().control.len() <= bytes {
                return;
            }
            drained.await;
        }
    }

    /// Queues `copy` if there is room. An empty outbox takes any copy, so that a message larger than the bound still
    /// gets through. On [`Offered::Full`], `waiting` is notified when half of the room is free again.
    pub fn offer(&self, copy: Copy, waiting: &Arc<Notify>) -> Offered {
        let size = copy.message.size();
        let mut state = self.state.lock();
        if state.closed {
            return Offered::Closed;
        }
        let has_room = state.queued_bytes == 0
            || (state.queued_bytes + size <= self.max_bytes
                && self.total.load(Ordering::Relaxed) + size <= self.max_bytes_total);
        if !has_room {
            if !state
                .waiting
                .iter()
                .any(|known| Arc::ptr_eq(known, waiting))
            {
                state.waiting.push(waiting.clone());
            }
            self.full.store(true, Ordering::Release);
            return Offered::Full;
        }
        self.total.fetch_add(size, Ordering::Relaxed);
        state.queued_bytes += size;
        let was_idle = state.queue.is_empty();
        state.queue.push_back(copy);
        drop(state);
        self.counters.copies_queued.increment();
        if was_idle {
            self.writer.notify_one();
        }
        Offered::Queued
    }

    /// Whether the outbox has not yet drained to half since an offer found no room.
    pub fn is_full(&self) -> bool {
        self.full.load(Ordering::Acquire)
    }

    /// Waits until there may be something to write.
    pub async fn ready(&self) {
        self.writer.notified().await;
    }

    /// Takes what is to be written next: all control packets, then copies as the window allows, up to about `max_bytes`.
    /// Empty if there is nothing.
    pub fn take(&self, max_bytes: usize, now: Instant) -> Pieces {
        let mut taken = Pieces::default();
        let mut state = self.state.lock();
        let state = &mut *state;
        // The pieces leave with the writer, so the buffer for heads is one allocation per write, not per message.
        let mut head = std::mem::take(&mut state.control);
        if !head.is_empty() {
            self.control_drained.notify_one();
        }
        let mut bytes = head.len();
        while bytes < max_bytes {
            let Some(next) = state.queue.front() else {
                break;
            };
            let packet_id = match next.qos {
                QoS::AtMostOnce => None,
                _ if state.unacknowledged.len() >= self.send_window => break,
                _ => match free_packet_id(state.last_id, &state.unacknowledged) {
                    Some(id) => Some(id),
                    None => break,
                },
            };
            let Some(Copy {
                message,
                qos,
                entry,
            }) = state.queue.pop_front()
            else {
                break;
            };
            let size = message.size();
            state.queued_bytes -= size;
            self.total.fetch_sub(size, Ordering::Relaxed);
            bytes += size;
            taken.copies += 1;
            encode::publish_head(
                &message.topic,
                qos,
                false,
                false,
                packet_id,
                message.payload.len(),
                &mut head,
            );
            if message.payload.len() <= COPY_BELOW {
                head.extend_from_slice(&message.payload);
            } else {
                taken.pieces.push(head.split().freeze());
                taken.pieces.push(message.payload.clone());
            }
            match packet_id {
                None => taken.at_most_once.push(entry),
                Some(id) => {
                    if state.unacknowledged.is_empty() {
                        state.progress = now;
                    }
                    state.last_id = id;
                    state.unacknowledged.insert(id, entry);
                }
            }
        }
        if !head.is_empty() {
            taken.pieces.push(head.freeze());
        }
        if taken.copies > 0 && state.queued_bytes <= self.max_bytes / 2 {
            self.full.store(false, Ordering::Release);
            for waiting in state.waiting.drain(..) {
                waiting.notify_one();
            }
        }
        taken
    }

    /// The client acknowledged `id`. An id that is not out is ignored and counted (L3).
    pub fn acknowledge(&self, id: PacketId, now: Instant) {
        let mut state = self.state.lock();
        let entry = state.unacknowledged.remove(&id);
        if entry.is_none() {
            drop(state);
            self.counters.unknown_pubacks.increment();
            return;
        }
        state.progress = now;
        // The window may have been what the queue waited for.
        let was_closed_window = state.unacknowledged.len() + 1 == self.send_window;
        let has_more = was_closed_window && !state.queue.is_empty();
        drop(state);
        drop(entry);
        self.counters.copies_acknowledged.increment();
        if has_more {
            self.writer.notify_one();
        }
    }

    /// Since when the client has owed an acknowledgement without giving any; `None` if it owes none.
    pub fn owes_since(&self) -> Option<Instant> {
        let state = self.state.lock();
        (!state.unacknowledged.is_empty()).then_some(state.progress)
    }

    /// Whether nothing waits to be written.
    pub fn is_flushed(&self) -> bool {
        let state = self.state.lock();
        state.control.is_empty() && state.queue.is_empty()
    }

    /// The client has left: everything it held is done, nothing more is taken.
    pub fn close(&self) {
        let (queue, unacknowledged, waiting) = {
            let mut state = self.state.lock();
            state.closed = true;
            self.total.fetch_sub(state.queued_bytes, Ordering::Relaxed);
            state.queued_bytes = 0;
            state.control = BytesMut::new();
            (
                std::mem::take(&mut state.queue),
                std::mem::take(&mut state.unacknowledged),
                std::mem::take(&mut state.waiting),
            )
        };
        drop((queue, unacknowledged));
        self.full.store(false, Ordering::Release);
        for waiting in waiting {
            waiting.notify_one();
        }
        self.control_drained.notify_waiters();
    }
}

/// The next id after `last` that is not out; `None` if all are.
fn free_packet_id(last: PacketId, out: &HashMap<PacketId, Entry>) -> Option<PacketId> {
    if out.len() >= usize::from(u16::MAX) {
        return None;
    }
    let mut id = last.next();
    while out.contains_key(&id) {
        id = id.next();
    }
    Some(id)
}

#[cfg(test)]
mod tests;
