//! Subscriptions come, change and go without disturbing each other (B50), and deliver what is stored after their SUBACK.

use std::time::Duration;

use e2e::deployment::Deployment;
use e2e::packet::{self, suback, subscribe, unsuback, unsubscribe};

#[test]
fn b50_unsubscribing_one_filter_leaves_its_neighbours_and_it_can_come_back() {
    let deployment = Deployment::start();
    let mut client = deployment.client("subscriber");
    let mut publisher = deployment.client("publisher");
    let topics = ["device/1/a/b", "device/1/a", "device/1/a/B"];
    client.send(&subscribe(1, &topics.map(|topic| (topic, 0))));
    client.expect(&suback(1, &[0, 0, 0]));

    client.send(&unsubscribe(2, &["device/1/a/b"]));
    client.expect(&unsuback(2));
    client.send(&unsubscribe(3, &["device/1/never", "device/1/a/b"]));
    client.expect(&unsuback(3));
    for (id, topic) in (1..).zip(topics) {
        publisher.publish(topic, id, topic);
    }
    assert_eq!(client.expect_publish().topic, "device/1/a");
    assert_eq!(client.expect_publish().topic, "device/1/a/B");

    client.send(&subscribe(4, &[("device/1/a/b", 1)]));
    client.expect(&suback(4, &[1]));
    publisher.publish("device/1/a/b", 9, "again");
    let message = client.expect_publish();
    assert_eq!((message.topic.as_str(), message.qos), ("device/1/a/b", 1));
    client.ping();
}

#[test]
fn the_same_filter_again_replaces_the_subscription_and_brings_no_second_copy() {
    let deployment = Deployment::start();
    let mut client = deployment.client("subscriber");
    let mut publisher = deployment.client("publisher");
    client.send(&subscribe(1, &[("device/1/x", 1)]));
    client.expect(&suback(1, &[1]));
    for (id, qos) in (1..).zip([0, 1, 0, 1, 1, 0]) {
        client.send(&subscribe(2, &[("device/1/x", qos)]));
        client.expect(&suback(2, &[qos]));
        publisher.publish("device/1/x", id, id.to_string());
        let message = client.expect_publish();
        assert_eq!(message.payload, id.to_string().as_bytes());
        assert_eq!(message.qos, qos);
        if qos == 1 {
            client.send(&packet::puback(message.id));
        }
    }
    client.expect_silence(Duration::from_millis(500));
}

#[test]
fn the_delivered_qos_is_the_lower_one_of_publish_and_subscription() {
    let deployment = Deployment::start();
    let mut low = deployment.client("low");
    low.subscribe("device/1/x", 0);
    let mut high = deployment.client("high");
    high.subscribe("device/1/x", 1);
    let mut publisher = deployment.client("publisher");
    publisher.send(&packet::publish_qos0("device/1/x", "zero"));
    assert_eq!(low.expect_publish().qos, 0);
    assert_eq!(high.expect_publish().qos, 0);
    publisher.publish("device/1/x", 1, "one");
    assert_eq!(low.expect_publish().qos, 0);
    let message = high.expect_publish();
    assert_eq!(
        (message.qos, message.dup, message.retain),
        (1, false, false)
    );
    assert_ne!(message.id, 0);
}

#[test]
fn everything_stored_after_the_suback_is_delivered_in_order() {
    let deployment = Deployment::start();
    let mut publisher = deployment.client("publisher");
    publisher.publish("device/1/x", 1, "before");
    for round in 0_u16..10 {
        let mut client = deployment.client(&format!("subscriber-{round}"));
        client.subscribe("device/1/x", 1);
        for id in 1..=20 {
            publisher.send(&packet::publish("device/1/x", id, format!("{round}-{id}")));
        }
        for id in 1..=20 {
            let message = client.expect_publish();
            assert_eq!(message.payload, format!("{round}-{id}").as_bytes());
            client.send(&packet::puback(message.id));
        }
        for id in 1..=20 {
            publisher.expect(&packet::puback(id));
        }
    }
}

#[test]
fn a_retained_publish_is_marked_in_iggy_and_delivered_without_the_mark() {
    let deployment = Deployment::start();
    let mut client = deployment.client("subscriber");
    client.subscribe("device/1/x", 0);
    let mut publisher = deployment.client("publisher");
    publisher.send(&packet::publish_flags(0x33, "device/1/x", 1, "kept"));
    publisher.expect(&packet::puback(1));
    let message = client.expect_publish();
    assert!(!message.retain);
    let records = deployment.device_records();
    assert_eq!(
        records[0].headers.get("mqtt.retain"),
        Some(&e2e::records::Header::Bool(true))
    );
}

#[test]
fn messages_of_other_iggy_producers_hinder_nobody() {
    let deployment = Deployment::start();
    let mut publisher = deployment.client("publisher");
    publisher.publish("device/1/x", 1, "makes the topic");
    let mut client = deployment.client("subscriber");
    client.subscribe("device/1/x", 1);
    deployment
        .reader()
        .produce(deployment.stream(), "devices", "1", "no header at all");
    publisher.publish("device/1/x", 2, "after");
    assert_eq!(client.expect_publish().payload, b"after");
}
