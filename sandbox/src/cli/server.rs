//! `sandbox server`: the log server alone, and its counters over HTTP.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use axum::routing::get;
use axum::{Json, Router};
use clap::Args;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use sandbox::host::config::Secret;
use sandbox::server::{SecretString, Server, ServerConfig, ServerError, Stats};

use super::signals::Stop;
use super::{Failure, PURPOSE, credentials, listen, tell};

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Where to listen for Iggy's binary protocol; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:8090")]
    address: SocketAddr,
    /// The folder for the data.
    #[arg(long, default_value = "sandbox-data/iggy")]
    data_dir: PathBuf,
    /// Where to serve the counters of polls and appends, as JSON at /stats; not served when left out.
    #[arg(long)]
    stats_address: Option<SocketAddr>,
    #[command(flatten)]
    root: Root,
}

/// The one user whom the server knows.
#[derive(Debug, Args)]
pub(super) struct Root {
    /// The name of the server's one user.
    #[arg(long, env = "IGGY_ROOT_USERNAME", default_value = "iggy")]
    root_username: String,
    /// A file with the user's password; otherwise it is taken from IGGY_ROOT_PASSWORD, otherwise it is "iggy".
    #[arg(long)]
    root_password_file: Option<PathBuf>,
}

impl Root {
    /// The user's name and password.
    pub(super) fn login(&self) -> Result<(String, Secret), Failure> {
        let password =
            credentials::password(self.root_password_file.as_deref(), "IGGY_ROOT_PASSWORD")?;
        Ok((self.root_username.clone(), password))
    }
}

pub(super) async fn execute(arguments: Arguments) -> Result<(), Failure> {
    let mut stop = Stop::catch()?;
    let running = Running::start(arguments.address, &arguments.data_dir, &arguments.root).await?;
    if let Some(address) = arguments.stats_address {
        let address = serve_stats(address, running.stats.clone()).await?;
        listen::announce("stats", address);
    }
    listen::announce("iggy", running.address);
    tell(PURPOSE);
    running.until(stop.came()).await
}

/// A server that serves in a task of its own.
pub(super) struct Running {
    pub(super) address: SocketAddr,
    pub(super) stats: Stats,
    shutdown: CancellationToken,
    task: JoinHandle<Result<(), ServerError>>,
}

impl Running {
    pub(super) async fn start(
        address: SocketAddr,
        data_dir: &Path,
        root: &Root,
    ) -> Result<Self, Failure> {
        let (username, password) = root.login()?;
        let server = Server::bind(ServerConfig {
            address,
            data_dir: data_dir.to_owned(),
            username,
            password: SecretString::from(password.expose()),
        })
        .await?;
        let shutdown = CancellationToken::new();
        Ok(Self {
            address: server.local_addr(),
            stats: server.stats(),
            task: tokio::spawn(server.run(shutdown.clone())),
            shutdown,
        })
    }

    /// Waits for `end`, then stops the server; returns earlier when the server fails.
    pub(super) async fn until(mut self, end: impl Future<Output = ()>) -> Result<(), Failure> {
        tokio::select! {
            ended = &mut self.task => {
                ended??;
                return Err("the log server ended by itself".into());
            }
            () = end => {}
        }
        self.shutdown.cancel();
        self.task.await??;
        Ok(())
    }
}

async fn serve_stats(address: SocketAddr, stats: Stats) -> Result<SocketAddr, Failure> {
    let listener = TcpListener::bind(address)
        .await
        .map_err(|reason| format!("the counters cannot be served on {address}: {reason}"))?;
    let address = listener.local_addr()?;
    let router = Router::new().route("/stats", get(async move || Json(stats.snapshot())));
    tokio::spawn(async move {
        if let Err(reason) = axum::serve(listener, router).await {
            tracing::warn!("the counters are not served any more: {reason}");
        }
    });
    Ok(address)
}
