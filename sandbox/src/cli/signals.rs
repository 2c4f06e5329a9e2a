//! The signals that end the program.

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::Failure;

/// SIGINT and SIGTERM, caught from the moment this exists.
pub(super) struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    pub(super) fn catch() -> Result<Self, Failure> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Returns when one of them came.
    pub(super) async fn came(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => tracing::info!("stopping on SIGINT"),
            _ = self.terminate.recv() => tracing::info!("stopping on SIGTERM"),
        }
    }

    /// Runs `work`, unless a signal comes: then it is given up, which is `None`.
    pub(super) async fn unless_came<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            () = self.came() => None,
            done = work => Some(done),
        }
    }
}
