//! Consumer offsets.

use std::sync::Arc;

use bytes::Bytes;
use iggy_binary_protocol::requests::consumer_offsets::{
    DeleteConsumerOffsetRequest, GetConsumerOffsetRequest, StoreConsumerOffsetRequest,
};
use iggy_binary_protocol::responses::consumer_offsets::ConsumerOffsetResponse;
use iggy_binary_protocol::{KIND_CONSUMER_GROUP, WireConsumer, WireEncode, WireIdentifier};
use iggy_common::{IggyError, calculate_32};

use super::Shared;
use super::catalog::{ConsumerKey, ConsumerKind, Partition, Stream, Topic};
use super::dispatch::decode;
use super::membership::GroupKey;
use super::messages::unresolved;
use super::session::Session;

/// Who reads, as far as it may.
pub(crate) enum Consumer {
    /// The key of its offset.
    Known(ConsumerKey),
    /// A group's consumer that is not its member, or not the one that reads this partition.
    NotOwner,
}

pub(crate) fn get(shared: &Shared, body: &[u8]) -> Result<Bytes, IggyError> {
    let request: GetConsumerOffsetRequest = decode(body)?;
    let catalog = shared.store.catalog();
    // Iggy answers "none" for a stream, topic or group that does not exist, and an error for a partition.
    let Ok((_, topic)) = catalog.topic(&request.stream_id, &request.topic_id) else {
        return Ok(Bytes::new());
    };
    let partition = topic.partition(request.partition_id.unwrap_or_default())?;
    let stored = key(topic, &request.consumer).and_then(|key| partition.offset(key));
    Ok(stored.map_or_else(Bytes::new, |stored_offset| {
        let current_offset = partition.progress().current_offset();
        ConsumerOffsetResponse {
            partition_id: partition.id,
            current_offset,
            stored_offset,
        }
        .to_bytes()
    }))
}

pub(crate) async fn store(
    shared: &Shared,
    session: &Session,
    body: &[u8],
) -> Result<Bytes, IggyError> {
    let request: StoreConsumerOffsetRequest = decode(body)?;
    let to = (&request.stream_id, &request.topic_id, request.partition_id);
    let (partition, key) = writable(shared, session, to, &request.consumer)?;
    shared
        .store
        .set_offset(partition, key, Some(request.offset))
        .await?;
    Ok(Bytes::new())
}

pub(crate) async fn delete(
    shared: &Shared,
    session: &Session,
    body: &[u8],
) -> Result<Bytes, IggyError> {
    let request: DeleteConsumerOffsetRequest = decode(body)?;
    let to = (&request.stream_id, &request.topic_id, request.partition_id);
    let (partition, key) = writable(shared, session, to, &request.consumer)?;
    shared.store.set_offset(partition, key, None).await?;
    Ok(Bytes::new())
}

/// Whether this consumer may read the partition, and under which key its offset stands.
pub(crate) fn consumer(
    shared: &Shared,
    session: &Session,
    stream: &Stream,
    topic: &Topic,
    partition: &Partition,
    consumer: &WireConsumer,
) -> Consumer {
    let Some(key) = key(topic, consumer) else {
        return Consumer::NotOwner;
    };
    if key.kind == ConsumerKind::Group {
        let group = GroupKey {
            stream: stream.id,
            topic: topic.id,
            group: key.id,
        };
        if !shared.membership.lock().owns(
            group,
            session.member(),
            partition.id,
            &topic.partition_ids(),
        ) {
            return Consumer::NotOwner;
        }
    }
    Consumer::Known(key)
}

type Place<'a> = (&'a WireIdentifier, &'a WireIdentifier, Option<u32>);

/// The partition and key for a change of an offset. Unlike a poll it must name its partition.
fn writable(
    shared: &Shared,
    session: &Session,
    (stream, topic, partition): Place<'_>,
    who: &WireConsumer,
) -> Result<(Arc<Partition>, ConsumerKey), IggyError> {
    let catalog = shared.store.catalog();
    let (stream, topic) = catalog.topic(stream, topic).map_err(unresolved)?;
    let id = partition
        .ok_or(IggyError::InvalidIdentifier)
        .map_err(unresolved)?;
    let partition = topic.partition(id).map_err(unresolved)?;
    match consumer(shared, session, stream, topic, partition, who) {
        Consumer::Known(key) => Ok((Arc::clone(partition), key)),
        Consumer::NotOwner => Err(unresolved(IggyError::Unauthorized)),
    }
}

/// The key of a consumer's offset; `None` for a group that does not exist.
fn key(topic: &Topic, consumer: &WireConsumer) -> Option<ConsumerKey> {
    if consumer.kind == KIND_CONSUMER_GROUP {
        return Some(ConsumerKey {
            kind: ConsumerKind::Group,
            id: topic.group(&consumer.id)?.id,
        });
    }
    let id = match &consumer.id {
        WireIdentifier::Numeric(id) => *id,
        WireIdentifier::String(name) => calculate_32(name.as_str().as_bytes()),
    };
    Some(ConsumerKey {
        kind: ConsumerKind::Consumer,
        id,
    })
}
