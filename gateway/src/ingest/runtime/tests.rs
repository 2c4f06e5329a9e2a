//! The way of a batch to the runtime and back, with time that is only as long as something waits.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::*;
use crate::log::memory::MemoryLog;
use crate::log::{Headers, Name};

/// Long past anything that happens by itself.
const NEVER: Duration = Duration::from_secs(3600);

fn triple(topic: &str) -> Triple {
    Triple {
        target: Target {
            stream: Name::new("s").unwrap(),
            topic: Name::new(topic).unwrap(),
        },
        partition: 0,
    }
}

fn records(ids: std::ops::Range<u128>) -> Vec<Record> {
    ids.map(|id| Record {
        id,
        headers: Headers::default(),
        payload: Bytes::from(id.to_string()),
    })
    .collect()
}

struct Bench {
    own: Arc<MemoryLog>,
    log: Arc<dyn Log>,
    batches: Batches,
    counters: Arc<Counters>,
}

impl Bench {
    fn new() -> Self {
        let own = Arc::new(MemoryLog::new());
        for topic in ["one", "dead_letter"] {
            own.add_topic(&triple(topic).target, 1, None);
        }
        let counters = Arc::<Counters>::default();
        let health = Arc::new(Health::new(Instant::now()));
        let target = triple("one").target;
        let (log, batches) = hand_over(own.clone(), target, health, counters.clone());
        Self {
            own,
            log,
            batches,
            counters,
        }
    }

    fn append(&self, records: Vec<Record>) -> JoinHandle<Result<(), LogError>> {
        let log = self.log.clone();
        tokio::spawn(async move { log.append(&triple("one"), &records).await })
    }

    async fn next(&self) -> Vec<u128> {
        let next = timeout(NEVER, self.batches.next()).await;
        next.expect("no batch")
            .iter()
            .map(|record| record.id)
            .collect()
    }
}

async fn is_waiting<T>(task: &mut JoinHandle<T>) -> bool {
    timeout(NEVER, task).await.is_err()
}

#[tokio::test(start_paused = true)]
async fn n1_an_append_ends_with_the_acknowledgement_and_not_before() {
    let bench = Bench::new();
    let mut append = bench.append(records(1..4));
    assert!(is_waiting(&mut append).await, "nobody has taken it");
    assert_eq!(bench.next().await, [1, 2, 3]);
    assert!(is_waiting(&mut append).await, "nobody has acknowledged it");
    bench.batches.acknowledge();
    assert_eq!(append.await.unwrap(), Ok(()));
    assert!(timeout(NEVER, bench.batches.next()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn n6_a_refused_batch_comes_again_as_it_was_and_is_not_overtaken_until_it_is_acknowledged() {
    let bench = Bench::new();
    let mut first = bench.append(records(1..4));
    let before = timeout(NEVER, bench.batches.next()).await.unwrap();
    let mut second = bench.append(records(4..6));
    for (nacks, pause) in [(1, 2), (2, 5), (3, 10), (4, 20)] {
        let refused = Instant::now();
        bench.batches.refuse();
        assert_eq!(bench.counters.runtime_nacks.get(), nacks);
        // The result of no batch: this one is not with the runtime now.
        bench.batches.acknowledge();
        assert!(!first.is_finished());
        let again = timeout(NEVER, bench.batches.next()).await.unwrap();
        assert_eq!(again, before);
        assert!(refused.elapsed() >= Duration::from_secs(pause));
        assert!(is_waiting(&mut first).await);
    }
    bench.batches.acknowledge();
    assert_eq!(first.await.unwrap(), Ok(()));
    assert!(is_waiting(&mut second).await);
    let acknowledged = Instant::now();
    assert_eq!(bench.next().await, [4, 5]);
    assert_eq!(
        acknowledged.elapsed(),
        Duration::ZERO,
        "the pauses are over"
    );
    bench.batches.refuse();
    assert_eq!(bench.next().await, [4, 5]);
    assert!(
        acknowledged.elapsed() < Duration::from_secs(3),
        "they begin anew"
    );
    bench.batches.acknowledge();
    assert_eq!(second.await.unwrap(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn batches_are_taken_one_at_a_time_in_the_order_of_their_appends() {
    let bench = Bench::new();
    let mut appends = Vec::new();
    for n in 0..10 {
        let mut append = bench.append(records(n..n + 1));
        assert!(is_waiting(&mut append).await);
        appends.push(append);
    }
    for (n, append) in (0..).zip(appends) {
        assert_eq!(bench.next().await, [n]);
        bench.batches.acknowledge();
        assert_eq!(append.await.unwrap(), Ok(()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_poll_that_is_dropped_loses_nothing_wherever_it_waited() {
    let bench = Bench::new();
    assert!(timeout(NEVER, bench.batches.next()).await.is_err());
    let first = bench.append(records(1..2));
    assert_eq!(bench.next().await, [1]);
    bench.batches.refuse();
    // In the pause, with the batch at hand.
    let second = Duration::from_secs(1);
    assert!(timeout(second, bench.batches.next()).await.is_err());
    assert_eq!(bench.next().await, [1]);
    // It was taken, and its result was never told: it comes again.
    assert_eq!(bench.next().await, [1]);
    bench.batches.acknowledge();
    assert_eq!(first.await.unwrap(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_result_of_a_batch_that_nobody_took_acknowledges_nothing() {
    let bench = Bench::new();
    bench.batches.acknowledge();
    let mut append = bench.append(records(1..2));
    assert!(is_waiting(&mut append).await);
    bench.batches.acknowledge();
    bench.batches.refuse();
    assert!(is_waiting(&mut append).await);
    assert_eq!(bench.next().await, [1]);
    bench.batches.acknowledge();
    assert_eq!(append.await.unwrap(), Ok(()));
    // Twice.
    bench.batches.acknowledge();
    let mut next = bench.append(records(2..3));
    assert!(is_waiting(&mut next).await);
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_was_given_up_is_not_handed_over_and_its_late_result_is_nobodys() {
    let bench = Bench::new();
    let given_up = bench.append(records(1..2));
    assert_eq!(bench.next().await, [1]);
    given_up.abort();
    assert!(given_up.await.unwrap_err().is_cancelled());
    let also_given_up = bench.append(records(2..3));
    tokio::task::yield_now().await;
    also_given_up.abort();
    let mut kept = bench.append(records(3..4));
    assert!(is_waiting(&mut kept).await);
    bench.batches.acknowledge();
    assert!(is_waiting(&mut kept).await);
    assert_eq!(bench.next().await, [3]);
    bench.batches.acknowledge();
    assert_eq!(kept.await.unwrap(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_source_that_closes_with_a_batch_in_hand_never_acknowledges_it() {
    let bench = Bench::new();
    let mut in_hand = bench.append(records(1..2));
    assert_eq!(bench.next().await, [1]);
    let mut waiting = bench.append(records(2..3));
    assert!(is_waiting(&mut waiting).await);
    drop(bench.batches);
    assert!(is_waiting(&mut in_hand).await);
    assert!(is_waiting(&mut waiting).await);
}

#[tokio::test(start_paused = true)]
async fn while_iggy_is_away_nothing_is_handed_over() {
    let bench = Bench::new();
    let watching = tokio::spawn(crate::health::watch(
        bench.batches.health.clone(),
        bench.own.clone(),
    ));
    let given_up = bench.append(records(7..8));
    assert_eq!(bench.next().await, [7]);
    given_up.abort();
    bench.own.set_outage(true);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let mut append = bench.append(records(1..2));
    assert!(timeout(NEVER, bench.batches.next()).await.is_err());
    // A late result, of the batch that was given up: this one has not been handed over.
    bench.batches.acknowledge();
    assert!(is_waiting(&mut append).await);
    bench.own.set_outage(false);
    let back = Instant::now();
    assert_eq!(bench.next().await, [1]);
    assert!(back.elapsed() <= Duration::from_secs(1));
    bench.batches.acknowledge();
    assert_eq!(append.await.unwrap(), Ok(()));
    watching.abort();
}

#[tokio::test(start_paused = true)]
async fn other_topics_are_appended_to_by_the_log_itself() {
    let bench = Bench::new();
    let dead_letters = triple("dead_letter");
    let appended = timeout(NEVER, bench.log.append(&dead_letters, &records(7..9))).await;
    assert_eq!(appended, Ok(Ok(())));
    assert_eq!(bench.own.records(&dead_letters).len(), 2);
    assert!(bench.own.records(&triple("one")).is_empty());
}
