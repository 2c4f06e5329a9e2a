//! The one Tokio runtime of the library. It is started by the first connector that opens and lives as long as the
//! process, because a library with running threads must not be unloaded.

use std::sync::OnceLock;

use tokio::runtime::{Handle, Runtime};

/// The runtime that all connectors of this library share.
///
/// # Panics
/// If the operating system refuses the threads it needs. The exported functions catch that and fail with -1.
pub fn get_runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| match Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => panic!("cannot start the Tokio runtime of the plugin: {error}"),
    })
}

/// Whether this thread already works for a Tokio runtime that this library can see (the host's own is another copy of
/// Tokio and is not seen). To block there would stall it or panic.
pub(crate) fn is_entered() -> bool {
    Handle::try_current().is_ok()
}
