//! The runtime's own configuration file: the HTTP API, Iggy, state, and where the connector files are.
//!
//! Always holds: keys and defaults are those of the connectors runtime 0.5.0, the environment wins over the file, and
//! a secret is never printed.

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use thiserror::Error;

use super::environment::{Environment, typed_value};

/// The name of the environment variable that says where the configuration file is.
pub const CONFIG_PATH_VARIABLE: &str = "IGGY_CONNECTORS_CONFIG_PATH";

/// Every key that the environment can set, as a path in the file. The variable is `IGGY_CONNECTORS_` and the path in
/// upper case, joined by underscores.
const KEYS: &[&[&str]] = &[
    &["http", "enabled"],
    &["http", "address"],
    &["http", "api_key"],
    &["http", "metrics", "enabled"],
    &["http", "metrics", "endpoint"],
    &["http", "tls", "enabled"],
    &["http", "cors", "enabled"],
    &["iggy", "address"],
    &["iggy", "username"],
    &["iggy", "password"],
    &["iggy", "token"],
    &["iggy", "tls", "enabled"],
    &["iggy", "tls", "ca_file"],
    &["iggy", "tls", "domain"],
    &["connectors", "config_type"],
    &["connectors", "config_dir"],
    &["state", "path"],
    &["telemetry", "enabled"],
];

/// Why a runtime configuration cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// No file at the given path.
    #[error(
        "no runtime configuration at `{0}`: name the file with --config or {CONFIG_PATH_VARIABLE}"
    )]
    Missing(String),
    /// The file cannot be read.
    #[error("cannot read `{path}`: {reason}")]
    Unreadable {
        /// The file.
        path: String,
        /// The operating system's reason.
        reason: std::io::Error,
    },
    /// The file is not TOML.
    #[error("`{path}` is not valid TOML: {reason}")]
    NotToml {
        /// The file.
        path: String,
        /// The parser's message, with line and column.
        reason: Box<toml::de::Error>,
    },
    /// A key has a value of the wrong type, from the file or the environment.
    #[error("`{path}` or an IGGY_CONNECTORS_ variable has a value of the wrong kind: {reason}")]
    WrongValue {
        /// The file.
        path: String,
        /// The key and what was expected.
        reason: Box<toml::de::Error>,
    },
    /// A setting that the official runtime has and this host has not.
    #[error("the sandbox host does not support {0}; use the official connectors runtime for it")]
    Unsupported(&'static str),
}

/// A password or key: shown as asterisks wherever it is formatted.
#[derive(Clone, Default, Deserialize, PartialEq, Eq)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret.
    pub fn new(secret: impl Into<String>) -> Self {
        Self(secret.into())
    }

    /// The secret itself, for the one place that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(if self.0.is_empty() {
            "\"\""
        } else {
            "\"******\""
        })
    }
}

/// The whole file.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct RuntimeConfig {
    /// The HTTP API.
    pub http: HttpConfig,
    /// How to reach Iggy.
    pub iggy: IggyConfig,
    /// Where the connector files are.
    pub connectors: ConnectorsConfig,
    /// Where the sources' states are kept.
    pub state: StateConfig,
    telemetry: Switch,
}

/// Section `[http]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(default)]
pub struct HttpConfig {
    /// Whether the API is served.
    pub enabled: bool,
    /// Address and port to listen on; port 0 takes a free one.
    pub address: String,
    /// When not empty, every path but `/` and `/health` wants it in the header `api-key`.
    pub api_key: Secret,
    /// The metrics page.
    pub metrics: MetricsConfig,
    tls: Switch,
    cors: Switch,
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            address: "127.0.0.1:8081".to_owned(),
            api_key: Secret::default(),
            metrics: MetricsConfig::default(),
            tls: Switch::default(),
            cors: Switch::default(),
        }
    }
}

/// Section `[http.metrics]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(default)]
pub struct MetricsConfig {
    /// Whether the page is served.
    pub enabled: bool,
    /// Its path.
    pub endpoint: String,
}

impl Default for MetricsConfig {
    fn default() -> Self {
        Self {
            enabled: false,
            endpoint: "/metrics".to_owned(),
        }
    }
}

/// Section `[iggy]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(default)]
pub struct IggyConfig {
    /// Host and port.
    pub address: String,
    /// The user.
    pub username: String,
    /// The user's password.
    pub password: Secret,
    /// A personal access token, or `file:` and the path of a file that holds one; used instead of user and password.
    pub token: Secret,
    /// TLS to Iggy.
    pub tls: IggyTlsConfig,
}

impl Default for IggyConfig {
    fn default() -> Self {
        Self {
            address: "localhost:8090".to_owned(),
            username: "iggy".to_owned(),
            password: Secret::new("iggy"),
            token: Secret::default(),
            tls: IggyTlsConfig::default(),
        }
    }
}

/// Section `[iggy.tls]`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct IggyTlsConfig {
    /// Whether to speak TLS.
    pub enabled: bool,
    /// The file with the authority's certificate.
    pub ca_file: String,
    /// The name that the certificate must have; empty: the address's.
    pub domain: Option<String>,
}

/// Section `[connectors]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(default)]
pub struct ConnectorsConfig {
    config_type: String,
    /// The folder with one file per connector; relative to the working directory.
    pub config_dir: String,
}

impl Default for ConnectorsConfig {
    fn default() -> Self {
        Self {
            config_type: "local".to_owned(),
            config_dir: String::new(),
        }
    }
}

/// Section `[state]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(default)]
pub struct StateConfig {
    /// The folder; created when it is missing.
    pub path: String,
}

impl Default for StateConfig {
    fn default() -> Self {
        Self {
            path: "local_state".to_owned(),
        }
    }
}

/// A section of which only the switch matters, because what it switches is not supported.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Switch {
    enabled: bool,
}

impl RuntimeConfig {
    /// Reads `path`, which when relative is looked for in the working directory and then in the folders above it.
    ///
    /// # Errors
    /// Names the file and what is wrong with it.
    pub fn load(path: &Path, environment: &Environment) -> Result<Self, ConfigError> {
        let shown = path.display().to_string();
        let found = find(path).ok_or_else(|| ConfigError::Missing(shown.clone()))?;
        let text = std::fs::read_to_string(&found).map_err(|reason| ConfigError::Unreadable {
            path: shown.clone(),
            reason,
        })?;
        Self::parse(&text, &shown, environment)
    }

    fn parse(text: &str, path: &str, environment: &Environment) -> Result<Self, ConfigError> {
        let mut table: toml::Table =
            toml::from_str(text).map_err(|reason| ConfigError::NotToml {
                path: path.to_owned(),
                reason: Box::new(reason),
            })?;
        for key in KEYS {
            let variable = format!("IGGY_CONNECTORS_{}", key.join("_").to_uppercase());
            if let Some(value) = environment.get(&variable) {
                set(&mut table, key, toml_value(value));
            }
        }
        let config: Self = table.try_into().map_err(|reason| ConfigError::WrongValue {
            path: path.to_owned(),
            reason: Box::new(reason),
        })?;
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), ConfigError> {
        if self.connectors.config_type != "local" {
            return Err(ConfigError::Unsupported(
                "[connectors] config_type other than \"local\"",
            ));
        }
        if self.http.tls.enabled {
            return Err(ConfigError::Unsupported("[http.tls]"));
        }
        if self.http.cors.enabled {
            return Err(ConfigError::Unsupported("[http.cors]"));
        }
        if self.telemetry.enabled {
            return Err(ConfigError::Unsupported("[telemetry]"));
        }
        Ok(())
    }
}

/// An environment variable's value for a TOML table. A number that TOML cannot hold stays text.
pub(super) fn toml_value(text: &str) -> toml::Value {
    toml::Value::try_from(typed_value(text))
        .unwrap_or_else(|_| toml::Value::String(text.to_owned()))
}

/// Puts `value` at `path`, replacing whatever is on the way and is no table.
pub(super) fn set(table: &mut toml::Table, path: &[&str], value: toml::Value) {
    match path {
        [] => {}
        [key] => {
            table.insert((*key).to_owned(), value);
        }
        [key, rest @ ..] => {
            let inner = table
                .entry((*key).to_owned())
                .or_insert_with(|| toml::Value::Table(toml::Table::new()));
            if !inner.is_table() {
                *inner = toml::Value::Table(toml::Table::new());
            }
            if let Some(inner) = inner.as_table_mut() {
                set(inner, rest, value);
            }
        }
    }
}

fn find(path: &Path) -> Option<PathBuf> {
    if path.is_absolute() {
        return path.is_file().then(|| path.to_owned());
    }
    let working_directory = std::env::current_dir().ok()?;
    working_directory
        .ancestors()
        .map(|folder| folder.join(path))
        .find(|candidate| candidate.is_file())
}
