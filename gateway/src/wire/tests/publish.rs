//! PUBLISH (3.3) and PUBACK (3.4).

use super::*;
use crate::mqtt::{PacketId, QoS, TopicError, TopicName};
use crate::wire::Publish;

fn topic(text: &'static str) -> TopicName {
    TopicName::new(text).unwrap()
}

#[test]
fn a_publish_with_qos_0_has_no_packet_id() {
    // The first two bytes of the payload would be one.
    let stream = packet(0x31, &[b"\x00\x03a/b", &[0, 0, 0xff, 0x00]]);
    assert_eq!(
        accepted(&stream),
        [Packet::Publish(Publish {
            dup: false,
            qos: QoS::AtMostOnce,
            retain: true,
            topic: topic("a/b"),
            packet_id: None,
            payload: vec![0, 0, 0xff, 0].into(),
        })]
    );
}

#[test]
fn a_publish_with_qos_1_has_its_packet_id_before_the_payload() {
    let stream = packet(0x3a, &[b"\x00\x03a/b", &[0x12, 0x34], b"hello"]);
    assert_eq!(
        accepted(&stream),
        [Packet::Publish(Publish {
            dup: true,
            qos: QoS::AtLeastOnce,
            retain: false,
            topic: topic("a/b"),
            packet_id: PacketId::new(0x1234),
            payload: "hello".into(),
        })]
    );
}

#[test]
fn a_payload_may_be_empty() {
    for stream in [
        packet(0x30, &[b"\x00\x01t"]),
        packet(0x32, &[b"\x00\x01t", &[0, 1]]),
    ] {
        let [Packet::Publish(publish)] = &accepted(&stream)[..] else {
            panic!()
        };
        assert!(publish.payload.is_empty());
    }
}

#[test]
fn a_payload_may_fill_the_packet_up_to_its_limit() {
    for size in [8_092, 8_193, 65_536, LIMITS.max_packet_size] {
        // One byte of type and flags, three of length (two for the first), three of topic.
        let overhead = if size < 16_384 { 6 } else { 7 };
        let payload = (0..size - overhead).map(|i| i as u8).collect::<Vec<_>>();
        let stream = packet(0x30, &[b"\x00\x01t", &payload]);
        assert_eq!(stream.len(), size);
        for portion in [size, 1_000, 8_192] {
            let outcome =
                decode_portions(LIMITS, [CONNECT].into_iter().chain(stream.chunks(portion)));
            let [_, Packet::Publish(publish)] = &outcome.packets[..] else {
                panic!("{outcome:?}")
            };
            assert!(
                publish.payload == payload,
                "{size} bytes in portions of {portion}"
            );
        }
    }
}

#[test]
fn a_debug_output_shows_no_payload() {
    let text = format!("{:?}", accepted(&packet(0x30, &[b"\x00\x01t", b"private"])));
    assert!(
        text.contains("7 bytes") && !text.contains("private"),
        "{text}"
    );
}

#[test]
fn a_topic_and_a_payload_share_the_memory_of_the_packet() {
    let mut buf = BytesMut::with_capacity(8_192);
    buf.extend_from_slice(CONNECT);
    buf.extend(packet(0x30, &[b"\x00\x01t", b"payload"]));
    let memory = buf.as_ptr_range();
    let mut decoder = Decoder::new(LIMITS);
    decoder.decode(&mut buf).unwrap();
    let Ok(Some(Packet::Publish(publish))) = decoder.decode(&mut buf) else {
        panic!()
    };
    assert!(memory.contains(&publish.payload.as_ptr()));
    assert!(memory.contains(&publish.topic.as_str().as_ptr()));
}

#[test]
fn a_packet_id_is_not_0() {
    refused_connected(
        &packet(0x32, &[b"\x00\x01t", &[0, 0], b"x"]),
        Violation::PacketIdZero,
        "[MQTT-2.3.1-1]",
    );
    refused_connected(
        &packet(0x40, &[&[0, 0]]),
        Violation::PacketIdZero,
        "[MQTT-2.3.1-1]",
    );
}

#[test]
fn a_publish_goes_to_a_topic_name() {
    for (topic, error, clause) in [
        ("", TopicError::Empty, "[MQTT-4.7.3-1]"),
        ("a/+/b", TopicError::WildcardInName, "[MQTT-3.3.2-2]"),
        ("a+", TopicError::WildcardInName, "[MQTT-3.3.2-2]"),
        ("a/#", TopicError::WildcardInName, "[MQTT-3.3.2-2]"),
        ("#", TopicError::WildcardInName, "[MQTT-3.3.2-2]"),
        ("a\0b", TopicError::Nul, "[MQTT-4.7.3-2]"),
        ("\0", TopicError::Nul, "[MQTT-4.7.3-2]"),
    ] {
        refused_connected(
            &packet(0x30, &[&field(topic), b"x"]),
            Violation::Topic(error),
            clause,
        );
        refused_connected(
            &packet(0x32, &[&field(topic), &[0, 1], b"x"]),
            Violation::Topic(error),
            clause,
        );
    }
}

#[test]
fn a_topic_is_well_formed_utf_8() {
    let ill_formed: [&[u8]; 5] = [
        b"a\xff",
        b"\xed\xa0\x80",
        b"\xc0\x80",
        b"\xf4\x90\x80\x80",
        b"a\xe6\x9d",
    ];
    for text in ill_formed {
        refused_connected(
            &packet(0x30, &[&field(text), b"x"]),
            Violation::InvalidUtf8,
            "[MQTT-1.5.3-1]",
        );
    }
}

#[test]
fn legal_topics_are_kept_byte_for_byte() {
    for text in [
        "\u{feff}x",
        "/",
        "//",
        "a b",
        "$SYS/x",
        "ü/東京/🚀",
        "\u{7f}\u{1}",
    ] {
        let [Packet::Publish(publish)] = &accepted(&packet(0x30, &[&field(text)]))[..] else {
            panic!()
        };
        assert_eq!(publish.topic.as_str(), text);
    }
}

#[test]
fn a_publish_that_ends_within_its_topic_or_packet_id_is_refused() {
    for body in [&b""[..], b"\x00", b"\x00\x02t", b"\xff\xfft"] {
        refused_connected(
            &packet(0x30, &[body]),
            Violation::Truncated,
            "[MQTT-4.8.0-1]",
        );
    }
    for body in [&b"\x00\x01t"[..], b"\x00\x01t\x01"] {
        refused_connected(
            &packet(0x32, &[body]),
            Violation::Truncated,
            "[MQTT-4.8.0-1]",
        );
    }
}

#[test]
fn a_topic_is_refused_over_the_configured_limits() {
    let limits = WireLimits {
        max_topic_length: 9,
        max_topic_levels: 3,
        ..LIMITS
    };
    let long = Violation::TopicTooLong { length: 10, max: 9 };
    let deep = Violation::TooManyLevels { levels: 4, max: 3 };
    for (topic, violation) in [
        ("123456789", None),
        ("1234567890", Some(long)),
        ("a//b/c", Some(deep)),
        ("//c", None),
    ] {
        for stream in [
            packet(0x30, &[&field(topic)]),
            packet(0x82, &[&[0, 1], &field(topic), &[0]]),
            packet(0xa2, &[&[0, 1], &field(topic)]),
        ] {
            assert_eq!(
                decode_portions(limits, [CONNECT, &stream]).violation,
                violation,
                "{topic} in {stream:x?}"
            );
        }
        let will = packet(
            0x10,
            &[
                b"\x00\x04MQTT\x04\x06\x00\x00\x00\x00",
                &field(topic),
                &field(""),
            ],
        );
        assert_eq!(
            decode_portions(limits, [&will[..]]).violation,
            violation,
            "{topic} of a Will"
        );
    }
}

#[test]
fn the_longest_topic_of_the_standard_is_legal() {
    let text = "x".repeat(65_535);
    let outcome = decode_portions(LIMITS, [CONNECT, &packet(0x30, &[&field(&text)])]);
    let [_, Packet::Publish(publish)] = &outcome.packets[..] else {
        panic!()
    };
    assert_eq!(publish.topic.as_str(), text);
}

#[test]
fn a_puback_hands_out_its_packet_id() {
    assert_eq!(
        accepted(&[0x40, 2, 0xff, 0xfe]),
        [Packet::PubAck(PacketId::new(0xfffe).unwrap())]
    );
}
