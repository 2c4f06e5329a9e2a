//! The open connectors of one kind in this library, by the id that the host gave them. The lock is held for a look-up
//! only, never while a connector's code runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::boundary::{MISUSE, OK};
use crate::runtime;

/// The connectors of one kind.
pub(crate) struct Registry<C> {
    kind: &'static str,
    slots: Mutex<BTreeMap<u32, Slot<C>>>,
}

enum Slot<C> {
    /// Taken by an `open` that has not returned yet; no other call can reach it.
    Opening,
    Open(Arc<C>),
}

impl<C> Registry<C> {
    /// `kind` stands in log lines: "source" or "sink".
    pub(crate) const fn new(kind: &'static str) -> Self {
        Self {
            kind,
            slots: Mutex::new(BTreeMap::new()),
        }
    }

    /// Opens a connector under an id that is free. If `open` returns an error or panics, the id is free again.
    pub(crate) fn open(&self, id: u32, open: impl FnOnce() -> Result<C, i32>) -> i32 {
        if self.refuses_to_block(id, "open") {
            return MISUSE;
        }
        let Some(reservation) = Reservation::take(self, id) else {
            tracing::error!(
                id,
                "{} connector: this id is open already; close it before it is opened again",
                self.kind
            );
            return MISUSE;
        };
        match open() {
            Ok(connector) => {
                reservation.fill(connector);
                OK
            }
            Err(code) => code,
        }
    }

    /// The open connector of that id; logs if there is none.
    pub(crate) fn get(&self, id: u32, call: &'static str) -> Option<Arc<C>> {
        let found = match self.slots.lock().get(&id) {
            Some(Slot::Open(connector)) => Some(Arc::clone(connector)),
            Some(Slot::Opening) | None => None,
        };
        if found.is_none() {
            self.log_missing(id, call);
        }
        found
    }

    /// Takes the connector of that id out, so that no further call reaches it; logs if there is none.
    pub(crate) fn remove(&self, id: u32, call: &'static str) -> Option<Arc<C>> {
        let removed = {
            let mut slots = self.slots.lock();
            match slots.get(&id) {
                Some(Slot::Open(_)) => slots.remove(&id),
                Some(Slot::Opening) | None => None,
            }
        };
        match removed {
            Some(Slot::Open(connector)) => Some(connector),
            Some(Slot::Opening) | None => {
                self.log_missing(id, call);
                None
            }
        }
    }

    /// Whether a call that has to wait came from a thread that must not; logs if so.
    pub(crate) fn refuses_to_block(&self, id: u32, call: &'static str) -> bool {
        let entered = runtime::is_entered();
        if entered {
            tracing::error!(
                id,
                call,
                "{} connector: called from inside the plugin's own Tokio runtime, where it would wait for itself; \
                 the host has to call from a thread of its own",
                self.kind
            );
        }
        entered
    }

    fn log_missing(&self, id: u32, call: &'static str) {
        // A warning, because a batch result may rightly come while its source is being closed.
        tracing::warn!(
            id,
            call,
            "{} connector: no connector with this id is open",
            self.kind
        );
    }
}

/// An id that is taken until it is filled with a connector or the reservation is dropped.
struct Reservation<'a, C> {
    registry: &'a Registry<C>,
    id: u32,
    filled: bool,
}

impl<'a, C> Reservation<'a, C> {
    fn take(registry: &'a Registry<C>, id: u32) -> Option<Self> {
        let mut slots = registry.slots.lock();
        if slots.contains_key(&id) {
            return None;
        }
        slots.insert(id, Slot::Opening);
        Some(Self {
            registry,
            id,
            filled: false,
        })
    }

    fn fill(mut self, connector: C) {
        self.filled = true;
        let slot = Slot::Open(Arc::new(connector));
        self.registry.slots.lock().insert(self.id, slot);
    }
}

impl<C> Drop for Reservation<'_, C> {
    fn drop(&mut self) {
        if !self.filled {
            self.registry.slots.lock().remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn an_id_is_taken_from_the_begin_of_opening_until_it_is_removed() {
        let registry = Registry::new("source");
        let code = registry.open(1, || {
            assert_eq!(registry.open(1, || Ok("second")), MISUSE);
            assert!(registry.get(1, "test").is_none());
            assert!(registry.remove(1, "test").is_none());
            Ok("first")
        });
        assert_eq!(code, OK);
        assert_eq!(registry.get(1, "test").as_deref(), Some(&"first"));
        assert_eq!(registry.open(1, || Ok("third")), MISUSE);
        assert_eq!(registry.open(2, || Ok("other")), OK);
        assert_eq!(registry.remove(1, "test").as_deref(), Some(&"first"));
        assert!(registry.remove(1, "test").is_none());
        assert_eq!(registry.open(1, || Ok("fourth")), OK);
    }

    #[test]
    fn an_open_that_fails_or_panics_leaves_the_id_free() {
        let registry = Registry::<()>::new("sink");
        assert_eq!(registry.open(1, || Err(1)), 1);
        let panicked = catch_unwind(AssertUnwindSafe(|| registry.open(1, || panic!("in open"))));
        assert!(panicked.is_err());
        assert!(registry.get(1, "test").is_none());
        assert_eq!(registry.open(1, || Ok(())), OK);
    }

    #[tokio::test]
    async fn opening_inside_a_runtime_is_refused() {
        let registry = Registry::new("sink");
        assert_eq!(registry.open(1, || Ok(())), MISUSE);
    }
}
