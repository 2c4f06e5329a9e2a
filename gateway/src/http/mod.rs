//! The HTTP address for operators and their tools: status page, API, metrics, health.
//!
//! What always holds: whatever happens here, devices are served: an address that cannot be bound is an alarm and tried again,
//! and what is asked costs bounded memory (`MAX_CONNECTIONS`, `MAX_VIEWERS`, heads of `MAX_HEAD`, no bodies) and no lock
//! that is waited for. Nobody keeps a connection by being slow.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};
use tokio_io_timeout::TimeoutStream;

use crate::config::{HttpConfig, Secret};
use crate::limited::Limited;
use crate::listener::bind;
use crate::metrics::Metrics;
use crate::status::Observer;

mod explain;
mod guard;
mod page;
mod routes;

pub use guard::{Guard, TokenError, load_token};

/// The most connections at a time; more are closed at once.
const MAX_CONNECTIONS: usize = 64;
/// The most of these that watch the gateway live.
const MAX_VIEWERS: usize = 16;
/// The longest head of a request, in bytes.
const MAX_HEAD: usize = 16 * 1024;
/// How long the head of a request may take, and how long a connection is kept for the next one.
const HEAD_PATIENCE: Duration = Duration::from_secs(10);
/// How long somebody may take nothing of an answer.
const WRITE_PATIENCE: Duration = Duration::from_secs(10);
/// How soon an address that could not be bound is tried again.
const BIND_AGAIN: Duration = Duration::from_secs(5);
/// How long accepting pauses after it has failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Why the HTTP address cannot be served as it is configured.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The token cannot be read.
    #[error("http_token_file {}: {error}", file.display())]
    Token {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        error: TokenError,
    },
}

/// What the requests of all connections share.
pub(crate) struct App {
    observer: Arc<Observer>,
    metrics: Metrics,
    guard: Guard,
    viewers: Arc<Semaphore>,
    actions: Arc<dyn Actions>,
}

/// What can be asked of a gateway to do.
#[async_trait::async_trait]
pub trait Actions: Send + Sync {
    /// Reads files anew.
    async fn reload(&self) -> serde_json::Value;

    /// Lets the listener at `address` drain, or opens it again.
    ///
    /// # Errors
    /// Why it does not.
    async fn set_open(&self, address: SocketAddr, open: bool) -> Result<(), String>;
}

/// The HTTP side of a gateway.
pub struct Http {
    config: HttpConfig,
    observer: Arc<Observer>,
    app: Router,
    connections: Arc<Semaphore>,
    lines: Limited,
    addresses: Mutex<Vec<SocketAddr>>,
}

impl Http {
    /// Not listening yet. `token` is that of [`load_token`].
    pub fn new(
        config: &HttpConfig,
        token: Option<Secret>,
        observer: Arc<Observer>,
        actions: Arc<dyn Actions>,
    ) -> Arc<Self> {
        let app = Arc::new(App {
            guard: Guard::new(config, token, observer.context().clone()),
            metrics: Metrics::new(observer.clone()),
            viewers: Arc::new(Semaphore::new(MAX_VIEWERS)),
            observer: observer.clone(),
            actions,
        });
        Arc::new(Self {
            config: config.clone(),
            observer,
            app: routes::router(app),
            connections: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
            lines: Limited::default(),
            addresses: Mutex::default(),
        })
    }

    /// Where it listens now, with the real ports.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.addresses.lock().clone()
    }

    /// Tries to bind all addresses, so that they are there when the gateway has started; gives those that are.
    pub fn bind(&self) -> Vec<(SocketAddr, Option<TcpListener>)> {
        let all = self.config.listen.iter();
        all.map(|address| (*address, self.bind_one(*address)))
            .collect()
    }

    fn bind_one(&self, address: SocketAddr) -> Option<TcpListener> {
        let alarms = &self.observer.context().alarms;
        let name = format!("http_listen {address}");
        let bound = bind(address).and_then(|listener| {
            let real = listener.local_addr()?;
            Ok((listener, real))
        });
        match bound {
            Ok((listener, real)) => {
                alarms.clear(&name);
                self.addresses.lock().push(real);
                tracing::info!(address = %real, "status page, metrics and health at http://{real}/");
                Some(listener)
            }
            Err(error) => {
                let text = format!(
                    "http_listen: {address}: {error}; there is no status page, no metrics and no health there, and devices are served all the same. Stop what uses the port, or choose another; it is tried again every {BIND_AGAIN:?}"
                );
                alarms.raise(&name, text, Instant::now());
                None
            }
        }
    }

    /// Serves `address` for as long as it is polled; binds it first if it is not.
    pub async fn serve(self: Arc<Self>, address: SocketAddr, mut listener: Option<TcpListener>) {
        let listener = loop {
            match listener {
                Some(listener) => break listener,
                None => {
                    sleep(BIND_AGAIN).await;
                    listener = self.bind_one(address);
                }
            }
        };
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => self.open(stream, peer),
                Err(error) => {
                    if let Some(left_out) = self.lines.allow(Instant::now()) {
                        tracing::warn!(%address, %error, left_out, "cannot accept an HTTP connection");
                    }
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn open(&self, stream: TcpStream, peer: SocketAddr) {
        let Ok(permit) = self.connections.clone().try_acquire_owned() else {
            if let Some(left_out) = self.lines.allow(Instant::now()) {
                tracing::warn!(%peer, left_out, "an HTTP connection is closed: {MAX_CONNECTIONS} are open, which is the limit");
            }
            return;
        };
        let service = TowerToHyperService::new(self.app.clone());
        let stopping = self.observer.context().stopping.clone();
        tokio::spawn(async move {
            let _permit = permit;
            tokio::select! {
                biased;
                () = stopping.cancelled() => {}
                ended = serve_connection(stream, service) => if let Err(error) = ended {
                    tracing::debug!(%peer, %error, "HTTP connection ended");
                }
            }
        });
    }
}

async fn serve_connection(
    stream: TcpStream,
    service: TowerToHyperService<Router>,
) -> Result<(), hyper::Error> {
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(WRITE_PATIENCE));
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_PATIENCE)
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(Box::pin(stream)), service)
        .await
}

/// Reads the token that `config` names, if it names one; blocks on that.
///
/// # Errors
/// What is wrong with it.
pub fn token(config: &HttpConfig) -> Result<Option<Secret>, HttpError> {
    let file = config.token_file.as_ref();
    file.map(|file| {
        load_token(file).map_err(|error| HttpError::Token {
            file: file.clone(),
            error,
        })
    })
    .transpose()
}
