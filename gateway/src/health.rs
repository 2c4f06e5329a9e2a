//! Whether Iggy answers.
//!
//! What always holds: the answer is never older than a few seconds while [`watch`] runs; asking costs one atomic load.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout};

use crate::log::{Log, LogError};

/// What is known of Iggy's reachability.
#[derive(Debug)]
pub struct Health {
    origin: Instant,
    /// Since when Iggy has been away, in milliseconds after `origin` and plus 1; 0 while it answers.
    away_since: AtomicU64,
    /// When it was asked last, in milliseconds after `origin`.
    asked: AtomicU64,
    /// Why it did not answer, while it does not.
    error: Mutex<Option<String>>,
}

/// How often Iggy is asked while it answers, and while it does not.
const INTERVAL: Duration = Duration::from_secs(1);
const INTERVAL_AWAY: Duration = Duration::from_millis(500);
/// An Iggy that takes longer than this to answer a ping is away for those who want to come in.
const PATIENCE: Duration = Duration::from_secs(3);

impl Health {
    /// Iggy answered now.
    pub fn new(now: Instant) -> Self {
        Self {
            origin: now,
            away_since: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            error: Mutex::default(),
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

    /// How long ago Iggy was asked last.
    pub fn age(&self) -> Duration {
        let asked = Duration::from_millis(self.asked.load(Ordering::Relaxed));
        self.origin.elapsed().saturating_sub(asked)
    }

    /// Why Iggy did not answer, while it does not.
    pub fn error(&self) -> Option<String> {
        self.error.lock().clone()
    }

    fn now(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX - 1)
    }

    fn answered(&self) {
        self.asked.store(self.now(), Ordering::Relaxed);
        *self.error.lock() = None;
        self.away_since.store(0, Ordering::Relaxed);
    }

    fn failed(&self, error: String) {
        let now = self.now();
        self.asked.store(now, Ordering::Relaxed);
        *self.error.lock() = Some(error);
        if self.away_since.load(Ordering::Relaxed) == 0 {
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
                health.failed(error.to_string());
                sleep(INTERVAL_AWAY).await;
            }
        }
    }
}
