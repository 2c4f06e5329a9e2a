//! The fixed header (2.2), the order of packets (3.1), and the limits on a packet's size.

use super::*;
use crate::wire::MAX_FILTER_LIST_SIZE;

/// A client that was served so far sends this first byte: refused without waiting for another.
#[track_caller]
fn first_byte_refused(byte: u8, expected: Violation, clause: &str) {
    refused_connected(&[byte], expected, clause);
    refused_at_last_byte(&[CONNECT, &[byte]].concat(), expected);
}

#[test]
fn anything_but_connect_first_is_refused_at_its_first_byte() {
    for (bytes, packet) in [
        (&[0xc0, 0][..], "PINGREQ"),
        (b"\x30\x05\x00\x01thi", "PUBLISH"),
        (&[0x20, 2, 0, 0], "CONNACK"),
        (&[0xe0, 0], "DISCONNECT"),
        (b"GET / HTTP/1.1\r\n", "PUBACK"),
        (&[0x00, 0], "of a reserved type"),
        (&[0xf0, 0], "of a reserved type"),
    ] {
        refused(bytes, Violation::NotConnect { packet }, "[MQTT-3.1.0-1]");
        refused_at_last_byte(&bytes[..1], Violation::NotConnect { packet });
    }
}

#[test]
fn a_second_connect_is_refused_at_its_first_byte() {
    refused_connected(CONNECT, Violation::SecondConnect, "[MQTT-3.1.0-2]");
    first_byte_refused(0x10, Violation::SecondConnect, "[MQTT-3.1.0-2]");
}

#[test]
fn connect_has_no_header_flags() {
    for flags in 1..=15 {
        let violation = Violation::HeaderFlags {
            packet: "CONNECT",
            flags,
        };
        refused(
            &[&[0x10 | flags], &CONNECT[1..]].concat(),
            violation,
            "[MQTT-2.2.2-2]",
        );
        refused_at_last_byte(&[0x10 | flags], violation);
        assert_eq!(violation.answer(), None);
    }
}

#[test]
fn reserved_packet_types_are_refused_at_their_first_byte() {
    for flags in 0..=15 {
        first_byte_refused(
            flags,
            Violation::ReservedPacketType { packet_type: 0 },
            "2.2.1",
        );
        first_byte_refused(
            0xf0 | flags,
            Violation::ReservedPacketType { packet_type: 15 },
            "2.2.1",
        );
    }
    // A PINGREQ with its two bytes wrong.
    refused_connected(
        &[0x0a, 0xc0],
        Violation::ReservedPacketType { packet_type: 0 },
        "2.2.1",
    );
}

#[test]
fn packets_that_only_servers_send_are_refused_at_their_first_byte() {
    for (byte, packet) in [
        (0x20, "CONNACK"),
        (0x90, "SUBACK"),
        (0xb0, "UNSUBACK"),
        (0xd0, "PINGRESP"),
    ] {
        first_byte_refused(byte, Violation::ServerOnlyPacket { packet }, "2.2.1");
    }
}

#[test]
fn the_packets_of_the_qos_2_handshake_are_refused_at_their_first_byte() {
    // PUBREL with its right flags and with none.
    for (byte, packet) in [
        (0x50, "PUBREC"),
        (0x62, "PUBREL"),
        (0x60, "PUBREL"),
        (0x70, "PUBCOMP"),
    ] {
        first_byte_refused(byte, Violation::Qos2Handshake { packet }, "QoS 0 or 1");
    }
}

#[test]
fn publish_with_qos_2_or_3_or_dup_without_qos_is_refused_at_its_first_byte() {
    for (flags, violation, clause) in [
        (0b0100, Violation::PublishQos2, "QoS 0 or 1"),
        (0b0101, Violation::PublishQos2, "QoS 0 or 1"),
        (0b1100, Violation::PublishQos2, "QoS 0 or 1"),
        (0b1101, Violation::PublishQos2, "QoS 0 or 1"),
        (0b0110, Violation::PublishQos3, "[MQTT-3.3.1-4]"),
        (0b0111, Violation::PublishQos3, "[MQTT-3.3.1-4]"),
        (0b1110, Violation::PublishQos3, "[MQTT-3.3.1-4]"),
        (0b1111, Violation::PublishQos3, "[MQTT-3.3.1-4]"),
        (0b1000, Violation::DupWithQos0, "[MQTT-3.3.1-2]"),
        (0b1001, Violation::DupWithQos0, "[MQTT-3.3.1-2]"),
    ] {
        first_byte_refused(0x30 | flags, violation, clause);
    }
    for flags in [0b0000, 0b0001, 0b0010, 0b0011, 0b1010, 0b1011] {
        assert_eq!(
            decode(&[CONNECT, &[0x30 | flags]].concat()).waiting,
            Some(1),
            "{flags:#b}"
        );
    }
}

#[test]
fn wrong_header_flags_are_refused_at_the_first_byte() {
    for (packet_type, packet, legal) in [
        (0x40, "PUBACK", 0b0000),
        (0x80, "SUBSCRIBE", 0b0010),
        (0xa0, "UNSUBSCRIBE", 0b0010),
        (0xc0, "PINGREQ", 0b0000),
        (0xe0, "DISCONNECT", 0b0000),
    ] {
        for flags in (0..=15).filter(|&flags| flags != legal) {
            first_byte_refused(
                packet_type | flags,
                Violation::HeaderFlags { packet, flags },
                "[MQTT-2.2.2-2]",
            );
        }
    }
}

#[test]
fn packets_of_a_fixed_length_are_refused_at_the_length_of_any_other() {
    for (first_byte, packet, length, expected) in [
        (0xc0, "PINGREQ", 1, 0),
        (0xc0, "PINGREQ", 127, 0),
        (0xe0, "DISCONNECT", 1, 0),
        (0x40, "PUBACK", 0, 2),
        (0x40, "PUBACK", 1, 2),
        (0x40, "PUBACK", 3, 2),
    ] {
        let violation = Violation::BodyLength {
            packet,
            length: length.into(),
            expected,
        };
        refused_connected(&[first_byte, length], violation, "2.2.3");
        refused_at_last_byte(&[CONNECT, &[first_byte, length]].concat(), violation);
    }
}

#[test]
fn a_remaining_length_of_five_bytes_is_refused_at_its_fourth() {
    for bytes in [
        [0x30, 0xff, 0xff, 0xff, 0xff],
        [0x30, 0x80, 0x80, 0x80, 0x80],
        [0x82, 0x80, 0x80, 0x80, 0xff],
    ] {
        refused_connected(&bytes, Violation::RemainingLength, "2.2.3");
        refused_at_last_byte(&[CONNECT, &bytes].concat(), Violation::RemainingLength);
    }
    // A fifth byte that ends the number does not make it legal.
    refused_connected(
        &[0x30, 0x80, 0x80, 0x80, 0x80, 0x00],
        Violation::RemainingLength,
        "2.2.3",
    );
    refused(
        &[0x10, 0x80, 0x80, 0x80, 0x80],
        Violation::RemainingLength,
        "2.2.3",
    );
}

#[test]
fn a_remaining_length_with_more_bytes_than_it_needs_is_legal() {
    assert_eq!(accepted(&[0xc0, 0x80, 0x80, 0x80, 0x00]), [Packet::PingReq]);
    assert_eq!(
        accepted(&[0xc0, 0x80, 0x00, 0xe0, 0x00]),
        [Packet::PingReq, Packet::Disconnect]
    );
}

#[test]
fn a_packet_over_the_limit_is_refused_when_its_fixed_header_is_there() {
    let max = LIMITS.max_packet_size;
    // 256 KiB = 0x40000 is the size of the whole packet: one byte for type and flags, three for the length.
    assert_eq!(
        decode(&[CONNECT, &[0x30, 0xfc, 0xff, 0x0f]].concat()).waiting,
        Some(4)
    );
    for (header, size) in [
        (&[0x30, 0xfd, 0xff, 0x0f][..], max + 1),
        (&[0x82, 0xfd, 0xff, 0x0f], max + 1),
        (&[0x30, 0xff, 0xff, 0xff, 0x7f], 268_435_455 + 5),
    ] {
        let violation = Violation::PacketTooLarge { size, max };
        refused_connected(header, violation, &format!("{size} bytes"));
        refused_at_last_byte(&[CONNECT, header].concat(), violation);
    }
}

#[test]
fn a_connect_has_a_smaller_limit() {
    let max = LIMITS.max_connect_size;
    // 8 KiB less three bytes of fixed header.
    assert_eq!(decode(&[0x10, 0xfd, 0x3f]).waiting, Some(3));
    let violation = Violation::ConnectTooLarge { size: max + 1, max };
    refused(&[0x10, 0xfe, 0x3f], violation, "max_connect_size");
    refused_at_last_byte(&[0x10, 0xfe, 0x3f], violation);
    assert_eq!(violation.answer(), None);
    // The limit of all packets holds for CONNECT too.
    let limits = WireLimits {
        max_packet_size: 13,
        ..LIMITS
    };
    assert_eq!(
        decode_portions(limits, [CONNECT]).violation,
        Some(Violation::PacketTooLarge { size: 14, max: 13 })
    );
    let limits = WireLimits {
        max_packet_size: 14,
        max_connect_size: 14,
        ..LIMITS
    };
    assert_eq!(decode_portions(limits, [CONNECT]).packets, [connected()]);
}

#[test]
fn a_limit_that_is_raised_for_payloads_is_not_raised_for_lists_of_filters() {
    let limits = WireLimits {
        max_packet_size: 64_000_000,
        ..LIMITS
    };
    for (first_byte, packet) in [(0x82, "SUBSCRIBE"), (0xa2, "UNSUBSCRIBE")] {
        let outcome = decode_portions(limits, [CONNECT, &[first_byte, 0xfd, 0xff, 0x0f]]);
        let size = MAX_FILTER_LIST_SIZE + 1;
        assert_eq!(
            outcome.violation,
            Some(Violation::FilterListTooLarge {
                packet,
                size,
                max: MAX_FILTER_LIST_SIZE
            })
        );
        assert_eq!(
            decode_portions(limits, [CONNECT, &[first_byte, 0xfc, 0xff, 0x0f]]).waiting,
            Some(4)
        );
    }
    assert_eq!(
        decode_portions(limits, [CONNECT, &[0x30, 0xfd, 0xff, 0x0f]]).waiting,
        Some(4)
    );
}
