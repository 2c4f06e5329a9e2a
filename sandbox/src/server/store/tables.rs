//! The tables of the database file and how records lie in them.
//!
//! One batch is one value, byte for byte the record of the wire (`iggy_binary_protocol::batch`), under its partition's
//! uid and its first offset. Streams and topics are postcard records; consumer offsets and a partition's reach are
//! plain numbers. A change to any of this must raise [`FORMAT`].

use iggy_binary_protocol::batch::BatchHeader;
use redb::TableDefinition;
use serde::{Deserialize, Serialize};

use super::StoreError;
use crate::server::catalog::{Group, Progress, Stream, Topic, TopicSettings};

/// The layout that this build reads and writes.
pub(super) const FORMAT: u64 = 1;

/// Single numbers: see the `KEY_` constants.
pub(super) const NUMBERS: TableDefinition<&str, u64> = TableDefinition::new("numbers");
/// Stream id → [`StreamRecord`].
pub(super) const STREAMS: TableDefinition<u32, &[u8]> = TableDefinition::new("streams");
/// (stream id, topic id) → [`TopicRecord`].
pub(super) const TOPICS: TableDefinition<(u32, u32), &[u8]> = TableDefinition::new("topics");
/// Partition uid → (next offset, stored bytes, append time of the newest batch).
pub(super) const PROGRESS: TableDefinition<u64, (u64, u64, u64)> = TableDefinition::new("progress");
/// (partition uid, offset of its first message) → batch record.
pub(super) const BATCHES: TableDefinition<(u64, u64), &[u8]> = TableDefinition::new("batches");
/// (partition uid, kind of consumer, consumer) → offset.
pub(super) const OFFSETS: TableDefinition<(u64, u8, u32), u64> = TableDefinition::new("offsets");

pub(super) const KEY_FORMAT: &str = "format";
pub(super) const KEY_NEXT_STREAM: &str = "next_stream";
pub(super) const KEY_NEXT_UID: &str = "next_uid";

/// A stream as stored.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StreamRecord {
    pub(super) name: String,
    pub(super) created_at: u64,
    pub(super) next_topic: u32,
}

impl From<&Stream> for StreamRecord {
    fn from(stream: &Stream) -> Self {
        Self {
            name: stream.name.clone(),
            created_at: stream.created_at,
            next_topic: stream.next_topic,
        }
    }
}

/// A topic as stored, with its partitions and groups.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct TopicRecord {
    pub(super) name: String,
    pub(super) created_at: u64,
    pub(super) settings: TopicSettings,
    /// (uid, created at), in order of id.
    pub(super) partitions: Vec<(u64, u64)>,
    pub(super) next_group: u32,
    pub(super) groups: Vec<(u32, String)>,
}

impl From<&Topic> for TopicRecord {
    fn from(topic: &Topic) -> Self {
        Self {
            name: topic.name.clone(),
            created_at: topic.created_at,
            settings: topic.settings.clone(),
            partitions: topic
                .partitions
                .iter()
                .map(|partition| (partition.uid, partition.created_at))
                .collect(),
            next_group: topic.next_group,
            groups: topic
                .groups
                .values()
                .map(|Group { id, name }| (*id, name.clone()))
                .collect(),
        }
    }
}

pub(super) fn encode<T: Serialize>(record: &T) -> Result<Vec<u8>, StoreError> {
    postcard::to_stdvec(record).map_err(|_| StoreError::Record {
        what: "a stream or topic cannot be encoded",
    })
}

pub(super) fn decode<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, StoreError> {
    postcard::from_bytes(bytes).map_err(|_| StoreError::Record {
        what: "a stream or topic cannot be decoded",
    })
}

/// The header of a stored batch.
pub(super) fn batch_header(record: &[u8]) -> Result<BatchHeader, StoreError> {
    BatchHeader::decode(record).map_err(|_| StoreError::Record {
        what: "a batch header cannot be decoded",
    })
}

impl From<(u64, u64, u64)> for Progress {
    fn from((next_offset, bytes, last_timestamp): (u64, u64, u64)) -> Self {
        Self {
            next_offset,
            bytes,
            last_timestamp,
        }
    }
}

impl From<Progress> for (u64, u64, u64) {
    fn from(progress: Progress) -> Self {
        (
            progress.next_offset,
            progress.bytes,
            progress.last_timestamp,
        )
    }
}
