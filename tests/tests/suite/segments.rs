//! A byte stream has no packet borders: the same bytes get the same answers however they are cut (B61).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use e2e::deployment::Deployment;
use e2e::packet;
use e2e::ports::unique_name;
use e2e::raw::{Answer, RawClient};
use e2e::wait::PATIENCE;

/// Between two parts, so that the gateway reads the first one by itself.
const PACE: Duration = Duration::from_millis(3);
const PUBLISHES: u16 = 3;

/// CONNECT, SUBSCRIBE, three PUBLISHes of the topic subscribed to, PINGREQ.
fn conversation(topic: &str) -> Vec<u8> {
    let mut bytes = packet::connect(unique_name(), 60);
    bytes.extend(packet::subscribe(9, &[(topic, 0)]));
    for id in 1..=PUBLISHES {
        bytes.extend(packet::publish(topic, id, format!("payload {id}")));
    }
    bytes.extend(packet::PINGREQ);
    bytes
}

/// What came back, by kind of packet, each kind in its order: kinds may overtake each other.
fn answers(client: &mut RawClient) -> BTreeMap<u8, Vec<Vec<u8>>> {
    let mut answers: BTreeMap<u8, Vec<Vec<u8>>> = BTreeMap::new();
    // CONNACK, SUBACK, PINGRESP, and a PUBACK and a PUBLISH for each publish.
    for _ in 0..3 + 2 * PUBLISHES {
        match client.answer(PATIENCE) {
            Answer::Packet(packet) => answers.entry(packet[0] >> 4).or_default().push(packet),
            other => panic!("{other:?} after {answers:02x?}"),
        }
    }
    answers
}

fn expected(topic: &str) -> BTreeMap<u8, Vec<Vec<u8>>> {
    BTreeMap::from([
        (2, vec![packet::CONNECTED.to_vec()]),
        (9, vec![packet::suback(9, &[0])]),
        (13, vec![packet::PINGRESP.to_vec()]),
        (4, (1..=PUBLISHES).map(packet::puback).collect()),
        (
            3,
            (1..=PUBLISHES)
                .map(|id| packet::publish_qos0(topic, format!("payload {id}")))
                .collect(),
        ),
    ])
}

/// Sends the conversation in parts, each by itself.
fn check(gateway: SocketAddr, topic: &str, parts: &[&[u8]]) {
    let mut client = RawClient::open(gateway);
    for part in parts {
        client.send(part);
        if parts.len() > 1 {
            thread::sleep(PACE);
        }
    }
    assert_eq!(answers(&mut client), expected(topic));
    client.send(&packet::DISCONNECT);
    client.expect_closed(PATIENCE);
}

#[test]
fn b61_one_segment_single_bytes_and_every_split_get_the_same_answers() {
    let deployment = Deployment::start();
    let gateway = deployment.mqtt();
    let mut times = 0;
    // Each time with a topic and a client id of its own, so that nothing is left over from the last one.
    let mut topic = || {
        times += 1;
        format!("device/{times:04}/x")
    };

    let name = topic();
    check(gateway, &name, &[&conversation(&name)]);

    let name = topic();
    let bytes = conversation(&name);
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    check(gateway, &name, &single);

    for position in 1..bytes.len() {
        let name = topic();
        let bytes = conversation(&name);
        let (first, second) = bytes.split_at(position.min(bytes.len()));
        check(gateway, &name, &[first, second]);
    }
    assert_eq!(
        deployment.device_records().len(),
        times * usize::from(PUBLISHES)
    );
}
