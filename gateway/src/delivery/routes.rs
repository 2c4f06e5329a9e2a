//! Who wants what of one partition, and how far each has got: the subscribers' cursors.
//!
//! What always holds: a live subscriber is offered every record at the reader's position whose topic it wants (D2), in
//! the order of offsets (D3); one whose outbox is full at a QoS 1 copy leaves the reader and lags at that offset, and
//! goes on from there when it has drained, until it meets the reader's position: no gap, nothing twice. What a lagging
//! cursor still needs is never safe to commit (D4). Pure: the caller reads the records and passes them in.

use std::collections::HashMap;
use std::sync::Arc;

use slab::Slab;
use tokio::sync::Notify;

use super::ledger::SharedLedger;
use super::outbox::{ConnectionId, Copy, Message, Offered, Outbox};
use crate::log::StoredRecord;
use crate::mapping::ForeignTopic;
use crate::mapping::envelope::{self, EnvelopeError, Opened};
use crate::mqtt::{QoS, TopicName};
use crate::observe::Counters;

/// What a subscriber asked for with one topic.
#[derive(Debug, Clone, Copy)]
struct Want {
    qos: QoS,
    /// Records before this offset were stored before the subscription was made.
    since: u64,
}

#[derive(Debug)]
struct Subscriber {
    outbox: Arc<Outbox>,
    topics: HashMap<TopicName, Want>,
    /// The next offset it must see, if that is not the reader's position.
    lagging: Option<u64>,
}

impl Subscriber {
    /// Offers a record that the subscriber wants; `Err` if it must lag from this record on.
    fn offer(
        &self,
        want: Want,
        offset: u64,
        message: &Arc<Message>,
        published: QoS,
        context: &Context,
    ) -> Result<(), Full> {
        if offset < want.since {
            return Ok(());
        }
        let qos = want.qos.min(published);
        let copy = Copy {
            message: message.clone(),
            qos,
            entry: context.ledger.enter(offset),
        };
        match self.outbox.offer(copy, &context.wake) {
            Offered::Queued | Offered::Closed => Ok(()),
            Offered::Full if qos == QoS::AtMostOnce => {
                context.counters.copies_dropped.increment();
                Ok(())
            }
            Offered::Full => Err(Full),
        }
    }
}

/// There was no room for a QoS 1 copy.
struct Full;

/// What routing needs beside the subscribers.
pub struct Context {
    /// The partition's ledger.
    pub ledger: SharedLedger,
    /// Woken when an outbox that was full has drained.
    pub wake: Arc<Notify>,
    /// Where outcomes are counted.
    pub counters: Arc<Counters>,
    /// The partition's number.
    pub partition: u32,
    /// What the map says of records that name no MQTT topic.
    pub foreign: Option<Arc<ForeignTopic>>,
}

impl Context {
    fn open(&self, record: &StoredRecord) -> Result<Opened, EnvelopeError> {
        envelope::open_in(record, self.partition, self.foreign.as_deref())
    }
}

/// See the module.
#[derive(Debug)]
pub struct Routes {
    /// The next offset that the reader will read for all live subscribers.
    position: u64,
    subscribers: Slab<Subscriber>,
    by_connection: HashMap<ConnectionId, usize>,
    by_topic: HashMap<TopicName, Vec<usize>>,
    /// Which lagging subscriber had its turn last.
    last_turn: usize,
    stopped: bool,
}

impl Routes {
    /// No subscribers yet; the reader begins at `position`.
    pub fn starting_at(position: u64) -> Self {
        Self {
            position,
            subscribers: Slab::new(),
            by_connection: HashMap::new(),
            by_topic: HashMap::new(),
            last_turn: 0,
            stopped: false,
        }
    }

    /// The next offset that the reader will read.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Whether the reader has ended: nobody can be added any more.
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Ends the routes if nobody is left; says whether it did.
    pub fn stop_if_empty(&mut self) -> bool {
        self.stopped = self.stopped || self.subscribers.is_empty();
        self.stopped
    }

    /// Adds `topic` to what the connection of `outbox` wants, from the reader's position on. The same topic again only
    /// changes the QoS: nothing is delivered twice, nothing is interrupted.
    pub fn subscribe(&mut self, outbox: &Arc<Outbox>, topic: &TopicName, qos: QoS) {
        let subscribers = &mut self.subscribers;
        let key = *self.by_connection.entry(outbox.id()).or_insert_with(|| {
            subscribers.insert(Subscriber {
                outbox: outbox.clone(),
                topics: HashMap::new(),
                lagging: None,
            })
        });
        let topics = &mut subscribers[key].topics;
        match topics.get_mut(topic) {
            Some(want) => want.qos = qos,
            None => {
                topics.insert(
                    topic.clone(),
                    Want {
                        qos,
                        since: self.position,
                    },
                );
                self.by_topic.entry(topic.clone()).or_default().push(key);
            }
        }
    }

    /// Removes `topic` from what the connection wants.
    pub fn unsubscribe(&mut self, connection: ConnectionId, topic: &TopicName) {
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
        }
    }

    /// Removes all that the connection wants.
    pub fn leave(&mut self, connection: ConnectionId) {
        let Some(key) = self.by_connection.remove(&connection) else {
            return;
        };
        for topic in self.subscribers.remove(key).topics.into_keys() {
            self.unroute(&topic, key);
        }
    }

    fn unroute(&mut self, topic: &TopicName, key: usize) {
        if let Some(keys) = self.by_topic.get_mut(topic) {
            keys.retain(|other| *other != key);
            if keys.is_empty() {
                self.by_topic.remove(topic);
            }
        }
    }

    /// Routes what the reader has read at its position to the live subscribers, and moves the position behind it.
    pub fn route(&mut self, records: &[StoredRecord], context: &Context) {
        for record in records {
            if record.offset < self.position {
                continue;
            }
            if record.offset > self.position {
                context
                    .counters
                    .records_missed
                    .add(record.offset - self.position);
            }
            self.position = record.offset + 1;
            let Some(opened) = open(record, context) else {
                continue;
            };
            let Some(keys) = self.by_topic.get(&opened.topic) else {
                continue;
            };
            let message = Arc::new(Message {
                topic: opened.topic,
                payload: opened.payload,
            });
            for &key in keys {
                let subscriber = &mut self.subscribers[key];
                if subscriber.lagging.is_some() {
                    continue;
                }
                let Some(&want) = subscriber.topics.get(&message.topic) else {
                    continue;
                };
                if let Err(Full) =
                    subscriber.offer(want, record.offset, &message, opened.qos, context)
                {
                    subscriber.lagging = Some(record.offset);
                    context.counters.cursors_lagged.increment();
                }
            }
        }
        context.ledger.advance(self.position);
    }

    /// The lagging subscriber whose turn it is and the offset it needs, among those whose outbox has room again.
    pub fn next_to_catch_up(&mut self) -> Option<(ConnectionId, u64)> {
        let turn = |(key, subscriber): (usize, &Subscriber)| {
            let next = subscriber.lagging?;
            (!subscriber.outbox.is_full()).then(|| (key, subscriber.outbox.id(), next))
        };
        let (key, connection, next) = self
            .subscribers
            .iter()
            .filter(|(key, _)| *key > self.last_turn)
            .find_map(turn)
            .or_else(|| self.subscribers.iter().find_map(turn))?;
        self.last_turn = key;
        Some((connection, next))
    }

    /// Gives a lagging subscriber what was read at the offset it needs. Nothing read means that the log has nothing
    /// left between there and the reader's position.
    pub fn catch_up(
        &mut self,
        connection: ConnectionId,
        records: &[StoredRecord],
        context: &Context,
    ) {
        let Some(&key) = self.by_connection.get(&connection) else {
            return;
        };
        let position = self.position;
        let subscriber = &mut self.subscribers[key];
        let Some(mut next) = subscriber.lagging else {
            return;
        };
        for record in records.iter().filter(|record| record.offset < position) {
            if record.offset < next {
                continue;
            }
            if record.offset > next {
                context.counters.records_missed.add(record.offset - next);
            }
            next = record.offset;
            subscriber.lagging = Some(next);
            // Skipped records were counted when the reader met them.
            if let Ok(opened) = context.open(record)
                && let Some(&want) = subscriber.topics.get(&opened.topic)
            {
                let message = Arc::new(Message {
                    topic: opened.topic,
                    payload: opened.payload,
                });
                if subscriber
                    .offer(want, record.offset, &message, opened.qos, context)
                    .is_err()
                {
                    return;
                }
            }
            next += 1;
        }
        let has_met = next >= position || records.last().is_none_or(|last| last.offset >= position);
        if has_met && next < position && records.is_empty() {
            context.counters.records_missed.add(position - next);
        }
        subscriber.lagging = (!has_met).then_some(next);
        if has_met {
            context.counters.cursors_rejoined.increment();
        }
    }

    /// How far it is safe to commit: everything that is done with all before it, and that no lagging subscriber still
    /// needs. `None` if there is nothing.
    pub fn safe(&self, context: &Context) -> Option<u64> {
        let lagging = self
            .subscribers
            .iter()
            .filter_map(|(_, subscriber)| subscriber.lagging)
            .min();
        context.ledger.safe(lagging)
    }

    /// The log has become shorter: what is stored next gets the offset `end`, which was given out before. Everybody goes
    /// on there.
    pub fn regress(&mut self, end: u64, context: &Context) {
        self.position = end;
        for (_, subscriber) in &mut self.subscribers {
            if subscriber.lagging.is_some_and(|next| next >= end) {
                subscriber.lagging = None;
            }
            for want in subscriber.topics.values_mut() {
                want.since = want.since.min(end);
            }
        }
        context.ledger.advance(end);
    }
}

fn open(record: &StoredRecord, context: &Context) -> Option<Opened> {
    match context.open(record) {
        Ok(opened) => Some(opened),
        Err(reason) => {
            context.counters.records_skipped.increment();
            tracing::debug!(offset = record.offset, %reason, "record skipped");
            None
        }
    }
}

#[cfg(test)]
mod tests;
