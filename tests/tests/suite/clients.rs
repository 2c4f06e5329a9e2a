//! Clients that others wrote: mosquitto, Paho for Python, rumqttc. What they send is received byte for byte and stored once,
//! in the partition of its key, with the headers that say where it came from.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use e2e::deployment::Deployment;
use e2e::mosquitto::{self, Subscriber};
use e2e::paho;
use e2e::ports::unique_name;
use e2e::records::{Header, Record};
use e2e::wait::PATIENCE;
use rumqttc::{Client, Event, MqttOptions, Packet, QoS};

const STREAM: &str = "building_north";
const TOPIC: &str = "telemetry";

/// Text, binary with every byte value, nothing, and 200 KB.
fn payloads() -> Vec<Vec<u8>> {
    vec![
        "21.5 °C".as_bytes().to_vec(),
        (0..=255).collect(),
        Vec::new(),
        (0..=255).cycle().take(200_000).collect(),
    ]
}

/// A deployment with the topic map as it is shipped.
fn shipped() -> Deployment {
    Deployment::builder()
        .shipped_map()
        .target(STREAM, TOPIC, 1)
        .start()
}

/// Checks the headers and payload of what was stored for one publish.
fn assert_stored(record: &Record, topic: &str, payload: &[u8], qos: u8) {
    let mut headers = record.headers.clone();
    let packet_id = headers.remove("mqtt.packet_id");
    assert_eq!(
        matches!(packet_id, Some(Header::U16(id)) if id > 0),
        qos == 1,
        "the packet id of QoS {qos} is stored as {packet_id:?}"
    );
    assert!(matches!(
        headers.remove("mqtt.client_id"),
        Some(Header::Text(_))
    ));
    let mut expected = BTreeMap::from([
        ("mqtt.topic".to_owned(), Header::Text(topic.to_owned())),
        ("mqtt.qos".to_owned(), Header::U8(qos)),
    ]);
    if payload.is_empty() {
        expected.insert("mqtt.empty".to_owned(), Header::Bool(true));
        assert_eq!(record.payload, [0]);
    } else {
        assert!(
            record.payload == payload,
            "the stored payload differs from the published one"
        );
    }
    assert_eq!(headers, expected);
}

/// Checks that all records lie in the partition to which an Iggy producer sends messages with the same key.
fn assert_partition_of_key(deployment: &Deployment, records: &[Record], key: &str) {
    let reader = deployment.reader();
    let probe = unique_name();
    reader.produce(STREAM, TOPIC, key, &probe);
    let probes = reader.wait_for(STREAM, TOPIC, 1, |record| record.payload_text() == probe);
    for record in records {
        assert_eq!(record.partition, probes[0].partition);
    }
}

#[test]
fn mosquitto_clients_exchange_every_payload_at_both_qos_and_each_is_stored_once() {
    let deployment = shipped();
    let gateway = deployment.mqtt();
    let folder = deployment.files.working_directory();
    let topic = "building/north/room/42/temp";
    let run = unique_name();
    let subscriber = Subscriber::start(gateway, folder, &format!("{run}_sub"), topic, 1);

    let mut published = Vec::new();
    for payload in payloads() {
        for qos in [0, 1] {
            let client_id = format!("{run}_{}", published.len());
            let mut arguments = vec!["-i".to_owned(), client_id.clone()];
            arguments.extend(["-t".to_owned(), topic.to_owned()]);
            arguments.extend(["-q".to_owned(), qos.to_string()]);
            if payload.is_empty() {
                arguments.push("-n".to_owned());
            } else {
                let file = folder.join("payload");
                fs::write(&file, &payload).unwrap();
                arguments.extend(["-f".to_owned(), file.display().to_string()]);
            }
            mosquitto::publish_ok(gateway, &arguments);
            published.push((client_id, payload.clone(), qos));
            let received = subscriber.wait_for(published.len());
            let last = received.last().unwrap();
            assert!(
                last.payload == payload,
                "{} bytes were received instead of {}",
                last.payload.len(),
                payload.len()
            );
            assert_eq!(
                (last.topic.as_str(), last.qos, last.retain),
                (topic, qos, false)
            );
        }
    }

    let records = deployment
        .reader()
        .wait_for(STREAM, TOPIC, published.len(), |record| {
            record.text("mqtt.client_id").starts_with(&run)
        });
    assert_eq!(records.len(), published.len(), "each is stored once");
    for (client_id, payload, qos) in &published {
        let stored: Vec<&Record> = records
            .iter()
            .filter(|record| record.text("mqtt.client_id") == client_id)
            .collect();
        assert_eq!(stored.len(), 1, "{client_id}");
        assert_stored(stored[0], topic, payload, *qos);
    }
    assert_partition_of_key(&deployment, &records, "room_42");
    assert_eq!(subscriber.received().len(), published.len());
}

#[test]
fn a_mosquitto_publish_with_qos_2_ends_without_hanging() {
    let deployment = Deployment::start();
    let output = mosquitto::publish(
        deployment.mqtt(),
        &["-q", "2", "-t", "device/1/x", "-m", "exactly once"],
    );
    // `timeout` ends a client that hangs with 124.
    assert_ne!(output.status.code(), Some(124), "{output:?}");
    assert!(!output.status.success(), "{output:?}");
    assert_eq!(deployment.stored(), []);
}

#[test]
fn paho_for_python_exchanges_every_payload_at_both_qos() {
    let deployment = shipped();
    let client_id = unique_name();
    let topic = "building/north/room/43/temp";
    let payloads = payloads();
    let hex: Vec<String> = payloads
        .iter()
        .map(|payload| payload.iter().map(|byte| format!("{byte:02x}")).collect())
        .collect();
    let file = deployment.files.working_directory().join("payloads");
    let lines: Vec<String> = hex.iter().map(|payload| format!("{payload}\n")).collect();
    fs::write(&file, lines.concat()).unwrap();
    let file = file.display().to_string();
    let arguments = [client_id.as_str(), topic, file.as_str()];
    let result = paho::run("paho_roundtrip.py", deployment.mqtt(), &arguments);

    assert_eq!(result["connections"], serde_json::json!([0]));
    let received = result["received"].as_array().unwrap();
    let expected: Vec<serde_json::Value> = hex
        .iter()
        .flat_map(|payload| {
            [0, 1].map(|qos| {
                serde_json::json!({
                    "topic": topic, "payload": payload, "qos": qos, "retain": false
                })
            })
        })
        .collect();
    assert!(
        received == &expected,
        "received {} messages: {:.2000}",
        received.len(),
        format!("{received:?}")
    );
    let records = deployment
        .reader()
        .wait_for(STREAM, TOPIC, expected.len(), |record| {
            record.text("mqtt.client_id") == client_id
        });
    assert_eq!(records.len(), expected.len(), "each is stored once");
    assert_partition_of_key(&deployment, &records, "room_43");
}

#[test]
fn rumqttc_exchanges_every_payload_at_both_qos() {
    let deployment = shipped();
    let client_id = unique_name();
    let topic = "building/north/room/44/temp";
    let mut options = MqttOptions::new(&client_id, "127.0.0.1", deployment.mqtt().port());
    options.set_keep_alive(Duration::from_secs(10));
    options.set_max_packet_size(1_000_000, 1_000_000);
    let (client, mut connection) = Client::new(options, 100);
    client.subscribe(topic, QoS::AtLeastOnce).unwrap();

    let expected: Vec<(Vec<u8>, QoS)> = payloads()
        .into_iter()
        .flat_map(|payload| {
            [
                (payload.clone(), QoS::AtMostOnce),
                (payload, QoS::AtLeastOnce),
            ]
        })
        .collect();
    let mut received = Vec::new();
    let mut acknowledged = 0;
    let end = Instant::now() + PATIENCE;
    while received.len() < expected.len() || acknowledged < expected.len() / 2 {
        assert!(
            Instant::now() < end,
            "{} messages and {acknowledged} PUBACKs came",
            received.len()
        );
        let Ok(event) = connection.recv_timeout(Duration::from_millis(200)) else {
            continue;
        };
        match event.expect("the connection stays") {
            Event::Incoming(Packet::SubAck(_)) => {
                for (payload, qos) in &expected {
                    client.publish(topic, *qos, false, payload.clone()).unwrap();
                }
            }
            Event::Incoming(Packet::PubAck(_)) => acknowledged += 1,
            Event::Incoming(Packet::Publish(publish)) => {
                assert_eq!(publish.topic, topic);
                received.push((publish.payload.to_vec(), publish.qos));
            }
            _ => {}
        }
    }
    assert!(received == expected, "what was received differs");
    let records = deployment
        .reader()
        .wait_for(STREAM, TOPIC, expected.len(), |record| {
            record.text("mqtt.client_id") == client_id
        });
    assert_eq!(records.len(), expected.len(), "each is stored once");
    assert_partition_of_key(&deployment, &records, "room_44");
}
