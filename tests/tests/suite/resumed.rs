//! What subscribers get after the gateway was killed or stopped: what they had not acknowledged (B20, B32).

use std::thread;
use std::time::Duration;

use e2e::config::SINK;
use e2e::deployment::Deployment;
use e2e::host::Kind;
use e2e::packet::{self, Publish};
use e2e::raw::RawClient;
use e2e::wait::{self, PATIENCE};

const TOPIC: &str = "device/1/x";

fn publish(deployment: &Deployment, numbers: std::ops::RangeInclusive<u16>) {
    let mut client = deployment.client("publisher");
    for number in numbers {
        client.publish(TOPIC, number, number.to_string());
    }
}

/// Takes the messages of `numbers` in their order, without acknowledging them.
fn take(client: &mut RawClient, numbers: std::ops::RangeInclusive<u16>) -> Vec<Publish> {
    numbers
        .map(|number| {
            let message = client.expect_publish();
            assert_eq!(message.payload, number.to_string().as_bytes());
            message
        })
        .collect()
}

fn wait_until_committed(deployment: &Deployment, offset: u64) {
    wait::until(
        &format!("the offset {offset} is committed"),
        PATIENCE,
        || deployment.committed() == Some(offset),
    );
}

#[test]
fn b32_after_a_kill_the_messages_that_were_not_acknowledged_come_again() {
    let mut deployment = Deployment::builder().limit("send_window", 100).start();
    let mut client = deployment.client("subscriber");
    client.subscribe(TOPIC, 1);
    publish(&deployment, 1..=100);
    let messages = take(&mut client, 1..=100);
    for message in &messages[..40] {
        client.send(&packet::puback(message.id));
    }
    wait_until_committed(&deployment, 39);
    deployment.restart_host();

    let mut client = deployment.client("subscriber");
    client.subscribe(TOPIC, 1);
    for message in take(&mut client, 41..=100) {
        assert!(!message.dup, "it is another session");
        client.send(&packet::puback(message.id));
    }
    publish(&deployment, 101..=101);
    take(&mut client, 101..=101);
    client.expect_silence(Duration::from_millis(500));
}

#[test]
fn b20_acknowledgements_out_of_order_move_the_offset_only_as_far_as_there_is_no_gap() {
    let mut deployment = Deployment::start();
    let mut client = deployment.client("subscriber");
    client.subscribe(TOPIC, 1);
    publish(&deployment, 1..=5);
    let messages = take(&mut client, 1..=5);
    let mut acknowledge = |number: usize| client.send(&packet::puback(messages[number - 1].id));
    acknowledge(3);
    acknowledge(5);
    // Longer than commit_interval, twice.
    thread::sleep(Duration::from_millis(2_500));
    assert_eq!(deployment.committed(), None);
    acknowledge(1);
    wait_until_committed(&deployment, 0);
    acknowledge(2);
    wait_until_committed(&deployment, 2);
    deployment.restart_host();

    let mut client = deployment.client("subscriber");
    client.subscribe(TOPIC, 1);
    publish(&deployment, 6..=6);
    // 5 was acknowledged, but 4 before it was not.
    for message in take(&mut client, 4..=6) {
        client.send(&packet::puback(message.id));
    }
    client.expect_silence(Duration::from_millis(500));
}

#[test]
fn after_a_restart_of_the_sink_what_was_not_acknowledged_comes_again() {
    let deployment = Deployment::start();
    let mut client = deployment.client("subscriber");
    client.subscribe(TOPIC, 1);
    publish(&deployment, 1..=10);
    let messages = take(&mut client, 1..=10);
    for message in &messages[..4] {
        client.send(&packet::puback(message.id));
    }
    client.ping();
    let key = deployment.files.connector_key(SINK);
    deployment.host.restart_connector(Kind::Sink, &key);
    client.expect_closed(PATIENCE);
    let mut client = deployment.client("subscriber");
    client.subscribe(TOPIC, 1);
    take(&mut client, 5..=10);
}
