//! Who wants to know at once that this gateway appended to a partition.
//!
//! Ingest tells, delivery listens, and neither knows the other: a reader that would otherwise wait for its next poll is
//! woken by our own append.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;
use tokio::sync::Notify;

use super::Triple;

/// The partitions that someone listens to.
#[derive(Debug, Default)]
pub struct Appends {
    listeners: RwLock<HashMap<Triple, Arc<Notify>>>,
}

impl Appends {
    /// What is notified after each append to `triple`, until [`Appends::forget`].
    pub fn listen(&self, triple: &Triple) -> Arc<Notify> {
        self.listeners
            .write()
            .entry(triple.clone())
            .or_default()
            .clone()
    }

    /// Ends the listening of `listener`, unless another has begun for the same partition since.
    pub fn forget(&self, triple: &Triple, listener: &Arc<Notify>) {
        let mut listeners = self.listeners.write();
        if listeners
            .get(triple)
            .is_some_and(|current| Arc::ptr_eq(current, listener))
        {
            listeners.remove(triple);
        }
    }

    /// Tells that an append to `triple` was confirmed. Once per batch: one read lock, one hash.
    pub fn tell(&self, triple: &Triple) {
        if let Some(listener) = self.listeners.read().get(triple) {
            listener.notify_one();
        }
    }
}
