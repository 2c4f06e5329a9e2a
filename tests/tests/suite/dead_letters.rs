//! Messages that can never be stored where they should: the dead-letter topic, or the end of their connection (B05: never
//! silence).

use std::time::{Duration, Instant};

use e2e::binaries;
use e2e::config::{SOURCE, Target, map_of_refusals};
use e2e::deployment::{Builder, Deployment};
use e2e::packet::{self, publish, publish_qos0};
use e2e::raw::{Answer, PROMPT, RawClient};
use e2e::records::Record;
use e2e::wait::{self, PATIENCE};

const TOPIC: &str = "device/1/x";
const UNMAPPED: &str = "unmapped/topic";
/// CONNACK 0x03: the server is unavailable.
const UNAVAILABLE: [u8; 4] = [0x20, 2, 0, 3];

fn payloads(records: &[Record]) -> Vec<String> {
    records.iter().map(Record::payload_text).collect()
}

#[test]
fn every_reason_stands_in_the_dead_letter_and_the_message_is_acknowledged_among_its_neighbours() {
    let builder = Deployment::builder();
    let stream = builder.stream().to_owned();
    let deployment = builder
        .map(map_of_refusals(&stream))
        .target(&stream, "dynamic_first", 1)
        .start();
    let mut client = deployment.client("device-1");
    client.publish("dynamic/first", 1, "the only one of its rule");

    let long = format!("dynamic/{}", "x".repeat(300));
    let cases = [
        (UNMAPPED, "no_rule", ""),
        ("$unmapped/topic", "dollar_topic", ""),
        ("guarded/missing", "no_target", "rule 2"),
        (&long, "invalid_name", ""),
        ("dynamic/second", "too_many_targets", "rule 3"),
    ];
    // All at once, so that what waits for Iggy and what does not are to be told apart.
    let mut bytes = Vec::new();
    for (id, (topic, reason, _)) in (10..).step_by(3).zip(cases) {
        bytes.extend(publish(TOPIC, id, format!("before {reason}")));
        bytes.extend(publish(topic, id + 1, reason));
        bytes.extend(publish_qos0(topic, format!("{reason}, QoS 0")));
        bytes.extend(publish(TOPIC, id + 2, format!("after {reason}")));
    }
    client.send(&bytes);
    for id in (10..).take(3 * cases.len()) {
        client.expect(&packet::puback(id));
    }

    let letters = wait::value("the dead letters", PATIENCE, || {
        let letters = deployment.dead_letters();
        (letters.len() >= 2 * cases.len()).then_some(letters)
    });
    for (topic, reason, rule) in cases {
        let mut letters = letters.clone();
        // A header holds 255 bytes; the rest of a long topic is in others.
        letters.retain(|letter| letter.text("mqtt.topic") == &topic[..topic.len().min(255)]);
        assert_eq!(
            payloads(&letters),
            [reason.to_owned(), format!("{reason}, QoS 0")]
        );
        for letter in letters {
            assert_eq!(letter.text("mqtt.refused"), reason);
            assert_eq!(letter.text("mqtt.refused.rule"), rule, "{reason}");
            assert_eq!(letter.text("mqtt.client_id"), "device-1");
        }
    }
    let stored = deployment.device_records();
    assert_eq!(stored.len(), 2 * cases.len());
    assert!(
        stored
            .iter()
            .all(|record| record.text("mqtt.refused").is_empty())
    );

    let line =
        deployment
            .host
            .wait_for_log(&["WARN", "publish refused", "device-1", UNMAPPED, "no_rule"]);
    assert!(line.contains("127.0.0.1"), "no address in {line}");
    for (_, reason, _) in cases {
        let payload = format!("{reason}, QoS 0");
        assert!(
            !deployment.host.log().contains(&payload),
            "a payload is logged"
        );
    }
}

#[test]
fn a_topic_that_promises_less_than_its_rule_asks_for_is_refused_where_the_operator_wants_it() {
    let builder = Deployment::builder();
    let stream = builder.stream().to_owned();
    let deployment = builder
        .map(map_of_refusals(&stream))
        .existing(Target::new(&stream, "guarded_weak", 1).committed_only())
        .gateway("on_weak_durability", "refuse")
        .start_with(|_| {});
    if !deployment.iggy.creates_topics() {
        binaries::skipped(
            "on_weak_durability = refuse",
            "this Iggy is too old for the option, so every topic is weak",
        );
        return;
    }
    deployment.wait_until_running();
    let mut client = deployment.client("publisher");
    client.publish("guarded/weak", 1, "x");
    let letters = deployment.dead_letters();
    assert_eq!(payloads(&letters), ["x"]);
    assert_eq!(letters[0].text("mqtt.refused"), "weak_durability");
    assert_eq!(letters[0].text("mqtt.refused.rule"), "rule 2");
}

#[test]
fn dead_letters_go_to_the_topic_that_is_configured_with_who_and_where_although_headers_are_narrowed()
 {
    let builder = Deployment::builder();
    let (stream, other) = (
        builder.stream().to_owned(),
        format!("{}_other", builder.stream()),
    );
    let deployment = builder
        .map(map_of_refusals(&stream))
        .gateway("dead_letter_stream", other.clone())
        .gateway("dead_letter_topic", "not stored")
        .target(&other, "not stored", 1)
        .gateway("headers", toml::Value::Array(Vec::new()))
        .start();
    let mut client = deployment.client("publisher");
    client.publish("guarded/missing", 1, "x");
    let letters = deployment.reader().records(&other, "not stored");
    assert_eq!(payloads(&letters), ["x"]);
    let headers: Vec<&str> = letters[0].headers.keys().map(String::as_str).collect();
    assert_eq!(
        headers,
        [
            "mqtt.client_id",
            "mqtt.refused",
            "mqtt.refused.rule",
            "mqtt.topic"
        ]
    );
    assert_eq!(deployment.dead_letters(), []);
}

#[test]
fn a_dead_letter_waits_for_iggy_as_every_message_does() {
    let deployment = Deployment::builder().proxied().refuse_unmatched().start();
    let mut client = deployment.client("publisher");
    client.publish(TOPIC, 1, "warm");
    deployment.proxy().hold_replies();
    client.send(&publish(UNMAPPED, 2, "refused"));
    client.send(&publish(TOPIC, 3, "stored"));
    client.ping();
    client.expect_silence(Duration::from_secs(2));
    deployment.proxy().cut();
    deployment.proxy().release();
    client.expect_within(&packet::puback(2), Duration::from_secs(60));
    client.expect(&packet::puback(3));
    let letters = deployment.dead_letters();
    assert!(!letters.is_empty());
    assert!(letters.iter().all(|letter| letter.id == letters[0].id));
}

#[test]
fn what_was_refused_can_be_published_again_when_its_cause_is_mended() {
    let builder = Deployment::builder();
    let stream = builder.stream().to_owned();
    let deployment = builder.map(map_of_refusals(&stream)).start();
    let mut client = deployment.client("publisher");
    client.publish("guarded/1", 1, "first");
    client.publish("guarded/1", 2, "second");
    deployment.iggy.make(&Target::new(&stream, "guarded_1", 1));
    client.publish("guarded/1", 3, "third");
    for (id, letter) in (10..).zip(deployment.dead_letters()) {
        client.publish(letter.text("mqtt.topic"), id, &letter.payload);
    }
    let stored = deployment.reader().records(&stream, "guarded_1");
    assert_eq!(payloads(&stored), ["third", "first", "second"]);
    assert_eq!(payloads(&deployment.dead_letters()), ["first", "second"]);
}

#[test]
fn a_dead_letter_topic_that_was_deleted_is_made_again() {
    let deployment = Deployment::builder().refuse_unmatched().start();
    if !deployment.iggy.creates_topics() {
        binaries::skipped(
            "a deleted dead-letter topic",
            "this Iggy does not let the gateway create topics",
        );
        return;
    }
    let mut client = deployment.client("publisher");
    client.publish(UNMAPPED, 1, "1");
    deployment
        .reader()
        .delete_stream(&format!("{}_refused", deployment.stream()));
    client.publish(UNMAPPED, 2, "2");
    assert_eq!(payloads(&deployment.dead_letters()), ["2"]);
}

#[test]
fn dead_letters_are_stored_no_faster_than_their_rate_and_others_are_served_meanwhile() {
    const RATE: usize = 10;
    let deployment = Deployment::builder()
        .refuse_unmatched()
        .limit("dead_letter_rate", i64::try_from(RATE).unwrap())
        .start();
    let mut flood = deployment.client("flood");
    let start = Instant::now();
    for id in 1..=60 {
        flood.send(&publish(UNMAPPED, id, format!("{id}")));
    }
    let mut other = deployment.client("other");
    for id in 1..=5 {
        other.publish(TOPIC, id, "mine");
    }
    for id in 1..=60 {
        flood.expect(&packet::puback(id));
    }
    // The first second's worth may go at once.
    assert!(
        start.elapsed() >= Duration::from_secs(4),
        "{:?}",
        start.elapsed()
    );
    assert_eq!(deployment.dead_letters().len(), 60);

    let start = Instant::now();
    for _ in 0..500 {
        flood.send(&publish_qos0(UNMAPPED, "QoS 0"));
    }
    flood.publish(UNMAPPED, 100, "last");
    let letters = deployment.dead_letters().len() - 61;
    let allowed = RATE * (start.elapsed().as_secs() as usize + 3);
    assert!(letters <= allowed, "{letters} in {:?}", start.elapsed());
}

fn closing() -> Builder {
    Deployment::builder()
        .refuse_unmatched()
        .gateway("on_unstorable", "close")
}

#[test]
fn with_close_a_qos_1_message_without_a_place_ends_its_connection_and_a_qos_0_one_is_dropped() {
    let deployment = closing().start();
    let mut client = deployment.client("publisher");
    client.send(&publish_qos0(UNMAPPED, "dropped"));
    client.publish(TOPIC, 1, "stored");
    client.send(&publish(TOPIC, 2, "stored"));
    client.send(&publish(UNMAPPED, 3, "refused"));
    client.send(&publish(TOPIC, 4, "perhaps"));
    // What was published before is acknowledged before the end.
    client.expect(&packet::puback(2));
    client.expect_closed(PROMPT);
    assert_eq!(deployment.dead_letters(), []);
    let stored = payloads(&deployment.stored());
    assert!(
        stored
            .iter()
            .all(|payload| payload != "refused" && payload != "dropped")
    );
    deployment
        .host
        .wait_for_log(&["WARN", "publish refused", "publisher", UNMAPPED, "no_rule"]);
}

/// Connects as `client_id` and says whether the gateway lets it in.
fn is_let_in(deployment: &Deployment, client_id: &str) -> Option<RawClient> {
    let mut client = RawClient::open(deployment.mqtt());
    client.send(&packet::connect(client_id, 0));
    match client.answer(PATIENCE) {
        Answer::Packet(bytes) if bytes == packet::CONNECTED => Some(client),
        Answer::Packet(bytes) if bytes == UNAVAILABLE => {
            client.expect_closed(PROMPT);
            None
        }
        other => panic!("CONNECT was answered with {other:02x?}"),
    }
}

#[test]
fn b05_a_client_that_is_closed_again_and_again_is_told_that_the_server_is_unavailable_for_a_while()
{
    let bad_packets = [
        ("refused", publish(UNMAPPED, 1, "x")),
        ("a protocol error", publish("device/+/x", 1, "x")),
    ];
    for (what, bad) in bad_packets {
        let deployment = closing()
            .limit("flap_limit", 3)
            .limit("flap_pause", "3s")
            .start();
        for time in 1..=3 {
            let mut client = is_let_in(&deployment, "flapping")
                .unwrap_or_else(|| panic!("{what}: kept out after {time} closes"));
            client.send(&bad);
            client.expect_closed(PROMPT);
        }
        let kept_out = Instant::now();
        assert!(is_let_in(&deployment, "flapping").is_none(), "{what}");
        deployment.host.wait_for_log(&["flapping", "flap_limit"]);
        // Others are not, and it is served when its time is over.
        is_let_in(&deployment, "another")
            .unwrap()
            .publish(TOPIC, 1, "x");
        let mut client = wait::value("it is let in again", PATIENCE, || {
            is_let_in(&deployment, "flapping")
        });
        assert!(kept_out.elapsed() > Duration::from_secs(2), "{what}");
        client.publish(TOPIC, 1, "x");
    }
}

#[test]
fn with_flap_limit_0_nobody_is_kept_out() {
    let deployment = closing().limit("flap_limit", 0).start();
    for _ in 0..10 {
        let mut client = is_let_in(&deployment, "flapping").expect("it is let in");
        client.send(&publish(UNMAPPED, 1, "x"));
        client.expect_closed(PROMPT);
    }
}

#[test]
fn b05_a_message_that_may_not_be_published_is_acknowledged_or_its_connection_closed() {
    for on_denied in ["close", "acknowledge"] {
        let deployment = Deployment::builder()
            .gateway("on_denied", on_denied)
            .without(SOURCE)
            .start();
        let mut client = deployment.client("publisher");
        client.send(&publish_qos0(TOPIC, "QoS 0"));
        client.ping();
        client.send(&publish(TOPIC, 1, "QoS 1"));
        match on_denied {
            "close" => client.expect_closed(PROMPT),
            _ => {
                client.expect(&packet::puback(1));
                client.ping();
            }
        }
        assert_eq!(deployment.stored(), []);
        assert_eq!(deployment.dead_letters(), []);
    }
}
