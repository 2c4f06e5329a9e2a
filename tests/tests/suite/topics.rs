//! Topics as devices really use them, carried unchanged from the publisher over Iggy to the subscriber.

use e2e::deployment::Deployment;
use e2e::packet;

/// Every one is legal in MQTT (4.7.3); most are no legal name in Iggy.
const TOPICS: [&str; 16] = [
    "Living Room/Lamp 1",
    "a.b/c",
    "ü/東京/🚀",
    "spBv1.0/Grp A/NDATA/n",
    "*",
    "a>b",
    "%2F",
    "\"q\"",
    "trailing blank ",
    " ",
    "/",
    "a//b",
    "/a",
    "a/",
    "\u{feff}bom",
    "building/north/room/42/TEMP",
];

#[test]
fn b53_every_legal_topic_is_received_as_it_was_published() {
    let deployment = Deployment::start();
    let mut client = deployment.client("client");
    for (number, topic) in TOPICS.into_iter().enumerate() {
        client.subscribe(topic, 1);
        let id = u16::try_from(number + 1).unwrap();
        client.send(&packet::publish(topic, id, topic));
        let mut acknowledged = false;
        let mut delivered = false;
        while !(acknowledged && delivered) {
            match client.answer(e2e::wait::PATIENCE) {
                e2e::raw::Answer::Packet(bytes) if bytes == packet::puback(id) => {
                    acknowledged = true;
                }
                e2e::raw::Answer::Packet(bytes) => {
                    let message = packet::read_publish(&bytes)
                        .unwrap_or_else(|| panic!("`{topic}`: {bytes:02x?}"));
                    assert_eq!(message.topic, topic);
                    assert_eq!(message.payload, topic.as_bytes());
                    client.send(&packet::puback(message.id));
                    delivered = true;
                }
                other => panic!("`{topic}`: {other:?}"),
            }
        }
    }
    let mut stored: Vec<String> = deployment
        .stored()
        .iter()
        .map(|record| record.text("mqtt.topic").to_owned())
        .collect();
    stored.sort();
    let mut expected: Vec<&str> = TOPICS.to_vec();
    expected.sort_unstable();
    assert_eq!(stored, expected);
}

#[test]
fn levels_that_differ_only_in_empty_levels_or_case_are_different_topics() {
    let deployment = Deployment::start();
    let mut client = deployment.client("subscriber");
    client.subscribe("device/1/a/b", 0);
    let mut publisher = deployment.client("publisher");
    for (id, topic) in (1..).zip([
        "device/1/a//b",
        "device/1/a/b/",
        "device/1/A/b",
        "device/1/a/b ",
        "device/1/a/b",
    ]) {
        publisher.publish(topic, id, topic);
    }
    // Only the last one, and as all have one key it would come last.
    assert_eq!(client.expect_publish().topic, "device/1/a/b");
}

#[test]
fn a_topic_longer_than_a_header_of_iggy_is_received_whole() {
    let deployment = Deployment::start();
    let topic = format!("device/1/{}/end", "ü".repeat(2_000));
    let mut client = deployment.client("subscriber");
    client.subscribe(&topic, 1);
    let mut publisher = deployment.client("publisher");
    publisher.publish(&topic, 1, "long");
    let message = client.expect_publish();
    assert_eq!(message.topic, topic);
    assert_eq!(message.payload, b"long");
}
