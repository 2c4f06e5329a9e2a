//! What a poll brought, checked before anything is done with it.
//!
//! What always holds: a reply that decodes has room for as many messages as it says, belongs to the partition that was asked,
//! and numbers its messages upwards, to the newest at most; nothing that a reply says makes the decoding
//! allocate more than the reply is long, or panic. Messages and batches that do not fit their checksums are named.
//!
//! A reply (Iggy 0.9) is a prefix of 16 bytes, little-endian: partition (4), newest offset (8), number of messages (4); then
//! the stored batches, the first and the last perhaps cut to what was asked for. The crate `iggy` 0.11 allocates for the
//! number of messages before it has seen one, and compares no checksum.

use ::iggy::prelude::{IggyError, IggyMessage, PolledMessages};
use bytes::{Buf, Bytes};
use iggy_binary_protocol::WireError;
use iggy_binary_protocol::batch::{
    BATCH_MESSAGE_HEADER_SIZE, BatchIntegrity, BatchRef, calculate_batch_checksum,
    decode_batch_slice_with,
};
use twox_hash::XxHash3_64;

/// Partition, newest offset, number of messages.
const PREFIX_BYTES: usize = 4 + 8 + 4;

/// Messages, and what is to be said about them.
#[derive(Debug)]
pub(super) struct Poll {
    /// In the order of their offsets.
    pub(super) messages: Vec<IggyMessage>,
    /// The partition's newest offset.
    pub(super) newest_offset: u64,
    /// What does not fit its checksum: on its way here, or already where it is stored.
    pub(super) damage: Vec<Damage>,
}

/// Which checksums are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compare {
    /// Those of messages and batches.
    All,
    /// Those of messages, for a server that cuts batches without computing theirs anew.
    Messages,
}

/// Something that does not fit its checksum. Equal ones have the same cause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Damage {
    /// The fields of a batch, or a server that cuts a batch without computing its checksum anew.
    Batch {
        first_offset: u64,
        said: u64,
        computed: u64,
    },
    /// A message.
    Message {
        offset: u64,
        said: u64,
        computed: u64,
    },
}

impl Damage {
    /// The damaged message.
    pub(super) fn offset(&self) -> Option<u64> {
        match self {
            Self::Batch { .. } => None,
            Self::Message { offset, .. } => Some(*offset),
        }
    }
}

/// Reads the reply to a poll of `partition`.
///
/// # Errors
/// [`IggyError::InvalidCommand`]: it is not one.
pub(super) fn decode(reply: Bytes, partition: u32, compare: Compare) -> Result<Poll, IggyError> {
    let damage = check(reply.clone(), partition, compare).ok_or(IggyError::InvalidCommand)?;
    let PolledMessages {
        messages,
        current_offset,
        ..
    } = PolledMessages::from_bytes(reply)?;
    Ok(Poll {
        messages,
        newest_offset: current_offset,
        damage,
    })
}

/// `None` if the reply cannot be what the server sent.
fn check(mut reply: Bytes, partition: u32, compare: Compare) -> Option<Vec<Damage>> {
    if reply.len() < PREFIX_BYTES {
        return None;
    }
    let said_partition = reply.get_u32_le();
    let newest = reply.get_u64_le();
    let count = reply.get_u32_le() as usize;
    if count > reply.len() / BATCH_MESSAGE_HEADER_SIZE {
        return None;
    }
    // An empty reply may name no partition.
    if !reply.is_empty() && said_partition != partition {
        return None;
    }
    let mut damage = Vec::new();
    let mut next = None;
    while !reply.is_empty() {
        let batch = layout(&reply).ok()?;
        check_batch(&batch, compare, &mut next, &mut damage)?;
        let length = batch.header.total_size();
        reply.advance(length);
    }
    let is_within = next.is_none_or(|next| next <= newest.saturating_add(1));
    is_within.then_some(damage)
}

fn layout(bytes: &[u8]) -> Result<BatchRef<'_>, WireError> {
    decode_batch_slice_with(bytes, BatchIntegrity::LayoutOnly)
}

/// `next` is the lowest offset that may come now, if there was a message before.
fn check_batch(
    batch: &BatchRef<'_>,
    compare: Compare,
    next: &mut Option<u64>,
    damage: &mut Vec<Damage>,
) -> Option<()> {
    let header = &batch.header;
    let mut first = None;
    for frame in batch.iter_with_offsets() {
        let message = &frame.message.header;
        let offset = header
            .base_offset
            .checked_add(u64::from(message.offset_delta))?;
        header
            .origin_timestamp
            .checked_add(u64::from(message.timestamp_delta))?;
        if next.is_some_and(|next| offset < next) {
            return None;
        }
        *next = Some(offset.checked_add(1)?);
        first.get_or_insert(offset);
        let bytes = batch.blob().get(frame.start + 8..frame.end)?;
        let computed = XxHash3_64::oneshot(bytes);
        if computed != message.checksum {
            damage.push(Damage::Message {
                offset,
                said: message.checksum,
                computed,
            });
        }
    }
    if compare == Compare::Messages {
        return Some(());
    }
    let computed = calculate_batch_checksum(header, batch.blob());
    if computed != header.batch_checksum {
        damage.push(Damage::Batch {
            first_offset: first.unwrap_or(header.base_offset),
            said: header.batch_checksum,
            computed,
        });
    }
    Some(())
}

#[cfg(test)]
mod tests;
