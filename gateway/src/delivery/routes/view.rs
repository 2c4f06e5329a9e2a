//! How far the subscribers of one partition are, for those who look at it from outside.
//!
//! What always holds: looking changes nothing.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::super::outbox::{ConnectionId, Outbox};
use super::{Context, Routes, Subscriber};

/// A cursor, as others see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CursorState {
    /// Whose it is.
    pub connection: ConnectionId,
    /// How it follows the log.
    pub pace: CursorPace,
    /// The next offset that it needs.
    pub next: u64,
    /// How many records it is behind the reader.
    pub lag: u64,
    /// How much older the record that it needs next is than the newest that was read.
    pub lag_time: Duration,
    /// How many topics it is for.
    pub topics: usize,
}

/// How a cursor follows the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CursorPace {
    /// With the reader.
    Live,
    /// Not at all: its outbox is full.
    Lagging,
    /// By reads of its own.
    CatchingUp,
}

/// Somebody who holds an offset: nothing from there on is safe to commit before it has acknowledged or left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Whose connection.
    pub connection: ConnectionId,
    /// For how long the record has been with it, unacknowledged, or for how long it is behind; nothing if it was not sent yet.
    pub holds_for: Duration,
}

impl Routes {
    /// The first offset that somebody still needs or has not acknowledged; `None` if everything that was read is done.
    pub fn held(&self, context: &Context) -> Option<u64> {
        let behind = self
            .subscribers
            .iter()
            .filter_map(|(_, subscriber)| subscriber.cursor.behind())
            .map(|behind| behind.next);
        behind.chain(context.ledger.oldest_open()).min()
    }

    /// Who holds `offset`, as [`Routes::held`] gives it; of several, who has had it for the longest time. Looks through the
    /// outboxes of all subscribers: to be asked only of an offset that has been held for a while.
    pub fn holder(&self, offset: u64, context: &Context, now: Instant) -> Option<Holder> {
        let holds = |(_, subscriber): (usize, &Subscriber)| {
            let behind = subscriber.cursor.behind();
            let needs = behind.filter(|behind| behind.next == offset);
            let waits = needs.map(|behind| behind.lag_time(self.newest_micros));
            let holds = subscriber.outbox.holds(&context.ledger, offset, now);
            Some(Holder {
                connection: subscriber.outbox.id(),
                holds_for: holds.into_iter().chain(waits).max()?,
            })
        };
        let holders = self.subscribers.iter().filter_map(holds);
        holders.max_by_key(|holder| holder.holds_for)
    }

    /// Whose cursors are further behind the reader than `records` or `time`.
    pub fn too_far_behind(&self, records: u64, time: Duration) -> Vec<ConnectionId> {
        let lag = |(_, subscriber): (usize, &Subscriber)| {
            let behind = subscriber.cursor.behind()?;
            let is_too_far =
                behind.lag(self.position) > records || behind.lag_time(self.newest_micros) > time;
            is_too_far.then(|| subscriber.outbox.id())
        };
        self.subscribers.iter().filter_map(lag).collect()
    }

    /// The next offset that the connection needs; `None` if it wants nothing here.
    pub fn next_of(&self, connection: ConnectionId) -> Option<u64> {
        let key = self.by_connection.get(&connection)?;
        let subscriber = self.subscribers.get(*key)?;
        Some(subscriber.cursor.next(self.position))
    }

    /// All cursors.
    pub fn cursors(&self) -> Vec<CursorState> {
        let state = |(_, subscriber): (usize, &Subscriber)| {
            let behind = subscriber.cursor.behind();
            CursorState {
                connection: subscriber.outbox.id(),
                pace: match behind {
                    None => CursorPace::Live,
                    Some(_) if subscriber.outbox.is_full() => CursorPace::Lagging,
                    Some(_) => CursorPace::CatchingUp,
                },
                next: subscriber.cursor.next(self.position),
                lag: behind.map_or(0, |behind| behind.lag(self.position)),
                lag_time: behind
                    .map_or(Duration::ZERO, |behind| behind.lag_time(self.newest_micros)),
                topics: subscriber.topics.len(),
            }
        };
        self.subscribers.iter().map(state).collect()
    }

    /// The outboxes of all subscribers.
    pub fn outboxes(&self) -> impl Iterator<Item = &Arc<Outbox>> {
        self.subscribers
            .iter()
            .map(|(_, subscriber)| &subscriber.outbox)
    }
}
