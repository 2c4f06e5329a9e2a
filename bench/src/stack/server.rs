//! The Iggy server: the sandbox's, or a real one.
//!
//! Always holds: a server is new and empty when it is started, unless it is said that it goes on with what is there, and has
//! one user.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use iggy::prelude::{
    AutoLogin, Client, Credentials, IggyError, TcpClient, TcpClientConfig,
    TcpClientReconnectionConfig,
};
use tokio::runtime::Runtime;

use super::process::Process;
use super::topics::{self, Topic};
use super::{PASSWORD, Programs, StackError, USER, ports, wait};

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    address: SocketAddr,
    client: TcpClient,
    process: Process,
}

impl Server {
    /// Starts the server with its data below `folder`, waits until it serves, and makes `topics`. The connection that does
    /// so lives in `runtime`.
    ///
    /// # Errors
    /// See [`StackError`].
    pub(crate) fn start(
        programs: &Programs,
        folder: &Path,
        topics: &[Topic],
        runtime: &Runtime,
    ) -> Result<Self, StackError> {
        let (server, http) = Self::begin(programs, folder, runtime)?;
        runtime.block_on(topics::create(&server.client, http, topics))?;
        Ok(server)
    }

    /// Starts a server again with the data that is below `folder`.
    ///
    /// # Errors
    /// See [`StackError`].
    pub(crate) fn restart(
        programs: &Programs,
        folder: &Path,
        runtime: &Runtime,
    ) -> Result<Self, StackError> {
        Ok(Self::begin(programs, folder, runtime)?.0)
    }

    /// Waits until it serves; gives the address of its HTTP API, too, if it has one.
    fn begin(
        programs: &Programs,
        folder: &Path,
        runtime: &Runtime,
    ) -> Result<(Self, Option<SocketAddr>), StackError> {
        let address = ports::free_address()?;
        let (command, http) = match &programs.iggy_server {
            Some(program) => {
                let http = ports::free_address()?;
                (iggy(program, folder, address, http), Some(http))
            }
            None => (sandbox(&programs.sandbox, folder, address), None),
        };
        let mut process = Process::start("the Iggy server", command, &folder.join("iggy.log"))?;
        let client = wait(|| {
            process.alive()?;
            Ok(runtime.block_on(connect(address)).ok())
        })?
        .ok_or_else(|| process.late())?;
        let server = Self {
            address,
            client,
            process,
        };
        Ok((server, http))
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The last lines that it printed.
    pub(crate) fn output_end(&self) -> String {
        self.process.output_end()
    }

    /// How many messages a topic holds.
    ///
    /// # Errors
    /// [`StackError::Iggy`].
    pub(crate) fn messages(&self, topic: &str, runtime: &Runtime) -> Result<u64, StackError> {
        runtime.block_on(topics::messages(&self.client, topic))
    }

    /// Where it serves the binary protocol.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Empties a topic, and gives the number of messages that it held.
    ///
    /// # Errors
    /// [`StackError::Iggy`].
    pub(crate) fn empty(&self, topic: &str, runtime: &Runtime) -> Result<u64, StackError> {
        runtime.block_on(async {
            let messages = topics::messages(&self.client, topic).await?;
            topics::empty(&self.client, topic).await?;
            Ok(messages)
        })
    }
}

/// A connection that is logged in, without Nagle's algorithm and without reconnection: a measurement during which a
/// connection breaks is to fail.
///
/// # Errors
/// What the SDK says.
pub(crate) async fn connect(address: SocketAddr) -> Result<TcpClient, IggyError> {
    let credentials = Credentials::UsernamePassword(USER.to_owned(), PASSWORD.to_owned().into());
    let client = TcpClient::create(Arc::new(TcpClientConfig {
        server_address: address.to_string(),
        auto_login: AutoLogin::Enabled(credentials),
        reconnection: TcpClientReconnectionConfig {
            enabled: false,
            ..TcpClientReconnectionConfig::default()
        },
        nodelay: true,
        ..TcpClientConfig::default()
    }))?;
    client.connect().await?;
    Ok(client)
}

fn sandbox(program: &Path, folder: &Path, address: SocketAddr) -> Command {
    let mut command = Command::new(program);
    command
        .args(["server", "--address", &address.to_string(), "--data-dir"])
        .arg(folder.join("iggy"))
        .env("IGGY_ROOT_USERNAME", USER)
        .env("IGGY_ROOT_PASSWORD", PASSWORD)
        .env("NO_COLOR", "1");
    command
}

fn iggy(program: &Path, folder: &Path, tcp: SocketAddr, http: SocketAddr) -> Command {
    let mut command = Command::new(program);
    command
        .current_dir(folder)
        .args(["--replica-id", "0"])
        .env("IGGY_SYSTEM_PATH", folder.join("iggy"))
        .env("IGGY_ROOT_USERNAME", USER)
        .env("IGGY_ROOT_PASSWORD", PASSWORD)
        .env("IGGY_TCP_ADDRESS", tcp.to_string())
        .env("IGGY_HTTP_ENABLED", "true")
        .env("IGGY_HTTP_ADDRESS", http.to_string())
        .env("IGGY_QUIC_ENABLED", "false")
        .env("IGGY_WEBSOCKET_ENABLED", "false")
        // One shard that the kernel may move: server, host and driver share a small machine.
        .env("IGGY_SYSTEM_SHARDING_CPU_ALLOCATION", "1")
        .env("IGGY_SYSTEM_SHARDING_PIN_CORES", "false")
        .env("NO_COLOR", "1");
    command
}
