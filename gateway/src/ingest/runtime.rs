//! The second way to produce: batches go to the connectors runtime through the source's poll, and what it says of them
//! decides about the PUBACKs.
//!
//! What always holds: an append succeeds only when the runtime has acknowledged that very batch (N1); a batch that it has
//! not stored is handed to it again with the same records, ids and order, and nothing overtakes it (N6); one whose result
//! is never told is not acknowledged. Everything but appends to the one target still goes through the gateway's own
//! client: dead letters too, because the runtime stores in one topic only.
//!
//! The runtime stops a source for good when five batches in a row were not stored (runtime 0.5.0), so a batch is not given
//! to it while Iggy is known to be away, and after each failure it waits a while longer.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until};

use crate::health::Health;
use crate::log::{Log, LogError, Polled, Record, Target, TopicInfo, TopicSpec, Triple};
use crate::observe::Counters;

#[cfg(test)]
mod tests;

/// So many batches in a row that were not stored end a source (runtime 0.5.0).
const MOST_NACKS: u32 = 5;
/// How often it is looked whether Iggy is back.
const LOOK: Duration = Duration::from_millis(250);

/// A log that appends to `target` by handing batches over, and does all else as `log` does; and the end from which they are
/// taken.
pub fn hand_over(
    log: Arc<dyn Log>,
    target: Target,
    health: Arc<Health>,
    counters: Arc<Counters>,
) -> (Arc<dyn Log>, Batches) {
    // One waits to be taken; whoever appends more waits for its place, in order.
    let (offers, taken) = mpsc::channel(1);
    let batches = Batches {
        offers: tokio::sync::Mutex::new(taken),
        hand: Mutex::default(),
        health,
        counters,
    };
    let log = Handed {
        log,
        target,
        offers,
    };
    (Arc::new(log), batches)
}

/// A batch that someone wants appended.
struct Offer {
    records: Arc<[Record]>,
    /// Told when it is stored; closed when nobody waits for that any more.
    stored: oneshot::Sender<()>,
}

/// The end from which a source takes what the runtime is to store, one batch at a time.
pub struct Batches {
    offers: tokio::sync::Mutex<mpsc::Receiver<Offer>>,
    hand: Mutex<Hand>,
    health: Arc<Health>,
    counters: Arc<Counters>,
}

/// The batch that is next for the runtime, or with it.
#[derive(Default)]
struct Hand {
    offer: Option<Offer>,
    /// Whether the runtime has it.
    is_out: bool,
    /// Batches in a row that were not stored.
    nacks: u32,
    /// When the next may go.
    rest_until: Option<Instant>,
}

impl Batches {
    /// Waits for the next batch. Nothing is lost if the future is dropped. A batch whose result was not told before the
    /// next call is given again.
    pub async fn next(&self) -> Arc<[Record]> {
        let mut offers = self.offers.lock().await;
        loop {
            self.until_one_is_wanted(&mut offers).await;
            self.until_it_is_worth_trying().await;
            // It may have been given up meanwhile.
            let mut hand = self.hand.lock();
            if let Some(records) = hand.wanted() {
                hand.is_out = true;
                return records;
            }
        }
    }

    async fn until_one_is_wanted(&self, offers: &mut mpsc::Receiver<Offer>) {
        while self.hand.lock().wanted().is_none() {
            let Some(offer) = offers.recv().await else {
                // Nobody appends any more.
                return std::future::pending().await;
            };
            let mut hand = self.hand.lock();
            hand.offer = Some(offer);
            hand.is_out = false;
        }
    }

    async fn until_it_is_worth_trying(&self) {
        let rest_until = self.hand.lock().rest_until;
        if let Some(until) = rest_until {
            sleep_until(until).await;
        }
        while self.health.away_for().is_some() {
            sleep(LOOK).await;
        }
    }

    /// The runtime has stored the batch that was taken last.
    pub fn acknowledge(&self) {
        let mut hand = self.hand.lock();
        if !hand.take_back() {
            return;
        }
        hand.nacks = 0;
        if let Some(offer) = hand.offer.take() {
            // Who appends may have given up.
            let _ = offer.stored.send(());
        }
    }

    /// The runtime has not, or not certainly, stored the batch that was taken last: it comes again.
    pub fn refuse(&self) {
        let mut hand = self.hand.lock();
        if !hand.take_back() {
            return;
        }
        self.counters.runtime_nacks.increment();
        hand.nacks += 1;
        // The runtime's own pauses, 0.1 s to 0.8 s, are shorter than its client takes to come back after an outage (5 s
        // and more).
        let pause = Duration::from_secs(match hand.nacks {
            1 => 2,
            2 => 5,
            3 => 10,
            _ => 20,
        });
        hand.rest_until = Some(Instant::now() + pause);
        complain(hand.nacks, pause);
    }
}

impl Hand {
    /// The records of the batch, if someone still waits for it.
    fn wanted(&self) -> Option<Arc<[Record]>> {
        let offer = self.offer.as_ref()?;
        (!offer.stored.is_closed()).then(|| offer.records.clone())
    }

    /// Whether the runtime had the batch.
    fn take_back(&mut self) -> bool {
        if !self.is_out {
            tracing::warn!(
                "the connectors runtime told the result of a batch that it does not have"
            );
        }
        std::mem::take(&mut self.is_out)
    }
}

/// Says it each time: there are few of them before the source is dead.
fn complain(nacks: u32, pause: Duration) {
    if nacks < MOST_NACKS {
        tracing::error!(
            "the connectors runtime has not stored a batch (or the source is being closed): {nacks} in a row, and after \
             {MOST_NACKS} it stops this source for good; the same messages are handed to it again after {pause:?}, and their \
             clients wait; see the runtime's log for the reason: Iggy away, the topic of [[streams]] missing, a schema \
             or transform that does not take a payload"
        );
    } else {
        tracing::error!(
            "the connectors runtime has not stored {nacks} batches in a row and HAS STOPPED THIS SOURCE: nothing is stored or \
             acknowledged any more; remove the reason (see the runtime's log), then restart the source: POST \
             /sources/{{key}}/restart"
        );
    }
}

/// See [`hand_over`].
struct Handed {
    log: Arc<dyn Log>,
    target: Target,
    offers: mpsc::Sender<Offer>,
}

#[async_trait]
impl Log for Handed {
    async fn append(&self, triple: &Triple, records: &[Record]) -> Result<(), LogError> {
        if triple.target != self.target {
            return self.log.append(triple, records).await;
        }
        let (stored, told) = oneshot::channel();
        let offer = Offer {
            records: records.into(),
            stored,
        };
        if self.offers.send(offer).await.is_ok() && told.await.is_ok() {
            return Ok(());
        }
        // The source is gone, and nobody will ever know what became of the batch: whoever appends is stopped soon.
        std::future::pending().await
    }

    async fn ping(&self) -> Result<(), LogError> {
        self.log.ping().await
    }

    async fn login(&self, username: &str, password: &str) -> Result<(), LogError> {
        self.log.login(username, password).await
    }

    async fn topic(&self, target: &Target) -> Result<Option<TopicInfo>, LogError> {
        self.log.topic(target).await
    }

    async fn create(&self, target: &Target, spec: &TopicSpec) -> Result<TopicInfo, LogError> {
        self.log.create(target, spec).await
    }

    async fn poll(&self, triple: &Triple, from: u64, max: u32) -> Result<Polled, LogError> {
        self.log.poll(triple, from, max).await
    }

    async fn end(&self, triple: &Triple) -> Result<u64, LogError> {
        self.log.end(triple).await
    }

    async fn stored_within(&self, triple: &Triple, age: Duration) -> Result<u64, LogError> {
        self.log.stored_within(triple, age).await
    }

    async fn committed(&self, triple: &Triple, consumer: &str) -> Result<Option<u64>, LogError> {
        self.log.committed(triple, consumer).await
    }

    async fn commit(&self, triple: &Triple, consumer: &str, offset: u64) -> Result<(), LogError> {
        self.log.commit(triple, consumer, offset).await
    }

    async fn forget(&self, triple: &Triple, consumer: &str) -> Result<(), LogError> {
        self.log.forget(triple, consumer).await
    }

    async fn close(&self) {
        self.log.close().await;
    }
}
