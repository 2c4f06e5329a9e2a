//! Ingest: from a client's PUBLISH to Iggy, and back to its PUBACK.
//!
//! **PUBLISH is not PUBACK: a PUBACK is a promise that Iggy has committed the message (N1).** A PUBLISH is resolved by the
//! topic map, takes its share of the [`room`], waits in its partition's [`lane`] and is acknowledged through its
//! [`ticket`] in the connection's order ([`acks`]). One that can never be stored where it should goes to the dead-letter
//! topic, or closes its connection. Ingest knows the map, the targets and the log, and nothing of sessions: it talks back
//! through tickets.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::backoff::Backoff;
use crate::config::{IngestConfig, Limits, OnUnstorable, Produce};
use crate::limited::Limited;
use crate::log::appends::Appends;
use crate::log::{Log, Target, Triple};
use crate::mapping::envelope::{self, HeaderSet, Published};
use crate::mapping::{Resolution, Resolver, RuleId, TopicPlan};
use crate::mqtt::QoS;
use crate::observe::Counters;
use crate::targets::{DEAD_LETTER_PLAN, Targets};
use crate::wire::Publish;

pub mod acks;
pub mod lane;
pub mod pace;
pub mod publisher;
pub mod refusal;
pub mod room;
pub mod runtime;
pub mod ticket;

pub use acks::Why;
use lane::{Entry, Lane};
use pace::Pace;
pub use publisher::{AckWriter, Departed, Publisher, Received};
pub use refusal::Reason;
use room::Room;
pub use ticket::Ticket;

/// The lanes of one topic.
enum Lanes {
    /// Iggy is being asked about the topic; what waits is in the order of arrival.
    Pending(VecDeque<Entry>),
    /// It exists: a lane per partition, made when it is needed and dropped when it is idle.
    Known {
        lanes: Vec<Option<Arc<Lane>>>,
        /// Where the next record without a key goes.
        turn: usize,
        /// The rule that first led here, and what it says of a missing topic.
        rule: RuleId,
        plan: TopicPlan,
    },
}

/// What an ingest role is made of.
pub struct Parts {
    /// Where it appends.
    pub log: Arc<dyn Log>,
    /// Who wants to know of appends.
    pub appends: Arc<Appends>,
    /// The topic map.
    pub map: Arc<Resolver>,
    /// Which topics exist.
    pub targets: Arc<Targets>,
    /// Which headers are written.
    pub headers: HeaderSet,
    /// What becomes of what cannot be stored.
    pub config: IngestConfig,
    /// Bounds.
    pub limits: Arc<Limits>,
    /// Where outcomes are counted.
    pub counters: Arc<Counters>,
}

/// The ingest role of a gateway.
pub struct Ingest {
    log: Arc<dyn Log>,
    appends: Arc<Appends>,
    map: Arc<Resolver>,
    targets: Arc<Targets>,
    headers: HeaderSet,
    limits: Arc<Limits>,
    counters: Arc<Counters>,
    room: Arc<Room>,
    lanes: Mutex<HashMap<Target, Lanes>>,
    /// The connectors runtime chooses the partitions, so one lane for each topic is enough.
    one_lane: bool,
    dead_letters: Option<Arc<Lane>>,
    ids: MessageIds,
    refusals: Limited,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Ingest {
    /// Without lanes.
    pub fn new(parts: Parts) -> Arc<Self> {
        let Parts {
            log,
            appends,
            map,
            targets,
            headers,
            config,
            limits,
            counters,
        } = parts;
        Arc::new_cyclic(|ingest| {
            let dead_letters = (config.on_unstorable == OnUnstorable::DeadLetter).then(|| {
                let triple = Triple {
                    target: config.dead_letter.clone(),
                    partition: 0,
                };
                let pace = Pace::new(limits.dead_letter_rate, Instant::now());
                let (rule, plan) = (RuleId::DeadLetter, DEAD_LETTER_PLAN);
                Lane::new(triple, rule, plan, Some(pace), ingest.clone())
            });
            Self {
                log,
                appends,
                map,
                targets,
                headers,
                room: Room::new(limits.ingest_bytes),
                limits,
                counters,
                lanes: Mutex::default(),
                one_lane: config.produce == Produce::Runtime,
                dead_letters,
                ids: MessageIds::new(),
                refusals: Limited::default(),
                tasks: TaskTracker::new(),
                stop: CancellationToken::new(),
            }
        })
    }

    /// Takes `publish`, whose ticket says whose it is. Returns when it has its place in a lane (or has ended already), not
    /// when it is stored: while its client's share of the room is full, a QoS 1 publish waits here, which is what stops
    /// reading from its connection.
    pub async fn submit(self: &Arc<Self>, publish: Publish, ticket: Ticket) {
        let record = envelope::seal(
            &Published {
                topic: &publish.topic,
                qos: publish.qos,
                packet_id: publish.packet_id,
                retain: publish.retain,
                dup: publish.dup,
                client_id: &ticket.publisher().client,
                payload: &kept(publish.payload),
            },
            self.ids.next(),
            self.headers,
        );
        let share = &ticket.publisher().share;
        let hold = match publish.qos {
            QoS::AtMostOnce => match share.try_take(&self.room, record.size()) {
                Some(hold) => hold,
                None => return ticket.shed(),
            },
            // The role has ended if there is none; dropping the ticket fails the publish.
            _ => match share.take(&self.room, record.size()).await {
                Some(hold) => hold,
                None => return,
            },
        };
        let mut entry = Entry {
            record,
            key: None,
            ticket,
            hold,
        };
        match self.map.resolve(&publish.topic) {
            Ok(resolution) => {
                entry.key = resolution.key.clone();
                self.enqueue(&resolution, entry);
            }
            Err(refusal) => self.unstorable(entry, (&refusal).into(), None, &refusal),
        }
    }

    /// One lock for all lanes: it is held for two map operations, and gives the order in which publishes to a topic
    /// that is still being looked up go to its lanes.
    fn enqueue(self: &Arc<Self>, resolution: &Resolution, entry: Entry) {
        let target = &resolution.target;
        let mut all = self.lanes.lock();
        if !all.contains_key(target) {
            let (rule, plan) = (resolution.rule, &resolution.plan);
            let lanes = match self.targets.known(target) {
                Some(info) => Lanes::known(self.lanes_for(info.partitions), rule, plan.clone()),
                None => {
                    self.look_up(target.clone(), rule, plan.clone(), Vec::new());
                    Lanes::Pending(VecDeque::new())
                }
            };
            all.insert(target.clone(), lanes);
        }
        if let Some(lanes) = all.get_mut(target) {
            self.add(target, lanes, entry);
        }
    }

    /// How many lanes a topic with so many partitions has.
    fn lanes_for(&self, partitions: u32) -> u32 {
        if self.one_lane { 1 } else { partitions.max(1) }
    }

    fn add(self: &Arc<Self>, target: &Target, lanes: &mut Lanes, entry: Entry) {
        let (lanes, turn, rule, plan) = match lanes {
            Lanes::Pending(waiting) => return waiting.push_back(entry),
            Lanes::Known {
                lanes,
                turn,
                rule,
                plan,
            } => (lanes, turn, rule, plan),
        };
        let partition = match &entry.key {
            Some(key) => key.partition(lanes.len() as u32) as usize,
            None => {
                *turn = (*turn + 1) % lanes.len();
                *turn
            }
        };
        // A partition is always below the count, and the count is at least 1.
        let Some(place) = lanes.get_mut(partition) else {
            return;
        };
        let lane = place.get_or_insert_with(|| {
            let triple = Triple {
                target: target.clone(),
                partition: partition as u32,
            };
            Lane::new(triple, *rule, plan.clone(), None, Arc::downgrade(self))
        });
        lane.push(self, entry);
    }

    /// Asks Iggy for a topic until it is known whether it exists, then sends what waits to its lanes: first what `retiring`
    /// lanes give back, then what has come since, in order.
    fn look_up(
        self: &Arc<Self>,
        target: Target,
        rule: RuleId,
        plan: TopicPlan,
        retiring: Vec<Arc<Lane>>,
    ) {
        let ingest = self.clone();
        self.tasks.spawn(async move {
            let mut given_back = Vec::new();
            for lane in retiring {
                given_back.extend(lane.retire().await);
            }
            let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1));
            let info = loop {
                let asked = tokio::select! {
                    biased;
                    // Dropping what waits fails it.
                    () = ingest.stop.cancelled() => return drop(ingest.take_pending(&target)),
                    asked = ingest.targets.ensure(rule, &target, &plan) => asked,
                };
                match asked {
                    Ok(info) => break info,
                    Err(error) if error.is_transient() => {
                        if backoff.is_fresh() {
                            tracing::warn!(%error, "target not known yet; Iggy is asked again until it answers");
                        }
                        sleep(backoff.next_pause()).await;
                    }
                    Err(error) => {
                        let waiting = ingest.take_pending(&target);
                        for entry in given_back.into_iter().chain(waiting) {
                            ingest.unstorable(entry, (&error).into(), Some(rule), &error);
                        }
                        return;
                    }
                }
            };
            let mut all = ingest.lanes.lock();
            let Some(Lanes::Pending(waiting)) = all.remove(&target) else {
                return;
            };
            let mut lanes = Lanes::known(ingest.lanes_for(info.partitions), rule, plan);
            for entry in given_back.into_iter().chain(waiting) {
                ingest.add(&target, &mut lanes, entry);
            }
            all.insert(target, lanes);
        });
    }

    fn take_pending(&self, target: &Target) -> VecDeque<Entry> {
        match self.lanes.lock().remove(target) {
            Some(Lanes::Pending(waiting)) => waiting,
            _ => VecDeque::new(),
        }
    }

    /// Iggy was asked about the topic by another part of the gateway.
    pub fn partitions_learned(self: &Arc<Self>, target: &Target, partitions: u32) {
        self.repartition(target, partitions);
    }

    /// Iggy says how many partitions the topic has now. If it is another number, keys move with it.
    fn repartition(self: &Arc<Self>, target: &Target, partitions: u32) {
        let mut all = self.lanes.lock();
        if let Some(Lanes::Known { lanes, .. }) = all.get(target)
            && lanes.len() != self.lanes_for(partitions) as usize
        {
            tracing::warn!(%target, before = lanes.len(), now = partitions, "the number of partitions has changed, and keys move with it");
            self.counters.repartitions.increment();
            self.begin_anew(&mut all, target);
        }
    }

    /// The topic is gone. When it is there again, it may have another number of partitions.
    fn forget(self: &Arc<Self>, target: &Target) {
        self.begin_anew(&mut self.lanes.lock(), target);
    }

    /// Every lane of the topic gives back what it has not appended, and all of it goes to new lanes, when Iggy has been asked
    /// about the topic; nothing that is published meanwhile overtakes it.
    fn begin_anew(self: &Arc<Self>, all: &mut HashMap<Target, Lanes>, target: &Target) {
        let Some(Lanes::Known {
            lanes, rule, plan, ..
        }) = all.get_mut(target)
        else {
            return;
        };
        let retiring: Vec<_> = std::mem::take(lanes).into_iter().flatten().collect();
        // At once, so that the lane that has found it does not try its partition again.
        retiring.iter().for_each(|lane| lane.begin_to_retire());
        let (rule, plan) = (*rule, plan.clone());
        all.insert(target.clone(), Lanes::Pending(VecDeque::new()));
        self.look_up(target.clone(), rule, plan, retiring);
    }

    /// Asks Iggy whether the topic still has as many partitions as its lanes.
    fn check_partitions(self: &Arc<Self>, target: &Target) {
        let (ingest, target) = (self.clone(), target.clone());
        self.tasks.spawn(async move {
            if let Ok(Some(info)) = ingest.log.topic(&target).await {
                ingest.targets.learn(&target, info);
                ingest.repartition(&target, info.partitions);
            }
        });
    }

    /// The lane has nothing to do.
    fn drop_idle(&self, lane: &Lane) {
        let mut all = self.lanes.lock();
        let target = &lane.triple.target;
        let Some(Lanes::Known { lanes, .. }) = all.get_mut(target) else {
            return;
        };
        let place = lanes.get_mut(lane.triple.partition as usize);
        // Nothing can be pushed meanwhile: that needs the lock.
        if let Some(place) = place
            && place
                .as_ref()
                .is_some_and(|known| std::ptr::eq(&**known, lane) && known.is_idle())
        {
            *place = None;
        }
    }

    /// The message can never be stored where it should.
    fn unstorable(
        self: &Arc<Self>,
        mut entry: Entry,
        reason: Reason,
        rule: Option<RuleId>,
        why: &dyn fmt::Display,
    ) {
        let publisher = entry.ticket.publisher().clone();
        if let Some(left_out) = self.refusals.allow(Instant::now()) {
            let topic = envelope::topic_text(&entry.record);
            tracing::warn!(
                client = %publisher.client, peer = %publisher.peer, topic, reason = reason.name(), %why, left_out,
                "publish refused"
            );
        }
        if let Some(first) = entry.ticket.dead_letter() {
            // The dead-letter topic cannot take it either.
            self.counters.dead_letters_failed.increment();
            return entry.ticket.refused(first);
        }
        let Some(lane) = &self.dead_letters else {
            return entry.ticket.refused(reason);
        };
        if !entry.ticket.has_slot() && lane.queued() >= self.limits.dead_letter_rate as usize {
            self.counters.dead_letters_dropped.increment();
            return entry.ticket.refused(reason);
        }
        let rule = rule.map(|rule| rule.to_string());
        let client = &publisher.client;
        envelope::mark_refused(&mut entry.record, reason.name(), rule.as_deref(), client);
        entry.ticket.becomes_dead_letter(reason);
        entry.key = None;
        lane.push(self, entry);
    }

    /// Lets what is queued finish, at most for `grace`; what is not finished then has failed.
    pub async fn close(&self, grace: Duration) {
        self.room.close();
        self.tasks.close();
        if timeout(grace, self.tasks.wait()).await.is_err() {
            tracing::warn!(
                "appends did not finish in time; their clients get no PUBACK and will send again"
            );
        }
        self.stop.cancel();
        self.tasks.wait().await;
    }
}

/// A payload that waits to be stored. As a slice of what was read from the socket it would keep all of that, 64 KiB at most,
/// which counts nowhere: a small one is copied, so that what is held is what is counted (N4), give or take a factor.
fn kept(payload: Bytes) -> Bytes {
    const SMALL: usize = 8 * 1024;
    match payload.len() {
        0..SMALL => Bytes::copy_from_slice(&payload),
        _ => payload,
    }
}

impl Lanes {
    fn known(count: u32, rule: RuleId, plan: TopicPlan) -> Self {
        Self::Known {
            lanes: vec![None; count as usize],
            turn: 0,
            rule,
            plan,
        }
    }
}

/// Ids for records: unique over all gateways by a random half, unique in this one by a counted half.
struct MessageIds {
    random: u128,
    count: AtomicU64,
}

impl MessageIds {
    fn new() -> Self {
        Self {
            random: u128::from(rand::random::<u64>()) << 64,
            count: AtomicU64::new(1),
        }
    }

    fn next(&self) -> u128 {
        self.random | u128::from(self.count.fetch_add(1, Ordering::Relaxed))
    }
}
