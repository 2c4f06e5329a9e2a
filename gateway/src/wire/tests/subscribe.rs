//! SUBSCRIBE (3.8) and UNSUBSCRIBE (3.10).

use super::*;
use crate::mqtt::{PacketId, QoS, TopicError, TopicFilter};
use crate::wire::{Subscribe, Unsubscribe};

const ID: &[u8] = &[0x12, 0x34];

fn filter(text: &'static str) -> TopicFilter {
    TopicFilter::new(text).unwrap()
}

/// The body in both packets: with a QoS byte after the filter, and without.
fn both(packet_id: &[u8], text: &[u8]) -> [Vec<u8>; 2] {
    [
        packet(0x82, &[packet_id, &field(text), &[0]]),
        packet(0xa2, &[packet_id, &field(text)]),
    ]
}

#[test]
fn filters_keep_their_order_and_the_qos_asked_for() {
    let stream = packet(
        0x82,
        &[
            ID,
            b"\x00\x01b",
            &[1],
            b"\x00\x03a/+",
            &[2],
            b"\x00\x01#",
            &[0],
            b"\x00\x01b",
            &[0],
        ],
    );
    assert_eq!(
        accepted(&stream),
        [Packet::Subscribe(Subscribe {
            packet_id: PacketId::new(0x1234).unwrap(),
            filters: vec![
                (filter("b"), QoS::AtLeastOnce),
                (filter("a/+"), QoS::ExactlyOnce),
                (filter("#"), QoS::AtMostOnce),
                (filter("b"), QoS::AtMostOnce),
            ],
        })]
    );
    let stream = packet(0xa2, &[ID, b"\x00\x01b", b"\x00\x03a/+", b"\x00\x01#"]);
    assert_eq!(
        accepted(&stream),
        [Packet::Unsubscribe(Unsubscribe {
            packet_id: PacketId::new(0x1234).unwrap(),
            filters: vec![filter("b"), filter("a/+"), filter("#")],
        })]
    );
}

#[test]
fn a_requested_qos_is_0_1_or_2_and_nothing_else() {
    for byte in 3..=255 {
        let stream = packet(0x82, &[ID, b"\x00\x01a", &[1], b"\x00\x01b", &[byte]]);
        refused_connected(&stream, Violation::RequestedQos { byte }, "[MQTT-3-8.3-4]");
    }
}

#[test]
fn a_list_without_filters_is_refused() {
    let violation = Violation::NoFilters {
        packet: "SUBSCRIBE",
        clause: "[MQTT-3.8.3-3]",
    };
    refused_connected(&packet(0x82, &[ID]), violation, "[MQTT-3.8.3-3]");
    let violation = Violation::NoFilters {
        packet: "UNSUBSCRIBE",
        clause: "[MQTT-3.10.3-2]",
    };
    refused_connected(&packet(0xa2, &[ID]), violation, "[MQTT-3.10.3-2]");
}

#[test]
fn malformed_filters_are_refused() {
    for (text, error, clause) in [
        ("", TopicError::Empty, "[MQTT-4.7.3-1]"),
        ("a/#/b", TopicError::MisplacedHash, "[MQTT-4.7.1-2]"),
        ("a#", TopicError::MisplacedHash, "[MQTT-4.7.1-2]"),
        ("##", TopicError::MisplacedHash, "[MQTT-4.7.1-2]"),
        ("a+", TopicError::MisplacedPlus, "[MQTT-4.7.1-3]"),
        ("a/+b/c", TopicError::MisplacedPlus, "[MQTT-4.7.1-3]"),
        ("a\0", TopicError::Nul, "[MQTT-4.7.3-2]"),
    ] {
        for stream in both(ID, text.as_bytes()) {
            refused_connected(&stream, Violation::Filter(error), clause);
        }
        // After a good one, too: a packet is taken whole or not at all.
        let stream = packet(0x82, &[ID, b"\x00\x01a", &[1], &field(text), &[1]]);
        refused_connected(&stream, Violation::Filter(error), clause);
    }
}

#[test]
fn a_filter_is_well_formed_utf_8() {
    let ill_formed: [&[u8]; 5] = [
        b"a\xff",
        b"\xed\xa0\x80",
        b"\xc0\x80",
        b"\xf4\x90\x80\x80",
        b"a\xe6\x9d",
    ];
    for text in ill_formed {
        for stream in both(ID, text) {
            refused_connected(&stream, Violation::InvalidUtf8, "[MQTT-1.5.3-1]");
        }
    }
    let [Packet::Subscribe(subscribe)] = &accepted(&both(ID, b"\xef\xbb\xbf/+")[0])[..] else {
        panic!()
    };
    assert_eq!(subscribe.filters[0].0.as_str(), "\u{feff}/+");
}

#[test]
fn a_packet_id_is_not_0() {
    for stream in both(&[0, 0], b"a") {
        refused_connected(&stream, Violation::PacketIdZero, "[MQTT-2.3.1-1]");
    }
}

#[test]
fn a_list_that_ends_within_a_field_is_refused() {
    let body = [ID, b"\x00\x01a", &[1], b"\x00\x01b", &[1]].concat();
    for length in (0..body.len()).filter(|length| ![2, 6].contains(length)) {
        refused_connected(
            &packet(0x82, &[&body[..length]]),
            Violation::Truncated,
            "[MQTT-4.8.0-1]",
        );
    }
    let body = [ID, b"\x00\x01a", b"\x00\x01b"].concat();
    for length in (0..body.len()).filter(|length| ![2, 5].contains(length)) {
        refused_connected(
            &packet(0xa2, &[&body[..length]]),
            Violation::Truncated,
            "[MQTT-4.8.0-1]",
        );
    }
}
