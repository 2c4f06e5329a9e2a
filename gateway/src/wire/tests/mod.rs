//! Tests of the wire from the outside: bytes as a client sends them, and what comes of them.
//!
//! What always holds: every byte string goes through the decoder whole, byte by byte, and cut in two at every position,
//! and must give the same each time. A refused row names its clause, which the message must cite.

mod connect;
mod encode;
mod generator;
mod header;
mod publish;
mod robustness;
mod stream;
mod subscribe;

use bytes::BytesMut;

use crate::wire::{Connect, ConnectReturnCode, Decoder, Packet, Violation, WireLimits};

pub(super) const LIMITS: WireLimits = WireLimits {
    max_packet_size: 256 * 1024,
    max_connect_size: 8 * 1024,
    max_topic_length: 65_535,
    max_topic_levels: 256,
};

/// The shortest legal CONNECT.
pub(super) const CONNECT: &[u8] = &[
    0x10, 12, // CONNECT, remaining length
    0, 4, b'M', b'Q', b'T', b'T', // protocol name
    4,    // level: 3.1.1
    0x02, // flags: CleanSession
    0, 60, // keep-alive
    0, 0, // client id: empty
];

/// What [`CONNECT`] becomes.
pub(super) fn connected() -> Packet {
    Packet::Connect(Box::new(Connect {
        client_id: None,
        clean_session: true,
        keep_alive: 60,
        will: false,
        username: None,
        password: None,
    }))
}

/// A packet with the right remaining length.
pub(super) fn packet(first_byte: u8, fields: &[&[u8]]) -> Vec<u8> {
    let body = fields.concat();
    let mut bytes = vec![first_byte];
    let mut rest = body.len();
    while rest > 0x7f {
        bytes.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    bytes.push(rest as u8);
    bytes.extend(body);
    bytes
}

/// Text or binary data with its two length bytes (1.5.3).
pub(super) fn field(content: impl AsRef<[u8]>) -> Vec<u8> {
    let content = content.as_ref();
    [&(content.len() as u16).to_be_bytes(), content].concat()
}

/// What a decoder makes of a stream.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Outcome {
    pub(super) packets: Vec<Packet>,
    pub(super) violation: Option<Violation>,
    /// Bytes that wait for the rest of their packet; of no meaning, and not compared, after a violation.
    pub(super) waiting: Option<usize>,
}

/// Reads a stream that arrives in these portions.
pub(super) fn decode_portions<'a>(
    limits: WireLimits,
    portions: impl IntoIterator<Item = &'a [u8]>,
) -> Outcome {
    let (mut decoder, mut buf, mut packets) = (Decoder::new(limits), BytesMut::new(), Vec::new());
    for portion in portions {
        buf.extend_from_slice(portion);
        loop {
            match decoder.decode(&mut buf) {
                Ok(Some(packet)) => packets.push(packet),
                Ok(None) => break,
                Err(violation) => {
                    return Outcome {
                        packets,
                        violation: Some(violation),
                        waiting: None,
                    };
                }
            }
        }
    }
    Outcome {
        packets,
        violation: None,
        waiting: Some(buf.len()),
    }
}

/// Reads a stream in all ways of arriving and returns what all of them gave.
#[track_caller]
pub(super) fn decode(stream: &[u8]) -> Outcome {
    let whole = decode_portions(LIMITS, [stream]);
    assert_eq!(
        decode_portions(LIMITS, stream.chunks(1)),
        whole,
        "byte by byte"
    );
    for position in 0..=stream.len() {
        let (first, second) = stream.split_at(position);
        assert_eq!(
            decode_portions(LIMITS, [first, second]),
            whole,
            "cut at {position}"
        );
    }
    whole
}

/// The packets of a stream after CONNECT, in which nothing is wrong and nothing is left over.
#[track_caller]
pub(super) fn accepted(after_connect: &[u8]) -> Vec<Packet> {
    let mut outcome = decode(&[CONNECT, after_connect].concat());
    assert_eq!((outcome.violation, outcome.waiting), (None, Some(0)));
    assert_eq!(outcome.packets.remove(0), connected());
    outcome.packets
}

/// A refused stream: nothing of it becomes a packet.
#[track_caller]
pub(super) fn refused(stream: &[u8], expected: Violation, clause: &str) {
    refused_after_packets(stream, &[], expected, clause);
}

/// A refused stream that follows a CONNECT: nothing of it becomes a packet, and the client is told nothing.
#[track_caller]
pub(super) fn refused_connected(after_connect: &[u8], expected: Violation, clause: &str) {
    refused_after_packets(
        &[CONNECT, after_connect].concat(),
        &[connected()],
        expected,
        clause,
    );
    assert_eq!(
        expected.answer(),
        None,
        "only CONNECT is answered with a CONNACK"
    );
}

/// A refused CONNECT that is answered before the close.
#[track_caller]
pub(super) fn refused_with(
    stream: &[u8],
    answer: ConnectReturnCode,
    expected: Violation,
    clause: &str,
) {
    refused(stream, expected, clause);
    assert_eq!(expected.answer(), Some(answer));
}

#[track_caller]
fn refused_after_packets(stream: &[u8], before: &[Packet], expected: Violation, clause: &str) {
    let outcome = decode(stream);
    assert_eq!(
        (outcome.packets.as_slice(), outcome.violation),
        (before, Some(expected))
    );
    let message = expected.to_string();
    assert!(
        message.contains(clause),
        "{message:?} does not cite {clause}"
    );
    // Whatever follows on the stream changes nothing.
    let followed = decode_portions(LIMITS, [stream, &[0xc0, 0], stream]);
    assert_eq!(followed, outcome);
}

/// Says that `stream` is refused exactly when its last byte is there: not one byte before, and without waiting for more.
#[track_caller]
pub(super) fn refused_at_last_byte(stream: &[u8], expected: Violation) {
    let before = decode_portions(LIMITS, [&stream[..stream.len() - 1]]);
    assert_eq!(before.violation, None);
    assert_eq!(decode_portions(LIMITS, [stream]).violation, Some(expected));
}
