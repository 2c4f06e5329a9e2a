//! What no row of a table thought of: legal streams, damaged streams and noise, from a generator.
//!
//! What always holds: no input panics; how it is cut changes nothing; every refusal has a reason of its own; and what is
//! accepted is, written again by the codec's client side, the same bytes, so no bit of it went unread.

use std::collections::BTreeMap;

use proptest::prelude::*;
use rmqtt_codec::v3;
use tokio_util::codec::Encoder as _;

use super::generator::{Random, client_packet};
use super::*;
use crate::mqtt::{QoS, TopicFilter, TopicName};

/// The first byte and the body of the packet that `frame` is, without its length, which may be written in several ways.
fn without_length(frame: &[u8]) -> (u8, &[u8]) {
    let length_bytes = frame[1..].iter().position(|byte| byte & 0x80 == 0).unwrap() + 1;
    (frame[0], &frame[1 + length_bytes..])
}

/// Runs a whole stream through one decoder and checks each packet against the bytes that it was made of.
fn check(stream: &[u8]) -> Outcome {
    let mut decoder = Decoder::new(LIMITS);
    let mut buf = BytesMut::from(stream);
    let mut packets = Vec::new();
    loop {
        let before = stream.len() - buf.len();
        match decoder.decode(&mut buf) {
            Ok(Some(packet)) => {
                let frame = &stream[before..stream.len() - buf.len()];
                assert_eq!(matches!(packet, Packet::Connect(_)), packets.is_empty());
                if let Packet::Publish(publish) = &packet {
                    assert!(publish.qos <= QoS::AtLeastOnce);
                    assert!(TopicName::new(publish.topic.as_str()).is_ok());
                }
                if let Packet::Subscribe(subscribe) = &packet {
                    assert!(!subscribe.filters.is_empty());
                    assert!(
                        subscribe
                            .filters
                            .iter()
                            .all(|(filter, _)| TopicFilter::new(filter.as_str()).is_ok())
                    );
                }
                if let Some(written) = client_packet(&packet) {
                    let mut again = BytesMut::new();
                    v3::Codec::new(0).encode(written, &mut again).unwrap();
                    assert_eq!(without_length(&again), without_length(frame), "{packet:?}");
                }
                packets.push(packet);
            }
            Ok(None) => {
                return Outcome {
                    packets,
                    violation: None,
                    waiting: Some(buf.len()),
                };
            }
            Err(violation) => {
                assert_ne!(
                    violation,
                    Violation::Malformed,
                    "a refusal without a reason of its own"
                );
                return Outcome {
                    packets,
                    violation: Some(violation),
                    waiting: None,
                };
            }
        }
    }
}

/// Damaged streams, as many as `WIRE_ROUNDS` says (from `WIRE_SEED` on); few by default, so that the suite stays fast.
#[test]
fn damaged_streams_never_panic_and_are_refused_alike_however_they_are_cut() {
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .map(|value| value.parse::<u64>().expect(name))
    };
    let (first, rounds) = (
        number("WIRE_SEED").unwrap_or(0),
        number("WIRE_ROUNDS").unwrap_or(20_000),
    );
    let mut reasons = BTreeMap::<_, u64>::new();
    for seed in first..first + rounds {
        let outcome = std::panic::catch_unwind(|| {
            let mut random = Random(seed);
            let mut stream = random.stream().1;
            random.damage(&mut stream);
            let whole = check(&stream);
            assert_eq!(decode_portions(LIMITS, stream.chunks(1)), whole);
            assert_eq!(decode_portions(LIMITS, random.portions(&stream)), whole);
            whole
        })
        .unwrap_or_else(|_| panic!("WIRE_SEED={seed} WIRE_ROUNDS=1 repeats this failure"));
        *reasons
            .entry(
                outcome
                    .violation
                    .map_or("accepted", |violation| violation.reason()),
            )
            .or_default() += 1;
    }
    eprintln!("{reasons:#?}");
    // The damage is of use only if it gets behind the first checks.
    if rounds >= 20_000 {
        for reason in [
            "accepted",
            "truncated",
            "invalid_utf8",
            "filter",
            "topic",
            "requested_qos",
            "packet_id_zero",
            "will_topic",
        ] {
            assert!(reasons.contains_key(reason), "no stream ended as {reason}");
        }
    }
}

/// One byte changed to each of its values, at each position: nothing next to a legal packet is missed.
#[test]
fn every_change_of_one_byte_of_a_legal_stream_is_refused_or_read_alike_however_it_is_cut() {
    let streams = (0..).map(|seed| (seed, Random(seed).stream().1));
    for (seed, stream) in streams
        .filter(|(_, stream)| (100..160).contains(&stream.len()))
        .take(2)
    {
        for position in 0..stream.len() {
            let mut changed = stream.clone();
            for byte in 0..=255 {
                changed[position] = byte;
                let whole = check(&changed);
                assert_eq!(
                    decode_portions(LIMITS, changed.chunks(1)),
                    whole,
                    "seed {seed}, {position}: {byte:#x}"
                );
            }
        }
    }
}

#[test]
fn legal_streams_are_read_as_the_client_meant_them() {
    for seed in 0..3_000 {
        let (sent, bytes) = Random(seed).stream();
        let outcome = check(&bytes);
        assert_eq!(
            (outcome.violation, outcome.waiting),
            (None, Some(0)),
            "seed {seed}"
        );
        assert_eq!(outcome.packets.len(), sent.len(), "seed {seed}");
        for (read, sent) in outcome.packets.iter().zip(sent) {
            match client_packet(read) {
                Some(read) => assert_eq!(read, sent, "seed {seed}"),
                None => assert!(
                    matches!(sent, v3::Packet::Connect(connect) if connect.last_will.is_some())
                ),
            }
        }
    }
}

proptest! {
    #[test]
    fn noise_never_panics_and_is_refused_alike_however_it_is_cut(
        connect in any::<bool>(),
        noise in proptest::collection::vec(any::<u8>(), 0..600),
        seed in any::<u64>(),
    ) {
        let stream = if connect { [CONNECT, &noise].concat() } else { noise };
        let whole = check(&stream);
        prop_assert_eq!(decode_portions(LIMITS, stream.chunks(1)), whole.clone());
        prop_assert_eq!(decode_portions(LIMITS, Random(seed).portions(&stream)), whole);
    }

    #[test]
    fn any_body_behind_a_legal_fixed_header_is_read_alike_however_it_is_cut(
        first_byte in prop::sample::select(vec![0x30_u8, 0x31, 0x32, 0x3a, 0x40, 0x82, 0xa2]),
        // Mostly small numbers, so that lengths fit now and then.
        body in proptest::collection::vec(prop_oneof![0..4_u8, 0..4_u8, any::<u8>()], 0..60),
        seed in any::<u64>(),
    ) {
        let stream = [CONNECT, &packet(first_byte, &[&body])].concat();
        let whole = check(&stream);
        prop_assert_eq!(decode_portions(LIMITS, stream.chunks(1)), whole.clone());
        prop_assert_eq!(decode_portions(LIMITS, Random(seed).portions(&stream)), whole);
    }

    #[test]
    fn any_topic_is_kept_byte_for_byte_or_refused(text in "\\PC{0,20}|[a-z/+#\\x00-\\x03]{0,8}") {
        let outcome = check(&[CONNECT, &packet(0x30, &[&field(&text), b"x"])].concat());
        match &outcome.packets[..] {
            [_, Packet::Publish(publish)] => prop_assert_eq!(publish.topic.as_str(), &text),
            _ => prop_assert!(matches!(outcome.violation, Some(Violation::Topic(_)))),
        }
        prop_assert_eq!(outcome.violation.is_none(), TopicName::new(text).is_ok());
    }
}
