//! The ledger of a partition: what is delivered, what is acknowledged, and how far it is safe to commit.

use std::hint::black_box;
use std::sync::Arc;

use gungraun::{library_benchmark, library_benchmark_group};
use mqtt_gateway::delivery::ledger::{Entry, SharedLedger};

use crate::prepare::shuffled;

const COUNT: usize = 1_000;

fn empty() -> (SharedLedger, Vec<Entry>) {
    (SharedLedger::starting_at(0), Vec::with_capacity(COUNT))
}

/// Entries that wait, in the order in which they end.
fn open(order: impl Iterator<Item = usize>) -> (SharedLedger, Vec<Entry>) {
    let ledger = SharedLedger::starting_at(0);
    let mut numbered: Vec<Option<Entry>> = (0..COUNT as u64)
        .map(|offset| Some(ledger.enter(offset)))
        .collect();
    ledger.advance(COUNT as u64);
    let entries = order.filter_map(|at| numbered.get_mut(at)?.take());
    let entries = entries.collect();
    (ledger, entries)
}

fn in_order() -> (SharedLedger, Vec<Entry>) {
    open(0..COUNT)
}

fn in_reverse() -> (SharedLedger, Vec<Entry>) {
    open((0..COUNT).rev())
}

fn in_any_order() -> (SharedLedger, Vec<Entry>) {
    open(shuffled(COUNT).into_iter())
}

type Copies = (SharedLedger, Vec<Arc<Entry>>);

/// Each entry has a second copy, which ends last.
fn copies() -> (Copies, Vec<Arc<Entry>>) {
    let (ledger, entries) = in_order();
    let entries: Vec<_> = entries.into_iter().map(Arc::new).collect();
    let others = entries.clone();
    ((ledger, entries), others)
}

#[library_benchmark]
#[bench::in_order_of_1000(setup = empty)]
fn enter((ledger, mut entries): (SharedLedger, Vec<Entry>)) -> (SharedLedger, Vec<Entry>) {
    for offset in 0..COUNT as u64 {
        entries.push(ledger.enter(offset));
    }
    ledger.advance(COUNT as u64);
    (ledger, entries)
}

// Asked for after each: far more often than it is done, so it is the dearest that it can be.
#[library_benchmark]
#[bench::in_order_of_1000(setup = in_order)]
#[bench::in_reverse_of_1000(setup = in_reverse)]
#[bench::in_any_order_of_1000(setup = in_any_order)]
fn done_and_safe((ledger, entries): (SharedLedger, Vec<Entry>)) -> SharedLedger {
    for entry in entries {
        drop(entry);
        black_box(ledger.safe(None));
    }
    ledger
}

#[library_benchmark]
#[bench::of_1000(setup = copies)]
fn copy_that_is_not_the_last((kept, ending): (Copies, Vec<Arc<Entry>>)) -> Copies {
    for copy in ending {
        drop(black_box(copy));
    }
    kept
}

library_benchmark_group!(
    name = partition_ledger,
    benchmarks = [enter, done_and_safe, copy_that_is_not_the_last]
);
