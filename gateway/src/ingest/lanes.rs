//! Which lanes a topic has, and how they change with it.
//!
//! What always holds: a topic has one lane for each partition that Iggy says it has, made when it is needed and dropped when
//! it is idle; while Iggy is asked about a topic, what is published to it waits in the order of arrival; when the number of
//! partitions changes, the topic was gone, or another map leads to it, the old lanes give back what they have before anything goes to new ones, so
//! that each key keeps its order (N2) and goes to one partition at a time (M3, M4).

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::Ingest;
use super::board::LaneState;
use super::lane::{Entry, Lane};
use crate::backoff::Backoff;
use crate::log::{Target, Triple};
use crate::mapping::{Destination, RuleId, TopicPlan};

/// The lanes of one topic.
pub(super) enum Lanes {
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
        /// The generation of the map that the rule is of.
        map: u64,
    },
}

impl Lanes {
    fn known(count: u32, Way { rule, plan, map }: Way) -> Self {
        Self::Known {
            lanes: vec![None; count as usize],
            turn: 0,
            rule,
            plan,
            map,
        }
    }
}

/// What ingest looks like from outside.
#[derive(Debug, Clone)]
pub struct IngestState {
    /// Bytes that wait to be stored.
    pub waiting_bytes: usize,
    /// Messages that wait until Iggy has said whether their topic exists.
    pub looking_up: usize,
    /// The lanes that have something to do, in no order.
    pub lanes: Vec<LaneState>,
    /// Lanes besides, because there are too many.
    pub lanes_not_shown: usize,
}

impl Lanes {
    /// By a map of that generation another rule may lead here, or the same ask something else of the topic, and the topic
    /// counts against other bounds. Says whether the lanes, which were made for an older map, are to be made anew.
    fn follow(&mut self, generation: u64, destination: &Destination) -> bool {
        let Self::Known {
            rule, plan, map, ..
        } = self
        else {
            return false;
        };
        if *map >= generation {
            return false;
        }
        *map = generation;
        *rule = destination.rule;
        *plan = destination.plan.clone();
        true
    }
}

/// What leads to a topic.
struct Way {
    rule: RuleId,
    plan: TopicPlan,
    map: u64,
}

impl Ingest {
    /// Bytes that wait to be stored.
    pub fn waiting_bytes(&self) -> usize {
        self.room.held()
    }

    /// What it looks like now. Takes no lock that a message waits for.
    pub fn state(&self, now: Instant) -> IngestState {
        IngestState {
            waiting_bytes: self.room.held(),
            looking_up: self.looking_up.load(Ordering::Relaxed),
            lanes: self.board.lanes(now),
            lanes_not_shown: self.board.without_place(),
        }
    }

    /// Does something while every lock is held that a message on its way may wait for.
    #[cfg(test)]
    pub(crate) fn locked<R>(&self, work: impl FnOnce() -> R) -> R {
        let all = self.lanes.lock();
        let lanes = all.values().flat_map(|lanes| match lanes {
            Lanes::Known { lanes, .. } => lanes.as_slice(),
            Lanes::Pending(_) => &[],
        });
        let _queues: Vec<_> = lanes.flatten().map(|lane| lane.lock()).collect();
        let _room = self.room.lock();
        work()
    }

    /// One lock for all lanes: it is held for one look into a map, and gives the order in which publishes to a topic
    /// that is still being looked up go to its lanes.
    pub(super) fn enqueue(self: &Arc<Self>, map: u64, destination: &Destination, entry: Entry) {
        let target = &destination.target;
        let mut all = self.lanes.lock();
        if let Some(lanes) = all.get_mut(target)
            && lanes.follow(map, destination)
        {
            self.begin_anew(&mut all, target);
        }
        if let Some(lanes) = all.get_mut(target) {
            return self.add(target, lanes, entry);
        }
        let way = Way {
            rule: destination.rule,
            plan: destination.plan.clone(),
            map,
        };
        let mut lanes = match self.targets.known(target) {
            Some(info) => Lanes::known(self.lanes_for(info.partitions), way),
            None => {
                self.look_up(target.clone(), way, Vec::new());
                Lanes::Pending(VecDeque::new())
            }
        };
        self.add(target, &mut lanes, entry);
        all.insert(target.clone(), lanes);
    }

    /// How many lanes a topic with so many partitions has.
    fn lanes_for(&self, partitions: u32) -> u32 {
        if self.one_lane { 1 } else { partitions.max(1) }
    }

    fn add(self: &Arc<Self>, target: &Target, lanes: &mut Lanes, entry: Entry) {
        let (lanes, turn, rule, plan) = match lanes {
            Lanes::Pending(waiting) => {
                self.looking_up.fetch_add(1, Ordering::Relaxed);
                return waiting.push_back(entry);
            }
            Lanes::Known {
                lanes,
                turn,
                rule,
                plan,
                ..
            } => (lanes, turn, rule, plan),
        };
        let partition = match entry.key {
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
            Lane::new(
                triple,
                *rule,
                plan.clone(),
                None,
                &self.board,
                Arc::downgrade(self),
            )
        });
        lane.push(self, entry);
    }

    /// Asks Iggy for a topic until it is known whether it exists, then sends what waits to its lanes: first what `retiring`
    /// lanes give back, then what has come since, in order.
    fn look_up(self: &Arc<Self>, target: Target, way: Way, retiring: Vec<Arc<Lane>>) {
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
                    asked = ingest.targets.ensure(way.rule, &target, &way.plan) => asked,
                };
                match asked {
                    Ok(info) => break info,
                    Err(error) if error.is_transient() => {
                        if backoff.is_fresh()
                            && let Some(left_out) = ingest.failures.allow(Instant::now())
                        {
                            tracing::warn!(%error, left_out, "target not known yet; Iggy is asked again until it answers");
                        }
                        sleep(backoff.next_pause()).await;
                    }
                    Err(error) => {
                        let waiting = ingest.take_pending(&target);
                        for entry in given_back.into_iter().chain(waiting) {
                            ingest.unstorable(entry, (&error).into(), Some(way.rule), &error);
                        }
                        return;
                    }
                }
            };
            let mut all = ingest.lanes.lock();
            let Some(Lanes::Pending(waiting)) = all.remove(&target) else {
                return;
            };
            ingest.looking_up.fetch_sub(waiting.len(), Ordering::Relaxed);
            let mut lanes = Lanes::known(ingest.lanes_for(info.partitions), way);
            for entry in given_back.into_iter().chain(waiting) {
                ingest.add(&target, &mut lanes, entry);
            }
            all.insert(target, lanes);
        });
    }

    fn take_pending(&self, target: &Target) -> VecDeque<Entry> {
        match self.lanes.lock().remove(target) {
            Some(Lanes::Pending(waiting)) => {
                self.looking_up.fetch_sub(waiting.len(), Ordering::Relaxed);
                waiting
            }
            _ => VecDeque::new(),
        }
    }

    /// Iggy was asked about the topic by another part of the gateway.
    pub fn partitions_learned(self: &Arc<Self>, target: &Target, partitions: u32) {
        self.repartition(target, partitions);
    }

    /// Iggy says how many partitions the topic has now. If it is another number, keys move with it.
    pub(super) fn repartition(self: &Arc<Self>, target: &Target, partitions: u32) {
        let mut all = self.lanes.lock();
        if let Some(Lanes::Known { lanes, .. }) = all.get(target)
            && lanes.len() != self.lanes_for(partitions) as usize
        {
            tracing::warn!(stream = %target.stream, topic = %target.topic, before = lanes.len(), now = partitions, "the number of partitions has changed, and keys move with it");
            self.counters.repartitions.increment();
            self.begin_anew(&mut all, target);
        }
    }

    /// The topic is gone. When it is there again, it may have another number of partitions.
    pub(super) fn forget(self: &Arc<Self>, target: &Target) {
        self.begin_anew(&mut self.lanes.lock(), target);
    }

    /// Every lane of the topic gives back what it has not appended, and all of it goes to new lanes, when Iggy has been asked
    /// about the topic; nothing that is published meanwhile overtakes it.
    fn begin_anew(self: &Arc<Self>, all: &mut HashMap<Target, Lanes>, target: &Target) {
        let Some(Lanes::Known {
            lanes,
            rule,
            plan,
            map,
            ..
        }) = all.get_mut(target)
        else {
            return;
        };
        let retiring: Vec<_> = std::mem::take(lanes).into_iter().flatten().collect();
        // At once, so that the lane that has found it does not try its partition again.
        retiring.iter().for_each(|lane| lane.begin_to_retire());
        let way = Way {
            rule: *rule,
            plan: plan.clone(),
            map: *map,
        };
        all.insert(target.clone(), Lanes::Pending(VecDeque::new()));
        self.look_up(target.clone(), way, retiring);
    }

    /// Asks Iggy whether the topic still has as many partitions as its lanes.
    pub(super) fn check_partitions(self: &Arc<Self>, target: &Target) {
        let (ingest, target) = (self.clone(), target.clone());
        self.tasks.spawn(async move {
            if let Ok(Some(info)) = ingest.log.topic(&target).await {
                ingest.targets.learn(&target, info);
                ingest.repartition(&target, info.partitions);
            }
        });
    }

    /// The lane has nothing to do.
    pub(super) fn drop_idle(&self, lane: &Lane) {
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
}
