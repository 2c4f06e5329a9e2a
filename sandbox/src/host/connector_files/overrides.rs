//! The environment's say in a connector file.
//!
//! Always holds: the environment wins over the file.

use std::collections::BTreeMap;

use serde_json::Value;

use super::super::config::{set, toml_value};
use super::super::environment::{Environment, typed_value};

/// As many elements of `[[streams]]` as the environment can name.
const MAX_STREAMS_FROM_ENVIRONMENT: usize = 256;

/// Applies the variables that name a key of the file itself. `STREAMS_<n>_<KEY>` replaces all of `[[streams]]`, as
/// lists are replaced and not merged.
pub(super) fn override_keys(table: &mut toml::Table, prefix: &str, environment: &Environment) {
    for key in [
        "key",
        "enabled",
        "version",
        "name",
        "path",
        "plugin_config_format",
        "verbose",
        "benchmark",
    ] {
        if let Some(value) = environment.get(&format!("{prefix}{}", key.to_uppercase())) {
            set(table, &[key], toml_value(value));
        }
    }
    let mut streams: BTreeMap<usize, toml::Table> = BTreeMap::new();
    let stream_prefix = format!("{prefix}STREAMS_");
    for (name, value) in environment.iter().filter(|(_, value)| !value.is_empty()) {
        let Some((index, key)) = name
            .strip_prefix(&stream_prefix)
            .and_then(|rest| rest.split_once('_'))
        else {
            continue;
        };
        if let Ok(index) = index.parse::<usize>()
            && index < MAX_STREAMS_FROM_ENVIRONMENT
        {
            let stream = streams.entry(index).or_default();
            set(stream, &[&key.to_lowercase()], toml_value(value));
        }
    }
    if !streams.is_empty() {
        let streams = streams.into_values().map(toml::Value::Table).collect();
        set(table, &["streams"], toml::Value::Array(streams));
    }
}

/// Applies the variables below `PLUGIN_CONFIG_`: each is one flat key of `plugin_config`, whatever underscores it has.
pub(super) fn override_plugin_config(
    plugin_config: &mut Option<Value>,
    prefix: &str,
    environment: &Environment,
) {
    let prefix = format!("{prefix}PLUGIN_CONFIG_");
    for (name, value) in environment.iter() {
        let name = name.to_uppercase();
        let Some(key) = name.strip_prefix(&prefix) else {
            continue;
        };
        let config = plugin_config.get_or_insert_with(|| Value::Object(serde_json::Map::new()));
        if let Value::Object(config) = config {
            config.insert(key.to_lowercase(), typed_value(value));
        }
    }
}
