//! What a source and a sink have in common: who they are, how they are, what they counted, and why one cannot run.
//!
//! Always holds: field names and status names are those of the HTTP API of the connectors runtime 0.5.0, and a
//! connector that starts or stops has no error.

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use iggy::prelude::{IggyError, IggyTimestamp};
use iggy_connector_sdk::Schema;
use parking_lot::Mutex;
use serde::Serialize;
use thiserror::Error;

use super::connector_files::{ConfigFormat, ConnectorConfig};
use super::library_path::NotFound;
use super::loader::LoadError;

/// Ids are unique in the process; a connector that is restarted gets a new one.
pub(super) fn next_id() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// How a connector is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Status {
    /// It is being opened.
    Starting,
    /// It works.
    Running,
    /// It is being closed.
    Stopping,
    /// It was closed, or stopped by itself.
    Stopped,
    /// Something failed; see [`LastError`]. A connector in this state may still be at work.
    Error,
}

/// The last thing that failed.
#[derive(Debug, Clone, Serialize)]
pub(super) struct LastError {
    message: String,
    /// Microseconds since the Unix epoch.
    timestamp: IggyTimestamp,
}

impl fmt::Display for LastError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

/// A connector as `/sources` and `/sinks` show it.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Info {
    /// By what the plugin knows it.
    pub(super) id: u32,
    /// By what the operator knows it.
    pub(super) key: String,
    /// For people.
    pub(super) name: String,
    /// The library, as it was found, or as the file names it when it was not.
    pub(super) path: String,
    /// Always true: a disabled connector is not loaded.
    pub(super) enabled: bool,
    /// How it is.
    pub(super) status: Status,
    /// What failed last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) last_error: Option<LastError>,
    /// See [`ConfigFormat`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) plugin_config_format: Option<ConfigFormat>,
}

/// What a connector counted since the host started.
#[derive(Debug, Default)]
pub(super) struct Counters {
    /// Messages from a source's plugin, or from Iggy for a sink.
    pub(super) received: AtomicU64,
    /// Messages sent to Iggy by a source, or given to a sink's plugin.
    pub(super) passed_on: AtomicU64,
    /// Batches and messages that failed.
    pub(super) errors: AtomicU64,
}

/// The shared part of a connector.
#[derive(Debug)]
pub(super) struct Connector {
    info: Mutex<Info>,
    /// What it counted.
    pub(super) counters: Counters,
}

impl Connector {
    /// A connector that is about to be opened under `id`.
    pub(super) fn starting<S>(id: u32, config: &ConnectorConfig<S>) -> Self {
        Self {
            info: Mutex::new(Info {
                id,
                key: config.key.clone(),
                name: config.name.clone(),
                path: config.path.clone(),
                enabled: config.enabled,
                status: Status::Starting,
                last_error: None,
                plugin_config_format: config.plugin_config_format,
            }),
            counters: Counters::default(),
        }
    }

    /// As it is now.
    pub(super) fn info(&self) -> Info {
        self.info.lock().clone()
    }

    /// The library was found at `path`.
    pub(super) fn set_path(&self, path: String) {
        self.info.lock().path = path;
    }

    /// It was opened anew, under `id`.
    pub(super) fn set_id(&self, id: u32) {
        self.info.lock().id = id;
    }

    /// Changes how it is, and forgets the last error.
    pub(super) fn set_status(&self, status: Status) {
        let mut info = self.info.lock();
        info.status = status;
        info.last_error = None;
    }

    /// Something failed.
    pub(super) fn set_error(&self, message: &str) {
        self.counters.errors.fetch_add(1, Ordering::Relaxed);
        let mut info = self.info.lock();
        info.status = Status::Error;
        info.last_error = Some(LastError {
            message: message.to_owned(),
            timestamp: IggyTimestamp::now(),
        });
    }

    /// Whether a call into the plugin may fail because the connector is being closed.
    pub(super) fn is_stopping(&self) -> bool {
        matches!(self.info.lock().status, Status::Stopping | Status::Stopped)
    }
}

/// Why a connector cannot run.
#[derive(Debug, Error)]
pub(super) enum ConnectorError {
    /// Its library is nowhere.
    #[error("Failed to resolve plugin path: {0}; build the library, or mend `path`")]
    NoLibrary(#[from] NotFound),
    /// Its library is no plugin.
    #[error("Failed to load the plugin: {0}")]
    Load(#[from] LoadError),
    /// It was never loaded, so it cannot be restarted.
    #[error("No plugin is loaded for {0}: mend its file and restart the host")]
    NotLoaded(String),
    /// Its file is gone.
    #[error("No configuration is left for {0}")]
    NoConfig(String),
    /// Its state cannot be read.
    #[error("Failed to load the source's state: {0}; mend or remove the file")]
    State(std::io::Error),
    /// Its `plugin_config` cannot be written as JSON.
    #[error("The plugin_config cannot be written as JSON: {0}")]
    PluginConfig(serde_json::Error),
    /// The plugin refused to open it.
    #[error(
        "Plugin initialization failed (ID: {id}): it returned {code}, and its log lines say why"
    )]
    OpenFailed {
        /// The id it was opened under.
        id: u32,
        /// What the plugin returned.
        code: i32,
    },
    /// The call into the plugin did not return normally.
    #[error("The call into the plugin was broken off: {0}")]
    Call(tokio::task::JoinError),
    /// A source has nowhere to send to.
    #[error("No streams configured for source: it needs a [[streams]] entry")]
    NoStreams,
    /// It wants transforms.
    #[error(
        "The sandbox host does not support [transforms]; use the official connectors runtime for them"
    )]
    Transforms,
    /// It wants a schema that only the official runtime has.
    #[error("The sandbox host does not support the schema {0}, only raw, text and json")]
    Schema(Schema),
    /// A time is written wrongly.
    #[error("`{0}` is no duration for {1}: write it like \"5ms\"")]
    Duration(String, &'static str),
    /// Iggy refused.
    #[error("Iggy refused {what}: {reason}")]
    Iggy {
        /// What was asked for.
        what: String,
        /// Iggy's answer.
        reason: IggyError,
    },
}

/// Checks what both kinds of connector may ask for that this host does not have.
pub(super) fn check_supported<S>(
    config: &ConnectorConfig<S>,
    schemas: impl Iterator<Item = Schema>,
) -> Result<(), ConnectorError> {
    if config.transforms.as_ref().is_some_and(|it| !it.is_empty()) {
        return Err(ConnectorError::Transforms);
    }
    for schema in schemas {
        if !matches!(schema, Schema::Raw | Schema::Text | Schema::Json) {
            return Err(ConnectorError::Schema(schema));
        }
    }
    Ok(())
}

/// Whether a payload is what its schema says. The bytes themselves are passed on unchanged.
pub(super) fn fits(schema: Schema, payload: &[u8]) -> bool {
    match schema {
        Schema::Json => serde_json::from_slice::<serde::de::IgnoredAny>(payload).is_ok(),
        Schema::Text => std::str::from_utf8(payload).is_ok(),
        _ => true,
    }
}

/// A plugin's configuration as it is passed: JSON, `null` when there is none.
pub(super) fn plugin_config_json<S>(
    config: &ConnectorConfig<S>,
) -> Result<Vec<u8>, ConnectorError> {
    serde_json::to_vec(&config.plugin_config).map_err(ConnectorError::PluginConfig)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_checked_against_its_schema() {
        assert!(fits(Schema::Raw, &[0xff, 0]));
        assert!(fits(Schema::Text, "grün".as_bytes()));
        assert!(!fits(Schema::Text, &[0xff, 0]));
        assert!(fits(Schema::Json, br#"{"a": [1, 2]}"#));
        assert!(!fits(Schema::Json, b"{"));
    }

    #[test]
    fn every_id_is_new() {
        assert_ne!(next_id(), next_id());
    }
}
