//! Every outcome of a PUBLISH can be brought about, and the metrics say so (N7).

use std::net::SocketAddr;
use std::time::Duration;

use e2e::config::{SOURCE, Target, map_of_refusals};
use e2e::deployment::Deployment;
use e2e::host::Kind;
use e2e::metrics::{Metrics, wait_for};
use e2e::packet::{self, publish, publish_qos0};
use e2e::raw::PROMPT;
use e2e::wait;

const TOPIC: &str = "device/1/x";
const PATIENCE: Duration = Duration::from_secs(30);

fn outcome(name: &str) -> String {
    format!("publishes_total{{outcome=\"{name}\"}}")
}

/// Waits until refusals were counted for exactly these reasons, once each.
fn wait_for_reasons(http: SocketAddr, reasons: &[&str]) -> Metrics {
    let expected = reasons.iter().map(|name| ((*name).to_owned(), 1)).collect();
    wait::value(&format!("refused for {reasons:?}"), PATIENCE, || {
        let metrics = Metrics::of(http);
        (metrics.by_label("publishes_refused_total") == expected).then_some(metrics)
    })
}

/// N7: when nothing is on its way, everything that was received has ended in one way.
fn assert_adds_up(metrics: &Metrics) {
    let sum = |name| metrics.by_label(name).into_values().sum::<u64>();
    assert_eq!(sum("publishes_received_total"), sum("publishes_total"));
}

#[test]
fn n7_every_refusal_that_a_device_can_bring_about_moves_its_metric() {
    let builder = Deployment::builder();
    let stream = builder.stream().to_owned();
    let deployment = builder
        .map(map_of_refusals(&stream))
        .target(&stream, "dynamic_first", 1)
        .existing(Target::new(&stream, "guarded_weak", 1).committed_only())
        .gateway("on_weak_durability", "refuse")
        .gateway("on_denied", "acknowledge")
        .gateway("acl_file", "own-acl.toml")
        .start_with(|files| {
            files.write(
                "own-acl.toml",
                "[[rule]]\neffect = 'deny'\npublish = ['secret/#']\n\n[[rule]]\npublish = ['#', '$unmapped/#']\nsubscribe = ['#']\n",
            );
        });
    let http = deployment.http();
    let mut client = deployment.client("device-1");
    let long = format!("dynamic/{}", "x".repeat(300));
    let mut cases = vec![
        ("unmapped/topic", "no_rule"),
        ("$unmapped/topic", "dollar_topic"),
        (&long, "invalid_name"),
        ("guarded/missing", "no_target"),
        ("secret/x", "not_allowed"),
    ];
    if deployment.iggy.creates_topics() {
        cases.insert(0, ("guarded/weak", "weak_durability"));
    }
    cases.push(("dynamic/second", "too_many_targets"));
    for (id, (topic, name)) in (10..).zip(&cases) {
        if *name == "too_many_targets" {
            client.publish("dynamic/first", 1, "the only one within the bounds");
        }
        client.send(&publish(topic, id, name));
        client.expect(&packet::puback(id));
    }
    let reasons: Vec<_> = cases.iter().map(|(_, name)| *name).collect();
    let metrics = wait_for_reasons(http, &reasons);
    let kept = metrics.by_label("dead_letters_total");
    let expected = [("stored".to_owned(), cases.len() as u64 - 1)];
    assert_eq!(kept, expected.into(), "all but what was denied");
    assert_adds_up(&metrics);
}

#[test]
fn n7_what_iggy_refuses_moves_the_metric_of_its_reason() {
    // Iggy's numbers: no permission, payload too large, feature not available.
    for (status, name) in [(41, "not_permitted"), (4_022, "too_large"), (5, "rejected")] {
        let deployment = Deployment::builder()
            .mangled()
            .gateway("on_unstorable", "close")
            .start();
        let mut client = deployment.client("device-1");
        client.publish(TOPIC, 1, "stored");
        deployment.mangler().answer_appends(Some(status));
        client.send(&publish(TOPIC, 2, "refused"));
        client.expect_closed(PROMPT);
        assert_adds_up(&wait_for_reasons(deployment.http(), &[name]));
    }
}

#[test]
fn n7_stored_protocol_error_shed_and_failed_move_their_metrics() {
    let deployment = Deployment::builder()
        .proxied()
        .limit("max_packet_size", "64 KiB")
        .limit("ingest_bytes", "64 KiB")
        .gateway("iggy_grace", "1h")
        .gateway("shutdown_grace", "100ms")
        .start();
    let http = deployment.http();
    let mut client = deployment.client("device-1");
    client.publish(TOPIC, 1, "stored");
    client.send(&publish_qos0(TOPIC, "stored"));
    wait_for(http, &outcome("stored"), 2.0, PATIENCE);

    let mut broken = deployment.client("broken");
    // QoS 2 is not served.
    broken.send(&packet::publish_flags(0x34, TOPIC, 1, "x"));
    broken.expect_closed(PROMPT);
    wait_for(http, &outcome("protocol_error"), 1.0, PATIENCE);

    deployment.proxy().hold_replies();
    let large = "x".repeat(8_000);
    for _ in 0..16 {
        client.send(&publish_qos0(TOPIC, &large));
    }
    wait_for(http, &outcome("shed"), 1.0, PATIENCE);

    // What waits when the source ends, and is not done within shutdown_grace, has failed.
    let key = deployment.files.connector_key(SOURCE);
    let mut waiting = deployment.client("waits");
    waiting.send(&publish(TOPIC, 1, "x"));
    deployment.host.restart_connector(Kind::Source, &key);
    wait_for(http, &outcome("failed"), 1.0, PATIENCE);
    deployment.proxy().release();
    let last = wait::value("everything has ended", PATIENCE, || {
        let metrics = Metrics::of(http);
        let waiting = metrics.beginning("ingest_waiting_bytes");
        let is_done = waiting.iter().all(|(_, bytes)| *bytes < 0.5);
        (is_done && !waiting.is_empty()).then_some(metrics)
    });
    assert_adds_up(&last);
    assert_eq!(deployment.source_status(), "running");
}

#[test]
fn n7_without_a_source_a_publish_moves_the_metric_of_that_reason() {
    let deployment = Deployment::builder().without(SOURCE).start();
    let mut client = deployment.client("device-1");
    client.send(&publish_qos0(TOPIC, "dropped"));
    let name = "publishes_refused_total{reason=\"no_ingest_role\"}";
    wait_for(deployment.http(), name, 1.0, PATIENCE);
    client.send(&publish(TOPIC, 1, "refused"));
    client.expect_closed(PROMPT);
    wait_for(deployment.http(), name, 2.0, PATIENCE);
    assert_adds_up(&Metrics::of(deployment.http()));
}
