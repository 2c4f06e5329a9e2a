//! Everything together as a user runs it: Iggy, perhaps a proxy before it, and a host with the plugin.
//!
//! Always holds: each deployment has its own folder, ports, processes and, unless a test wants the shipped topic map, its
//! own stream, so that tests run beside each other and on a shared server.

use std::net::{Ipv4Addr, SocketAddr};

use tempfile::TempDir;
use toml::Value;

use crate::binaries;
use crate::config::{self, Files, Target};
use crate::host::{Host, Kind};
use crate::iggy_server::IggyServer;
use crate::mangler::Mangler;
use crate::ports::{free_port, unique_name};
use crate::proxy::Proxy;
use crate::raw::RawClient;
use crate::records::{Reader, Record};

/// A running deployment. Its parts end in the order of the fields.
#[derive(Debug)]
pub struct Deployment {
    /// The host with the plugin.
    pub host: Host,
    /// The proxy between the gateway and Iggy.
    proxy: Option<Proxy>,
    /// The proxy that mangles replies.
    mangler: Option<Mangler>,
    /// Iggy.
    pub iggy: IggyServer,
    /// The test's files.
    pub files: Files,
    stream: String,
    http: SocketAddr,
    _folder: TempDir,
}

/// What a deployment is to be like.
#[derive(Debug)]
pub struct Builder {
    stream: String,
    proxied: bool,
    mangled: bool,
    map: Option<String>,
    shipped_map: bool,
    refuse_unmatched: bool,
    settings_in_files: bool,
    gateway: Vec<(Vec<String>, Value)>,
    removed: Vec<&'static str>,
    variables: Vec<(String, String)>,
    targets: Vec<Target>,
    existing: Vec<Target>,
}

impl Deployment {
    /// Starts with the source, the sink, and the test's own topic map; see [`config::own_map`].
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// Says what is to be different first.
    pub fn builder() -> Builder {
        Builder {
            stream: unique_name(),
            proxied: false,
            mangled: false,
            map: None,
            shipped_map: false,
            refuse_unmatched: false,
            settings_in_files: false,
            gateway: Vec::new(),
            removed: Vec::new(),
            variables: Vec::new(),
            targets: Vec::new(),
            existing: Vec::new(),
        }
    }

    /// Where MQTT clients connect.
    pub fn mqtt(&self) -> SocketAddr {
        self.host.mqtt()
    }

    /// Where the gateway answers operators.
    pub fn http(&self) -> SocketAddr {
        self.http
    }

    /// A raw client that is connected.
    pub fn client(&self, client_id: &str) -> RawClient {
        RawClient::connect(self.mqtt(), client_id)
    }

    /// The proxy.
    ///
    /// # Panics
    /// When the deployment has none.
    pub fn proxy(&self) -> &Proxy {
        self.proxy.as_ref().expect("the deployment has a proxy")
    }

    /// The proxy that mangles replies.
    ///
    /// # Panics
    /// When the deployment has none.
    pub fn mangler(&self) -> &Mangler {
        self.mangler.as_ref().expect("the deployment has a mangler")
    }

    /// The stream of the test's own topic map.
    pub fn stream(&self) -> &str {
        &self.stream
    }

    /// A reader of what is stored.
    pub fn reader(&self) -> Reader {
        self.iggy.reader()
    }

    /// What is stored for the topics `device/...`.
    pub fn device_records(&self) -> Vec<Record> {
        self.reader().records(&self.stream, "devices")
    }

    /// The highest offset that the gateway has committed on a partition of the topics `device/...`.
    pub fn committed(&self) -> Option<u64> {
        let consumer = format!("mqtt-gateway.{}", self.stream);
        self.reader()
            .committed(&self.stream, "devices", &consumer)
            .into_iter()
            .flatten()
            .max()
    }

    /// Everything that is stored in the test's own stream.
    pub fn stored(&self) -> Vec<Record> {
        self.reader().stream_records(&self.stream)
    }

    /// What is stored in the dead-letter topic.
    pub fn dead_letters(&self) -> Vec<Record> {
        self.reader()
            .records(&format!("{}_refused", self.stream), config::DEAD_LETTERS)
    }

    /// The status of the source connector.
    pub fn source_status(&self) -> String {
        self.host
            .status(Kind::Source, &self.files.connector_key(config::SOURCE))
    }

    /// The status of the sink connector.
    pub fn sink_status(&self) -> String {
        self.host
            .status(Kind::Sink, &self.files.connector_key(config::SINK))
    }

    /// Kills the host, starts it again with the same ports, and waits until its connectors run.
    ///
    /// # Panics
    /// When they do not in time.
    pub fn restart_host(&mut self) {
        self.host.kill();
        self.host.start();
        self.wait_until_running();
    }

    /// Waits until every connector that there is a file for runs.
    ///
    /// # Panics
    /// When one does not in time.
    pub fn wait_until_running(&self) {
        for (kind, file) in [(Kind::Source, config::SOURCE), (Kind::Sink, config::SINK)] {
            if self.files.has(file) {
                self.host
                    .wait_for_status(kind, &self.files.connector_key(file), "running");
            }
        }
    }
}

impl Builder {
    /// The stream that the deployment will have for itself, for a topic map or a target that names it.
    pub fn stream(&self) -> &str {
        &self.stream
    }

    /// With a proxy between the gateway and Iggy.
    pub fn proxied(mut self) -> Self {
        self.proxied = true;
        self
    }

    /// With a proxy between the gateway and Iggy that can mangle replies, in the place of the usual one.
    pub fn mangled(mut self) -> Self {
        self.mangled = true;
        self
    }

    /// With the topic map as it is shipped.
    pub fn shipped_map(mut self) -> Self {
        self.shipped_map = true;
        self
    }

    /// With this topic map in place of the test's own one. Its default topic should be `rest` in the deployment's stream.
    pub fn map(mut self, text: impl Into<String>) -> Self {
        self.map = Some(text.into());
        self
    }

    /// Topics that match no rule are refused.
    pub fn refuse_unmatched(mut self) -> Self {
        self.refuse_unmatched = true;
        self
    }

    /// The gateway's addresses and credentials stand in its file and not, as usual, in environment variables, which
    /// would win over the files of a second gateway in the same host.
    pub fn settings_in_files(mut self) -> Self {
        self.settings_in_files = true;
        self
    }

    /// With another value for a key of the gateway's file.
    pub fn gateway(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.gateway.push((vec![key.to_owned()], value.into()));
        self
    }

    /// With another limit.
    pub fn limit(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.gateway
            .push((vec!["limits".to_owned(), key.to_owned()], value.into()));
        self
    }

    /// Without one of the shipped files.
    pub fn without(mut self, file: &'static str) -> Self {
        self.removed.push(file);
        self
    }

    /// With an environment variable for the host; an empty value counts as unset.
    pub fn variable(mut self, name: &str, value: impl Into<String>) -> Self {
        self.variables.push((name.to_owned(), value.into()));
        self
    }

    /// With a topic that is there before the host starts, whoever could make it.
    pub fn existing(mut self, target: Target) -> Self {
        self.existing.push(target);
        self
    }

    /// With a topic that the map names only with captures, made beforehand where the gateway cannot make it.
    pub fn target(mut self, stream: &str, topic: &str, partitions: u32) -> Self {
        self.targets.push(Target::new(stream, topic, partitions));
        self
    }

    /// Starts everything and waits until every connector runs.
    ///
    /// # Panics
    /// When something does not start in time.
    pub fn start(self) -> Deployment {
        let deployment = self.start_with(|_| {});
        deployment.wait_until_running();
        deployment
    }

    /// Starts everything after `change` was made to the files; connectors may fail.
    ///
    /// # Panics
    /// When Iggy or the host does not start in time.
    pub fn start_with(self, change: impl FnOnce(&Files)) -> Deployment {
        let mut deployment = self.prepare(change);
        deployment.host.start();
        deployment
    }

    /// Starts Iggy, and the proxy, and prepares the files and the host without starting it.
    ///
    /// # Panics
    /// When Iggy does not start in time.
    pub fn prepare(self, change: impl FnOnce(&Files)) -> Deployment {
        let folder = tempfile::Builder::new()
            .prefix("e2e-")
            .tempdir()
            .expect("a temporary folder");
        let stream = self.stream;
        let files = Files::copy_shipped(folder.path());
        // Consumer offsets on a shared server must not meet those of another test.
        files.set(config::GATEWAY, &["node"], stream.clone());
        // Nor its dead letters.
        let dead_letters = Target::new(&format!("{stream}_refused"), config::DEAD_LETTERS, 1);
        files.set(
            config::GATEWAY,
            &["dead_letter_stream"],
            dead_letters.stream.clone(),
        );
        if !self.shipped_map {
            let map = self
                .map
                .unwrap_or_else(|| config::own_map(&stream, self.refuse_unmatched));
            files.write(config::TOPIC_MAP, &map);
            // As the shipped file has it, the runtime's producer is for the map's default topic.
            files.set_producer(config::SOURCE, &stream, "rest");
        }
        // In the file, because a second gateway in the same process takes another.
        let http = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        files.set(config::GATEWAY, &["http_listen"], http.to_string());
        for (key, value) in self.gateway {
            let key: Vec<&str> = key.iter().map(String::as_str).collect();
            files.set(config::GATEWAY, &key, value);
        }
        let iggy = IggyServer::start(folder.path());
        let proxy = self.proxied.then(|| Proxy::start(iggy.address()));
        let mangler = self.mangled.then(|| Mangler::start(iggy.address()));
        let gateway_iggy = (mangler.as_ref().map(Mangler::address))
            .or(proxy.as_ref().map(Proxy::address))
            .unwrap_or(iggy.address());
        let mqtt = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let mut variables = Vec::new();
        for (key, value) in [
            ("listen", mqtt.to_string()),
            ("iggy_address", gateway_iggy.to_string()),
            ("iggy_username", binaries::username()),
            ("iggy_password", binaries::password()),
        ] {
            if self.settings_in_files {
                files.set(config::GATEWAY, &[key], value);
            } else {
                variables.push((format!("MQTT_GATEWAY_{}", key.to_uppercase()), value));
            }
        }
        let plugin = binaries::plugin().display().to_string();
        for (kind, file) in [("SOURCE", config::SOURCE), ("SINK", config::SINK)] {
            let key = files.connector_key(file).to_uppercase();
            variables.push((format!("IGGY_CONNECTORS_{kind}_{key}_PATH"), plugin.clone()));
        }
        variables.extend(self.variables);
        for file in self.removed {
            files.remove(file);
        }
        change(&files);
        let mut targets = files.constant_targets();
        targets.push(dead_letters);
        targets.extend(self.targets);
        for target in &self.existing {
            iggy.make(target);
        }
        iggy.prepare(&targets, self.shipped_map);
        let host = Host::new(&files, iggy.address(), mqtt, variables);
        Deployment {
            host,
            proxy,
            mangler,
            iggy,
            files,
            stream,
            http,
            _folder: folder,
        }
    }
}
