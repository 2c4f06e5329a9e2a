//! The topic map, read anew: from its file to the map in force, with all that depends on it.
//!
//! What always holds: a map comes into force as a whole, after everything it needs is there: it compiles, fits the way in
//! which messages are produced, its constant targets are in Iggy, and open subscriptions read its places already. Until
//! then, and if anything is missing or the text is what it was, the map before it stays in force and is all that anybody sees; what Iggy is missing for
//! is tried again. What was resolved by the old map stays where it was resolved.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::config::Produce;
use crate::delivery::{Delivery, Place};
use crate::log::{LogError, Target};
use crate::mapping::{self, LoadError, NotOneTarget, Read, TopicMap};
use crate::mqtt::TopicName;
use crate::session::{Context, End};
use crate::targets::TargetError;

/// How long Iggy is waited for: nobody subscribes meanwhile. Then it is tried again from the beginning.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why the map that was read is not in force.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// There is no map.
    #[error("{0}")]
    Load(#[from] LoadError),
    /// The connectors runtime cannot store where the map says.
    #[error("produce = \"runtime\" does not fit the topic map: {0}")]
    NotOneTarget(#[from] NotOneTarget),
    /// The connectors runtime stores elsewhere.
    #[error(
        "the topic map leads to {now}, and with produce = \"runtime\" the source stores in {before}, as its [[streams]] entry says since it was started; change both and restart"
    )]
    OtherTarget {
        /// Where the map leads.
        now: Target,
        /// Where the map in force leads.
        before: Target,
    },
    /// A topic that the map names cannot be used.
    #[error("{0}")]
    Target(TargetError),
    /// Iggy was asked and did not answer as it should.
    #[error("the new topic map waits for Iggy, and is tried again each second: {0}")]
    Waits(String),
}

impl MapError {
    /// Whether it is tried again without anybody doing anything.
    pub fn waits(&self) -> bool {
        matches!(self, Self::Waits(_))
    }

    fn of_target(error: TargetError) -> Self {
        match error.is_transient() {
            true => Self::Waits(error.to_string()),
            false => Self::Target(error),
        }
    }
}

impl From<LogError> for MapError {
    /// Of a subscription that is moved: its topics were there a moment ago, so whatever it is, it may be over.
    fn from(error: LogError) -> Self {
        Self::Waits(error.to_string())
    }
}

/// Reads the map, and puts it in force.
///
/// # Errors
/// Why it is not in force; nothing has changed then.
pub(super) async fn reload(context: &Arc<Context>) -> Result<(), MapError> {
    let map = Arc::new(read(context).await?);
    // Certificates change far more often than maps, and one signal is for all files.
    if map.is_same(&context.map.map()) {
        return Ok(());
    }
    if context.config.ingest.produce == Produce::Runtime {
        let (now, before) = (map.only_target()?, context.map.map().only_target()?);
        if now != before {
            return Err(MapError::OtherTarget { now, before });
        }
    }
    // Who subscribes is not kept waiting for what would fail.
    if let Some(away) = context.health.away_for() {
        return Err(MapError::Waits(format!("it has not answered for {away:?}")));
    }
    within_patience(make_targets(context, &map)).await?;

    // From here to the end nobody subscribes.
    let change = context.map.begin_change().await;
    let delivery = context.delivery.load_full();
    let mut unmapped = HashSet::new();
    let mut subscriptions = 0;
    if let Some(delivery) = &delivery {
        let moving = within_patience(move_subscriptions(context, delivery, &map)).await;
        match moving {
            Ok(moved) => (subscriptions, unmapped) = moved,
            Err(error) => {
                delivery.settle(false);
                return Err(error);
            }
        }
    }
    change.replace(map.clone());
    context.targets.follow(&map);
    if let Some(delivery) = &delivery {
        delivery.follow(&map);
        delivery.settle(true);
        end_unmapped(context, delivery, &unmapped);
    }
    for warning in map.warnings() {
        tracing::warn!("{warning}");
    }
    tracing::info!(
        generation = context.map.generation(),
        subscriptions_moved = subscriptions,
        topics_without_a_place = unmapped.len(),
        "another topic map is in force"
    );
    Ok(())
}

async fn read(context: &Context) -> Result<TopicMap, MapError> {
    let path = context.config.topic_map.clone();
    // A large one takes seconds to compile.
    let loading = spawn_blocking(move || mapping::load(&path)).await;
    let loaded = loading.map_err(|error| LoadError::Unreadable {
        path: context.config.topic_map.clone(),
        error: io::Error::other(error),
    })?;
    Ok(loaded?)
}

async fn within_patience<T>(
    work: impl Future<Output = Result<T, MapError>>,
) -> Result<T, MapError> {
    match timeout(PATIENCE, work).await {
        Ok(outcome) => outcome,
        Err(_) => Err(LogError::Timeout(PATIENCE).into()),
    }
}

/// Makes sure of the topics that the map names.
async fn make_targets(context: &Context, map: &TopicMap) -> Result<(), MapError> {
    for (rule, target, plan) in map.constant_targets() {
        let made = context.targets.ensure_for(map, rule, &target, &plan).await;
        made.map_err(MapError::of_target)?;
    }
    Ok(())
}

/// What becomes of a topic that is subscribed to.
enum Subscribed {
    /// It is read elsewhere, too.
    Moves(Vec<Read>),
    /// The map has no place for it.
    Nowhere(String),
}

/// Lets the subscriptions whose topics are stored elsewhere by `map` read there, too. Says how many they are, and for which
/// topics there is no place.
async fn move_subscriptions(
    context: &Arc<Context>,
    delivery: &Arc<Delivery>,
    map: &Arc<TopicMap>,
) -> Result<(usize, HashSet<TopicName>), MapError> {
    let (before, now, topics) = (context.map.map(), map.clone(), delivery.topics());
    // There may be very many.
    let resolving = spawn_blocking(move || differences(&before, &now, topics)).await;
    let differences = resolving.map_err(|error| MapError::Waits(error.to_string()))?;
    let (mut places, mut unmapped) = (HashMap::new(), HashSet::new());
    for (topic, subscribed) in differences {
        let found = match subscribed {
            Subscribed::Nowhere(why) => Err(why),
            Subscribed::Moves(reads) => find_places(context, map, &reads).await?,
        };
        match found {
            Ok(found) => {
                places.insert(topic, found);
            }
            Err(reason) => {
                tracing::debug!(
                    topic = topic.as_str(),
                    reason,
                    "no place for a subscription"
                );
                unmapped.insert(topic);
            }
        }
    }
    Ok((delivery.prepare(&places).await?, unmapped))
}

/// The topics that are read elsewhere than before.
fn differences(
    before: &TopicMap,
    now: &TopicMap,
    topics: HashSet<TopicName>,
) -> Vec<(TopicName, Subscribed)> {
    let places = |reads: &[Read]| -> Vec<_> {
        let place = |read: &Read| (read.target.clone(), read.partitions.clone());
        reads.iter().map(place).collect()
    };
    let difference = |topic: TopicName| {
        let subscribed = match (before.reads(&topic), now.reads(&topic)) {
            (Ok(before), Ok(now)) if places(&before) == places(&now) => return None,
            (_, Ok(now)) => Subscribed::Moves(now),
            (_, Err(refusal)) => Subscribed::Nowhere(refusal.to_string()),
        };
        Some((topic, subscribed))
    };
    topics.into_iter().filter_map(difference).collect()
}

/// Where the topic is read; `Err` says why nowhere.
async fn find_places(
    context: &Context,
    map: &TopicMap,
    reads: &[Read],
) -> Result<Result<Vec<Place>, String>, MapError> {
    let mut places = Vec::with_capacity(reads.len());
    for read in reads {
        let asked = context
            .targets
            .ensure_for(map, read.rule, &read.target, &read.plan)
            .await;
        let info = match asked.map_err(MapError::of_target) {
            Ok(info) => info,
            Err(MapError::Target(error)) => return Ok(Err(error.to_string())),
            Err(error) => return Err(error),
        };
        places.push(Place {
            target: read.target.clone(),
            partitions: read.partitions.clone(),
            count: info.partitions,
        });
    }
    let is_somewhere = |place: &Place| !place.partitions.of(place.count).is_empty();
    match places.iter().any(is_somewhere) {
        true => Ok(Ok(places)),
        false => Ok(Err(
            "the topic names a partition that its Iggy topic does not have".to_owned(),
        )),
    }
}

/// Ends the connections that have subscribed to a topic for which there is no place any more. MQTT 3.1.1 has no word for
/// taking a subscription back; a client that has to connect again is told by its SUBACK.
fn end_unmapped(context: &Context, delivery: &Delivery, unmapped: &HashSet<TopicName>) {
    if unmapped.is_empty() {
        return;
    }
    let connections = delivery.subscribed_to(unmapped);
    context.sessions.for_each(|_, live| {
        if connections.contains(&live.outbox.id()) {
            live.end.end(End::SubscriptionNotMapped);
        }
    });
}
