//! Delivery: from Iggy to the subscribers.
//!
//! A [`Delivery`] has one [`reader`] per partition that anyone wants (D1). A subscription is a [`cursor`] at that reader
//! ([`routes`]), or behind it ([`catch_up`]); what it is offered goes into its client's [`outbox`] and is entered in the
//! partition's [`ledger`], so that polling is never mistaken for delivering: only what is done with everything before it
//! is committed. Who costs the others too much is closed ([`evict`]); [`state`] shows how everybody does. Delivery knows
//! the log and the map's envelope, and nothing of sessions: they hold an outbox and ask for subscriptions.
//!
//! What always holds: a subscription is written down before its readers are asked, and [`Delivery::leave`] takes a client
//! off all of them, whatever was under way; a subscription reads the partitions that its topics have, also after their
//! number has changed ([`Delivery::learn`]).

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::Limits;
use crate::log::appends::Appends;
use crate::log::{Log, LogError, Target, TopicInfo, Triple};
use crate::mapping::{Partitions, TopicMap};
use crate::mqtt::{QoS, TopicName};
use crate::observe::Counters;

pub mod catch_up;
pub mod cursor;
pub mod evict;
pub mod ledger;
pub mod outbox;
pub mod poll_size;
pub mod reader;
pub mod routes;
pub mod state;
pub mod unacknowledged;

use catch_up::CatchUps;
pub use evict::Eviction;
use ledger::SharedLedger;
pub use outbox::{ConnectionId, Outbox, OutboxTotal, Pieces};
use reader::{Known, Reader, Shared};
use routes::{Context, Resume, Routes};

/// By so much the clocks of Iggy and of this machine may differ when a subscription moves to another partition. More
/// would only read more records for nothing.
const CLOCK_SLACK: Duration = Duration::from_secs(10);

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
}

/// What a subscription has to read beside what it reads, because a topic in Iggy has another number of partitions.
struct Move {
    outbox: Arc<Outbox>,
    topic: TopicName,
    added: Vec<(Triple, Begin)>,
}

/// Where a subscription begins to read a partition.
#[derive(Debug, Clone, Copy)]
enum Begin {
    /// With what is stored from now on, and what the last run had not finished.
    Now,
    /// With what was stored within this time.
    Within(Duration),
    /// With the first record.
    First,
}

/// The delivery role of a gateway.
pub struct Delivery {
    log: Arc<dyn Log>,
    appends: Arc<Appends>,
    map: Arc<TopicMap>,
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
    /// Those who leave now leave because the role ends.
    is_ending: AtomicBool,
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
            readers: Mutex::default(),
            subscriptions: Mutex::default(),
            resumes: Mutex::default(),
            is_ending: AtomicBool::new(false),
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
        let is_new;
        {
            let mut all = self.subscriptions.lock();
            let topics = all.entry(outbox.id()).or_default();
            let before = topics.remove(&topic);
            is_new = before.is_none();
            for triple in before.into_iter().flat_map(|one| one.triples) {
                if triples.contains(&triple) {
                    continue;
                }
                // Something that was stored there before the number of partitions changed may still be to come.
                match exists(&triple) {
                    true => triples.push(triple),
                    false => gone.push(triple),
                }
            }
            let subscription = Subscription {
                outbox: outbox.clone(),
                qos,
                places: places.iter().map(|place| (place.clone(), now)).collect(),
                triples: triples.clone(),
            };
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
                // One that was there before goes on where it is, for whoever tries again (D5).
                if is_new {
                    self.unsubscribe(outbox.id(), &topic);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// When the topic was made. Asked before its partitions' ends are, so that if it is made anew in between, that will be
    /// noticed; once for all its partitions.
    async fn created(
        &self,
        target: &Target,
        created: &mut HashMap<Target, u64>,
    ) -> Result<u64, LogError> {
        if let Some(micros) = created.get(target) {
            return Ok(*micros);
        }
        let info = self.log.topic(target).await?;
        let info = info.ok_or_else(|| LogError::NoSuchTarget(target.to_string()))?;
        created.insert(target.clone(), info.created_micros);
        Ok(info.created_micros)
    }

    async fn begin(
        self: &Arc<Self>,
        outbox: &Arc<Outbox>,
        topic: &TopicName,
        qos: QoS,
        triple: &Triple,
        begin: Begin,
        created: &mut HashMap<Target, u64>,
    ) -> Result<(), LogError> {
        loop {
            let existing = self.readers.lock().get(triple).cloned();
            let created_micros = match existing {
                Some(_) => None,
                None => Some(self.created(&triple.target, created).await?),
            };
            let position = existing
                .as_ref()
                .map(|shared| shared.routes.lock().position());
            // A new reader starts at the end: only what is stored from now on is promised. One that is there already
            // may stand beyond the end, if the topic was made anew since it last looked, and would miss what comes.
            let end = self.log.end(triple).await?;
            let from = match begin {
                Begin::Now => None,
                Begin::First => Some(0),
                Begin::Within(age) => Some(self.log.stored_within(triple, age).await?),
            };
            let shared = match (existing, created_micros) {
                (Some(shared), _) => {
                    if let Some((position, epoch)) = position
                        && position > end
                    {
                        shared.is_beyond(&*self.log, (position, epoch), end).await?;
                    }
                    shared
                }
                (None, created) => {
                    let created = created.unwrap_or_default();
                    self.add_reader(triple, end, created).await?
                }
            };
            let turn = {
                let mut routes = shared.routes.lock();
                if routes.is_stopped() {
                    drop(routes);
                    self.forget(&shared);
                    continue;
                }
                routes.subscribe(outbox, topic, qos, from, Instant::now())
            };
            shared.wake.notify_one();
            if let Some(turn) = turn {
                self.catch_ups.start(&shared, turn);
            }
            return Ok(());
        }
    }

    /// The reader of the partition, which is made if there is none.
    async fn add_reader(
        self: &Arc<Self>,
        triple: &Triple,
        end: u64,
        created_micros: u64,
    ) -> Result<Arc<Shared>, LogError> {
        let (committed, resume) = self.resume(triple, end).await?;
        let mut readers = self.readers.lock();
        let place = match readers.entry(triple.clone()) {
            Entry::Occupied(known) => return Ok(known.get().clone()),
            Entry::Vacant(place) => place,
        };
        let shared = Arc::new(Shared {
            triple: triple.clone(),
            routes: Mutex::new(Routes::starting_at(end, resume, Instant::now())),
            context: Context {
                ledger: SharedLedger::starting_at(end),
                counters: self.counters.clone(),
                partition: triple.partition,
                foreign: self.map.foreign(&triple.target).cloned(),
            },
            wake: self.appends.listen(triple),
            known: Mutex::new(Known {
                created_micros,
                committed,
                failing_since: None,
            }),
        });
        place.insert(shared.clone());
        let reader = Reader {
            shared: shared.clone(),
            log: self.log.clone(),
            limits: self.limits.clone(),
            consumer: self.consumer.clone(),
            catch_ups: self.catch_ups.clone(),
            stop: self.stop.clone(),
        };
        let (delivery, ended) = (self.clone(), shared.clone());
        self.tasks.spawn(async move {
            reader.run().await;
            delivery.forget(&ended);
        });
        Ok(shared)
    }

    /// What is committed, and what is to be resumed, of a partition that ends at `end`.
    async fn resume(
        &self,
        triple: &Triple,
        end: u64,
    ) -> Result<(Option<u64>, Option<Resume>), LogError> {
        if Instant::now() >= self.resume_until {
            return Ok((None, None));
        }
        if let Some(resume) = self.resumes.lock().get(triple) {
            // A reader that has ended meanwhile has left the committed offset where this begins, or there is none.
            let committed = resume.and_then(|resume| resume.from.checked_sub(1));
            return Ok((committed, *resume));
        }
        let committed = self.log.committed(triple, &self.consumer).await?;
        let from = match committed {
            None => None,
            Some(committed) if committed >= end => {
                self.counters.log_regressions.increment();
                tracing::warn!(%triple, committed, end, "the log has become shorter than what is committed; the committed offset is lowered");
                Some(end)
            }
            Some(committed) => {
                let window = self.limits.resume_window;
                let fresh = self.log.stored_within(triple, window).await?;
                Some(fresh.max(committed + 1).min(end))
            }
        };
        if let Some(from) = from.filter(|from| *from < end) {
            tracing::info!(%triple, from, end, "what was not acknowledged before the restart is delivered again to those who subscribe now");
        }
        // Also if it begins at the end: not all who were there come back before something is stored.
        let until = self.resume_until;
        let resume = from.map(|from| Resume { from, until });
        let known = *self.resumes.lock().entry(triple.clone()).or_insert(resume);
        Ok((committed, known))
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

    fn reader(&self, triple: &Triple) -> Option<Arc<Shared>> {
        self.readers.lock().get(triple).cloned()
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

    /// What Iggy says of a topic now: subscriptions move to its partitions, and readers of a topic that was made anew
    /// begin anew. Nothing that was stored in a new place after the number changed is missed. On an error it is to be
    /// told again.
    pub async fn learn(self: &Arc<Self>, target: &Target, info: TopicInfo) -> Result<(), LogError> {
        let mut to_begin_anew = Vec::new();
        let readers: Vec<_> = {
            let readers = self.readers.lock();
            let of_target = |shared: &&Arc<Shared>| shared.triple.target == *target;
            readers.values().filter(of_target).cloned().collect()
        };
        for shared in readers {
            let created = &mut shared.known.lock().created_micros;
            if *created == info.created_micros {
                continue;
            }
            *created = info.created_micros;
            to_begin_anew.push(shared.clone());
        }
        for shared in to_begin_anew {
            shared.begin_anew();
        }
        for moving in self.moves(target, info.partitions) {
            self.finish_move(target, info.partitions, moving).await?;
        }
        Ok(())
    }

    /// Takes subscriptions to `target` off the partitions that are gone; returns what they have to read beside the others.
    fn moves(&self, target: &Target, count: u32) -> Vec<Move> {
        let now = Instant::now();
        let mut moves = Vec::new();
        let mut gone: Vec<(ConnectionId, TopicName, Triple)> = Vec::new();
        for (connection, topics) in &mut *self.subscriptions.lock() {
            for (topic, subscription) in topics {
                let mut added = Vec::new();
                for (place, confirmed) in &mut subscription.places {
                    if place.target != *target {
                        continue;
                    }
                    if place.count == count {
                        *confirmed = now;
                        continue;
                    }
                    let before: Vec<Triple> = place.triples().collect();
                    let new = Place {
                        count,
                        ..place.clone()
                    };
                    let after: Vec<Triple> = new.triples().collect();
                    // In those that are still there, something that was stored before the number changed, or by one who
                    // has not noticed it yet, may be to come.
                    for triple in before.iter().filter(|triple| triple.partition >= count) {
                        subscription.triples.retain(|other| other != triple);
                        gone.push((*connection, topic.clone(), triple.clone()));
                    }
                    for triple in after.into_iter().filter(|triple| !before.contains(triple)) {
                        // All that is in a new partition was stored after the number changed; in one that was there
                        // already, it is what was stored since the number was last seen to be the old one.
                        let begin = if triple.partition >= place.count {
                            Begin::First
                        } else {
                            Begin::Within(now.duration_since(*confirmed) + CLOCK_SLACK)
                        };
                        if !subscription.triples.contains(&triple) {
                            subscription.triples.push(triple.clone());
                        }
                        added.push((triple, begin));
                    }
                    moves.push(Move {
                        outbox: subscription.outbox.clone(),
                        topic: topic.clone(),
                        added: std::mem::take(&mut added),
                    });
                }
            }
        }
        for (connection, topic, triple) in &gone {
            self.unroute(*connection, topic, [triple]);
        }
        moves
    }

    async fn finish_move(
        self: &Arc<Self>,
        target: &Target,
        count: u32,
        Move {
            outbox,
            topic,
            added,
        }: Move,
    ) -> Result<(), LogError> {
        let qos = |delivery: &Self, triple: &Triple| {
            let all = delivery.subscriptions.lock();
            let subscription = all.get(&outbox.id())?.get(&topic)?;
            let is_there = subscription.triples.contains(triple);
            is_there.then_some(subscription.qos)
        };
        let mut created = HashMap::new();
        for (triple, begin) in &added {
            let Some(mut begun) = qos(self, triple) else {
                continue;
            };
            self.begin(&outbox, &topic, begun, triple, *begin, &mut created)
                .await?;
            // The client may have unsubscribed, subscribed anew or left meanwhile.
            loop {
                match qos(self, triple) {
                    None => {
                        self.unroute(outbox.id(), &topic, [triple]);
                        break;
                    }
                    Some(now) if now != begun => {
                        begun = now;
                        self.begin(&outbox, &topic, begun, triple, *begin, &mut created)
                            .await?;
                    }
                    Some(_) => break,
                }
            }
        }
        let mut all = self.subscriptions.lock();
        let subscription = all
            .get_mut(&outbox.id())
            .and_then(|topics| topics.get_mut(&topic));
        let places = subscription.into_iter().flat_map(|one| &mut one.places);
        for (place, confirmed) in places.filter(|(place, _)| place.target == *target) {
            place.count = count;
            *confirmed = Instant::now();
        }
        drop(all);
        if !added.is_empty() {
            self.counters.subscriptions_moved.increment();
        }
        Ok(())
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
