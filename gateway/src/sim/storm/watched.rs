//! The log of a run: the memory log, watched. It notes what was asked and answered, refuses batches with a poisoned record
//! as a server with narrower limits would, and checks the appends themselves.
//!
//! What always holds: at most one append to a partition is in flight; after one that failed in transit comes the same
//! append again, with the same ids in the same order, and nothing before it (N6); an id stands for one message. What was
//! stored is known also after it was lost with a restart or a deletion.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;

use super::message::{Label, is_poisoned};
use crate::log::memory::MemoryLog;
use crate::log::{
    Log, LogError, Polled, Record, StoredRecord, Target, TopicInfo, TopicSpec, Triple,
};
use crate::sim::trace::Trace;

/// See the module.
pub(super) struct Watched {
    pub(super) memory: Arc<MemoryLog>,
    trace: Trace,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    in_flight: HashSet<Triple>,
    /// The appends that have to come next, of each partition where one has failed.
    due: HashMap<Triple, VecDeque<Vec<u128>>>,
    /// Topics whose partitions have changed: what waits for them is sorted anew.
    changed: HashSet<Target>,
    /// Those of them that were deleted.
    deleted: HashSet<Target>,
    /// The topics that something was to be appended to.
    targets: HashSet<Target>,
    /// The messages of appends that were confirmed.
    confirmed: HashSet<Label>,
    /// What each id stands for.
    ids: HashMap<u128, Label>,
    history: HashMap<Triple, History>,
}

/// What a partition holds and held.
#[derive(Default)]
struct History {
    /// One list for each time that its topic was made.
    lives: Vec<Vec<StoredRecord>>,
    /// How many records of the present life are in its list.
    known: usize,
}

impl Watched {
    pub(super) fn new(memory: MemoryLog, trace: Trace) -> Arc<Self> {
        Arc::new(Self {
            memory: Arc::new(memory),
            trace,
            seen: Mutex::default(),
        })
    }

    /// Whether an append of the message was confirmed.
    pub(super) fn is_confirmed(&self, label: &Label) -> bool {
        self.seen.lock().confirmed.contains(label)
    }

    /// Stores what the connectors runtime was given, which says later whether it has.
    pub(super) async fn store(&self, triple: &Triple, records: &[Record]) {
        self.trace
            .note("runtime", format_args!("stores {}", labels(records)));
        self.seen.lock().targets.insert(triple.target.clone());
        self.memory.append(triple, records).await.unwrap();
    }

    /// The connectors runtime says that it has stored the records.
    pub(super) fn confirm(&self, records: &[Record]) {
        let labels = records.iter().map(|record| Label::of(&record.payload));
        self.seen.lock().confirmed.extend(labels);
    }

    /// The end of the partition is about to be lost from `end` on.
    pub(super) fn truncate(&self, triple: &Triple, end: u64) {
        self.learn(triple);
        let mut seen = self.seen.lock();
        if let Some(history) = seen.history.get_mut(triple) {
            history.known = history.known.min(end as usize);
        }
        drop(seen);
        self.memory.truncate(triple, end);
    }

    /// The topic is deleted, and made again at once with so many partitions if that is given.
    pub(super) fn delete(&self, target: &Target, partitions: Option<u32>) {
        for triple in self.partitions(target) {
            self.learn(&triple);
            let mut seen = self.seen.lock();
            let history = seen.history.entry(triple).or_default();
            if history.lives.is_empty() {
                history.lives.push(Vec::new());
            }
            history.lives.push(Vec::new());
            history.known = 0;
        }
        self.seen.lock().deleted.insert(target.clone());
        self.changes(target);
        self.memory.delete_topic(target);
        if let Some(partitions) = partitions {
            self.memory.add_topic(target, partitions, None);
        }
    }

    /// The topic gets more partitions.
    pub(super) fn grow(&self, target: &Target, partitions: u32) {
        self.changes(target);
        self.memory.add_partitions(target, partitions);
    }

    fn changes(&self, target: &Target) {
        let mut seen = self.seen.lock();
        seen.changed.insert(target.clone());
        seen.due.retain(|triple, _| triple.target != *target);
    }

    /// Whether the topic was deleted in this run.
    pub(super) fn was_deleted(&self, target: &Target) -> bool {
        self.seen.lock().deleted.contains(target)
    }

    /// Everything that each partition ever held, in the order in which it was stored; one list for each life of its topic.
    pub(super) fn lives(&self) -> Vec<(Triple, Vec<Vec<StoredRecord>>)> {
        let targets = self.seen.lock().targets.clone();
        let mut all = Vec::new();
        for target in targets {
            for triple in self.partitions(&target) {
                self.learn(&triple);
                let seen = self.seen.lock();
                let lives = seen
                    .history
                    .get(&triple)
                    .map(|history| history.lives.clone());
                all.push((triple, lives.unwrap_or_default()));
            }
        }
        all
    }

    /// The partitions that the topic may have or have had.
    fn partitions(&self, target: &Target) -> impl Iterator<Item = Triple> + use<> {
        let target = target.clone();
        (0..MOST_PARTITIONS).map(move |partition| Triple {
            target: target.clone(),
            partition,
        })
    }

    /// Takes over what the partition has got since the last time.
    fn learn(&self, triple: &Triple) {
        let records = self.memory.records(triple);
        if records.is_empty() {
            return;
        }
        let mut seen = self.seen.lock();
        let history = seen.history.entry(triple.clone()).or_default();
        if history.lives.is_empty() {
            history.lives.push(Vec::new());
        }
        if let Some(life) = history.lives.last_mut() {
            life.extend_from_slice(&records[history.known.min(records.len())..]);
        }
        history.known = records.len();
    }

    /// Checks an append that begins.
    fn begins<'a>(&'a self, triple: &'a Triple, records: &[Record]) -> InFlight<'a> {
        let ids: Vec<u128> = records.iter().map(|record| record.id).collect();
        let mut seen = self.seen.lock();
        assert!(
            seen.in_flight.insert(triple.clone()),
            "two appends to {triple} at a time"
        );
        seen.targets.insert(triple.target.clone());
        for record in records {
            let label = Label::of(&record.payload);
            let known = seen.ids.entry(record.id).or_insert_with(|| label.clone());
            assert_eq!(*known, label, "one id for two messages");
        }
        let due = seen.due.entry(triple.clone()).or_default().pop_front();
        if let Some(due) = due {
            assert_eq!(
                ids, due,
                "N6: another append to {triple} than that which failed"
            );
        }
        InFlight {
            watched: self,
            triple,
        }
    }

    /// Notes how an append has ended, and what has to come next.
    fn ended(&self, triple: &Triple, records: &[Record], outcome: &Result<(), LogError>) {
        let labels = labels(records);
        match outcome {
            Ok(()) => self.trace.note(
                "log",
                format_args!("append to {triple} {labels} is confirmed"),
            ),
            Err(error) => self.trace.note(
                "log",
                format_args!("append to {triple} {labels} fails: {error}"),
            ),
        }
        let ids = || records.iter().map(|record| record.id);
        let mut seen = self.seen.lock();
        let seen = &mut *seen;
        let is_sorted_anew = seen.changed.contains(&triple.target);
        let due = seen.due.entry(triple.clone()).or_default();
        match outcome {
            Ok(()) => {
                let labels = records.iter().map(|record| Label::of(&record.payload));
                seen.confirmed.extend(labels);
            }
            Err(_) if is_sorted_anew => {}
            Err(error) if error.is_transient() => due.push_front(ids().collect()),
            Err(LogError::TooLarge(_) | LogError::Refused(_)) if records.len() > 1 => {
                for id in ids().rev() {
                    due.push_front(vec![id]);
                }
            }
            Err(_) => {}
        }
    }
}

/// The messages of a batch.
pub(super) fn labels(records: &[Record]) -> String {
    let mut labels = "[".to_owned();
    for record in records {
        let _ = write!(labels, " {}", Label::of(&record.payload));
    }
    labels + " ]"
}

/// More than any topic of a run has.
pub(super) const MOST_PARTITIONS: u32 = 6;

/// Takes an append off those that are in flight, also when its caller gives it up.
struct InFlight<'a> {
    watched: &'a Watched,
    triple: &'a Triple,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.watched.seen.lock().in_flight.remove(self.triple);
    }
}

#[async_trait]
impl Log for Watched {
    async fn ping(&self) -> Result<(), LogError> {
        self.memory.ping().await
    }

    async fn login(&self, username: &str, password: &str) -> Result<(), LogError> {
        self.memory.login(username, password).await
    }

    async fn topic(&self, target: &Target) -> Result<Option<TopicInfo>, LogError> {
        let outcome = self.memory.topic(target).await;
        self.trace
            .note("log", format_args!("topic {target}: {outcome:?}"));
        outcome
    }

    async fn create(&self, target: &Target, spec: &TopicSpec) -> Result<TopicInfo, LogError> {
        let outcome = self.memory.create(target, spec).await;
        self.trace
            .note("log", format_args!("create {target}: {outcome:?}"));
        outcome
    }

    async fn append(&self, triple: &Triple, records: &[Record]) -> Result<(), LogError> {
        let in_flight = self.begins(triple, records);
        let is_dead_letter = triple.target.stream.as_str() != "s";
        let outcome = if records.iter().any(is_poisoned) && !is_dead_letter {
            let reached = self.memory.ping().await;
            reached.and(Err(LogError::TooLarge("poison".to_owned())))
        } else {
            self.memory.append(triple, records).await
        };
        self.ended(triple, records, &outcome);
        drop(in_flight);
        outcome
    }

    async fn poll(&self, triple: &Triple, from: u64, max: u32) -> Result<Polled, LogError> {
        self.memory.poll(triple, from, max).await
    }

    async fn end(&self, triple: &Triple) -> Result<u64, LogError> {
        self.memory.end(triple).await
    }

    async fn stored_within(&self, triple: &Triple, age: Duration) -> Result<u64, LogError> {
        self.memory.stored_within(triple, age).await
    }

    async fn committed(&self, triple: &Triple, consumer: &str) -> Result<Option<u64>, LogError> {
        self.memory.committed(triple, consumer).await
    }

    async fn commit(&self, triple: &Triple, consumer: &str, offset: u64) -> Result<(), LogError> {
        self.memory.commit(triple, consumer, offset).await
    }

    async fn forget(&self, triple: &Triple, consumer: &str) -> Result<(), LogError> {
        self.memory.forget(triple, consumer).await
    }

    async fn close(&self) {
        self.memory.close().await;
    }
}
