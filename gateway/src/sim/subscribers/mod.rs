//! Storms for subscribers: seeded runs in which subscribers of every kind come and go while the log fails, forgets and
//! changes, and the gateway is killed. After each run the invariants D1 to D8 are checked against what the log holds and
//! what each subscriber saw.

mod check;
mod subscriber;
mod trouble;

use std::collections::{HashMap, HashSet};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::time::{Instant, sleep};

use super::mortal::Mortal;
use super::seeds::run_all;
use super::trace::Trace;
use super::{MAP, Sim, record, triple};
use crate::config::{Config, Limits};
use crate::log::memory::{Chances, MemoryLog};
use crate::log::{Log, Target, Triple};
use crate::mapping::PartitionKey;
use subscriber::{Kind, Session, Subscriber};
use trouble::Trouble;

/// Runs of the test that is always done.
const RUNS: u64 = 60;
/// Of the one that is not.
const MANY_RUNS: u64 = 20_000;
const CONSUMER: &str = "mqtt-gateway.node-1";
/// The topics of all runs: three with a key, one without.
const TOPICS: [&str; 4] = ["d/a/x", "d/b/x", "d/c/x", "elsewhere"];
/// As the gateways of these runs have it.
const RESUME_WINDOW: Duration = Duration::from_secs(6);
const OUTBOX_BYTES: usize = 2_048;
const OUTBOX_BYTES_TOTAL: usize = 6_000;

/// A gateway from its start to its death.
pub(super) struct Life {
    number: usize,
    began: Instant,
    sim: Sim,
    log: Arc<Mortal>,
}

/// What the actors of a run share.
struct World {
    memory: Arc<MemoryLog>,
    began: Instant,
    trace: Trace,
    life: Mutex<Arc<Life>>,
    /// What was committed where, when a gateway was killed, by its number.
    committed: Mutex<HashMap<(usize, Triple), Option<u64>>>,
    /// Partitions whose log became shorter at some time: their offsets were given out twice.
    shortened: Mutex<HashSet<Triple>>,
    /// Those of them that were not made anew. If such a log has grown again before it is looked at, nothing tells.
    truncated: Mutex<HashSet<Triple>>,
    /// Nothing goes wrong any more, and nothing more is published.
    is_calm: AtomicBool,
    /// Everybody leaves.
    is_over: AtomicBool,
    /// Topics that got more partitions at some time: a client that comes back after a restart reads where its topics are
    /// stored then, not where they were.
    grown: Mutex<HashSet<Target>>,
    /// How often each topic was made anew.
    remade: Mutex<HashMap<Target, usize>>,
    sessions: Mutex<Vec<Session>>,
}

impl World {
    fn life(&self) -> Arc<Life> {
        self.life.lock().clone()
    }

    fn is_calm(&self) -> bool {
        self.is_calm.load(Ordering::SeqCst)
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// The time as the log has it in its records, in microseconds after the run began.
    fn micros(&self, at: Instant) -> u64 {
        u64::try_from((at - self.began).as_micros()).unwrap_or(u64::MAX)
    }

    /// The partition of a topic now, or one of them.
    async fn place(&self, topic: &str, turn: u64) -> Option<Triple> {
        let mut place = match topic.split('/').nth(1) {
            Some(_) => triple("t", 0),
            None => triple("rest", 0),
        };
        let info = self.memory.topic(&place.target).await.ok()??;
        place.partition = match topic.split('/').nth(1) {
            Some(key) => PartitionKey::new(key).partition(info.partitions),
            None => u32::try_from(turn % u64::from(info.partitions)).ok()?,
        };
        Some(place)
    }

    async fn start(&self, number: usize, random: &mut StdRng) -> Arc<Life> {
        let began = Instant::now();
        let log = Mortal::on(self.memory.clone());
        let sim = Sim::start(MAP, log.clone(), self.memory.clone(), |config| {
            configure(config, random);
        })
        .await;
        Arc::new(Life {
            number,
            began,
            sim,
            log,
        })
    }

    async fn until(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        for _ in 0..10_000 {
            if condition(self) {
                return;
            }
            sleep(Duration::from_millis(50)).await;
        }
        let life = self.life();
        panic!(
            "not within eight minutes: {what}; {:?}; {:?}",
            life.sim.delivery().look(Instant::now()),
            life.sim.gateway.counters().snapshot()
        );
    }
}

fn limit(limits: &mut Limits, random: &mut StdRng) {
    limits.max_packet_size = 1_000;
    limits.max_connect_size = 1_000;
    limits.outbox_bytes = OUTBOX_BYTES;
    limits.outbox_bytes_total = OUTBOX_BYTES_TOTAL;
    limits.send_window = random.random_range(1..20);
    limits.max_poll_messages = random.random_range(1..20);
    limits.max_catchup_reads = random.random_range(1..4);
    limits.commit_interval = Duration::from_millis(random.random_range(10..1_000));
    limits.ack_timeout = Duration::from_secs(4);
    limits.poll_interval_max = Duration::from_millis(random.random_range(20..500));
    limits.resume_window = RESUME_WINDOW;
    limits.topology_interval = Duration::from_secs(2);
    if random.random_bool(0.2) {
        limits.max_lag_messages = 30;
    }
    if random.random_bool(0.2) {
        limits.retransmit_interval = Duration::from_secs(1);
    }
}

/// However long the log is away, subscribers wait for it.
fn configure(config: &mut Config, random: &mut StdRng) {
    config.iggy.grace = Duration::from_secs(3_600);
    config.iggy.start_timeout = Duration::from_secs(600);
    limit(&mut config.limits, random);
}

/// Publishes as another gateway does, until enough is published or nothing goes wrong any more.
async fn publish(world: Arc<World>, mut random: StdRng) {
    let pause = Duration::from_millis([0, 5, 50, 300][random.random_range(0..4)]);
    let count = random.random_range(20..250);
    for n in 1..=count {
        let topic = TOPICS[random.random_range(0..TOPICS.len())];
        let qos = u8::from(random.random_bool(0.8));
        let padding = ".".repeat(random.random_range(1..200));
        let record = record(topic, &format!("{n} {topic} {qos} {padding}"), qos);
        loop {
            if let Some(place) = world.place(topic, random.random()).await
                && world
                    .memory
                    .append(&place, std::slice::from_ref(&record))
                    .await
                    .is_ok()
            {
                break;
            }
            sleep(Duration::from_millis(50)).await;
        }
        sleep(pause.mul_f64(random.random())).await;
    }
}

async fn run(seed: u64, trace: Trace) {
    let mut random = StdRng::seed_from_u64(seed);
    let fork = |random: &mut StdRng| StdRng::seed_from_u64(random.random());
    let memory = Arc::new(MemoryLog::seeded(seed, Chances::default()));
    let began = Instant::now();
    let [keyed, unkeyed] = [triple("t", 0).target, triple("rest", 0).target];
    memory.add_topic(&keyed, random.random_range(1..4), None);
    memory.add_topic(&unkeyed, random.random_range(1..4), None);
    // Where nothing was stored yet, nothing can be committed.
    for target in [&keyed, &unkeyed] {
        for partition in 0..4 {
            let place = Triple {
                target: target.clone(),
                partition,
            };
            let first = record("first", "0 first 0", 0);
            let _ = memory.append(&place, &[first]).await;
        }
    }
    let log = Mortal::on(memory.clone());
    let sim = Sim::start(MAP, log.clone(), memory.clone(), |config| {
        configure(config, &mut random);
    })
    .await;
    let world = Arc::new(World {
        memory,
        began,
        trace,
        life: Mutex::new(Arc::new(Life {
            number: 0,
            began,
            sim,
            log,
        })),
        committed: Mutex::default(),
        shortened: Mutex::default(),
        truncated: Mutex::default(),
        grown: Mutex::default(),
        remade: Mutex::default(),
        is_calm: AtomicBool::new(false),
        is_over: AtomicBool::new(false),
        sessions: Mutex::default(),
    });

    let mut subscribing = Vec::new();
    for n in 0..random.random_range(1..8) {
        let kind = Kind::ALL[random.random_range(0..Kind::ALL.len())];
        let (world, random) = (world.clone(), fork(&mut random));
        let subscriber = Subscriber::new(world, format!("s{n}"), kind, random);
        subscribing.push(tokio::spawn(subscriber.run()));
    }
    let publishing = tokio::spawn(publish(world.clone(), fork(&mut random)));
    let watching = tokio::spawn(check::watch_memory(world.clone()));
    Trouble::new(world.clone(), fork(&mut random)).run().await;
    publishing.await.unwrap();
    world.trace.note("run", "is calm");
    world.is_calm.store(true, Ordering::SeqCst);
    // Longer than everything that is noticed by asking or given up after a while.
    sleep(RESUME_WINDOW + Duration::from_secs(6)).await;
    check::all_is_committed(&world).await;
    world.is_over.store(true, Ordering::SeqCst);
    for subscriber in subscribing {
        subscriber.await.unwrap();
    }
    watching.abort();
    if let Err(error) = watching.await
        && error.is_panic()
    {
        resume_unwind(error.into_panic());
    }
    check::sessions(&world);
    check::nothing_is_left(&world).await;
}

#[test]
fn d1_to_d8_hold_in_short_storms() {
    run_all(RUNS, run);
}

#[test]
#[ignore = "takes many minutes"]
fn d1_to_d8_hold_in_many_storms() {
    run_all(MANY_RUNS, run);
}
