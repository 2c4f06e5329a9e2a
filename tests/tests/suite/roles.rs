//! The source and the sink as roles of one gateway: each alone, each restarted alone, and both with differing settings.

use e2e::config::{self, Files, GATEWAY, SINK, SOURCE};
use e2e::deployment::Deployment;
use e2e::host::Kind;
use e2e::packet;
use e2e::raw::PROMPT;

const TOPIC: &str = "device/1/x";

#[test]
fn a_source_without_a_sink_stores_and_refuses_subscriptions() {
    let deployment = Deployment::builder().without(SINK).start();
    let mut client = deployment.client("client");
    client.send(&packet::subscribe(1, &[(TOPIC, 1), ("device/2/x", 0)]));
    client.expect(&packet::suback(1, &[0x80, 0x80]));
    client.publish(TOPIC, 2, "stored");
    assert_eq!(deployment.device_records().len(), 1);
}

#[test]
fn a_sink_without_a_source_delivers_and_refuses_publishes() {
    let deployment = Deployment::builder().without(SOURCE).start();
    let mut client = deployment.client("subscriber");
    client.send(&packet::publish_qos0(TOPIC, "dropped"));
    client.ping();
    client.subscribe(TOPIC, 1);

    let mut publisher = deployment.client("publisher");
    publisher.send(&packet::publish(TOPIC, 1, "refused"));
    publisher.expect_closed(PROMPT);
    client.ping();
    assert_eq!(deployment.stored(), []);
}

#[test]
fn a_restart_of_the_source_keeps_the_connections_of_subscribers_and_publishing_goes_on() {
    let deployment = Deployment::start();
    let key = deployment.files.connector_key(SOURCE);
    let mut subscriber = deployment.client("subscriber");
    subscriber.subscribe(TOPIC, 0);
    let mut publisher = deployment.client("publisher");
    publisher.publish(TOPIC, 1, "before");
    assert_eq!(subscriber.expect_publish().payload, b"before");

    deployment.host.restart_connector(Kind::Source, &key);
    subscriber.ping();
    publisher.publish(TOPIC, 2, "after");
    assert_eq!(subscriber.expect_publish().payload, b"after");
    assert_eq!(deployment.sink_status(), "running");
}

#[test]
fn a_restart_of_the_sink_keeps_the_connections_of_publishers_and_delivery_goes_on() {
    let deployment = Deployment::start();
    let key = deployment.files.connector_key(SINK);
    let mut publisher = deployment.client("publisher");
    publisher.publish(TOPIC, 1, "before");

    deployment.host.restart_connector(Kind::Sink, &key);
    publisher.publish(TOPIC, 2, "after");
    assert_eq!(deployment.source_status(), "running");
    let mut subscriber = deployment.client("subscriber");
    subscriber.subscribe(TOPIC, 0);
    publisher.publish(TOPIC, 3, "to the new subscriber");
    assert_eq!(
        subscriber.expect_publish().payload,
        b"to the new subscriber"
    );
}

#[test]
fn both_restarted_again_and_again_still_serve() {
    let deployment = Deployment::start();
    let source = deployment.files.connector_key(SOURCE);
    let sink = deployment.files.connector_key(SINK);
    let mut publisher = deployment.client("publisher");
    for round in 1..=3 {
        deployment.host.restart_connector(Kind::Source, &source);
        deployment.host.restart_connector(Kind::Sink, &sink);
        publisher.publish(TOPIC, round, round.to_string());
        let mut subscriber = deployment.client("subscriber");
        subscriber.subscribe(TOPIC, 0);
        let fresh = format!("fresh {round}");
        publisher.publish(TOPIC, round + 100, &fresh);
        // In the last round there was a subscriber when the sink ended, so what was stored since then is for those who come
        // soon.
        let mut older = 0;
        while subscriber.expect_publish().payload != fresh.as_bytes() {
            older += 1;
        }
        assert!(older < 2 * round, "round {round}: {older}");
    }
    assert_eq!(deployment.device_records().len(), 6);
}

/// Gives the sink a gateway file of its own with other values.
fn let_the_sink_disagree(files: &Files) {
    files.write("gateway-of-the-sink.toml", &files.read(GATEWAY));
    files.set(
        "gateway-of-the-sink.toml",
        &["limits", "receive_window"],
        17,
    );
    files.set("gateway-of-the-sink.toml", &["iggy_grace"], "7s");
    let path = files.path("gateway-of-the-sink.toml");
    files.set(
        SINK,
        &["plugin_config", "config"],
        path.display().to_string(),
    );
}

#[test]
fn a_sink_that_disagrees_with_its_source_fails_with_the_names_of_the_keys() {
    let deployment = Deployment::builder().start_with(let_the_sink_disagree);
    let key = deployment.files.connector_key(config::SINK);
    deployment.host.wait_for_status(Kind::Sink, &key, "error");
    assert_eq!(deployment.source_status(), "running");
    deployment
        .host
        .wait_for_log(&["receive_window", "iggy_grace"]);

    // The source serves as if it were alone.
    let mut client = deployment.client("client");
    client.publish(TOPIC, 1, "stored");
    client.send(&packet::subscribe(2, &[(TOPIC, 1)]));
    client.expect(&packet::suback(2, &[0x80]));
}

#[test]
fn a_source_and_a_sink_of_different_gateways_have_a_listener_each() {
    let port = e2e::ports::free_port();
    let deployment = Deployment::builder()
        .settings_in_files()
        .start_with(|files| {
            files.write("second.toml", &files.read(GATEWAY));
            files.set("second.toml", &["name"], "second");
            files.set("second.toml", &["listen"], format!("127.0.0.1:{port}"));
            let path = files.path("second.toml").display().to_string();
            files.set(SINK, &["plugin_config", "config"], path);
        });
    deployment.wait_until_running();
    let second = std::net::SocketAddr::from((std::net::Ipv4Addr::LOCALHOST, port));
    let mut subscriber = e2e::raw::RawClient::connect(second, "subscriber");
    subscriber.subscribe(TOPIC, 1);
    let mut publisher = deployment.client("publisher");
    publisher.publish(TOPIC, 1, "from one to the other");
    assert_eq!(
        subscriber.expect_publish().payload,
        b"from one to the other"
    );
}
