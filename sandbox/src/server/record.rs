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

/// What [`cut`] took of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cut {
    /// The number of messages, at least 1.
    pub(crate) count: u32,
    pub(crate) last_offset: u64,
    /// Whether the batch's last message is among them.
    pub(crate) to_end: bool,
}

/// What may be taken of a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Allowance {
    /// Messages.
    pub(crate) count: u32,
    /// The size of the record that is made, in bytes.
    pub(crate) bytes: usize,
    /// Whether one message may be taken even if it does not fit.
    pub(crate) at_least_one: bool,
}

/// Appends the messages of a stored batch from offset `from` on to `out`, as far as `allowed`, as a batch record of their
/// own. `None`, and nothing appended, when there is no such message.
///
/// # Errors
/// [`WireError`] for bytes that are no batch.
pub(crate) fn cut(
    record: &[u8],
    from: u64,
    allowed: Allowance,
    out: &mut Vec<u8>,
) -> Result<Option<Cut>, WireError> {
    let batch = decode_batch_slice_with(record, BatchIntegrity::LayoutOnly)?;
    let mut taken: Option<(usize, usize)> = None;
    let mut cut = Cut {
        count: 0,
        last_offset: 0,
        to_end: false,
    };
    for (index, framed) in (1..).zip(batch.iter_with_offsets()) {
        let delta = u64::from(framed.message.header.offset_delta);
        let offset = batch.header.base_offset.saturating_add(delta);
        if offset < from {
            continue;
        }
        let start = taken.map_or(framed.start, |(start, _)| start);
        let fits = BATCH_HEADER_SIZE + framed.end - start <= allowed.bytes;
        let forced = allowed.at_least_one && cut.count == 0;
        if cut.count == allowed.count || !(fits || forced) {
            break;
        }
        taken = Some((start, framed.end));
        cut = Cut {
            count: cut.count + 1,
            last_offset: offset,
            to_end: index == batch.message_count(),
        };
    }
    let Some(frames) = taken.and_then(|(start, end)| batch.blob().get(start..end)) else {
        return Ok(None);
    };
    if cut.count == batch.message_count() {
        out.extend_from_slice(record);
        return Ok(Some(cut));
    }
    let mut header = batch.header;
    header.message_count = cut.count;
    header.batch_length = (BATCH_HEADER_SIZE + frames.len()) as u64;
    header.batch_checksum = header.checksum_for_blob(frames);
    let mut head = [0; BATCH_HEADER_SIZE];
    header.encode_into(&mut head);
    out.extend_from_slice(&head);
    out.extend_from_slice(frames);
    Ok(Some(cut))
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use iggy_binary_protocol::requests::messages::{RawMessage, SendMessagesEncoder};
    use iggy_binary_protocol::responses::messages::poll_messages::PolledBatchesIterator;
    use iggy_binary_protocol::{WireIdentifier, WirePartitioning};

    use super::*;

    const STAMP: Stamp = Stamp {
        partition: 3,
        base_offset: 100,
        timestamp: 5000,
    };

    /// A batch of messages with these payloads, as the SDK encodes it.
    fn sent(payloads: &[&[u8]]) -> Bytes {
        let messages: Vec<_> = (1..)
            .zip(payloads)
            .map(|(number, payload)| RawMessage {
                id: number,
                origin_timestamp: 1000 + number as u64,
                headers: None,
                payload,
            })
            .collect();
        let id = WireIdentifier::numeric(0);
        let mut body = BytesMut::new();
        SendMessagesEncoder::encode(
            &mut body,
            &id,
            &id,
            &WirePartitioning::PartitionId(0),
            &messages,
        )
        .unwrap();
        let metadata = u32::from_le_bytes(body[..4].try_into().unwrap()) as usize;
        body.freeze().slice(4 + metadata..)
    }

    fn stored(payloads: &[&[u8]]) -> Vec<u8> {
        let batch = Batch::admit(sent(payloads), payloads.len() as u32).unwrap();
        let mut record = vec![0xee; batch.len()];
        batch.write_stamped(STAMP, &mut record);
        record
    }

    #[test]
    fn the_stamp_changes_only_what_the_server_owns() {
        let sent = sent(&[b"one", b"two"]);
        let stored = stored(&[b"one", b"two"]);
        let batch = decode_batch_slice(&stored).unwrap();
        assert_eq!(
            (batch.header.partition_id, batch.header.base_offset),
            (3, 100)
        );
        assert_eq!(
            (batch.header.base_timestamp, batch.header.origin_timestamp),
            (5000, 1001)
        );
        assert_eq!(stored[BATCH_HEADER_SIZE..], sent[BATCH_HEADER_SIZE..]);
    }

    #[test]
    fn any_part_of_a_batch_can_be_cut_out_and_is_a_valid_batch() {
        let payloads: [&[u8]; 4] = [b"a", b"bb", b"ccc", b"dddd"];
        let record = stored(&payloads);
        for from in 0..106 {
            for count in 0..6 {
                let allowed = Allowance {
                    count,
                    bytes: usize::MAX,
                    at_least_one: false,
                };
                let mut out = Vec::new();
                let cut = cut(&record, from, allowed, &mut out).unwrap();
                let expected: Vec<u64> = (100..104)
                    .filter(|offset| *offset >= from)
                    .take(count as usize)
                    .collect();
                let Some(last) = expected.last() else {
                    assert_eq!((cut, out.len()), (None, 0));
                    continue;
                };
                let cut = cut.unwrap();
                assert_eq!(
                    (cut.count as usize, cut.last_offset),
                    (expected.len(), *last)
                );
                assert_eq!(cut.to_end, *last == 103);
                decode_batch_slice(&out).unwrap();
                let messages: Vec<_> = PolledBatchesIterator::new(&out)
                    .map(Result::unwrap)
                    .collect();
                assert_eq!(
                    messages
                        .iter()
                        .map(|message| message.offset)
                        .collect::<Vec<_>>(),
                    expected
                );
                for message in messages {
                    let index = (message.offset - 100) as usize;
                    assert_eq!(message.payload, payloads[index]);
                    assert_eq!(message.origin_timestamp, 1001 + index as u64);
                    assert_eq!(message.timestamp, 5000);
                }
            }
        }
    }

    #[test]
    fn a_cut_stays_within_its_bytes_but_can_be_forced_to_take_one_message() {
        let record = stored(&[&[7; 100], &[7; 100], &[7; 100]]);
        for bytes in 0..=record.len() {
            for at_least_one in [false, true] {
                let allowed = Allowance {
                    count: 9,
                    bytes,
                    at_least_one,
                };
                let mut out = Vec::new();
                let cut = cut(&record, 0, allowed, &mut out).unwrap();
                let fitting = bytes.saturating_sub(BATCH_HEADER_SIZE) / (48 + 100);
                let expected = if at_least_one {
                    fitting.max(1)
                } else {
                    fitting
                };
                assert_eq!(cut.map_or(0, |cut| cut.count as usize), expected);
                assert!(out.len() <= bytes || (at_least_one && expected == 1));
            }
        }
    }

    #[test]
    fn bytes_that_are_no_batch_are_an_error() {
        let allowed = Allowance {
            count: 1,
            bytes: 1000,
            at_least_one: true,
        };
        let record = stored(&[b"one", b"two"]);
        for length in 0..record.len() {
            assert!(
                cut(&record[..length], 0, allowed, &mut Vec::new()).is_err(),
                "{length}"
            );
        }
    }
}
