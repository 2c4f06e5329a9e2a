//! The memory of resolutions: a device publishes to the same few topics again and again.
//!
//! What always holds: a remembered answer is the map's own, because a map never changes and resolving is pure; memory is
//! bounded by `resolution_cache_bytes`, and a thousand places, whatever topics clients think of; topics that come once do
//! not drive out those that come often.
//!
//! With ten thousand topics hardly anything of a topic is in the processor's cache when it comes again, and each line that
//! has to be fetched costs as much as a hundred instructions. So an entry holds itself what a message needs of it, and all
//! topics that go to the same place share the description of that place.

use std::hash::RandomState;
use std::sync::Arc;

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};

use super::{KeyHash, Refusal, Resolution, RuleId, TopicMap, TopicPlan};
use crate::log::Target;
use crate::mqtt::TopicName;

/// About what one entry takes beside the texts in it, in bytes.
const ENTRY_BYTES: u64 = 256;
/// About what an entry takes on the whole, for the size of the table to begin with.
const TYPICAL_BYTES: usize = 512;
/// So many places are shared. Topics that go to others than the most usual ones have descriptions of their own.
const SHARED_DESTINATIONS: usize = 1_024;

/// A place in Iggy that a rule leads to.
#[derive(Debug, PartialEq, Eq)]
pub struct Destination {
    /// What decided.
    pub rule: RuleId,
    /// The Iggy stream and topic.
    pub target: Target,
    /// How the Iggy topic is made.
    pub plan: TopicPlan,
}

/// Where the messages of one MQTT topic are stored: a [`Resolution`] as a message needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// The place, shared by all topics that go there by the same rule.
    pub destination: Arc<Destination>,
    /// What the partition is computed from; `None` uses all partitions in turn.
    pub key: Option<KeyHash>,
}

/// A topic map that remembers.
#[derive(Debug)]
pub struct Resolver {
    map: Arc<TopicMap>,
    cache: Option<Cache<Box<str>, Remembered, Bytes, RandomState>>,
    destinations: Cache<(RuleId, Target), Arc<Destination>>,
}

/// A refusal is rare and large.
type Remembered = Result<Placement, Arc<Refusal>>;

#[derive(Debug, Clone)]
struct Bytes;

impl Weighter<Box<str>, Remembered> for Bytes {
    fn weight(&self, topic: &Box<str>, outcome: &Remembered) -> u64 {
        // As if it were not shared.
        let place = outcome.as_ref().map_or(0, |placement| {
            let target = &placement.destination.target;
            target.stream.as_str().len() + target.topic.as_str().len()
        });
        ENTRY_BYTES + (topic.len() + place) as u64
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
        Self {
            map,
            cache,
            destinations: Cache::new(SHARED_DESTINATIONS),
        }
    }

    /// The map itself.
    pub fn map(&self) -> &Arc<TopicMap> {
        &self.map
    }

    /// What [`TopicMap::resolve`] says of `topic`.
    ///
    /// # Errors
    /// The map's refusal.
    pub fn resolve(&self, topic: &TopicName) -> Result<Placement, Refusal> {
        let known = self
            .cache
            .as_ref()
            .and_then(|cache| cache.get(topic.as_str()));
        let outcome = known.unwrap_or_else(|| self.ask(topic));
        outcome.map_err(|refusal| *refusal)
    }

    fn ask(&self, topic: &TopicName) -> Remembered {
        let outcome = self.map.resolve(topic);
        let outcome = outcome.map(|resolution| self.place(resolution));
        let outcome = outcome.map_err(Arc::new);
        if let Some(cache) = &self.cache {
            cache.insert(topic.as_str().into(), outcome.clone());
        }
        outcome
    }

    fn place(&self, resolution: Resolution) -> Placement {
        let Resolution {
            rule,
            target,
            key,
            plan,
        } = resolution;
        let which = (rule, target);
        let destination = self.destinations.get(&which).unwrap_or_else(|| {
            let made = Arc::new(Destination {
                rule,
                target: which.1.clone(),
                plan,
            });
            self.destinations.insert(which, made.clone());
            made
        });
        Placement {
            destination,
            key: key.map(|key| key.hash()),
        }
    }

    /// About how many bytes are remembered.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> u64 {
        self.cache.as_ref().map_or(0, Cache::weight)
    }

    /// Whether the answer for `topic` is remembered.
    #[cfg(test)]
    pub(super) fn remembers(&self, topic: &TopicName) -> bool {
        let cache = self.cache.as_ref();
        cache.is_some_and(|cache| cache.peek(topic.as_str()).is_some())
    }
}
