//! Everything that touches raw pointers: loading a plugin, calling its exported functions, and the two functions that
//! it calls back.
//!
//! Always holds: a loaded library stays loaded until the process ends, because its own threads may still run after its
//! last connector was closed; so a function found in it can be called at any time. What a plugin passes is read only
//! during the call in which it passes it.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char};
use std::mem::ManuallyDrop;
use std::path::Path;

use libloading::Library;
use thiserror::Error;

use super::plugin_calls;

/// Receives one line of a plugin's log.
type LogCallback = extern "C" fn(u8, *const u8, usize, *const u8, usize);
/// Receives one batch of a source.
type SendCallback = extern "C" fn(u32, u64, *const u8, usize) -> i32;

type SourceOpen = unsafe extern "C" fn(u32, *const u8, usize, *const u8, usize, LogCallback) -> i32;
type SourceHandle = unsafe extern "C" fn(u32, SendCallback) -> i32;
type SourceBatchResult = unsafe extern "C" fn(u32, u64, u8) -> i32;
type SinkOpen = unsafe extern "C" fn(u32, *const u8, usize, LogCallback) -> i32;
type SinkConsume =
    unsafe extern "C" fn(u32, *const u8, usize, *const u8, usize, *const u8, usize) -> i32;
type Close = unsafe extern "C" fn(u32) -> i32;
type Version = unsafe extern "C" fn() -> *const c_char;

/// Why a library cannot be used as a plugin.
#[derive(Debug, Error)]
pub(super) enum LoadError {
    /// The dynamic linker refuses it.
    #[error("cannot load `{path}`: {reason}")]
    Library {
        /// The library.
        path: String,
        /// The dynamic linker's reason.
        reason: libloading::Error,
    },
    /// It lacks a function of the interface.
    #[error("`{path}` is no plugin of this kind for runtime 0.5.0, it has no `{symbol}`: {reason}")]
    Symbol {
        /// The library.
        path: String,
        /// The missing function.
        symbol: &'static str,
        /// The dynamic linker's reason.
        reason: libloading::Error,
    },
}

/// What became of a batch, as the plugin is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BatchOutcome {
    /// Stored.
    Ack = 0,
    /// Not stored: the source has to produce it again.
    Nack = 1,
}

/// A library that exports the functions of a source.
#[derive(Debug)]
pub(super) struct SourceLibrary {
    open: SourceOpen,
    handle: SourceHandle,
    batch_result: SourceBatchResult,
    close: Close,
    version: Version,
}

impl SourceLibrary {
    /// Loads `path` and finds the functions of a source.
    ///
    /// # Errors
    /// Names the library, and the function that is missing.
    pub(super) fn load(path: &Path) -> Result<Self, LoadError> {
        let library = load(path)?;
        // SAFETY: these are the types that the plugin interface of runtime 0.5.0 gives to these names.
        unsafe {
            Ok(Self {
                open: function(&library, path, "iggy_source_open")?,
                handle: function(&library, path, "iggy_source_handle_v2")?,
                batch_result: function(&library, path, "iggy_source_batch_result")?,
                close: function(&library, path, "iggy_source_close")?,
                version: function(&library, path, "iggy_source_version")?,
            })
        }
    }

    /// Opens the source `id`. Anything but 0 is a failure, whose reason the plugin has logged.
    pub(super) fn open(&self, id: u32, config: &[u8], state: Option<&[u8]>) -> i32 {
        let (state, state_len) = match state {
            Some(state) => (state.as_ptr(), state.len()),
            None => (std::ptr::null(), 0),
        };
        // SAFETY: both buffers live until the call returns, the interface allows a null state with length 0, and
        // `receive_log` may be called from any thread at any time.
        unsafe {
            (self.open)(
                id,
                config.as_ptr(),
                config.len(),
                state,
                state_len,
                receive_log,
            )
        }
    }

    /// Starts the source's polling; its batches arrive at [`plugin_calls::receive_batch`].
    pub(super) fn handle(&self, id: u32) -> i32 {
        // SAFETY: only plain values are passed, and `receive_batch` may be called from any thread at any time.
        unsafe { (self.handle)(id, receive_batch) }
    }

    /// Tells the source what became of a batch.
    pub(super) fn batch_result(&self, id: u32, batch_id: u64, outcome: BatchOutcome) -> i32 {
        // SAFETY: only plain values are passed.
        unsafe { (self.batch_result)(id, batch_id, outcome as u8) }
    }

    /// Closes the source; returns when it has stopped.
    pub(super) fn close(&self, id: u32) -> i32 {
        // SAFETY: only plain values are passed.
        unsafe { (self.close)(id) }
    }

    /// The plugin's version.
    pub(super) fn version(&self) -> String {
        version(self.version)
    }
}

/// A library that exports the functions of a sink.
#[derive(Debug)]
pub(super) struct SinkLibrary {
    open: SinkOpen,
    consume: SinkConsume,
    close: Close,
    version: Version,
}

impl SinkLibrary {
    /// Loads `path` and finds the functions of a sink.
    ///
    /// # Errors
    /// Names the library, and the function that is missing.
    pub(super) fn load(path: &Path) -> Result<Self, LoadError> {
        let library = load(path)?;
        // SAFETY: these are the types that the plugin interface of runtime 0.5.0 gives to these names.
        unsafe {
            Ok(Self {
                open: function(&library, path, "iggy_sink_open")?,
                consume: function(&library, path, "iggy_sink_consume")?,
                close: function(&library, path, "iggy_sink_close")?,
                version: function(&library, path, "iggy_sink_version")?,
            })
        }
    }

    /// Opens the sink `id`. Anything but 0 is a failure, whose reason the plugin has logged.
    pub(super) fn open(&self, id: u32, config: &[u8]) -> i32 {
        // SAFETY: the buffer lives until the call returns, and `receive_log` may be called from any thread at any time.
        unsafe { (self.open)(id, config.as_ptr(), config.len(), receive_log) }
    }

    /// Gives the sink a batch; returns when the sink is done with it.
    pub(super) fn consume(&self, id: u32, topic: &[u8], metadata: &[u8], messages: &[u8]) -> i32 {
        // SAFETY: all three buffers live until the call returns, which is as long as the plugin may read them.
        unsafe {
            (self.consume)(
                id,
                topic.as_ptr(),
                topic.len(),
                metadata.as_ptr(),
                metadata.len(),
                messages.as_ptr(),
                messages.len(),
            )
        }
    }

    /// Closes the sink; returns when it has stopped.
    pub(super) fn close(&self, id: u32) -> i32 {
        // SAFETY: only plain values are passed.
        unsafe { (self.close)(id) }
    }

    /// The plugin's version.
    pub(super) fn version(&self) -> String {
        version(self.version)
    }
}

fn load(path: &Path) -> Result<ManuallyDrop<Library>, LoadError> {
    // SAFETY: loading runs the library's initialisers. The operator names the library in the connector file, and it is
    // trusted as much as this program; never unloading it rules out that its code disappears below a running thread.
    let library = unsafe { Library::new(path) };
    library
        .map(ManuallyDrop::new)
        .map_err(|reason| LoadError::Library {
            path: path.display().to_string(),
            reason,
        })
}

/// Finds a function. It may be called for ever, because the library is never unloaded.
///
/// # Safety
/// `F` must be the type of the function that the library exports under this name.
unsafe fn function<F: Copy>(
    library: &Library,
    path: &Path,
    symbol: &'static str,
) -> Result<F, LoadError> {
    // SAFETY: the caller vouches for the type.
    let found = unsafe { library.get::<F>(symbol.as_bytes()) };
    found
        .map(|found| *found)
        .map_err(|reason| LoadError::Symbol {
            path: path.display().to_string(),
            symbol,
            reason,
        })
}

fn version(version: Version) -> String {
    // SAFETY: the function takes nothing.
    let text = unsafe { version() };
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the interface promises a NUL-terminated static string, and it is not null.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_string_lossy().into_owned()
}

extern "C" fn receive_log(
    level: u8,
    target: *const u8,
    target_len: usize,
    message: *const u8,
    message_len: usize,
) {
    // SAFETY: the plugin passes two buffers that it keeps until this call returns.
    let (target, message) = unsafe { (bytes(target, target_len), bytes(message, message_len)) };
    plugin_calls::receive_log(
        level,
        &String::from_utf8_lossy(target),
        &String::from_utf8_lossy(message),
    );
}

extern "C" fn receive_batch(id: u32, batch_id: u64, batch: *const u8, batch_len: usize) -> i32 {
    // SAFETY: the plugin passes a buffer that it keeps until this call returns.
    let batch = unsafe { bytes(batch, batch_len) };
    plugin_calls::receive_batch(id, batch_id, batch)
}

/// The bytes of a plugin's buffer; none for a null pointer.
///
/// # Safety
/// Unless it is null, `start` must point to `len` bytes that do not change while the result is in use.
unsafe fn bytes<'a>(start: *const u8, len: usize) -> &'a [u8] {
    if start.is_null() || len > isize::MAX as usize {
        return &[];
    }
    // SAFETY: the caller vouches for the memory; a slice's other two conditions are checked above.
    unsafe { std::slice::from_raw_parts(start, len) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_library_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("no_library.so");
        std::fs::write(&path, b"text").unwrap();
        let error = SourceLibrary::load(&path).unwrap_err();
        assert!(matches!(error, LoadError::Library { .. }));
        assert!(error.to_string().contains("no_library.so"), "{error}");
    }

    #[test]
    fn a_null_buffer_is_read_as_empty() {
        assert_eq!(receive_batch(u32::MAX, 1, std::ptr::null(), 10), -1);
        receive_log(2, std::ptr::null(), 5, std::ptr::null(), 5);
    }
}
