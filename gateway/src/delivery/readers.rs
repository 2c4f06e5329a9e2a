//! Which partitions are read, and how a subscription comes to the reader of one.
//!
//! What always holds: a partition has one reader (D1), made for the first who wants it and forgotten when it has ended; a
//! new reader begins at the end of the log, or where the last run of the gateway had not finished, if that is not long
//! ago; one that is there already is never beyond the end when a subscription comes to it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::Delivery;
use super::ledger::SharedLedger;
use super::outbox::Outbox;
use super::reader::{Known, Reader, Shared};
use super::routes::{Context, Resume, Routes};
use crate::log::{LogError, Target, Triple};
use crate::mqtt::{QoS, TopicName};

/// Where a subscription begins to read a partition.
#[derive(Debug, Clone, Copy)]
pub(super) enum Begin {
    /// With what is stored from now on, and what the last run had not finished.
    Now,
    /// With what was stored within this time.
    Within(Duration),
    /// With the first record.
    First,
}

impl Delivery {
    /// When the topic was made. Asked before its partitions' ends are, so that if it is made anew in between, that will be
    /// noticed; once for all its partitions.
    async fn created(
        &self,
        target: &Target,
        created: &mut HashMap<Target, u64>,
    ) -> Result<u64, LogError> {
        if let Some(micros) = created.get(target) {
            return Ok(*micros);
        }
        let info = self.log.topic(target).await?;
        let info = info.ok_or_else(|| LogError::NoSuchTarget(target.to_string()))?;
        created.insert(target.clone(), info.created_micros);
        Ok(info.created_micros)
    }

    pub(super) async fn begin(
        self: &Arc<Self>,
        outbox: &Arc<Outbox>,
        topic: &TopicName,
        qos: QoS,
        triple: &Triple,
        begin: Begin,
        created: &mut HashMap<Target, u64>,
    ) -> Result<(), LogError> {
        loop {
            let existing = self.readers.lock().get(triple).cloned();
            let created_micros = match existing {
                Some(_) => None,
                None => Some(self.created(&triple.target, created).await?),
            };
            let position = existing
                .as_ref()
                .map(|shared| shared.routes.lock().position());
            // A new reader starts at the end: only what is stored from now on is promised. One that is there already
            // may stand beyond the end, if the topic was made anew since it last looked, and would miss what comes.
            let end = self.log.end(triple).await?;
            let from = match begin {
                Begin::Now => None,
                Begin::First => Some(0),
                Begin::Within(age) => Some(self.log.stored_within(triple, age).await?),
            };
            let shared = match (existing, created_micros) {
                (Some(shared), _) => {
                    if let Some((position, epoch)) = position
                        && position > end
                    {
                        shared.is_beyond(&*self.log, (position, epoch), end).await?;
                    }
                    shared
                }
                (None, created) => {
                    let created = created.unwrap_or_default();
                    self.add_reader(triple, end, created).await?
                }
            };
            let turn = {
                let mut routes = shared.routes.lock();
                if routes.is_stopped() {
                    drop(routes);
                    self.forget(&shared);
                    continue;
                }
                routes.subscribe(outbox, topic, qos, from, Instant::now())
            };
            shared.wake.notify_one();
            if let Some(turn) = turn {
                self.catch_ups.start(&shared, turn);
            }
            return Ok(());
        }
    }

    /// The reader of the partition, which is made if there is none.
    async fn add_reader(
        self: &Arc<Self>,
        triple: &Triple,
        end: u64,
        created_micros: u64,
    ) -> Result<Arc<Shared>, LogError> {
        let (committed, resume) = self.resume(triple, end).await?;
        let mut readers = self.readers.lock();
        let place = match readers.entry(triple.clone()) {
            Entry::Occupied(known) => return Ok(known.get().clone()),
            Entry::Vacant(place) => place,
        };
        let shared = Arc::new(Shared {
            triple: triple.clone(),
            routes: Mutex::new(Routes::starting_at(end, resume, Instant::now())),
            context: Context {
                ledger: SharedLedger::starting_at(end),
                counters: self.counters.clone(),
                triple: triple.clone(),
                lines: self.lines.clone(),
                // Under the lock: whoever makes another map known to the readers comes before this or after.
                foreign: self.map.map().foreign(&triple.target).cloned().into(),
            },
            wake: self.appends.listen(triple),
            known: Mutex::new(Known {
                created_micros,
                committed,
                failing_since: None,
                end,
                held: None,
            }),
            error: Mutex::default(),
        });
        place.insert(shared.clone());
        let reader = Reader {
            shared: shared.clone(),
            log: self.log.clone(),
            limits: self.limits.clone(),
            consumer: self.consumer.clone(),
            catch_ups: self.catch_ups.clone(),
            stop: self.stop.clone(),
        };
        let (delivery, ended) = (self.clone(), shared.clone());
        self.tasks.spawn(async move {
            reader.run().await;
            delivery.forget(&ended);
        });
        Ok(shared)
    }

    /// What is committed, and what is to be resumed, of a partition that ends at `end`.
    async fn resume(
        &self,
        triple: &Triple,
        end: u64,
    ) -> Result<(Option<u64>, Option<Resume>), LogError> {
        if Instant::now() >= self.resume_until {
            return Ok((None, None));
        }
        if let Some(resume) = self.resumes.lock().get(triple) {
            // A reader that has ended meanwhile has left the committed offset where this begins, or there is none.
            let committed = resume.and_then(|resume| resume.from.checked_sub(1));
            return Ok((committed, *resume));
        }
        let committed = self.log.committed(triple, &self.consumer).await?;
        let from = match committed {
            None => None,
            Some(committed) if committed >= end => {
                self.counters.log_regressions.increment();
                if let Some(left_out) = self.lines.changes.allow(Instant::now()) {
                    tracing::warn!(stream = %triple.target.stream, topic = %triple.target.topic, partition = triple.partition, committed, end, left_out, "the log has become shorter than what is committed; the committed offset is lowered");
                }
                Some(end)
            }
            Some(committed) => {
                let window = self.limits.resume_window;
                let fresh = self.log.stored_within(triple, window).await?;
                Some(fresh.max(committed + 1).min(end))
            }
        };
        if let Some(from) = from.filter(|from| *from < end)
            && let Some(left_out) = self.lines.resumed.allow(Instant::now())
        {
            tracing::info!(stream = %triple.target.stream, topic = %triple.target.topic, partition = triple.partition, from, end, left_out, "what was not acknowledged before the restart is delivered again to those who subscribe now");
        }
        // Also if it begins at the end: not all who were there come back before something is stored.
        let until = self.resume_until;
        let resume = from.map(|from| Resume { from, until });
        let known = *self.resumes.lock().entry(triple.clone()).or_insert(resume);
        Ok((committed, known))
    }

    pub(super) fn forget(&self, ended: &Arc<Shared>) {
        let mut readers = self.readers.lock();
        if readers
            .get(&ended.triple)
            .is_some_and(|shared| Arc::ptr_eq(shared, ended))
        {
            readers.remove(&ended.triple);
            self.appends.forget(&ended.triple, &ended.wake);
        }
    }

    pub(super) fn reader(&self, triple: &Triple) -> Option<Arc<Shared>> {
        self.readers.lock().get(triple).cloned()
    }
}
