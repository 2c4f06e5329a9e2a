//! The wire: any bytes, cut in any way, give the same packets and the same violation, and what is decoded means the same
//! when it is written again.
//!
//! Input: a byte that says how many follow for the lengths of portions, these, and the stream.

#![no_main]

use bytes::{BufMut, Bytes, BytesMut};
use libfuzzer_sys::fuzz_target;
use mqtt_gateway::wire::{Connect, Decoder, Packet, Violation, WireLimits, encode};

const LIMITS: WireLimits = WireLimits {
    max_packet_size: 4_096,
    max_connect_size: 1_024,
    max_topic_length: 512,
    max_topic_levels: 32,
};

fn decode<'a>(portions: impl Iterator<Item = &'a [u8]>) -> (Vec<Packet>, Option<Violation>, usize) {
    let mut decoder = Decoder::new(LIMITS);
    let mut buffer = BytesMut::new();
    let mut packets = Vec::new();
    for portion in portions {
        buffer.extend_from_slice(portion);
        loop {
            let capacity = buffer.capacity();
            match decoder.decode(&mut buffer) {
                Ok(Some(packet)) => packets.push(packet),
                Ok(None) => {
                    assert!(
                        buffer.capacity() <= capacity,
                        "room for what is only announced"
                    );
                    break;
                }
                Err(violation) => {
                    assert_eq!(decoder.decode(&mut BytesMut::new()), Err(violation));
                    return (packets, Some(violation), 0);
                }
            }
        }
    }
    (packets, None, buffer.len())
}

/// `packet` as a client writes it; not a CONNECT with a Will, of which is only known that there is one.
fn encoded(packet: &Packet) -> Option<BytesMut> {
    let mut body = BytesMut::new();
    let mut out = BytesMut::new();
    let text = |text: &str, body: &mut BytesMut| {
        body.put_u16(text.len() as u16);
        body.put_slice(text.as_bytes());
    };
    let first = match packet {
        Packet::Connect(connect) => {
            let Connect {
                client_id,
                clean_session,
                keep_alive,
                will: false,
                username,
                password,
            } = &**connect
            else {
                return None;
            };
            let mut flags = u8::from(*clean_session) << 1;
            flags |= u8::from(username.is_some()) << 7 | u8::from(password.is_some()) << 6;
            body.put_slice(&[0, 4, b'M', b'Q', b'T', b'T', 4, flags]);
            body.put_u16(*keep_alive);
            text(client_id.as_ref().map_or("", |id| id.as_str()), &mut body);
            if let Some(name) = username {
                text(name, &mut body);
            }
            if let Some(password) = password {
                body.put_u16(password.as_bytes().len() as u16);
                body.put_slice(password.as_bytes());
            }
            0x10
        }
        Packet::Publish(publish) => {
            encode::publish_head(
                &publish.topic,
                publish.qos,
                publish.dup,
                publish.retain,
                publish.packet_id,
                publish.payload.len(),
                &mut out,
            );
            out.put_slice(&publish.payload);
            return Some(out);
        }
        Packet::PubAck(id) => {
            encode::puback(*id, &mut out);
            return Some(out);
        }
        Packet::Subscribe(subscribe) => {
            body.put_u16(subscribe.packet_id.get());
            for (filter, qos) in &subscribe.filters {
                text(filter.as_str(), &mut body);
                body.put_u8(*qos as u8);
            }
            0x82
        }
        Packet::Unsubscribe(unsubscribe) => {
            body.put_u16(unsubscribe.packet_id.get());
            for filter in &unsubscribe.filters {
                text(filter.as_str(), &mut body);
            }
            0xa2
        }
        Packet::PingReq => 0xc0,
        Packet::Disconnect => 0xe0,
    };
    out.put_u8(first);
    let mut length = body.len();
    while length > 0x7f {
        out.put_u8((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    out.put_u8(length as u8);
    out.put_slice(&body);
    Some(out)
}

fuzz_target!(|input: &[u8]| {
    let Some((&count, rest)) = input.split_first() else {
        return;
    };
    let (cuts, stream) = rest.split_at(usize::from(count % 16).min(rest.len()));
    let whole = decode(std::iter::once(stream));
    let single = decode(stream.chunks(1));
    assert_eq!(whole, single);
    let mut left = stream;
    let mut lengths = cuts.iter().map(|cut| usize::from(*cut).max(1)).cycle();
    let portions = std::iter::from_fn(|| {
        let length = lengths.next().unwrap_or(usize::MAX).min(left.len());
        let (portion, rest) = left.split_at(length);
        left = rest;
        (length > 0).then_some(portion)
    });
    assert_eq!(whole, decode(portions));

    let (packets, ..) = whole;
    let is_first = |packet: &Packet| matches!(packet, Packet::Connect(_));
    assert!(packets.iter().skip(1).all(|packet| !is_first(packet)));
    assert!(packets.first().is_none_or(is_first));
    let connect = Bytes::from_static(b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01x");
    for packet in &packets {
        let Some(bytes) = encoded(packet) else {
            continue;
        };
        let before = if is_first(packet) { &[][..] } else { &connect };
        let (again, violation, left) = decode([before, &bytes[..]].into_iter());
        assert_eq!((violation, left), (None, 0), "{packet:?}");
        assert_eq!(again.last(), Some(packet));
    }
});
