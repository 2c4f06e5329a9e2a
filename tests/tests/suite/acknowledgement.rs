//! PUBACK means that Iggy has confirmed the append: never before, whatever happens between the gateway and Iggy.

use std::time::Duration;

use e2e::binaries;
use e2e::deployment::Deployment;
use e2e::packet;
use e2e::raw::RawClient;
use e2e::records::Record;
use e2e::wait::{self, PATIENCE};

const TOPIC: &str = "device/7/x";
/// Reconnecting to Iggy after a cut may take as long as the gateway's longest backoff.
const AFTER_A_CUT: Duration = Duration::from_secs(60);

/// A client that has published once, so that the target exists and every connection to Iggy is in use.
fn warm(deployment: &Deployment) -> RawClient {
    let mut client = deployment.client("publisher");
    client.publish(TOPIC, 1, "first");
    client
}

fn with_payload(deployment: &Deployment, payload: &str) -> Vec<Record> {
    let mut records = deployment.device_records();
    records.retain(|record| record.payload_text() == payload);
    records
}

/// Waits until Iggy has a message, as seen past the proxy.
fn wait_until_stored(deployment: &Deployment, payload: &str) {
    deployment
        .reader()
        .wait_for(deployment.stream(), "devices", 1, |record| {
            record.payload_text() == payload
        });
}

#[test]
fn b01_no_puback_while_the_reply_of_iggy_is_held_and_one_record_after_its_release() {
    let deployment = Deployment::builder().proxied().start();
    let mut client = warm(&deployment);

    deployment.proxy().hold_replies();
    client.send(&packet::publish(TOPIC, 7, "held"));
    // Stored, but the gateway cannot know.
    wait_until_stored(&deployment, "held");
    client.expect_silence(Duration::from_secs(5));
    client.ping();
    client.expect_silence(Duration::from_secs(5));
    client.ping();

    deployment.proxy().release();
    client.expect(&packet::puback(7));
    assert_eq!(with_payload(&deployment, "held").len(), 1);
    client.publish(TOPIC, 8, "after");
}

#[test]
fn b01_no_puback_for_a_whole_window_over_several_partitions_while_replies_are_held() {
    let deployment = Deployment::builder().proxied().start();
    let mut client = warm(&deployment);

    deployment.proxy().hold_replies();
    let topic = |id: u16| format!("device/{}/x", id % 8);
    for id in 1..=100 {
        client.send(&packet::publish(topic(id), id, id.to_string()));
        // With QoS 0 among them, which has no place in the order.
        client.send(&packet::publish_qos0(topic(id), format!("{id} QoS 0")));
    }
    client.ping();
    client.expect_silence(Duration::from_secs(3));

    deployment.proxy().release();
    for id in 1..=100 {
        client.expect(&packet::puback(id));
    }
    client.ping();
    let records = deployment.device_records();
    for id in 1..=100 {
        let of = |payload: &str| {
            let same = records
                .iter()
                .filter(|record| record.payload_text() == payload);
            same.count()
        };
        assert_eq!(of(&id.to_string()), 1, "message {id}");
    }
}

#[test]
fn b01_no_puback_while_the_target_is_looked_up_or_made() {
    let builder = Deployment::builder();
    let stream = builder.stream().to_owned();
    let map = format!(
        "default_stream = '{stream}'\n\
         default_topic = 'rest'\n\
         [[rule]]\n\
         mqtt_topic = 'new/([^/]+)'\n\
         stream = '{stream}'\n\
         topic = 'new_$1'\n"
    );
    let deployment = builder
        .map(map)
        .target(&stream, "new_1", 1)
        .proxied()
        .start();
    let mut client = deployment.client("publisher");
    client.publish("other", 1, "warm");

    deployment.proxy().hold_replies();
    client.send(&packet::publish("new/1", 7, "first"));
    client.send(&packet::publish("other", 8, "second"));
    client.ping();
    client.expect_silence(Duration::from_secs(2));
    deployment.proxy().cut();
    deployment.proxy().release();
    client.expect_within(&packet::puback(7), AFTER_A_CUT);
    client.expect_within(&packet::puback(8), AFTER_A_CUT);
    let stored = deployment.reader().records(&stream, "new_1");
    let stored: Vec<String> = stored.iter().map(Record::payload_text).collect();
    assert_eq!(stored, ["first"]);
}

#[test]
fn b01_a_host_that_ends_while_replies_are_held_acknowledges_nothing() {
    let mut deployment = Deployment::builder()
        .proxied()
        .gateway("shutdown_grace", "1s")
        .start();
    let mut client = warm(&deployment);
    deployment.proxy().hold_replies();
    client.send(&packet::publish(TOPIC, 7, "held"));
    wait_until_stored(&deployment, "held");
    deployment.host.process().terminate(AFTER_A_CUT);
    client.expect_closed(PATIENCE);

    deployment.proxy().release();
    deployment.host.start();
    deployment.wait_until_running();
    let mut client = deployment.client("publisher");
    client.send(&packet::publish_flags(0x3A, TOPIC, 7, "held"));
    client.expect(&packet::puback(7));
}

#[test]
fn b01_one_lost_reply_after_another_is_followed_by_a_retry_with_the_same_id() {
    let deployment = Deployment::builder().proxied().start();
    let mut client = warm(&deployment);

    // Far more than any request has that is not an append of it.
    let payload = "lost reply ".to_owned() + &"x".repeat(50_000);
    deployment.proxy().lose_replies(Some(40_000));
    client.send(&packet::publish(TOPIC, 7, &payload));
    wait::until("three replies are lost", AFTER_A_CUT, || {
        deployment.proxy().lost_replies() >= 3
    });
    client.expect_silence(Duration::from_millis(200));
    client.ping();
    deployment.proxy().lose_replies(None);

    client.expect_within(&packet::puback(7), AFTER_A_CUT);
    let records = with_payload(&deployment, &payload);
    assert!(records.len() >= 3);
    for record in &records {
        assert_eq!(record.id, records[0].id, "a retry keeps the message id");
    }
    client.publish(TOPIC, 8, "after");
}

#[test]
fn b01_no_puback_for_a_message_that_never_reached_iggy() {
    let deployment = Deployment::builder().proxied().start();
    let mut client = warm(&deployment);

    deployment.proxy().hold_requests();
    client.send(&packet::publish(TOPIC, 7, "lost request"));
    client.expect_silence(Duration::from_secs(2));
    deployment.proxy().refuse(true);
    deployment.proxy().cut();
    deployment.proxy().release();
    client.expect_silence(Duration::from_secs(3));
    client.ping();
    assert_eq!(with_payload(&deployment, "lost request"), []);

    deployment.proxy().refuse(false);
    client.expect_within(&packet::puback(7), AFTER_A_CUT);
    assert_eq!(with_payload(&deployment, "lost request").len(), 1);
}

#[test]
fn pubacks_leave_in_the_order_of_the_publishes_also_across_topics() {
    let deployment = Deployment::start();
    let mut client = deployment.client("publisher");
    let ids: Vec<u16> = (1..=200).rev().collect();
    let publishes: Vec<Vec<u8>> = ids
        .iter()
        .map(|id| packet::publish(format!("device/{}/x", id % 16), *id, format!("{id}")))
        .collect();
    client.send(&publishes.concat());
    for id in ids {
        client.expect_within(&packet::puback(id), PATIENCE);
    }
    assert_eq!(deployment.device_records().len(), 200);
}

#[test]
fn a_topic_that_the_gateway_creates_asks_iggy_for_stable_storage() {
    let deployment = Deployment::start();
    warm(&deployment);
    if !deployment.iggy.creates_topics() {
        binaries::skipped("durability", "this Iggy is too old for the option");
        return;
    }
    let topic = deployment
        .reader()
        .topic(deployment.stream(), "devices")
        .expect("the gateway created the topic");
    assert_eq!(topic.partitions_count, e2e::config::PARTITIONS);
    let options = format!("{:?}", topic.options);
    assert!(
        options.to_lowercase().contains("persisted"),
        "the topic's options are {options}"
    );
}
