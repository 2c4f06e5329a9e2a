//! The source half of the interface: its callbacks, the registry of open sources, and the macro that exports a source.

#![allow(unsafe_code)]

mod instance;
mod polling;

use std::fmt::Debug;

use serde::de::DeserializeOwned;

use crate::boundary::{MISUSE, guard};
use crate::log::{self, LogCallback};
use crate::registry::Registry;
use crate::{ConnectorState, Source};

use instance::SourceInstance;
pub(crate) use polling::Sent;

/// How the host takes a batch (runtime 0.5.0): postcard of [`ProducedMessages`](crate::ProducedMessages), valid during
/// the call only. 0 means taken, the outcome follows through `iggy_source_batch_result`; anything else means refused.
/// It is called from a worker thread of the plugin and must not block.
pub type SendCallback = extern "C" fn(
    plugin_id: u32,
    batch_id: u64,
    messages_ptr: *const u8,
    messages_len: usize,
) -> i32;

/// How the host takes a batch in runtime 0.4.0: as [`SendCallback`], but without an outcome.
pub type SendCallbackV1 =
    extern "C" fn(plugin_id: u32, messages_ptr: *const u8, messages_len: usize);

/// The signature of `iggy_source_handle_v2`.
pub type HandleCallback = extern "C" fn(plugin_id: u32, callback: SendCallback) -> i32;

/// The signature of `iggy_source_batch_result`.
pub type BatchResultCallback = extern "C" fn(plugin_id: u32, batch_id: u64, result: u8) -> i32;

/// What became of a source's batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum SourceBatchResult {
    /// The batch was sent as a whole and its state was stored.
    Ack = 0,
    /// The batch was not, or not certainly, sent: the source has to produce it again.
    Nack = 1,
}

impl TryFrom<u8> for SourceBatchResult {
    type Error = ();

    fn try_from(code: u8) -> Result<Self, ()> {
        match code {
            0 => Ok(Self::Ack),
            1 => Ok(Self::Nack),
            _ => Err(()),
        }
    }
}

/// The open sources of a library. Each method is the body of one exported function.
#[doc(hidden)]
pub struct SourceInstances<T>(Registry<SourceInstance<T>>);

impl<T: Source + Debug + 'static> SourceInstances<T> {
    /// None is open.
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        Self(Registry::new("source"))
    }

    /// `iggy_source_open`: 0 if it is open, 1 if the source's own `open` failed, -1 for anything else. Unless it returns
    /// 0, nothing is left behind.
    ///
    /// # Safety
    /// Pointers that are not null must be readable for their length during the call.
    #[allow(clippy::too_many_arguments)]
    pub unsafe fn open<C: DeserializeOwned>(
        &self,
        id: u32,
        config_ptr: *const u8,
        config_len: usize,
        state_ptr: *const u8,
        state_len: usize,
        log_callback: Option<LogCallback>,
        new: impl FnOnce(u32, C, Option<ConnectorState>) -> T,
    ) -> i32 {
        guard("iggy_source_open", id, || {
            if let Some(callback) = log_callback {
                log::install(callback);
            }
            self.0.open(id, || {
                // SAFETY: the caller's promise is the one that `read_input` asks for.
                let input =
                    unsafe { instance::read_input(config_ptr, config_len, state_ptr, state_len) };
                match input {
                    Ok((config, state)) => SourceInstance::open(id, || new(id, config, state)),
                    Err(error) => {
                        tracing::error!(id, "source connector: {error}");
                        Err(MISUSE)
                    }
                }
            })
        })
    }

    /// `iggy_source_handle_v2`: starts to poll the source and returns at once.
    pub fn handle(&self, id: u32, callback: Option<SendCallback>) -> i32 {
        let call = "iggy_source_handle_v2";
        guard(call, id, || {
            let Some(callback) = callback else {
                return refuse_null_callback(id, call);
            };
            let send = move |batch_id, messages: &[u8]| match callback(
                id,
                batch_id,
                messages.as_ptr(),
                messages.len(),
            ) {
                0 => Sent::ResultFollows,
                code => Sent::Refused(code),
            };
            self.0
                .get(id, call)
                .map_or(MISUSE, |source| source.start(send))
        })
    }

    /// `iggy_source_handle` of runtime 0.4.0: as [`Self::handle`]; a batch counts as acknowledged when the callback
    /// returns.
    pub fn handle_v1(&self, id: u32, callback: Option<SendCallbackV1>) -> i32 {
        let call = "iggy_source_handle";
        guard(call, id, || {
            let Some(callback) = callback else {
                return refuse_null_callback(id, call);
            };
            let send = move |_batch_id, messages: &[u8]| {
                callback(id, messages.as_ptr(), messages.len());
                Sent::Delivered
            };
            self.0
                .get(id, call)
                .map_or(MISUSE, |source| source.start(send))
        })
    }

    /// `iggy_source_batch_result`: returns when the source was told. -1 if that batch is not in flight, if the code is
    /// unknown (it counts as a refusal), or if the polling stops because of it.
    pub fn batch_result(&self, id: u32, batch_id: u64, result: u8) -> i32 {
        let call = "iggy_source_batch_result";
        guard(call, id, || {
            if self.0.refuses_to_block(id, call) {
                return MISUSE;
            }
            self.0
                .get(id, call)
                .map_or(MISUSE, |source| source.complete(batch_id, result))
        })
    }

    /// `iggy_source_close`: stops polling, tells the source about a batch in flight, closes it.
    pub fn close(&self, id: u32) -> i32 {
        let call = "iggy_source_close";
        guard(call, id, || {
            if self.0.refuses_to_block(id, call) {
                return MISUSE;
            }
            self.0
                .remove(id, call)
                .map_or(MISUSE, |source| source.close())
        })
    }
}

fn refuse_null_callback(id: u32, call: &'static str) -> i32 {
    tracing::error!(id, call, "source connector: the host passed no callback");
    MISUSE
}

/// Exports a source under the names that the connectors runtime looks up.
///
/// The type needs `new(id: u32, config: C, state: Option<ConnectorState>) -> Self` besides [`Source`] and `Debug`, where
/// `C` is what serde reads from the JSON of `plugin_config`. Once in a library. In the plugin's own unit tests nothing is
/// exported.
#[macro_export]
macro_rules! source_connector {
    ($type:ty) => {
        const _: fn() = || {
            fn is_a_source<T: $crate::Source + ::std::fmt::Debug>() {}
            is_a_source::<$type>();
        };

        #[cfg(not(test))]
        const _: () = {
            static INSTANCES: $crate::connector_macro_support::SourceInstances<$type> =
                $crate::connector_macro_support::SourceInstances::new();

            #[unsafe(no_mangle)]
            unsafe extern "C" fn iggy_source_open(
                id: u32,
                config_ptr: *const u8,
                config_len: usize,
                state_ptr: *const u8,
                state_len: usize,
                log_callback: ::std::option::Option<$crate::LogCallback>,
            ) -> i32 {
                // SAFETY: the interface makes the host promise what `open` asks for.
                unsafe {
                    INSTANCES.open(
                        id,
                        config_ptr,
                        config_len,
                        state_ptr,
                        state_len,
                        log_callback,
                        <$type>::new,
                    )
                }
            }

            #[unsafe(no_mangle)]
            extern "C" fn iggy_source_handle_v2(
                id: u32,
                callback: ::std::option::Option<$crate::source::SendCallback>,
            ) -> i32 {
                INSTANCES.handle(id, callback)
            }

            #[unsafe(no_mangle)]
            extern "C" fn iggy_source_handle(
                id: u32,
                callback: ::std::option::Option<$crate::source::SendCallbackV1>,
            ) -> i32 {
                INSTANCES.handle_v1(id, callback)
            }

            #[unsafe(no_mangle)]
            extern "C" fn iggy_source_batch_result(id: u32, batch_id: u64, result: u8) -> i32 {
                INSTANCES.batch_result(id, batch_id, result)
            }

            #[unsafe(no_mangle)]
            extern "C" fn iggy_source_close(id: u32) -> i32 {
                INSTANCES.close(id)
            }

            #[unsafe(no_mangle)]
            extern "C" fn iggy_source_version() -> *const ::std::ffi::c_char {
                concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
            }
        };
    };
}
