//! Storms: seeded runs of the whole gateway in which publishers come and go while the log fails in every way it can. After
//! each run the invariants are checked against what the log held and what each publisher saw. The same publishers meet a
//! connectors runtime in `runtime`.
//!
//! Chance that does not come from the seed, of pauses between retries, can make a run differ a little from the last with
//! the same seed: then `SIM_RUNS` helps.

mod check;
mod message;
mod publisher;
mod runtime;
mod trouble;
mod watched;

use std::collections::HashSet;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::Sim;
use super::client::{Got, publish};
use super::seeds::run_all;
use super::trace::Trace;
use crate::config::OnUnstorable;
use crate::log::memory::{Chances, HoldAt, MemoryLog};
use crate::log::{Record, StoredRecord};
use message::{Kind, Label, MAP, Message};
use publisher::{Habits, Publisher};
use trouble::{Trouble, Troubles};
use watched::Watched;

/// Runs of the test that is always done.
const RUNS: u64 = 2_000;
/// Of the one that is not.
const MANY_RUNS: u64 = 100_000;
/// About as many bytes as a record takes at least.
const LEAST_RECORD: usize = 150;

/// What the actors of a run share.
struct World {
    sim: Sim,
    log: Arc<Watched>,
    trace: Trace,
    /// What cannot be stored closes its connection.
    closes: bool,
    /// Kinds of which messages were refused at some time.
    refused: Mutex<HashSet<Kind>>,
    dead_letters_refused: AtomicBool,
    stopping: AtomicBool,
    /// Counts when the source goes and when it is there again: odd while there is none.
    source_changes: AtomicU64,
}

impl World {
    fn new(sim: Sim, log: Arc<Watched>, trace: Trace, closes: bool) -> Arc<Self> {
        Arc::new(Self {
            sim,
            log,
            trace,
            closes,
            refused: Mutex::default(),
            dead_letters_refused: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            source_changes: AtomicU64::new(0),
        })
    }

    /// See [`World::has_lost_its_source`].
    fn source_changes(&self) -> u64 {
        self.source_changes.load(Ordering::SeqCst)
    }

    /// Whether a connection that began at `changes` was there at a time without a source, which closes connections.
    fn has_lost_its_source(&self, changes: u64) -> bool {
        changes % 2 == 1 || self.source_changes() != changes
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Whether the gateway may have closed a connection because of `message`.
    fn may_close_for(&self, message: &Message) -> bool {
        let is_refused = message.kind == Kind::Dollar
            || message.poisoned
            || self.refused.lock().contains(&message.kind);
        is_refused && (self.closes || self.dead_letters_refused.load(Ordering::SeqCst))
    }

    /// Publishes that were received and have no outcome yet. The counters are read themselves: a snapshot of all of them
    /// would take most of a run's time.
    fn waiting(&self) -> u64 {
        let counters = self.sim.gateway.counters();
        let outcomes = [
            &counters.publishes_stored,
            &counters.publishes_protocol_error,
            &counters.publishes_refused,
            &counters.publishes_shed,
            &counters.publishes_failed,
        ];
        let settled: u64 = outcomes.iter().map(|outcome| outcome.get()).sum();
        counters.publishes_received.get().saturating_sub(settled)
    }

    /// Waits until `condition` holds, and looks rarely, as nothing is in a hurry.
    async fn until(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        for _ in 0..10_000 {
            if condition(self) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("not within eight minutes: {what}");
    }
}

impl Publisher {
    fn message(&self, label: &Label) -> Option<&Message> {
        let message = self.messages.get(&label.number);
        message.filter(|message| message.label == *label)
    }

    fn times_sent(&self, label: &Label) -> usize {
        self.sent.get(&label.number).copied().unwrap_or_default()
    }
}

async fn run(seed: u64, trace: Trace) {
    let mut random = StdRng::seed_from_u64(seed);
    let fork = |random: &mut StdRng| StdRng::seed_from_u64(random.random());
    let closes = random.random_bool(0.25);
    let troubles = Troubles {
        count: random.random_range(1..8),
        deletions: random.random_bool(0.3),
        growth: random.random_bool(0.3),
        refusals: random.random_bool(0.4),
        dead_letters: random.random_bool(0.3),
        outages: random.random_bool(0.6),
    };
    let room = random.random_range(2_000..20_000);
    let log = Watched::new(MemoryLog::seeded(seed, Chances::default()), trace.clone());
    if let Some(guarded) = Kind::Guarded.target() {
        log.memory.add_topic(&guarded, 2, None);
    }
    let memory = log.memory.clone();
    let sim = Sim::start(MAP, log.clone(), memory, |config| {
        if closes {
            config.ingest.on_unstorable = OnUnstorable::Close;
        }
        let limits = &mut config.limits;
        limits.max_packet_size = 1_000;
        limits.max_connect_size = 1_000;
        limits.max_batch_bytes = random.random_range(500..2_000);
        limits.ingest_bytes = room;
        limits.receive_window = random.random_range(1..30);
        limits.max_batch_messages = random.random_range(1..20);
        limits.dedup_window = [0, 3, 256][random.random_range(0..3)];
        limits.dead_letter_rate = random.random_range(2..200);
        // Slow readers are no concern here.
        limits.ack_timeout = Duration::from_secs(3_600);
    })
    .await;
    let world = World::new(sim, log, trace, closes);
    world
        .trace
        .note("run", format_args!("{troubles:?}, closes: {closes}"));

    let mut publishing = Vec::new();
    for n in 0..random.random_range(1..5) {
        let habits = habits(&mut random, &Kind::ALL);
        let (world, random) = (world.clone(), fork(&mut random));
        let publisher = Publisher::new(world, format!("p{n}"), habits, random);
        publishing.push(tokio::spawn(publisher.run()));
    }
    let trouble = Trouble::new(world.clone(), fork(&mut random), troubles);
    let trouble = tokio::spawn(trouble.run());
    let watch = tokio::spawn(check_bounds(
        world.clone(),
        room / LEAST_RECORD + 4 * 4 * 20,
    ));

    let stops_after = random
        .random_bool(0.2)
        .then(|| Duration::from_millis(random.random_range(0..3_000)));
    if let Some(after) = stops_after {
        tokio::time::sleep(after).await;
        world.trace.note("run", "the gateway stops");
        world.stopping.store(true, Ordering::SeqCst);
        world.sim.gateway.stop().await;
    }

    let mut publishers = Vec::new();
    for publisher in publishing {
        publishers.push(publisher.await.unwrap());
    }
    trouble.await.unwrap();
    let is_settled = |world: &World| world.waiting() == 0;
    world
        .until("every publish has its outcome", is_settled)
        .await;
    let is_well = |world: &World| {
        world.is_stopping() || world.sim.gateway.context().health.away_for().is_none()
    };
    world.until("the log is known to be well", is_well).await;
    watch.abort();
    if let Err(error) = watch.await
        && error.is_panic()
    {
        resume_unwind(error.into_panic());
    }
    check::check(&world, &publishers);
    if world.is_stopping() {
        return;
    }
    check_room(&world, room).await;
    world.sim.gateway.stop().await;
    world.sim.assert_outcomes_add_up();
}

fn habits(random: &mut StdRng, kinds: &[Kind]) -> Habits {
    let mut topics = Vec::new();
    for _ in 0..random.random_range(1..4) {
        let kind = kinds[random.random_range(0..kinds.len())];
        // Few, so that publishers share them.
        let key = ["a", "b", "c"][random.random_range(0..3)].to_owned();
        topics.push((kind, key));
    }
    Habits {
        window: [1, 4, 20][random.random_range(0..3)],
        topics,
        qos_1: [1.0, 0.8, 0.3][random.random_range(0..3)],
        poison: [0.0, 0.0, 0.1][random.random_range(0..3)],
        leaves: [0.0, 0.02, 0.1][random.random_range(0..3)],
        pipe: [64, 512, 1 << 16][random.random_range(0..3)],
        pause: Duration::from_millis([0, 50, 500][random.random_range(0..3)]),
        sloth: Duration::from_millis([1, 30, 2_000][random.random_range(0..3)]),
        messages: random.random_range(1..30),
    }
}

/// N4, as far as it can be counted: what waits has room, or is one of the few for which its connections wait.
async fn check_bounds(world: Arc<World>, most: usize) {
    loop {
        let waiting = world.waiting();
        assert!(
            waiting <= most as u64,
            "N4: {waiting} wait, of {most} at most"
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// All room is free again: a newcomer that floods gets exactly its share of all of it.
async fn check_room(world: &World, room: usize) {
    let sim = &world.sim;
    world.log.memory.hold(HoldAt::BeforeCommit);
    let mut probe = sim.connect("probe").await;
    let payload = "probe 1 ".to_owned() + &".".repeat(200);
    let shed = sim.count("publishes_shed");
    let stored = sim.count("publishes_stored");
    while sim.count("publishes_shed") == shed {
        let message = publish("p/probe/x", payload.as_bytes(), None);
        probe.send(&message).await;
        probe.ping().await;
        assert_eq!(probe.next().await, Got::PingResp);
    }
    let taken = world.waiting();
    world.log.memory.release();
    let is_settled = |world: &World| world.waiting() == 0;
    world.until("the probe is stored", is_settled).await;
    assert_eq!(sim.count("publishes_stored") - stored, taken);

    let mut records = world.log.lives().into_iter().flat_map(|(_, lives)| lives);
    let size = records
        .find_map(|life| {
            let record = life.into_iter().find(|record| record.payload == payload)?;
            let StoredRecord {
                id,
                headers,
                payload,
                ..
            } = record;
            Some(
                Record {
                    id,
                    headers,
                    payload,
                }
                .size(),
            )
        })
        .expect("the probe is stored");
    let mut expected = 0;
    while size <= room - expected * size && (expected + 1) * size <= room - expected * size {
        expected += 1;
    }
    assert_eq!(
        taken, expected as u64,
        "N4: of {room} bytes some are not free"
    );
}

#[test]
fn n1_to_n7_hold_in_thousands_of_short_storms() {
    run_all(RUNS, run);
}

#[test]
#[ignore = "takes many minutes"]
fn n1_to_n7_hold_in_many_storms() {
    run_all(MANY_RUNS, run);
}
