//! Who is connected from where: the connections of all listeners, counted in all and by host.
//!
//! What always holds: a connection is counted from its accept until its task has ended, however it ends.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::task::TaskTracker;

use crate::host::Host;

/// How many connections there are.
#[derive(Default)]
struct Open {
    by_host: HashMap<Host, usize>,
    all: usize,
}

/// The connections of all listeners of a gateway.
#[derive(Clone, Default)]
pub struct Connections {
    open: Arc<Mutex<Open>>,
    /// The tasks of the connections.
    pub tasks: TaskTracker,
}

/// A counted connection; dropping it uncounts it.
pub(super) struct Counted {
    open: Arc<Mutex<Open>>,
    host: Host,
}

impl Connections {
    /// Counts one more from `host`; says how many there are now, and how many from there.
    pub(super) fn count(&self, host: Host) -> (Counted, usize, usize) {
        let mut open = self.open.lock();
        open.all += 1;
        let here = open.by_host.entry(host).or_insert(0);
        *here += 1;
        let here = *here;
        (
            Counted {
                open: self.open.clone(),
                host,
            },
            open.all,
            here,
        )
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut open = self.open.lock();
        open.all -= 1;
        if let Some(here) = open.by_host.get_mut(&self.host) {
            *here -= 1;
            if *here == 0 {
                open.by_host.remove(&self.host);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    #[test]
    fn connections_are_counted_by_host_until_they_end() {
        let connections = Connections::default();
        let count = |address: &str| {
            let address = address.parse::<IpAddr>().unwrap();
            connections.count(address.into())
        };
        let (first, all, here) = count("2001:db8::1");
        assert_eq!((all, here), (1, 1));
        let (_second, all, here) = count("2001:db8::2");
        assert_eq!((all, here), (2, 2));
        let (_third, all, here) = count("192.0.2.1");
        assert_eq!((all, here), (3, 1));
        let (_fourth, _, here) = count("::ffff:192.0.2.1");
        assert_eq!(here, 2);
        drop(first);
        assert_eq!(count("2001:db8::1").2, 2);
        drop((_second, _third, _fourth));
        assert!(connections.open.lock().by_host.is_empty());
    }
}
