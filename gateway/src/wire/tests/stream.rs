//! The byte stream: packets have no borders in it, and what waits for its rest costs nothing but its own bytes.

use super::*;
use crate::wire::Publish;

/// A client's whole conversation.
fn conversation() -> Vec<u8> {
    [
        CONNECT,
        &packet(0x82, &[&[0, 1], b"\x00\x01t", &[1]]),
        &packet(0x30, &[b"\x00\x01t", b"first"]),
        &packet(0x32, &[b"\x00\x01t", &[0, 2], &[b'x'; 200]]),
        &packet(0x3a, &[b"\x00\x01t", &[0, 2], &[b'x'; 200]]),
        &[0x40, 2, 0, 7],
        &[0xc0, 0],
        &packet(0xa2, &[&[0, 3], b"\x00\x01t"]),
        &[0xe0, 0],
    ]
    .concat()
}

#[test]
fn packets_that_arrive_together_are_all_handed_out_in_order() {
    let outcome = decode(&conversation());
    assert_eq!((outcome.violation, outcome.waiting), (None, Some(0)));
    let kinds = outcome.packets.iter().map(|packet| match packet {
        Packet::Connect(_) => "connect",
        Packet::Subscribe(_) => "subscribe",
        Packet::Publish(Publish {
            packet_id: None, ..
        }) => "publish 0",
        Packet::Publish(Publish { dup: false, .. }) => "publish 1",
        Packet::Publish(Publish { dup: true, .. }) => "publish 1 dup",
        Packet::PubAck(_) => "puback",
        Packet::PingReq => "pingreq",
        Packet::Unsubscribe(_) => "unsubscribe",
        Packet::Disconnect => "disconnect",
    });
    assert_eq!(
        kinds.collect::<Vec<_>>(),
        [
            "connect",
            "subscribe",
            "publish 0",
            "publish 1",
            "publish 1 dup",
            "puback",
            "pingreq",
            "unsubscribe",
            "disconnect"
        ]
    );
}

#[test]
fn a_refusal_comes_after_the_packets_before_it() {
    let stream = [
        CONNECT,
        &[0xc0, 0],
        &packet(0x30, &[b"\x00\x01t"]),
        &[0xc0, 1, 0],
    ]
    .concat();
    let outcome = decode(&stream);
    assert_eq!(outcome.packets.len(), 3);
    assert_eq!(
        outcome.violation,
        Some(Violation::BodyLength {
            packet: "PINGREQ",
            length: 1,
            expected: 0
        })
    );
}

#[test]
fn a_packet_that_is_cut_off_anywhere_waits_for_its_rest() {
    let stream = conversation();
    let whole = decode(&stream).packets;
    for length in 0..stream.len() {
        let outcome = decode_portions(LIMITS, [&stream[..length]]);
        assert_eq!(outcome.violation, None);
        assert_eq!(outcome.packets, whole[..outcome.packets.len()]);
    }
}

#[test]
fn no_memory_is_reserved_for_an_announced_length() {
    for stream in [&[0x30, 0xfc, 0xff, 0x0f][..], &[0x82, 0xfc, 0xff, 0x0f]] {
        let mut buf = BytesMut::with_capacity(64);
        let mut decoder = Decoder::new(LIMITS);
        buf.extend_from_slice(CONNECT);
        decoder.decode(&mut buf).unwrap();
        buf.extend_from_slice(stream);
        let capacity = buf.capacity();
        assert_eq!(decoder.decode(&mut buf), Ok(None));
        assert_eq!((buf.len(), buf.capacity()), (4, capacity));
    }
    let mut buf = BytesMut::from(&[0x10, 0xfd, 0x3f][..]);
    assert_eq!(Decoder::new(LIMITS).decode(&mut buf), Ok(None));
    assert!(buf.capacity() < 64, "{}", buf.capacity());
}

#[test]
fn a_decoder_that_refused_refuses_for_ever() {
    let mut decoder = Decoder::new(LIMITS);
    let mut buf = BytesMut::from(&[0xc0, 0][..]);
    let refused = decoder.decode(&mut buf);
    assert_eq!(refused, Err(Violation::NotConnect { packet: "PINGREQ" }));
    let mut buf = BytesMut::from(CONNECT);
    assert_eq!(decoder.decode(&mut buf), refused);
    assert_eq!(decoder.decode(&mut BytesMut::new()), refused);
}
