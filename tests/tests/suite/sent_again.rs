//! A message that comes twice: again on its connection, and again after a reconnect.

use std::thread;
use std::time::Duration;

use e2e::deployment::Deployment;
use e2e::packet::{self, publish, publish_flags};
use e2e::raw::{PROMPT, RawClient};

const TOPIC: &str = "device/7/x";
/// The first byte of a QoS 1 PUBLISH with DUP.
const AGAIN: u8 = 0x3A;

/// What is stored, without the message that warmed up.
fn payloads(deployment: &Deployment) -> Vec<String> {
    deployment
        .device_records()
        .iter()
        .map(|record| record.payload_text())
        .filter(|payload| payload != "warm")
        .collect()
}

fn warm(deployment: &Deployment) -> RawClient {
    let mut client = deployment.client("publisher");
    client.publish(TOPIC, 100, "warm");
    client
}

/// Takes the client's connection over, and so makes sure that the gateway has noticed its end.
fn reconnect(deployment: &Deployment, before: RawClient) -> RawClient {
    let client = deployment.client("publisher");
    drop(before);
    client
}

#[test]
fn a_packet_id_that_comes_again_while_it_waits_is_stored_and_acknowledged_once() {
    let deployment = Deployment::builder().proxied().start();
    let mut client = warm(&deployment);
    deployment.proxy().hold_replies();
    client.send(&publish(TOPIC, 7, "x"));
    client.send(&publish_flags(AGAIN, TOPIC, 7, "x"));
    client.send(&publish(TOPIC, 8, "y"));
    client.send(&publish(TOPIC, 7, "x"));
    client.ping();
    deployment.proxy().release();
    client.expect(&packet::puback(7));
    client.expect(&packet::puback(8));
    // The PUBACK has freed the id: this is another message.
    client.publish(TOPIC, 7, "x");
    client.expect_silence(Duration::from_secs(1));
    assert_eq!(payloads(&deployment), ["x", "y", "x"]);
}

#[test]
fn a_packet_id_that_comes_again_with_another_message_while_it_waits_is_a_protocol_error() {
    for other in [
        publish(TOPIC, 7, "other payload"),
        publish("device/7/other", 7, "x"),
        publish_flags(AGAIN, TOPIC, 7, "other payload"),
        publish_flags(0x33, TOPIC, 7, "x"),
    ] {
        let deployment = Deployment::builder().proxied().start();
        let mut client = warm(&deployment);
        deployment.proxy().hold_replies();
        client.send(&publish(TOPIC, 7, "x"));
        client.ping();
        client.send(&other);
        client.expect_closed(PROMPT);
        deployment.proxy().release();
        deployment
            .host
            .wait_for_log(&["WARN", "publisher", "protocol error", "packet id"]);
        deployment
            .reader()
            .wait_for(deployment.stream(), "devices", 1, |record| {
                record.payload_text() == "x"
            });
        assert_eq!(payloads(&deployment), ["x"]);
    }
}

#[test]
fn what_a_client_sends_again_after_a_reconnect_is_acknowledged_and_stored_once() {
    let deployment = Deployment::builder().proxied().start();
    let mut client = warm(&deployment);
    client.publish(TOPIC, 1, "stored");
    deployment.proxy().hold_replies();
    client.send(&publish(TOPIC, 2, "in flight"));
    client.ping();

    let mut client = reconnect(&deployment, client);
    client.send(&publish_flags(AGAIN, TOPIC, 1, "stored"));
    client.send(&publish_flags(AGAIN, TOPIC, 2, "in flight"));
    client.expect(&packet::puback(1));
    client.expect_silence(Duration::from_secs(1));
    deployment.proxy().release();
    client.expect(&packet::puback(2));
    assert_eq!(payloads(&deployment), ["stored", "in flight"]);

    // And once more, over a connection that has published nothing itself.
    let client = reconnect(&deployment, client);
    let mut client = reconnect(&deployment, client);
    client.send(&publish_flags(AGAIN, TOPIC, 2, "in flight"));
    client.expect(&packet::puback(2));
    assert_eq!(payloads(&deployment), ["stored", "in flight"]);
}

#[test]
fn what_is_not_the_same_message_is_stored_although_it_looks_alike() {
    let deployment = Deployment::start();
    let mut client = warm(&deployment);
    client.publish(TOPIC, 1, "x");
    let mut client = reconnect(&deployment, client);
    for (what, bytes) in [
        (
            "other payload",
            publish_flags(AGAIN, TOPIC, 1, "other payload"),
        ),
        (
            "other topic",
            publish_flags(AGAIN, "device/7/other", 1, "x"),
        ),
        ("other packet id", publish_flags(AGAIN, TOPIC, 1 << 8, "x")),
        ("retain", publish_flags(0x3B, TOPIC, 1, "x")),
        ("no DUP", publish(TOPIC, 1, "x")),
    ] {
        let before = payloads(&deployment).len();
        client.send(&bytes);
        let id = if what == "other packet id" { 1 << 8 } else { 1 };
        client.expect(&packet::puback(id));
        assert_eq!(payloads(&deployment).len(), before + 1, "{what}");
    }
    let mut other = deployment.client("another client");
    let before = payloads(&deployment).len();
    other.send(&publish_flags(AGAIN, TOPIC, 1, "x"));
    other.expect(&packet::puback(1));
    assert_eq!(payloads(&deployment).len(), before + 1);
}

#[test]
fn messages_are_remembered_for_dedup_time_and_no_more_than_dedup_window() {
    let deployment = Deployment::builder()
        .limit("dedup_window", 2)
        .limit("dedup_time", "2s")
        .start();
    let mut client = warm(&deployment);
    for id in 1..=3 {
        client.publish(TOPIC, id, id.to_string());
    }
    let mut client = reconnect(&deployment, client);
    for id in 1..=3 {
        client.send(&publish_flags(AGAIN, TOPIC, id, id.to_string()));
        client.expect(&packet::puback(id));
    }
    assert_eq!(payloads(&deployment), ["1", "2", "3", "1"]);

    drop(client);
    // Longer than `dedup_time`.
    thread::sleep(Duration::from_secs(4));
    let mut client = deployment.client("publisher");
    client.send(&publish_flags(AGAIN, TOPIC, 3, "3"));
    client.expect(&packet::puback(3));
    assert_eq!(payloads(&deployment), ["1", "2", "3", "1", "3"]);
}

#[test]
fn with_dedup_window_0_everything_is_stored_again() {
    let deployment = Deployment::builder().limit("dedup_window", 0).start();
    let mut client = warm(&deployment);
    client.publish(TOPIC, 1, "x");
    let mut client = reconnect(&deployment, client);
    client.send(&publish_flags(AGAIN, TOPIC, 1, "x"));
    client.expect(&packet::puback(1));
    assert_eq!(payloads(&deployment), ["x", "x"]);
}

#[test]
fn what_a_killed_host_had_stored_is_acknowledged_when_it_is_sent_again() {
    let mut deployment = Deployment::builder().proxied().start();
    let mut client = warm(&deployment);
    deployment.proxy().hold_replies();
    client.send(&publish(TOPIC, 1, "x"));
    deployment
        .reader()
        .wait_for(deployment.stream(), "devices", 1, |record| {
            record.payload_text() == "x"
        });
    deployment.host.kill();
    deployment.proxy().release();
    deployment.host.start();
    deployment.wait_until_running();
    let mut client = deployment.client("publisher");
    client.send(&publish_flags(AGAIN, TOPIC, 1, "x"));
    client.expect(&packet::puback(1));
    // A host that begins anew remembers nothing: at least once.
    assert_eq!(payloads(&deployment), ["x", "x"]);
}
