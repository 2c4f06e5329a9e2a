//! What the server writes, as a client's codec reads it.

use std::num::NonZeroU16;

use bytes::Bytes;
use bytestring::ByteString;
use rmqtt_codec::v3;
use tokio_util::codec::Decoder as _;

use super::*;
use crate::mqtt::{PacketId, QoS, TopicName};
use crate::wire::{SubscribeReturnCode, encode};

/// The packets that a client reads from `bytes`.
fn client_reads(mut bytes: BytesMut) -> Vec<v3::Packet> {
    let mut codec = v3::Codec::new(0);
    let packets =
        std::iter::from_fn(|| codec.decode(&mut bytes).unwrap().map(|(packet, _)| packet))
            .collect();
    assert!(bytes.is_empty(), "{bytes:?} is left over");
    packets
}

fn written(write: impl FnOnce(&mut BytesMut)) -> BytesMut {
    let mut out = BytesMut::new();
    write(&mut out);
    out
}

fn id(id: u16) -> PacketId {
    PacketId::new(id).unwrap()
}

#[test]
fn each_answer_has_the_bytes_of_the_standard() {
    for (written, expected) in [
        (
            written(|out| encode::connack(ConnectReturnCode::Accepted, out)),
            &[0x20, 2, 0, 0][..],
        ),
        (
            written(|out| encode::connack(ConnectReturnCode::IdentifierRejected, out)),
            &[0x20, 2, 0, 2],
        ),
        (
            written(|out| encode::puback(id(0x1234), out)),
            &[0x40, 2, 0x12, 0x34],
        ),
        (
            written(|out| encode::unsuback(id(0x1234), out)),
            &[0xb0, 2, 0x12, 0x34],
        ),
        (written(encode::pingresp), &[0xd0, 0]),
        (
            written(|out| {
                use SubscribeReturnCode::{Failure, Granted};
                encode::suback(
                    id(0x1234),
                    &[Granted(QoS::AtMostOnce), Failure, Granted(QoS::AtLeastOnce)],
                    out,
                );
            }),
            &[0x90, 5, 0x12, 0x34, 0x00, 0x80, 0x01],
        ),
    ] {
        assert_eq!(written, expected);
    }
}

#[test]
fn a_client_understands_every_answer_in_one_segment() {
    let out = written(|out| {
        for code in [
            ConnectReturnCode::Accepted,
            ConnectReturnCode::UnacceptableProtocolVersion,
            ConnectReturnCode::IdentifierRejected,
            ConnectReturnCode::ServerUnavailable,
            ConnectReturnCode::BadUserNameOrPassword,
            ConnectReturnCode::NotAuthorized,
        ] {
            encode::connack(code, out);
        }
        encode::puback(id(1), out);
        encode::unsuback(id(65_535), out);
        encode::pingresp(out);
        encode::suback(id(0x100), &[SubscribeReturnCode::Failure; 300], out);
    });
    let packet_id = |id| NonZeroU16::new(id).unwrap();
    let mut expected = (0..6)
        .map(|code: u8| {
            v3::Packet::ConnectAck(v3::ConnectAck {
                session_present: false,
                return_code: code.try_into().unwrap(),
            })
        })
        .collect::<Vec<_>>();
    expected.extend([
        v3::Packet::PublishAck {
            packet_id: packet_id(1),
        },
        v3::Packet::UnsubscribeAck {
            packet_id: packet_id(65_535),
        },
        v3::Packet::PingResponse,
        v3::Packet::SubscribeAck {
            packet_id: packet_id(0x100),
            status: vec![v3::SubscribeReturnCode::Failure; 300],
        },
    ]);
    assert_eq!(client_reads(out), expected);
}

#[test]
fn a_head_with_its_payload_after_it_is_a_publish_at_every_length() {
    // Around each length at which the remaining length takes another byte: before the payload come 6 bytes with QoS 0 and 8
    // with QoS 1. And as much as Iggy stores in one record.
    let last_lengths = [0x7f, 0x3fff, 0x1f_ffff];
    let around = last_lengths
        .into_iter()
        .flat_map(|last| last - 8..=last - 5);
    let lengths = around.chain([0, 1, 64_000_000]);
    for payload_len in lengths {
        for (qos, dup, retain, packet_id) in [
            (QoS::AtMostOnce, false, false, None),
            (QoS::AtMostOnce, false, true, None),
            (QoS::AtLeastOnce, false, false, Some(0x1234)),
            (QoS::AtLeastOnce, true, true, Some(1)),
        ] {
            let topic = TopicName::new("t/ü").unwrap();
            let payload = Bytes::from(vec![0xa5; payload_len]);
            let mut out = written(|out| {
                encode::publish_head(
                    &topic,
                    qos,
                    dup,
                    retain,
                    packet_id.and_then(PacketId::new),
                    payload_len,
                    out,
                );
            });
            assert_eq!(
                out.len(),
                encode::publish_head_len(&topic, qos, payload_len)
            );
            out.extend_from_slice(&payload);
            let read = client_reads(out);
            let expected = v3::Packet::Publish(Box::new(rmqtt_codec::types::Publish {
                dup,
                retain,
                qos: (qos as u8).try_into().unwrap(),
                topic: ByteString::from(topic.as_str()),
                packet_id: packet_id.and_then(NonZeroU16::new),
                payload,
                properties: None,
            }));
            assert!(read == [expected], "{payload_len} bytes, {qos:?}");
        }
    }
}

#[test]
fn the_longest_topic_can_be_written() {
    let topic = TopicName::new("x".repeat(65_535)).unwrap();
    let out =
        written(|out| encode::publish_head(&topic, QoS::AtMostOnce, false, false, None, 0, out));
    let [v3::Packet::Publish(publish)] = &client_reads(out)[..] else {
        panic!()
    };
    assert_eq!(&*publish.topic, topic.as_str());
}
