//! Message batches as bytes: what is let in, what the server stamps on them, and how a poll cuts them.
//!
//! A batch is the same record on the wire, in the store and in a poll's reply (`iggy_binary_protocol::batch`): a header
//! of 256 bytes, then frames of a 48-byte header, payload and user headers. Ids, checksums, times, headers and payloads of
//! messages are never touched; the server owns the batch header's partition, base offset, base timestamp and, because
//! it covers these, checksum. In a [`Batch`] the frames are known to fill the record exactly and to be numbered from 0.

use bytes::Bytes;
use iggy_binary_protocol::WireError;
use iggy_binary_protocol::batch::{
    BATCH_HEADER_SIZE, BatchHeader, BatchIntegrity, decode_batch_slice, decode_batch_slice_with,
};
use iggy_common::{IggyError, MAX_PAYLOAD_SIZE, MAX_USER_HEADERS_SIZE};

/// A batch that was checked and may be stored.
#[derive(Debug)]
pub(crate) struct Batch {
    header: BatchHeader,
    /// Header and frames as the producer sent them.
    record: Bytes,
}

/// What the server says about a batch when it stores it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stamp {
    pub(crate) partition: u32,
    pub(crate) base_offset: u64,
    /// Microseconds since the Unix epoch.
    pub(crate) timestamp: u64,
}

impl Batch {
    /// Checks a batch that a producer sent: `record` must be exactly one batch of `count` messages.
    ///
    /// # Errors
    /// Iggy's own: a wrong checksum, no messages, an empty or too large payload, too large user headers,
    /// timestamps out of range; `InvalidCommand` for bytes that are no batch.
    pub(crate) fn admit(record: Bytes, count: u32) -> Result<Self, IggyError> {
        let batch = decode_batch_slice(&record).map_err(|error| match error {
            WireError::InvalidBatchChecksum {
                stored,
                computed,
                base_offset,
            } => IggyError::InvalidBatchChecksum(stored, computed, base_offset),
            WireError::InvalidMessageChecksum {
                stored,
                computed,
                offset,
            } => IggyError::InvalidMessageChecksum(stored, computed, offset),
            _ => IggyError::InvalidCommand,
        })?;
        // Bytes behind the batch would be covered by no checksum.
        if batch.header.total_size() != record.len() {
            return Err(IggyError::InvalidCommand);
        }
        if batch.message_count() == 0 || batch.message_count() != count {
            return Err(IggyError::InvalidMessagesCount);
        }
        for (delta, message) in (0..).zip(&batch) {
            if message.header.offset_delta != delta {
                return Err(IggyError::InvalidOffset(u64::from(
                    message.header.offset_delta,
                )));
            }
            if message.payload.is_empty() {
                return Err(IggyError::InvalidMessagePayloadLength);
            }
            if message.header.payload_length > MAX_PAYLOAD_SIZE {
                return Err(IggyError::TooBigMessagePayload);
            }
            if message.header.user_headers_length > MAX_USER_HEADERS_SIZE {
                return Err(IggyError::TooBigUserHeaders);
            }
            let timestamp_delta = u64::from(message.header.timestamp_delta);
            // A reader adds the two.
            if batch
                .header
                .origin_timestamp
                .checked_add(timestamp_delta)
                .is_none()
            {
                return Err(IggyError::InvalidMessageTimestampDelta(timestamp_delta));
            }
        }
        Ok(Self {
            header: batch.header,
            record,
        })
    }

    /// The number of messages, at least 1.
    pub(crate) fn count(&self) -> u32 {
        self.header.message_count
    }

    /// The size as stored, in bytes.
    pub(crate) fn len(&self) -> usize {
        self.record.len()
    }

    /// Writes the batch as it is stored into `out`, which must be [`Batch::len`] bytes long.
    pub(crate) fn write_stamped(&self, stamp: Stamp, out: &mut [u8]) {
        let (head, frames) = out.split_at_mut(BATCH_HEADER_SIZE);
        frames.copy_from_slice(self.record.get(BATCH_HEADER_SIZE..).unwrap_or_default());
        let mut header = self.header;
        header.partition_id = u64::from(stamp.partition);
        header.base_offset = stamp.base_offset;
        header.base_timestamp = stamp.timestamp;
        header.batch_checksum = header.checksum_for_blob(frames);
        header.encode_into(head);
    }
}

/// A part of a stored batch, itself a valid batch record.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) record: Vec<u8>,
    /// The number of messages, at least 1.
    pub(crate) count: u32,
    pub(crate) last_offset: u64,
    /// Whether the batch's last message is in it.
    pub(crate) to_end: bool,
}

/// The messages of a stored batch from offset `from` on: at most `count` of them, in a record of at most `room` bytes;
/// with `at_least_one`, one message even if it does not fit. `None` when there is no such message.
///
/// # Errors
/// [`WireError`] for bytes that are no batch.
pub(crate) fn cut(
    record: &[u8],
    from: u64,
    count: u32,
    room: usize,
    at_least_one: bool,
) -> Result<Option<Cut>, WireError> {
    let batch = decode_batch_slice_with(record, BatchIntegrity::LayoutOnly)?;
    let mut taken: Option<(usize, usize)> = None;
    let (mut messages, mut last_offset, mut last) = (0, 0, false);
    for (index, framed) in (1..).zip(batch.iter_with_offsets()) {
        let offset = batch
            .header
            .base_offset
            .saturating_add(u64::from(framed.message.header.offset_delta));
        if offset < from {
            continue;
        }
        let start = taken.map_or(framed.start, |(start, _)| start);
        let fits = BATCH_HEADER_SIZE + framed.end - start <= room;
        if messages == count || !(fits || (at_least_one && messages == 0)) {
            break;
        }
        taken = Some((start, framed.end));
        messages += 1;
        last_offset = offset;
        last = index == batch.message_count();
    }
    let Some(frames) = taken.and_then(|(start, end)| batch.blob().get(start..end)) else {
        return Ok(None);
    };
    let mut header = batch.header;
    header.message_count = messages;
    header.batch_length = (BATCH_HEADER_SIZE + frames.len()) as u64;
    header.batch_checksum = header.checksum_for_blob(frames);
    let mut out = vec![0; BATCH_HEADER_SIZE];
    header.encode_into(&mut out);
    out.extend_from_slice(frames);
    Ok(Some(Cut {
        record: out,
        count: messages,
        last_offset,
        to_end: last,
    }))
}
