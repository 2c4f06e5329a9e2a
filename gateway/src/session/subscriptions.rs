//! What one client has subscribed to, and how a filter becomes partitions to read.
//!
//! What always holds: dropping this takes the client off all its readers, so that a connection that ends in the middle of
//! a SUBSCRIBE leaves nothing behind; one filter's refusal leaves the others as they are; others can see how many there
//! are. A topic that Iggy lacks is made for a subscriber under the same conditions as for a publisher.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::Context;
use crate::backoff::Backoff;
use crate::delivery::{Delivery, Outbox, Place};
use crate::log::LogError;
use crate::mapping::{Read, Refusal};
use crate::mqtt::{QoS, TopicFilter, TopicName};
use crate::targets::TargetError;

/// Why a filter is answered with 0x80.
#[derive(Debug, thiserror::Error)]
pub enum NotGranted {
    /// The filter has a wildcard.
    #[error("filters with wildcards are not served yet; subscribe to whole topics")]
    Wildcard,
    /// No delivery role.
    #[error("no sink connector is attached to this gateway")]
    NoDelivery,
    /// Its permissions do not allow it.
    #[error("the permissions of the client do not allow it")]
    NotAllowed,
    /// The client has too many.
    #[error("the client has max_subscriptions = {0} already")]
    TooMany(usize),
    /// The map has no place for the topic.
    #[error("{0}")]
    Refused(#[from] Refusal),
    /// The topic's place in Iggy cannot be used.
    #[error("{0}")]
    Target(#[from] TargetError),
    /// Only a topic of other producers would have it, in a partition that is not there.
    #[error("the topic names a partition that its Iggy topic does not have")]
    NoPartition,
    /// Iggy cannot be read.
    #[error("{0}")]
    Log(#[from] LogError),
}

/// The filters that a client has subscribed with, and the topics that they stand for. Locked when a client subscribes or
/// unsubscribes, and by whoever asks what it has.
pub type Subscribed = Mutex<HashMap<TopicFilter, TopicName>>;

/// See the module.
pub struct Subscriptions {
    context: Arc<Context>,
    outbox: Arc<Outbox>,
    by_filter: Arc<Subscribed>,
    /// The delivery role that they were made with.
    delivery: Option<Arc<Delivery>>,
}

impl Subscriptions {
    /// None yet. `by_filter` is kept up to date for others.
    pub fn new(context: Arc<Context>, outbox: Arc<Outbox>, by_filter: Arc<Subscribed>) -> Self {
        Self {
            context,
            outbox,
            by_filter,
            delivery: None,
        }
    }

    /// Subscribes to `filter` if that is `allowed`; the same filter again replaces the subscription.
    pub async fn add(
        &mut self,
        filter: &TopicFilter,
        qos: QoS,
        allowed: impl FnOnce(&TopicName) -> bool,
    ) -> Result<(), NotGranted> {
        let topic = filter.concrete().ok_or(NotGranted::Wildcard)?;
        if !allowed(&topic) {
            return Err(NotGranted::NotAllowed);
        }
        let delivery = self.delivery_role().await?;
        let context = self.context.clone();
        // Whoever changes the map moves all subscriptions that there are: this one is among them, or of the new map.
        let _still = context.map.hold().await;
        let max = self.context.config.limits.max_subscriptions;
        {
            let by_filter = self.by_filter.lock();
            if by_filter.len() >= max && !by_filter.contains_key(filter) {
                return Err(NotGranted::TooMany(max));
            }
        }
        let reads = self.context.map.map().reads(&topic)?;
        // As long as clients may connect, they may also wait for Iggy here; then they are told.
        let deadline = Instant::now() + self.context.config.iggy.grace;
        match self
            .add_to(&delivery, filter, &topic, qos, &reads, deadline)
            .await
        {
            // What was known of the topic is no longer so: it was deleted, or made anew with fewer partitions.
            Err(NotGranted::Log(LogError::NoSuchTarget(_))) => {
                for read in &reads {
                    self.context.targets.forget(&read.target);
                }
                self.add_to(&delivery, filter, &topic, qos, &reads, deadline)
                    .await
            }
            outcome => outcome,
        }
    }

    async fn add_to(
        &mut self,
        delivery: &Arc<Delivery>,
        filter: &TopicFilter,
        topic: &TopicName,
        qos: QoS,
        reads: &[Read],
        deadline: Instant,
    ) -> Result<(), NotGranted> {
        let mut places = Vec::with_capacity(reads.len());
        for read in reads {
            places.push(self.place(read, deadline).await?);
        }
        let is_nowhere = |place: &Place| place.partitions.of(place.count).is_empty();
        if places.iter().all(is_nowhere) {
            return Err(NotGranted::NoPartition);
        }
        let entry = (filter.detached(), topic.detached());
        self.by_filter.lock().insert(entry.0, entry.1);
        self.delivery = Some(delivery.clone());
        let mut backoff = retry_pauses();
        loop {
            let subscribed = delivery.subscribe(&self.outbox, topic, qos, places.clone());
            match subscribed.await {
                Ok(()) => return Ok(()),
                Err(error) if error.is_transient() && Instant::now() < deadline => {
                    sleep(backoff.next_pause()).await;
                }
                Err(error) => {
                    self.remove(filter);
                    return Err(error.into());
                }
            }
        }
    }

    async fn delivery_role(&self) -> Result<Arc<Delivery>, NotGranted> {
        let delivery = self.context.role(&self.context.delivery).await;
        delivery.ok_or(NotGranted::NoDelivery)
    }

    async fn place(&self, read: &Read, deadline: Instant) -> Result<Place, NotGranted> {
        let Read {
            rule,
            target,
            plan,
            partitions,
        } = read;
        let mut backoff = retry_pauses();
        let info = loop {
            match self.context.targets.ensure(*rule, target, plan).await {
                Err(error) if error.is_transient() && Instant::now() < deadline => {
                    sleep(backoff.next_pause()).await;
                }
                asked => break asked?,
            }
        };
        Ok(Place {
            target: target.clone(),
            partitions: partitions.clone(),
            count: info.partitions,
        })
    }

    /// Ends the subscription to `filter`, if there is one.
    pub fn remove(&mut self, filter: &TopicFilter) {
        let removed = self.by_filter.lock().remove(filter);
        if let Some(topic) = removed
            && let Some(delivery) = &self.delivery
        {
            delivery.unsubscribe(self.outbox.id(), &topic);
        }
    }

    /// Whether all of them are `allowed`.
    pub fn all(&self, allowed: impl FnMut(&TopicName) -> bool) -> bool {
        self.by_filter.lock().values().all(allowed)
    }

    /// Whether there are subscriptions that nobody serves any more, because their delivery role has ended. A role that
    /// ends tells the connections that have subscriptions then; one that subscribes meanwhile has to look itself.
    pub fn are_orphaned(&self) -> bool {
        let now = self.context.delivery.load_full();
        !self.by_filter.lock().is_empty()
            && now.as_ref().map(Arc::as_ptr) != self.delivery.as_ref().map(Arc::as_ptr)
    }
}

impl Drop for Subscriptions {
    fn drop(&mut self) {
        if let Some(delivery) = &self.delivery {
            delivery.leave(self.outbox.id());
        }
    }
}

fn retry_pauses() -> Backoff {
    Backoff::new(Duration::from_millis(20), Duration::from_secs(1))
}
