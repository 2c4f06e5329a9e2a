//! The sink half of the interface: the registry of open sinks, and the macro that exports a sink.

#![allow(unsafe_code)]

mod instance;

use std::fmt::Debug;

use serde::de::DeserializeOwned;

use crate::Sink;
use crate::boundary::{self, MISUSE, guard};
use crate::log::{self, LogCallback};
use crate::registry::Registry;

use instance::{Batch, SinkInstance};

/// The signature of `iggy_sink_consume`. Each of the three parts is postcard and valid during the call only:
/// [`TopicMetadata`](crate::TopicMetadata), [`MessagesMetadata`](crate::MessagesMetadata),
/// [`RawMessages`](crate::RawMessages).
pub type ConsumeCallback = extern "C" fn(
    plugin_id: u32,
    topic_meta_ptr: *const u8,
    topic_meta_len: usize,
    messages_meta_ptr: *const u8,
    messages_meta_len: usize,
    messages_ptr: *const u8,
    messages_len: usize,
) -> i32;

/// The open sinks of a library. Each method is the body of one exported function.
#[doc(hidden)]
pub struct SinkInstances<T>(Registry<SinkInstance<T>>);

impl<T: Sink + Debug + 'static> SinkInstances<T> {
    /// None is open.
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        Self(Registry::new("sink"))
    }

    /// `iggy_sink_open`: 0 if it is open, 1 if the sink's own `open` failed, -1 for anything else. Unless it returns 0,
    /// nothing is left behind.
    ///
    /// # Safety
    /// Pointers that are not null must be readable for their length during the call.
    pub unsafe fn open<C: DeserializeOwned>(
        &self,
        id: u32,
        config_ptr: *const u8,
        config_len: usize,
        log_callback: Option<LogCallback>,
        new: impl FnOnce(u32, C) -> T,
    ) -> i32 {
        guard("iggy_sink_open", id, || {
            if let Some(callback) = log_callback {
                log::install(callback);
            }
            self.0.open(id, || {
                // SAFETY: the caller's promise is the one that `config` asks for.
                match unsafe { boundary::config(config_ptr, config_len) } {
                    Ok(config) => SinkInstance::open(id, || new(id, config)),
                    Err(error) => {
                        tracing::error!(id, "sink connector: {error}");
                        Err(MISUSE)
                    }
                }
            })
        })
    }

    /// `iggy_sink_consume`: 0 if the sink took the batch, 1 if it returned an error, -1 for anything else.
    ///
    /// # Safety
    /// Pointers that are not null must be readable for their length during the call.
    #[allow(clippy::too_many_arguments)]
    pub unsafe fn consume(
        &self,
        id: u32,
        topic_meta_ptr: *const u8,
        topic_meta_len: usize,
        messages_meta_ptr: *const u8,
        messages_meta_len: usize,
        messages_ptr: *const u8,
        messages_len: usize,
    ) -> i32 {
        let call = "iggy_sink_consume";
        guard(call, id, || {
            if self.0.refuses_to_block(id, call) {
                return MISUSE;
            }
            let Some(sink) = self.0.get(id, call) else {
                return MISUSE;
            };
            // SAFETY: the caller's promise is the one that `decoded` asks for.
            let batch = unsafe {
                boundary::decoded("topic metadata", topic_meta_ptr, topic_meta_len).and_then(
                    |topic| {
                        Ok(Batch {
                            topic,
                            metadata: boundary::decoded(
                                "messages metadata",
                                messages_meta_ptr,
                                messages_meta_len,
                            )?,
                            messages: boundary::decoded("messages", messages_ptr, messages_len)?,
                        })
                    },
                )
            };
            match batch {
                Ok(batch) => sink.consume(batch),
                Err(error) => {
                    tracing::error!(id, "sink connector: a batch is lost: {error}");
                    MISUSE
                }
            }
        })
    }

    /// `iggy_sink_close`: waits for batches that are being consumed, then closes the sink.
    pub fn close(&self, id: u32) -> i32 {
        let call = "iggy_sink_close";
        guard(call, id, || {
            if self.0.refuses_to_block(id, call) {
                return MISUSE;
            }
            self.0.remove(id, call).map_or(MISUSE, |sink| sink.close())
        })
    }
}

/// Exports a sink under the names that the connectors runtime looks up.
///
/// The type needs `new(id: u32, config: C) -> Self` besides [`Sink`] and `Debug`, where `C` is what serde reads from the
/// JSON of `plugin_config`. Once in a library. In the plugin's own unit tests nothing is exported.
#[macro_export]
macro_rules! sink_connector {
    ($type:ty) => {
        const _: fn() = || {
            fn is_a_sink<T: $crate::Sink + ::std::fmt::Debug>() {}
            is_a_sink::<$type>();
        };

        #[cfg(not(test))]
        const _: () = {
            static INSTANCES: $crate::connector_macro_support::SinkInstances<$type> =
                $crate::connector_macro_support::SinkInstances::new();

            #[unsafe(no_mangle)]
            unsafe extern "C" fn iggy_sink_open(
                id: u32,
                config_ptr: *const u8,
                config_len: usize,
                log_callback: ::std::option::Option<$crate::LogCallback>,
            ) -> i32 {
                // SAFETY: the interface makes the host promise what `open` asks for.
                unsafe { INSTANCES.open(id, config_ptr, config_len, log_callback, <$type>::new) }
            }

            #[unsafe(no_mangle)]
            unsafe extern "C" fn iggy_sink_consume(
                id: u32,
                topic_meta_ptr: *const u8,
                topic_meta_len: usize,
                messages_meta_ptr: *const u8,
                messages_meta_len: usize,
                messages_ptr: *const u8,
                messages_len: usize,
            ) -> i32 {
                // SAFETY: the interface makes the host promise what `consume` asks for.
                unsafe {
                    INSTANCES.consume(
                        id,
                        topic_meta_ptr,
                        topic_meta_len,
                        messages_meta_ptr,
                        messages_meta_len,
                        messages_ptr,
                        messages_len,
                    )
                }
            }

            #[unsafe(no_mangle)]
            extern "C" fn iggy_sink_close(id: u32) -> i32 {
                INSTANCES.close(id)
            }

            #[unsafe(no_mangle)]
            extern "C" fn iggy_sink_version() -> *const ::std::ffi::c_char {
                concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
            }
        };
    };
}
