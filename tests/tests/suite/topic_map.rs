//! Where the topic map stores what: the stream, the topic and the partition, as an Iggy user finds them.

use std::collections::BTreeMap;

use e2e::binaries::{IggyChoice, iggy_choice};
use e2e::config::{TOPIC_MAP, Target};
use e2e::deployment::Deployment;
use e2e::packet;
use e2e::ports::unique_name;
use e2e::records::{Reader, Record};

use crate::refused_publish::expect_unstorable;

/// A prime: partitions chosen in any simpler way than by the hash would be others.
const PARTITIONS: u32 = 7;

/// Keys of every length and script, all of them legal as a part of an MQTT topic and as a key of Iggy's SDK, which takes
/// 1 to 255 bytes.
fn keys() -> Vec<String> {
    let mut keys: Vec<String> = (0..100).map(|number| format!("device-{number}")).collect();
    // xxHash32 takes 16, 4 and 1 bytes at a time.
    keys.extend((1..=40).map(|length| "k".repeat(length)));
    keys.push("z".repeat(255));
    keys.extend(
        [
            " ", "/", "//", "a/", "/a", "$", "$1", "ü", "u\u{308}", "東京", "🚀", "\u{feff}",
            "\u{7f}", "A", "a", "%2F", "\\", "room_42", "0", "00", "-1", ".*",
        ]
        .map(str::to_owned),
    );
    keys
}

/// The partition of each payload that begins with `prefix`, by the rest of it.
fn partitions(records: &[Record], prefix: &str) -> BTreeMap<String, u32> {
    let mut partitions = BTreeMap::new();
    for record in records {
        if let Some(key) = record.payload_text().strip_prefix(prefix) {
            let before = partitions.insert(key.to_owned(), record.partition);
            assert_eq!(before, None, "stored twice: {:?}", record.payload_text());
        }
    }
    partitions
}

#[test]
fn m3_a_key_has_the_partition_that_the_sdk_producer_takes_for_it() {
    let builder = Deployment::builder();
    let stream = builder.stream().to_owned();
    let deployment = builder
        .map(format!(
            "default_stream = '{stream}'\n\
             default_topic = 'rest'\n\
             partitions = {PARTITIONS}\n\
             [[rule]]\n\
             mqtt_topic = 'keyed/(.*)'\n\
             stream = '{stream}'\n\
             topic = 'keyed'\n\
             partition_key = '$1'\n"
        ))
        .start();
    let keys = keys();

    let mut client = deployment.client("publisher");
    for (id, key) in (1..).zip(&keys) {
        client.publish(&format!("keyed/{key}"), id, format!("mqtt {key}"));
    }
    let produced: Vec<String> = keys.iter().map(|key| format!("sdk {key}")).collect();
    let messages: Vec<(&str, &str)> = keys
        .iter()
        .map(String::as_str)
        .zip(produced.iter().map(String::as_str))
        .collect();
    let reader = deployment.reader();
    reader.produce_all(&stream, "keyed", &messages);

    let records = reader.records(&stream, "keyed");
    let of_gateway = partitions(&records, "mqtt ");
    let of_sdk = partitions(&records, "sdk ");
    for key in &keys {
        let sdk = of_sdk.get(key);
        assert!(sdk.is_some(), "the SDK's message of {key:?} is missing");
        assert_eq!(of_gateway.get(key), sdk, "the key {key:?}");
    }
    for partition in 0..PARTITIONS {
        assert!(
            of_sdk.values().any(|used| *used == partition),
            "no key is in partition {partition}: the test shows little"
        );
    }
}

/// The partition that Iggy's SDK takes for `key`.
fn sdk_partition(reader: &Reader, stream: &str, topic: &str, key: &str) -> u32 {
    let payload = unique_name();
    reader.produce(stream, topic, key, &payload);
    reader.wait_for(stream, topic, 1, |record| record.payload_text() == payload)[0].partition
}

/// An MQTT topic, and where the shipped map stores it.
struct Example {
    mqtt_topic: &'static str,
    stream: &'static str,
    topic: &'static str,
    key: Option<&'static str>,
}

const SHIPPED: [Example; 4] = [
    Example {
        mqtt_topic: "building/north/room/42/temp",
        stream: "building_north",
        topic: "telemetry",
        key: Some("room_42"),
    },
    Example {
        mqtt_topic: "sensors/dev-7/data",
        stream: "sensors",
        topic: "sensor_data",
        key: Some("sensor_dev-7"),
    },
    Example {
        mqtt_topic: "foo/bar",
        stream: "sensors",
        topic: "messages_default",
        key: None,
    },
    Example {
        mqtt_topic: "building/north/room/x/temp",
        stream: "sensors",
        topic: "messages_default",
        key: None,
    },
];

fn check_shipped(deployment: &Deployment) {
    let reader = deployment.reader();
    let mut client = deployment.client("publisher");
    for (id, example) in (1..).zip(&SHIPPED) {
        let payload = unique_name();
        client.publish(example.mqtt_topic, id, &payload);
        let mut found = Vec::new();
        for (stream, topic) in [
            ("building_north", "telemetry"),
            ("sensors", "sensor_data"),
            ("sensors", "messages_default"),
        ] {
            for record in reader.records(stream, topic) {
                if record.payload_text() == payload {
                    assert_eq!(record.text("mqtt.topic"), example.mqtt_topic);
                    found.push((stream, topic, record.partition));
                }
            }
        }
        let [(stream, topic, partition)] = found[..] else {
            panic!("{} is stored at {found:?}", example.mqtt_topic);
        };
        assert_eq!(
            (stream, topic),
            (example.stream, example.topic),
            "{}",
            example.mqtt_topic
        );
        if let Some(key) = example.key {
            let expected = sdk_partition(&reader, stream, topic, key);
            assert_eq!(partition, expected, "{}", example.mqtt_topic);
        }
    }
}

#[test]
fn the_shipped_map_stores_its_examples_where_it_says() {
    let deployment = Deployment::builder()
        .shipped_map()
        .target("building_north", "telemetry", 1)
        .start();
    check_shipped(&deployment);
}

#[test]
fn the_shipped_map_with_more_partitions_stores_its_examples_at_those_of_their_keys() {
    let deployment = Deployment::builder()
        .shipped_map()
        .target("building_north", "telemetry", PARTITIONS)
        .start_with(|files| files.set(TOPIC_MAP, &["partitions"], PARTITIONS));
    deployment.wait_until_running();
    check_shipped(&deployment);
    if matches!(iggy_choice(), IggyChoice::Running(_)) {
        // Another test may have been first and have made them with fewer.
        return;
    }
    for example in &SHIPPED {
        let details = deployment.reader().topic(example.stream, example.topic);
        assert_eq!(
            details.map(|details| details.partitions_count),
            Some(PARTITIONS)
        );
    }
}

/// Publishes and subscribes to a topic that would need `target`, for which there is no place any more: nothing is stored
/// or granted, and the target is not made.
fn expect_beyond_the_bound(deployment: &Deployment, mqtt_topic: &str, target: &Target) {
    let reader = deployment.reader();
    let before = reader.topic(&target.stream, &target.topic).is_some();
    let mut client = deployment.client("beyond");
    client.send(&packet::publish_qos0(mqtt_topic, "beyond"));
    client.ping();
    client.send(&packet::subscribe(2, &[(mqtt_topic, 1)]));
    client.expect(&packet::suback(2, &[0x80]));
    expect_unstorable(
        deployment,
        mqtt_topic,
        "too_many_targets",
        &[&target.stream],
    );
    let after = reader.topic(&target.stream, &target.topic).is_some();
    assert_eq!(after, before, "{target:?} was made");
    assert_eq!(reader.records(&target.stream, &target.topic), []);
}

#[test]
fn topics_beyond_max_topics_are_refused_and_the_earlier_ones_go_on() {
    let builder = Deployment::builder();
    let stream = builder.stream().to_owned();
    let deployment = builder
        .map(format!(
            "default_stream = '{stream}'\n\
             default_topic = 'rest'\n\
             max_topics = 2\n\
             [[rule]]\n\
             mqtt_topic = 'kind/([a-z]+)/.*'\n\
             stream = '{stream}'\n\
             topic = 'kind_$1'\n"
        ))
        .target(&stream, "kind_a", 1)
        .target(&stream, "kind_b", 1)
        .target(&stream, "kind_c", 1)
        .start();
    let mut client = deployment.client("client");
    client.publish("kind/a/x", 1, "first");
    // A subscription takes a place as a publish does.
    client.subscribe("kind/b/x", 0);
    for _ in 0..2 {
        expect_beyond_the_bound(&deployment, "kind/c/x", &Target::new(&stream, "kind_c", 1));
    }
    deployment
        .host
        .wait_for_log(&["rule 1", "kind_c", "max_topics = 2"]);

    client.publish("kind/a/y", 2, "second");
    // Neither the fallback nor a topic that the map names itself counts.
    client.publish("kind", 3, "to the fallback");
    client.send(&packet::publish_qos0("kind/b/x", "third"));
    assert_eq!(client.expect_publish().payload, b"third");
    let reader = deployment.reader();
    assert_eq!(reader.records(&stream, "kind_a").len(), 2);
    assert_eq!(reader.records(&stream, "rest").len(), 1);
}

#[test]
fn streams_beyond_max_streams_are_refused_and_the_earlier_ones_go_on() {
    let builder = Deployment::builder();
    let stream = builder.stream().to_owned();
    let [north, south, east] = ["north", "south", "east"].map(|site| format!("{stream}_{site}"));
    let deployment = builder
        .map(format!(
            "default_stream = '{stream}'\n\
             default_topic = 'rest'\n\
             max_streams = 2\n\
             [[rule]]\n\
             mqtt_topic = 'site/([a-z]+)/([a-z]+)'\n\
             stream = '{stream}_$1'\n\
             topic = '$2'\n"
        ))
        .target(&north, "x", 1)
        .target(&north, "y", 1)
        .target(&south, "x", 1)
        .target(&east, "x", 1)
        .start();
    let mut client = deployment.client("client");
    client.publish("site/north/x", 1, "north");
    client.publish("site/south/x", 2, "south");
    expect_beyond_the_bound(&deployment, "site/east/x", &Target::new(&east, "x", 1));
    deployment
        .host
        .wait_for_log(&["rule 1", &east, "max_streams = 2"]);

    client.publish("site/north/x", 3, "north again");
    client.publish(
        "site/north/y",
        4,
        "another topic of a stream that has its place",
    );
    let reader = deployment.reader();
    assert_eq!(reader.stream_records(&north).len(), 3);
    assert_eq!(reader.stream_records(&south).len(), 1);
}
