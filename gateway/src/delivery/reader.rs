//! The reader of one partition: polls once for all its live subscribers, and commits what is safe.
//!
//! What always holds: one reader per partition (D1), and it alone moves the position; a poll commits nothing; committed
//! is never more than safe (D4), and at most one commit is sent each `commit_interval`; polling waits neither for commits
//! nor for those who are behind (D7); an idle partition is polled at most every `poll_interval_max`, and at once after an
//! append of this gateway; a failing log is asked again for ever, with capped backoff.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::catch_up::CatchUps;
use super::poll_size::PollSize;
use super::routes::{Context, Routes};
use crate::backoff::Backoff;
use crate::config::Limits;
use crate::log::{Log, LogError, Polled, Triple};

/// A reader goes on for so long, or for `commit_interval` if that is longer, when nobody wants anything any more: a client
/// that subscribes again soon finds it there, and clients that come and go do not cost commits.
const LINGER: Duration = Duration::from_secs(2);

/// How often a partition whose only record may have been lost is asked for its end.
const QUIET: Duration = Duration::from_secs(1);

/// What the reader shares with whoever subscribes.
pub struct Shared {
    /// The partition.
    pub triple: Triple,
    /// Who wants what. Held for as long as one batch takes to be routed, never over an await.
    pub routes: Mutex<Routes>,
    /// What routing needs.
    pub context: Context,
    /// Woken by our own appends and by changes of the subscribers.
    pub wake: Arc<Notify>,
    /// What is known of the partition in Iggy.
    pub known: Mutex<Known>,
    /// Why the last poll has failed, while they fail.
    pub error: Mutex<Option<String>>,
}

/// What a reader knows of its partition in Iggy.
#[derive(Debug, Clone, Copy)]
pub struct Known {
    /// When the topic was made that is read.
    pub created_micros: u64,
    /// What is committed there, as far as this gateway knows.
    pub committed: Option<u64>,
    /// Since when polls have failed.
    pub failing_since: Option<Instant>,
    /// The offset behind the newest record, as the last poll said.
    pub end: u64,
    /// The first offset that was held when it was last looked at, and since when it has been that one.
    pub held: Option<(u64, Instant)>,
}

impl Shared {
    /// The log is shorter than it was, or another: reading goes on at `end`.
    pub fn regress(&self, end: u64) {
        self.routes.lock().regress(end, &self.context);
        self.context.counters.log_regressions.increment();
        self.wake.notify_one();
    }

    /// The topic is another than the one that was read: its log begins at 0, and nothing is committed there.
    pub fn begin_anew(&self) {
        self.known.lock().committed = None;
        self.regress(0);
        if let Some(left_out) = self.context.lines.changes.allow(Instant::now()) {
            tracing::warn!(stream = %self.triple.target.stream, topic = %self.triple.target.topic, partition = self.triple.partition, left_out, "the topic was deleted and made anew; reading begins at its first record");
        }
    }

    /// The log was found to end at `end`, before the position that was reached in that epoch: it is shorter than it was, or
    /// another. Which of both is asked, because of another log everything is to be read, and in order (D3).
    pub async fn is_beyond(
        &self,
        log: &dyn Log,
        reached: (u64, u64),
        end: u64,
    ) -> Result<(), LogError> {
        let target = &self.triple.target;
        let info = log.topic(target).await?;
        let info = info.ok_or_else(|| LogError::NoSuchTarget(target.to_string()))?;
        if self.routes.lock().position() != reached {
            return Ok(());
        }
        let is_same = {
            let created = &mut self.known.lock().created_micros;
            std::mem::replace(created, info.created_micros) == info.created_micros
        };
        if is_same {
            let position = reached.0;
            if let Some(left_out) = self.context.lines.changes.allow(Instant::now()) {
                tracing::warn!(stream = %self.triple.target.stream, topic = %self.triple.target.topic, partition = self.triple.partition, position, end, left_out, "the log has become shorter; reading goes on at its new end");
            }
            self.regress(end);
        } else {
            self.begin_anew();
        }
        Ok(())
    }

    /// A poll at `position` has brought this.
    fn saw_end(&self, position: u64, polled: &Polled) {
        // The newest offset of an empty partition is 0, as that of one with a single record is.
        let is_known = polled.newest_offset > 0 || !polled.records.is_empty();
        let end = if is_known {
            polled.newest_offset.saturating_add(1)
        } else {
            position
        };
        self.known.lock().end = end;
    }

    /// Looks whether an offset is held, and gives the first one and since when it has been the first that was seen.
    pub fn look(&self, now: Instant) -> Option<(u64, Instant)> {
        let held = self.routes.lock().held(&self.context);
        let seen = &mut self.known.lock().held;
        *seen = held.map(|offset| match *seen {
            Some((before, since)) if before == offset => (offset, since),
            _ => (offset, now),
        });
        *seen
    }

    /// How far it is safe to commit.
    pub fn safe(&self, now: Instant) -> Option<u64> {
        self.routes.lock().safe(&self.context, now)
    }
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
    /// Who brings subscribers that are behind to the reader again.
    pub catch_ups: Arc<CatchUps>,
    /// Ends the reader at its next step, after a last commit.
    pub stop: CancellationToken,
}

impl Reader {
    /// Reads until nobody wants anything any more, or until it is stopped.
    pub async fn run(self) {
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => {}
                () = self.read() => {}
                () = self.commit_now_and_then() => {}
            }
            if self.stop.is_cancelled() {
                return self.commit().await;
            }
            self.let_go().await;
            if self.shared.routes.lock().stop_if_empty() {
                return;
            }
        }
    }

    /// Nobody is left who could come back for what is not done: a restart has nothing to resume.
    async fn let_go(&self) {
        let shared = &*self.shared;
        let resume = shared.routes.lock().resume();
        if resume.is_some_and(|resume| Instant::now() < resume.until) {
            return self.commit().await;
        }
        if shared.known.lock().committed.is_none() {
            return;
        }
        match self.log.forget(&shared.triple, &self.consumer).await {
            Ok(()) => shared.known.lock().committed = None,
            Err(error) => {
                tracing::debug!(stream = %shared.triple.target.stream, topic = %shared.triple.target.topic, partition = shared.triple.partition, %error, "committed offset not removed");
            }
        }
    }

    /// Reads for those who are live, until nobody has wanted anything for a while.
    async fn read(&self) {
        let shared = &*self.shared;
        let linger = LINGER.max(self.limits.commit_interval);
        let mut idle = self.limits.poll_interval_min;
        let mut size = PollSize::for_all(self.limits.max_poll_messages);
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));
        let mut is_gone = false;
        let mut quiet_since = Instant::now();
        loop {
            let empty_for = shared.routes.lock().empty_for(Instant::now());
            if empty_for.is_some_and(|time| time >= linger) {
                return;
            }
            let step = self.step(&mut size, &mut is_gone, &mut quiet_since).await;
            let pause = match step {
                Ok(step) => {
                    if !backoff.is_fresh() {
                        backoff.reset();
                        shared.known.lock().failing_since = None;
                        *shared.error.lock() = None;
                    }
                    match step {
                        Step::More => {
                            idle = self.limits.poll_interval_min;
                            continue;
                        }
                        Step::AtEnd => {
                            idle = self.limits.poll_interval_min;
                            idle
                        }
                        Step::Idle => {
                            let pause = idle;
                            idle = (idle * 2).min(self.limits.poll_interval_max);
                            pause
                        }
                    }
                }
                Err(error) => {
                    is_gone |= matches!(error, LogError::NoSuchTarget(_));
                    shared.context.counters.polls_failed.increment();
                    *shared.error.lock() = Some(error.to_string());
                    if backoff.is_fresh() {
                        shared.known.lock().failing_since = Some(Instant::now());
                    }
                    if backoff.is_fresh()
                        && let Some(left_out) = shared.context.lines.failures.allow(Instant::now())
                    {
                        tracing::warn!(stream = %shared.triple.target.stream, topic = %shared.triple.target.topic, partition = shared.triple.partition, %error, left_out, "reader cannot read; it tries again until it can");
                    }
                    sleep(backoff.next_pause()).await;
                    continue;
                }
            };
            if timeout(pause, shared.wake.notified()).await.is_ok() {
                idle = self.limits.poll_interval_min;
            }
        }
    }

    /// One poll for all who are live.
    async fn step(
        &self,
        size: &mut PollSize,
        is_gone: &mut bool,
        quiet_since: &mut Instant,
    ) -> Result<Step, LogError> {
        let shared = &*self.shared;
        let counters = &shared.context.counters;
        if *is_gone {
            let target = &shared.triple.target;
            let Some(info) = self.log.topic(target).await? else {
                return Err(LogError::NoSuchTarget(target.to_string()));
            };
            self.log.end(&shared.triple).await?;
            *is_gone = false;
            shared.known.lock().created_micros = info.created_micros;
            shared.begin_anew();
        }
        let (position, epoch) = shared.routes.lock().position();
        counters.polls.increment();
        let polled = self.log.poll(&shared.triple, position, size.get()).await?;
        size.learn_from(&polled.records);
        shared.saw_end(position, &polled);
        if polled.records.is_empty() {
            counters.polls_empty.increment();
            // The newest offset of an empty partition is 0, as that of one with a single record is: asked now and then.
            let may_be_empty =
                position == 1 && polled.newest_offset == 0 && quiet_since.elapsed() >= QUIET;
            if may_be_empty {
                *quiet_since = Instant::now();
            }
            if may_be_empty || position > polled.newest_offset.saturating_add(1) {
                self.check_regression(position, epoch).await?;
            }
            return Ok(Step::Idle);
        }
        *quiet_since = Instant::now();
        counters.records_read.add(polled.records.len() as u64);
        let turns = shared
            .routes
            .lock()
            .route(epoch, &polled.records, &shared.context);
        for turn in turns {
            self.catch_ups.start(&self.shared, turn);
        }
        let is_newest = polled
            .records
            .last()
            .is_some_and(|last| last.offset >= polled.newest_offset);
        Ok(if is_newest { Step::AtEnd } else { Step::More })
    }

    /// A server can lose the end of a log that it had only in memory; later records then get offsets that were given
    /// out before, and a reader that waits at its old position would miss them.
    async fn check_regression(&self, position: u64, epoch: u64) -> Result<(), LogError> {
        let shared = &*self.shared;
        let end = self.log.end(&shared.triple).await?;
        if end < position {
            let reached = (position, epoch);
            shared.is_beyond(&*self.log, reached, end).await?;
        }
        Ok(())
    }

    /// Commits what is safe: at once, so that a crash from now on can be told from a start, then each `commit_interval`.
    async fn commit_now_and_then(&self) {
        loop {
            self.commit().await;
            sleep(self.limits.commit_interval).await;
        }
    }

    async fn commit(&self) {
        let shared = &*self.shared;
        let safe = shared.safe(Instant::now());
        let committed = shared.known.lock().committed;
        if safe == committed {
            return;
        }
        let (triple, consumer) = (&shared.triple, &self.consumer);
        let outcome = match safe {
            Some(safe) => self.log.commit(triple, consumer, safe).await,
            None => self.log.forget(triple, consumer).await,
        };
        match outcome {
            Ok(()) => {
                let mut known = shared.known.lock();
                // The log may have become another meanwhile.
                if known.committed == committed {
                    known.committed = safe;
                }
                shared.context.counters.commits.increment();
            }
            Err(error) => {
                shared.context.counters.commits_failed.increment();
                tracing::debug!(stream = %triple.target.stream, topic = %triple.target.topic, partition = triple.partition, %error, "offset not committed; it is tried again");
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
