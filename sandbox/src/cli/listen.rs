//! The lines that say where something listens.
//!
//! Always holds: one line per address, `<what> listening on <address>`, with the port that was really taken.

use std::io::Write;
use std::net::SocketAddr;

/// Prints the line at once, also into a pipe.
pub(super) fn announce(what: &str, address: SocketAddr) {
    let mut output = std::io::stdout().lock();
    // Whoever started this may have stopped reading; that is no reason to stop serving.
    let _ = writeln!(output, "{what} listening on {address}");
    let _ = output.flush();
}
