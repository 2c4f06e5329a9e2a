//! Reads for subscribers that are behind, until they meet their reader again.
//!
//! What always holds: each cursor that is behind has one task, from when it left the reader until it rides it again or is
//! gone; a task waits until its client's outbox has room, then for its place among the `max_catchup_reads` that may read
//! at once, and after one read it queues for the next place behind all others: none is starved (fairness). Nothing here
//! holds up a reader (D7).

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::cursor::Turn;
use super::poll_size::PollSize;
use super::reader::Shared;
use super::routes::CaughtUp;
use crate::backoff::Backoff;
use crate::config::Limits;
use crate::log::Log;

/// See the module.
pub struct CatchUps {
    log: Arc<dyn Log>,
    limits: Arc<Limits>,
    /// Gives places in the order in which they were asked for.
    places: Semaphore,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl CatchUps {
    /// Nobody is behind yet.
    pub fn new(
        log: Arc<dyn Log>,
        limits: Arc<Limits>,
        tasks: TaskTracker,
        stop: CancellationToken,
    ) -> Arc<Self> {
        Arc::new(Self {
            log,
            places: Semaphore::new(limits.max_catchup_reads),
            limits,
            tasks,
            stop,
        })
    }

    /// The cursor with this turn has left its reader.
    pub fn start(self: &Arc<Self>, shared: &Arc<Shared>, turn: Turn) {
        let (catch_ups, shared) = (self.clone(), shared.clone());
        self.tasks.spawn(async move {
            tokio::select! {
                biased;
                () = catch_ups.stop.cancelled() => {}
                () = catch_ups.run(&shared, &turn) => {}
            }
        });
    }

    async fn run(&self, shared: &Shared, turn: &Turn) {
        let limits = &self.limits;
        // More than fits into the outbox would be read for nothing.
        let mut size = PollSize::new(limits.max_poll_messages, limits.outbox_bytes);
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));
        loop {
            let Some(outbox) = shared.routes.lock().outbox_of(turn) else {
                return;
            };
            outbox.room().await;
            // Never closed.
            let Ok(place) = self.places.acquire().await else {
                return;
            };
            let Some(reading) = shared.routes.lock().to_read(turn) else {
                return;
            };
            let counters = &shared.context.counters;
            counters.catchup_reads.increment();
            let polled = self.log.reread(&shared.triple, reading.0, size.get()).await;
            drop(place);
            match polled {
                Ok(polled) => {
                    backoff.reset();
                    size.learn_from(&polled.records);
                    let mut routes = shared.routes.lock();
                    match routes.catch_up(turn, reading, &polled.records, &shared.context) {
                        CaughtUp::Behind => {}
                        CaughtUp::Over => return,
                    }
                }
                Err(error) => {
                    counters.polls_failed.increment();
                    tracing::debug!(stream = %shared.triple.target.stream, topic = %shared.triple.target.topic, partition = shared.triple.partition, %error, "catch-up read failed; it is tried again");
                    sleep(backoff.next_pause()).await;
                }
            }
        }
    }
}
