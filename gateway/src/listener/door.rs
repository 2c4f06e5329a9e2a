//! A listener as others see it: where it is, who is there by it, and whether it accepts.
//!
//! What always holds: a connection is counted at its door from when its socket was accepted until it has ended, first as one
//! that has not been let in, then as one that has; a door that drains accepts nobody, and is drained when the last has left.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::tls::Tls;
use crate::config::ListenerConfig;
use crate::observe::Counter;

/// Whether a door accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// It does.
    Accepting,
    /// It does not, and some are still there.
    Draining,
    /// It does not, and nobody is there.
    Drained,
}

impl Phase {
    /// For the status page.
    pub fn name(self) -> &'static str {
        match self {
            Self::Accepting => "accepting",
            Self::Draining => "draining",
            Self::Drained => "drained",
        }
    }
}

/// See the module.
pub struct Door {
    /// Where it is, with the real port.
    pub address: SocketAddr,
    /// What is asked of those who come.
    pub config: Arc<ListenerConfig>,
    /// TLS, if it is spoken here.
    pub tls: Option<Arc<Tls>>,
    /// Sockets accepted.
    pub accepted: Counter,
    /// Those that are not let in yet, and those that are.
    handshaking: AtomicU64,
    connected: AtomicU64,
    /// Whether it is closed, and what tells those at work on it that it is to be.
    closing: Mutex<(bool, CancellationToken)>,
    /// Cancelled when the gateway stops, which closes all doors.
    stopping: CancellationToken,
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Door {
    /// Accepting, with nobody there.
    pub fn new(
        address: SocketAddr,
        config: Arc<ListenerConfig>,
        tls: Option<Arc<Tls>>,
        stopping: &CancellationToken,
    ) -> Self {
        Self {
            address,
            config,
            tls,
            accepted: Counter::default(),
            handshaking: AtomicU64::new(0),
            connected: AtomicU64::new(0),
            closing: Mutex::new((false, stopping.child_token())),
            stopping: stopping.clone(),
        }
    }

    /// One that nobody listens at.
    #[cfg(test)]
    pub(crate) fn for_tests() -> Self {
        let address = ([127, 0, 0, 1], 1883).into();
        let config = ListenerConfig::plain(address, crate::config::Methods::default());
        Self::new(address, Arc::new(config), None, &CancellationToken::new())
    }

    /// For log lines and alarms.
    pub fn name(&self) -> String {
        format!("listener {}", self.config.address)
    }

    /// Whether it accepts.
    pub fn phase(&self) -> Phase {
        let is_closed = self.closing.lock().0;
        match (is_closed, self.here()) {
            (false, _) => Phase::Accepting,
            (true, 0) => Phase::Drained,
            (true, _) => Phase::Draining,
        }
    }

    /// How many sockets are there that are not let in yet.
    pub fn handshaking(&self) -> u64 {
        self.handshaking.load(Ordering::Relaxed)
    }

    /// How many clients are there that are let in.
    pub fn connected(&self) -> u64 {
        self.connected.load(Ordering::Relaxed)
    }

    /// How many are there in all.
    pub fn here(&self) -> u64 {
        self.handshaking() + self.connected()
    }

    /// When its certificate ends to be valid.
    pub fn certificate_ends(&self) -> Option<SystemTime> {
        self.tls.as_ref()?.not_after()
    }

    /// Cancelled when it closes, or the gateway stops.
    pub fn closing(&self) -> CancellationToken {
        self.closing.lock().1.clone()
    }

    /// Closes it; says whether it was open.
    pub fn close(&self) -> bool {
        let mut closing = self.closing.lock();
        closing.1.cancel();
        !std::mem::replace(&mut closing.0, true)
    }

    /// Opens it again.
    pub fn open(&self) {
        *self.closing.lock() = (false, self.stopping.child_token());
    }

    /// A socket was accepted.
    pub fn enter(self: &Arc<Self>) -> Visit {
        self.accepted.increment();
        self.handshaking.fetch_add(1, Ordering::Relaxed);
        Visit {
            door: self.clone(),
            is_admitted: false,
        }
    }
}

/// A connection's place at its door; gone when it is dropped.
#[derive(Debug)]
pub struct Visit {
    door: Arc<Door>,
    is_admitted: bool,
}

impl Visit {
    /// The door.
    pub fn door(&self) -> &Arc<Door> {
        &self.door
    }

    /// It is let in.
    pub fn admitted(&mut self) {
        if !std::mem::replace(&mut self.is_admitted, true) {
            self.door.connected.fetch_add(1, Ordering::Relaxed);
            self.door.handshaking.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let count = match self.is_admitted {
            true => &self.door.connected,
            false => &self.door.handshaking,
        };
        count.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_door_that_is_closed_is_drained_when_the_last_has_left() {
        let door = Arc::new(Door::for_tests());
        let (mut one, two) = (door.enter(), door.enter());
        one.admitted();
        one.admitted();
        assert_eq!((door.connected(), door.handshaking()), (1, 1));
        let closing = door.closing();
        assert!(door.close());
        assert!(!door.close(), "it is closed already");
        assert!(closing.is_cancelled());
        assert_eq!(door.phase(), Phase::Draining);
        drop((one, two));
        assert_eq!((door.phase(), door.here()), (Phase::Drained, 0));
        door.open();
        assert_eq!(door.phase(), Phase::Accepting);
        assert!(!door.closing().is_cancelled());
        assert_eq!(door.accepted.get(), 2);
    }
}
