//! The changes a client can make to the catalog, as pure functions from one catalog to the next.
//!
//! [`Change::apply`] works on a private clone and either does all of it or returns the error of Iggy that says why
//! not; the store's writer commits the difference.

use std::collections::BTreeMap;
use std::sync::Arc;

use iggy_binary_protocol::{WireIdentifier, WireOptions};
use iggy_common::{Identifier, IggyError};

use super::catalog::{Catalog, Group, Partition, Stream, Topic, TopicSettings};
use super::settings;

/// Bounds the memory for the catalog and the work for a listing of all streams.
const STREAMS_MAX: usize = 4096;
/// Topics of one stream; the same reason.
const TOPICS_MAX: usize = 4096;
/// Partitions of one topic; the same reason.
const PARTITIONS_MAX: usize = 10_000;

/// A change to the catalog.
#[derive(Debug)]
pub(crate) enum Change {
    CreateStream {
        name: String,
    },
    UpdateStream {
        stream: WireIdentifier,
        name: String,
    },
    DeleteStream {
        stream: WireIdentifier,
    },
    PurgeStream {
        stream: WireIdentifier,
    },
    CreateTopic {
        stream: WireIdentifier,
        name: String,
        partitions: u32,
        settings: TopicSettings,
    },
    UpdateTopic {
        stream: WireIdentifier,
        topic: WireIdentifier,
        name: String,
        options: WireOptions,
    },
    DeleteTopic {
        stream: WireIdentifier,
        topic: WireIdentifier,
    },
    PurgeTopic {
        stream: WireIdentifier,
        topic: WireIdentifier,
    },
    CreatePartitions {
        stream: WireIdentifier,
        topic: WireIdentifier,
        count: u32,
    },
    DeletePartitions {
        stream: WireIdentifier,
        topic: WireIdentifier,
        count: u32,
    },
    CreateGroup {
        stream: WireIdentifier,
        topic: WireIdentifier,
        name: String,
    },
    DeleteGroup {
        stream: WireIdentifier,
        topic: WireIdentifier,
        group: WireIdentifier,
    },
}

impl Change {
    /// Applies the change at time `now` (microseconds since the Unix epoch). Returns the id of what was created, or of
    /// what was changed.
    ///
    /// # Errors
    /// Iggy's own: the stream, topic or group was not found, the name is taken, a limit is reached.
    pub(crate) fn apply(self, catalog: &mut Catalog, now: u64) -> Result<u32, IggyError> {
        match self {
            Self::CreateStream { name } => create_stream(catalog, name, now),
            Self::UpdateStream { stream, name } => {
                let stream = stream_mut(catalog, &stream, |catalog, id| {
                    match catalog
                        .streams
                        .values()
                        .any(|other| other.id != id && other.name == name)
                    {
                        true => Err(IggyError::StreamNameAlreadyExists(name.clone())),
                        false => Ok(()),
                    }
                })?;
                stream.name = name;
                Ok(stream.id)
            }
            Self::DeleteStream { stream } => {
                let id = catalog.stream(&stream)?.id;
                catalog.streams.remove(&id);
                Ok(id)
            }
            Self::PurgeStream { stream } => {
                let stream = catalog.stream(&stream)?;
                let id = stream.id;
                let topics: Vec<u32> = stream.topics.keys().copied().collect();
                for topic in topics {
                    purge(
                        catalog,
                        &WireIdentifier::Numeric(id),
                        &WireIdentifier::Numeric(topic),
                    )?;
                }
                Ok(id)
            }
            Self::CreateTopic {
                stream,
                name,
                partitions,
                settings,
            } => create_topic(catalog, &stream, name, partitions, settings, now),
            Self::UpdateTopic {
                stream,
                topic,
                name,
                options,
            } => {
                let (owner, old) = catalog.topic(&stream, &topic)?;
                if owner
                    .topics
                    .values()
                    .any(|other| other.id != old.id && other.name == name)
                {
                    return Err(IggyError::TopicNameAlreadyExists(
                        name,
                        Identifier::default(),
                    ));
                }
                let settings = settings::update(&old.settings, &options)?;
                let topic = topic_mut(catalog, &stream, &topic)?;
                topic.name = name;
                topic.settings = settings;
                Ok(topic.id)
            }
            Self::DeleteTopic { stream, topic } => {
                let id = catalog.topic(&stream, &topic)?.1.id;
                stream_mut(catalog, &stream, |_, _| Ok(()))?
                    .topics
                    .remove(&id);
                Ok(id)
            }
            Self::PurgeTopic { stream, topic } => purge(catalog, &stream, &topic),
            Self::CreatePartitions {
                stream,
                topic,
                count,
            } => add_partitions(catalog, &stream, &topic, count, now),
            Self::DeletePartitions {
                stream,
                topic,
                count,
            } => {
                let topic = topic_mut(catalog, &stream, &topic)?;
                let left = topic
                    .partitions
                    .len()
                    .checked_sub(count as usize)
                    .ok_or(IggyError::InvalidPartitionsCount)?;
                topic.partitions.truncate(left);
                Ok(topic.id)
            }
            Self::CreateGroup {
                stream,
                topic,
                name,
            } => {
                let topic = topic_mut(catalog, &stream, &topic)?;
                if topic.groups.values().any(|group| group.name == name) {
                    return Err(IggyError::ConsumerGroupNameAlreadyExists(
                        name,
                        Identifier::default(),
                    ));
                }
                let id = topic.next_group;
                topic.next_group = id.checked_add(1).ok_or(IggyError::InvalidConsumerGroupId)?;
                topic.groups.insert(id, Group { id, name });
                Ok(id)
            }
            Self::DeleteGroup {
                stream,
                topic,
                group,
            } => {
                let topic = topic_mut(catalog, &stream, &topic)?;
                let id = topic
                    .group(&group)
                    .map(|group| group.id)
                    .ok_or_else(group_not_found)?;
                topic.groups.remove(&id);
                Ok(id)
            }
        }
    }
}

/// Iggy's answer for a consumer group that does not exist.
pub(crate) fn group_not_found() -> IggyError {
    IggyError::ConsumerGroupIdNotFound(Identifier::default(), Identifier::default())
}

fn create_stream(catalog: &mut Catalog, name: String, now: u64) -> Result<u32, IggyError> {
    if catalog.streams.values().any(|stream| stream.name == name) {
        return Err(IggyError::StreamNameAlreadyExists(name));
    }
    if catalog.streams.len() >= STREAMS_MAX {
        return Err(IggyError::TooManyStreams);
    }
    let id = catalog.next_stream;
    catalog.next_stream = id.checked_add(1).ok_or(IggyError::TooManyStreams)?;
    let stream = Stream {
        id,
        name,
        created_at: now,
        next_topic: 0,
        topics: BTreeMap::new(),
    };
    catalog.streams.insert(id, Arc::new(stream));
    Ok(id)
}

fn create_topic(
    catalog: &mut Catalog,
    stream: &WireIdentifier,
    name: String,
    partitions: u32,
    settings: TopicSettings,
    now: u64,
) -> Result<u32, IggyError> {
    let owner = stream_mut(catalog, stream, |_, _| Ok(()))?;
    if owner.topics.values().any(|topic| topic.name == name) {
        return Err(IggyError::TopicNameAlreadyExists(
            name,
            Identifier::default(),
        ));
    }
    if owner.topics.len() >= TOPICS_MAX {
        return Err(IggyError::TooManyTopics);
    }
    let id = owner.next_topic;
    owner.next_topic = id.checked_add(1).ok_or(IggyError::TooManyTopics)?;
    let topic = Topic {
        id,
        name,
        created_at: now,
        settings,
        partitions: Vec::new(),
        next_group: 0,
        groups: BTreeMap::new(),
        balance: Arc::default(),
    };
    owner.topics.insert(id, Arc::new(topic));
    add_partitions(
        catalog,
        stream,
        &WireIdentifier::Numeric(id),
        partitions,
        now,
    )?;
    Ok(id)
}

fn add_partitions(
    catalog: &mut Catalog,
    stream: &WireIdentifier,
    topic: &WireIdentifier,
    count: u32,
    now: u64,
) -> Result<u32, IggyError> {
    let first_uid = catalog.next_uid;
    let topic = topic_mut(catalog, stream, topic)?;
    if topic.partitions.len().saturating_add(count as usize) > PARTITIONS_MAX {
        return Err(IggyError::PartitionIdSpaceExhausted);
    }
    for (uid, _) in (first_uid..).zip(0..count) {
        let id = u32::try_from(topic.partitions.len())
            .map_err(|_| IggyError::PartitionIdSpaceExhausted)?;
        topic
            .partitions
            .push(Arc::new(Partition::new(id, uid, now)));
    }
    let id = topic.id;
    catalog.next_uid = first_uid + u64::from(count);
    Ok(id)
}

fn purge(
    catalog: &mut Catalog,
    stream: &WireIdentifier,
    topic: &WireIdentifier,
) -> Result<u32, IggyError> {
    let first_uid = catalog.next_uid;
    let topic = topic_mut(catalog, stream, topic)?;
    for (uid, partition) in (first_uid..).zip(&mut topic.partitions) {
        *partition = Arc::new(partition.emptied(uid));
    }
    let (id, count) = (topic.id, topic.partitions.len() as u64);
    catalog.next_uid = first_uid + count;
    Ok(id)
}

/// The stream for changing, after `check` (called with its id) found nothing against it.
fn stream_mut<'a>(
    catalog: &'a mut Catalog,
    stream: &WireIdentifier,
    check: impl FnOnce(&Catalog, u32) -> Result<(), IggyError>,
) -> Result<&'a mut Stream, IggyError> {
    let id = catalog.stream(stream)?.id;
    check(catalog, id)?;
    catalog
        .streams
        .get_mut(&id)
        .map(Arc::make_mut)
        .ok_or_else(|| IggyError::StreamIdNotFound(Identifier::default()))
}

fn topic_mut<'a>(
    catalog: &'a mut Catalog,
    stream: &WireIdentifier,
    topic: &WireIdentifier,
) -> Result<&'a mut Topic, IggyError> {
    let id = catalog.topic(stream, topic)?.1.id;
    stream_mut(catalog, stream, |_, _| Ok(()))?
        .topics
        .get_mut(&id)
        .map(Arc::make_mut)
        .ok_or_else(|| IggyError::TopicIdNotFound(Identifier::default(), Identifier::default()))
}
