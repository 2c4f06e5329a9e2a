//! Storms with `produce = "runtime"`: the same publishers, and a connectors runtime that stores or does not, says so late or not
//! at all, stops the source after five refusals in a row, and restarts it.
//!
//! What always holds, or the run fails: a batch of which the runtime has not said that it is stored comes again as it was,
//! and no other before it, until its source goes (N6). A PUBACK comes only after the runtime has said it (N1).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::time::sleep;

use super::message::Kind;
use super::publisher::Publisher;
use super::watched::{Watched, labels};
use super::{LEAST_RECORD, World, check, check_bounds, habits};
use crate::config::Produce;
use crate::gateway::Role;
use crate::ingest::runtime::Batches;
use crate::log::Record;
use crate::log::memory::{Chances, MemoryLog};
use crate::sim::seeds::run_all;
use crate::sim::trace::Trace;
use crate::sim::{Sim, triple};

/// Runs of the test that is always done.
const RUNS: u64 = 400;
/// Longer than any run takes that ends by itself.
const LONGEST: Duration = Duration::from_secs(6 * 3_600);
const PARTITIONS: u32 = 3;
const MAP: &str = "default_stream = 's'\ndefault_topic = 'one'\npartitions = 3\n";
/// All in the one topic, or nowhere. Named as in the map of the other storms.
const KINDS: [Kind; 3] = [Kind::Persisted, Kind::Persisted, Kind::Dollar];
/// So many refusals in a row stop a source (runtime 0.5.0).
const MOST_NACKS: u32 = 5;

/// How a runtime behaves.
#[derive(Debug)]
struct Manners {
    /// How likely a batch is refused.
    refuses: f64,
    /// How likely the result of a batch is never told.
    forgets: f64,
    /// How likely the source is restarted with a batch in hand.
    restarts: f64,
    /// The longest that a batch takes.
    takes: Duration,
    /// Whether it may refuse so often that it stops the source.
    may_end: bool,
}

/// The connectors runtime with its source.
struct Host {
    world: Arc<World>,
    random: StdRng,
    manners: Manners,
    batches: Option<Batches>,
    /// What has to come next.
    due: Option<Arc<[Record]>>,
    nacks: u32,
}

impl Host {
    async fn run(mut self) {
        loop {
            let batches = self.batches.as_ref().expect("there is a source");
            let batch = batches.next().await;
            if let Some(due) = self.due.replace(batch.clone()) {
                assert_eq!(batch, due, "N6: another batch than that which is due");
            }
            sleep(self.manners.takes.mul_f64(self.random.random())).await;
            self.treat(&batch).await;
        }
    }

    async fn treat(&mut self, batch: &[Record]) {
        let may_refuse = self.nacks + 1 < MOST_NACKS || self.manners.may_end;
        if may_refuse && self.chance(self.manners.refuses) {
            return self.refuse(batch).await;
        }
        if self.chance(self.manners.forgets) {
            self.perhaps_store(batch).await;
            self.note(format_args!("forgets {}", labels(batch)));
            return;
        }
        if self.chance(self.manners.restarts) {
            self.perhaps_store(batch).await;
            return self.restart().await;
        }
        self.store(batch).await;
        self.world.log.confirm(batch);
        (self.due, self.nacks) = (None, 0);
        self.note(format_args!("acknowledges {}", labels(batch)));
        self.source().acknowledge();
    }

    async fn refuse(&mut self, batch: &[Record]) {
        self.perhaps_store(batch).await;
        self.nacks += 1;
        self.note(format_args!("refuses {}: {}", labels(batch), self.nacks));
        self.source().refuse();
        if self.nacks == MOST_NACKS {
            // Nobody takes anything until the operator sees it.
            sleep(Duration::from_secs(self.random.random_range(1..60))).await;
            self.restart().await;
        }
    }

    /// As the connector does: its polling ends, then it leaves; and another comes.
    async fn restart(&mut self) {
        self.note("restarts the source");
        self.world.source_changes.fetch_add(1, Ordering::SeqCst);
        if self.chance(0.5) {
            self.source().refuse();
        }
        let gateway = &self.world.sim.gateway;
        gateway.remove_role(Role::Ingest).await;
        self.batches = None;
        sleep(Duration::from_millis(self.random.random_range(0..3_000))).await;
        assert!(gateway.add_role(Role::Ingest));
        self.batches = gateway.take_batches();
        (self.due, self.nacks) = (None, 0);
        self.world.source_changes.fetch_add(1, Ordering::SeqCst);
        self.note("has restarted the source");
    }

    async fn perhaps_store(&mut self, batch: &[Record]) {
        if self.chance(0.5) {
            self.store(batch).await;
        }
    }

    async fn store(&mut self, batch: &[Record]) {
        // Time tells the order of what is stored in several partitions.
        sleep(Duration::from_millis(1)).await;
        let partition = self.random.random_range(0..PARTITIONS);
        self.world.log.store(&triple("one", partition), batch).await;
    }

    fn source(&self) -> &Batches {
        self.batches.as_ref().expect("there is a source")
    }

    fn chance(&mut self, of: f64) -> bool {
        self.random.random_bool(of)
    }

    fn note(&self, what: impl std::fmt::Display) {
        self.world.trace.note("runtime", what);
    }
}

async fn run(seed: u64, trace: Trace) {
    let mut random = StdRng::seed_from_u64(seed);
    let fork = |random: &mut StdRng| StdRng::seed_from_u64(random.random());
    let manners = Manners {
        refuses: [0.0, 0.1, 0.5][random.random_range(0..3)],
        forgets: [0.0, 0.1][random.random_range(0..2)],
        restarts: [0.0, 0.02, 0.1][random.random_range(0..3)],
        takes: Duration::from_millis([0, 20, 5_000][random.random_range(0..3)]),
        may_end: random.random_bool(0.3),
    };
    trace.note("run", format_args!("{manners:?}"));
    let room = random.random_range(2_000..20_000);
    let log = Watched::new(MemoryLog::seeded(seed, Chances::default()), trace.clone());
    let memory = log.memory.clone();
    memory.add_topic(&triple("one", 0).target, PARTITIONS, None);
    let sim = Sim::start(MAP, log.clone(), memory, |config| {
        config.ingest.produce = Produce::Runtime;
        let limits = &mut config.limits;
        limits.max_packet_size = 1_000;
        limits.max_connect_size = 1_000;
        limits.max_batch_bytes = random.random_range(500..2_000);
        limits.ingest_bytes = room;
        limits.receive_window = random.random_range(1..30);
        limits.max_batch_messages = random.random_range(1..20);
        limits.dedup_window = [0, 3, 256][random.random_range(0..3)];
    })
    .await;
    let batches = sim.gateway.take_batches();
    let world = World::new(sim, log, trace, false);
    let host = Host {
        world: world.clone(),
        random: fork(&mut random),
        manners,
        batches,
        due: None,
        nacks: 0,
    };
    let host = tokio::spawn(host.run());
    let publishers: Vec<_> = (0..random.random_range(1..5))
        .map(|n| {
            let mut habits = habits(&mut random, &KINDS);
            // The runtime stores whatever it is given.
            habits.poison = 0.0;
            // Waits are long here, and looking for answers all the time takes most of a run.
            habits.sloth = habits.sloth.max(Duration::from_millis(100));
            let publisher =
                Publisher::new(world.clone(), format!("p{n}"), habits, fork(&mut random));
            tokio::spawn(publisher.run())
        })
        .collect();
    let bounds = tokio::spawn(check_bounds(
        world.clone(),
        room / LEAST_RECORD + 4 * 4 * 20,
    ));

    let mut done = Vec::new();
    for publisher in publishers {
        tokio::select! {
            publisher = publisher => done.push(publisher.unwrap()),
            _ = async { while !host.is_finished() { sleep(Duration::from_secs(1)).await } } => break,
        }
    }
    if !host.is_finished() {
        let is_settled = |world: &World| world.waiting() == 0;
        world
            .until("every publish has its outcome", is_settled)
            .await;
    }
    for task in [host, bounds] {
        task.abort();
        if let Err(error) = task.await
            && error.is_panic()
        {
            std::panic::resume_unwind(error.into_panic());
        }
    }
    check::check(&world, &done);
    world.sim.gateway.stop().await;
    world.sim.assert_outcomes_add_up();
}

#[test]
fn n1_to_n7_hold_in_storms_with_a_connectors_runtime() {
    run_all(RUNS, async |seed, trace| {
        let run = tokio::time::timeout(LONGEST, run(seed, trace));
        run.await.expect("the run does not end");
    });
}
