//! What a gateway needs before it can start: its map, what decides who may come in, and an Iggy that answers.
//!
//! What always holds: everything that can be found wrong without Iggy is found before Iggy is waited for; a refusal that no
//! waiting changes ends the start at once.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout_at};

use crate::access::{Access, AccessError};
use crate::backoff::Backoff;
use crate::config::{Config, ListenerConfig, Method, Secret};
use crate::http::{self, HttpError};
use crate::listener::tls::{Tls, TlsError};
use crate::log::{Log, LogError};
use crate::mapping::{self, LoadError, NotOneTarget, TopicMap};
use crate::reload::AtStart;
use crate::targets::TargetError;

/// Why a gateway does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// There is no topic map.
    #[error("{0}")]
    Map(#[from] LoadError),
    /// The connectors runtime cannot store where the topic map says.
    #[error("produce = \"runtime\" does not fit the topic map {}: {error}; mend them, or set produce = \"client\"", file.display())]
    NotOneTarget {
        /// The topic map's file.
        file: PathBuf,
        /// Why.
        error: NotOneTarget,
    },
    /// The files of a listener with TLS cannot be used.
    #[error("listener {address}: {error}")]
    Tls {
        /// The listener's address.
        address: SocketAddr,
        /// Why not.
        error: Box<TlsError>,
    },
    /// The files that say who may come in, and what they may, cannot be used.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Access(Vec<AccessError>),
    /// A listener cannot be bound.
    #[error("listen: {address}: {error}; stop what uses the port, or choose another")]
    Listen {
        /// As configured.
        address: SocketAddr,
        /// What the system said.
        error: io::Error,
    },
    /// The address for operators cannot be used as it is configured.
    #[error("{0}")]
    Http(#[from] HttpError),
    /// Iggy cannot be used.
    #[error("{0}")]
    Log(#[from] LogError),
    /// Iggy was not reached in time.
    #[error("{error} (waited iggy_start_timeout = {waited:?})")]
    IggyAway {
        /// The last reason.
        error: Box<StartError>,
        /// How long it was tried.
        waited: Duration,
    },
    /// A topic that the map names is not there.
    #[error("{0}")]
    Target(#[from] TargetError),
}

/// How the files look before any of them is read.
pub(super) async fn look_at_files(config: &Config) -> Result<AtStart, StartError> {
    let config = config.clone();
    let looking = spawn_blocking(move || AtStart::look(&config)).await;
    looking.map_err(|error| StartError::Access(vec![AccessError::Interrupted(error.to_string())]))
}

/// Reads the map away from the runtime's threads: a large one takes seconds to compile.
pub(super) async fn read_map(config: &Config) -> Result<TopicMap, StartError> {
    let path = config.topic_map.clone();
    let map = spawn_blocking(move || mapping::load(&path))
        .await
        .map_err(io::Error::other)
        .map_err(|error| LoadError::Unreadable {
            path: config.topic_map.clone(),
            error,
        })??;
    let warnings = map.warnings();
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    if !warnings.is_empty() {
        let file = config.topic_map.display();
        tracing::warn!(warnings = warnings.len(), %file, "the topic map has warnings");
    }
    Ok(map)
}

/// A listener that has no port yet.
pub(super) type Unbound = (Arc<ListenerConfig>, Option<Arc<Tls>>);

/// Reads what decides who may come in, away from the runtime's threads.
pub(super) async fn read_access(
    config: &Config,
    log: Arc<dyn Log>,
) -> Result<(Access, Vec<Unbound>), StartError> {
    let config = config.clone();
    let read = spawn_blocking(move || {
        let access =
            Access::load(&config.access, &config.limits, log).map_err(StartError::Access)?;
        let doors = config.listeners().into_iter().map(|listener| {
            let tls = listener.tls.as_ref().map(Tls::load).transpose();
            let address = listener.address;
            let tls = tls.map_err(|error| StartError::Tls {
                address,
                error: Box::new(error),
            })?;
            Ok((Arc::new(listener), tls.map(Arc::new)))
        });
        Ok((access, doors.collect::<Result<_, StartError>>()?))
    });
    read.await.unwrap_or_else(|error| {
        Err(StartError::Access(vec![AccessError::Interrupted(
            error.to_string(),
        )]))
    })
}

/// Reads the token that opens the address for operators, away from the runtime's threads.
pub(super) async fn read_token(config: &Config) -> Result<Option<Secret>, StartError> {
    let config = config.http.clone();
    let read = spawn_blocking(move || http::token(&config));
    match read.await {
        Ok(token) => Ok(token?),
        Err(error) => Err(StartError::Access(vec![AccessError::Interrupted(
            error.to_string(),
        )])),
    }
}

/// Says in the log what strangers could do. The operator wanted it, but may not have thought of it.
pub(super) fn warn_of_open_doors(listener: &ListenerConfig) {
    if listener.address.ip().is_loopback() {
        return;
    }
    let address = listener.address;
    if listener.authentication.has(Method::Anonymous) {
        tracing::warn!(%address, "everyone who reaches this listener is let in (authentication has \"anonymous\")");
    }
    if listener.tls.is_none() && listener.authentication.take_passwords() {
        tracing::warn!(%address, "passwords and tokens come to this listener in the clear; use TLS, or let something before it speak TLS");
    }
}

impl StartError {
    fn is_transient(&self) -> bool {
        match self {
            Self::Log(error) => error.is_transient(),
            Self::Target(error) => error.is_transient(),
            _ => false,
        }
    }
}

/// Asks Iggy until it answers, for at most `patience`. A refusal that no waiting changes ends it at once.
pub(super) async fn with_patience<F>(
    patience: Duration,
    ask: impl Fn() -> F,
) -> Result<(), StartError>
where
    F: Future<Output = Result<(), StartError>>,
{
    let deadline = Instant::now() + patience;
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
    loop {
        let error = match timeout_at(deadline, ask()).await {
            Ok(Err(error)) if error.is_transient() => error,
            Ok(answered) => return answered,
            Err(_) => LogError::Timeout(patience).into(),
        };
        let pause = backoff.next_pause();
        if Instant::now() + pause >= deadline {
            return Err(StartError::IggyAway {
                error: Box::new(error),
                waited: patience,
            });
        }
        sleep(pause).await;
    }
}
