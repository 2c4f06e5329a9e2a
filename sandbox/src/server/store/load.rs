//! Builds the catalog from the database file at start.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use redb::{Database, ReadableTable, WriteTransaction};

use super::StoreError;
use super::tables::{
    BATCHES, FORMAT, KEY_FORMAT, KEY_NEXT_STREAM, KEY_NEXT_UID, NUMBERS, OFFSETS, PROGRESS,
    STREAMS, StreamRecord, TOPICS, TopicRecord, decode,
};
use crate::server::catalog::{
    Catalog, ConsumerKey, ConsumerKind, Group, Partition, Progress, Stream, Topic,
};

/// Reads everything but the messages. A new file gets its tables and the number of its format.
pub(super) fn load(database: &Database, path: &Path) -> Result<Catalog, StoreError> {
    let transaction = database.begin_write().map_err(StoreError::io)?;
    let catalog = read_catalog(&transaction, path)?;
    transaction.commit().map_err(StoreError::io)?;
    Ok(catalog)
}

fn read_catalog(transaction: &WriteTransaction, path: &Path) -> Result<Catalog, StoreError> {
    let mut numbers = transaction.open_table(NUMBERS).map_err(StoreError::io)?;
    let number = |key: &str| -> Result<Option<u64>, StoreError> {
        Ok(numbers
            .get(key)
            .map_err(StoreError::io)?
            .map(|value| value.value()))
    };
    let format = number(KEY_FORMAT)?;
    let next_stream = number(KEY_NEXT_STREAM)?.unwrap_or_default();
    let next_uid = number(KEY_NEXT_UID)?.unwrap_or_default();
    match format {
        Some(FORMAT) => {}
        Some(found) => {
            return Err(StoreError::Format {
                path: path.to_path_buf(),
                found,
                expected: FORMAT,
            });
        }
        None => {
            numbers.insert(KEY_FORMAT, FORMAT).map_err(StoreError::io)?;
        }
    }
    // Opening makes the table, so that a reader always finds it.
    transaction.open_table(BATCHES).map_err(StoreError::io)?;

    let mut offsets = read_offsets(transaction)?;
    let progress = transaction.open_table(PROGRESS).map_err(StoreError::io)?;
    let mut streams = read_streams(transaction)?;
    let topics = transaction.open_table(TOPICS).map_err(StoreError::io)?;
    for entry in topics.iter().map_err(StoreError::io)? {
        let (key, value) = entry.map_err(StoreError::io)?;
        let (stream, topic) = key.value();
        let record: TopicRecord = decode(value.value())?;
        let mut partitions = Vec::with_capacity(record.partitions.len());
        for (id, (uid, created_at)) in (0..).zip(record.partitions) {
            let reach = progress.get(uid).map_err(StoreError::io)?;
            let reach = reach.map_or_else(Progress::default, |value| value.value().into());
            let offsets = offsets.remove(&uid).unwrap_or_default();
            partitions.push(Arc::new(Partition::restored(
                id, uid, created_at, reach, offsets,
            )));
        }
        let topic = Topic {
            id: topic,
            name: record.name,
            created_at: record.created_at,
            settings: record.settings,
            partitions,
            next_group: record.next_group,
            groups: record
                .groups
                .into_iter()
                .map(|(id, name)| (id, Group { id, name }))
                .collect(),
            balance: Arc::default(),
        };
        let owner = streams.get_mut(&stream).ok_or(StoreError::Record {
            what: "a topic belongs to a stream that does not exist",
        })?;
        owner.topics.insert(topic.id, Arc::new(topic));
    }
    Ok(Catalog {
        streams: streams
            .into_iter()
            .map(|(id, stream)| (id, Arc::new(stream)))
            .collect(),
        next_stream: u32::try_from(next_stream).map_err(|_| StoreError::Record {
            what: "the next stream's id is out of range",
        })?,
        next_uid,
    })
}

fn read_streams(transaction: &WriteTransaction) -> Result<BTreeMap<u32, Stream>, StoreError> {
    let table = transaction.open_table(STREAMS).map_err(StoreError::io)?;
    let mut streams = BTreeMap::new();
    for entry in table.iter().map_err(StoreError::io)? {
        let (key, value) = entry.map_err(StoreError::io)?;
        let record: StreamRecord = decode(value.value())?;
        let stream = Stream {
            id: key.value(),
            name: record.name,
            created_at: record.created_at,
            next_topic: record.next_topic,
            topics: BTreeMap::new(),
        };
        streams.insert(stream.id, stream);
    }
    Ok(streams)
}

type OffsetsByUid = HashMap<u64, HashMap<ConsumerKey, u64>>;

fn read_offsets(transaction: &WriteTransaction) -> Result<OffsetsByUid, StoreError> {
    let table = transaction.open_table(OFFSETS).map_err(StoreError::io)?;
    let mut offsets = OffsetsByUid::new();
    for entry in table.iter().map_err(StoreError::io)? {
        let (key, value) = entry.map_err(StoreError::io)?;
        let (uid, kind, id) = key.value();
        let kind = match kind {
            1 => ConsumerKind::Consumer,
            2 => ConsumerKind::Group,
            _ => {
                return Err(StoreError::Record {
                    what: "an offset belongs to an unknown kind of consumer",
                });
            }
        };
        offsets
            .entry(uid)
            .or_default()
            .insert(ConsumerKey { kind, id }, value.value());
    }
    Ok(offsets)
}
