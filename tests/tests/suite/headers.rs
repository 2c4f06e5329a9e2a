//! Which headers a stored message carries, as `headers` in the gateway's file says.

use std::collections::BTreeMap;

use e2e::deployment::{Builder, Deployment};
use e2e::packet;
use e2e::records::{Header, Record};
use toml::Value;

const TOPIC: &str = "device/1/x";
const CLIENT: &str = "publisher";
/// PUBLISH with QoS 1, DUP and RETAIN.
const ALL_FLAGS: u8 = 0x3B;
const PACKET_ID: u16 = 77;

/// Publishes a message that has something to say in every header, and an ordinary one with QoS 0, and gives both as they
/// are stored, after they were delivered with the QoS that `qos_0_as` says for the second one.
fn stored(builder: Builder, qos_0_as: u8) -> [Record; 2] {
    let deployment = builder.start();
    let mut subscriber = deployment.client("subscriber");
    subscriber.subscribe(TOPIC, 1);
    let mut publisher = deployment.client(CLIENT);
    publisher.send(&packet::publish_flags(ALL_FLAGS, TOPIC, PACKET_ID, ""));
    publisher.expect(&packet::puback(PACKET_ID));
    publisher.send(&packet::publish_qos0(TOPIC, "ordinary"));
    let message = subscriber.expect_publish();
    assert_eq!((message.payload.as_slice(), message.qos), (&b""[..], 1));
    subscriber.send(&packet::puback(message.id));
    let message = subscriber.expect_publish();
    assert_eq!(message.payload, b"ordinary");
    assert_eq!(message.qos, qos_0_as);
    let records = deployment.device_records();
    records
        .try_into()
        .unwrap_or_else(|records| panic!("not two records: {records:?}"))
}

fn names(names: &[&str]) -> Value {
    Value::Array(names.iter().map(|name| Value::from(*name)).collect())
}

fn headers<const N: usize>(headers: [(&str, Header); N]) -> BTreeMap<String, Header> {
    headers.map(|(name, value)| (name.to_owned(), value)).into()
}

fn text(text: &str) -> Header {
    Header::Text(text.to_owned())
}

#[test]
fn by_default_a_message_carries_every_header_that_says_something() {
    let [full, ordinary] = stored(Deployment::builder(), 0);
    let expected = headers([
        ("mqtt.topic", text(TOPIC)),
        ("mqtt.empty", Header::Bool(true)),
        ("mqtt.client_id", text(CLIENT)),
        ("mqtt.dup", Header::Bool(true)),
        ("mqtt.packet_id", Header::U16(PACKET_ID)),
        ("mqtt.qos", Header::U8(1)),
        ("mqtt.retain", Header::Bool(true)),
    ]);
    assert_eq!(full.headers, expected);
    let expected = headers([
        ("mqtt.topic", text(TOPIC)),
        ("mqtt.client_id", text(CLIENT)),
        ("mqtt.qos", Header::U8(0)),
    ]);
    assert_eq!(ordinary.headers, expected);
}

#[test]
fn the_headers_can_be_narrowed_to_those_that_are_wanted() {
    let builder = Deployment::builder().gateway("headers", names(&["retain", "qos"]));
    let [full, ordinary] = stored(builder, 0);
    let expected = headers([
        ("mqtt.topic", text(TOPIC)),
        ("mqtt.empty", Header::Bool(true)),
        ("mqtt.qos", Header::U8(1)),
        ("mqtt.retain", Header::Bool(true)),
    ]);
    assert_eq!(full.headers, expected);
    let expected = headers([("mqtt.topic", text(TOPIC)), ("mqtt.qos", Header::U8(0))]);
    assert_eq!(ordinary.headers, expected);
}

#[test]
fn topic_and_emptiness_are_written_always_and_a_message_without_qos_counts_as_qos_1() {
    let builder = Deployment::builder().gateway("headers", names(&[]));
    let [full, ordinary] = stored(builder, 1);
    let expected = headers([
        ("mqtt.topic", text(TOPIC)),
        ("mqtt.empty", Header::Bool(true)),
    ]);
    assert_eq!(full.headers, expected);
    assert_eq!(ordinary.headers, headers([("mqtt.topic", text(TOPIC))]));
}

#[test]
fn a_variable_names_the_headers_too() {
    let builder = Deployment::builder()
        .gateway("headers", names(&["dup"]))
        .variable("MQTT_GATEWAY_HEADERS", "packet_id, client_id");
    let [full, _] = stored(builder, 1);
    let expected = headers([
        ("mqtt.topic", text(TOPIC)),
        ("mqtt.empty", Header::Bool(true)),
        ("mqtt.client_id", text(CLIENT)),
        ("mqtt.packet_id", Header::U16(PACKET_ID)),
    ]);
    assert_eq!(full.headers, expected);
}
