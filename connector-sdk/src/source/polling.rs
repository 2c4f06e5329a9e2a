//! The batch protocol: poll, send, wait for the verdict, tell the source, again. At most one batch is in flight; their
//! ids rise from 1. Everything that happens to a batch happens in one task, so its outcome is decided once.

use std::future::Future;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};
use tracing::{debug, error, warn};

use super::SourceBatchResult;
use crate::boundary::catch_panic;
use crate::{ProducedMessages, Source};

/// The times and limits of the protocol.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Policy {
    /// A batch without a verdict after that time counts as not delivered.
    result_timeout: Duration,
    /// The wait before the poll after a first failure; it doubles with each further one in a row.
    first_delay: Duration,
    /// The longest wait.
    max_delay: Duration,
    /// After so many undelivered batches in a row the polling stops for good.
    max_nacks: u32,
}

impl Default for Policy {
    /// As the SDK that belongs to the runtime 0.5.0.
    fn default() -> Self {
        Self {
            result_timeout: Duration::from_secs(30),
            first_delay: Duration::from_millis(100),
            max_delay: Duration::from_secs(5),
            max_nacks: 5,
        }
    }
}

impl Policy {
    fn delay(&self, failures: u32) -> Duration {
        let doubled = 2_u32.saturating_pow(failures.saturating_sub(1));
        self.first_delay.saturating_mul(doubled).min(self.max_delay)
    }
}

/// What the host's callback made of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    /// Taken; the verdict comes later.
    ResultFollows,
    /// Taken, and that is all that will be known.
    Delivered,
    /// Not taken, with the host's code.
    Refused(i32),
}

/// What a verdict led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Applied {
    /// The source was told.
    Continue,
    /// The polling stops: the source failed to take the verdict, or the limit of failures is reached.
    Stop,
}

/// Why a verdict has no receiver.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotInFlight {
    #[error(
        "no batch is waiting for a result (it came twice, after the timeout, or while closing)"
    )]
    Nothing,
    #[error("batch {expected} is in flight")]
    Other { expected: u64 },
}

/// The place where the host's verdict meets the waiting task.
#[derive(Default)]
pub(crate) struct InFlight(Mutex<Option<Waiting>>);

struct Waiting {
    batch_id: u64,
    verdict: oneshot::Sender<Verdict>,
}

struct Verdict {
    result: SourceBatchResult,
    applied: oneshot::Sender<Applied>,
}

impl InFlight {
    /// Passes a verdict on; the receiver tells what it led to.
    pub(crate) fn deliver(
        &self,
        batch_id: u64,
        result: SourceBatchResult,
    ) -> Result<oneshot::Receiver<Applied>, NotInFlight> {
        let mut slot = self.0.lock();
        let Some(waiting) = slot.take_if(|waiting| waiting.batch_id == batch_id) else {
            return Err(slot.as_ref().map_or(NotInFlight::Nothing, |other| {
                let expected = other.batch_id;
                NotInFlight::Other { expected }
            }));
        };
        let (applied, outcome) = oneshot::channel();
        // Sent under the lock, so that an empty slot means: the verdict is in the channel.
        match waiting.verdict.send(Verdict { result, applied }) {
            Ok(()) => Ok(outcome),
            Err(_) => Err(NotInFlight::Nothing),
        }
    }

    fn expect(&self, batch_id: u64) -> Expected<'_> {
        let (verdict, receiver) = oneshot::channel();
        *self.0.lock() = Some(Waiting { batch_id, verdict });
        Expected {
            in_flight: self,
            receiver,
        }
    }
}

/// The expectation of one verdict; it ends with it.
struct Expected<'a> {
    in_flight: &'a InFlight,
    receiver: oneshot::Receiver<Verdict>,
}

impl Expected<'_> {
    async fn verdict(&mut self) -> Option<Verdict> {
        (&mut self.receiver).await.ok()
    }

    /// Gives up waiting; returns a verdict that came before that.
    fn withdraw(&mut self) -> Option<Verdict> {
        self.in_flight.0.lock().take();
        self.receiver.try_recv().ok()
    }
}

/// Polls the source until it is stopped, or for good after too many failures. Says in the log why it ended.
pub(crate) async fn run<T: Source>(
    id: u32,
    source: &T,
    send: impl Fn(u64, &[u8]) -> Sent + Sync,
    in_flight: &InFlight,
    mut stop: watch::Receiver<bool>,
    policy: Policy,
) {
    let mut batch_id = 1;
    let mut nacks = 0;
    let mut poll_errors = 0;
    loop {
        let Some(polled) = unless_stopped(&mut stop, catch_panic(source.poll())).await else {
            break;
        };
        let failures = match polled {
            Ok(Ok(messages)) => {
                poll_errors = 0;
                let exchange = Exchange {
                    id,
                    batch_id,
                    source,
                    in_flight,
                    policy,
                };
                let applied = exchange
                    .carry_out(&messages, &send, &mut stop, &mut nacks)
                    .await;
                batch_id += 1;
                if applied == Applied::Stop {
                    return;
                }
                nacks
            }
            Ok(Err(error)) => {
                poll_errors += 1;
                error!(id, "source connector cannot be polled: {error}");
                poll_errors
            }
            Err(panic) => {
                error!(
                    id,
                    "source connector panicked in poll: {panic}; it is not polled any more until it is restarted"
                );
                return;
            }
        };
        let pause = async {
            if failures > 0 {
                tokio::time::sleep(policy.delay(failures)).await;
            } else {
                // A source and a host that are always ready would never let go of this thread otherwise.
                tokio::task::yield_now().await;
            }
        };
        if unless_stopped(&mut stop, pause).await.is_none() {
            break;
        }
    }
    debug!(id, "source connector: polling stopped");
}

/// One batch on its way to the host and the verdict on its way back.
struct Exchange<'a, T> {
    id: u32,
    batch_id: u64,
    source: &'a T,
    in_flight: &'a InFlight,
    policy: Policy,
}

impl<T: Source> Exchange<'_, T> {
    async fn carry_out(
        &self,
        messages: &ProducedMessages,
        send: &(impl Fn(u64, &[u8]) -> Sent + Sync),
        stop: &mut watch::Receiver<bool>,
        nacks: &mut u32,
    ) -> Applied {
        let (id, batch_id) = (self.id, self.batch_id);
        let verdict = match postcard::to_allocvec(messages) {
            Ok(encoded) => self.send_and_wait(&encoded, send, stop).await,
            Err(error) => {
                error!(
                    id,
                    batch_id, "source connector: its batch cannot be encoded: {error}"
                );
                Err(SourceBatchResult::Nack)
            }
        };
        let (result, answer) = match verdict {
            Ok(Verdict { result, applied }) => (result, Some(applied)),
            Err(result) => (result, None),
        };
        let applied = self.apply(result, nacks).await;
        if let Some(answer) = answer {
            // The host may have given up waiting; then nobody needs the answer.
            _ = answer.send(applied);
        }
        applied
    }

    /// The host's verdict, or the one that stands in for it.
    async fn send_and_wait(
        &self,
        encoded: &[u8],
        send: &(impl Fn(u64, &[u8]) -> Sent + Sync),
        stop: &mut watch::Receiver<bool>,
    ) -> Result<Verdict, SourceBatchResult> {
        let (id, batch_id) = (self.id, self.batch_id);
        // Before sending: the host may answer from another thread before its callback has returned.
        let mut expected = self.in_flight.expect(batch_id);
        let instead = match send(batch_id, encoded) {
            Sent::ResultFollows => {
                let waiting = tokio::time::timeout(self.policy.result_timeout, expected.verdict());
                match unless_stopped(stop, waiting).await {
                    Some(Ok(Some(verdict))) => return Ok(verdict),
                    Some(Ok(None)) | None => {
                        debug!(
                            id,
                            batch_id, "source connector: stopped with a batch in flight"
                        );
                    }
                    Some(Err(_elapsed)) => warn!(
                        id,
                        batch_id,
                        "source connector: no batch result within {:?}; it counts as not delivered",
                        self.policy.result_timeout
                    ),
                }
                SourceBatchResult::Nack
            }
            Sent::Delivered => SourceBatchResult::Ack,
            Sent::Refused(code) => {
                warn!(
                    id,
                    batch_id, code, "source connector: the runtime refused a batch"
                );
                SourceBatchResult::Nack
            }
        };
        expected.withdraw().ok_or(instead)
    }

    /// Tells the source and counts.
    async fn apply(&self, result: SourceBatchResult, nacks: &mut u32) -> Applied {
        let id = self.id;
        match catch_panic(self.source.on_batch_result(result)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                error!(
                    id,
                    "source connector cannot take the result {result:?}: {error}; it is not polled any more until it is restarted"
                );
                return Applied::Stop;
            }
            Err(panic) => {
                error!(
                    id,
                    "source connector panicked at the result {result:?}: {panic}; it is not polled any more until it is restarted"
                );
                return Applied::Stop;
            }
        }
        match result {
            SourceBatchResult::Ack => *nacks = 0,
            SourceBatchResult::Nack => *nacks += 1,
        }
        if *nacks >= self.policy.max_nacks {
            error!(
                id,
                "source connector: {nacks} batches in a row were not delivered; IT IS NOT POLLED ANY MORE until it is \
                 restarted (POST /sources/{{key}}/restart)"
            );
            return Applied::Stop;
        }
        Applied::Continue
    }
}

/// The future's output, or `None` as soon as the polling has to stop (which also drops the future).
async fn unless_stopped<F: Future>(
    stop: &mut watch::Receiver<bool>,
    future: F,
) -> Option<F::Output> {
    tokio::select! {
        biased;
        // An error means that the instance is gone, which is a stop too.
        _ = stop.wait_for(|stop| *stop) => None,
        output = future => Some(output),
    }
}

#[cfg(test)]
mod tests;
