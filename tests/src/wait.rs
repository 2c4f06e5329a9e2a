//! Waiting for a condition with a deadline, the only way in which the suite waits.
//!
//! Always holds: a wait that runs out panics with what it waited for and for how long.

use std::thread;
use std::time::{Duration, Instant};

/// How long a wait lasts when the test says nothing else: long enough for a loaded machine with two cores.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// How often a condition is looked at.
const INTERVAL: Duration = Duration::from_millis(10);

/// Waits until `condition` gives a value, for at most `deadline`.
///
/// # Panics
/// When the deadline passes first.
pub fn value<T>(what: &str, deadline: Duration, mut condition: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(
            start.elapsed() < deadline,
            "waited {deadline:?} in vain: {what}"
        );
        thread::sleep(INTERVAL);
    }
}

/// Waits until `condition` is true, for at most `deadline`.
///
/// # Panics
/// When the deadline passes first.
pub fn until(what: &str, deadline: Duration, mut condition: impl FnMut() -> bool) {
    value(what, deadline, || condition().then_some(()));
}
