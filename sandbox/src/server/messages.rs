//! Sending, polling and flushing.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::{BufMut, Bytes};
use iggy_binary_protocol::requests::messages::{
    FlushUnsavedBufferRequest, PollMessagesRequest, SendMessagesHeader,
};
use iggy_binary_protocol::responses::messages::{
    SendMessagesConfirmationResponse, SendMessagesResponse,
};
use iggy_binary_protocol::{WireDecode, WireEncode, WirePartitioning};
use iggy_common::{IggyError, PollingKind, RESYNC_REQUIRED_PARTITION_SENTINEL, calculate_32};

use super::Shared;
use super::catalog::{Partition, Topic};
use super::dispatch::decode;
use super::offsets::{self, Consumer};
use super::record::Batch;
use super::session::Session;
use super::store::{PREFIX, Polled};

/// The most that one poll reply carries, a single larger message aside. Bytes.
const POLL_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Appends a batch to a partition.
pub(crate) async fn send(shared: &Shared, body: Bytes) -> Result<Bytes, IggyError> {
    let (request, batch) = split(&body)?;
    let (stream, topic, partition) = {
        let catalog = shared.store.catalog();
        let (stream, topic) = catalog
            .topic(&request.stream_id, &request.topic_id)
            .map_err(unresolved)?;
        let partition = choose(topic, &request.partitioning).map_err(unresolved)?;
        (stream.id, Arc::clone(topic), partition)
    };
    let batch = Batch::admit(body.slice_ref(batch), request.messages_count)?;
    let count = batch.count();
    let durable = topic.settings.durability.is_persisted();
    let base_offset = shared
        .store
        .append(Arc::clone(&partition), batch, durable)
        .await?;
    partition.counters.appends.fetch_add(1, Ordering::Relaxed);
    partition
        .counters
        .appended_messages
        .fetch_add(u64::from(count), Ordering::Relaxed);
    let confirmation = SendMessagesConfirmationResponse {
        stream_id: stream,
        topic_id: topic.id,
        partition_id: partition.id,
        base_offset,
    };
    Ok(SendMessagesResponse {
        confirmations: vec![confirmation],
    }
    .to_bytes())
}

/// Reads messages of a partition.
pub(crate) async fn poll(
    shared: &Shared,
    session: &mut Session,
    body: &[u8],
) -> Result<Bytes, IggyError> {
    let request: PollMessagesRequest = decode(body)?;
    let (consumer, partition) = {
        let catalog = shared.store.catalog();
        let (stream, topic) = catalog.topic(&request.stream_id, &request.topic_id)?;
        let partition = topic.partition(request.partition_id.unwrap_or_default())?;
        match offsets::consumer(shared, session, stream, topic, partition, &request.consumer) {
            Consumer::Known(key) => (key, Arc::clone(partition)),
            // The member polls a partition that is no longer its own. Iggy says so in an empty answer.
            Consumer::NotOwner => {
                return Ok(poll_reply(
                    RESYNC_REQUIRED_PARTITION_SENTINEL,
                    0,
                    Polled::default(),
                ));
            }
        }
    };
    let progress = partition.progress();
    let end = progress.next_offset;
    let from = match request.strategy.kind {
        kind if kind == PollingKind::Offset.as_code() => request.strategy.value,
        kind if kind == PollingKind::Timestamp.as_code() => {
            shared
                .store
                .offset_at(Arc::clone(&partition), request.strategy.value)
                .await?
        }
        kind if kind == PollingKind::First.as_code() => 0,
        kind if kind == PollingKind::Last.as_code() => end.saturating_sub(u64::from(request.count)),
        kind if kind == PollingKind::Next.as_code() => partition
            .offset(consumer)
            .map_or(0, |offset| offset.saturating_add(1)),
        _ => return Err(IggyError::InvalidCommand),
    };
    partition.counters.polls.fetch_add(1, Ordering::Relaxed);
    let mut polled = Polled::default();
    if from < end && request.count > 0 {
        let mut share = shared.replies.take(POLL_BYTES_MAX).await?;
        // The reply says where the partition ends; nothing beyond that goes out with it.
        let count = u32::try_from(end - from).map_or(request.count, |left| left.min(request.count));
        polled = shared
            .store
            .read(Arc::clone(&partition), from, count, POLL_BYTES_MAX)
            .await?;
        share.shrink(polled.reply.len());
        session.hold(share);
    }
    if polled.count == 0 {
        partition
            .counters
            .empty_polls
            .fetch_add(1, Ordering::Relaxed);
    } else {
        partition
            .counters
            .polled_messages
            .fetch_add(u64::from(polled.count), Ordering::Relaxed);
        if request.auto_commit {
            shared
                .store
                .set_offset(Arc::clone(&partition), consumer, Some(polled.last_offset))
                .await?;
        }
    }
    Ok(poll_reply(partition.id, progress.current_offset(), polled))
}

/// Brings everything to the disk. Iggy of this version refuses the command; here it costs nothing to serve it.
pub(crate) async fn flush(shared: &Shared, body: &[u8]) -> Result<Bytes, IggyError> {
    let request: FlushUnsavedBufferRequest = decode(body)?;
    shared
        .store
        .catalog()
        .topic(&request.stream_id, &request.topic_id)?
        .1
        .partition(request.partition_id)?;
    shared.store.sync().await?;
    Ok(Bytes::new())
}

/// The parts of a send request: where to, and the batch's bytes.
fn split(body: &[u8]) -> Result<(SendMessagesHeader, &[u8]), IggyError> {
    let (length, rest) = body
        .split_first_chunk::<4>()
        .ok_or(IggyError::InvalidCommand)?;
    let length = u32::from_le_bytes(*length) as usize;
    let (head, batch) = rest
        .split_at_checked(length)
        .ok_or(IggyError::InvalidCommand)?;
    let (head, used) = SendMessagesHeader::decode(head).map_err(|_| IggyError::InvalidCommand)?;
    match used == length {
        true => Ok((head, batch)),
        false => Err(IggyError::InvalidCommand),
    }
}

fn choose(topic: &Topic, partitioning: &WirePartitioning) -> Result<Arc<Partition>, IggyError> {
    let count = u32::try_from(topic.partitions.len()).unwrap_or(u32::MAX);
    let id = match partitioning {
        WirePartitioning::PartitionId(id) => Some(*id),
        WirePartitioning::Balanced => topic
            .balance
            .fetch_add(1, Ordering::Relaxed)
            .checked_rem(count),
        // The same function as in the SDK, which normally chooses itself.
        WirePartitioning::MessagesKey(key) => calculate_32(key).checked_rem(count),
    };
    topic.partition(id.unwrap_or_default()).map(Arc::clone)
}

/// Iggy answers every request that writes to something that does not exist with this one error.
pub(crate) fn unresolved(_: IggyError) -> IggyError {
    IggyError::ResourceNotFound(String::new())
}

fn poll_reply(partition: u32, current_offset: u64, polled: Polled) -> Bytes {
    let mut reply = polled.reply;
    if let Some(mut prefix) = reply.get_mut(..PREFIX) {
        prefix.put_u32_le(partition);
        prefix.put_u64_le(current_offset);
        prefix.put_u32_le(polled.count);
    }
    Bytes::from(reply)
}
