//! Subscriptions move when another topic map stores their topics elsewhere.
//!
//! What always holds: a subscription reads the places of the coming map before that is in force, so that nothing that is
//! stored there from then on is missed; it goes on reading the old ones until what was on its way there must have arrived
//! and was read, so nothing is missed there either; each record is in one place, so nothing comes twice. A map that does not
//! come into force leaves the subscriptions as they are.
//!
//! The order of messages is kept in each partition (D3); what is stored in the new place may overtake what is still read from
//! the old one.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::outbox::ConnectionId;
use super::readers::Begin;
use super::{Delivery, Outbox, Place};
use crate::log::{LogError, Triple};
use crate::mapping::TopicMap;
use crate::mqtt::TopicName;

/// For so long an old place is read at least: by then other gateways have read the new map, too. What this one has published
/// by the old map is waited for however long it takes.
const LINGER: Duration = Duration::from_secs(60);
/// How often it is looked whether an old place may be left.
const LOOK: Duration = Duration::from_secs(1);

/// What a subscription has to read beside what it reads.
struct Added {
    outbox: Arc<Outbox>,
    topic: TopicName,
    triples: Vec<Triple>,
}

/// Who still reads an old place, and when it became one.
type Leaving = Vec<(ConnectionId, TopicName, Left)>;

/// When a place became an old one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Left {
    at: Instant,
    /// The map that was in force from then on.
    generation: u64,
}

impl Delivery {
    /// All topics that are subscribed to.
    pub fn topics(&self) -> HashSet<TopicName> {
        let all = self.subscriptions.lock();
        all.values().flat_map(HashMap::keys).cloned().collect()
    }

    /// Which connections are subscribed to one of `topics`.
    pub fn subscribed_to(&self, topics: &HashSet<TopicName>) -> HashSet<ConnectionId> {
        let all = self.subscriptions.lock();
        let has_one = |of: &&HashMap<TopicName, _>| of.keys().any(|topic| topics.contains(topic));
        let those = all.iter().filter(|(_, of)| has_one(of));
        those.map(|(connection, _)| *connection).collect()
    }

    /// Lets every subscription to one of the topics also read the places where a coming map stores it, from now on. Then
    /// [`Delivery::settle`] has to be told whether the map has come. Says how many subscriptions there are.
    ///
    /// # Errors
    /// Iggy's; the map must not come then.
    pub async fn prepare(
        self: &Arc<Self>,
        places: &HashMap<TopicName, Vec<Place>>,
    ) -> Result<usize, LogError> {
        let added = self.add_coming(places);
        let mut created = HashMap::new();
        for one in &added {
            for triple in &one.triples {
                self.begin_if_wanted(&one.outbox, &one.topic, triple, Begin::Now, &mut created)
                    .await?;
            }
        }
        Ok(added.len())
    }

    fn add_coming(&self, places: &HashMap<TopicName, Vec<Place>>) -> Vec<Added> {
        let mut added = Vec::new();
        let mut all = self.subscriptions.lock();
        for topics in all.values_mut() {
            for (topic, subscription) in topics {
                let Some(places) = places.get(topic) else {
                    continue;
                };
                subscription.coming = Some(places.clone());
                let mut triples = Vec::new();
                for triple in places.iter().flat_map(Place::triples) {
                    // One that is still read because it was left may have been left before it was begun.
                    let was_left = subscription.leaving.remove(&triple).is_some();
                    if !subscription.triples.contains(&triple) {
                        subscription.triples.push(triple.clone());
                    } else if !was_left {
                        continue;
                    }
                    triples.push(triple);
                }
                added.push(Added {
                    outbox: subscription.outbox.clone(),
                    topic: topic.clone(),
                    triples,
                });
            }
        }
        added
    }

    /// The map that was prepared for is in force, or is not coming: what is not read for the map in force is left, in a
    /// while.
    pub fn settle(self: &Arc<Self>, is_in_force: bool) {
        let now = Instant::now();
        let left = Left {
            at: now,
            generation: self.map.generation(),
        };
        let mut all = self.subscriptions.lock();
        for subscription in all.values_mut().flat_map(HashMap::values_mut) {
            let Some(coming) = subscription.coming.take() else {
                continue;
            };
            if is_in_force {
                subscription.places = coming.into_iter().map(|place| (place, now)).collect();
                self.counters.subscriptions_moved.increment();
            }
            let places = &subscription.places;
            let stays: HashSet<Triple> = places
                .iter()
                .flat_map(|(place, _)| place.triples())
                .collect();
            for triple in &subscription.triples {
                if !stays.contains(triple) {
                    subscription.leaving.entry(triple.clone()).or_insert(left);
                }
            }
        }
        let is_leaving = |topics: &HashMap<_, super::Subscription>| {
            topics.values().any(|one| !one.leaving.is_empty())
        };
        // Under the lock, as its end is.
        if all.values().any(is_leaving) && !self.is_letting_go.swap(true, Ordering::SeqCst) {
            let delivery = self.clone();
            self.tasks.spawn(async move {
                tokio::select! {
                    biased;
                    () = delivery.stop.cancelled() => {}
                    () = delivery.let_go() => {}
                }
            });
        }
    }

    /// What `map` says of the records of other producers counts from now on. It has to be in force already.
    pub fn follow(&self, map: &TopicMap) {
        for (triple, shared) in &*self.readers.lock() {
            let foreign = map.foreign(&triple.target).cloned();
            shared.context.foreign.store(foreign);
        }
    }

    /// Leaves old places until there are none.
    async fn let_go(self: &Arc<Self>) {
        loop {
            sleep(LOOK).await;
            let Some(leaving) = self.leaving() else {
                return;
            };
            let oldest_in_use = self.map.oldest_in_use();
            for (triple, who) in leaving {
                let Some(shared) = self.reader(&triple) else {
                    self.leave_place(&triple, &who);
                    continue;
                };
                let mut due = who;
                due.retain(|(_, _, left)| {
                    left.at.elapsed() >= LINGER && left.generation <= oldest_in_use
                });
                if due.is_empty() {
                    continue;
                }
                match self.log.end(&triple).await {
                    Ok(end) => {
                        let routes = shared.routes.lock();
                        // What has not got so far yet is looked at again.
                        due.retain(|(connection, ..)| {
                            routes.next_of(*connection).is_none_or(|next| next >= end)
                        });
                    }
                    Err(LogError::NoSuchTarget(_)) => {}
                    // It is asked again.
                    Err(_) => continue,
                }
                self.leave_place(&triple, &due);
            }
        }
    }

    /// The places that are being left; `None` ends the task that sees to it.
    fn leaving(&self) -> Option<HashMap<Triple, Leaving>> {
        let mut leaving: HashMap<Triple, Leaving> = HashMap::new();
        let all = self.subscriptions.lock();
        for (connection, topics) in &*all {
            for (topic, subscription) in topics {
                for (triple, left) in &subscription.leaving {
                    let who = leaving.entry(triple.clone()).or_default();
                    who.push((*connection, topic.clone(), *left));
                }
            }
        }
        if leaving.is_empty() {
            self.is_letting_go.store(false, Ordering::SeqCst);
            return None;
        }
        Some(leaving)
    }

    fn leave_place(&self, triple: &Triple, who: &Leaving) {
        // Held to the end: whoever wants the place again then begins anew.
        let mut all = self.subscriptions.lock();
        for (connection, topic, left) in who {
            let subscription = all
                .get_mut(connection)
                .and_then(|topics| topics.get_mut(topic));
            let Some(subscription) = subscription else {
                continue;
            };
            // It may have been wanted again meanwhile.
            if subscription.leaving.get(triple) != Some(left) {
                continue;
            }
            subscription.leaving.remove(triple);
            subscription.triples.retain(|other| other != triple);
            self.unroute(*connection, topic, [triple]);
        }
    }
}
