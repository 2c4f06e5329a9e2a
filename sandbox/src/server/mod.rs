//! A log server that speaks the Iggy binary protocol over TCP to the Rust SDK 0.11: for trying and testing on one
//! machine. Production is Apache Iggy.
//!
//! The way of a request: `connection` reads a frame, `frame` decodes its header, `dispatch` finds the function for its
//! command, which answers from the `catalog` or goes to the `store`. `docs/sandbox-server.md` says what is served and how
//! it differs from Iggy.

mod catalog;
mod change;
mod connection;
mod dispatch;
mod frame;
mod groups;
mod login;
mod membership;
mod memory;
mod messages;
mod offsets;
mod record;
mod session;
mod settings;
mod stats;
mod store;
mod streams;
mod system;
mod topics;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use iggy_common::{IggyError, IggyTimestamp};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

pub use secrecy::SecretString;
pub use stats::{PartitionStats, Stats};
pub use store::StoreError;

use change::Change;
use membership::Membership;
use memory::Memory;
use session::Sessions;
use store::{Changed, Store};

/// Connections at a time; each costs a task, a socket and small buffers.
const CONNECTIONS_MAX: usize = 1024;

/// Memory for large request bodies, of all connections together, and as much again for poll replies. Bytes.
const MEMORY_MAX: usize = 256 * 1024 * 1024;

/// How long a shutdown waits for requests that are being served.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// The pause after an accept that failed, for example because the process has no file descriptors left.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// What a server needs to know.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Where to listen; port 0 takes a free one.
    pub address: SocketAddr,
    /// The folder for the data; it is made if it does not exist.
    pub data_dir: PathBuf,
    /// The one user's name.
    pub username: String,
    /// The one user's password.
    pub password: SecretString,
}

impl ServerConfig {
    /// A configuration with Iggy's usual user and password, `iggy` and `iggy`.
    #[must_use]
    pub fn new(address: SocketAddr, data_dir: impl Into<PathBuf>) -> Self {
        Self {
            address,
            data_dir: data_dir.into(),
            username: "iggy".to_owned(),
            password: SecretString::from("iggy"),
        }
    }
}

/// Why the server cannot start or had to stop.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}; choose another address or stop what uses it")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The data cannot be opened.
    #[error(transparent)]
    Open(#[from] StoreError),
    /// The data cannot be written any more.
    #[error("the server has stopped: {0}")]
    Store(Arc<StoreError>),
    /// The runtime is going down.
    #[error("the data folder cannot be opened, because the program is ending")]
    Ending,
}

/// A server that listens. [`Server::run`] serves.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    shared: Arc<Shared>,
}

/// What all connections share.
#[derive(Debug)]
struct Shared {
    username: String,
    password: SecretString,
    store: Store,
    sessions: Sessions,
    membership: Mutex<Membership>,
    bodies: Memory,
    replies: Memory,
    commits: AtomicU64,
    /// Microseconds since the Unix epoch.
    started_at: u64,
}

impl Server {
    /// Opens the data and listens. Connections wait until [`Server::run`] is called.
    ///
    /// # Errors
    /// See [`ServerError`].
    pub async fn bind(config: ServerConfig) -> Result<Self, ServerError> {
        let folder = config.data_dir;
        let store = tokio::task::spawn_blocking(move || Store::open(&folder))
            .await
            .map_err(|_| ServerError::Ending)??;
        let failed = |source| ServerError::Bind {
            address: config.address,
            source,
        };
        let listener = TcpListener::bind(config.address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let shared = Arc::new(Shared {
            username: config.username,
            password: config.password,
            store,
            sessions: Sessions::default(),
            membership: Mutex::default(),
            bodies: Memory::new(MEMORY_MAX),
            replies: Memory::new(MEMORY_MAX),
            commits: AtomicU64::new(0),
            started_at: IggyTimestamp::now().as_micros(),
        });
        Ok(Self {
            listener,
            address,
            shared,
        })
    }

    /// The address on which the server listens, with the port that it was given.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// A handle on the counters.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats::new(self.shared.store.catalog_cell())
    }

    /// Serves until `shutdown` is cancelled; then requests that are being served are answered, everything is brought to
    /// the disk and the data is closed.
    ///
    /// # Errors
    /// [`ServerError::Store`] when the data cannot be written any more.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), ServerError> {
        info!("serving the Iggy protocol on {}", self.address);
        let connections = TaskTracker::new();
        let stop = shutdown.child_token();
        let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let result = loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                error = self.shared.store.failed() => break Err(ServerError::Store(error)),
                () = stop.cancelled() => break Ok(()),
            };
            match accepted {
                Ok((stream, client)) => {
                    let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else {
                        warn!("a connection from {client} was refused: {CONNECTIONS_MAX} are open");
                        continue;
                    };
                    let (shared, stop) = (Arc::clone(&self.shared), stop.clone());
                    connections.spawn(async move {
                        connection::serve(shared, stream, stop).await;
                        drop(slot);
                    });
                }
                Err(error) => {
                    warn!("a connection cannot be accepted: {error}");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            }
        };
        drop(self.listener);
        stop.cancel();
        connections.close();
        if tokio::time::timeout(SHUTDOWN_GRACE, connections.wait())
            .await
            .is_err()
        {
            warn!(
                "{} connections were still busy at the end",
                connections.len()
            );
        }
        let shared = self.shared;
        let closed = tokio::task::spawn_blocking(move || shared.store.close()).await;
        result.and(closed.map_err(|_| ServerError::Ending))
    }
}

impl Shared {
    /// Changes the catalog, and forgets the members of groups that are gone.
    async fn change(&self, change: Change) -> Result<Changed, IggyError> {
        let changed = self.store.change(change).await?;
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.membership
            .lock()
            .retain(|key| groups::exists(&changed.catalog, key));
        Ok(changed)
    }

    /// The number of changes to the catalog since the start.
    fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }
}
