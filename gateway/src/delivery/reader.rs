//! The reader of one partition: polls once for all its subscribers, lets lagging ones catch up, commits what is safe.
//!
//! What always holds: one reader per partition (D1), and it alone moves the position; a poll commits nothing; committed
//! is never more than safe (D4); an idle partition is polled at most every `poll_interval_max`, and at once after an
//! append of this gateway; a failing log is asked again for ever, with capped backoff.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::poll_size::PollSize;
use super::routes::{Context, Routes};
use crate::backoff::Backoff;
use crate::config::Limits;
use crate::log::{Log, LogError, Polled, Triple};

/// What the reader shares with whoever subscribes.
pub struct Shared {
    /// The partition.
    pub triple: Triple,
    /// Who wants what. Held for as long as one batch takes to be routed, never over an await.
    pub routes: Mutex<Routes>,
    /// What routing needs.
    pub context: Context,
    /// Woken by our own appends, by drained outboxes and by changes of the subscribers.
    pub wake: Arc<Notify>,
}

/// The reader's task.
pub struct Reader {
    /// What is shared.
    pub shared: Arc<Shared>,
    /// Where it reads.
    pub log: Arc<dyn Log>,
    /// Poll sizes and intervals.
    pub limits: Arc<Limits>,
    /// The consumer that commits.
    pub consumer: Arc<str>,
    /// Ends the reader at its next step, after a last commit.
    pub stop: CancellationToken,
}

impl Reader {
    /// Reads until nobody wants anything any more, or until it is stopped.
    pub async fn run(self) {
        let mut committed = None;
        let mut next_commit = Instant::now() + self.limits.commit_interval;
        let mut idle = self.limits.poll_interval_min;
        let mut size = PollSize::new(self.limits.max_poll_messages);
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));
        let mut is_gone = false;
        while !self.stop.is_cancelled() && !self.shared.routes.lock().stop_if_empty() {
            let step = tokio::select! {
                biased;
                () = self.stop.cancelled() => break,
                step = self.step(&mut size, &mut is_gone, &mut committed) => step,
            };
            if let Err(LogError::NoSuchTarget(_)) = step {
                is_gone = true;
            }
            let pause = match step {
                Ok(Step::More) => {
                    backoff.reset();
                    idle = self.limits.poll_interval_min;
                    None
                }
                Ok(Step::AtEnd) => {
                    backoff.reset();
                    idle = self.limits.poll_interval_min;
                    Some(idle)
                }
                Ok(Step::Idle) => {
                    backoff.reset();
                    let pause = idle;
                    idle = (idle * 2).min(self.limits.poll_interval_max);
                    Some(pause)
                }
                Err(error) => {
                    self.shared.context.counters.polls_failed.increment();
                    if backoff.is_fresh() {
                        tracing::warn!(triple = %self.shared.triple, %error, "reader cannot read; it tries again until it can");
                    }
                    let pause = backoff.next_pause();
                    tokio::select! {
                        () = self.stop.cancelled() => {}
                        () = sleep(pause) => {}
                    }
                    continue;
                }
            };
            if Instant::now() >= next_commit {
                self.commit(&mut committed).await;
                next_commit = Instant::now() + self.limits.commit_interval;
            }
            if let Some(pause) = pause {
                tokio::select! {
                    () = self.stop.cancelled() => {}
                    woken = timeout(pause, self.shared.wake.notified()) => {
                        if woken.is_ok() {
                            idle = self.limits.poll_interval_min;
                        }
                    }
                }
            }
        }
        self.commit(&mut committed).await;
    }

    /// One poll for all, and one for a subscriber that lags.
    async fn step(
        &self,
        size: &mut PollSize,
        is_gone: &mut bool,
        committed: &mut Option<u64>,
    ) -> Result<Step, LogError> {
        let shared = &*self.shared;
        let counters = &shared.context.counters;
        if *is_gone {
            self.log.end(&shared.triple).await?;
            // The topic was deleted and is there again: another log, which begins at 0, and was never committed to.
            shared.routes.lock().regress(0, &shared.context);
            counters.log_regressions.increment();
            tracing::warn!(triple = %shared.triple, "the topic was deleted and made anew; reading begins at its first record");
            (*is_gone, *committed) = (false, None);
        }
        let position = shared.routes.lock().position();
        let polled = self.poll(position, size).await?;
        let mut step = Step::Idle;
        if polled.records.is_empty() {
            counters.polls_empty.increment();
            if position > polled.newest_offset.saturating_add(1) {
                self.check_regression(position).await?;
            }
        } else {
            counters.records_read.add(polled.records.len() as u64);
            shared.routes.lock().route(&polled.records, &shared.context);
            let is_newest = polled
                .records
                .last()
                .is_some_and(|last| last.offset >= polled.newest_offset);
            step = if is_newest { Step::AtEnd } else { Step::More };
        }
        let lagging = shared.routes.lock().next_to_catch_up();
        if let Some((connection, from)) = lagging {
            let polled = self.poll(from, size).await?;
            shared
                .routes
                .lock()
                .catch_up(connection, &polled.records, &shared.context);
            step = Step::More;
        }
        Ok(step)
    }

    async fn poll(&self, from: u64, size: &mut PollSize) -> Result<Polled, LogError> {
        self.shared.context.counters.polls.increment();
        let polled = self.log.poll(&self.shared.triple, from, size.get()).await?;
        let bytes = polled
            .records
            .iter()
            .map(|record| record.payload.len())
            .sum();
        size.learn(polled.records.len(), bytes);
        Ok(polled)
    }

    /// A server can lose the end of a log that it had only in memory; later records then get offsets that were given
    /// out before, and a reader that waits at its old position would miss them.
    async fn check_regression(&self, position: u64) -> Result<(), LogError> {
        let end = self.log.end(&self.shared.triple).await?;
        if end < position {
            let shared = &*self.shared;
            shared.routes.lock().regress(end, &shared.context);
            shared.context.counters.log_regressions.increment();
            tracing::warn!(triple = %shared.triple, position, end, "the log has become shorter; reading goes on at its new end");
        }
        Ok(())
    }

    async fn commit(&self, committed: &mut Option<u64>) {
        let shared = &*self.shared;
        let safe = shared.routes.lock().safe(&shared.context);
        let Some(safe) = safe else { return };
        if *committed == Some(safe) {
            return;
        }
        match self.log.commit(&shared.triple, &self.consumer, safe).await {
            Ok(()) => {
                *committed = Some(safe);
                shared.context.counters.commits.increment();
            }
            Err(error) => {
                shared.context.counters.commits_failed.increment();
                tracing::debug!(triple = %shared.triple, %error, "offset not committed; it is tried again");
            }
        }
    }
}

enum Step {
    /// There is more to read at once.
    More,
    /// Something came, and it was the newest.
    AtEnd,
    /// Nothing came.
    Idle,
}
