//! Ingest: from a client's PUBLISH to Iggy, and back to its PUBACK.
//!
//! **PUBLISH is not PUBACK: a PUBACK is a promise that Iggy has committed the message (N1).** A PUBLISH is resolved by the
//! topic map, takes its share of the [`room`], waits in its partition's [`lane`] and is acknowledged through its
//! [`ticket`] in the connection's order ([`acks`]). One that can never be stored where it should goes to the dead-letter
//! topic, or closes its connection. Ingest knows the map, the targets and the log, and nothing of sessions: it talks back
//! through tickets.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::{IngestConfig, Limits, OnUnstorable, Produce};
use crate::limited::Limited;
use crate::log::appends::Appends;
use crate::log::{Log, Target, Triple};
use crate::mapping::envelope::{self, HeaderSet, Published};
use crate::mapping::{LiveMap, RuleId};
use crate::mqtt::QoS;
use crate::observe::Counters;
use crate::pace::Pace;
use crate::recent::{Kind, Recent};
use crate::targets::{DEAD_LETTER_PLAN, Targets};
use crate::wire::Publish;

pub mod acks;
pub mod board;
pub mod history;
pub mod lane;
mod lanes;
pub mod publisher;
pub mod refusal;
pub mod room;
pub mod runtime;
pub mod ticket;

pub use acks::Why;
use board::Board;
pub use history::Histories;
use lane::{Entry, Lane};
pub use lanes::IngestState;
use lanes::Lanes;
pub use publisher::{AckWriter, Publisher, Received};
pub use refusal::Reason;
use room::Room;
pub use ticket::Ticket;

/// What an ingest role is made of.
pub struct Parts {
    /// Where it appends.
    pub log: Arc<dyn Log>,
    /// Who wants to know of appends.
    pub appends: Arc<Appends>,
    /// The topic map.
    pub map: Arc<LiveMap>,
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
    /// Where refusals are kept.
    pub recent: Arc<Recent>,
}

/// The ingest role of a gateway.
pub struct Ingest {
    log: Arc<dyn Log>,
    appends: Arc<Appends>,
    map: Arc<LiveMap>,
    targets: Arc<Targets>,
    headers: HeaderSet,
    limits: Arc<Limits>,
    counters: Arc<Counters>,
    room: Arc<Room>,
    lanes: Mutex<HashMap<Target, Lanes>>,
    /// Messages in `lanes` whose topic is being looked up. Changes under that lock.
    looking_up: AtomicUsize,
    /// Where lanes are seen from outside.
    board: Arc<Board>,
    /// The connectors runtime chooses the partitions, so one lane for each topic is enough.
    one_lane: bool,
    dead_letters: Option<Arc<Lane>>,
    ids: MessageIds,
    refusals: Limited,
    /// Log lines about what Iggy does not do for now: an outage concerns all lanes at once.
    failures: Limited,
    recent: Arc<Recent>,
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
            recent,
        } = parts;
        let board = Board::new();
        Arc::new_cyclic(|ingest| {
            let dead_letters = (config.on_unstorable == OnUnstorable::DeadLetter).then(|| {
                let triple = Triple {
                    target: config.dead_letter.clone(),
                    partition: 0,
                };
                let pace = Pace::new(limits.dead_letter_rate, Instant::now());
                let (rule, plan) = (RuleId::DeadLetter, DEAD_LETTER_PLAN);
                Lane::new(triple, rule, plan, Some(pace), &board, ingest.clone())
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
                looking_up: AtomicUsize::new(0),
                board,
                one_lane: config.produce == Produce::Runtime,
                dead_letters,
                ids: MessageIds::new(),
                refusals: Limited::default(),
                failures: Limited::with_burst(10),
                recent,
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
        let share = ticket.publisher().share();
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
        if !ticket.may_queue() {
            return;
        }
        let map = self.map.load();
        let mut entry = Entry {
            record,
            key: None,
            ticket,
            hold,
            map: map.in_use(),
        };
        match map.resolve(&publish.topic) {
            Ok(placement) => {
                entry.key = placement.key;
                self.enqueue(map.generation(), &placement.destination, entry);
            }
            Err(refusal) => self.unstorable(entry, (&refusal).into(), None, &refusal),
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
        let topic = envelope::topic_text(&entry.record);
        self.recent.note(
            &self.refusals,
            Kind::Publish,
            publisher.origin.of(&publisher.client),
            Some(topic),
            "publish refused",
            || format!("{}: {why}", reason.name()),
        );
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
