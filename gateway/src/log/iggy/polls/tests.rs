//! Replies as a server makes them, and what can become of them on their way.

use bytes::{BufMut, BytesMut};
use iggy_binary_protocol::batch::{BATCH_HEADER_SIZE, BatchHeader};
use iggy_binary_protocol::requests::messages::{RawMessage, SendMessagesEncoder};
use iggy_binary_protocol::{WireIdentifier, WirePartitioning};
use proptest::prelude::*;

use super::*;

const PARTITION: u32 = 3;

/// A batch as it is stored.
fn batch(first_offset: u64, payloads: &[&str]) -> Bytes {
    let messages: Vec<_> = (1..)
        .zip(payloads)
        .map(|(number, payload)| RawMessage {
            id: number,
            origin_timestamp: 1_000 + number as u64,
            headers: None,
            payload: payload.as_bytes(),
        })
        .collect();
    let id = WireIdentifier::numeric(0);
    let to = WirePartitioning::PartitionId(PARTITION);
    let mut body = BytesMut::new();
    SendMessagesEncoder::encode(&mut body, &id, &id, &to, &messages).unwrap();
    let metadata = u32::from_le_bytes(body[..4].try_into().unwrap()) as usize;
    let mut stored = body.split_off(4 + metadata);
    let mut header = BatchHeader::decode(&stored).unwrap();
    header.partition_id = u64::from(PARTITION);
    header.base_offset = first_offset;
    header.base_timestamp = 2_000;
    header.batch_checksum = header.checksum_for_blob(&stored[BATCH_HEADER_SIZE..]);
    header.encode_into(&mut stored);
    stored.freeze()
}

fn reply(partition: u32, newest: u64, count: u32, batches: &[Bytes]) -> Bytes {
    let mut reply = BytesMut::new();
    reply.put_u32_le(partition);
    reply.put_u64_le(newest);
    reply.put_u32_le(count);
    for batch in batches {
        reply.put_slice(batch);
    }
    reply.freeze()
}

fn two_batches() -> Bytes {
    let batches = [batch(7, &["a", "bc"]), batch(9, &["def"])];
    reply(PARTITION, 9, 3, &batches)
}

fn is_refused(reply: Bytes) -> bool {
    match decode(reply, PARTITION, Compare::All) {
        Ok(_) => false,
        Err(error) => {
            assert_eq!(error, IggyError::InvalidCommand);
            true
        }
    }
}

#[test]
fn a_reply_is_read_as_it_was_sent() {
    let poll = decode(two_batches(), PARTITION, Compare::All).unwrap();
    let read: Vec<_> = poll
        .messages
        .iter()
        .map(|message| (message.header.offset, &message.payload[..]))
        .collect();
    assert_eq!(read, [(7, &b"a"[..]), (8, b"bc"), (9, b"def")]);
    assert_eq!((poll.newest_offset, poll.damage), (9, vec![]));
}

#[test]
fn an_empty_reply_may_name_any_partition_and_one_with_messages_only_the_one_asked_for() {
    let empty = decode(reply(u32::MAX, 5, 0, &[]), PARTITION, Compare::All).unwrap();
    assert!(empty.messages.is_empty() && empty.newest_offset == 5);
    assert!(is_refused(reply(PARTITION + 1, 7, 1, &[batch(7, &["a"])])));
}

#[test]
fn a_number_of_messages_that_cannot_fit_is_refused_before_anything_is_allocated_for_it() {
    for count in [7, 1 << 20, 1 << 31, u32::MAX] {
        assert!(is_refused(reply(PARTITION, 7, count, &[batch(7, &["a"])])));
        assert!(is_refused(reply(PARTITION, 7, count, &[])));
    }
}

#[test]
fn offsets_that_go_back_or_beyond_the_newest_or_beyond_all_numbers_are_refused() {
    let (one, two) = (batch(7, &["a", "b"]), batch(8, &["c"]));
    assert!(is_refused(reply(PARTITION, 9, 3, &[one, two])));
    assert!(is_refused(reply(PARTITION, 6, 1, &[batch(7, &["a"])])));
    let last = batch(u64::MAX, &["a", "b"]);
    assert!(is_refused(reply(PARTITION, u64::MAX, 2, &[last])));
}

#[test]
fn a_message_or_a_batch_that_does_not_fit_its_checksum_is_named() {
    let damage_of = |at: usize, compare| {
        let mut bytes = two_batches().to_vec();
        bytes[at] ^= 1;
        let poll = decode(bytes.into(), PARTITION, compare).unwrap();
        assert_eq!(poll.messages.len(), 3);
        poll.damage
    };
    let payload = two_batches().len() - 1;
    for compare in [Compare::All, Compare::Messages] {
        let damage = damage_of(payload, compare);
        assert_eq!(damage.len(), 1);
        assert_eq!(damage[0].offset(), Some(9));
        assert_eq!(damage, damage_of(payload, compare));
    }
    let base_timestamp = PREFIX_BYTES + 16;
    let damage = damage_of(base_timestamp, Compare::All);
    assert!(
        matches!(
            damage[..],
            [Damage::Batch {
                first_offset: 7,
                ..
            }]
        ),
        "{damage:?}"
    );
    assert_eq!(damage_of(base_timestamp, Compare::Messages), []);
}

proptest! {
    #[test]
    fn whatever_becomes_of_a_reply_it_is_refused_or_named_damaged_or_as_it_was(
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0..8_u8), 0..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let sent = two_batches();
        let mut bytes = sent.to_vec();
        for (at, bit) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let whole = decode(sent, PARTITION, Compare::All).unwrap();
        if let Ok(poll) = decode(bytes.into(), PARTITION, Compare::All)
            && poll.damage.is_empty()
        {
            // Of a prefix only the end of the log can be wrong, and of the messages the last ones can be missing.
            prop_assert!(poll.messages.len() <= whole.messages.len());
            for (one, other) in poll.messages.iter().zip(&whole.messages) {
                prop_assert_eq!(one.header.offset, other.header.offset);
                prop_assert_eq!(&one.payload, &other.payload);
                prop_assert_eq!(one.header.id, other.header.id);
            }
        }
    }

    #[test]
    fn any_bytes_are_refused_or_read_and_nothing_panics(bytes in prop::collection::vec(any::<u8>(), 0..2_000)) {
        let _ = decode(bytes.into(), PARTITION, Compare::All);
    }
}
