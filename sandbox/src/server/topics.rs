//! The commands on topics and their partitions.
//!
//! All options that Iggy knows are checked, stored and given back. The server heeds `durability`; it enforces neither
//! `message_expiry` nor `max_topic_size`, and the options on segments have no meaning for its store.

use bytes::Bytes;
use iggy_binary_protocol::requests::partitions::{
    CreatePartitionsRequest, DeletePartitionsRequest,
};
use iggy_binary_protocol::requests::topics::{
    CreateTopicRequest, DeleteTopicRequest, GetTopicRequest, GetTopicsRequest, PurgeTopicRequest,
    UpdateTopicRequest,
};
use iggy_binary_protocol::responses::streams::TopicHeader;
use iggy_binary_protocol::responses::topics::{
    GetTopicResponse, GetTopicsResponse, PartitionResponse,
};
use iggy_binary_protocol::{
    MAX_PARTITIONS_PER_REQUEST, WireEncode, WireIdentifier, WireName, WireOptions,
};
use iggy_common::IggyError;

use super::Shared;
use super::catalog::{Partition, Topic};
use super::change::Change;
use super::dispatch::decode;
use super::settings;

pub(crate) fn get(shared: &Shared, body: &[u8]) -> Result<Bytes, IggyError> {
    let request: GetTopicRequest = decode(body)?;
    match shared
        .store
        .catalog()
        .topic(&request.stream_id, &request.topic_id)
    {
        Ok((_, topic)) => details(topic),
        // An empty answer is how Iggy says that there is none.
        Err(_) => Ok(Bytes::new()),
    }
}

pub(crate) fn list(shared: &Shared, body: &[u8]) -> Result<Bytes, IggyError> {
    let request: GetTopicsRequest = decode(body)?;
    let catalog = shared.store.catalog();
    // Iggy lists no topics for a stream that does not exist, and gives no error.
    let topics = catalog
        .stream(&request.stream_id)
        .into_iter()
        .flat_map(|stream| stream.topics.values())
        .map(|topic| header(topic))
        .collect::<Result<_, _>>()?;
    Ok(GetTopicsResponse { topics }.to_bytes())
}

pub(crate) async fn create(shared: &Shared, body: &[u8]) -> Result<Bytes, IggyError> {
    let request: CreateTopicRequest = decode(body)?;
    if request.partitions_count > MAX_PARTITIONS_PER_REQUEST {
        return Err(IggyError::TooManyPartitions);
    }
    let settings = settings::create(&request.options, request.partitions_count)?;
    let stream = request.stream_id.clone();
    let changed = shared
        .change(Change::CreateTopic {
            stream: request.stream_id,
            name: request.name.to_string(),
            partitions: request.partitions_count,
            settings,
        })
        .await?;
    details(
        changed
            .catalog
            .topic(&stream, &WireIdentifier::Numeric(changed.id))?
            .1,
    )
}

pub(crate) async fn update(shared: &Shared, body: &[u8]) -> Result<Bytes, IggyError> {
    let request: UpdateTopicRequest = decode(body)?;
    shared
        .change(Change::UpdateTopic {
            stream: request.stream_id,
            topic: request.topic_id,
            name: request.name.to_string(),
            options: request.options,
        })
        .await?;
    Ok(Bytes::new())
}

pub(crate) async fn delete(shared: &Shared, body: &[u8]) -> Result<Bytes, IggyError> {
    let request: DeleteTopicRequest = decode(body)?;
    shared
        .change(Change::DeleteTopic {
            stream: request.stream_id,
            topic: request.topic_id,
        })
        .await?;
    Ok(Bytes::new())
}

pub(crate) async fn purge(shared: &Shared, body: &[u8]) -> Result<Bytes, IggyError> {
    let request: PurgeTopicRequest = decode(body)?;
    shared
        .change(Change::PurgeTopic {
            stream: request.stream_id,
            topic: request.topic_id,
        })
        .await?;
    Ok(Bytes::new())
}

pub(crate) async fn create_partitions(shared: &Shared, body: &[u8]) -> Result<Bytes, IggyError> {
    let request: CreatePartitionsRequest = decode(body)?;
    shared
        .change(Change::CreatePartitions {
            stream: request.stream_id,
            topic: request.topic_id,
            count: partitions_change(request.partitions_count)?,
        })
        .await?;
    Ok(Bytes::new())
}

pub(crate) async fn delete_partitions(shared: &Shared, body: &[u8]) -> Result<Bytes, IggyError> {
    let request: DeletePartitionsRequest = decode(body)?;
    shared
        .change(Change::DeletePartitions {
            stream: request.stream_id,
            topic: request.topic_id,
            count: partitions_change(request.partitions_count)?,
        })
        .await?;
    Ok(Bytes::new())
}

/// Iggy refuses to add or remove none, with the same error as too many.
fn partitions_change(count: u32) -> Result<u32, IggyError> {
    match count {
        1..=MAX_PARTITIONS_PER_REQUEST => Ok(count),
        _ => Err(IggyError::TooManyPartitions),
    }
}

/// The number of messages in a topic and their size in bytes.
pub(crate) fn totals(topic: &Topic) -> (u64, u64) {
    topic
        .partitions
        .iter()
        .map(|partition| partition.progress())
        .fold((0, 0), |(messages, bytes), progress| {
            (messages + progress.next_offset, bytes + progress.bytes)
        })
}

/// A topic as it stands in answers about topics and streams.
pub(crate) fn header(topic: &Topic) -> Result<TopicHeader, IggyError> {
    let (messages_count, size_bytes) = totals(topic);
    let options =
        |block: &[u8]| WireOptions::from_slice(block).map_err(|_| IggyError::InvalidFormat);
    Ok(TopicHeader {
        id: topic.id,
        created_at: topic.created_at,
        partitions_count: u32::try_from(topic.partitions.len()).unwrap_or(u32::MAX),
        message_expiry: topic.settings.message_expiry,
        compression_algorithm: topic.settings.compression,
        max_topic_size: topic.settings.max_topic_size,
        size_bytes,
        messages_count,
        name: WireName::new(topic.name.as_str()).map_err(|_| IggyError::InvalidTopicName)?,
        options: options(&topic.settings.explicit)?,
        derived_options: options(&topic.settings.derived)?,
    })
}

fn details(topic: &Topic) -> Result<Bytes, IggyError> {
    let partitions = topic
        .partitions
        .iter()
        .map(|partition| partition_response(partition))
        .collect();
    Ok(GetTopicResponse {
        topic: header(topic)?,
        partitions,
    }
    .to_bytes())
}

fn partition_response(partition: &Partition) -> PartitionResponse {
    let progress = partition.progress();
    PartitionResponse {
        id: partition.id,
        created_at: partition.created_at,
        // The store has no segments; Iggy's partitions have one from the start.
        segments_count: 1,
        current_offset: progress.current_offset(),
        size_bytes: progress.bytes,
        messages_count: progress.next_offset,
    }
}
