//! The memory of resolutions: a device publishes to the same few topics again and again.
//!
//! What always holds: a remembered answer is the map's own, because a map never changes and resolving is pure; memory is
//! bounded by `resolution_cache_bytes` whatever topics clients think of; topics that come once do not drive out those
//! that come often.

use std::hash::RandomState;
use std::sync::Arc;

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};

use super::{Refusal, Resolution, TopicMap};
use crate::mqtt::TopicName;

/// About what one entry takes beside the texts in it, in bytes.
const ENTRY_BYTES: u64 = 256;
/// About what an entry takes on the whole, for the size of the table to begin with.
const TYPICAL_BYTES: usize = 512;

/// A topic map that remembers.
#[derive(Debug)]
pub struct Resolver {
    map: Arc<TopicMap>,
    cache: Option<Cache<TopicName, Outcome, Bytes, RandomState>>,
}

type Outcome = Result<Arc<Resolution>, Refusal>;

#[derive(Debug, Clone)]
struct Bytes;

impl Weighter<TopicName, Outcome> for Bytes {
    fn weight(&self, topic: &TopicName, outcome: &Outcome) -> u64 {
        let made = outcome.as_ref().map_or(0, |resolution| {
            let target = &resolution.target;
            let key = resolution.key.as_ref().map_or(0, |key| key.as_str().len());
            target.stream.as_str().len() + target.topic.as_str().len() + key
        });
        ENTRY_BYTES + (topic.as_str().len() + made) as u64
    }
}

impl Resolver {
    /// Remembers what `map` says, in at most about `bytes`; 0 remembers nothing.
    pub fn new(map: Arc<TopicMap>, bytes: usize) -> Self {
        let options = OptionsBuilder::new()
            .estimated_items_capacity(bytes / TYPICAL_BYTES)
            .weight_capacity(bytes as u64)
            .build();
        let cache = options.ok().filter(|_| bytes > 0).map(|options| {
            // Topics come from outside: a hash that nobody can aim at.
            Cache::with_options(
                options,
                Bytes,
                RandomState::new(),
                DefaultLifecycle::default(),
            )
        });
        Self { map, cache }
    }

    /// The map itself.
    pub fn map(&self) -> &Arc<TopicMap> {
        &self.map
    }

    /// What [`TopicMap::resolve`] says of `topic`.
    ///
    /// # Errors
    /// The map's refusal.
    pub fn resolve(&self, topic: &TopicName) -> Outcome {
        let Some(cache) = &self.cache else {
            return self.map.resolve(topic).map(Arc::new);
        };
        if let Some(known) = cache.get(topic) {
            return known;
        }
        let outcome = self.map.resolve(topic).map(Arc::new);
        // Kept beyond this packet, so not as a slice of it.
        cache.insert(topic.detached(), outcome.clone());
        outcome
    }

    /// About how many bytes are remembered.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> u64 {
        self.cache.as_ref().map_or(0, Cache::weight)
    }
}
