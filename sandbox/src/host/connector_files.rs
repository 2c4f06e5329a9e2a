//! The connector files: one TOML file per connector in the folder that `[connectors] config_dir` names.
//!
//! Always holds: what is accepted here is accepted by the connectors runtime 0.5.0 with the same meaning; of several
//! versions of one connector the active one is used, which is the highest unless `.active_versions.toml` says another.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use iggy_connector_sdk::Schema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;
use tracing::{info, warn};

use super::config::{set, toml_value};
use super::environment::{Environment, typed_value};

/// The file in the folder that says which version of a connector is active.
const ACTIVE_VERSIONS: &str = ".active_versions.toml";

/// As many elements of `[[streams]]` as the environment can name.
const MAX_STREAMS_FROM_ENVIRONMENT: usize = 256;

/// Why the connector files cannot be used. Any of these stops the start, as it does in the official runtime.
#[derive(Debug, Error)]
pub enum ConnectorFileError {
    /// `[connectors] config_dir` is empty.
    #[error("[connectors] config_dir is empty: name the folder that holds the connector files")]
    NoFolder,
    /// The folder or a file in it cannot be read.
    #[error("cannot read `{path}`: {reason}")]
    Unreadable {
        /// The folder or file.
        path: PathBuf,
        /// The operating system's reason.
        reason: std::io::Error,
    },
    /// A file is not TOML.
    #[error("`{path}` is not valid TOML: {reason}")]
    NotToml {
        /// The file.
        path: PathBuf,
        /// The parser's message, with line and column.
        reason: Box<toml::de::Error>,
    },
    /// A file lacks `type` or `key`.
    #[error("`{path}` needs `type = \"source\"` or `type = \"sink\"`, and `key = \"...\"`")]
    NoTypeOrKey {
        /// The file.
        path: PathBuf,
    },
    /// A file lacks a key, or has one of the wrong type.
    #[error("`{path}` is no connector configuration: {reason}")]
    WrongValue {
        /// The file.
        path: PathBuf,
        /// The key and what was expected.
        reason: Box<toml::de::Error>,
    },
}

/// The format in which the HTTP API shows `plugin_config` when the request names none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ConfigFormat {
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// TOML, the default.
    Toml,
    /// JSON, called plain text.
    Text,
}

/// What every connector file says. Serializes as the HTTP API shows it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ConnectorConfig<S> {
    /// Names the connector in the API, the environment and the state file.
    pub key: String,
    /// A disabled connector is not loaded.
    pub enabled: bool,
    /// The version of this configuration.
    pub version: u64,
    /// For people.
    pub name: String,
    /// The shared library, with or without extension. A relative path is also looked for, by its file name, beside the
    /// executable, in the working directory and in the system's library folders.
    pub path: String,
    /// Message transforms. Only `None` or an empty table is supported here.
    pub transforms: Option<BTreeMap<String, Value>>,
    /// Where a source's messages go, or a sink's come from.
    pub streams: Vec<S>,
    /// See [`ConfigFormat`].
    pub plugin_config_format: Option<ConfigFormat>,
    /// What the plugin gets, as JSON.
    pub plugin_config: Option<Value>,
    /// Log each batch at INFO rather than DEBUG.
    #[serde(default)]
    pub verbose: bool,
    /// Accepted and ignored.
    #[serde(default)]
    pub benchmark: bool,
}

/// A source's connector file.
pub type SourceConfig = ConnectorConfig<ProducerStream>;

/// A sink's connector file.
pub type SinkConfig = ConnectorConfig<ConsumerStream>;

/// A source's `[[streams]]` entry.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProducerStream {
    /// The Iggy stream.
    pub stream: String,
    /// The Iggy topic.
    pub topic: String,
    /// The payload's format.
    pub schema: Schema,
    /// Accepted and shown; Avro itself is not supported here.
    pub avro_schema_json: Option<String>,
    /// Accepted and shown; Avro itself is not supported here.
    pub avro_schema_path: Option<PathBuf>,
    /// Messages a request at most; default 1,000.
    pub batch_length: Option<u32>,
    /// How long a request may wait for more messages; default "5ms".
    pub linger_time: Option<String>,
}

/// A sink's `[[streams]]` entry.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ConsumerStream {
    /// The Iggy stream.
    pub stream: String,
    /// The Iggy topics.
    pub topics: Vec<String>,
    /// The payload's format.
    pub schema: Schema,
    /// Accepted and shown; Avro itself is not supported here.
    pub avro_schema_json: Option<String>,
    /// Accepted and shown; Avro itself is not supported here.
    pub avro_schema_path: Option<PathBuf>,
    /// Messages a poll at most; default 1,000.
    pub batch_length: Option<u32>,
    /// The time between two polls; default "5ms".
    pub poll_interval: Option<String>,
    /// The consumer group; default `iggy-connect-sink-` and the connector's key.
    pub consumer_group: Option<String>,
}

/// The connector files of one folder, read once.
#[derive(Debug, Default)]
pub struct ConnectorFiles {
    sources: BTreeMap<String, BTreeMap<u64, SourceConfig>>,
    sinks: BTreeMap<String, BTreeMap<u64, SinkConfig>>,
    active: ActiveVersions,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ActiveVersions {
    sources: BTreeMap<String, u64>,
    sinks: BTreeMap<String, u64>,
}

impl ConnectorFiles {
    /// Reads every `*.toml` in `folder`, but no hidden file and no `Cargo.toml`. A folder that is missing is created.
    ///
    /// # Errors
    /// Names the first file that cannot be used, and why.
    pub fn load(folder: &str, environment: &Environment) -> Result<Self, ConnectorFileError> {
        if folder.is_empty() {
            return Err(ConnectorFileError::NoFolder);
        }
        let folder = Path::new(folder);
        let unreadable = |reason| ConnectorFileError::Unreadable {
            path: folder.to_owned(),
            reason,
        };
        if !folder.exists() {
            warn!(
                "there is no folder {}: creating it; no connector will run",
                folder.display()
            );
            std::fs::create_dir_all(folder).map_err(unreadable)?;
            return Ok(Self::default());
        }
        let mut paths = Vec::new();
        for entry in std::fs::read_dir(folder).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            if path.is_file() && is_connector_file(&path) {
                paths.push(path);
            }
        }
        // The order in which a folder is listed differs from machine to machine.
        paths.sort();

        let mut files = Self {
            active: active_versions(folder),
            ..Self::default()
        };
        for path in paths {
            let text = std::fs::read_to_string(&path).map_err(|reason| {
                ConnectorFileError::Unreadable {
                    path: path.clone(),
                    reason,
                }
            })?;
            files.add(&text, &path, environment)?;
        }
        Ok(files)
    }

    fn add(
        &mut self,
        text: &str,
        path: &Path,
        environment: &Environment,
    ) -> Result<(), ConnectorFileError> {
        let table: toml::Table =
            toml::from_str(text).map_err(|reason| ConnectorFileError::NotToml {
                path: path.to_owned(),
                reason: Box::new(reason),
            })?;
        let no_type_or_key = || ConnectorFileError::NoTypeOrKey {
            path: path.to_owned(),
        };
        let string = |name: &str| table.get(name).and_then(toml::Value::as_str);
        let kind = string("type").ok_or_else(no_type_or_key)?.to_owned();
        let key = string("key").ok_or_else(no_type_or_key)?.to_owned();
        let replaced = match kind.as_str() {
            "source" => {
                let config: SourceConfig = parse(table, path, "SOURCE", &key, environment)?;
                insert(&mut self.sources, config)
            }
            "sink" => {
                let config: SinkConfig = parse(table, path, "SINK", &key, environment)?;
                insert(&mut self.sinks, config)
            }
            _ => return Err(no_type_or_key()),
        };
        info!("read the {kind} {key} from {}", path.display());
        if replaced {
            warn!(
                "{} replaces another file with the same type, key and version",
                path.display()
            );
        }
        Ok(())
    }

    /// The active configuration of each source, by key.
    pub fn sources(&self) -> BTreeMap<String, SourceConfig> {
        active(&self.sources, &self.active.sources)
    }

    /// The active configuration of each sink, by key.
    pub fn sinks(&self) -> BTreeMap<String, SinkConfig> {
        active(&self.sinks, &self.active.sinks)
    }

    /// The source's configuration with the highest version, which is what a restart uses.
    pub fn newest_source(&self, key: &str) -> Option<&SourceConfig> {
        newest(&self.sources, key)
    }

    /// The sink's configuration with the highest version, which is what a restart uses.
    pub fn newest_sink(&self, key: &str) -> Option<&SinkConfig> {
        newest(&self.sinks, key)
    }
}

fn is_connector_file(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.extension()
        .is_some_and(|extension| extension == "toml")
        && !name.starts_with('.')
        && !name.eq_ignore_ascii_case("cargo.toml")
}

fn parse<S: DeserializeOwned>(
    mut table: toml::Table,
    path: &Path,
    kind: &str,
    key: &str,
    environment: &Environment,
) -> Result<ConnectorConfig<S>, ConnectorFileError> {
    let prefix = format!("IGGY_CONNECTORS_{kind}_{}_", key.to_uppercase());
    override_keys(&mut table, &prefix, environment);
    let mut config: ConnectorConfig<S> =
        table
            .try_into()
            .map_err(|reason| ConnectorFileError::WrongValue {
                path: path.to_owned(),
                reason: Box::new(reason),
            })?;
    override_plugin_config(&mut config.plugin_config, &prefix, environment);
    Ok(config)
}

/// Applies the variables that name a key of the file itself. `STREAMS_<n>_<KEY>` replaces all of `[[streams]]`, as
/// lists are replaced and not merged.
fn override_keys(table: &mut toml::Table, prefix: &str, environment: &Environment) {
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
fn override_plugin_config(
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

fn active_versions(folder: &Path) -> ActiveVersions {
    let path = folder.join(ACTIVE_VERSIONS);
    if !path.exists() {
        return ActiveVersions::default();
    }
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) => {
            warn!("ignoring {}, which cannot be read: {error}", path.display());
            return ActiveVersions::default();
        }
    };
    toml::from_str(&text).unwrap_or_else(|error| {
        warn!("ignoring {}, which is broken: {error}", path.display());
        ActiveVersions::default()
    })
}

fn insert<S>(
    all: &mut BTreeMap<String, BTreeMap<u64, ConnectorConfig<S>>>,
    config: ConnectorConfig<S>,
) -> bool {
    let versions = all.entry(config.key.clone()).or_default();
    versions.insert(config.version, config).is_some()
}

fn active<S: Clone>(
    all: &BTreeMap<String, BTreeMap<u64, ConnectorConfig<S>>>,
    active: &BTreeMap<String, u64>,
) -> BTreeMap<String, ConnectorConfig<S>> {
    all.iter()
        .filter_map(|(key, versions)| {
            let config = match active.get(key) {
                Some(version) => versions.get(version),
                None => versions.values().next_back(),
            };
            config.map(|config| (key.clone(), config.clone()))
        })
        .collect()
}

fn newest<'a, S>(
    all: &'a BTreeMap<String, BTreeMap<u64, ConnectorConfig<S>>>,
    key: &str,
) -> Option<&'a ConnectorConfig<S>> {
    all.get(key)?.values().next_back()
}

#[cfg(test)]
mod tests {
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
}
