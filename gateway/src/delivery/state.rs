//! What delivery looks like from outside, for whoever shows it: every reader and every subscriber.
//!
//! What always holds: the gateway itself looks, in an interval of its own, and takes each reader's and each outbox's lock once
//! for as long as a few figures take to be read; those who ask get what was seen, and take none.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Delivery;
use super::outbox::{ConnectionId, OutboxState};
use super::reader::Shared;
use super::routes::{CursorState, Holder};
use crate::log::Triple;

/// An offset that is held for less than this is one of many that come and go.
const HELD: Duration = Duration::from_millis(1_500);

/// All readers and subscribers.
#[derive(Debug, Clone, Default)]
pub struct DeliveryState {
    /// Every reader, in the order of their partitions.
    pub readers: Vec<ReaderState>,
    /// Every client that has subscriptions, the oldest connection first.
    pub subscribers: Vec<SubscriberState>,
}

/// A reader and the cursors of its subscribers.
#[derive(Debug, Clone)]
pub struct ReaderState {
    /// Its partition.
    pub triple: Triple,
    /// The next offset that it will read.
    pub position: u64,
    /// How far everything is done.
    pub safe: Option<u64>,
    /// How far it is committed.
    pub committed: Option<u64>,
    /// Records that wait for an acknowledgement or to be written.
    pub open_records: usize,
    /// From where subscribers of these moments get what the last run had not finished.
    pub resumes_from: Option<u64>,
    /// For how long it has not been able to read.
    pub failing_for: Option<Duration>,
    /// Why, while it is not.
    pub error: Option<String>,
    /// The offset behind the newest record, as Iggy said last.
    pub end: u64,
    /// The first offset that somebody needs or has not acknowledged, and for how long that has been seen.
    pub held: Option<(u64, Duration)>,
    /// Who holds it, if that has been so for `HELD`.
    pub holder: Option<Holder>,
    /// Who reads with it, and who is behind.
    pub cursors: Vec<CursorState>,
}

/// A client that has subscriptions.
#[derive(Debug, Clone)]
pub struct SubscriberState {
    /// Its connection.
    pub connection: ConnectionId,
    /// How many topics it is subscribed to.
    pub topics: usize,
    /// What waits for it.
    pub outbox: OutboxState,
}

impl Delivery {
    /// Looks at every reader, ledger and subscriber, and keeps what it finds for those who ask ([`Delivery::seen`]). To be
    /// called once or twice a second: for how long an offset has been held is known that precisely.
    pub fn look(&self, now: Instant) -> Arc<DeliveryState> {
        let shared: Vec<_> = self.readers.lock().values().cloned().collect();
        let mut readers: Vec<ReaderState> =
            shared.iter().map(|shared| reader(shared, now)).collect();
        readers.sort_by(|a, b| a.triple.cmp(&b.triple));
        let subscribed: Vec<_> = {
            let all = self.subscriptions.lock();
            all.values()
                .filter_map(|topics| {
                    let outbox = topics.values().next()?.outbox.clone();
                    Some((outbox, topics.len()))
                })
                .collect()
        };
        let mut subscribers: Vec<SubscriberState> = subscribed
            .into_iter()
            .map(|(outbox, topics)| SubscriberState {
                connection: outbox.id(),
                topics,
                outbox: outbox.state(now),
            })
            .collect();
        subscribers.sort_by_key(|subscriber| subscriber.connection);
        let state = Arc::new(DeliveryState {
            readers,
            subscribers,
        });
        self.seen.store(state.clone());
        state
    }

    /// Does something while every lock is held that a message on its way may wait for.
    #[cfg(test)]
    pub(crate) fn locked<R>(&self, work: impl FnOnce() -> R) -> R {
        let shared: Vec<_> = self.readers.lock().values().cloned().collect();
        let subscriptions = self.subscriptions.lock();
        let topics = subscriptions
            .values()
            .filter_map(|topics| topics.values().next());
        let outboxes: Vec<_> = topics.map(|topic| topic.outbox.clone()).collect();
        drop(subscriptions);
        let _outboxes: Vec<_> = outboxes.iter().map(|outbox| outbox.lock()).collect();
        let _ledgers: Vec<_> = shared.iter().map(|one| one.context.ledger.lock()).collect();
        let _routes: Vec<_> = shared.iter().map(|one| one.routes.lock()).collect();
        let _known: Vec<_> = shared.iter().map(|one| one.known.lock()).collect();
        work()
    }

    /// What was seen when it was looked last. Takes no lock: neither how many ask nor how often can hold up a message.
    pub fn seen(&self) -> Arc<DeliveryState> {
        self.seen.load_full()
    }
}

impl DeliveryState {
    /// For how long the offset has been held that has been held for the longest time.
    pub fn held_for(&self) -> Duration {
        let held = self.readers.iter().filter_map(|reader| reader.held);
        held.map(|(_, held_for)| held_for).max().unwrap_or_default()
    }
}

fn reader(shared: &Shared, now: Instant) -> ReaderState {
    let held = shared.look(now);
    let held = held.map(|(offset, since)| (offset, now - since));
    let known = *shared.known.lock();
    let routes = shared.routes.lock();
    ReaderState {
        triple: shared.triple.clone(),
        position: routes.position().0,
        safe: routes.safe(&shared.context, now),
        committed: known.committed,
        open_records: shared.context.ledger.open_records(),
        resumes_from: routes
            .resume()
            .filter(|resume| now < resume.until)
            .map(|resume| resume.from),
        failing_for: known.failing_since.map(|since| now - since),
        error: shared.error.lock().clone(),
        end: known.end.max(routes.position().0),
        holder: held
            .filter(|(_, held_for)| *held_for >= HELD)
            .and_then(|(offset, _)| routes.holder(offset, &shared.context, now)),
        held,
        cursors: routes.cursors(),
    }
}
