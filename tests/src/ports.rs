//! Free ports and unique names.
//!
//! Always holds: two calls in one process give different results, and so, very nearly always, do two processes that run
//! at the same time. A port lies below the range from which the kernel takes ports for outgoing connections, so that
//! none of those can take it between our look and its use.

use std::net::{Ipv4Addr, TcpListener};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

const FIRST: u32 = 10_000;
/// Linux gives outgoing connections ports from 32,768 on.
const LAST: u32 = 32_000;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A loopback port that nobody listens on.
///
/// # Panics
/// When every port of the range is taken.
pub fn free_port() -> u16 {
    for _ in FIRST..LAST {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        // A stride that shares no factor with the range spreads processes with neighbouring ids.
        let slot = process::id().wrapping_mul(7_919).wrapping_add(step) % (LAST - FIRST);
        let Ok(port) = u16::try_from(FIRST + slot) else {
            continue;
        };
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("no free port between {FIRST} and {LAST}");
}

/// A name that no other test uses, valid as a stream name and as a level of an MQTT topic.
pub fn unique_name() -> String {
    let since_epoch = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_nanos();
    let step = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("e2e_{}_{since_epoch:x}_{step}", process::id())
}
