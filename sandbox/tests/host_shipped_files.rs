//! The files in `runtime-config/` that an operator copies are read by the host, and say what the documentation says.
#![allow(clippy::unwrap_used)] // In tests a panic is the report.

mod host_support;

use host_support::workspace;
use iggy_connector_sdk::Schema;
use sandbox::host::config::RuntimeConfig;
use sandbox::host::connector_files::ConnectorFiles;
use sandbox::host::environment::Environment;
use serde_json::json;

fn text(name: &str) -> String {
    std::fs::read_to_string(workspace().join("runtime-config").join(name)).unwrap()
}

#[test]
fn the_runtime_configuration_listens_on_loopback_and_finds_the_connectors() {
    let path = workspace().join("runtime-config/config.toml");
    let config = RuntimeConfig::load(&path, &Environment::default()).unwrap();
    assert_eq!(config.http.address, "127.0.0.1:8081");
    assert_eq!(config.iggy.address, "127.0.0.1:8090");
    assert_eq!(config.connectors.config_dir, "runtime-config/connectors");
}

#[test]
fn the_connectors_are_two_roles_of_one_gateway() {
    let folder = workspace().join("runtime-config/connectors");
    let files = ConnectorFiles::load(folder.to_str().unwrap(), &Environment::default()).unwrap();
    let (sources, sinks) = (files.sources(), files.sinks());
    assert_eq!(sources.keys().collect::<Vec<_>>(), ["mqtt_source"]);
    assert_eq!(sinks.keys().collect::<Vec<_>>(), ["mqtt_sink"]);
    let (source, sink) = (&sources["mqtt_source"], &sinks["mqtt_sink"]);
    assert!(source.enabled && sink.enabled);
    assert_eq!(source.path, sink.path);
    let plugin_config = Some(json!({"config": "runtime-config/gateway.toml"}));
    assert_eq!(
        (&source.plugin_config, &sink.plugin_config),
        (&plugin_config, &plugin_config)
    );
    assert!(sink.streams.is_empty());
    assert_eq!(source.streams.len(), 1);
    assert_eq!(source.streams[0].schema, Schema::Raw);
}

#[test]
fn the_sources_stream_is_the_default_of_the_topic_map() {
    let folder = workspace().join("runtime-config/connectors");
    let files = ConnectorFiles::load(folder.to_str().unwrap(), &Environment::default()).unwrap();
    let streams = &files.sources()["mqtt_source"].streams;
    let map: toml::Table = toml::from_str(&text("topic-map.toml")).unwrap();
    assert_eq!(map["default_stream"].as_str().unwrap(), streams[0].stream);
    assert_eq!(map["default_topic"].as_str().unwrap(), streams[0].topic);
    assert_eq!(map["rule"].as_array().unwrap().len(), 2);
}

#[test]
fn the_gateway_file_is_toml_also_with_its_defaults_uncommented() {
    let shipped = text("gateway.toml");
    let uncommented: Vec<&str> = shipped
        .lines()
        .map(|line| match line.strip_prefix("# ") {
            Some(rest) if rest.split_once(" = ").is_some_and(|(key, _)| is_key(key)) => rest,
            _ => line,
        })
        .collect();
    let as_shipped: toml::Table = toml::from_str(&shipped).unwrap();
    assert_eq!(as_shipped["limits"].as_table().unwrap().len(), 0);
    let with_defaults: toml::Table = toml::from_str(&uncommented.join("\n")).unwrap();
    assert_eq!(
        with_defaults["limits"]["max_packet_size"].as_str(),
        Some("256 KiB")
    );
    assert_eq!(with_defaults["iggy_connections"].as_integer(), Some(4));
}

fn is_key(text: &str) -> bool {
    text.chars().all(|it| it.is_ascii_lowercase() || it == '_')
}
