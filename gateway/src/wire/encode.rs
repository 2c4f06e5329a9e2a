//! The packets that the server sends.
//!
//! What always holds: nothing is allocated but room in `out`, and nothing can fail. That is why these few bytes are
//! written here and not by the codec: its SUBACK builds two lists, its PUBLISH copies the payload, which is shared between
//! all subscribers of a message, and all of it returns errors that cannot happen. Tests read what is written back with the
//! codec.

use bytes::{BufMut, BytesMut};

use crate::mqtt::{PacketId, QoS, TopicName};
use crate::wire::{ConnectReturnCode, SubscribeReturnCode};

/// CONNACK (3.2). Session Present is 0: no session outlives its connection.
pub fn connack(code: ConnectReturnCode, out: &mut BytesMut) {
    out.put_slice(&[0x20, 2, 0, code as u8]);
}

/// PUBACK (3.4).
pub fn puback(packet_id: PacketId, out: &mut BytesMut) {
    let [high, low] = packet_id.get().to_be_bytes();
    out.put_slice(&[0x40, 2, high, low]);
}

/// SUBACK (3.9), with one code for each filter of the SUBSCRIBE, in its order.
pub fn suback(packet_id: PacketId, codes: &[SubscribeReturnCode], out: &mut BytesMut) {
    out.put_u8(0x90);
    put_remaining_length(2 + codes.len(), out);
    out.put_u16(packet_id.get());
    for code in codes {
        out.put_u8(code.as_byte());
    }
}

/// UNSUBACK (3.11).
pub fn unsuback(packet_id: PacketId, out: &mut BytesMut) {
    let [high, low] = packet_id.get().to_be_bytes();
    out.put_slice(&[0xb0, 2, high, low]);
}

/// PINGRESP (3.13).
pub fn pingresp(out: &mut BytesMut) {
    out.put_slice(&[0xd0, 0]);
}

/// Writes all of a PUBLISH (3.3) up to its payload, which is shared between subscribers and written after it.
///
/// `packet_id` is there exactly if `qos` is not 0, `dup` only then. `payload_len` is in bytes; with the topic it must
/// stay below 256 MiB, which is four times what Iggy stores.
pub fn publish_head(
    topic: &TopicName,
    qos: QoS,
    dup: bool,
    retain: bool,
    packet_id: Option<PacketId>,
    payload_len: usize,
    out: &mut BytesMut,
) {
    debug_assert_eq!(
        packet_id.is_some(),
        qos != QoS::AtMostOnce,
        "[MQTT-2.3.1-5]"
    );
    debug_assert!(!dup || qos != QoS::AtMostOnce, "[MQTT-3.3.1-2]");
    out.reserve(publish_head_len(topic, qos, payload_len));
    out.put_u8(0x30 | u8::from(dup) << 3 | (qos as u8) << 1 | u8::from(retain));
    put_remaining_length(publish_variable_header_len(topic, qos) + payload_len, out);
    // A topic name has at most 65,535 bytes.
    out.put_u16(topic.as_str().len() as u16);
    out.put_slice(topic.as_str().as_bytes());
    if let Some(packet_id) = packet_id {
        out.put_u16(packet_id.get());
    }
}

/// How many bytes [`publish_head`] writes. The whole packet has `payload_len` more.
pub fn publish_head_len(topic: &TopicName, qos: QoS, payload_len: usize) -> usize {
    let variable = publish_variable_header_len(topic, qos);
    1 + remaining_length_bytes(variable + payload_len) + variable
}

fn publish_variable_header_len(topic: &TopicName, qos: QoS) -> usize {
    let packet_id = if qos == QoS::AtMostOnce { 0 } else { 2 };
    2 + topic.as_str().len() + packet_id
}

/// The most that four bytes of seven bits hold (2.2.3).
const MAX_REMAINING_LENGTH: usize = (1 << 28) - 1;

fn remaining_length_bytes(length: usize) -> usize {
    match length {
        0..=0x7f => 1,
        0x80..=0x3fff => 2,
        0x4000..=0x1f_ffff => 3,
        _ => 4,
    }
}

fn put_remaining_length(length: usize, out: &mut BytesMut) {
    debug_assert!(length <= MAX_REMAINING_LENGTH, "(2.2.3)");
    let mut rest = length;
    while rest > 0x7f {
        out.put_u8((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    out.put_u8(rest as u8);
}
