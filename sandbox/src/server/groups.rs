//! The commands on consumer groups.

use bytes::Bytes;
use iggy_binary_protocol::requests::consumer_groups::{
    CreateConsumerGroupRequest, DeleteConsumerGroupRequest, GetConsumerGroupRequest,
    GetConsumerGroupsRequest, JoinConsumerGroupRequest, LeaveConsumerGroupRequest,
    SyncConsumerGroupRequest,
};
use iggy_binary_protocol::responses::consumer_groups::{
    ConsumerGroupDetailsResponse, ConsumerGroupMemberResponse, ConsumerGroupResponse,
    GetConsumerGroupsResponse, SyncConsumerGroupResponse,
};
use iggy_binary_protocol::{WireDecode, WireEncode, WireIdentifier, WireName};
use iggy_common::{Identifier, IggyError};

use super::Shared;
use super::catalog::{Catalog, Group, Stream, Topic};
use super::change::{Change, group_not_found};
use super::dispatch::decode;
use super::membership::GroupKey;
use super::session::Session;

pub(crate) fn get(shared: &Shared, body: &[u8]) -> Result<Bytes, IggyError> {
    let request: GetConsumerGroupRequest = decode(body)?;
    let catalog = shared.store.catalog();
    let (stream, topic) = catalog.topic(&request.stream_id, &request.topic_id)?;
    // An empty answer is how Iggy says that there is none.
    topic.group(&request.group_id).map_or_else(
        || Ok(Bytes::new()),
        |group| details(shared, stream, topic, group),
    )
}

pub(crate) fn list(shared: &Shared, body: &[u8]) -> Result<Bytes, IggyError> {
    let request: GetConsumerGroupsRequest = decode(body)?;
    let catalog = shared.store.catalog();
    let (stream, topic) = catalog.topic(&request.stream_id, &request.topic_id)?;
    let groups = topic
        .groups
        .values()
        .map(|group| response(topic, group, members(shared, stream, topic, group).len()))
        .collect::<Result<_, _>>()?;
    Ok(GetConsumerGroupsResponse { groups }.to_bytes())
}

pub(crate) async fn create(shared: &Shared, body: &[u8]) -> Result<Bytes, IggyError> {
    let request: CreateConsumerGroupRequest = decode(body)?;
    let (stream, topic) = (request.stream_id.clone(), request.topic_id.clone());
    let changed = shared
        .change(Change::CreateGroup {
            stream: request.stream_id,
            topic: request.topic_id,
            name: request.name.to_string(),
        })
        .await?;
    let (stream, topic) = changed.catalog.topic(&stream, &topic)?;
    let group = topic.groups.get(&changed.id).ok_or_else(group_not_found)?;
    details(shared, stream, topic, group)
}

pub(crate) async fn delete(shared: &Shared, body: &[u8]) -> Result<Bytes, IggyError> {
    let request: DeleteConsumerGroupRequest = decode(body)?;
    shared
        .change(Change::DeleteGroup {
            stream: request.stream_id,
            topic: request.topic_id,
            group: request.group_id,
        })
        .await?;
    Ok(Bytes::new())
}

pub(crate) fn join(shared: &Shared, session: &Session, body: &[u8]) -> Result<Bytes, IggyError> {
    let request: JoinConsumerGroupRequest = decode(body)?;
    let catalog = shared.store.catalog();
    let (key, topic) = find(
        &catalog,
        &request.stream_id,
        &request.topic_id,
        &request.group_id,
    )?;
    shared
        .membership
        .lock()
        .join(key, session.id, &topic.partition_ids());
    Ok(Bytes::new())
}

pub(crate) fn leave(shared: &Shared, session: &Session, body: &[u8]) -> Result<Bytes, IggyError> {
    let request: LeaveConsumerGroupRequest = decode(body)?;
    let catalog = shared.store.catalog();
    let (key, _) = find(
        &catalog,
        &request.stream_id,
        &request.topic_id,
        &request.group_id,
    )?;
    match shared.membership.lock().leave(key, session.id) {
        true => Ok(Bytes::new()),
        false => Err(IggyError::ConsumerGroupMemberNotFound(
            session.id,
            Identifier::default(),
            Identifier::default(),
        )),
    }
}

/// The asking member's partitions. An empty answer is how Iggy says that it is not a member.
pub(crate) fn sync(shared: &Shared, session: &Session, body: &[u8]) -> Bytes {
    let assignment = || {
        let request = SyncConsumerGroupRequest::decode_from(body).ok()?;
        let catalog = shared.store.catalog();
        let (key, topic) = find(
            &catalog,
            &request.stream_id,
            &request.topic_id,
            &request.group_id,
        )
        .ok()?;
        shared
            .membership
            .lock()
            .assignment(key, session.id, &topic.partition_ids())
    };
    assignment().map_or_else(Bytes::new, |(generation, partitions)| {
        SyncConsumerGroupResponse {
            generation,
            partitions,
        }
        .to_bytes()
    })
}

/// Whether the group of this key exists.
pub(crate) fn exists(catalog: &Catalog, key: &GroupKey) -> bool {
    catalog
        .streams
        .get(&key.stream)
        .and_then(|stream| stream.topics.get(&key.topic))
        .is_some_and(|topic| topic.groups.contains_key(&key.group))
}

fn find<'a>(
    catalog: &'a Catalog,
    stream: &WireIdentifier,
    topic: &WireIdentifier,
    group: &WireIdentifier,
) -> Result<(GroupKey, &'a Topic), IggyError> {
    let (stream, topic) = catalog.topic(stream, topic)?;
    let group = topic.group(group).ok_or_else(group_not_found)?;
    Ok((
        GroupKey {
            stream: stream.id,
            topic: topic.id,
            group: group.id,
        },
        topic,
    ))
}

fn members(shared: &Shared, stream: &Stream, topic: &Topic, group: &Group) -> Vec<(u32, Vec<u32>)> {
    let key = GroupKey {
        stream: stream.id,
        topic: topic.id,
        group: group.id,
    };
    shared
        .membership
        .lock()
        .members(key, &topic.partition_ids())
}

fn details(
    shared: &Shared,
    stream: &Stream,
    topic: &Topic,
    group: &Group,
) -> Result<Bytes, IggyError> {
    let members: Vec<_> = members(shared, stream, topic, group)
        .into_iter()
        .map(|(id, partitions)| ConsumerGroupMemberResponse {
            id,
            partitions_count: u32::try_from(partitions.len()).unwrap_or(u32::MAX),
            partitions,
        })
        .collect();
    Ok(ConsumerGroupDetailsResponse {
        group: response(topic, group, members.len())?,
        members,
    }
    .to_bytes())
}

fn response(
    topic: &Topic,
    group: &Group,
    members: usize,
) -> Result<ConsumerGroupResponse, IggyError> {
    Ok(ConsumerGroupResponse {
        id: group.id,
        partitions_count: u32::try_from(topic.partitions.len()).unwrap_or(u32::MAX),
        members_count: u32::try_from(members).unwrap_or(u32::MAX),
        name: WireName::new(group.name.as_str())
            .map_err(|_| IggyError::InvalidConsumerGroupName)?,
    })
}
