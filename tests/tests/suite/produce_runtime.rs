//! `produce = "runtime"`: messages reach Iggy through the connectors runtime, and PUBACK still means stored.

use std::time::Duration;

use e2e::binaries;
use e2e::config::{self, SOURCE, Target};
use e2e::deployment::{Builder, Deployment};
use e2e::host::Kind;
use e2e::packet;
use e2e::raw::RawClient;
use e2e::records::{Header, Record};
use e2e::wait;

const TOPIC: &str = "plant/7/temperature";
/// The gateway's pauses after failed batches, the runtime's retries, and time for a loaded machine.
const RECOVERY: Duration = Duration::from_secs(120);

/// A deployment whose topic map stores everything in `rest`, in one partition, so that order can be seen.
fn builder() -> Builder {
    let builder = Deployment::builder();
    let map = format!(
        "default_stream = '{}'\ndefault_topic = 'rest'\npartitions = 1\n",
        builder.stream()
    );
    builder.map(map).gateway("produce", "runtime")
}

fn stored(deployment: &Deployment) -> Vec<Record> {
    deployment.reader().records(deployment.stream(), "rest")
}

fn payloads(records: &[Record]) -> Vec<String> {
    records.iter().map(Record::payload_text).collect()
}

/// The payloads in order, without those that a retry after a lost reply has stored again.
fn firsts(records: &[Record]) -> Vec<String> {
    let mut firsts = Vec::new();
    for payload in payloads(records) {
        if !firsts.contains(&payload) {
            firsts.push(payload);
        }
    }
    firsts
}

#[test]
fn a_message_is_stored_with_its_headers_before_its_puback_and_delivered() {
    let deployment = builder().start();
    let mut subscriber = deployment.client("subscriber");
    subscriber.subscribe(TOPIC, 1);
    let mut client = deployment.client("publisher");
    client.publish(TOPIC, 7, "21.5");
    let records = stored(&deployment);
    assert_eq!(payloads(&records), ["21.5"]);
    let text = |text: &str| Header::Text(text.to_owned());
    let expected = [
        ("mqtt.topic", text(TOPIC)),
        ("mqtt.client_id", text("publisher")),
        ("mqtt.packet_id", Header::U16(7)),
        ("mqtt.qos", Header::U8(1)),
    ];
    let expected = expected.map(|(name, value)| (name.to_owned(), value));
    assert_eq!(records[0].headers, expected.into());
    assert_eq!(subscriber.expect_publish().payload, b"21.5");

    // Bytes that mean nothing to the runtime, and none at all.
    client.publish(TOPIC, 8, [0xff, 0x00, b'{']);
    client.publish(TOPIC, 9, "");
    let records = stored(&deployment);
    assert_eq!(records[1].payload, [0xff, 0x00, b'{']);
    assert_eq!(
        records[2].headers.get("mqtt.empty"),
        Some(&Header::Bool(true))
    );
}

#[test]
fn pubacks_and_records_keep_the_order_of_many_publishes() {
    let deployment = builder().start();
    let mut client = deployment.client("publisher");
    let publishes: Vec<Vec<u8>> = (1..=500)
        .map(|id| packet::publish(format!("plant/{}/x", id % 7), id, id.to_string()))
        .collect();
    client.send(&publishes.concat());
    for id in 1..=500 {
        client.expect(&packet::puback(id));
    }
    let expected: Vec<String> = (1..=500).map(|id: u16| id.to_string()).collect();
    assert_eq!(payloads(&stored(&deployment)), expected);
}

#[test]
fn it_is_the_runtime_that_stores_where_its_streams_entry_says() {
    let builder = builder();
    let stream = builder.stream().to_owned();
    let deployment = builder.start_with(|files| files.set_producer(SOURCE, &stream, "elsewhere"));
    deployment.wait_until_running();
    let mut client = deployment.client("publisher");
    client.publish(TOPIC, 1, "x");
    let elsewhere = deployment
        .reader()
        .records(deployment.stream(), "elsewhere");
    assert_eq!(payloads(&elsewhere), ["x"]);
    assert_eq!(stored(&deployment), []);
}

#[test]
fn an_outage_of_iggy_brings_no_puback_and_ends_with_everything_stored_in_order() {
    let mut deployment = builder().start();
    if !deployment.iggy.may_be_killed("an outage with the runtime") {
        return;
    }
    let mut client = deployment.client("publisher");
    client.publish(TOPIC, 1, "1");
    let quiet = Duration::from_secs(if binaries::long() { 20 } else { 2 });
    deployment.iggy.kill();
    for id in 2..=6 {
        client.send(&packet::publish(TOPIC, id, id.to_string()));
        client.expect_silence(quiet);
        client.ping();
    }
    assert_eq!(deployment.source_status(), "running");
    deployment.iggy.start_again();
    for id in 2..=6 {
        client.expect_within(&packet::puback(id), RECOVERY);
    }
    assert_eq!(firsts(&stored(&deployment)), ["1", "2", "3", "4", "5", "6"]);
    client.publish(TOPIC, 7, "7");
}

/// Deletes the topic under the runtime, so that its batches fail, and publishes.
fn publish_into_nothing(deployment: &Deployment) -> RawClient {
    let mut client = deployment.client("publisher");
    client.publish(TOPIC, 1, "lost with its topic");
    deployment
        .reader()
        .delete_topic(deployment.stream(), "rest");
    client.send(&packet::publish(TOPIC, 2, "waits"));
    deployment.host.wait_for_log(&[
        "ERROR",
        "has not stored a batch",
        "1 in a row",
        "stops this source",
    ]);
    client
}

#[test]
fn a_batch_that_the_runtime_did_not_store_is_announced_and_handed_over_again() {
    let deployment = builder().start();
    let mut client = publish_into_nothing(&deployment);
    client.send(&packet::publish(TOPIC, 3, "waits too"));
    client.expect_silence(Duration::from_secs(1));
    deployment
        .iggy
        .make(&Target::new(deployment.stream(), "rest", 1));
    client.expect_within(&packet::puback(2), RECOVERY);
    client.expect_within(&packet::puback(3), RECOVERY);
    assert_eq!(payloads(&stored(&deployment)), ["waits", "waits too"]);
}

#[test]
fn after_five_failed_batches_nothing_is_acknowledged_until_the_source_is_restarted() {
    if !binaries::long() {
        return binaries::skipped("five failed batches", "it takes a minute: set E2E_LONG=1");
    }
    let deployment = builder().start();
    let mut client = publish_into_nothing(&deployment);
    wait::until("the source is given up", RECOVERY, || {
        let line = ["ERROR", "HAS STOPPED THIS SOURCE"];
        deployment.host.log_line(&line).is_some()
    });
    client.expect_silence(Duration::from_secs(10));
    client.ping();
    // The runtime makes its topic anew when the source is opened.
    let key = deployment.files.connector_key(SOURCE);
    deployment.host.restart_connector(Kind::Source, &key);
    client.expect_closed(RECOVERY);
    let mut client = deployment.client("publisher");
    client.send(&packet::publish_flags(0x3A, TOPIC, 2, "waits"));
    client.expect_within(&packet::puback(2), RECOVERY);
    assert_eq!(payloads(&stored(&deployment)), ["waits"]);
}

#[test]
fn after_a_restart_of_the_source_publishing_goes_on_on_the_same_connection() {
    let deployment = builder().start();
    let key = deployment.files.connector_key(SOURCE);
    let mut client = deployment.client("publisher");
    for id in 1..=3 {
        client.publish(TOPIC, id, id.to_string());
        deployment.host.restart_connector(Kind::Source, &key);
    }
    client.publish(TOPIC, 4, "4");
    assert_eq!(payloads(&stored(&deployment)), ["1", "2", "3", "4"]);
}

#[test]
fn a_message_that_cannot_be_stored_is_a_dead_letter_all_the_same() {
    let builder = builder();
    let dead_letters = format!("{}_dead", builder.stream());
    let deployment = builder
        .gateway("dead_letter_stream", dead_letters.clone())
        .existing(Target::new(&dead_letters, "dead_letter", 1))
        .start();
    let mut client = deployment.client("publisher");
    client.publish("$nobody/x", 1, "dead");
    let dead = deployment.reader().records(&dead_letters, "dead_letter");
    assert_eq!(payloads(&dead), ["dead"]);
    assert_eq!(dead[0].text("mqtt.refused"), "dollar_topic");
    assert_eq!(stored(&deployment), []);
}

#[test]
fn a_map_with_keys_or_names_from_the_topic_fails_the_source_with_its_rules() {
    let builder = Deployment::builder();
    let map = config::own_map(builder.stream(), false);
    let deployment = builder
        .map(map)
        .gateway("produce", "runtime")
        .start_with(|_| {});
    let key = deployment.files.connector_key(SOURCE);
    deployment.host.wait_for_status(Kind::Source, &key, "error");
    deployment.host.wait_for_log(&[
        "produce = \"runtime\"",
        "topic-map.toml",
        "rule 1 (line 6) has a partition_key",
    ]);
}
