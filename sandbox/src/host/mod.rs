//! The connector host: loads plugins as the connectors runtime 0.5.0 of Apache Iggy does, from the same files.
//!
//! Always holds: at the start all sources are opened, then all sinks, then all sources poll and all sinks consume, then
//! the HTTP API listens; at the end all sources are stopped before the first sink is. A connector that fails shows
//! why and leaves the others alone.

mod api;
pub mod config;
mod connector;
pub mod connector_files;
pub mod environment;
pub mod iggy_clients;
mod library_path;
mod loader;
mod plugin_calls;
mod sink;
mod source;
mod state_file;
mod statistics;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use iggy::prelude::{Client, IggyClient};
use serde_json::{Map, Value};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tracing::{info, warn};

use self::config::{RuntimeConfig, Secret};
use self::connector::ConnectorError;
use self::connector_files::{ConnectorConfig, ConnectorFileError, ConnectorFiles};
use self::environment::Environment;
use self::sink::Sink;
use self::source::Source;

/// Why the host cannot start. What concerns one connector alone is no such reason.
#[derive(Debug, Error)]
pub enum HostError {
    /// The state folder cannot be made.
    #[error("cannot create the state folder `{path}`: {reason}")]
    StateFolder {
        /// The folder.
        path: String,
        /// The operating system's reason.
        reason: std::io::Error,
    },
    /// Iggy cannot be used.
    #[error(transparent)]
    Iggy(#[from] iggy_clients::ClientError),
    /// A connector file is broken.
    #[error(transparent)]
    ConnectorFile(#[from] ConnectorFileError),
    /// The API's address cannot be listened on.
    #[error("the HTTP API cannot listen on {address}: {reason}; change [http] address")]
    Listen {
        /// The address.
        address: String,
        /// The operating system's reason.
        reason: std::io::Error,
    },
}

/// What a caller sets over all connector files.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    /// The library of every connector, instead of `path`.
    pub library: Option<PathBuf>,
    /// Keys to set in the `plugin_config` of every connector.
    pub plugin_config: Map<String, Value>,
}

impl Overrides {
    fn apply<S>(&self, mut config: ConnectorConfig<S>) -> ConnectorConfig<S> {
        if let Some(library) = &self.library {
            config.path = library.display().to_string();
        }
        if !self.plugin_config.is_empty() {
            let plugin_config = config
                .plugin_config
                .get_or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(plugin_config) = plugin_config {
                plugin_config.extend(self.plugin_config.clone());
            }
        }
        config
    }
}

/// A running host. Dropping it does not close the connectors: call [`Host::shutdown`].
pub struct Host {
    shared: Arc<Shared>,
    api_address: Option<SocketAddr>,
    api: Option<JoinHandle<()>>,
}

/// What the HTTP API works on.
struct Shared {
    sources: BTreeMap<String, Arc<Source>>,
    sinks: BTreeMap<String, Arc<Sink>>,
    /// How many connectors of each kind are configured, the disabled ones too.
    configured: (usize, usize),
    files: ConnectorFiles,
    overrides: Overrides,
    state_folder: PathBuf,
    /// Sources send through the first, sinks poll through the second.
    clients: (IggyClient, IggyClient),
    api_key: Secret,
    started: SystemTime,
}

impl Host {
    /// Connects to Iggy, opens all connectors and serves the API.
    ///
    /// # Errors
    /// See [`HostError`].
    pub async fn start(
        config: RuntimeConfig,
        environment: &Environment,
        overrides: Overrides,
    ) -> Result<Self, HostError> {
        let state_folder = PathBuf::from(&config.state.path);
        std::fs::create_dir_all(&state_folder).map_err(|reason| HostError::StateFolder {
            path: config.state.path.clone(),
            reason,
        })?;
        info!("connecting to Iggy at {}", config.iggy.address);
        let consuming = iggy_clients::connect(&config.iggy).await?;
        let producing = iggy_clients::connect(&config.iggy).await?;
        let files = ConnectorFiles::load(&config.connectors.config_dir, environment)?;
        let (source_configs, sink_configs) = (files.sources(), files.sinks());
        let configured = (source_configs.len(), sink_configs.len());

        let mut sources = BTreeMap::new();
        for (key, source) in source_configs {
            if source.enabled {
                let source = overrides.apply(source);
                let opened = Source::open(source, &producing, &state_folder).await;
                sources.insert(key, opened);
            } else {
                warn!("the source {key} is disabled");
            }
        }
        let mut sinks = BTreeMap::new();
        for (key, sink) in sink_configs {
            if sink.enabled {
                sinks.insert(key, Sink::open(overrides.apply(sink), &consuming).await);
            } else {
                warn!("the sink {key} is disabled");
            }
        }
        for source in sources.values() {
            source.start();
        }
        for sink in sinks.values() {
            sink.start();
        }

        let shared = Arc::new(Shared {
            sources,
            sinks,
            configured,
            files,
            overrides,
            state_folder,
            clients: (producing, consuming),
            api_key: config.http.api_key.clone(),
            started: SystemTime::now(),
        });
        let mut host = Self {
            shared,
            api_address: None,
            api: None,
        };
        if config.http.enabled
            && let Err(reason) = host.serve_api(&config).await
        {
            host.shutdown().await;
            return Err(HostError::Listen {
                address: config.http.address,
                reason,
            });
        }
        Ok(host)
    }

    async fn serve_api(&mut self, config: &RuntimeConfig) -> std::io::Result<()> {
        let listener = TcpListener::bind(&config.http.address).await?;
        self.api_address = Some(listener.local_addr()?);
        let metrics = config
            .http
            .metrics
            .enabled
            .then_some(&config.http.metrics.endpoint);
        let router = api::router(Arc::clone(&self.shared), metrics.map(String::as_str));
        self.api = Some(tokio::spawn(async move {
            if let Err(reason) = axum::serve(listener, router).await {
                warn!("the HTTP API ended: {reason}");
            }
        }));
        Ok(())
    }

    /// Where the HTTP API listens, if it is served.
    pub fn api_address(&self) -> Option<SocketAddr> {
        self.api_address
    }

    /// The connectors that do not run, and why.
    pub fn failed(&self) -> Vec<String> {
        let infos = self.shared.infos();
        infos
            .filter_map(|info| {
                let error = info.last_error?;
                Some(format!("{}: {error}", info.key))
            })
            .collect()
    }

    /// Stops all sources, then all sinks, and leaves Iggy.
    pub async fn shutdown(self) {
        for (key, source) in &self.shared.sources {
            info!("stopping the source {key}");
            let _exclusive = source.exclusive.lock().await;
            source.stop().await;
        }
        for (key, sink) in &self.shared.sinks {
            info!("stopping the sink {key}");
            let _exclusive = sink.exclusive.lock().await;
            sink.stop().await;
        }
        if let Some(api) = self.api {
            api.abort();
        }
        let (producing, consuming) = &self.shared.clients;
        for client in [producing, consuming] {
            if let Err(reason) = client.shutdown().await {
                warn!("leaving Iggy failed: {reason}");
            }
        }
        info!("all connectors are closed");
    }
}

impl Shared {
    fn infos(&self) -> impl Iterator<Item = connector::Info> {
        let sources = self.sources.values().map(|source| source.info());
        sources.chain(self.sinks.values().map(|sink| sink.info()))
    }

    /// Restarts a source with the newest version of its configuration. Does nothing while another restart of it runs.
    async fn restart_source(&self, source: &Arc<Source>) -> Result<(), ConnectorError> {
        let Ok(_exclusive) = source.exclusive.try_lock() else {
            return Ok(());
        };
        let key = source.info().key;
        let config = self.files.newest_source(&key).cloned();
        let config = config.ok_or(ConnectorError::NoConfig(key))?;
        let config = self.overrides.apply(config);
        source
            .restart(config, &self.clients.0, &self.state_folder)
            .await
    }

    /// Restarts a sink with the newest version of its configuration. Does nothing while another restart of it runs.
    async fn restart_sink(&self, sink: &Arc<Sink>) -> Result<(), ConnectorError> {
        let Ok(_exclusive) = sink.exclusive.try_lock() else {
            return Ok(());
        };
        let key = sink.info().key;
        let config = self.files.newest_sink(&key).cloned();
        let config = config.ok_or(ConnectorError::NoConfig(key))?;
        sink.restart(self.overrides.apply(config), &self.clients.1)
            .await
    }
}
