//! A fixed number of connections, each lent to one request at a time, and rebuilt for ever when they break.
//!
//! What always holds: requests are served in the order in which they ask; a connection that comes back sound is lent again,
//! and one whose borrower went away in the middle of an exchange is not; while no connection is up and the last attempt to
//! make one failed, asking fails at once with that reason; `idle.len()` equals the permits of `ready`, and every missing
//! connection is either a permit of `vacancies` or in the hands of one connector.

mod lease;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::backoff::Backoff;
use crate::log::LogError;
pub(super) use lease::Lease;
use lease::Slot;

/// The pause after the first failed attempt to connect; it doubles with each further one.
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
/// The longest pause between two attempts to connect.
pub(super) const LONGEST_BACKOFF: Duration = Duration::from_secs(5);
/// How long one attempt may take, with login.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an attempt may take before requests stop waiting for it and fail.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often connections are checked that were not used for half of that time.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// How long a check may take.
const CHECK_TIMEOUT: Duration = Duration::from_secs(3);

/// How connections are made.
pub(super) trait Dial: Send + Sync + 'static {
    /// What is made.
    type Connection: Send + Sync + 'static;

    /// Makes a connection that is ready for requests. `attempt` counts from 0 since the last success.
    fn dial(&self, attempt: u32)
    -> impl Future<Output = Result<Self::Connection, LogError>> + Send;

    /// Whether the connection still answers.
    fn check(&self, connection: &Self::Connection) -> impl Future<Output = bool> + Send;

    /// The error for a server that cannot be reached for `reason`.
    fn unreachable(&self, reason: &str) -> LogError;
}

/// Whether requests can be served.
#[derive(Debug, Clone, PartialEq)]
enum Health {
    /// No connection, and no reason to believe that there will be none.
    Connecting,
    /// At least one connection.
    Up,
    /// No connection, and why.
    Down(LogError),
}

/// Connections of one purpose. Dropping it closes those that are not lent.
pub(super) struct Pool<D: Dial> {
    shared: Arc<Shared<D>>,
}

struct Shared<D: Dial> {
    dial: Arc<D>,
    size: usize,
    /// How long a request waits for its turn.
    longest_wait: Duration,
    state: Mutex<State<D::Connection>>,
    ready: Semaphore,
    vacancies: Semaphore,
    health: watch::Sender<Health>,
    /// Told when a connection was made, here or in a pool for the same server: the server is back.
    back: Arc<Notify>,
    started: AtomicBool,
    closed: CancellationToken,
}

struct State<C> {
    idle: VecDeque<Slot<C>>,
    /// Connections that are idle or lent.
    live: usize,
    /// For each missing connection that nobody makes yet, the attempt to begin with: a pause comes before all but 0.
    vacant: VecDeque<u32>,
    /// Grows when a connection turns out to be broken: the others, older than that, are checked before they are lent.
    suspicion: u64,
    /// Whether there ever was a connection.
    was_up: bool,
}

impl<D: Dial> Pool<D> {
    /// A pool of `size` connections, which are made when the first is asked for. A request waits at most `longest_wait`
    /// for its turn. `back` is shared by the pools of one server.
    pub(super) fn new(
        dial: Arc<D>,
        size: usize,
        longest_wait: Duration,
        back: Arc<Notify>,
    ) -> Self {
        let size = size.max(1);
        let state = State {
            idle: VecDeque::with_capacity(size),
            live: 0,
            vacant: VecDeque::from(vec![0; size]),
            suspicion: 0,
            was_up: false,
        };
        let shared = Shared {
            dial,
            size,
            longest_wait,
            state: Mutex::new(state),
            ready: Semaphore::new(0),
            vacancies: Semaphore::new(size),
            health: watch::Sender::new(Health::Connecting),
            back,
            started: AtomicBool::new(false),
            closed: CancellationToken::new(),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Waits for the first connection, or for the reason why there is none. Goes on trying either way.
    pub(super) async fn connect(&self) -> Result<(), LogError> {
        self.start();
        let mut health = self.shared.health.subscribe();
        match health
            .wait_for(|health| *health != Health::Connecting)
            .await
            .as_deref()
        {
            Ok(Health::Down(error)) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Borrows a connection, after everyone who asked before.
    ///
    /// # Errors
    /// Why there is no connection, at once; [`LogError::Busy`] if all are lent for too long.
    pub(super) async fn lease(&self) -> Result<Lease<D>, LogError> {
        self.start();
        let sound = async {
            loop {
                let lease = self.shared.next().await?;
                if !lease.is_suspect() {
                    return Ok(lease);
                }
                if let Some(lease) = lease.checked().await {
                    return Ok(lease);
                }
            }
        };
        let (size, longest) = (self.shared.size, self.shared.longest_wait);
        let busy = |_| {
            Err(LogError::Busy(format!(
                "none of {size} connections was free for {longest:?}; if Iggy is not slow, raise iggy_connections"
            )))
        };
        timeout(longest, sound).await.unwrap_or_else(busy)
    }

    /// Closes the connections that are not lent, now, and those that are, when they come back.
    pub(super) fn close(&self) {
        self.shared.close();
    }

    fn start(&self) {
        if self.shared.started.swap(true, Ordering::AcqRel) {
            return;
        }
        for _ in 0..self.shared.size {
            let shared = self.shared.clone();
            tokio::spawn(async move {
                shared
                    .closed
                    .run_until_cancelled(shared.keep_connected())
                    .await
            });
        }
        let shared = self.shared.clone();
        tokio::spawn(async move {
            shared
                .closed
                .run_until_cancelled(shared.keep_checked())
                .await
        });
    }
}

impl<D: Dial> Drop for Pool<D> {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl<D: Dial> Shared<D> {
    async fn next(self: &Arc<Self>) -> Result<Lease<D>, LogError> {
        let mut health = self.health.subscribe();
        tokio::select! {
            biased;
            Ok(permit) = self.ready.acquire() => {
                permit.forget();
                let slot = self.state.lock().idle.pop_front();
                slot.map(|slot| Lease::new(self.clone(), slot)).ok_or_else(|| self.closed_error())
            }
            down = health.wait_for(|health| matches!(health, Health::Down(_))) => match down.as_deref() {
                Ok(Health::Down(error)) => Err(error.clone()),
                _ => Err(self.closed_error()),
            },
        }
    }

    /// Fills vacancies for ever.
    async fn keep_connected(&self) {
        while let Ok(permit) = self.vacancies.acquire().await {
            permit.forget();
            let mut attempt = self.state.lock().vacant.pop_front().unwrap_or(0);
            let mut backoff = Backoff::new(FIRST_BACKOFF, LONGEST_BACKOFF);
            loop {
                if attempt > 0 {
                    self.pause(backoff.next_pause()).await;
                }
                match self.attempt(attempt).await {
                    Ok(connection) => break self.made(connection),
                    Err(error) => self.not_made(error),
                }
                attempt = attempt.saturating_add(1);
            }
        }
    }

    /// Waits, but not longer than until someone else finds the server back.
    async fn pause(&self, pause: Duration) {
        tokio::select! {
            () = sleep(pause) => {}
            () = self.back.notified() => {}
        }
    }

    async fn attempt(&self, attempt: u32) -> Result<D::Connection, LogError> {
        let dial = timeout(CONNECT_TIMEOUT, self.dial.dial(attempt));
        tokio::pin!(dial);
        let no_answer = || self.dial.unreachable("it does not answer");
        // The very first connection is awaited: nobody has waited for anything yet.
        if self.state.lock().was_up {
            match timeout(PATIENCE, &mut dial).await {
                Ok(result) => return result.unwrap_or_else(|_| Err(no_answer())),
                Err(_) => self.not_made(no_answer()),
            }
        }
        dial.await.unwrap_or_else(|_| Err(no_answer()))
    }

    fn made(&self, connection: D::Connection) {
        let mut state = self.state.lock();
        if self.closed.is_cancelled() {
            return;
        }
        state.live += 1;
        state.was_up = true;
        let now = Instant::now();
        let slot = Slot {
            connection: Arc::new(connection),
            made: now,
            used: now,
            sound_at: state.suspicion,
        };
        self.put(&mut state, slot);
        self.health
            .send_if_modified(|health| std::mem::replace(health, Health::Up) != Health::Up);
        drop(state);
        self.back.notify_waiters();
    }

    /// Tells those who wait why there is no connection.
    ///
    /// What is permanent at the first attempt, as a wrong password, is transient once there was a connection: the requests
    /// that wait are as good as before, and whoever mends the server finds them waiting.
    fn not_made(&self, error: LogError) {
        let state = self.state.lock();
        if state.live == 0 && !self.closed.is_cancelled() {
            let keep = !state.was_up || error.is_transient();
            let error = if keep {
                error
            } else {
                self.dial.unreachable(&error.to_string())
            };
            self.health.send_replace(Health::Down(error));
        }
    }

    /// Checks connections that were not used for a while: so the server sees a sign of life, and a dead connection is found
    /// before a request finds it.
    async fn keep_checked(self: &Arc<Self>) {
        loop {
            sleep(CHECK_INTERVAL).await;
            for _ in 0..self.size {
                let Some(slot) = self.take_unused() else {
                    break;
                };
                if let Some(lease) = Lease::new(self.clone(), slot).checked().await {
                    lease.give_back();
                }
            }
        }
    }

    fn take_unused(&self) -> Option<Slot<D::Connection>> {
        let permit = self.ready.try_acquire().ok()?;
        let mut state = self.state.lock();
        // The first is the one that was unused for longest.
        if state.idle.front()?.used.elapsed() < CHECK_INTERVAL / 2 {
            return None;
        }
        permit.forget();
        state.idle.pop_front()
    }

    fn put(&self, state: &mut State<D::Connection>, slot: Slot<D::Connection>) {
        state.idle.push_back(slot);
        self.ready.add_permits(1);
    }

    fn suspicion(&self) -> u64 {
        self.state.lock().suspicion
    }

    fn returned(&self, mut slot: Slot<D::Connection>) {
        slot.used = Instant::now();
        let mut state = self.state.lock();
        if !self.closed.is_cancelled() {
            self.put(&mut state, slot);
        }
    }

    fn lost(&self, made: Instant, suspicious: bool) {
        let mut state = self.state.lock();
        // A connection that broke as soon as it was made is not replaced without a pause.
        state.vacant.push_back(u32::from(made.elapsed() < PATIENCE));
        state.suspicion += u64::from(suspicious);
        state.live -= 1;
        if state.live == 0 && !self.closed.is_cancelled() {
            self.health.send_replace(Health::Connecting);
        }
        self.vacancies.add_permits(1);
    }

    fn close(&self) {
        let idle = {
            let mut state = self.state.lock();
            self.closed.cancel();
            self.health.send_replace(Health::Down(self.closed_error()));
            std::mem::take(&mut state.idle)
        };
        drop(idle);
    }

    fn closed_error(&self) -> LogError {
        self.dial.unreachable("the client was closed")
    }
}
