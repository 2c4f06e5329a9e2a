//! Reading connector files: keys, the environment, versions, and which files count.

use iggy_connector_sdk::Schema;
use serde_json::json;

use super::*;

const SOURCE: &str = r#"
type = "source"
key = "mqtt_source"
enabled = true
version = 0
name = "MQTT source"
path = "plugin"

[[streams]]
stream = "sensors"
topic = "messages_default"
schema = "raw"

[plugin_config]
config = "gateway.toml"
"#;

const SINK: &str = r#"
type = "sink"
key = "mqtt_sink"
enabled = true
version = 0
name = "MQTT sink"
path = "plugin"
streams = []
"#;

fn environment(variables: &[(&str, &str)]) -> Environment {
    variables
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

fn files(texts: &[&str], environment: &Environment) -> ConnectorFiles {
    let mut files = ConnectorFiles::default();
    for text in texts {
        files
            .add(text, Path::new("file.toml"), environment)
            .unwrap();
    }
    files
}

#[test]
fn a_source_and_a_sink_without_streams_are_read() {
    let files = files(&[SOURCE, SINK], &Environment::default());
    let source = &files.sources()["mqtt_source"];
    assert_eq!(source.streams[0].topic, "messages_default");
    assert!(matches!(source.streams[0].schema, Schema::Raw));
    assert_eq!(
        source.plugin_config,
        Some(json!({"config": "gateway.toml"}))
    );
    let sink = &files.sinks()["mqtt_sink"];
    assert!(sink.streams.is_empty());
    assert_eq!(sink.plugin_config, None);
}

#[test]
fn the_environment_overrides_keys_of_the_file() {
    let files = files(
        &[SOURCE],
        &environment(&[
            ("IGGY_CONNECTORS_SOURCE_MQTT_SOURCE_ENABLED", "false"),
            ("IGGY_CONNECTORS_SOURCE_MQTT_SOURCE_PATH", "/other.so"),
            ("IGGY_CONNECTORS_SOURCE_MQTT_SOURCE_STREAMS_0_STREAM", "s"),
            ("IGGY_CONNECTORS_SOURCE_MQTT_SOURCE_STREAMS_0_TOPIC", "t"),
            (
                "IGGY_CONNECTORS_SOURCE_MQTT_SOURCE_STREAMS_0_SCHEMA",
                "text",
            ),
            ("IGGY_CONNECTORS_SINK_MQTT_SOURCE_NAME", "not this one"),
        ]),
    );
    let source = &files.sources()["mqtt_source"];
    assert!(!source.enabled);
    assert_eq!(source.path, "/other.so");
    assert_eq!(source.name, "MQTT source");
    assert_eq!(source.streams.len(), 1);
    assert_eq!(source.streams[0].stream, "s");
    assert!(matches!(source.streams[0].schema, Schema::Text));
}

#[test]
fn plugin_config_overrides_are_flat_typed_keys_and_make_the_table_when_it_is_missing() {
    let variables = environment(&[
        (
            "IGGY_CONNECTORS_SOURCE_MQTT_SOURCE_PLUGIN_CONFIG_IGGY_ADDRESS",
            "iggy:8090",
        ),
        (
            "IGGY_CONNECTORS_SOURCE_MQTT_SOURCE_PLUGIN_CONFIG_CONFIG",
            "other.toml",
        ),
        (
            "IGGY_CONNECTORS_SINK_MQTT_SINK_PLUGIN_CONFIG_LIMITS_SEND_WINDOW",
            "7",
        ),
        ("IGGY_CONNECTORS_SINK_MQTT_SINK_PLUGIN_CONFIG_ON", "true"),
        ("IGGY_CONNECTORS_SINK_MQTT_SINK_PLUGIN_CONFIG_EMPTY", ""),
    ]);
    let files = files(&[SOURCE, SINK], &variables);
    assert_eq!(
        files.sources()["mqtt_source"].plugin_config,
        Some(json!({"config": "other.toml", "iggy_address": "iggy:8090"}))
    );
    assert_eq!(
        files.sinks()["mqtt_sink"].plugin_config,
        Some(json!({"limits_send_window": 7, "on": true, "empty": ""}))
    );
}

#[test]
fn the_highest_version_is_active_unless_the_folder_says_another() {
    let newer = SOURCE
        .replace("version = 0", "version = 3")
        .replace("\"MQTT source\"", "\"newer\"");
    let mut files = files(&[&newer, SOURCE], &Environment::default());
    assert_eq!(files.sources()["mqtt_source"].name, "newer");
    files.active.sources.insert("mqtt_source".to_owned(), 0);
    assert_eq!(files.sources()["mqtt_source"].name, "MQTT source");
    assert_eq!(files.newest_source("mqtt_source").unwrap().name, "newer");
}

#[test]
fn a_file_that_lacks_a_key_is_named() {
    let text = SINK.replace("streams = []", "");
    let error = ConnectorFiles::default()
        .add(&text, Path::new("broken.toml"), &Environment::default())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("broken.toml") && error.contains("streams"),
        "{error}"
    );
}

#[test]
fn only_visible_toml_files_that_are_no_manifest_are_connector_files() {
    for (name, expected) in [
        ("a.toml", true),
        (".active_versions.toml", false),
        ("Cargo.toml", false),
        ("a.toml.bak", false),
        ("README.md", false),
    ] {
        assert_eq!(is_connector_file(Path::new(name)), expected, "{name}");
    }
}
