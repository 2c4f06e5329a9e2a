//! The process that loads the plugin: the sandbox's host or the official connectors runtime.
//!
//! Always holds: both are started with the same files and the same environment variables, and are asked over the same
//! HTTP API.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::binaries;
use crate::config::{self, Files};
use crate::http;
use crate::ports::free_port;
use crate::process::Process;
use crate::wait;

/// Opening a connector may take as long as `iggy_start_timeout`, which is 30 s, and more connectors follow it.
const START_DEADLINE: Duration = Duration::from_secs(90);

/// The two kinds of connectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// MQTT to Iggy.
    Source,
    /// Iggy to MQTT.
    Sink,
}

impl Kind {
    fn path(self) -> &'static str {
        match self {
            Self::Source => "sources",
            Self::Sink => "sinks",
        }
    }
}

/// The host's process.
#[derive(Debug)]
pub struct Host {
    variables: BTreeMap<String, String>,
    config: PathBuf,
    working_directory: PathBuf,
    api: SocketAddr,
    mqtt: SocketAddr,
    process: Option<Process>,
}

impl Host {
    /// Prepares a host for `files`, whose runtime connects to `iggy` and whose gateway listens on `mqtt`. `variables` come
    /// last and win.
    pub fn new(
        files: &Files,
        iggy: SocketAddr,
        mqtt: SocketAddr,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Self {
        let api = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let path = |file: &str| files.path(file).display().to_string();
        let mut all: BTreeMap<String, String> = [
            ("IGGY_CONNECTORS_IGGY_ADDRESS", iggy.to_string()),
            ("IGGY_CONNECTORS_IGGY_USERNAME", binaries::username()),
            ("IGGY_CONNECTORS_IGGY_PASSWORD", binaries::password()),
            ("IGGY_CONNECTORS_HTTP_ADDRESS", api.to_string()),
            ("IGGY_CONNECTORS_CONNECTORS_CONFIG_DIR", path("connectors")),
            ("IGGY_CONNECTORS_STATE_PATH", path("state")),
            ("RUST_LOG", "info".to_owned()),
            ("NO_COLOR", "1".to_owned()),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
        all.extend(variables);
        Self {
            variables: all,
            config: files.path(config::RUNTIME),
            working_directory: files.working_directory().to_owned(),
            api,
            mqtt,
            process: None,
        }
    }

    /// Starts the host, also again after it ended, and waits until its HTTP API answers: by then every connector has
    /// been opened, or has failed.
    ///
    /// # Panics
    /// When the API does not answer in time or the host ends.
    pub fn start(&mut self) {
        self.launch();
        let api = self.api;
        wait::until("the host's HTTP API answers", START_DEADLINE, || {
            if let Some(status) = self.process.as_mut().and_then(Process::ended) {
                panic!("the host ended at its start with {status}");
            }
            http::get(api, "/health").is_ok_and(|reply| reply.status == 200)
        });
    }

    /// Starts the host's process and waits for nothing.
    pub fn launch(&mut self) {
        let mut command = match binaries::official_runtime() {
            Some(runtime) => Command::new(runtime),
            None => {
                let mut command = Command::new(binaries::sandbox());
                command.arg("host");
                command
            }
        };
        command
            .current_dir(&self.working_directory)
            .env("IGGY_CONNECTORS_CONFIG_PATH", &self.config)
            .envs(&self.variables);
        let log = self.working_directory.join("host.log");
        self.process = Some(Process::start("the connector host", command, &log));
    }

    /// Where MQTT clients connect.
    pub fn mqtt(&self) -> SocketAddr {
        self.mqtt
    }

    /// The process.
    ///
    /// # Panics
    /// When the host was not started.
    pub fn process(&mut self) -> &mut Process {
        self.process.as_mut().expect("the host was started")
    }

    /// Where its HTTP API is.
    pub fn api(&self) -> SocketAddr {
        self.api
    }

    /// Everything that the host printed so far, byte for byte.
    ///
    /// # Panics
    /// When the host was not started.
    pub fn raw_log(&self) -> Vec<u8> {
        self.process
            .as_ref()
            .expect("the host was started")
            .raw_output()
    }

    /// What the host printed so far.
    pub fn log(&self) -> String {
        self.process
            .as_ref()
            .map(Process::output)
            .unwrap_or_default()
    }

    /// Waits until a line of the log holds all of `parts`, and gives it.
    ///
    /// # Panics
    /// When there is none in time.
    pub fn wait_for_log(&self, parts: &[&str]) -> String {
        wait::value(
            &format!("a line of the log with {parts:?}"),
            wait::PATIENCE,
            || self.log_line(parts),
        )
    }

    /// The first line of the log that holds all of `parts`.
    pub fn log_line(&self, parts: &[&str]) -> Option<String> {
        self.log()
            .lines()
            .find(|line| parts.iter().all(|part| line.contains(part)))
            .map(str::to_owned)
    }

    /// Ends the host with SIGKILL.
    pub fn kill(&mut self) {
        self.process().kill();
    }

    /// What the API says about a connector.
    ///
    /// # Panics
    /// When the API does not answer or does not know the connector.
    pub fn connector(&self, kind: Kind, key: &str) -> Value {
        let path = format!("/{}", kind.path());
        let reply = http::get(self.api, &path)
            .unwrap_or_else(|error| panic!("GET {path} from the host: {error}"));
        reply
            .json()
            .as_array()
            .into_iter()
            .flatten()
            .find(|connector| connector.get("key").and_then(Value::as_str) == Some(key))
            .cloned()
            .unwrap_or_else(|| panic!("no connector {key} in {reply:?}"))
    }

    /// A connector's status, such as `running`.
    ///
    /// # Panics
    /// As [`Host::connector`].
    pub fn status(&self, kind: Kind, key: &str) -> String {
        self.connector(kind, key)
            .get("status")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    }

    /// Waits until a connector has a status.
    ///
    /// # Panics
    /// When it has not in time.
    pub fn wait_for_status(&self, kind: Kind, key: &str, status: &str) {
        wait::until(
            &format!("connector {key} is {status}"),
            wait::PATIENCE,
            || {
                let now = self.status(kind, key);
                assert!(
                    now != "error" || status == "error",
                    "connector {key} has failed: {}",
                    self.connector(kind, key)
                );
                now == status
            },
        );
    }

    /// Restarts a connector through the API; returns when it runs again.
    ///
    /// # Panics
    /// When the API refuses.
    pub fn restart_connector(&self, kind: Kind, key: &str) {
        let path = format!("/{}/{key}/restart", kind.path());
        let reply = http::request(self.api, "POST", &path, None, None)
            .unwrap_or_else(|error| panic!("POST {path} to the host: {error}"));
        assert!(reply.status < 300, "POST {path}: {reply:?}");
        self.wait_for_status(kind, key, "running");
    }
}
