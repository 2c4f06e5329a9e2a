//! What stands in a connector file.
//!
//! Always holds: keys and their meaning are those of the connectors runtime 0.5.0, and a value serializes as the
//! runtime's HTTP API shows it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use iggy_connector_sdk::Schema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

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
