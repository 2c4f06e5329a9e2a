//! What the tests of the connector host share: a log server, connector files in a temporary folder, the fixture
//! plugin's journal, and a small HTTP client.
//!
//! Always holds: ports are free ports, and every wait is for a condition and ends with a deadline.
#![allow(dead_code, clippy::unwrap_used)] // Each test program uses a part; a panic is the report.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use iggy::prelude::{
    Consumer, Identifier, IggyClient, IggyMessage, MessageClient, PollingStrategy,
};
use sandbox::host::config::{IggyConfig, RuntimeConfig};
use sandbox::host::environment::Environment;
use sandbox::host::{Host, Overrides, iggy_clients};
use sandbox::server::{Server, ServerConfig};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

/// How long anything may take; generous, because tests run in parallel on busy machines.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// A log server, and a folder with a runtime configuration and connector files.
pub(crate) struct World {
    pub(crate) folder: TempDir,
    pub(crate) iggy: SocketAddr,
    shutdown: CancellationToken,
}

impl World {
    pub(crate) async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let server = Server::bind(ServerConfig::new(address, folder.path().join("iggy")))
            .await
            .unwrap();
        let iggy = server.local_addr();
        let shutdown = CancellationToken::new();
        tokio::spawn(server.run(shutdown.clone()));
        std::fs::create_dir(folder.path().join("connectors")).unwrap();
        let world = Self {
            folder,
            iggy,
            shutdown,
        };
        world.write(
            "config.toml",
            &format!(
                "[http]\naddress = \"127.0.0.1:0\"\n\
                 [iggy]\naddress = \"{iggy}\"\n\
                 [state]\npath = '{}'\n\
                 [connectors]\nconfig_dir = '{}'\n",
                world.path("state").display(),
                world.path("connectors").display(),
            ),
        );
        world
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    /// Adds a connector with the fixture plugin; `head` and `plugin_config` are lines of TOML.
    pub(crate) fn connector(&self, kind: &str, key: &str, head: &str, plugin_config: &str) {
        self.write(
            &format!("connectors/{key}.toml"),
            &format!(
                "type = \"{kind}\"\nkey = \"{key}\"\nenabled = true\nversion = 0\nname = \"{key}\"\npath = '{}'\n\
                 {head}\n[plugin_config]\nname = \"{key}\"\njournal = '{}'\n{plugin_config}\n",
                fixture_plugin().display(),
                self.path("journal").display(),
            ),
        );
    }

    /// A source that sends to `stream`/`topic`.
    pub(crate) fn source(&self, key: &str, stream: &str, topic: &str, plugin_config: &str) {
        let head =
            format!("[[streams]]\nstream = \"{stream}\"\ntopic = \"{topic}\"\nschema = \"raw\"");
        self.connector("source", key, &head, plugin_config);
    }

    /// A sink without streams.
    pub(crate) fn sink(&self, key: &str, plugin_config: &str) {
        self.connector("sink", key, "streams = []", plugin_config);
    }

    pub(crate) async fn host(&self) -> Host {
        self.host_in(&Environment::default()).await
    }

    pub(crate) async fn host_in(&self, environment: &Environment) -> Host {
        let config = RuntimeConfig::load(&self.path("config.toml"), environment).unwrap();
        Host::start(config, environment, Overrides::default())
            .await
            .unwrap()
    }

    /// What the fixture plugin wrote down so far.
    pub(crate) fn journal(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.path("journal")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Waits until the journal is as `expected` says.
    pub(crate) async fn journal_with(&self, expected: impl Fn(&[String]) -> bool) -> Vec<String> {
        eventually(async || self.journal(), |lines| expected(lines)).await
    }

    pub(crate) async fn client(&self) -> IggyClient {
        let config = IggyConfig {
            address: self.iggy.to_string(),
            ..IggyConfig::default()
        };
        iggy_clients::connect(&config).await.unwrap()
    }

    /// The payloads in partition 0 of a topic, in order.
    pub(crate) async fn stored(&self, stream: &str, topic: &str) -> Vec<String> {
        let client = self.client().await;
        let consumer = Consumer::new(Identifier::named("test").unwrap());
        let polled = client
            .poll_messages(
                &Identifier::named(stream).unwrap(),
                &Identifier::named(topic).unwrap(),
                Some(0),
                &consumer,
                &PollingStrategy::offset(0),
                1000,
                false,
            )
            .await
            .unwrap();
        polled.messages.iter().map(payload).collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

fn payload(message: &IggyMessage) -> String {
    String::from_utf8(message.payload.to_vec()).unwrap()
}

/// The library that Cargo builds from `examples/fixture_plugin.rs` together with the tests.
pub(crate) fn fixture_plugin() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let profile = program.ancestors().nth(2).unwrap();
    let name = format!(
        "{}fixture_plugin{}",
        std::env::consts::DLL_PREFIX,
        std::env::consts::DLL_SUFFIX
    );
    let path = profile.join("examples").join(name);
    assert!(
        path.exists(),
        "{} is not built: cargo build -p sandbox --example fixture_plugin",
        path.display()
    );
    path
}

/// The folder of the workspace.
pub(crate) fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// Asks until the answer is as expected.
pub(crate) async fn eventually<T: Debug>(
    ask: impl AsyncFn() -> T,
    expected: impl Fn(&T) -> bool,
) -> T {
    let started = Instant::now();
    loop {
        let answer = ask().await;
        if expected(&answer) {
            return answer;
        }
        assert!(started.elapsed() < DEADLINE, "still: {answer:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// An HTTP answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }
}

/// Sends a request without a body.
pub(crate) async fn http(address: SocketAddr, method: &str, path: &str, headers: &str) -> Answer {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request =
        format!("{method} {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    tokio::time::timeout(DEADLINE, stream.read_to_string(&mut text))
        .await
        .unwrap()
        .unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer {
        status,
        head: head.to_lowercase(),
        body: body.to_owned(),
    }
}

pub(crate) async fn get(host: &Host, path: &str) -> Answer {
    http(host.api_address().unwrap(), "GET", path, "").await
}

pub(crate) async fn post(host: &Host, path: &str) -> Answer {
    http(host.api_address().unwrap(), "POST", path, "").await
}
