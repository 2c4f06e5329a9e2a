//! How far the subscribers of one partition are, for those who look at it from outside.
//!
//! What always holds: looking changes nothing.

use std::sync::Arc;
use std::time::Duration;

use super::super::outbox::{ConnectionId, Outbox};
use super::{Routes, Subscriber};

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

impl Routes {
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
