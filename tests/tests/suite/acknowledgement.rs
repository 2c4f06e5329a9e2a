//! PUBACK means that Iggy has confirmed the append: never before, whatever happens between the gateway and Iggy.

use std::time::Duration;

use e2e::binaries;
use e2e::deployment::Deployment;
use e2e::packet;
use e2e::raw::RawClient;
use e2e::records::Record;
use e2e::wait::PATIENCE;

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
fn b01_a_cut_that_loses_the_reply_is_followed_by_a_retry_with_the_same_id() {
    let deployment = Deployment::builder().proxied().start();
    let mut client = warm(&deployment);

    deployment.proxy().hold_replies();
    client.send(&packet::publish(TOPIC, 7, "lost reply"));
    wait_until_stored(&deployment, "lost reply");
    client.expect_silence(Duration::from_secs(1));
    deployment.proxy().cut();
    deployment.proxy().release();

    client.expect_within(&packet::puback(7), AFTER_A_CUT);
    let records = with_payload(&deployment, "lost reply");
    assert!(!records.is_empty());
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
