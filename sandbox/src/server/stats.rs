//! Counters of what clients asked for, per partition, for tests and for whoever wants to see the load.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::RwLock;
use serde::{Deserialize, Serialize};

use super::catalog::Catalog;

/// A handle on the server's counters. It stays valid as long as anyone holds it, also after the server stopped.
#[derive(Debug, Clone)]
pub struct Stats {
    catalog: Arc<RwLock<Arc<Catalog>>>,
}

/// What was asked of one partition since the server started. Purging a topic keeps the counters, deleting it loses them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionStats {
    /// The stream's name.
    pub stream: String,
    /// The topic's name.
    pub topic: String,
    /// The partition's id, from 0.
    pub partition: u32,
    /// Poll requests, whoever asked and whatever the answer was.
    pub polls: u64,
    /// Those of them that were answered without a message.
    pub empty_polls: u64,
    /// Messages sent out in answers to polls.
    pub polled_messages: u64,
    /// Confirmed batches.
    pub appends: u64,
    /// Messages in them.
    pub appended_messages: u64,
}

impl Stats {
    pub(crate) fn new(catalog: Arc<RwLock<Arc<Catalog>>>) -> Self {
        Self { catalog }
    }

    /// The counters of all partitions that exist now, ordered by stream id, topic id and partition.
    #[must_use]
    pub fn snapshot(&self) -> Vec<PartitionStats> {
        let catalog = Arc::clone(&self.catalog.read());
        catalog
            .partitions()
            .map(|(stream, topic, partition)| {
                let counters = &partition.counters;
                PartitionStats {
                    stream: stream.name.clone(),
                    topic: topic.name.clone(),
                    partition: partition.id,
                    polls: counters.polls.load(Ordering::Relaxed),
                    empty_polls: counters.empty_polls.load(Ordering::Relaxed),
                    polled_messages: counters.polled_messages.load(Ordering::Relaxed),
                    appends: counters.appends.load(Ordering::Relaxed),
                    appended_messages: counters.appended_messages.load(Ordering::Relaxed),
                }
            })
            .collect()
    }
}
