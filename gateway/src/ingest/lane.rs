//! A lane: the queue in front of one partition, with at most one append in flight.
//!
//! What always holds: records are appended in the order in which they were queued; while an append is in flight the queue
//! grows, and when it returns everything queued goes in the next one, up to the batch limits: low latency when idle,
//! large batches under load, no timer. An append that fails in transit is tried again with the same records, the same ids
//! and nothing overtaking it (N6); one that fails for good fails only the records to blame. A lane whose topic has another
//! number of partitions than when it was made gives back what it has not appended ([`Lane::retire`]). The task of a lane
//! ends when its queue is empty, and the lane with it.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::Ingest;
use super::board::{Board, Place};
use super::room::Hold;
use super::ticket::Ticket;
use crate::backoff::Backoff;
use crate::log::{LogError, Record, Triple};
use crate::mapping::{InUse, KeyHash, RuleId, TopicPlan};
use crate::pace::Pace;

/// The evidence that an append was committed. Only a lane can make it, and only from the log's confirmation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    _private: (),
}

#[cfg(test)]
impl Committed {
    pub(super) const fn for_tests() -> Self {
        Self { _private: () }
    }
}

/// A record on its way to the log.
pub struct Entry {
    /// What is appended.
    pub record: Record,
    /// What its partition is computed from.
    pub key: Option<KeyHash>,
    /// Who waits for it.
    pub ticket: Ticket,
    /// Its share of `ingest_bytes`, free again when the entry ends.
    pub hold: Hold,
    /// The map that has said where it goes.
    pub map: InUse,
}

#[derive(Default)]
struct Queue {
    entries: VecDeque<Entry>,
    /// Whether a task is at work on the queue.
    running: bool,
    /// When the queue was last empty at most, while it is not: read once for each batch, not for each message.
    since: Option<Instant>,
    /// The batch that is being appended.
    in_flight: Option<InFlight>,
}

impl Queue {
    fn show(&self, place: &Place) {
        let in_flight = self.in_flight.map_or(0, |batch| batch.messages);
        let since = self.in_flight.map(|batch| batch.since).or(self.since);
        place.holds(self.entries.len(), in_flight, since);
    }
}

/// A batch that is being appended.
#[derive(Debug, Clone, Copy)]
struct InFlight {
    messages: usize,
    /// No message of it has been here for longer.
    since: Instant,
}

/// See the module.
pub struct Lane {
    /// Where it appends.
    pub triple: Triple,
    /// The rule that first led here, and what it says of a missing topic.
    rule: RuleId,
    plan: TopicPlan,
    pace: Option<Mutex<Pace>>,
    ingest: Weak<Ingest>,
    queue: Mutex<Queue>,
    /// Its figures; those of the queue are written under the queue's lock.
    place: Place,
    /// Cancelled when the lane is to give back what it has.
    retired: CancellationToken,
    /// Told when a task has ended.
    ended: Notify,
}

/// How often an append to a topic that has vanished is tried again after the topic was made anew.
const MAX_REVIVALS: usize = 3;

/// Whether a topic that has vanished is there again.
enum Revived {
    Yes,
    /// Iggy did not answer.
    NotKnown,
}

/// What became of an append.
enum Appended {
    Committed(Committed),
    /// Its lane retired before the outcome was known to be good.
    GivenBack,
    /// Never.
    Refused(LogError),
}

impl Lane {
    /// An empty lane, which shows its figures on `board`. With a `pace` it appends no faster.
    pub fn new(
        triple: Triple,
        rule: RuleId,
        plan: TopicPlan,
        pace: Option<Pace>,
        board: &Arc<Board>,
        ingest: Weak<Ingest>,
    ) -> Arc<Self> {
        Arc::new(Self {
            place: board.enter(triple.clone()),
            triple,
            rule,
            plan,
            pace: pace.map(Mutex::new),
            ingest,
            queue: Mutex::default(),
            retired: CancellationToken::new(),
            ended: Notify::new(),
        })
    }

    /// Queues `entry` and makes sure that a task is at work.
    pub fn push(self: &Arc<Self>, ingest: &Arc<Ingest>, entry: Entry) {
        let mut queue = self.queue.lock();
        queue.entries.push_back(entry);
        if queue.since.is_none() {
            queue.since = Some(Instant::now());
            queue.show(&self.place);
        } else {
            self.place.queues(queue.entries.len());
        }
        if !queue.running {
            queue.running = true;
            drop(queue);
            let lane = self.clone();
            ingest.tasks.spawn(async move { lane.run().await });
        }
    }

    /// Whether nothing is queued or in flight.
    pub fn is_idle(&self) -> bool {
        let queue = self.queue.lock();
        !queue.running && queue.entries.is_empty()
    }

    /// Holds the lock under which entries come and go.
    #[cfg(test)]
    pub(super) fn lock(&self) -> impl Sized + '_ {
        self.queue.lock()
    }

    /// How many entries are queued.
    pub fn queued(&self) -> usize {
        self.queue.lock().entries.len()
    }

    /// Lets the lane stop at its next step. Nothing may be pushed any more.
    pub fn begin_to_retire(&self) {
        self.retired.cancel();
    }

    /// Waits until the lane has stopped, and returns what it has not appended, oldest first.
    pub async fn retire(&self) -> Vec<Entry> {
        self.begin_to_retire();
        loop {
            {
                let mut queue = self.queue.lock();
                if !queue.running {
                    let entries = queue.entries.drain(..).collect();
                    queue.show(&self.place);
                    return entries;
                }
            }
            self.ended.notified().await;
        }
    }

    async fn run(self: Arc<Self>) {
        let mut guard = EndsLane {
            lane: &self,
            is_running: true,
        };
        while let Some(ingest) = self.ingest.upgrade() {
            let Some(batch) = self.next_batch(&ingest).await else {
                // Another task may be running by now.
                guard.is_running = false;
                ingest.drop_idle(&self);
                return;
            };
            let given_back = tokio::select! {
                biased;
                () = ingest.stop.cancelled() => Vec::new(),
                given_back = self.append(&ingest, batch) => given_back,
            };
            if self.retired.is_cancelled() {
                let mut queue = self.queue.lock();
                if let Some(batch) = queue.in_flight.take() {
                    queue.since = Some(batch.since);
                }
                for entry in given_back.into_iter().rev() {
                    queue.entries.push_front(entry);
                }
                queue.show(&self.place);
                return;
            }
        }
    }

    /// What goes in the next append; `None` ends the task.
    async fn next_batch(&self, ingest: &Ingest) -> Option<Vec<Entry>> {
        let mut most = ingest.limits.max_batch_messages;
        if let Some(pace) = &self.pace {
            loop {
                let now = Instant::now();
                let allowed = pace.lock().allowed(now);
                match allowed {
                    Ok(allowed) => {
                        most = most.min(allowed);
                        break;
                    }
                    Err(until) => {
                        tokio::select! {
                            () = ingest.stop.cancelled() => break,
                            () = self.retired.cancelled() => break,
                            () = sleep_until(until) => {}
                        }
                    }
                }
            }
        }
        let mut queue = self.queue.lock();
        if ingest.stop.is_cancelled() {
            queue.entries.clear();
        }
        queue.entries.retain_mut(|entry| entry.ticket.is_in_time());
        let mut bytes = 0;
        let count = queue
            .entries
            .iter()
            .take(most)
            .take_while(|entry| {
                let is_first = bytes == 0;
                bytes += entry.record.size();
                is_first || bytes <= ingest.limits.max_batch_bytes
            })
            .count();
        queue.running = count > 0;
        let since = queue.since;
        queue.in_flight = since.filter(|_| count > 0).map(|since| InFlight {
            messages: count,
            since,
        });
        // Those that stay came after the batch before, as those that go did: no later time is known for certain.
        if count == queue.entries.len() {
            queue.since = None;
        }
        if let Some(pace) = &self.pace {
            pace.lock().spend(count);
        }
        let batch: Vec<Entry> = queue.entries.drain(..count).collect();
        queue.show(&self.place);
        (count > 0).then_some(batch)
    }

    /// Returns what was not appended because the lane retires.
    async fn append(&self, ingest: &Arc<Ingest>, batch: Vec<Entry>) -> Vec<Entry> {
        let mut records = Vec::with_capacity(batch.len());
        let mut waiting = Vec::with_capacity(batch.len());
        for Entry {
            record,
            key,
            ticket,
            hold,
            map,
        } in batch
        {
            records.push(record);
            waiting.push((key, ticket, hold, map));
        }
        let entry = |record, (key, ticket, hold, map)| Entry {
            record,
            key,
            ticket,
            hold,
            map,
        };
        match self.append_until_known(ingest, &records).await {
            Appended::Committed(evidence) => {
                for (_, ticket, ..) in waiting {
                    ticket.stored(evidence);
                }
            }
            Appended::GivenBack => {
                return records
                    .into_iter()
                    .zip(waiting)
                    .map(|(record, rest)| entry(record, rest))
                    .collect();
            }
            Appended::Refused(error) if records.len() > 1 && may_blame_one(&error) => {
                let mut entries = records
                    .into_iter()
                    .zip(waiting)
                    .map(|(record, rest)| entry(record, rest));
                while let Some(one) = entries.next() {
                    let records = std::slice::from_ref(&one.record);
                    match self.append_until_known(ingest, records).await {
                        Appended::Committed(evidence) => one.ticket.stored(evidence),
                        Appended::GivenBack => {
                            return std::iter::once(one).chain(entries).collect();
                        }
                        Appended::Refused(error) => {
                            ingest.unstorable(one, (&error).into(), Some(self.rule), &error);
                        }
                    }
                }
            }
            Appended::Refused(error) => {
                for (record, rest) in records.into_iter().zip(waiting) {
                    let one = entry(record, rest);
                    ingest.unstorable(one, (&error).into(), Some(self.rule), &error);
                }
            }
        }
        Vec::new()
    }

    /// Appends until the outcome is known.
    async fn append_until_known(&self, ingest: &Arc<Ingest>, records: &[Record]) -> Appended {
        let appended = self.try_until_known(ingest, records).await;
        self.place.fails_no_more();
        appended
    }

    async fn try_until_known(&self, ingest: &Arc<Ingest>, records: &[Record]) -> Appended {
        let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1));
        let begun = Instant::now();
        let mut revivals = 0;
        loop {
            let error = match ingest.log.append(&self.triple, records).await {
                Ok(()) => {
                    ingest.counters.appends.increment();
                    let micros = begun.elapsed().as_micros();
                    let micros = u64::try_from(micros).unwrap_or(u64::MAX);
                    ingest.counters.append_micros.observe(micros);
                    ingest
                        .counters
                        .append_messages
                        .observe(records.len() as u64);
                    ingest.appends.tell(&self.triple);
                    if !backoff.is_fresh() {
                        // Much may have happened meanwhile.
                        ingest.check_partitions(&self.triple.target);
                    }
                    return Appended::Committed(Committed { _private: () });
                }
                Err(error) => error,
            };
            let text = error.to_string();
            match error {
                _ if error.is_transient() => {
                    if backoff.is_fresh()
                        && let Some(left_out) = ingest.failures.allow(Instant::now())
                    {
                        tracing::warn!(stream = %self.triple.target.stream, topic = %self.triple.target.topic, partition = self.triple.partition, %error, left_out, "append failed; it is tried again until it succeeds");
                    }
                }
                LogError::NoSuchTarget(_) if revivals < MAX_REVIVALS => {
                    match self.revive(ingest).await {
                        Ok(Revived::Yes) => revivals += 1,
                        Ok(Revived::NotKnown) => {}
                        Err(error) => return Appended::Refused(error),
                    }
                }
                _ => return Appended::Refused(error),
            }
            if self.retired.is_cancelled() {
                return Appended::GivenBack;
            }
            ingest.counters.append_retries.increment();
            self.place.fails(text);
            tokio::select! {
                () = self.retired.cancelled() => {}
                () = sleep(backoff.next_pause()) => {}
            }
        }
    }

    /// The topic or the partition has vanished: makes the topic anew if its rule says so.
    async fn revive(&self, ingest: &Arc<Ingest>) -> Result<Revived, LogError> {
        let target = &self.triple.target;
        ingest.targets.forget(target);
        match ingest.targets.ensure(self.rule, target, &self.plan).await {
            Ok(info) => {
                ingest.repartition(target, info.partitions);
                Ok(Revived::Yes)
            }
            Err(error) if error.is_transient() => Ok(Revived::NotKnown),
            Err(error) => {
                ingest.forget(target);
                Err(LogError::NoSuchTarget(error.to_string()))
            }
        }
    }
}

/// However the task of a lane ends, by a panic too, another can begin.
struct EndsLane<'a> {
    lane: &'a Lane,
    /// Whether the queue still says that this task is at work.
    is_running: bool,
}

impl Drop for EndsLane<'_> {
    fn drop(&mut self) {
        if self.is_running {
            self.lane.queue.lock().running = false;
        }
        self.lane.ended.notify_one();
    }
}

/// Whether the error may be the fault of one record, so that the others are worth appending without it.
fn may_blame_one(error: &LogError) -> bool {
    matches!(error, LogError::TooLarge(_) | LogError::Refused(_))
}
