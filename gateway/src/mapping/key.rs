//! Partition keys.
//!
//! What always holds: equal keys give equal partitions, and it is the partition that any Iggy producer computes for a
//! messages key with the same bytes (Iggy 0.11: xxHash32 with seed 0, modulo the number of partitions).

use std::fmt;
use std::sync::Arc;

use twox_hash::XxHash32;

/// What a rule orders by: messages with equal keys go to the same partition of their topic. Cloning shares the text.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PartitionKey {
    text: Arc<str>,
    hash: KeyHash,
}

/// What a partition is computed from: of a [`PartitionKey`] all that a message needs on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyHash(u32);

impl KeyHash {
    /// The partition, from 0, in a topic with `partitions` of them; 0 if there are none.
    pub fn partition(self, partitions: u32) -> u32 {
        self.0.checked_rem(partitions).unwrap_or(0)
    }
}

impl PartitionKey {
    /// Any text; a long one is hashed as it is.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        let text = text.into();
        let hash = KeyHash(XxHash32::oneshot(0, text.as_bytes()));
        Self { text, hash }
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// What the partition is computed from.
    pub fn hash(&self) -> KeyHash {
        self.hash
    }

    /// The key's partition, from 0, in a topic with `partitions` of them; 0 if there are none.
    pub fn partition(&self, partitions: u32) -> u32 {
        self.hash.partition(partitions)
    }
}

impl fmt::Display for PartitionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for PartitionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}
