//! One open source: its life from open to close. The source itself sits behind a read-write lock: whoever runs its code
//! holds it for reading, closing needs it for writing, so closing never runs beside anything else.

#![allow(unsafe_code)]

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::sync::{RwLock, watch};
use tokio::task::JoinHandle;
use tracing::{error, info, warn};

use super::SourceBatchResult;
use super::polling::{self, Applied, InFlight, Policy, Sent};
use crate::boundary::{self, FAILED, InputError, MISUSE, OK};
use crate::runtime::get_runtime;
use crate::{ConnectorState, Source};

/// How long closing waits for the source's `on_batch_result`, the only thing that it does not interrupt. As long as the
/// runtime waits for its own side.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// A source that was opened.
pub(crate) struct SourceInstance<T> {
    id: u32,
    /// `None` once it is closed.
    source: Arc<RwLock<Option<T>>>,
    polling: Mutex<Option<Polling>>,
    in_flight: Arc<InFlight>,
}

struct Polling {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

/// The configuration and the state that the host passed to `open`.
///
/// # Safety
/// Pointers that are not null must be readable for their length during the call.
pub(crate) unsafe fn read_input<C: DeserializeOwned>(
    config_ptr: *const u8,
    config_len: usize,
    state_ptr: *const u8,
    state_len: usize,
) -> Result<(C, Option<ConnectorState>), InputError> {
    // SAFETY: the caller's promise is the one that these functions ask for.
    let (config, state) = unsafe {
        (
            boundary::config(config_ptr, config_len)?,
            boundary::bytes("state", state_ptr, state_len)?,
        )
    };
    let state = (!state_ptr.is_null()).then(|| ConnectorState(state.to_vec()));
    Ok((config, state))
}

impl<T: Source + 'static> SourceInstance<T> {
    /// Builds and opens a source; the error is the code for the host. Blocks.
    pub(crate) fn open(id: u32, new: impl FnOnce() -> T) -> Result<Self, i32> {
        let runtime = get_runtime();
        // Also for a source that is built or dropped here and expects to find a runtime then.
        let _entered = runtime.enter();
        let mut source = new();
        if let Err(error) = runtime.block_on(source.open()) {
            error!(id, "source connector cannot be opened: {error}");
            return Err(FAILED);
        }
        Ok(Self {
            id,
            source: Arc::new(RwLock::new(Some(source))),
            polling: Mutex::new(None),
            in_flight: Arc::new(InFlight::default()),
        })
    }

    /// Starts the polling, once in the life of an instance. Does not block.
    pub(crate) fn start(&self, send: impl Fn(u64, &[u8]) -> Sent + Send + Sync + 'static) -> i32 {
        let mut polling = self.polling.lock();
        if polling.is_some() {
            error!(
                id = self.id,
                "source connector: it was started already; close it and open it anew to start it again"
            );
            return MISUSE;
        }
        let (stop, stopped) = watch::channel(false);
        let (id, source, in_flight) = (
            self.id,
            Arc::clone(&self.source),
            Arc::clone(&self.in_flight),
        );
        let task = get_runtime().spawn(async move {
            if let Some(source) = source.read().await.as_ref() {
                polling::run(id, source, send, &in_flight, stopped, Policy::default()).await;
            }
        });
        *polling = Some(Polling { stop, task });
        OK
    }

    /// Hands the host's verdict to the polling task and waits until the source was told. Blocks.
    pub(crate) fn complete(&self, batch_id: u64, code: u8) -> i32 {
        let (id, known) = (self.id, SourceBatchResult::try_from(code));
        if known.is_err() {
            error!(
                id,
                batch_id,
                code,
                "source connector: unknown batch result; it counts as not delivered"
            );
        }
        let result = known.unwrap_or(SourceBatchResult::Nack);
        let applied = match self.in_flight.deliver(batch_id, result) {
            Ok(applied) => applied,
            Err(reason) => {
                warn!(
                    id,
                    batch_id, "source connector: batch result ignored: {reason}"
                );
                return MISUSE;
            }
        };
        match applied.blocking_recv() {
            Ok(Applied::Continue) if known.is_ok() => OK,
            // The polling stops, or was stopped before it could tell the source.
            _ => MISUSE,
        }
    }

    /// Stops the polling and closes the source. Blocks.
    pub(crate) fn close(&self) -> i32 {
        let id = self.id;
        let polling = self.polling.lock().take();
        get_runtime().block_on(async {
            if let Some(Polling { stop, mut task }) = polling {
                stop.send_replace(true);
                if tokio::time::timeout(STOP_LIMIT, &mut task).await.is_err() {
                    error!(
                        id,
                        "source connector: it did not take a batch result within {STOP_LIMIT:?}; given up"
                    );
                    task.abort();
                }
            }
            let Ok(mut slot) = tokio::time::timeout(STOP_LIMIT, self.source.write()).await else {
                error!(id, "source connector: still busy, not closed");
                return MISUSE;
            };
            let Some(mut source) = slot.take() else {
                error!(id, "source connector: it is closed already");
                return MISUSE;
            };
            match source.close().await {
                Ok(()) => info!(id, "source connector closed"),
                Err(error) => error!(id, "source connector closed with an error: {error}"),
            }
            OK
        })
    }
}
