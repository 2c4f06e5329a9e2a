//! From bytes that were read to packets.

use std::hint::black_box;

use bytes::BytesMut;
use gungraun::{library_benchmark, library_benchmark_group};
use mqtt_gateway::wire::{Decoder, Packet, WireLimits};

use crate::prepare::{PAYLOAD, made};

const TOPIC: &str = "plant/site-7/press/42/temperature";

/// A packet with a body below 128 bytes times 128.
fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let mut out = vec![first];
    if length < 128 {
        out.push(length as u8);
    } else {
        out.extend([(length % 128) as u8 | 0x80, (length / 128) as u8]);
    }
    out.extend(body);
    out
}

fn text(text: &str) -> Vec<u8> {
    let mut out = (text.len() as u16).to_be_bytes().to_vec();
    out.extend(text.as_bytes());
    out
}

/// A connection that has sent its CONNECT, and then what it has sent behind that.
fn connected(packets: Vec<u8>) -> (Decoder, BytesMut) {
    let mut decoder = Decoder::new(WireLimits {
        max_packet_size: 256 * 1_024,
        max_connect_size: 8 * 1_024,
        max_topic_length: 65_535,
        max_topic_levels: 128,
    });
    let mut connect = text("MQTT");
    connect.extend([4, 2, 0, 0]);
    connect.extend(text("press-42"));
    let mut read = BytesMut::from(&packet(0x10, &connect)[..]);
    made(decoder.decode(&mut read));
    // Room behind the last packet, as a read buffer has.
    let mut read = BytesMut::with_capacity(packets.len() + 1_024);
    read.extend_from_slice(&packets);
    (decoder, read)
}

fn publishes(qos: u8) -> (Decoder, BytesMut) {
    let packets = (1..=100u16).flat_map(|id| {
        let mut body = text(TOPIC);
        if qos > 0 {
            body.extend(id.to_be_bytes());
        }
        body.extend([b'x'; PAYLOAD]);
        packet(0x30 | qos << 1, &body)
    });
    connected(packets.collect())
}

fn subscribes(filters: usize) -> (Decoder, BytesMut) {
    let packets = (1..=100u16).flat_map(|id| {
        let mut body = id.to_be_bytes().to_vec();
        for filter in 0..filters {
            body.extend(text(&format!("plant/site-{filter}/press/42/temperature")));
            body.push(1);
        }
        packet(0x82, &body)
    });
    connected(packets.collect())
}

fn pubacks() -> (Decoder, BytesMut) {
    let packets = (1..=100u16).flat_map(|id| packet(0x40, &id.to_be_bytes()));
    connected(packets.collect())
}

#[library_benchmark]
#[bench::qos_0_of_100(args = (0), setup = publishes)]
#[bench::qos_1_of_100(args = (1), setup = publishes)]
fn publish((mut decoder, mut read): (Decoder, BytesMut)) -> (Decoder, BytesMut) {
    take_all(&mut decoder, &mut read);
    (decoder, read)
}

#[library_benchmark]
#[bench::filters_1_of_100(args = (1), setup = subscribes)]
#[bench::filters_10_of_100(args = (10), setup = subscribes)]
fn subscribe((mut decoder, mut read): (Decoder, BytesMut)) -> (Decoder, BytesMut) {
    take_all(&mut decoder, &mut read);
    (decoder, read)
}

#[library_benchmark]
#[bench::burst_of_100(setup = pubacks)]
fn puback((mut decoder, mut read): (Decoder, BytesMut)) -> (Decoder, BytesMut) {
    take_all(&mut decoder, &mut read);
    (decoder, read)
}

fn take_all(decoder: &mut Decoder, read: &mut BytesMut) {
    while let Some(packet) = black_box(made(decoder.decode(read))) {
        drop::<Packet>(packet);
    }
}

library_benchmark_group!(name = decoding, benchmarks = [publish, subscribe, puback]);
