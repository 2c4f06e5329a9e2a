//! The topic map that is in force, which can be exchanged while messages are resolved.
//!
//! What always holds: each answer is that of one map, the newest when it was asked: what an older map has said is not
//! remembered beyond it; asking takes no lock. Who holds the map still ([`LiveMap::hold`]) sees the same one until they let
//! go; who changes it ([`LiveMap::begin_change`]) waits for them, and they for whoever changes it.

use std::sync::{Arc, Weak};
use std::time::SystemTime;

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::{Placement, Refusal, Resolver, TopicMap};
use crate::mqtt::TopicName;

/// A map and the memory for it.
#[derive(Debug)]
pub struct Loaded {
    resolver: Resolver,
    generation: u64,
    at: SystemTime,
    in_use: InUse,
}

/// Kept by what is on its way to where a map has said, for as long as it is.
#[derive(Debug, Clone, Default)]
pub struct InUse(Arc<()>);

impl Loaded {
    /// What [`TopicMap::resolve`] says of `topic`.
    ///
    /// # Errors
    /// The map's refusal.
    pub fn resolve(&self, topic: &TopicName) -> Result<Placement, Refusal> {
        self.resolver.resolve(topic)
    }

    /// Counts the maps of this gateway, from 1.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// For what goes where this map says.
    pub fn in_use(&self) -> InUse {
        self.in_use.clone()
    }
}

/// See the module.
#[derive(Debug)]
pub struct LiveMap {
    now: ArcSwap<Loaded>,
    /// For the memory of each map.
    cache_bytes: usize,
    /// Earlier maps, oldest first, until nothing is on its way any more to where they have said.
    earlier: Mutex<Vec<(u64, Weak<()>)>>,
    still: RwLock<()>,
}

/// A change of the map that has begun: nobody holds it still until this is dropped.
pub struct Change<'a> {
    map: &'a LiveMap,
    _still: RwLockWriteGuard<'a, ()>,
}

impl LiveMap {
    /// The first map, with a memory of about `cache_bytes` for it and for each later one.
    pub fn new(map: Arc<TopicMap>, cache_bytes: usize) -> Self {
        let first = Loaded {
            resolver: Resolver::new(map, cache_bytes),
            generation: 1,
            at: SystemTime::now(),
            in_use: InUse::default(),
        };
        Self {
            now: ArcSwap::from_pointee(first),
            cache_bytes,
            earlier: Mutex::default(),
            still: RwLock::default(),
        }
    }

    /// The map in force, for one message. Not to be kept.
    pub fn load(&self) -> Guard<Arc<Loaded>> {
        self.now.load()
    }

    /// The map in force.
    pub fn map(&self) -> Arc<TopicMap> {
        self.now.load().resolver.map().clone()
    }

    /// Counts the maps of this gateway, from 1: another number is another map.
    pub fn generation(&self) -> u64 {
        self.now.load().generation
    }

    /// Since when the map is in force.
    pub fn loaded_at(&self) -> SystemTime {
        self.now.load().at
    }

    /// The generation of the oldest map to whose places something is still on its way; that in force if there is none.
    pub fn oldest_in_use(&self) -> u64 {
        let now = self.generation();
        let mut earlier = self.earlier.lock();
        earlier.retain(|(_, in_use)| in_use.strong_count() > 0);
        earlier.first().map_or(now, |(generation, _)| *generation)
    }

    /// Keeps the map as it is until the guard is dropped. Waits while it is being changed.
    pub async fn hold(&self) -> RwLockReadGuard<'_, ()> {
        self.still.read().await
    }

    /// Waits until nobody holds the map still, and lets nobody do so until the change is dropped.
    pub async fn begin_change(&self) -> Change<'_> {
        Change {
            map: self,
            _still: self.still.write().await,
        }
    }
}

impl Change<'_> {
    /// `map` is in force from now on.
    pub fn replace(&self, map: Arc<TopicMap>) {
        let next = Loaded {
            resolver: Resolver::new(map, self.map.cache_bytes),
            generation: self.map.generation() + 1,
            at: SystemTime::now(),
            in_use: InUse::default(),
        };
        let before = self.map.now.load_full();
        let in_use = Arc::downgrade(&before.in_use.0);
        self.map.earlier.lock().push((before.generation, in_use));
        self.map.now.store(Arc::new(next));
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn map(topic: &str) -> Arc<TopicMap> {
        let text = format!("default_stream = 's'\ndefault_topic = '{topic}'\n");
        Arc::new(TopicMap::compile("map.toml", &text).unwrap())
    }

    #[tokio::test]
    async fn an_answer_that_is_remembered_ends_with_its_map() {
        let live = LiveMap::new(map("old"), 1 << 20);
        let topic = TopicName::new("a/b").unwrap();
        let resolve = || {
            let placement = live.load().resolve(&topic).unwrap();
            placement.destination.target.to_string()
        };
        assert_eq!((resolve(), resolve()), ("s/old".into(), "s/old".into()));
        let (generation, since) = (live.generation(), live.loaded_at());
        live.begin_change().await.replace(map("new"));
        assert_eq!((resolve(), resolve()), ("s/new".into(), "s/new".into()));
        assert_eq!(live.generation(), generation + 1);
        assert!(live.loaded_at() >= since);
    }

    #[tokio::test]
    async fn a_map_is_in_use_until_nothing_goes_where_it_has_said() {
        let live = LiveMap::new(map("1"), 0);
        let first = [live.load().in_use(), live.load().in_use()];
        live.begin_change().await.replace(map("2"));
        let second = live.load().in_use();
        live.begin_change().await.replace(map("3"));
        assert_eq!(live.oldest_in_use(), 1);
        drop(second);
        let [one, other] = first;
        drop(one);
        assert_eq!(live.oldest_in_use(), 1);
        drop(other);
        assert_eq!(live.oldest_in_use(), 3);
    }

    #[tokio::test]
    async fn whoever_holds_the_map_still_is_waited_for() {
        let live = LiveMap::new(map("old"), 0);
        let held = live.hold().await;
        assert!(live.begin_change().now_or_never().is_none());
        drop(held);
        let change = live.begin_change().now_or_never().unwrap();
        assert!(live.hold().now_or_never().is_none());
        drop(change);
        assert!(live.hold().now_or_never().is_some());
    }
}
