//! One turn of the writer: what its requests change, before the commit and without touching what is published.
//!
//! Requests of a turn see the effects of those before them in it. Answers are held back until [`Turn::publish`], which
//! the writer calls after the commit; if the commit fails the turn is dropped and nothing of it is ever seen.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use iggy_common::{IggyError, IggyTimestamp};
use parking_lot::RwLock;
use tokio::sync::oneshot;

use super::rows::Rows;
use super::{Changed, StoreError};
use crate::server::catalog::{Catalog, ConsumerKey, ConsumerKind, Partition, Progress};
use crate::server::change::Change;
use crate::server::record::{Batch, Stamp};

/// Iggy's default for the consumer offsets of one partition and kind.
const OFFSETS_MAX: usize = 4096;

pub(super) type Reply<T> = oneshot::Sender<Result<T, IggyError>>;

/// One request to the writer.
#[derive(Debug)]
pub(super) enum Command {
    /// Append a batch; the answer is its first offset.
    Append {
        partition: Arc<Partition>,
        batch: Batch,
        durable: bool,
        reply: Reply<u64>,
    },
    /// Store or (with `None`) delete a consumer's offset.
    Offset {
        partition: Arc<Partition>,
        key: ConsumerKey,
        offset: Option<u64>,
        reply: Reply<()>,
    },
    /// Change the catalog.
    Change {
        change: Change,
        reply: Reply<Changed>,
    },
    /// Bring to the disk what is not there yet.
    Sync { reply: Reply<()> },
}

impl Command {
    /// The bytes that the request adds to a turn.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Append { batch, .. } => batch.len(),
            _ => 0,
        }
    }

    pub(super) fn is_change(&self) -> bool {
        matches!(self, Self::Change { .. })
    }
}

/// An answer that is held back until the commit.
enum Answer {
    Append(Reply<u64>, u64),
    Done(Reply<()>),
    Change(Reply<Changed>, u32),
}

/// See the module.
pub(super) struct Turn {
    published: Arc<Catalog>,
    catalog: Option<Catalog>,
    /// Uids of partitions which this turn deletes.
    removed: HashSet<u64>,
    progress: HashMap<u64, (Arc<Partition>, Progress)>,
    offsets: HashMap<(u64, ConsumerKey), (Arc<Partition>, Option<u64>)>,
    answers: Vec<Answer>,
    durable: bool,
    sync: bool,
}

impl Turn {
    /// A turn on top of `published`; `durable` says that it must be fsynced whatever is in it.
    pub(super) fn new(published: Arc<Catalog>, durable: bool) -> Self {
        Self {
            published,
            catalog: None,
            removed: HashSet::new(),
            progress: HashMap::new(),
            offsets: HashMap::new(),
            answers: Vec::new(),
            durable,
            sync: false,
        }
    }

    /// Whether there is anything to commit.
    pub(super) fn is_written(&self) -> bool {
        self.catalog.is_some() || !self.progress.is_empty() || !self.offsets.is_empty()
    }

    /// Whether an answer promises that its data is on disk.
    pub(super) fn is_durable(&self) -> bool {
        self.durable
    }

    /// Whether an answer promises that all data before it is on disk.
    pub(super) fn wants_sync(&self) -> bool {
        self.sync
    }

    /// The catalog before and after, if it changes.
    pub(super) fn changed(&self) -> Option<(Arc<Catalog>, &Catalog)> {
        self.catalog
            .as_ref()
            .map(|catalog| (Arc::clone(&self.published), catalog))
    }

    /// Does what a request asks in this turn and in the database's rows; a request that is refused is answered at once.
    pub(super) fn take(&mut self, command: Command, rows: &mut Rows<'_>) -> Result<(), StoreError> {
        match command {
            Command::Append {
                partition,
                batch,
                durable,
                reply,
            } => {
                if self.gone(&partition) {
                    refuse(reply, gone());
                    return Ok(());
                }
                let first = self.append(partition, &batch, rows)?;
                self.durable |= durable;
                self.answers.push(Answer::Append(reply, first));
            }
            Command::Offset {
                partition,
                key,
                offset,
                reply,
            } => match self.check_offset(&partition, key, offset) {
                Ok(()) => {
                    self.set_offset(partition, key, offset, rows)?;
                    self.answers.push(Answer::Done(reply));
                }
                Err(error) => refuse(reply, error),
            },
            Command::Change { change, reply } => {
                let mut trial = self.catalog.clone();
                let trial = trial.get_or_insert_with(|| Catalog::clone(&self.published));
                match change.apply(trial, IggyTimestamp::now().as_micros()) {
                    Ok(id) => {
                        self.catalog = Some(std::mem::take(trial));
                        self.durable = true;
                        self.answers.push(Answer::Change(reply, id));
                    }
                    Err(error) => refuse(reply, error),
                }
            }
            Command::Sync { reply } => {
                self.durable = true;
                self.sync = true;
                self.answers.push(Answer::Done(reply));
            }
        }
        Ok(())
    }

    /// Deletes the rows of partitions and groups that the changed catalog does not have any more.
    pub(super) fn remove(&mut self, rows: &mut Rows<'_>) -> Result<(), StoreError> {
        let Some(new) = self.catalog.as_ref() else {
            return Ok(());
        };
        let left: HashSet<u64> = new
            .partitions()
            .map(|(_, _, partition)| partition.uid)
            .collect();
        let mut orphans = Vec::new();
        for (stream, topic, partition) in self.published.partitions() {
            if !left.contains(&partition.uid) {
                self.removed.insert(partition.uid);
                continue;
            }
            let after = new
                .streams
                .get(&stream.id)
                .and_then(|stream| stream.topics.get(&topic.id));
            let groups = topic.groups.keys().map(|id| ConsumerKey {
                kind: ConsumerKind::Group,
                id: *id,
            });
            orphans.extend(
                groups
                    .filter(|key| after.is_none_or(|after| !after.groups.contains_key(&key.id)))
                    .filter(|key| partition.offset(*key).is_some())
                    .map(|key| (Arc::clone(partition), key)),
            );
        }
        for uid in &self.removed {
            rows.forget(*uid)?;
        }
        for (partition, key) in orphans {
            self.set_offset(partition, key, None, rows)?;
        }
        Ok(())
    }

    /// Writes what was gathered over the turn.
    pub(super) fn finish(&self, rows: &mut Rows<'_>) -> Result<(), StoreError> {
        self.progress
            .iter()
            .try_for_each(|(uid, (_, progress))| rows.write_progress(*uid, *progress))
    }

    /// Makes the turn visible and answers its requests. To be called once it is committed.
    pub(super) fn publish(self, published: &RwLock<Arc<Catalog>>) {
        for (partition, progress) in self.progress.into_values() {
            partition.advance(progress);
        }
        for ((_, key), (partition, offset)) in self.offsets {
            partition.publish_offset(key, offset);
        }
        let catalog = match self.catalog {
            Some(catalog) => {
                let removed = |partition: &Partition| self.removed.contains(&partition.uid);
                self.published
                    .partitions()
                    .filter(|(_, _, partition)| removed(partition))
                    .for_each(|(_, _, partition)| partition.retire());
                let catalog = Arc::new(catalog);
                *published.write() = Arc::clone(&catalog);
                catalog
            }
            None => self.published,
        };
        for answer in self.answers {
            // A connection that is gone takes no answer.
            match answer {
                Answer::Append(reply, first) => drop(reply.send(Ok(first))),
                Answer::Done(reply) => drop(reply.send(Ok(()))),
                Answer::Change(reply, id) => {
                    let catalog = Arc::clone(&catalog);
                    drop(reply.send(Ok(Changed { catalog, id })));
                }
            }
        }
    }

    fn append(
        &mut self,
        partition: Arc<Partition>,
        batch: &Batch,
        rows: &mut Rows<'_>,
    ) -> Result<u64, StoreError> {
        let progress = self.progress_of(&partition);
        let stamp = Stamp {
            partition: partition.id,
            base_offset: progress.next_offset,
            timestamp: IggyTimestamp::now()
                .as_micros()
                .max(progress.last_timestamp),
        };
        rows.write_batch(partition.uid, batch, stamp)?;
        let progress = Progress {
            next_offset: progress
                .next_offset
                .saturating_add(u64::from(batch.count())),
            bytes: progress.bytes.saturating_add(batch.len() as u64),
            last_timestamp: stamp.timestamp,
        };
        self.progress.insert(partition.uid, (partition, progress));
        Ok(stamp.base_offset)
    }

    fn set_offset(
        &mut self,
        partition: Arc<Partition>,
        key: ConsumerKey,
        offset: Option<u64>,
        rows: &mut Rows<'_>,
    ) -> Result<(), StoreError> {
        rows.write_offset(partition.uid, key, offset)?;
        self.offsets
            .insert((partition.uid, key), (partition, offset));
        self.durable = true;
        Ok(())
    }

    fn check_offset(
        &self,
        partition: &Partition,
        key: ConsumerKey,
        offset: Option<u64>,
    ) -> Result<(), IggyError> {
        if self.gone(partition) {
            return Err(gone());
        }
        let stored = match self.offsets.get(&(partition.uid, key)) {
            Some((_, offset)) => *offset,
            None => partition.offset(key),
        };
        let Some(offset) = offset else {
            return stored
                .map(|_| ())
                .ok_or(IggyError::ConsumerOffsetNotFound(key.id as usize));
        };
        if offset >= self.progress_of(partition).next_offset {
            return Err(IggyError::InvalidOffset(offset));
        }
        if stored.is_none() && self.offsets_of(partition, key.kind) >= OFFSETS_MAX {
            return Err(IggyError::TooManyConsumerOffsets);
        }
        Ok(())
    }

    fn gone(&self, partition: &Partition) -> bool {
        partition.is_retired() || self.removed.contains(&partition.uid)
    }

    fn progress_of(&self, partition: &Partition) -> Progress {
        match self.progress.get(&partition.uid) {
            Some((_, progress)) => *progress,
            None => partition.progress(),
        }
    }

    /// The number of offsets of this kind, with those that this turn adds.
    fn offsets_of(&self, partition: &Partition, kind: ConsumerKind) -> usize {
        let added = self.offsets.iter().filter(|((uid, key), (_, offset))| {
            let new = offset.is_some() && partition.offset(*key).is_none();
            *uid == partition.uid && key.kind == kind && new
        });
        partition.offsets_of(kind) + added.count()
    }
}

fn gone() -> IggyError {
    IggyError::ResourceNotFound(String::new())
}

fn refuse<T>(reply: Reply<T>, error: IggyError) {
    drop(reply.send(Err(error)));
}
