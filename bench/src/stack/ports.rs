//! Free ports.
//!
//! Always holds: two calls give different ports, below the range from which the kernel takes ports for outgoing connections,
//! so that none of those can take one between our look and its use.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use super::StackError;

/// The first port that is tried.
pub(super) const FIRST: u16 = 10_000;
/// Linux gives outgoing connections ports from 32,768 on.
pub(super) const LAST: u16 = 32_000;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A loopback address that nobody listens on.
///
/// # Errors
/// [`StackError::NoPort`].
pub(crate) fn free_address() -> Result<SocketAddr, StackError> {
    let range = u32::from(LAST - FIRST);
    (0..range)
        .find_map(|_| {
            let step = NEXT.fetch_add(1, Ordering::Relaxed);
            // A stride that shares no factor with the range spreads processes with neighbouring ids.
            let slot = process::id().wrapping_mul(7_919).wrapping_add(step) % range;
            let port = FIRST + u16::try_from(slot).ok()?;
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            TcpListener::bind(address).is_ok().then_some(address)
        })
        .ok_or(StackError::NoPort)
}
