//! What an operator gets wrong: the connector is shown as failed, one line of the log says where and what to do, and the
//! other connectors of the same host serve as before.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use e2e::config::{Files, GATEWAY, SOURCE, TOPIC_MAP};
use e2e::deployment::Deployment;
use e2e::host::Kind;

/// The connector that is to fail, beside the two shipped ones.
const BROKEN_CONNECTOR: &str = "connectors/broken_source.toml";
/// Its gateway file.
const BROKEN: &str = "broken.toml";
const KEY: &str = "broken_source";
const TOPIC: &str = "device/1/x";

/// Adds a source of a second gateway, whose files are good so far.
fn add_second_gateway(files: &Files) {
    files.write(BROKEN_CONNECTOR, &files.read(SOURCE));
    files.set(BROKEN_CONNECTOR, &["key"], KEY);
    files.set(BROKEN_CONNECTOR, &["name"], "The broken one");
    files.set(
        BROKEN_CONNECTOR,
        &["path"],
        e2e::binaries::plugin().display().to_string(),
    );
    files.set(
        BROKEN_CONNECTOR,
        &["plugin_config", "config"],
        files.path(BROKEN).display().to_string(),
    );
    files.write(BROKEN, &files.read(GATEWAY));
    files.set(BROKEN, &["name"], "second");
    files.set(
        BROKEN,
        &["listen"],
        format!("127.0.0.1:{}", e2e::ports::free_port()),
    );
}

/// Starts with a second gateway that `spoil` makes unusable, and checks that only its connector fails.
fn start_with_broken(spoil: impl FnOnce(&Files)) -> Deployment {
    let deployment = Deployment::builder()
        .settings_in_files()
        .start_with(|files| {
            add_second_gateway(files);
            spoil(files);
        });
    deployment.host.wait_for_status(Kind::Source, KEY, "error");
    let message = deployment.host.connector(Kind::Source, KEY);
    assert!(
        message["last_error"]["message"]
            .as_str()
            .is_some_and(|message| !message.is_empty()),
        "{message}"
    );
    deployment.wait_until_running();
    let mut client = deployment.client("client");
    client.subscribe(TOPIC, 0);
    client.send(&e2e::packet::publish_qos0(TOPIC, "untouched"));
    assert_eq!(client.expect_publish().payload, b"untouched");
    deployment
}

#[test]
fn a_second_gateway_with_good_files_runs_beside_the_first() {
    let deployment = Deployment::builder()
        .settings_in_files()
        .start_with(add_second_gateway);
    deployment.wait_until_running();
    deployment
        .host
        .wait_for_status(Kind::Source, KEY, "running");
}

#[test]
fn a_missing_gateway_file_is_named() {
    let deployment = start_with_broken(|files| files.remove(BROKEN));
    deployment.host.wait_for_log(&["ERROR", BROKEN]);
}

#[test]
fn a_broken_gateway_file_is_named_with_the_line() {
    let deployment = start_with_broken(|files| {
        files.write(BROKEN, "name = \"second\"\nlisten = \n");
    });
    deployment.host.wait_for_log(&["ERROR", BROKEN, "2"]);
}

#[test]
fn an_unknown_key_is_named_with_the_one_that_was_probably_meant() {
    let deployment = start_with_broken(|files| files.set(BROKEN, &["lisen"], "127.0.0.1:1"));
    deployment
        .host
        .wait_for_log(&["ERROR", BROKEN, "lisen", "listen"]);
}

#[test]
fn a_value_out_of_range_is_named_with_file_and_key() {
    let deployment = start_with_broken(|files| files.set(BROKEN, &["limits", "receive_window"], 0));
    deployment
        .host
        .wait_for_log(&["ERROR", BROKEN, "receive_window"]);
}

#[test]
fn a_header_that_does_not_exist_is_named_with_those_that_do() {
    let names = vec!["client_id", "colour"];
    let deployment = start_with_broken(|files| files.set(BROKEN, &["headers"], names));
    deployment
        .host
        .wait_for_log(&["ERROR", BROKEN, "headers", "colour", "packet_id"]);
}

#[test]
fn a_port_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let deployment = start_with_broken(|files| files.set(BROKEN, &["listen"], address.clone()));
    deployment.host.wait_for_log(&["ERROR", "listen", &address]);
}

#[test]
fn a_wrong_iggy_password_is_said_without_showing_it() {
    let deployment = start_with_broken(|files| {
        files.set(BROKEN, &["iggy_password"], "not-the-password");
    });
    deployment.host.wait_for_log(&["ERROR", "iggy_password"]);
    assert!(!deployment.host.log().contains("not-the-password"));
}

#[test]
fn an_iggy_that_cannot_be_reached_is_given_up_after_the_start_timeout() {
    let port = e2e::ports::free_port();
    let start = Instant::now();
    let deployment = start_with_broken(|files| {
        files.set(BROKEN, &["iggy_address"], format!("127.0.0.1:{port}"));
        files.set(BROKEN, &["iggy_start_timeout"], "2s");
    });
    assert!(
        start.elapsed() < Duration::from_secs(25),
        "{:?}",
        start.elapsed()
    );
    deployment
        .host
        .wait_for_log(&["ERROR", "iggy_address", &port.to_string()]);
}

#[test]
fn a_rule_that_does_not_compile_is_named_with_file_line_and_key() {
    let deployment = start_with_broken(|files| {
        let map = files.read(TOPIC_MAP).replace(
            "mqtt_topic = 'device/([^/]+)/.*'",
            "mqtt_topic = 'device/([^/]+/.*'",
        );
        files.write("broken-map.toml", &map);
        let path = files.path("broken-map.toml").display().to_string();
        files.set(BROKEN, &["topic_map"], path);
    });
    deployment
        .host
        .wait_for_log(&["ERROR", "broken-map.toml", "mqtt_topic"]);
}

#[test]
fn everything_wrong_with_a_topic_map_is_said_at_once() {
    let deployment = start_with_broken(|files| {
        files.write(
            "broken-map.toml",
            "on_unmatched = 'refuse'\n\
             [[rule]]\n\
             mqtt_topic = 'a/(b'\n\
             stream = 's'\n\
             topic = 't'\n\
             [[rule]]\n\
             mqtt_topic = 'c/.*'\n\
             stream = 's'\n\
             topic = 't$9'\n\
             [[rule]]\n\
             mqtt_topic = 'd/.*'\n\
             stream = 's'\n\
             topik = 't'\n",
        );
        let path = files.path("broken-map.toml").display().to_string();
        files.set(BROKEN, &["topic_map"], path);
    });
    for part in ["rule 1 mqtt_topic", "$9", "topik"] {
        let log = deployment.host.log();
        assert!(log.contains(part), "the log does not name `{part}`");
    }
}
