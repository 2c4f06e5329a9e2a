//! Delivery: from Iggy to the subscribers.
//!
//! A [`Delivery`] has one [`reader`] per partition that anyone wants (D1; `readers`). A subscription is a [`cursor`] at that reader
//! ([`routes`]), or behind it ([`catch_up`]); what it is offered goes into its client's [`outbox`] and is entered in the
//! partition's [`ledger`], so that polling is never mistaken for delivering: only what is done with everything before it
//! is committed. Who costs the others too much is closed ([`evict`]); [`state`] shows how everybody does. Delivery knows
//! the log and the map's envelope, and nothing of sessions: they hold an outbox and ask for subscriptions.
//!
//! What always holds: a subscription is written down before its readers are asked, and [`Delivery::leave`] takes a client
//! off all of them, whatever was under way; a subscription reads the partitions that its topics have, also after their
//! number has changed ([`Delivery::learn`], `moves`), or another map stores them elsewhere ([`Delivery::prepare`], `remap`).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::Limits;
use crate::log::appends::Appends;
use crate::log::{Log, LogError, Target, Triple};
use crate::mapping::{LiveMap, Partitions};
use crate::mqtt::{QoS, TopicName};
use crate::observe::Counters;

pub mod catch_up;
pub mod cursor;
pub mod evict;
pub mod ledger;
pub mod lines;
mod moves;
pub mod outbox;
pub mod poll_size;
pub mod reader;
mod readers;
mod remap;
pub mod routes;
pub mod state;
pub mod unacknowledged;

use catch_up::CatchUps;
pub use evict::Eviction;
use lines::Lines;
pub use outbox::{ConnectionId, Outbox, OutboxTotal, Pieces};
use reader::Shared;
use readers::Begin;
use routes::Resume;
use state::DeliveryState;

/// A topic in Iggy, as a subscription reads it.
#[derive(Debug, Clone)]
pub struct Place {
    /// The topic.
    pub target: Target,
    /// Which of its partitions.
    pub partitions: Partitions,
    /// How many it has.
    pub count: u32,
}

impl Place {
    fn triples(&self) -> impl Iterator<Item = Triple> {
        self.partitions.of(self.count).map(|partition| Triple {
            target: self.target.clone(),
            partition,
        })
    }
}

/// A client's subscription to one topic.
struct Subscription {
    outbox: Arc<Outbox>,
    qos: QoS,
    /// Where the topic is stored, and when the number of partitions was last known to be that.
    places: Vec<(Place, Instant)>,
    /// Where it is at a reader, or about to be.
    triples: Vec<Triple>,
    /// Where a coming map will store the topic.
    coming: Option<Vec<Place>>,
    /// Among the triples those where an earlier map stored the topic.
    leaving: HashMap<Triple, remap::Left>,
}

/// The delivery role of a gateway.
pub struct Delivery {
    log: Arc<dyn Log>,
    appends: Arc<Appends>,
    map: Arc<LiveMap>,
    limits: Arc<Limits>,
    counters: Arc<Counters>,
    consumer: Arc<str>,
    readers: Mutex<HashMap<Triple, Arc<Shared>>>,
    subscriptions: Mutex<HashMap<ConnectionId, HashMap<TopicName, Subscription>>>,
    /// Until when those who subscribe also get what the last run had not finished.
    resume_until: Instant,
    /// Where that begins, of the partitions that were asked about; `None` if there is nothing.
    resumes: Mutex<HashMap<Triple, Option<Resume>>>,
    catch_ups: Arc<CatchUps>,
    lines: Arc<Lines>,
    /// See [`Delivery::seen`].
    seen: ArcSwap<DeliveryState>,
    /// Those who leave now leave because the role ends.
    is_ending: AtomicBool,
    /// Whether a task leaves the places of earlier maps.
    is_letting_go: AtomicBool,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Delivery {
    /// Without readers. Committed offsets are kept in Iggy under `consumer`.
    pub fn new(
        log: Arc<dyn Log>,
        appends: Arc<Appends>,
        map: Arc<LiveMap>,
        limits: Arc<Limits>,
        counters: Arc<Counters>,
        consumer: &str,
    ) -> Arc<Self> {
        let tasks = TaskTracker::new();
        let stop = CancellationToken::new();
        Arc::new(Self {
            catch_ups: CatchUps::new(log.clone(), limits.clone(), tasks.clone(), stop.clone()),
            log,
            appends,
            map,
            resume_until: Instant::now() + limits.resume_window,
            limits,
            counters,
            consumer: consumer.into(),
            lines: Arc::default(),
            seen: ArcSwap::default(),
            readers: Mutex::default(),
            subscriptions: Mutex::default(),
            resumes: Mutex::default(),
            is_ending: AtomicBool::new(false),
            is_letting_go: AtomicBool::new(false),
            tasks,
            stop,
        })
    }

    /// Subscribes the client of `outbox` to `topic`, which is stored in `places`; an older subscription to the topic is
    /// replaced. What is stored after this returns is delivered. On an error nothing new is subscribed, and an older
    /// subscription goes on until it is ended. If this is dropped before it has returned, the subscription is there until
    /// the client leaves it.
    pub async fn subscribe(
        self: &Arc<Self>,
        outbox: &Arc<Outbox>,
        topic: &TopicName,
        qos: QoS,
        places: Vec<Place>,
    ) -> Result<(), LogError> {
        // Kept beyond this packet, so not as a slice of it.
        let topic = topic.detached();
        let now = Instant::now();
        let mut triples: Vec<Triple> = Vec::new();
        for triple in places.iter().flat_map(Place::triples) {
            if !triples.contains(&triple) {
                triples.push(triple);
            }
        }
        let exists = |triple: &Triple| {
            let of_target = |place: &&Place| place.target == triple.target;
            let place = places.iter().find(of_target);
            place.is_some_and(|place| triple.partition < place.count)
        };
        let mut gone = Vec::new();
        let (is_new, leaves);
        {
            let mut all = self.subscriptions.lock();
            let topics = all.entry(outbox.id()).or_default();
            let before = topics.remove(&topic);
            is_new = before.is_none();
            let (read, mut leaving) = before
                .map(|one| (one.triples, one.leaving))
                .unwrap_or_default();
            leaving.retain(|triple, _| !triples.contains(triple));
            for triple in read {
                if triples.contains(&triple) {
                    continue;
                }
                // Something that was stored there before the number of partitions changed, or another map came into force,
                // may still be to come.
                match exists(&triple) || leaving.contains_key(&triple) {
                    true => triples.push(triple),
                    false => gone.push(triple),
                }
            }
            let subscription = Subscription {
                outbox: outbox.clone(),
                qos,
                places: places.iter().map(|place| (place.clone(), now)).collect(),
                triples: triples.clone(),
                coming: None,
                leaving: leaving.clone(),
            };
            leaves = leaving;
            topics.insert(topic.clone(), subscription);
        }
        if self.is_ending.load(Ordering::SeqCst) {
            outbox.owe_at_end();
        }
        self.unroute(outbox.id(), &topic, &gone);
        let mut created = HashMap::new();
        for triple in &triples {
            let begun = self.begin(outbox, &topic, qos, triple, Begin::Now, &mut created);
            if let Err(error) = begun.await {
                // An old place that is not there any more has nothing to give.
                if leaves.contains_key(triple) {
                    continue;
                }
                // One that was there before goes on where it is, for whoever tries again (D5).
                if is_new {
                    self.unsubscribe(outbox.id(), &topic);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Ends the connection's subscription to `topic`. Copies already queued are still delivered.
    pub fn unsubscribe(&self, connection: ConnectionId, topic: &TopicName) {
        let gone = {
            let mut all = self.subscriptions.lock();
            let Some(topics) = all.get_mut(&connection) else {
                return;
            };
            let gone = topics.remove(topic);
            if topics.is_empty() {
                all.remove(&connection);
            }
            gone
        };
        if let Some(gone) = gone {
            self.unroute(connection, topic, &gone.triples);
        }
    }

    fn unroute<'a>(
        &self,
        connection: ConnectionId,
        topic: &TopicName,
        triples: impl IntoIterator<Item = &'a Triple>,
    ) {
        for triple in triples {
            if let Some(shared) = self.reader(triple) {
                let mut routes = shared.routes.lock();
                routes.unsubscribe(connection, topic, Instant::now());
            }
        }
    }

    /// Ends all subscriptions of the connection. Closing its outbox is the caller's, and ends its copies.
    pub fn leave(&self, connection: ConnectionId) {
        let gone = self.subscriptions.lock().remove(&connection);
        let owes = self.is_ending.load(Ordering::SeqCst);
        let triples: HashSet<Triple> = gone
            .into_iter()
            .flat_map(HashMap::into_values)
            .flat_map(|subscription| subscription.triples)
            .collect();
        for triple in &triples {
            if let Some(shared) = self.reader(triple) {
                let mut routes = shared.routes.lock();
                routes.leave(connection, owes, &shared.context, Instant::now());
            }
        }
    }

    /// Which topics in Iggy subscriptions read.
    pub fn targets(&self) -> HashSet<Target> {
        let all = self.subscriptions.lock();
        let places = all
            .values()
            .flat_map(HashMap::values)
            .flat_map(|subscription| &subscription.places);
        places.map(|(place, _)| place.target.clone()).collect()
    }

    /// Whose cursors are further behind their readers than `records` or `time`.
    pub fn too_far_behind(&self, records: u64, time: Duration) -> HashSet<ConnectionId> {
        let shared: Vec<_> = self.readers.lock().values().cloned().collect();
        shared
            .iter()
            .flat_map(|shared| shared.routes.lock().too_far_behind(records, time))
            .collect()
    }

    /// How many partitions are read.
    pub fn readers(&self) -> usize {
        self.readers.lock().len()
    }

    /// The role is about to end: what the clients have not acknowledged when they leave now is not committed, so that
    /// those that come back after a restart get it.
    pub fn begin_to_end(&self) {
        self.is_ending.store(true, Ordering::SeqCst);
        let all = self.subscriptions.lock();
        for topics in all.values() {
            if let Some(subscription) = topics.values().next() {
                subscription.outbox.owe_at_end();
            }
        }
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
