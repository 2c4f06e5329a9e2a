//! Who wants what of one partition, and how far each has got: the subscribers' cursors.
//!
//! What always holds: a live subscriber is offered every record at the reader's position whose topic it wants (D2), in
//! the order of offsets (D3); one whose outbox is full at a QoS 1 copy leaves the reader and is behind at that offset, and
//! goes on from there when it has drained (`behind`), until it meets the reader's position: no gap, nothing twice. What a
//! cursor that is behind still needs is never safe to commit (D4). Pure: the caller reads the records and passes them in.
//!
//! A record costs one message, one entry in the ledger and no lock, however many want it; a batch of records costs each
//! subscriber one lock.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use slab::Slab;
use tokio::time::Instant;

use super::cursor::{Behind, Cursor, Turn};
use super::ledger::{Entry, SharedLedger};
use super::lines::Lines;
use super::outbox::{ConnectionId, Copy, Message, Offered, Outbox};
use crate::log::{StoredRecord, Triple};
use crate::mapping::ForeignTopic;
use crate::mapping::envelope::{self, EnvelopeError, Opened};
use crate::mqtt::{QoS, TopicName};
use crate::observe::Counters;

mod behind;
mod view;

pub use behind::CaughtUp;
pub use view::{CursorPace, CursorState, Holder};

/// What a subscriber asked for with one topic.
#[derive(Debug, Clone, Copy)]
struct Want {
    qos: QoS,
    /// Records before this offset are not for this subscription.
    since: u64,
}

/// One connection's part in the partition.
#[derive(Debug)]
struct Subscriber {
    outbox: Arc<Outbox>,
    topics: HashMap<TopicName, Want>,
    cursor: Cursor,
    /// What it gets of the batch that is being routed: places in `Routes::batch`. Kept for its memory.
    planned: Vec<(usize, QoS)>,
}

/// A subscriber of one topic.
#[derive(Debug)]
struct Route {
    subscriber: usize,
    want: Want,
}

/// A record of the batch that is being routed, which somebody wants.
#[derive(Debug)]
struct Wanted {
    offset: u64,
    stored_micros: u64,
    message: Arc<Message>,
    entry: Arc<Entry>,
}

impl Wanted {
    fn new(record: &StoredRecord, opened: Opened, context: &Context) -> Self {
        Self {
            offset: record.offset,
            stored_micros: record.timestamp_micros,
            message: Arc::new(Message {
                topic: opened.topic,
                payload: opened.payload,
            }),
            entry: Arc::new(context.ledger.enter(record.offset)),
        }
    }

    fn copy(&self, qos: QoS) -> Copy {
        Copy {
            message: self.message.clone(),
            qos,
            entry: self.entry.clone(),
        }
    }
}

/// What routing needs beside the subscribers.
pub struct Context {
    /// The partition's ledger.
    pub ledger: SharedLedger,
    /// Where outcomes are counted.
    pub counters: Arc<Counters>,
    /// The partition.
    pub triple: Triple,
    /// For what is said of all partitions together.
    pub lines: Arc<Lines>,
    /// What the map in force says of records that name no MQTT topic.
    pub foreign: ArcSwapOption<ForeignTopic>,
}

impl Context {
    fn open(&self, record: &StoredRecord) -> Result<Opened, EnvelopeError> {
        let foreign = self.foreign.load();
        envelope::open_in(record, self.triple.partition, foreign.as_deref())
    }
}

/// What those get who subscribe soon after this gateway has started: also what its last run had not finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resume {
    /// The first offset of it.
    pub from: u64,
    /// When nobody gets it any more. Until then it is not committed, so that a second crash loses nothing either.
    pub until: Instant,
}

/// See the module.
#[derive(Debug)]
pub struct Routes {
    /// The next offset that the reader will read for all live subscribers.
    position: u64,
    /// When the newest record that was routed was stored.
    newest_micros: u64,
    /// Counts how often the log was found to be another: what was read before is of no use then.
    epoch: u64,
    turns: u64,
    subscribers: Slab<Subscriber>,
    by_connection: HashMap<ConnectionId, usize>,
    by_topic: HashMap<TopicName, Vec<Route>>,
    resume: Option<Resume>,
    /// Since when nobody has wanted anything.
    empty_since: Option<Instant>,
    stopped: bool,
    /// Kept for their memory.
    batch: Vec<Wanted>,
    touched: Vec<usize>,
}

impl Routes {
    /// No subscribers yet; the reader begins at `position`.
    pub fn starting_at(position: u64, resume: Option<Resume>, now: Instant) -> Self {
        Self {
            position,
            newest_micros: 0,
            epoch: 0,
            turns: 0,
            subscribers: Slab::new(),
            by_connection: HashMap::new(),
            by_topic: HashMap::new(),
            resume,
            empty_since: Some(now),
            stopped: false,
            batch: Vec::new(),
            touched: Vec::new(),
        }
    }

    /// The next offset that the reader will read, and the epoch that it reads in.
    pub fn position(&self) -> (u64, u64) {
        (self.position, self.epoch)
    }

    /// What new subscribers get from before.
    pub fn resume(&self) -> Option<Resume> {
        self.resume
    }

    /// Whether the reader has ended: nobody can be added any more.
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// For how long nobody has wanted anything; `None` if somebody does.
    pub fn empty_for(&self, now: Instant) -> Option<Duration> {
        self.empty_since.map(|since| now.duration_since(since))
    }

    /// Ends the routes if nobody is left; says whether it did.
    pub fn stop_if_empty(&mut self) -> bool {
        self.stopped = self.stopped || self.subscribers.is_empty();
        self.stopped
    }

    /// Adds `topic` to what the connection of `outbox` wants, from `from` on: from the reader's position, if that is not
    /// given, or from where the last run has ended. The same topic again only changes the QoS: nothing is delivered
    /// twice, nothing is interrupted. Returns the turn of a cursor that is behind because of this.
    pub fn subscribe(
        &mut self,
        outbox: &Arc<Outbox>,
        topic: &TopicName,
        qos: QoS,
        from: Option<u64>,
        now: Instant,
    ) -> Option<Turn> {
        self.empty_since = None;
        let subscribers = &mut self.subscribers;
        let key = *self.by_connection.entry(outbox.id()).or_insert_with(|| {
            subscribers.insert(Subscriber {
                outbox: outbox.clone(),
                topics: HashMap::new(),
                cursor: Cursor::Live,
                planned: Vec::new(),
            })
        });
        let subscriber = &mut subscribers[key];
        if let Some(want) = subscriber.topics.get_mut(topic) {
            want.qos = qos;
            let routes = self.by_topic.get_mut(topic).into_iter().flatten();
            routes
                .filter(|route| route.subscriber == key)
                .for_each(|route| route.want.qos = qos);
            return None;
        }
        let resumed = self.resume.filter(|resume| now < resume.until);
        let since = from
            .or(resumed.map(|resume| resume.from))
            .unwrap_or(self.position)
            .min(self.position);
        // What comes between there and its cursor is for this topic only.
        let next = subscriber.cursor.next(self.position);
        if since < next {
            for (topic, want) in &mut subscriber.topics {
                want.since = want.since.max(next);
                let routes = self.by_topic.get_mut(topic).into_iter().flatten();
                routes
                    .filter(|route| route.subscriber == key)
                    .for_each(|route| route.want.since = want.since);
            }
        }
        let want = Want { qos, since };
        subscriber.topics.insert(topic.clone(), want);
        self.by_topic.entry(topic.clone()).or_default().push(Route {
            subscriber: key,
            want,
        });
        match &mut subscriber.cursor {
            Cursor::Behind(behind) => {
                if since < behind.next {
                    behind.go_back(since);
                }
                None
            }
            Cursor::Live if since < self.position => {
                self.turns += 1;
                // How old the record there is will be seen when it is read.
                let behind = Behind::new(since, self.newest_micros, self.turns);
                let turn = behind.turn(outbox.id());
                subscriber.cursor = Cursor::Behind(behind);
                Some(turn)
            }
            Cursor::Live => None,
        }
    }

    /// Removes `topic` from what the connection wants.
    pub fn unsubscribe(&mut self, connection: ConnectionId, topic: &TopicName, now: Instant) {
        let Some(&key) = self.by_connection.get(&connection) else {
            return;
        };
        let subscriber = &mut self.subscribers[key];
        if subscriber.topics.remove(topic).is_none() {
            return;
        }
        let is_last = subscriber.topics.is_empty();
        self.unroute(topic, key);
        if is_last {
            self.by_connection.remove(&connection);
            self.subscribers.remove(key);
            self.note_if_empty(now);
        }
    }

    /// Removes all that the connection wants. If it `owes` what it has not got, that is not committed by this role.
    pub fn leave(&mut self, connection: ConnectionId, owes: bool, context: &Context, now: Instant) {
        let Some(key) = self.by_connection.remove(&connection) else {
            return;
        };
        let subscriber = self.subscribers.remove(key);
        if owes && let Cursor::Behind(behind) = &subscriber.cursor {
            context.ledger.owe(behind.next);
        }
        for topic in subscriber.topics.into_keys() {
            self.unroute(&topic, key);
        }
        self.note_if_empty(now);
    }

    fn note_if_empty(&mut self, now: Instant) {
        if self.subscribers.is_empty() {
            self.empty_since = Some(now);
        }
    }

    fn unroute(&mut self, topic: &TopicName, key: usize) {
        if let Some(routes) = self.by_topic.get_mut(topic) {
            routes.retain(|route| route.subscriber != key);
            if routes.is_empty() {
                self.by_topic.remove(topic);
            }
        }
    }

    /// Routes what the reader has read at its position, in `epoch`, to the live subscribers, and moves the position
    /// behind it. Returns the turns of the cursors that are behind from now on.
    pub fn route(&mut self, epoch: u64, records: &[StoredRecord], context: &Context) -> Vec<Turn> {
        let mut turns = Vec::new();
        if epoch != self.epoch {
            return turns;
        }
        for record in records {
            if record.offset < self.position {
                continue;
            }
            if record.offset > self.position {
                let missed = record.offset - self.position;
                context.counters.records_missed.add(missed);
                if let Some(left_out) = context.lines.gaps.allow(Instant::now()) {
                    tracing::warn!(
                        stream = %context.triple.target.stream, topic = %context.triple.target.topic,
                        partition = context.triple.partition,
                        from = self.position,
                        missed,
                        left_out,
                        "records were gone before they were read; reading goes on behind them"
                    );
                }
            }
            self.position = record.offset + 1;
            self.newest_micros = record.timestamp_micros;
            self.plan(record, context);
        }
        context.ledger.advance(self.position);
        for key in self.touched.drain(..) {
            let subscriber = &mut self.subscribers[key];
            let batch = &self.batch;
            let planned = &mut subscriber.planned;
            let copies = planned.iter().map(|&(at, qos)| batch[at].copy(qos));
            if let Offered::Full(taken) = subscriber.outbox.offer(copies)
                && let Some(&(at, _)) = planned.get(taken)
            {
                self.turns += 1;
                let wanted = &batch[at];
                let behind = Behind::new(wanted.offset, wanted.stored_micros, self.turns);
                turns.push(behind.turn(subscriber.outbox.id()));
                subscriber.cursor = Cursor::Behind(behind);
                context.counters.cursors_lagged.increment();
            }
            planned.clear();
        }
        self.batch.clear();
        turns
    }

    /// Notes who gets the record.
    fn plan(&mut self, record: &StoredRecord, context: &Context) {
        let opened = match context.open(record) {
            Ok(opened) => opened,
            Err(reason) => {
                context.counters.records_skipped.increment();
                tracing::debug!(offset = record.offset, %reason, "record skipped");
                return;
            }
        };
        let Some(routes) = self.by_topic.get(&opened.topic) else {
            return;
        };
        let published = opened.qos;
        self.batch.push(Wanted::new(record, opened, context));
        for Route { subscriber, want } in routes {
            let key = *subscriber;
            let subscriber = &mut self.subscribers[key];
            if record.offset < want.since || !matches!(subscriber.cursor, Cursor::Live) {
                continue;
            }
            if subscriber.planned.is_empty() {
                self.touched.push(key);
            }
            let qos = want.qos.min(published);
            subscriber.planned.push((self.batch.len() - 1, qos));
        }
    }

    /// How far it is safe to commit: everything that is done with all before it, and that no cursor still needs. `None`
    /// if there is nothing.
    pub fn safe(&self, context: &Context, now: Instant) -> Option<u64> {
        let behind = self
            .subscribers
            .iter()
            .filter_map(|(_, subscriber)| subscriber.cursor.behind())
            .map(|behind| behind.next);
        let resume = self.resume.filter(|resume| now < resume.until);
        let needed = behind.chain(resume.map(|resume| resume.from)).min();
        context.ledger.safe(needed)
    }

    /// The log has become shorter, or is another: what is stored next gets the offset `end`, which was given out before.
    /// Everybody goes on there.
    pub fn regress(&mut self, end: u64, context: &Context) {
        self.position = end;
        self.newest_micros = 0;
        self.epoch += 1;
        if let Some(resume) = &mut self.resume {
            resume.from = resume.from.min(end);
        }
        for (_, subscriber) in &mut self.subscribers {
            if subscriber.cursor.next(end) >= end {
                subscriber.cursor = Cursor::Live;
            }
            for want in subscriber.topics.values_mut() {
                want.since = want.since.min(end);
            }
        }
        for route in self.by_topic.values_mut().flatten() {
            route.want.since = route.want.since.min(end);
        }
        context.ledger.advance(end);
    }
}

#[cfg(test)]
mod tests;
