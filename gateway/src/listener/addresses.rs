//! Who is connected from where: the connections of all listeners, counted in all and by address.
//!
//! What always holds: a connection is counted from its accept until its task has ended, however it ends.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::task::TaskTracker;

/// How many connections there are.
#[derive(Default)]
struct Open {
    by_address: HashMap<IpAddr, usize>,
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
    address: IpAddr,
}

impl Connections {
    /// Counts one more from `address`; says how many there are now, and how many from there.
    pub(super) fn count(&self, address: IpAddr) -> (Counted, usize, usize) {
        let mut open = self.open.lock();
        open.all += 1;
        let here = open.by_address.entry(address).or_insert(0);
        *here += 1;
        let here = *here;
        (
            Counted {
                open: self.open.clone(),
                address,
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
        if let Some(here) = open.by_address.get_mut(&self.address) {
            *here -= 1;
            if *here == 0 {
                open.by_address.remove(&self.address);
            }
        }
    }
}
