//! The writer: one thread that takes everything queued, commits it in one transaction and answers.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Instant;

use iggy_common::{IggyError, IggyTimestamp};
use parking_lot::RwLock;
use redb::{Database, Durability, Table, WriteTransaction};
use tokio::sync::oneshot;

use super::tables::{
    BATCHES, KEY_NEXT_STREAM, KEY_NEXT_UID, NUMBERS, OFFSETS, PROGRESS, STREAMS, StreamRecord,
    TOPICS, TopicRecord, encode,
};
use super::{Changed, SYNC_WITHIN, StoreError};
use crate::server::catalog::{Catalog, ConsumerKey, ConsumerKind, Partition, Progress};
use crate::server::change::Change;
use crate::server::record::{Batch, Stamp};

/// Iggy's default for the consumer offsets of one partition and kind.
const OFFSETS_MAX: usize = 4096;

/// A turn ends here even if more is queued, so that the first in it does not wait for ever. Bytes.
const TURN_BYTES: usize = 64 * 1024 * 1024;

type Reply<T> = oneshot::Sender<Result<T, IggyError>>;

/// One request to the writer.
#[derive(Debug)]
pub(super) enum Command {
    Append {
        partition: Arc<Partition>,
        batch: Batch,
        durable: bool,
        reply: Reply<u64>,
    },
    Offset {
        partition: Arc<Partition>,
        key: ConsumerKey,
        offset: Option<u64>,
        reply: Reply<()>,
    },
    Change {
        change: Change,
        reply: Reply<Changed>,
    },
    Sync {
        reply: Reply<()>,
    },
}

impl Command {
    fn bytes(&self) -> usize {
        match self {
            Self::Append { batch, .. } => batch.len(),
            _ => 0,
        }
    }
}

/// An answer that is held back until the commit.
enum Answer {
    Append(Reply<u64>, u64),
    Offset(Reply<()>),
    Change(Reply<Changed>, u32),
    Sync(Reply<()>),
}

/// What one turn has prepared and the commit will publish.
#[derive(Default)]
struct Turn {
    catalog: Option<Catalog>,
    /// Uids of partitions which this turn deletes.
    removed: HashSet<u64>,
    progress: HashMap<u64, (Arc<Partition>, Progress)>,
    offsets: HashMap<(u64, ConsumerKey), (Arc<Partition>, Option<u64>)>,
    answers: Vec<Answer>,
    /// Whether an answer promises that its data is on disk.
    durable: bool,
    written: bool,
}

pub(super) struct Writer {
    database: Arc<Database>,
    published: Arc<RwLock<Arc<Catalog>>>,
    commands: Receiver<Command>,
    /// When the first append that is not on disk yet was committed.
    unsynced: Option<Instant>,
}

impl Writer {
    pub(super) fn new(
        database: Arc<Database>,
        published: Arc<RwLock<Arc<Catalog>>>,
        commands: Receiver<Command>,
    ) -> Self {
        Self {
            database,
            published,
            commands,
            unsynced: None,
        }
    }

    /// Works until the queue is closed, then brings everything to the disk.
    ///
    /// # Errors
    /// When the file cannot be written; the requests of that turn were answered with an error then.
    pub(super) fn run(mut self) -> Result<(), StoreError> {
        loop {
            let received = match self.unsynced {
                None => self
                    .commands
                    .recv()
                    .map_err(|_| RecvTimeoutError::Disconnected),
                Some(since) => self
                    .commands
                    .recv_timeout(SYNC_WITHIN.saturating_sub(since.elapsed())),
            };
            match received {
                Ok(first) => self.turn(first)?,
                Err(RecvTimeoutError::Timeout) => self.sync()?,
                Err(RecvTimeoutError::Disconnected) => return self.sync(),
            }
        }
    }

    fn turn(&mut self, first: Command) -> Result<(), StoreError> {
        let mut bytes = first.bytes();
        let mut commands = vec![first];
        while bytes < TURN_BYTES
            && let Ok(next) = self.commands.try_recv()
        {
            bytes += next.bytes();
            commands.push(next);
        }
        let mut turn = Turn {
            durable: self.overdue(),
            ..Turn::default()
        };
        // On an error the replies are dropped with `turn` and `commands`, which the waiting side sees as a failure.
        let transaction = self.database.begin_write().map_err(StoreError::io)?;
        self.prepare(&transaction, commands, &mut turn)?;
        self.commit(transaction, turn)
    }

    fn overdue(&self) -> bool {
        self.unsynced
            .is_some_and(|since| since.elapsed() >= SYNC_WITHIN)
    }

    fn prepare(
        &self,
        transaction: &WriteTransaction,
        commands: Vec<Command>,
        turn: &mut Turn,
    ) -> Result<(), StoreError> {
        let mut batches = transaction.open_table(BATCHES).map_err(StoreError::io)?;
        let mut offsets = transaction.open_table(OFFSETS).map_err(StoreError::io)?;
        // Changes first: what they delete must refuse appends of the same turn.
        let (changes, data): (Vec<_>, Vec<_>) = commands
            .into_iter()
            .partition(|command| matches!(command, Command::Change { .. }));
        for command in changes {
            if let Command::Change { change, reply } = command {
                self.change(change, reply, turn);
            }
        }
        if let Some(catalog) = &turn.catalog {
            let old = Arc::clone(&self.published.read());
            write_catalog(transaction, &old, catalog)?;
            turn.removed = removed(&old, catalog);
            for uid in &turn.removed {
                forget(transaction, &mut batches, &mut offsets, *uid)?;
            }
        }
        for command in data {
            match command {
                Command::Append {
                    partition,
                    batch,
                    durable,
                    reply,
                } => {
                    if turn.gone(&partition) {
                        refuse(reply, IggyError::ResourceNotFound(String::new()));
                        continue;
                    }
                    let first = append(&mut batches, turn, &partition, &batch)?;
                    turn.durable |= durable;
                    turn.answers.push(Answer::Append(reply, first));
                }
                Command::Offset {
                    partition,
                    key,
                    offset,
                    reply,
                } => {
                    if turn.gone(&partition) {
                        refuse(reply, IggyError::ResourceNotFound(String::new()));
                        continue;
                    }
                    match turn.check_offset(&partition, key, offset) {
                        Ok(()) => {
                            write_offset(&mut offsets, partition.uid, key, offset)?;
                            turn.offsets
                                .insert((partition.uid, key), (partition, offset));
                            turn.durable = true;
                            turn.written = true;
                            turn.answers.push(Answer::Offset(reply));
                        }
                        Err(error) => refuse(reply, error),
                    }
                }
                Command::Sync { reply } => {
                    turn.durable = true;
                    turn.written |= self.unsynced.is_some();
                    turn.answers.push(Answer::Sync(reply));
                }
                Command::Change { .. } => {}
            }
        }
        let mut table = transaction.open_table(PROGRESS).map_err(StoreError::io)?;
        for (uid, (_, progress)) in &turn.progress {
            table
                .insert(uid, <(u64, u64, u64)>::from(*progress))
                .map_err(StoreError::io)?;
        }
        Ok(())
    }

    fn change(&self, change: Change, reply: Reply<Changed>, turn: &mut Turn) {
        let mut trial = turn
            .catalog
            .clone()
            .unwrap_or_else(|| Catalog::clone(&self.published.read()));
        match change.apply(&mut trial, IggyTimestamp::now().as_micros()) {
            Ok(id) => {
                turn.catalog = Some(trial);
                turn.durable = true;
                turn.written = true;
                turn.answers.push(Answer::Change(reply, id));
            }
            Err(error) => refuse(reply, error),
        }
    }

    fn commit(&mut self, mut transaction: WriteTransaction, turn: Turn) -> Result<(), StoreError> {
        if !turn.written && turn.progress.is_empty() {
            transaction.abort().map_err(StoreError::io)?;
            turn.publish(&self.published);
            return Ok(());
        }
        transaction.set_durability(if turn.durable {
            Durability::Immediate
        } else {
            Durability::None
        });
        transaction.commit().map_err(StoreError::io)?;
        if turn.durable {
            self.unsynced = None;
        } else {
            self.unsynced.get_or_insert_with(Instant::now);
        }
        turn.publish(&self.published);
        Ok(())
    }

    /// Brings what was committed in memory to the disk: an fsynced commit carries all commits before it.
    fn sync(&mut self) -> Result<(), StoreError> {
        if self.unsynced.take().is_some() {
            let mut transaction = self.database.begin_write().map_err(StoreError::io)?;
            transaction.set_durability(Durability::Immediate);
            transaction.commit().map_err(StoreError::io)?;
        }
        Ok(())
    }
}

impl Turn {
    fn gone(&self, partition: &Partition) -> bool {
        partition.is_retired() || self.removed.contains(&partition.uid)
    }

    fn progress_of(&self, partition: &Partition) -> Progress {
        self.progress
            .get(&partition.uid)
            .map_or_else(|| partition.progress(), |(_, progress)| *progress)
    }

    fn offset_of(&self, partition: &Partition, key: ConsumerKey) -> Option<u64> {
        self.offsets
            .get(&(partition.uid, key))
            .map_or_else(|| partition.offset(key), |(_, offset)| *offset)
    }

    fn check_offset(
        &self,
        partition: &Partition,
        key: ConsumerKey,
        offset: Option<u64>,
    ) -> Result<(), IggyError> {
        let stored = self.offset_of(partition, key);
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

    fn offsets_of(&self, partition: &Partition, kind: ConsumerKind) -> usize {
        let added = self.offsets.iter().filter(|((uid, key), (_, offset))| {
            *uid == partition.uid
                && key.kind == kind
                && offset.is_some()
                && partition.offset(*key).is_none()
        });
        partition.offsets_of(kind) + added.count()
    }

    fn publish(self, published: &RwLock<Arc<Catalog>>) {
        for (partition, progress) in self.progress.into_values() {
            partition.advance(progress);
        }
        for ((_, key), (partition, offset)) in self.offsets {
            partition.publish_offset(key, offset);
        }
        if let Some(catalog) = self.catalog {
            let mut published = published.write();
            for (_, _, partition) in published.partitions() {
                if self.removed.contains(&partition.uid) {
                    partition.retire();
                }
            }
            *published = Arc::new(catalog);
        }
        let catalog = Arc::clone(&published.read());
        for answer in self.answers {
            // A connection that is gone takes no answer.
            match answer {
                Answer::Append(reply, first) => drop(reply.send(Ok(first))),
                Answer::Offset(reply) | Answer::Sync(reply) => drop(reply.send(Ok(()))),
                Answer::Change(reply, id) => {
                    drop(reply.send(Ok(Changed {
                        catalog: Arc::clone(&catalog),
                        id,
                    })));
                }
            }
        }
    }
}

fn refuse<T>(reply: Reply<T>, error: IggyError) {
    drop(reply.send(Err(error)));
}

fn append(
    batches: &mut Table<'_, (u64, u64), &'static [u8]>,
    turn: &mut Turn,
    partition: &Arc<Partition>,
    batch: &Batch,
) -> Result<u64, StoreError> {
    let progress = turn.progress_of(partition);
    let first = progress.next_offset;
    let stamp = Stamp {
        partition: partition.id,
        base_offset: first,
        timestamp: IggyTimestamp::now()
            .as_micros()
            .max(progress.last_timestamp),
    };
    let size = u32::try_from(batch.len()).map_err(|_| StoreError::Record {
        what: "a batch is too large",
    })?;
    let mut slot = batches
        .insert_reserve((partition.uid, first), size)
        .map_err(StoreError::io)?;
    batch.write_stamped(stamp, slot.as_mut());
    let progress = Progress {
        next_offset: first.saturating_add(u64::from(batch.count())),
        bytes: progress.bytes.saturating_add(u64::from(size)),
        last_timestamp: stamp.timestamp,
    };
    turn.progress
        .insert(partition.uid, (Arc::clone(partition), progress));
    Ok(first)
}

fn write_offset(
    offsets: &mut Table<'_, (u64, u8, u32), u64>,
    uid: u64,
    key: ConsumerKey,
    offset: Option<u64>,
) -> Result<(), StoreError> {
    let row = (uid, key.kind as u8, key.id);
    match offset {
        Some(offset) => offsets.insert(row, offset).map_err(StoreError::io)?,
        None => offsets.remove(row).map_err(StoreError::io)?,
    };
    Ok(())
}

/// Writes what differs between two catalogs. Entries that did not change are the same allocation in both.
fn write_catalog(
    transaction: &WriteTransaction,
    old: &Catalog,
    new: &Catalog,
) -> Result<(), StoreError> {
    let mut numbers = transaction.open_table(NUMBERS).map_err(StoreError::io)?;
    let mut streams = transaction.open_table(STREAMS).map_err(StoreError::io)?;
    let mut topics = transaction.open_table(TOPICS).map_err(StoreError::io)?;
    numbers
        .insert(KEY_NEXT_STREAM, u64::from(new.next_stream))
        .map_err(StoreError::io)?;
    numbers
        .insert(KEY_NEXT_UID, new.next_uid)
        .map_err(StoreError::io)?;
    for (id, stream) in &new.streams {
        let before = old.streams.get(id);
        if before.is_some_and(|before| Arc::ptr_eq(before, stream)) {
            continue;
        }
        let record = encode(&StreamRecord::from(stream.as_ref()))?;
        streams
            .insert(id, record.as_slice())
            .map_err(StoreError::io)?;
        for (topic_id, topic) in &stream.topics {
            let before = before.and_then(|before| before.topics.get(topic_id));
            if !before.is_some_and(|before| Arc::ptr_eq(before, topic)) {
                let record = encode(&TopicRecord::from(topic.as_ref()))?;
                topics
                    .insert((*id, *topic_id), record.as_slice())
                    .map_err(StoreError::io)?;
            }
        }
    }
    for (id, stream) in &old.streams {
        let after = new.streams.get(id);
        if after.is_none() {
            streams.remove(id).map_err(StoreError::io)?;
        }
        for topic_id in stream.topics.keys() {
            if !after.is_some_and(|after| after.topics.contains_key(topic_id)) {
                topics.remove((*id, *topic_id)).map_err(StoreError::io)?;
            }
        }
    }
    Ok(())
}

fn removed(old: &Catalog, new: &Catalog) -> HashSet<u64> {
    let left: HashSet<u64> = new
        .partitions()
        .map(|(_, _, partition)| partition.uid)
        .collect();
    old.partitions()
        .map(|(_, _, partition)| partition.uid)
        .filter(|uid| !left.contains(uid))
        .collect()
}

/// Deletes the messages, offsets and reach of a partition.
fn forget(
    transaction: &WriteTransaction,
    batches: &mut Table<'_, (u64, u64), &'static [u8]>,
    offsets: &mut Table<'_, (u64, u8, u32), u64>,
    uid: u64,
) -> Result<(), StoreError> {
    batches
        .retain_in((uid, 0)..=(uid, u64::MAX), |_, _| false)
        .map_err(StoreError::io)?;
    offsets
        .retain_in((uid, 0, 0)..=(uid, u8::MAX, u32::MAX), |_, _| false)
        .map_err(StoreError::io)?;
    let mut progress = transaction.open_table(PROGRESS).map_err(StoreError::io)?;
    progress.remove(uid).map_err(StoreError::io)?;
    Ok(())
}
