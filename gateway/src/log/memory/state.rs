//! What the memory log holds: topics, partitions, committed offsets, and the counters that tests read.
//!
//! What always holds: a partition's records are contiguous from `first`; `end` is `first` plus their number; it answers as
//! Iggy does: the newest offset of an empty partition is 0, a poll below the oldest record starts at the oldest, an offset
//! that no record has yet cannot be committed, and where nothing exists nothing is committed.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::Call;
use crate::log::{
    Durability, HeaderValue, Headers, LogError, MAX_HEADER_VALUE_BYTES, MAX_PAYLOAD_BYTES, Polled,
    Record, StoredRecord, Target, TopicInfo, TopicSpec, Triple,
};

/// The time at which every memory log begins, in microseconds since the Unix epoch.
const BEGINNING_MICROS: u64 = 1_700_000_000_000_000;

/// How often a partition was called.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls of `append`.
    pub appends: u64,
    /// Calls of `poll`.
    pub polls: u64,
    /// Calls of `reread`.
    pub rereads: u64,
    /// Calls of `commit`.
    pub commits: u64,
}

/// An append that is done when its time comes.
#[derive(Debug)]
pub(super) struct Late {
    pub(super) due: Instant,
    pub(super) triple: Triple,
    pub(super) records: Vec<Record>,
}

#[derive(Debug)]
pub(super) struct State {
    beginning: Instant,
    topics: HashMap<Target, Topic>,
    refusals: HashMap<Target, LogError>,
    late: Vec<Late>,
    counts: HashMap<Triple, Counts>,
    commits: HashMap<Triple, Vec<(String, u64)>>,
    /// How many topics were made: each is a little younger than the one before.
    made: u64,
    /// Users with their passwords.
    users: HashMap<String, String>,
}

#[derive(Debug)]
struct Topic {
    info: TopicInfo,
    partitions: Vec<Partition>,
}

#[derive(Debug, Default)]
struct Partition {
    first: u64,
    records: Vec<StoredRecord>,
    committed: HashMap<String, u64>,
}

impl Partition {
    fn end(&self) -> u64 {
        self.first + self.records.len() as u64
    }

    /// How many records lie below `offset`.
    fn below(&self, offset: u64) -> usize {
        usize::try_from(offset.saturating_sub(self.first))
            .map_or(self.records.len(), |count| count.min(self.records.len()))
    }
}

impl State {
    pub(super) fn new() -> Self {
        Self {
            beginning: Instant::now(),
            topics: HashMap::new(),
            refusals: HashMap::new(),
            late: Vec::new(),
            counts: HashMap::new(),
            commits: HashMap::new(),
            made: 0,
            users: HashMap::new(),
        }
    }

    pub(super) fn add_topic(
        &mut self,
        target: &Target,
        partitions: u32,
        durability: Option<Durability>,
    ) {
        self.made += 1;
        let info = TopicInfo {
            partitions,
            durability,
            created_micros: BEGINNING_MICROS + self.made,
        };
        let partitions = (0..info.partitions).map(|_| Partition::default()).collect();
        self.topics
            .insert(target.clone(), Topic { info, partitions });
    }

    pub(super) fn add_partitions(&mut self, target: &Target, count: u32) {
        if let Some(topic) = self.topics.get_mut(target) {
            topic.info.partitions = count;
            topic
                .partitions
                .resize_with(count as usize, Partition::default);
        }
    }

    pub(super) fn delete_topic(&mut self, target: &Target) {
        self.topics.remove(target);
    }

    pub(super) fn truncate(&mut self, triple: &Triple, end: u64) {
        if let Some(partition) = self.find(triple) {
            partition.records.truncate(partition.below(end));
            partition.first = partition.first.min(end);
        }
    }

    pub(super) fn expire(&mut self, triple: &Triple, oldest: u64) {
        if let Some(partition) = self.find(triple) {
            let gone = partition.below(oldest);
            partition.records.drain(..gone);
            partition.first += gone as u64;
        }
    }

    pub(super) fn refuse(&mut self, target: &Target, error: Option<LogError>) {
        match error {
            Some(error) => self.refusals.insert(target.clone(), error),
            None => self.refusals.remove(target),
        };
    }

    pub(super) fn later(&mut self, late: Late) {
        self.late.push(late);
    }

    /// Does the late appends that are due, in the order of their times.
    pub(super) fn settle(&mut self, now: Instant) {
        self.late.sort_by_key(|late| late.due);
        let due = self.late.partition_point(|late| late.due <= now);
        for late in self.late.drain(..due).collect::<Vec<_>>() {
            // Nobody waits for its outcome any more.
            let _ = self.append(&late.triple, &late.records);
        }
    }

    pub(super) fn count(&mut self, call: Call, triple: &Triple) {
        let counts = self.counts.entry(triple.clone()).or_default();
        match call {
            Call::Append => counts.appends += 1,
            Call::Poll => counts.polls += 1,
            Call::Reread => counts.rereads += 1,
            Call::Commit => counts.commits += 1,
            _ => {}
        }
    }

    pub(super) fn counts(&self, triple: &Triple) -> Counts {
        self.counts.get(triple).copied().unwrap_or_default()
    }

    pub(super) fn commits(&self, triple: &Triple, consumer: &str) -> Vec<u64> {
        let all = self
            .commits
            .get(triple)
            .map(Vec::as_slice)
            .unwrap_or_default();
        all.iter()
            .filter(|(name, _)| name == consumer)
            .map(|(_, offset)| *offset)
            .collect()
    }

    pub(super) fn records(&self, triple: &Triple) -> Vec<StoredRecord> {
        let topic = self.topics.get(&triple.target);
        topic
            .and_then(|topic| topic.partitions.get(triple.partition as usize))
            .map(|partition| partition.records.clone())
            .unwrap_or_default()
    }

    pub(super) fn add_user(&mut self, username: &str, password: &str) {
        self.users.insert(username.to_owned(), password.to_owned());
    }

    pub(super) fn login(&self, username: &str, password: &str) -> Result<(), LogError> {
        match self.users.get(username) {
            Some(known) if known == password => Ok(()),
            _ => Err(LogError::BadCredentials {
                username: username.to_owned(),
            }),
        }
    }

    pub(super) fn topic(&self, target: &Target) -> Result<Option<TopicInfo>, LogError> {
        self.check(target)?;
        Ok(self.topics.get(target).map(|topic| topic.info))
    }

    pub(super) fn create(
        &mut self,
        target: &Target,
        spec: &TopicSpec,
    ) -> Result<TopicInfo, LogError> {
        self.check(target)?;
        if spec.partitions == 0 {
            return Err(LogError::Refused("a topic needs a partition".into()));
        }
        if !self.topics.contains_key(target) {
            self.add_topic(target, spec.partitions, Some(spec.durability));
        }
        Ok(self.topics[target].info)
    }

    pub(super) fn append(&mut self, triple: &Triple, records: &[Record]) -> Result<(), LogError> {
        self.partition(triple)?;
        records.iter().try_for_each(check_record)?;
        let timestamp_micros = self.now_micros();
        let partition = self.partition(triple)?;
        for record in records {
            let Record {
                id,
                headers,
                payload,
            } = record.clone();
            let offset = partition.end();
            partition.records.push(StoredRecord {
                offset,
                id,
                timestamp_micros,
                headers,
                payload,
            });
        }
        Ok(())
    }

    pub(super) fn poll(
        &mut self,
        triple: &Triple,
        from: u64,
        max: u32,
    ) -> Result<Polled, LogError> {
        let partition = self.partition(triple)?;
        let records = partition
            .records
            .iter()
            .skip(partition.below(from))
            .take(max as usize)
            .cloned()
            .collect();
        Ok(Polled {
            records,
            newest_offset: partition.end().saturating_sub(1),
        })
    }

    pub(super) fn end(&mut self, triple: &Triple) -> Result<u64, LogError> {
        self.partition(triple).map(|partition| partition.end())
    }

    fn now_micros(&self) -> u64 {
        BEGINNING_MICROS + u64::try_from(self.beginning.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    pub(super) fn stored_within(
        &mut self,
        triple: &Triple,
        age: Duration,
    ) -> Result<u64, LogError> {
        let age = u64::try_from(age.as_micros()).unwrap_or(u64::MAX);
        let oldest = self.now_micros().saturating_sub(age);
        let partition = self.partition(triple)?;
        let old = partition
            .records
            .partition_point(|record| record.timestamp_micros < oldest);
        Ok(partition.first + old as u64)
    }

    pub(super) fn forget(&mut self, triple: &Triple, consumer: &str) -> Result<(), LogError> {
        self.partition(triple)?.committed.remove(consumer);
        Ok(())
    }

    pub(super) fn committed(
        &mut self,
        triple: &Triple,
        consumer: &str,
    ) -> Result<Option<u64>, LogError> {
        self.check(&triple.target)?;
        let committed = |partition: &mut Partition| partition.committed.get(consumer).copied();
        Ok(self.find(triple).and_then(committed))
    }

    pub(super) fn commit(
        &mut self,
        triple: &Triple,
        consumer: &str,
        offset: u64,
    ) -> Result<(), LogError> {
        let partition = self.partition(triple)?;
        if offset >= partition.end() {
            return Err(LogError::Refused(format!(
                "{triple}: no record has the offset {offset}"
            )));
        }
        partition.committed.insert(consumer.to_owned(), offset);
        let commits = self.commits.entry(triple.clone()).or_default();
        commits.push((consumer.to_owned(), offset));
        Ok(())
    }

    fn check(&self, target: &Target) -> Result<(), LogError> {
        self.refusals
            .get(target)
            .map_or(Ok(()), |error| Err(error.clone()))
    }

    fn find(&mut self, triple: &Triple) -> Option<&mut Partition> {
        self.topics
            .get_mut(&triple.target)?
            .partitions
            .get_mut(triple.partition as usize)
    }

    fn partition(&mut self, triple: &Triple) -> Result<&mut Partition, LogError> {
        self.check(&triple.target)?;
        self.find(triple)
            .ok_or_else(|| LogError::NoSuchTarget(triple.to_string()))
    }
}

/// Refuses what Iggy refuses.
fn check_record(record: &Record) -> Result<(), LogError> {
    if record.payload.is_empty() {
        return Err(LogError::Refused("a record has no payload".into()));
    }
    if record.payload.len() > MAX_PAYLOAD_BYTES {
        return Err(LogError::TooLarge(format!(
            "a payload of {} bytes",
            record.payload.len()
        )));
    }
    check_headers(&record.headers)
}

fn check_headers(headers: &Headers) -> Result<(), LogError> {
    for (key, value) in headers.iter() {
        let value_bytes = match value {
            HeaderValue::Text(text) => text.len(),
            HeaderValue::Other(bytes) => bytes.len(),
            HeaderValue::U8(_) | HeaderValue::U16(_) | HeaderValue::Bool(_) => 1,
        };
        for bytes in [key.len(), value_bytes] {
            if !(1..=MAX_HEADER_VALUE_BYTES).contains(&bytes) {
                return Err(LogError::TooLarge(format!(
                    "the header {key:?} or its value has {bytes} bytes"
                )));
            }
        }
    }
    Ok(())
}
