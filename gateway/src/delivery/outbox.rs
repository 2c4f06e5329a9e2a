//! A client's outbox: what waits to be written to its socket, and what was written and waits for its PUBACK.
//!
//! What always holds: copies are bounded in bytes, by client and over all clients; at most `send_window` QoS 1 copies
//! are out at once; copies leave in the order in which they came; control packets never wait behind copies and never
//! count against the bound; a copy is sent again only if that is configured; after [`Outbox::close`] nothing is queued
//! any more and every copy it held is done (L4). Putting something in never waits.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::ledger::{Entry, SharedLedger};
use super::unacknowledged::Unacknowledged;
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
    /// The record's place in the ledger, shared by its copies.
    pub entry: Arc<Entry>,
}

/// What became of the copies that were offered.
#[derive(Debug, PartialEq, Eq)]
pub enum Offered {
    /// All are queued, or dropped as QoS 0 copies are.
    Taken,
    /// So many were taken; then there was no room for a QoS 1 copy, and [`Outbox::room`] says when there is again.
    Full(usize),
    /// The client has left.
    Closed,
}

/// The bytes in all outboxes of a gateway.
#[derive(Debug, Default)]
pub struct OutboxTotal {
    bytes: AtomicUsize,
    pressed: Notify,
}

impl OutboxTotal {
    /// The bytes now.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Waits until a copy has found no room because of all outboxes together.
    pub async fn pressed(&self) {
        self.pressed.notified().await;
    }
}

/// What an outbox holds, and how its client does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxState {
    /// Copies that wait to be written.
    pub queued: usize,
    /// The bytes that count against the bounds.
    pub bytes: usize,
    /// QoS 1 copies that are out.
    pub unacknowledged: usize,
    /// How long ago the one was sent that was sent longest ago.
    pub oldest_unacknowledged: Option<Duration>,
    /// QoS 0 copies that were dropped because there was no room.
    pub dropped: u64,
    /// Whether it has not drained to half since a copy found no room.
    pub is_full: bool,
}

#[derive(Debug)]
struct State {
    control: BytesMut,
    queue: VecDeque<Copy>,
    /// What is queued, and what is kept to be sent again.
    bytes: usize,
    out: Unacknowledged,
    dropped: u64,
    /// A copy was sent again as often as allowed, and still is not acknowledged.
    exhausted: bool,
    /// What is not acknowledged at the end is not to be committed.
    owes_at_end: bool,
    closed: bool,
}

/// See the module.
#[derive(Debug)]
pub struct Outbox {
    id: ConnectionId,
    max_bytes: usize,
    max_bytes_total: usize,
    send_window: usize,
    /// `None`: nothing is sent again.
    retransmit_interval: Option<Duration>,
    retransmit_max: u32,
    total: Arc<OutboxTotal>,
    counters: Arc<Counters>,
    state: Mutex<State>,
    /// Set while more than half of the room is taken after an offer found none; cleared when it has drained.
    full: AtomicBool,
    writer: Notify,
    drained: Notify,
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
    /// The bytes of their payloads, of QoS 0 and QoS 1.
    pub payload_bytes: [u64; 2],
    /// The entries of the QoS 0 copies among them: done when this is dropped, that is after the write.
    pub at_most_once: Vec<Arc<Entry>>,
}

impl Pieces {
    /// How many copies of QoS 0 and of QoS 1 are in them.
    pub fn copies_by_qos(&self) -> [u64; 2] {
        let qos0 = self.at_most_once.len();
        [qos0 as u64, self.copies.saturating_sub(qos0) as u64]
    }

    fn add(
        &mut self,
        message: &Message,
        qos: QoS,
        dup: bool,
        id: Option<PacketId>,
        head: &mut BytesMut,
    ) {
        let payload = &message.payload;
        self.payload_bytes[usize::from(qos != QoS::AtMostOnce)] += payload.len() as u64;
        encode::publish_head(&message.topic, qos, dup, false, id, payload.len(), head);
        if payload.len() <= COPY_BELOW {
            head.extend_from_slice(payload);
        } else {
            self.pieces.push(head.split().freeze());
            self.pieces.push(payload.clone());
        }
    }
}

impl Outbox {
    /// An empty outbox with the bounds of `limits`; `total` is shared by all outboxes of the gateway.
    pub fn new(
        id: ConnectionId,
        limits: &Limits,
        total: Arc<OutboxTotal>,
        counters: Arc<Counters>,
        now: Instant,
    ) -> Self {
        Self {
            id,
            max_bytes: limits.outbox_bytes,
            max_bytes_total: limits.outbox_bytes_total,
            send_window: limits.send_window,
            retransmit_interval: Some(limits.retransmit_interval)
                .filter(|interval| !interval.is_zero()),
            retransmit_max: limits.retransmit_max,
            total,
            counters,
            state: Mutex::new(State {
                control: BytesMut::new(),
                queue: VecDeque::new(),
                bytes: 0,
                out: Unacknowledged::new(now),
                dropped: 0,
                exhausted: false,
                owes_at_end: false,
                closed: false,
            }),
            full: AtomicBool::new(false),
            writer: Notify::new(),
            drained: Notify::new(),
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

    /// Queues `copies`, in their order, as long as there is room: one lock for all of them. An empty outbox takes any
    /// copy, so that a message larger than the bound still gets through. Without room a QoS 0 copy is dropped and
    /// counted; at a QoS 1 copy it ends.
    pub fn offer(&self, copies: impl IntoIterator<Item = Copy>) -> Offered {
        let mut offered = Offered::Taken;
        let (mut queued, mut dropped) = (0, 0);
        let mut state = self.state.lock();
        if state.closed {
            return Offered::Closed;
        }
        let was_idle = state.queue.is_empty();
        for copy in copies {
            let size = copy.message.size();
            let fits = state.bytes + size <= self.max_bytes;
            if state.bytes == 0 || (fits && self.total.bytes() + size <= self.max_bytes_total) {
                self.total.bytes.fetch_add(size, Ordering::Relaxed);
                state.bytes += size;
                state.queue.push_back(copy);
                queued += 1;
                continue;
            }
            if fits {
                self.total.pressed.notify_one();
            }
            self.full.store(true, Ordering::Release);
            if copy.qos != QoS::AtMostOnce {
                offered = Offered::Full(queued + dropped);
                break;
            }
            dropped += 1;
        }
        state.dropped += dropped as u64;
        drop(state);
        self.counters.copies_queued.add(queued as u64);
        self.counters.copies_dropped.add(dropped as u64);
        if was_idle && queued > 0 {
            self.writer.notify_one();
        }
        offered
    }

    /// Whether the outbox has not yet drained to half since an offer found no room.
    pub fn is_full(&self) -> bool {
        self.full.load(Ordering::Acquire)
    }

    /// Waits until the outbox is not full any more.
    pub async fn room(&self) {
        loop {
            let mut drained = std::pin::pin!(self.drained.notified());
            // From here on no notification is missed.
            drained.as_mut().enable();
            if !self.is_full() {
                return;
            }
            drained.await;
        }
    }

    /// Waits until there may be something to write.
    pub async fn ready(&self) {
        self.writer.notified().await;
    }

    /// Takes what is to be written next: all control packets, what is to be sent again, then copies as the window
    /// allows, up to about `max_bytes`. Empty if there is nothing.
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
        if let Some(interval) = self.retransmit_interval
            && max_bytes > 0
            && state.out.is_due(interval, now)
        {
            let most = self.retransmit_max;
            state.exhausted |= state.out.retransmit(interval, most, now, |id, message| {
                self.counters.copies_sent_again.increment();
                bytes += message.size();
                taken.add(message, QoS::AtLeastOnce, true, Some(id), &mut head);
            });
        }
        while bytes < max_bytes {
            let Some(next) = state.queue.front() else {
                break;
            };
            let has_window = next.qos == QoS::AtMostOnce || state.out.len() < self.send_window;
            if !has_window {
                break;
            }
            let Some(Copy {
                message,
                qos,
                entry,
            }) = state.queue.pop_front()
            else {
                break;
            };
            let size = message.size();
            let is_kept = qos != QoS::AtMostOnce && self.retransmit_interval.is_some();
            let packet_id = if qos == QoS::AtMostOnce {
                taken.at_most_once.push(entry);
                None
            } else {
                let kept = is_kept.then(|| message.clone());
                // The window is smaller than the number of ids, so there is a free one.
                let Some(id) = state.out.send(entry, kept, now) else {
                    break;
                };
                Some(id)
            };
            if !is_kept {
                state.bytes -= size;
                self.total.bytes.fetch_sub(size, Ordering::Relaxed);
            }
            bytes += size;
            taken.copies += 1;
            taken.add(&message, qos, false, packet_id, &mut head);
        }
        if !head.is_empty() {
            taken.pieces.push(head.freeze());
        }
        if taken.copies > 0 {
            self.check_drained(state);
        }
        taken
    }

    fn check_drained(&self, state: &State) {
        if state.bytes <= self.max_bytes / 2 && self.is_full() {
            self.full.store(false, Ordering::Release);
            self.drained.notify_waiters();
        }
    }

    /// The client acknowledged `id`. An id that is not out is ignored and counted (L3).
    pub fn acknowledge(&self, id: PacketId, now: Instant) {
        let mut state = self.state.lock();
        let Some(out) = state.out.acknowledge(id, now) else {
            drop(state);
            self.counters.unknown_pubacks.increment();
            return;
        };
        if let Some(message) = &out.message {
            state.bytes -= message.size();
            self.total
                .bytes
                .fetch_sub(message.size(), Ordering::Relaxed);
            self.check_drained(&state);
        }
        // The window may have been what the queue waited for.
        let was_closed_window = state.out.len() + 1 == self.send_window;
        let has_more = was_closed_window && !state.queue.is_empty();
        drop(state);
        drop(out);
        self.counters.copies_acknowledged.increment();
        if has_more {
            self.writer.notify_one();
        }
    }

    /// Since when the client has owed the acknowledgement of its oldest copy; `None` if it owes none.
    pub fn owes_since(&self) -> Option<Instant> {
        self.state.lock().out.owes_since()
    }

    /// Wakes the writer if something is to be sent again; says whether that was in vain too often.
    pub fn check_retransmission(&self, now: Instant) -> bool {
        let Some(interval) = self.retransmit_interval else {
            return false;
        };
        let state = self.state.lock();
        if state.out.is_due(interval, now) {
            self.writer.notify_one();
        }
        state.exhausted
    }

    /// The bytes that count against the bounds.
    pub fn bytes(&self) -> usize {
        self.state.lock().bytes
    }

    /// What it holds now. Takes time in proportion to what is unacknowledged, if something was sent again.
    pub fn state(&self, now: Instant) -> OutboxState {
        let state = self.state.lock();
        OutboxState {
            queued: state.queue.len(),
            bytes: state.bytes,
            unacknowledged: state.out.len(),
            oldest_unacknowledged: state.out.oldest_sent().map(|sent| now - sent),
            dropped: state.dropped,
            is_full: self.is_full(),
        }
    }

    /// Whether the record at `offset` of `ledger` waits for this client, and how long ago it was sent to it if it was. Takes
    /// time in proportion to what the outbox holds.
    pub fn holds(&self, ledger: &SharedLedger, offset: u64, now: Instant) -> Option<Duration> {
        let state = self.state.lock();
        let mut out = state.out.iter();
        if let Some(out) = out.find(|out| out.entry.is(ledger, offset)) {
            return Some(now.saturating_duration_since(out.sent()));
        }
        let mut queued = state.queue.iter();
        let is_queued = queued.any(|copy| copy.entry.is(ledger, offset));
        is_queued.then_some(Duration::ZERO)
    }

    /// From now on the client does not leave by itself: what it has not acknowledged when this is closed is not to be
    /// committed, so that it is delivered again when the client has come back.
    pub fn owe_at_end(&self) {
        self.state.lock().owes_at_end = true;
    }

    /// Holds the lock under which copies come and go.
    #[cfg(test)]
    pub(super) fn lock(&self) -> impl Sized + '_ {
        self.state.lock()
    }

    /// Whether nothing waits to be written.
    pub fn is_flushed(&self) -> bool {
        let state = self.state.lock();
        state.control.is_empty() && state.queue.is_empty()
    }

    /// The client has left: everything it held is done, nothing more is taken.
    pub fn close(&self) {
        let now = Instant::now();
        let (queue, out) = {
            let mut state = self.state.lock();
            state.closed = true;
            self.total.bytes.fetch_sub(state.bytes, Ordering::Relaxed);
            state.bytes = 0;
            state.control = BytesMut::new();
            let queue = std::mem::take(&mut state.queue);
            let out = std::mem::replace(&mut state.out, Unacknowledged::new(now));
            if state.owes_at_end {
                queue
                    .iter()
                    .filter(|copy| copy.qos != QoS::AtMostOnce)
                    .for_each(|copy| copy.entry.owe());
                out.iter().for_each(|out| out.entry.owe());
            }
            (queue, out)
        };
        drop((queue, out));
        self.full.store(false, Ordering::Release);
        self.drained.notify_waiters();
        self.control_drained.notify_waiters();
    }
}

#[cfg(test)]
mod tests;
