//! What exists on the server: streams, topics, partitions and consumer groups, as plain values in memory.
//!
//! A [`Catalog`] is never changed in place once published: the store's writer clones it (the entries are shared
//! through `Arc`), applies a [`super::change::Change`], commits, and publishes the clone. Whoever holds a catalog
//! therefore holds one consistent picture. Ids of streams, topics and groups are given out once and never reused; so is a
//! partition's `uid`, under which its messages and offsets are stored, so that data of something deleted can never
//! show up in its successor.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use iggy_binary_protocol::WireIdentifier;
use iggy_common::{Durability, Identifier, IggyError};
use parking_lot::Mutex;

/// Everything that exists, at one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Catalog {
    pub(crate) streams: BTreeMap<u32, Arc<Stream>>,
    /// The id which the next stream gets.
    pub(crate) next_stream: u32,
    /// The uid which the next partition gets.
    pub(crate) next_uid: u64,
}

/// A stream: a named set of topics.
#[derive(Debug, Clone)]
pub(crate) struct Stream {
    pub(crate) id: u32,
    pub(crate) name: String,
    /// Microseconds since the Unix epoch, as every timestamp here.
    pub(crate) created_at: u64,
    pub(crate) next_topic: u32,
    pub(crate) topics: BTreeMap<u32, Arc<Topic>>,
}

/// A topic: a set of partitions with common options, and the consumer groups that read it.
#[derive(Debug, Clone)]
pub(crate) struct Topic {
    pub(crate) id: u32,
    pub(crate) name: String,
    pub(crate) created_at: u64,
    pub(crate) settings: TopicSettings,
    /// In order of id; ids are 0, 1, 2 … without a gap, because partitions are added and removed at the end.
    pub(crate) partitions: Vec<Arc<Partition>>,
    pub(crate) next_group: u32,
    pub(crate) groups: BTreeMap<u32, Group>,
    /// Where the server's own round robin stands, for clients that leave the choice of a partition to it.
    pub(crate) balance: Arc<AtomicU32>,
}

/// A topic's options, as given and as they work out.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct TopicSettings {
    /// The options block with the keys that the client named, in Iggy's encoding.
    pub(crate) explicit: Vec<u8>,
    /// The options block with the defaults for all other keys.
    pub(crate) derived: Vec<u8>,
    pub(crate) durability: Durability,
    /// Microseconds; `u64::MAX` means never.
    pub(crate) message_expiry: u64,
    pub(crate) compression: u8,
    /// Bytes; `u64::MAX` means unlimited.
    pub(crate) max_topic_size: u64,
    /// Bytes: the floor for `max_topic_size` when a topic is updated.
    pub(crate) segment_size: u64,
}

/// A consumer group's definition. Who is in it is in [`super::membership`].
#[derive(Debug, Clone)]
pub(crate) struct Group {
    pub(crate) id: u32,
    pub(crate) name: String,
}

/// One partition: its place in the store, how far it reaches, and the offsets its consumers stored.
#[derive(Debug)]
pub(crate) struct Partition {
    pub(crate) id: u32,
    pub(crate) uid: u64,
    pub(crate) created_at: u64,
    pub(crate) counters: Arc<Counters>,
    progress: Mutex<Progress>,
    offsets: Mutex<HashMap<ConsumerKey, u64>>,
    retired: AtomicBool,
}

/// How far a partition reaches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// The offset which the next message gets; offsets start at 0, so this is also the number of messages.
    pub(crate) next_offset: u64,
    /// Stored bytes, batch headers included.
    pub(crate) bytes: u64,
    /// The append time of the newest batch. Append times never go back, which the search by timestamp relies on.
    pub(crate) last_timestamp: u64,
}

impl Progress {
    /// The newest offset as Iggy reports it: 0 also when there is no message yet.
    pub(crate) fn current_offset(&self) -> u64 {
        self.next_offset.saturating_sub(1)
    }
}

/// Whose offset: Iggy keeps one per partition, kind of consumer and consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ConsumerKey {
    pub(crate) kind: ConsumerKind,
    /// A consumer's number (or the hash of its name), or a group's id.
    pub(crate) id: u32,
}

/// The two kinds of consumers, with their numbers on the wire and in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ConsumerKind {
    /// A single consumer.
    Consumer = 1,
    /// A consumer group.
    Group = 2,
}

/// What was asked of a partition since the server started.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) polls: AtomicU64,
    pub(crate) empty_polls: AtomicU64,
    pub(crate) polled_messages: AtomicU64,
    pub(crate) appends: AtomicU64,
    pub(crate) appended_messages: AtomicU64,
}

impl Partition {
    pub(crate) fn new(id: u32, uid: u64, created_at: u64) -> Self {
        Self::restored(id, uid, created_at, Progress::default(), HashMap::new())
    }

    /// A partition as it was found in the store.
    pub(crate) fn restored(
        id: u32,
        uid: u64,
        created_at: u64,
        progress: Progress,
        offsets: HashMap<ConsumerKey, u64>,
    ) -> Self {
        Self {
            id,
            uid,
            created_at,
            counters: Arc::default(),
            progress: Mutex::new(progress),
            offsets: Mutex::new(offsets),
            retired: AtomicBool::new(false),
        }
    }

    /// The empty partition that takes this one's place when its topic is purged.
    pub(crate) fn emptied(&self, uid: u64) -> Self {
        Self {
            counters: Arc::clone(&self.counters),
            ..Self::new(self.id, uid, self.created_at)
        }
    }

    pub(crate) fn progress(&self) -> Progress {
        *self.progress.lock()
    }

    /// Publishes what the writer has committed.
    pub(crate) fn advance(&self, progress: Progress) {
        *self.progress.lock() = progress;
    }

    pub(crate) fn offset(&self, key: ConsumerKey) -> Option<u64> {
        self.offsets.lock().get(&key).copied()
    }

    pub(crate) fn offsets_of(&self, kind: ConsumerKind) -> usize {
        self.offsets
            .lock()
            .keys()
            .filter(|key| key.kind == kind)
            .count()
    }

    /// Publishes a stored (or, with `None`, deleted) offset which the writer has committed.
    pub(crate) fn publish_offset(&self, key: ConsumerKey, offset: Option<u64>) {
        let mut offsets = self.offsets.lock();
        match offset {
            Some(offset) => offsets.insert(key, offset),
            None => offsets.remove(&key),
        };
    }

    /// Marks the partition as deleted: what still holds it can write nothing more under its uid.
    pub(crate) fn retire(&self) {
        self.retired.store(true, Ordering::Release);
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }
}

impl Catalog {
    /// # Errors
    /// `StreamIdNotFound`.
    pub(crate) fn stream(&self, id: &WireIdentifier) -> Result<&Arc<Stream>, IggyError> {
        match id {
            WireIdentifier::Numeric(number) => self.streams.get(number),
            WireIdentifier::String(name) => self
                .streams
                .values()
                .find(|stream| stream.name == name.as_str()),
        }
        .ok_or_else(|| IggyError::StreamIdNotFound(Identifier::default()))
    }

    /// # Errors
    /// `StreamIdNotFound`, `TopicIdNotFound`.
    pub(crate) fn topic(
        &self,
        stream: &WireIdentifier,
        topic: &WireIdentifier,
    ) -> Result<(&Arc<Stream>, &Arc<Topic>), IggyError> {
        let stream = self.stream(stream)?;
        Ok((stream, stream.topic(topic)?))
    }

    /// Every partition, with the stream and topic it belongs to.
    pub(crate) fn partitions(&self) -> impl Iterator<Item = (&Stream, &Topic, &Arc<Partition>)> {
        self.streams.values().flat_map(|stream| {
            stream.topics.values().flat_map(move |topic| {
                topic
                    .partitions
                    .iter()
                    .map(move |partition| (stream.as_ref(), topic.as_ref(), partition))
            })
        })
    }
}

impl Stream {
    /// # Errors
    /// `TopicIdNotFound`.
    pub(crate) fn topic(&self, id: &WireIdentifier) -> Result<&Arc<Topic>, IggyError> {
        match id {
            WireIdentifier::Numeric(number) => self.topics.get(number),
            WireIdentifier::String(name) => self
                .topics
                .values()
                .find(|topic| topic.name == name.as_str()),
        }
        .ok_or_else(|| IggyError::TopicIdNotFound(Identifier::default(), Identifier::default()))
    }
}

impl Topic {
    /// # Errors
    /// `PartitionNotFound`.
    pub(crate) fn partition(&self, id: u32) -> Result<&Arc<Partition>, IggyError> {
        self.partitions.get(id as usize).ok_or_else(|| {
            IggyError::PartitionNotFound(id as usize, Identifier::default(), Identifier::default())
        })
    }

    pub(crate) fn group(&self, id: &WireIdentifier) -> Option<&Group> {
        match id {
            WireIdentifier::Numeric(number) => self.groups.get(number),
            WireIdentifier::String(name) => self
                .groups
                .values()
                .find(|group| group.name == name.as_str()),
        }
    }

    pub(crate) fn partition_ids(&self) -> Vec<u32> {
        self.partitions
            .iter()
            .map(|partition| partition.id)
            .collect()
    }
}
