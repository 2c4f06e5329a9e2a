//! The connector host with the gateway: the sandbox's, or the official runtime.
//!
//! Always holds: both get the same files, which say nothing but addresses, credentials, the topic map, that a message
//! which cannot be stored ends its connection, and so the measurement, that all clients may come from one address, that
//! nothing is left over from the host before, and what a measurement says itself; everything else is at the gateway's
//! defaults. A host is ready when both of its
//! connectors run.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::http::{self, Reply};
use super::process::Process;
use super::topics::Topic;
use super::{PASSWORD, Programs, STREAM, StackError, USER, make_folder, ports, wait, write};

/// What a measurement says itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Files<'a> {
    /// The Iggy topic that the runtime's own producer is made for.
    pub(crate) entry: &'a str,
    /// The topic map.
    pub(crate) topic_map: &'a str,
    /// Lines for the table `limits` of the gateway's file.
    pub(crate) limits: &'a str,
}

/// A running host.
#[derive(Debug)]
pub(crate) struct Host {
    mqtt: SocketAddr,
    http: SocketAddr,
    process: Process,
}

impl Host {
    /// Starts a host whose runtime uses the Iggy at `iggy` and whose gateway uses the one at `gateway_iggy`, which may be a
    /// proxy before the same server. MQTT topic `NAME/…` is stored in the Iggy topic `NAME`, for each of `topics`.
    ///
    /// # Errors
    /// See [`StackError`].
    pub(crate) fn start(
        programs: &Programs,
        folder: &Path,
        iggy: SocketAddr,
        gateway_iggy: SocketAddr,
        topics: &[Topic],
    ) -> Result<Self, StackError> {
        // The runtime opens a producer of its own, which is never used, for the stream of the entry.
        let entry = topics.first().map_or("unmapped", |topic| &topic.name);
        let files = Files {
            entry,
            topic_map: &topic_map(topics),
            limits: "",
        };
        Self::start_with(programs, folder, iggy, gateway_iggy, &files)
    }

    /// The same with files of the measurement's own.
    ///
    /// # Errors
    /// See [`StackError`].
    pub(crate) fn start_with(
        programs: &Programs,
        folder: &Path,
        iggy: SocketAddr,
        gateway_iggy: SocketAddr,
        files: &Files<'_>,
    ) -> Result<Self, StackError> {
        let mqtt = ports::free_address()?;
        let http = ports::free_address()?;
        let api = ports::free_address()?;
        let connectors = folder.join("connectors");
        make_folder(&connectors)?;
        let config = folder.join("config.toml");
        write(&config, &runtime_file(folder, iggy, api))?;
        write(
            &folder.join("gateway.toml"),
            &gateway_file(mqtt, http, gateway_iggy, files.limits),
        )?;
        write(&folder.join("topic-map.toml"), files.topic_map)?;
        let entry = files.entry;
        let streams =
            format!("[[streams]]\nstream = '{STREAM}'\ntopic = '{entry}'\nschema = 'raw'");
        for (kind, streams) in [("source", streams.as_str()), ("sink", "streams = []")] {
            let file = connector_file(kind, streams, &programs.plugin, folder);
            write(&connectors.join(format!("{kind}.toml")), &file)?;
        }
        let mut command = match &programs.iggy_connectors {
            Some(runtime) => Command::new(runtime),
            None => {
                let mut command = Command::new(&programs.sandbox);
                command.arg("host");
                command
            }
        };
        command
            .current_dir(folder)
            .env("IGGY_CONNECTORS_CONFIG_PATH", &config)
            .env("RUST_LOG", "info,iggy=warn")
            .env("NO_COLOR", "1");
        let mut process = Process::start("the connector host", command, &folder.join("host.log"))?;
        wait(|| {
            process.alive()?;
            let reply = http::request(api, "GET", "/health", None, None);
            Ok(reply.ok().filter(|reply| reply.status == 200))
        })?
        .ok_or_else(|| process.late())?;
        for path in ["/sources", "/sinks"] {
            wait(|| {
                process.alive()?;
                running(http::request(api, "GET", path, None, None).ok(), &process)
            })?
            .ok_or_else(|| process.late())?;
        }
        Ok(Self {
            mqtt,
            http,
            process,
        })
    }

    /// Where MQTT clients connect.
    pub(crate) fn mqtt(&self) -> SocketAddr {
        self.mqtt
    }

    /// Where the gateway answers operators.
    pub(crate) fn http(&self) -> SocketAddr {
        self.http
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The last lines that it printed.
    pub(crate) fn output_end(&self) -> String {
        self.process.output_end()
    }
}

/// Whether the connectors in `reply` run; not yet known without a reply.
fn running(reply: Option<Reply>, process: &Process) -> Result<Option<()>, StackError> {
    let Some(reply) = reply else { return Ok(None) };
    let connectors = reply.json();
    let text = |connector: &Value, key| {
        connector
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let Some(connector) = connectors.as_array().and_then(|list| list.first()) else {
        return Ok(None);
    };
    match text(connector, "status") {
        status if status == "running" => Ok(Some(())),
        status if status == "starting" => Ok(None),
        status => Err(StackError::Connector {
            key: text(connector, "key"),
            status,
            output: process.output_end(),
        }),
    }
}

fn runtime_file(folder: &Path, iggy: SocketAddr, api: SocketAddr) -> String {
    format!(
        "[http]\n\
         enabled = true\n\
         address = '{api}'\n\
         api_key = ''\n\
         \n\
         [http.metrics]\n\
         enabled = false\n\
         endpoint = '/metrics'\n\
         \n\
         [iggy]\n\
         address = '{iggy}'\n\
         username = '{USER}'\n\
         password = '{PASSWORD}'\n\
         token = ''\n\
         \n\
         [iggy.tls]\n\
         enabled = false\n\
         ca_file = ''\n\
         domain = ''\n\
         \n\
         [state]\n\
         path = '{folder}/state'\n\
         \n\
         [connectors]\n\
         config_type = 'local'\n\
         config_dir = '{folder}/connectors'\n",
        folder = folder.display()
    )
}

fn gateway_file(mqtt: SocketAddr, http: SocketAddr, iggy: SocketAddr, limits: &str) -> String {
    format!(
        "listen = '{mqtt}'\n\
         http_listen = '{http}'\n\
         authentication = ['anonymous']\n\
         topic_map = 'topic-map.toml'\n\
         iggy_address = '{iggy}'\n\
         iggy_username = '{USER}'\n\
         iggy_password = '{PASSWORD}'\n\
         on_unstorable = 'close'\n\
         \n\
         [limits]\n\
         max_connections_per_address = 10_000\n\
         resume_window = '0s'\n\
         {limits}"
    )
}

fn topic_map(topics: &[Topic]) -> String {
    let mut map = "on_unmatched = 'refuse'\n".to_owned();
    for topic in topics {
        let durability = if topic.persisted {
            "persisted"
        } else {
            "commit"
        };
        map += &format!(
            "\n[[rule]]\n\
             mqtt_topic = '{name}/.*'\n\
             stream = '{STREAM}'\n\
             topic = '{name}'\n\
             partitions = {partitions}\n\
             durability = '{durability}'\n",
            name = topic.name,
            partitions = topic.partitions,
        );
    }
    map
}

fn connector_file(kind: &str, streams: &str, plugin: &Path, folder: &Path) -> String {
    // A bare key must stand before the first table.
    format!(
        "type = '{kind}'\n\
         key = 'mqtt_{kind}'\n\
         enabled = true\n\
         version = 0\n\
         name = 'MQTT gateway, {kind}'\n\
         path = '{plugin}'\n\
         plugin_config_format = 'toml'\n\
         {streams}\n\
         \n\
         [plugin_config]\n\
         config = '{folder}/gateway.toml'\n",
        plugin = plugin.display(),
        folder = folder.display(),
    )
}
