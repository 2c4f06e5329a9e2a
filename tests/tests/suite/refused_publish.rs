//! PUBLISH: what closes the connection, and that nothing of it is stored (MQTT 3.1.1, 3.3 and 1.5.3).

use e2e::deployment::Deployment;
use e2e::packet::{self, ConnectFlags, publish, publish_flags, publish_qos0};
use e2e::ports::unique_name;
use e2e::raw::{Answer, RawClient};
use e2e::refusal::{Row, check_connected};
use e2e::wait::PATIENCE;

use crate::refused_connect::bad_text;

const TOPIC: &str = "device/1/x";

#[test]
fn a_publish_that_breaks_a_rule_closes_the_connection_and_is_not_stored() {
    let deployment = Deployment::start();
    check_connected(
        deployment.mqtt(),
        &[
            Row::close("QoS 2", publish_flags(0x34, TOPIC, 1, "x")),
            Row::close("QoS 2 with DUP", publish_flags(0x3C, TOPIC, 1, "x")),
            Row::close("QoS 3", publish_flags(0x36, TOPIC, 1, "x")),
            Row::close(
                "DUP with QoS 0",
                packet::packet(0x38, &packet::string(TOPIC)),
            ),
            Row::close("packet id 0", publish(TOPIC, 0, "x")),
            Row::close("an empty topic, QoS 0", publish_qos0("", "x")),
            Row::close("an empty topic, QoS 1", publish("", 1, "x")),
            Row::close("+ in the topic", publish("device/+/x", 1, "x")),
            Row::close("# in the topic", publish("device/1/#", 1, "x")),
            Row::close("+ in the topic, QoS 0", publish_qos0("a+b", "x")),
            Row::close("no packet id", packet::packet(0x32, &packet::string(TOPIC))),
            Row::close("no topic", packet::packet(0x30, &[])),
            Row::close(
                "a topic longer than the packet",
                [0x30, 0x03, 0x00, 0x09, b'x'],
            ),
            Row::close("half a packet id", {
                let mut body = packet::string(TOPIC);
                body.push(0);
                packet::packet(0x32, &body)
            }),
        ],
    );
    assert_eq!(deployment.stored(), []);
}

#[test]
fn b57_a_topic_that_is_not_utf8_or_holds_u_0000_closes_the_connection_and_is_not_stored() {
    let deployment = Deployment::start();
    let mut rows = Vec::new();
    for (what, bytes) in bad_text() {
        let topic = [b"device/1/".as_slice(), bytes, b"x"].concat();
        rows.push(Row::close(what, publish(&topic, 1, "x")));
        rows.push(Row::close(what, publish_qos0(&topic, "x")));
    }
    check_connected(deployment.mqtt(), &rows);
    assert_eq!(deployment.stored(), []);
}

#[test]
fn b57_u_feff_is_accepted_and_preserved_wherever_there_is_text() {
    let deployment = Deployment::start();
    let (name, topic) = ("\u{feff}id\u{feff}", "device/\u{feff}1/\u{feff}");
    let payload = [
        &packet::string(name)[..],
        &packet::string("\u{feff}user"),
        &packet::string("secret"),
    ];
    let flags = ConnectFlags::CLEAN | ConnectFlags::USER_NAME | ConnectFlags::PASSWORD;
    let mut client = RawClient::open(deployment.mqtt());
    client.send(&packet::connect_with(flags, 0, &payload.concat()));
    client.expect(&packet::CONNECTED);
    client.subscribe(topic, 0);
    client.send(&publish(topic, 1, "x"));
    let mut answers = [PATIENCE; 2].map(|deadline| client.answer(deadline));
    answers.sort_by_key(|answer| matches!(answer, Answer::Packet(bytes) if bytes[0] == 0x40));
    let [delivered, acknowledged] = answers;
    assert_eq!(delivered, Answer::Packet(publish_qos0(topic, "x")));
    assert_eq!(acknowledged, Answer::Packet(packet::puback(1)));
    let stored = deployment.device_records();
    assert_eq!(stored.len(), 1);
    assert_eq!(stored[0].text("mqtt.topic"), topic);
    assert_eq!(stored[0].text("mqtt.client_id"), name);
}

#[test]
fn a_topic_or_filter_over_the_limits_of_length_and_levels_closes_the_connection() {
    let deployment = Deployment::builder()
        .limit("max_topic_length", 40)
        .limit("max_topic_levels", 4)
        .start();
    let long = format!("device/{}", "x".repeat(34));
    let fits = format!("device/1/{}", "x".repeat(31));
    check_connected(
        deployment.mqtt(),
        &[
            Row::close("41 bytes", publish(&long, 1, "x")),
            Row::close("41 bytes, QoS 0", publish_qos0(&long, "x")),
            Row::close("five levels", publish("device/1/2/3/4", 1, "x")),
            Row::close("five empty levels", publish("////", 1, "x")),
            Row::close("a filter of 41 bytes", packet::subscribe(1, &[(&long, 0)])),
            Row::close(
                "a filter of five levels",
                packet::subscribe(1, &[("device/1/2/3/4", 0)]),
            ),
        ],
    );
    assert_eq!(deployment.stored(), []);
    let mut client = deployment.client("client");
    client.publish(&fits, 1, "x");
    client.publish("device/1/2/3", 2, "x");
    deployment.host.wait_for_log(&["max_topic_length"]);
    deployment.host.wait_for_log(&["max_topic_levels"]);
}

/// Publishes to `topic`, which has no place in Iggy, with QoS 1, and checks that it is acknowledged, that it is in the
/// dead-letter topic for the given reason, and that nothing of it is stored in the deployment's stream and `others`.
pub(crate) fn expect_unstorable(
    deployment: &Deployment,
    topic: &str,
    reason: &str,
    others: &[&str],
) {
    let payload = unique_name();
    let mut client = deployment.client("unstorable");
    client.publish(topic, 1, &payload);
    let mut letters = deployment.dead_letters();
    letters.retain(|letter| letter.payload_text() == payload);
    assert_eq!(letters.len(), 1, "{topic}");
    assert_eq!(letters[0].text("mqtt.topic"), topic);
    assert_eq!(letters[0].text("mqtt.client_id"), "unstorable");
    assert_eq!(letters[0].text("mqtt.refused"), reason, "{topic}");
    for stream in others.iter().chain([&deployment.stream()]) {
        for record in deployment.reader().stream_records(stream) {
            let stored = record.payload_text() == payload;
            assert!(!stored, "{topic} was stored in {stream}");
        }
    }
}

#[test]
fn a_publish_that_no_rule_maps_goes_to_the_dead_letter_topic_with_either_qos() {
    let deployment = Deployment::builder().refuse_unmatched().start();
    let mut client = deployment.client("qos0");
    client.send(&publish_qos0("unmapped/topic", "x"));
    client.ping();
    client.publish(TOPIC, 1, "stored");

    expect_unstorable(&deployment, "unmapped/topic", "no_rule", &[]);
    let stored = deployment.stored();
    assert_eq!(stored.len(), 1);
    assert_eq!(stored[0].payload_text(), "stored");
    let letters = deployment.dead_letters();
    assert_eq!(letters.len(), 2);
    assert_eq!(letters[0].text("mqtt.client_id"), "qos0");
}
