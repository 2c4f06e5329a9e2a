//! Delivery: from Iggy to the subscribers.
//!
//! A [`Delivery`] has one reader per partition that anyone wants (D1). A subscription is a cursor at that reader
//! ([`routes`]); what it is offered goes into its client's [`outbox`] and is entered in the partition's [`ledger`], so that
//! polling is never mistaken for delivering: only what is done with everything before it is committed. It knows the log
//! and the map's envelope, and nothing of sessions: they hold an outbox and ask for subscriptions.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::Limits;
use crate::log::appends::Appends;
use crate::log::{Log, LogError, Triple};
use crate::mapping::TopicMap;
use crate::mqtt::{QoS, TopicName};
use crate::observe::Counters;

pub mod ledger;
pub mod outbox;
pub mod poll_size;
pub mod reader;
pub mod routes;

use ledger::SharedLedger;
pub use outbox::{ConnectionId, Outbox, Pieces};
use reader::{Reader, Shared};
use routes::{Context, Routes};

/// The delivery role of a gateway.
pub struct Delivery {
    log: Arc<dyn Log>,
    appends: Arc<Appends>,
    map: Arc<TopicMap>,
    limits: Arc<Limits>,
    counters: Arc<Counters>,
    consumer: Arc<str>,
    readers: Mutex<HashMap<Triple, Arc<Shared>>>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Delivery {
    /// Without readers. Committed offsets are kept in Iggy under `consumer`.
    pub fn new(
        log: Arc<dyn Log>,
        appends: Arc<Appends>,
        map: Arc<TopicMap>,
        limits: Arc<Limits>,
        counters: Arc<Counters>,
        consumer: &str,
    ) -> Arc<Self> {
        Arc::new(Self {
            log,
            appends,
            map,
            limits,
            counters,
            consumer: consumer.into(),
            readers: Mutex::default(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        })
    }

    /// Subscribes the client of `outbox` to `topic` on `triples`. What is stored after this returns is delivered. On an
    /// error nothing is subscribed.
    pub async fn subscribe(
        self: &Arc<Self>,
        outbox: &Arc<Outbox>,
        topic: &TopicName,
        qos: QoS,
        triples: &[Triple],
    ) -> Result<(), LogError> {
        // Kept beyond this packet, so not as a slice of it.
        let topic = topic.detached();
        for (done, triple) in triples.iter().enumerate() {
            if let Err(error) = self.subscribe_one(outbox, &topic, qos, triple).await {
                self.unsubscribe(outbox.id(), &topic, &triples[..done]);
                return Err(error);
            }
        }
        Ok(())
    }

    async fn subscribe_one(
        self: &Arc<Self>,
        outbox: &Arc<Outbox>,
        topic: &TopicName,
        qos: QoS,
        triple: &Triple,
    ) -> Result<(), LogError> {
        loop {
            let existing = self.readers.lock().get(triple).cloned();
            let position = existing
                .as_ref()
                .map(|shared| shared.routes.lock().position());
            // A new reader starts at the end: only what is stored from now on is promised. One that is there already
            // may stand beyond the end, if the topic was made anew since it last looked, and would miss what comes.
            let end = self.log.end(triple).await?;
            if let Some(shared) = existing {
                let mut routes = shared.routes.lock();
                if !routes.is_stopped() {
                    let position = position.filter(|position| *position == routes.position());
                    if position.is_some_and(|position| position > end) {
                        routes.regress(end, &shared.context);
                        shared.context.counters.log_regressions.increment();
                    }
                    routes.subscribe(outbox, topic, qos);
                    return Ok(());
                }
                drop(routes);
                self.forget(&shared);
            }
            let mut readers = self.readers.lock();
            if let Entry::Vacant(place) = readers.entry(triple.clone()) {
                let wake = self.appends.listen(triple);
                let shared = Arc::new(Shared {
                    triple: triple.clone(),
                    routes: Mutex::new(Routes::starting_at(end)),
                    context: Context {
                        ledger: SharedLedger::starting_at(end),
                        wake: wake.clone(),
                        counters: self.counters.clone(),
                        partition: triple.partition,
                        foreign: self.map.foreign(&triple.target).cloned(),
                    },
                    wake,
                });
                shared.routes.lock().subscribe(outbox, topic, qos);
                place.insert(shared.clone());
                drop(readers);
                self.spawn_reader(shared);
                return Ok(());
            }
        }
    }

    fn spawn_reader(self: &Arc<Self>, shared: Arc<Shared>) {
        let reader = Reader {
            shared: shared.clone(),
            log: self.log.clone(),
            limits: self.limits.clone(),
            consumer: self.consumer.clone(),
            stop: self.stop.clone(),
        };
        let delivery = self.clone();
        self.tasks.spawn(async move {
            reader.run().await;
            delivery.forget(&shared);
        });
    }

    fn forget(&self, ended: &Arc<Shared>) {
        let mut readers = self.readers.lock();
        if readers
            .get(&ended.triple)
            .is_some_and(|shared| Arc::ptr_eq(shared, ended))
        {
            readers.remove(&ended.triple);
            self.appends.forget(&ended.triple, &ended.wake);
        }
    }

    /// Ends the connection's subscription to `topic` on `triples`. Copies already queued are still delivered.
    pub fn unsubscribe(&self, connection: ConnectionId, topic: &TopicName, triples: &[Triple]) {
        self.for_each_reader(triples, |routes| routes.unsubscribe(connection, topic));
    }

    /// Ends all that the connection wanted on `triples`. Closing its outbox is the caller's, and ends its copies.
    pub fn leave(&self, connection: ConnectionId, triples: &[Triple]) {
        self.for_each_reader(triples, |routes| routes.leave(connection));
    }

    fn for_each_reader(&self, triples: &[Triple], act: impl Fn(&mut Routes)) {
        for triple in triples {
            let shared = self.readers.lock().get(triple).cloned();
            if let Some(shared) = shared {
                act(&mut shared.routes.lock());
                shared.wake.notify_one();
            }
        }
    }

    /// How many partitions are read.
    pub fn readers(&self) -> usize {
        self.readers.lock().len()
    }

    /// Stops all readers after a last commit; waits for them at most `grace`.
    pub async fn close(&self, grace: Duration) {
        self.stop.cancel();
        self.tasks.close();
        if timeout(grace, self.tasks.wait()).await.is_err() {
            tracing::warn!("readers did not end in time; the last offsets may not be committed");
        }
    }
}

/// Closes the clients that have owed an acknowledgement for `ack_timeout`: a silent one must not hold an offset for ever
/// (D7). Runs until it is dropped. `clients` gives the outboxes that live now.
pub async fn evict_silent<F>(ack_timeout: Duration, clients: F)
where
    F: Fn(&dyn Fn(&Outbox) -> bool),
{
    loop {
        sleep((ack_timeout / 10).max(Duration::from_millis(10))).await;
        let now = tokio::time::Instant::now();
        clients(&|outbox| {
            outbox
                .owes_since()
                .is_some_and(|since| now.duration_since(since) >= ack_timeout)
        });
    }
}
