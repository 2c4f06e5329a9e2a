//! The connector files: one TOML file per connector in the folder that `[connectors] config_dir` names.
//!
//! Always holds: what is accepted here is accepted by the connectors runtime 0.5.0 with the same meaning; of several
//! versions of one connector the active one is used, which is the highest unless `.active_versions.toml` says another.

mod format;
mod overrides;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use thiserror::Error;
use tracing::{info, warn};

use super::environment::Environment;

pub use format::{
    ConfigFormat, ConnectorConfig, ConsumerStream, ProducerStream, SinkConfig, SourceConfig,
};
use overrides::{override_keys, override_plugin_config};

/// The file in the folder that says which version of a connector is active.
const ACTIVE_VERSIONS: &str = ".active_versions.toml";

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
