//! Ending in order: one listener alone, or all of them when the gateway stops.
//!
//! What always holds: who is drained finishes: what it has sent is stored and acknowledged, what is queued for it is sent, within
//! `shutdown_grace`; the log says how many are left, once a second; other listeners notice nothing.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::Gateway;
use crate::listener::door::{Door, Phase};
use crate::listener::{accept, bind};
use crate::session::{Context, End};

/// How often the log says how many are left.
const PROGRESS: Duration = Duration::from_secs(1);

/// How often it is looked whether the last has left.
const LOOK: Duration = Duration::from_millis(20);

/// Why a listener is not drained, or not opened again.
#[derive(Debug, thiserror::Error)]
pub enum DrainError {
    /// There is none.
    #[error("no listener has the address {address}; there are: {}", known.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    Unknown {
        /// What was asked for.
        address: SocketAddr,
        /// Those there are.
        known: Vec<SocketAddr>,
    },
    /// It does not accept any more.
    #[error("listener {0} is {phase} already", phase = .1.name())]
    Closed(SocketAddr, Phase),
    /// It accepts.
    #[error("listener {0} is open already")]
    Open(SocketAddr),
    /// All of them end.
    #[error("the gateway stops")]
    Stopping,
    /// Its port cannot be had again.
    #[error("listener {address} cannot be opened: {error}; stop what uses the port")]
    Bind {
        /// Its address.
        address: SocketAddr,
        /// What the system said.
        error: std::io::Error,
    },
}

impl Gateway {
    fn door(&self, address: SocketAddr) -> Result<&Arc<Door>, DrainError> {
        if self.context.stopping.is_cancelled() {
            return Err(DrainError::Stopping);
        }
        let doors = &self.context.doors;
        let found = doors.iter().find(|door| door.address == address);
        found.ok_or_else(|| DrainError::Unknown {
            address,
            known: doors.iter().map(|door| door.address).collect(),
        })
    }

    /// Closes the listener at `address` and lets those who came by it finish. Returns at once; [`Door::phase`] says how far it
    /// is, and the log.
    ///
    /// # Errors
    /// There is none, or it is closed already.
    pub fn drain_listener(&self, address: SocketAddr) -> Result<(), DrainError> {
        let door = self.door(address)?;
        if !door.close() {
            return Err(DrainError::Closed(address, door.phase()));
        }
        tracing::info!(listener = %address, connections = door.here(), "listener draining");
        let of_door = |_: &_, live: &crate::session::Live| {
            if Arc::ptr_eq(&live.door, door) {
                live.end.end(End::Draining);
            }
        };
        self.context.sessions.for_each(of_door);
        let door = door.clone();
        self.spawn(async move {
            let begun = Instant::now();
            let mut told = begun;
            while door.phase() == Phase::Draining {
                sleep(LOOK).await;
                if told.elapsed() >= PROGRESS {
                    told = Instant::now();
                    tracing::info!(listener = %door.address, connections = door.here(), "listener still draining");
                }
            }
            if door.phase() == Phase::Drained {
                tracing::info!(listener = %door.address, seconds = begun.elapsed().as_secs_f32(), "listener drained");
            }
        });
        Ok(())
    }

    /// Opens the listener at `address` again after it was drained.
    ///
    /// # Errors
    /// There is none, it is open, or its port cannot be bound.
    pub async fn open_listener(&self, address: SocketAddr) -> Result<(), DrainError> {
        let door = self.door(address)?;
        if door.phase() == Phase::Accepting {
            return Err(DrainError::Open(address));
        }
        // The task that had the port before gives it back a moment after it was told to.
        let deadline = Instant::now() + PROGRESS;
        let listener = loop {
            match bind(address) {
                Ok(listener) => break listener,
                Err(_) if Instant::now() < deadline => sleep(LOOK).await,
                Err(error) => return Err(DrainError::Bind { address, error }),
            }
        };
        door.open();
        tracing::info!(listener = %address, "listener open again");
        self.spawn(accept(
            listener,
            door.clone(),
            self.connections.clone(),
            self.context.clone(),
        ));
        Ok(())
    }
}

/// Says once a second how far the stop of the gateway is, for as long as it is polled.
pub(super) async fn tell_progress<T>(context: &Context) -> T {
    loop {
        sleep(PROGRESS).await;
        let waiting_bytes = context
            .ingest
            .load()
            .as_ref()
            .map_or(0, |ingest| ingest.waiting_bytes());
        tracing::info!(
            clients = context.sessions.len(),
            waiting_bytes,
            outbox_bytes = context.outbox_total.bytes(),
            "the gateway is stopping; these are left"
        );
    }
}
