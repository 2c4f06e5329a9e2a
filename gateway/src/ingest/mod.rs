//! Ingest: from a client's PUBLISH to Iggy, and back to its PUBACK.
//!
//! **PUBLISH is not PUBACK: a PUBACK is a promise that Iggy has committed the message (N1).** A PUBLISH is resolved by the
//! topic map, waits in its partition's [`lane`] and is acknowledged through its [`ticket`] in the connection's order
//! ([`acks`]). All connections together hold at most `ingest_bytes` (N4). Ingest knows the map, the targets and the log,
//! and nothing of sessions: it talks back through tickets.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::backoff::Backoff;
use crate::config::Limits;
use crate::log::appends::Appends;
use crate::log::{Log, Target, Triple};
use crate::mapping::envelope::{self, HeaderSet, Published};
use crate::mapping::{PartitionKey, Resolution, Resolver};
use crate::mqtt::{ClientId, QoS};
use crate::observe::Counters;
use crate::targets::Targets;
use crate::wire::Publish;

pub mod acks;
pub mod lane;
pub mod ticket;

pub use acks::{AckWriter, Acks};
use lane::{Entry, Lane};
pub use ticket::Ticket;

/// A publish whose target is not known yet.
struct Waiting {
    key: Option<PartitionKey>,
    entry: Entry,
}

/// The lanes of one topic.
enum Lanes {
    /// Iggy is being asked whether the topic exists; in the order of arrival.
    Pending(VecDeque<Waiting>),
    /// It exists: a lane per partition, made when first needed.
    Known {
        lanes: Vec<Option<Arc<Lane>>>,
        /// Where the next record without a key goes.
        turn: usize,
    },
}

/// The ingest role of a gateway.
pub struct Ingest {
    log: Arc<dyn Log>,
    appends: Arc<Appends>,
    map: Arc<Resolver>,
    headers: HeaderSet,
    targets: Arc<Targets>,
    limits: Arc<Limits>,
    counters: Arc<Counters>,
    /// One permit per byte of `ingest_bytes`; waiting for permits is first come, first served.
    room: Arc<Semaphore>,
    room_bytes: u32,
    lanes: Mutex<HashMap<Target, Lanes>>,
    ids: MessageIds,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Ingest {
    /// Without lanes.
    pub fn new(
        log: Arc<dyn Log>,
        appends: Arc<Appends>,
        map: Arc<Resolver>,
        headers: HeaderSet,
        targets: Arc<Targets>,
        limits: Arc<Limits>,
        counters: Arc<Counters>,
    ) -> Arc<Self> {
        let room_bytes = u32::try_from(limits.ingest_bytes).unwrap_or(u32::MAX);
        Arc::new(Self {
            log,
            appends,
            map,
            headers,
            targets,
            limits,
            counters,
            room: Arc::new(Semaphore::new(room_bytes as usize)),
            room_bytes,
            lanes: Mutex::default(),
            ids: MessageIds::new(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        })
    }

    /// Takes `publish` from `client`. Returns when it has its place in a lane (or has ended already), not when it is stored:
    /// while the buffers are full, a QoS 1 publish waits here, which is what stops reading from its connection.
    pub async fn submit(self: &Arc<Self>, publish: Publish, client: &ClientId, ticket: Ticket) {
        let resolution = match self.map.resolve(&publish.topic) {
            Ok(resolution) => resolution,
            Err(refusal) => {
                tracing::warn!(%client, topic = %publish.topic, reason = %refusal, "publish refused");
                return ticket.refused();
            }
        };
        let record = envelope::seal(
            &Published {
                topic: &publish.topic,
                qos: publish.qos,
                packet_id: publish.packet_id,
                retain: publish.retain,
                dup: publish.dup,
                client_id: client,
                payload: &publish.payload,
            },
            self.ids.next(),
            self.headers,
        );
        let bytes = u32::try_from(record.size())
            .unwrap_or(u32::MAX)
            .min(self.room_bytes);
        let room = if publish.qos == QoS::AtMostOnce {
            match self.room.clone().try_acquire_many_owned(bytes) {
                Ok(room) => room,
                Err(_) => return ticket.shed(),
            }
        } else {
            match self.room.clone().acquire_many_owned(bytes).await {
                Ok(room) => room,
                // The role has ended; dropping the ticket fails the publish.
                Err(_) => return,
            }
        };
        self.enqueue(
            &resolution,
            Entry {
                record,
                ticket,
                room,
            },
        );
    }

    /// One lock for all lanes: it is held for two map operations, and gives the order in which publishes to a topic
    /// that is still being looked up go to its lanes.
    fn enqueue(self: &Arc<Self>, resolution: &Resolution, entry: Entry) {
        let mut all = self.lanes.lock();
        if !all.contains_key(&resolution.target) {
            let lanes = match self.targets.known(&resolution.target) {
                Some(info) => Lanes::Known {
                    lanes: vec![None; info.partitions.max(1) as usize],
                    turn: 0,
                },
                None => {
                    let ingest = self.clone();
                    let resolution = resolution.clone();
                    self.tasks
                        .spawn(async move { ingest.look_up(resolution).await });
                    Lanes::Pending(VecDeque::new())
                }
            };
            all.insert(resolution.target.clone(), lanes);
        }
        let Some(lanes) = all.get_mut(&resolution.target) else {
            return;
        };
        match lanes {
            Lanes::Pending(waiting) => waiting.push_back(Waiting {
                key: resolution.key.clone(),
                entry,
            }),
            Lanes::Known { lanes, turn } => {
                self.to_lane(lanes, turn, resolution, resolution.key.as_ref(), entry);
            }
        }
    }

    fn to_lane(
        self: &Arc<Self>,
        lanes: &mut [Option<Arc<Lane>>],
        turn: &mut usize,
        resolution: &Resolution,
        key: Option<&PartitionKey>,
        entry: Entry,
    ) {
        let partition = match key {
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
                target: resolution.target.clone(),
                partition: partition as u32,
            };
            Lane::new(triple, resolution.rule, resolution.plan.clone(), self)
        });
        lane.push(self, entry);
    }

    /// Asks Iggy for a topic until it is known whether it exists, then sends what waits to its lanes, in order.
    async fn look_up(self: Arc<Self>, resolution: Resolution) {
        let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1));
        let info = loop {
            let asked = tokio::select! {
                biased;
                // Dropping what waits fails it.
                () = self.stop.cancelled() => return drop(self.take_pending(&resolution.target)),
                asked = self.targets.ensure(resolution.rule, &resolution.target, &resolution.plan) => asked,
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
                    tracing::warn!(%error, "publishes refused");
                    let waiting = self.take_pending(&resolution.target);
                    return waiting
                        .into_iter()
                        .for_each(|waiting| waiting.entry.ticket.refused());
                }
            }
        };
        let mut all = self.lanes.lock();
        let Some(Lanes::Pending(waiting)) = all.remove(&resolution.target) else {
            return;
        };
        let mut lanes = vec![None; info.partitions.max(1) as usize];
        let mut turn = 0;
        for Waiting { key, entry } in waiting {
            self.to_lane(&mut lanes, &mut turn, &resolution, key.as_ref(), entry);
        }
        all.insert(resolution.target, Lanes::Known { lanes, turn });
    }

    fn take_pending(&self, target: &Target) -> VecDeque<Waiting> {
        match self.lanes.lock().remove(target) {
            Some(Lanes::Pending(waiting)) => waiting,
            _ => VecDeque::new(),
        }
    }

    /// Iggy says that the topic has another number of partitions now. Keys move with it; records already in a lane stay.
    fn repartition(&self, target: &Target, partitions: u32) {
        if let Some(Lanes::Known { lanes, .. }) = self.lanes.lock().get_mut(target)
            && lanes.len() != partitions as usize
        {
            tracing::warn!(%target, before = lanes.len(), now = partitions, "the number of partitions has changed");
            lanes.resize(partitions.max(1) as usize, None);
        }
    }

    /// The topic is gone: its lanes end with what they have, and who publishes to it next asks Iggy again.
    fn forget(&self, target: &Target) {
        let mut all = self.lanes.lock();
        if matches!(all.get(target), Some(Lanes::Known { .. })) {
            all.remove(target);
        }
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
