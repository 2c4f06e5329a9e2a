//! A lane: the queue in front of one partition, with at most one append in flight.
//!
//! What always holds: records are appended in the order in which they were queued; while an append is in flight the queue
//! grows, and when it returns everything queued goes in the next one, up to the batch limits: low latency when idle,
//! large batches under load, no timer. An append that fails in transit is tried again with the same records, the same ids
//! and nothing overtaking it (N6); one that fails for good fails only the records to blame. The task of a lane ends when
//! its queue is empty.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::sleep;

use super::Ingest;
use super::ticket::Ticket;
use crate::backoff::Backoff;
use crate::log::{LogError, Record, Triple};
use crate::mapping::{RuleId, TopicPlan};

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
    /// Who waits for it.
    pub ticket: Ticket,
    /// Its share of `ingest_bytes`, free again when the entry ends.
    pub room: OwnedSemaphorePermit,
}

#[derive(Default)]
struct Queue {
    entries: VecDeque<Entry>,
    /// Whether a task is at work on the queue.
    running: bool,
}

/// See the module.
pub struct Lane {
    triple: Triple,
    /// The rule that first led here, and what it says of a missing topic.
    rule: RuleId,
    plan: TopicPlan,
    ingest: Weak<Ingest>,
    queue: Mutex<Queue>,
}

/// How often an append to a topic that has vanished is tried again after the topic was made anew.
const MAX_REVIVALS: usize = 3;

impl Lane {
    /// An empty lane.
    pub fn new(triple: Triple, rule: RuleId, plan: TopicPlan, ingest: &Arc<Ingest>) -> Arc<Self> {
        Arc::new(Self {
            triple,
            rule,
            plan,
            ingest: Arc::downgrade(ingest),
            queue: Mutex::default(),
        })
    }

    /// Queues `entry` and makes sure that a task is at work.
    pub fn push(self: &Arc<Self>, ingest: &Arc<Ingest>, entry: Entry) {
        let mut queue = self.queue.lock();
        queue.entries.push_back(entry);
        if !queue.running {
            queue.running = true;
            drop(queue);
            let lane = self.clone();
            ingest.tasks.spawn(async move { lane.run().await });
        }
    }

    async fn run(self: Arc<Self>) {
        while let Some(ingest) = self.ingest.upgrade() {
            let Some(batch) = self.next_batch(&ingest) else {
                return;
            };
            tokio::select! {
                biased;
                () = ingest.stop.cancelled() => {}
                () = self.append(&ingest, batch) => {}
            }
        }
    }

    /// What goes in the next append; `None` ends the task.
    fn next_batch(&self, ingest: &Ingest) -> Option<Vec<Entry>> {
        let mut queue = self.queue.lock();
        if ingest.stop.is_cancelled() {
            queue.entries.clear();
        }
        let mut bytes = 0;
        let count = queue
            .entries
            .iter()
            .take(ingest.limits.max_batch_messages)
            .take_while(|entry| {
                let is_first = bytes == 0;
                bytes += entry.record.size();
                is_first || bytes <= ingest.limits.max_batch_bytes
            })
            .count();
        queue.running = count > 0;
        (count > 0).then(|| queue.entries.drain(..count).collect())
    }

    async fn append(&self, ingest: &Ingest, batch: Vec<Entry>) {
        let mut records = Vec::with_capacity(batch.len());
        let mut waiting = Vec::with_capacity(batch.len());
        for Entry {
            record,
            ticket,
            room,
        } in batch
        {
            records.push(record);
            waiting.push((ticket, room));
        }
        match self.append_until_known(ingest, &records).await {
            Ok(evidence) => waiting
                .into_iter()
                .for_each(|(ticket, _)| ticket.stored(evidence)),
            Err(error) if records.len() > 1 && may_blame_one(&error) => {
                for (record, (ticket, _room)) in records.iter().zip(waiting) {
                    match self
                        .append_until_known(ingest, std::slice::from_ref(record))
                        .await
                    {
                        Ok(evidence) => ticket.stored(evidence),
                        Err(error) => self.refuse(ticket, &error),
                    }
                }
            }
            Err(error) => waiting
                .into_iter()
                .for_each(|(ticket, _)| self.refuse(ticket, &error)),
        }
    }

    fn refuse(&self, ticket: Ticket, error: &LogError) {
        tracing::warn!(triple = %self.triple, rule = %self.rule, %error, "publish refused");
        ticket.refused();
    }

    /// Appends until the outcome is known: committed, or refused for good.
    async fn append_until_known(
        &self,
        ingest: &Ingest,
        records: &[Record],
    ) -> Result<Committed, LogError> {
        let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1));
        let mut revivals = 0;
        loop {
            let error = match ingest.log.append(&self.triple, records).await {
                Ok(()) => {
                    ingest.counters.appends.increment();
                    ingest.appends.tell(&self.triple);
                    return Ok(Committed { _private: () });
                }
                Err(error) => error,
            };
            match error {
                _ if error.is_transient() => {
                    if backoff.is_fresh() {
                        tracing::warn!(triple = %self.triple, %error, "append failed; it is tried again until it succeeds");
                    }
                }
                LogError::NoSuchTarget(_) if revivals < MAX_REVIVALS => {
                    revivals += 1;
                    self.revive(ingest, &error).await?;
                }
                _ => return Err(error),
            }
            ingest.counters.append_retries.increment();
            sleep(backoff.next_pause()).await;
        }
    }

    /// The topic has vanished: makes it anew if its rule says so.
    async fn revive(&self, ingest: &Ingest, gone: &LogError) -> Result<(), LogError> {
        ingest.targets.forget(&self.triple.target);
        match ingest
            .targets
            .ensure(self.rule, &self.triple.target, &self.plan)
            .await
        {
            Ok(info) => {
                ingest.repartition(&self.triple.target, info.partitions);
                if self.triple.partition < info.partitions {
                    Ok(())
                } else {
                    Err(gone.clone())
                }
            }
            Err(error) if error.is_transient() => Ok(()),
            Err(error) => {
                // When it is there again, it may have another number of partitions.
                ingest.forget(&self.triple.target);
                Err(LogError::NoSuchTarget(error.to_string()))
            }
        }
    }
}

/// Whether the error may be the fault of one record, so that the others are worth appending without it.
fn may_blame_one(error: &LogError) -> bool {
    matches!(error, LogError::TooLarge(_) | LogError::Refused(_))
}
