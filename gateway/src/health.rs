//! Whether Iggy answers.
//!
//! What always holds: the answer is never older than a few seconds while [`watch`] runs; asking costs one atomic load.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use crate::log::{Log, LogError};

/// What is known of Iggy's reachability.
#[derive(Debug)]
pub struct Health {
    origin: Instant,
    /// Since when Iggy has been away, in milliseconds after `origin` and plus 1; 0 while it answers.
    away_since: AtomicU64,
}

/// How often Iggy is asked while it answers, and while it does not.
const INTERVAL: Duration = Duration::from_secs(2);
const INTERVAL_AWAY: Duration = Duration::from_millis(500);
/// An Iggy that takes longer than this to answer a ping is away for those who want to come in.
const PATIENCE: Duration = Duration::from_secs(5);

impl Health {
    /// Iggy answered now.
    pub fn new(now: Instant) -> Self {
        Self {
            origin: now,
            away_since: AtomicU64::new(0),
        }
    }

    /// For how long Iggy has been away; `None` if it answered when it was last asked.
    pub fn away_for(&self) -> Option<Duration> {
        let since = self.away_since.load(Ordering::Relaxed).checked_sub(1)?;
        Some(
            self.origin
                .elapsed()
                .saturating_sub(Duration::from_millis(since)),
        )
    }

    fn answered(&self) {
        self.away_since.store(0, Ordering::Relaxed);
    }

    fn failed(&self) {
        if self.away_since.load(Ordering::Relaxed) == 0 {
            let now = u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX - 1);
            self.away_since.store(now + 1, Ordering::Relaxed);
        }
    }
}

/// Asks Iggy now and then, for as long as it is polled.
pub async fn watch(health: Arc<Health>, log: Arc<dyn Log>) {
    loop {
        let asked = timeout(PATIENCE, log.ping());
        match asked.await.unwrap_or(Err(LogError::Timeout(PATIENCE))) {
            Ok(()) => {
                if let Some(away) = health.away_for() {
                    tracing::info!(away_seconds = away.as_secs_f32(), "Iggy answers again");
                }
                health.answered();
                sleep(INTERVAL).await;
            }
            Err(error) => {
                if health.away_for().is_none() {
                    tracing::warn!(%error, "Iggy does not answer; established connections stay, publishes wait");
                }
                health.failed();
                sleep(INTERVAL_AWAY).await;
            }
        }
    }
}
