//! Subscriptions move when a topic in Iggy gets another number of partitions, and begin anew when it was made anew.
//!
//! What always holds: nothing that was stored in a new place after the number changed is missed; partitions that are still
//! there go on being read, because something that was stored there before may be to come; what a client has ended or
//! changed meanwhile is as it wants it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::outbox::{ConnectionId, Outbox};
use super::reader::Shared;
use super::readers::Begin;
use super::{Delivery, Place};
use crate::log::{LogError, Target, TopicInfo, Triple};
use crate::mqtt::TopicName;

/// By so much the clocks of Iggy and of this machine may differ when a subscription moves to another partition. More
/// would only read more records for nothing.
const CLOCK_SLACK: Duration = Duration::from_secs(10);

/// What a subscription has to read beside what it reads, because a topic in Iggy has another number of partitions.
struct Move {
    outbox: Arc<Outbox>,
    topic: TopicName,
    added: Vec<(Triple, Begin)>,
}

impl Delivery {
    /// What Iggy says of a topic now: subscriptions move to its partitions, and readers of a topic that was made anew
    /// begin anew. Nothing that was stored in a new place after the number changed is missed. On an error it is to be
    /// told again.
    pub async fn learn(self: &Arc<Self>, target: &Target, info: TopicInfo) -> Result<(), LogError> {
        let mut to_begin_anew = Vec::new();
        let readers: Vec<_> = {
            let readers = self.readers.lock();
            let of_target = |shared: &&Arc<Shared>| shared.triple.target == *target;
            readers.values().filter(of_target).cloned().collect()
        };
        for shared in readers {
            let created = &mut shared.known.lock().created_micros;
            if *created == info.created_micros {
                continue;
            }
            *created = info.created_micros;
            to_begin_anew.push(shared.clone());
        }
        for shared in to_begin_anew {
            shared.begin_anew();
        }
        for moving in self.moves(target, info.partitions) {
            self.finish_move(target, info.partitions, moving).await?;
        }
        Ok(())
    }

    /// Takes subscriptions to `target` off the partitions that are gone; returns what they have to read beside the others.
    fn moves(&self, target: &Target, count: u32) -> Vec<Move> {
        let now = Instant::now();
        let mut moves = Vec::new();
        let mut gone: Vec<(ConnectionId, TopicName, Triple)> = Vec::new();
        for (connection, topics) in &mut *self.subscriptions.lock() {
            for (topic, subscription) in topics {
                let mut added = Vec::new();
                for (place, confirmed) in &mut subscription.places {
                    if place.target != *target {
                        continue;
                    }
                    if place.count == count {
                        *confirmed = now;
                        continue;
                    }
                    let before: Vec<Triple> = place.triples().collect();
                    let new = Place {
                        count,
                        ..place.clone()
                    };
                    let after: Vec<Triple> = new.triples().collect();
                    // In those that are still there, something that was stored before the number changed, or by one who
                    // has not noticed it yet, may be to come.
                    for triple in before.iter().filter(|triple| triple.partition >= count) {
                        subscription.triples.retain(|other| other != triple);
                        gone.push((*connection, topic.clone(), triple.clone()));
                    }
                    for triple in after.into_iter().filter(|triple| !before.contains(triple)) {
                        // All that is in a new partition was stored after the number changed; in one that was there
                        // already, it is what was stored since the number was last seen to be the old one.
                        let begin = if triple.partition >= place.count {
                            Begin::First
                        } else {
                            Begin::Within(now.duration_since(*confirmed) + CLOCK_SLACK)
                        };
                        if !subscription.triples.contains(&triple) {
                            subscription.triples.push(triple.clone());
                        }
                        added.push((triple, begin));
                    }
                    moves.push(Move {
                        outbox: subscription.outbox.clone(),
                        topic: topic.clone(),
                        added: std::mem::take(&mut added),
                    });
                }
            }
        }
        for (connection, topic, triple) in &gone {
            self.unroute(*connection, topic, [triple]);
        }
        moves
    }

    async fn finish_move(
        self: &Arc<Self>,
        target: &Target,
        count: u32,
        Move {
            outbox,
            topic,
            added,
        }: Move,
    ) -> Result<(), LogError> {
        let mut created = HashMap::new();
        for (triple, begin) in &added {
            self.begin_if_wanted(&outbox, &topic, triple, *begin, &mut created)
                .await?;
        }
        let mut all = self.subscriptions.lock();
        let subscription = all
            .get_mut(&outbox.id())
            .and_then(|topics| topics.get_mut(&topic));
        let places = subscription.into_iter().flat_map(|one| &mut one.places);
        for (place, confirmed) in places.filter(|(place, _)| place.target == *target) {
            place.count = count;
            *confirmed = Instant::now();
        }
        drop(all);
        if !added.is_empty() {
            self.counters.subscriptions_moved.increment();
        }
        Ok(())
    }

    /// Lets the client's subscription to `topic` read `triple`, if it is to, and as it is to when that is done.
    pub(super) async fn begin_if_wanted(
        self: &Arc<Self>,
        outbox: &Arc<Outbox>,
        topic: &TopicName,
        triple: &Triple,
        begin: Begin,
        created: &mut HashMap<Target, u64>,
    ) -> Result<(), LogError> {
        let wanted = || {
            let all = self.subscriptions.lock();
            let subscription = all.get(&outbox.id())?.get(topic)?;
            let is_there = subscription.triples.contains(triple);
            is_there.then_some(subscription.qos)
        };
        let Some(mut begun) = wanted() else {
            return Ok(());
        };
        self.begin(outbox, topic, begun, triple, begin, created)
            .await?;
        // The client may have unsubscribed, subscribed anew or left meanwhile.
        loop {
            match wanted() {
                None => {
                    self.unroute(outbox.id(), topic, [triple]);
                    return Ok(());
                }
                Some(now) if now != begun => {
                    begun = now;
                    self.begin(outbox, topic, begun, triple, begin, created)
                        .await?;
                }
                Some(_) => return Ok(()),
            }
        }
    }
}
