//! Seeded runs: one after another on every core, each on a paused clock of its own.
//!
//! `SIM_SEED` runs one seed (`SIM_RUNS` times), `SIM_RUNS` as many from 0 on. A run that fails prints its seed and what
//! happened last, and is the last one.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::trace::Trace;

/// Longer than any run takes that ends by itself.
const FOREVER: Duration = Duration::from_secs(24 * 3_600);

/// Runs `run` with seed after seed, `default_runs` of them unless the environment says otherwise.
pub(super) fn run_all<R: Future<Output = ()>>(
    default_runs: u64,
    run: impl Fn(u64, Trace) -> R + Sync,
) {
    let number = |name| -> Option<u64> { Some(std::env::var(name).ok()?.parse().unwrap()) };
    let runs = number("SIM_RUNS");
    let seed = number("SIM_SEED");
    let count = runs.unwrap_or(if seed.is_some() { 1 } else { default_runs });
    let next = AtomicU64::new(0);
    let failed = AtomicBool::new(false);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while !failed.load(Ordering::SeqCst) {
                    let n = next.fetch_add(1, Ordering::SeqCst);
                    if n >= count {
                        return;
                    }
                    let seed = seed.unwrap_or(n);
                    if let Err(panic) = run_one(seed, &run) {
                        failed.store(true, Ordering::SeqCst);
                        resume_unwind(panic);
                    }
                }
            });
        }
    });
}

fn run_one<R: Future<Output = ()>>(
    seed: u64,
    run: impl Fn(u64, Trace) -> R,
) -> std::thread::Result<()> {
    let trace = Trace::default();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    let running = async {
        let run = tokio::time::timeout(FOREVER, run(seed, trace.clone()));
        run.await.expect("the run does not end");
    };
    let result = catch_unwind(AssertUnwindSafe(|| runtime.block_on(running)));
    if result.is_err() {
        eprintln!("{trace}failed with SIM_SEED={seed}");
    }
    result
}
