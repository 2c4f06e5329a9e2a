//! The user's wish to stop, as a flag that everything which waits looks at.
//!
//! Always holds: after SIGINT or SIGTERM each wait of this program ends within moments with an error, so that processes
//! that were started here are ended and temporary folders are removed on the way out.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tokio::runtime;
use tokio::signal::unix::{SignalKind, signal};

static ASKED: AtomicBool = AtomicBool::new(false);

/// From now on the two signals set the flag and do not end the program.
///
/// # Errors
/// When the operating system refuses the thread or the handlers.
pub(crate) fn install() -> io::Result<()> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let guard = runtime.enter();
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    drop(guard);
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                ASKED.store(true, Ordering::Relaxed);
            });
        })?;
    Ok(())
}

/// Whether the user wants this program to stop.
pub(crate) fn asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}
