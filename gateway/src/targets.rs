//! Which topics exist in Iggy, and how many partitions they have, as far as the gateway knows.
//!
//! What always holds: a topic is known only after Iggy has said that it exists; a missing one is made only if its rule
//! says so, and never beyond the map's bounds; what Iggy says is remembered until someone finds it to be wrong
//! ([`Targets::forget`]), or another map is in force ([`Targets::follow`]). Ingest and delivery share one [`Targets`], so that both see the same partition count (M4).

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::config::{IngestConfig, OnWeakDurability};
use crate::limited::Limited;
use crate::log::{
    Durability, Expiry, Log, LogError, Name, Target, TopicInfo, TopicSize, TopicSpec,
};
use crate::mapping::{Bounds, RuleId, TopicMap, TopicPlan};
use crate::observe::Counters;

/// How the dead-letter topic is made.
pub const DEAD_LETTER_PLAN: TopicPlan = TopicPlan {
    auto_create: true,
    spec: TopicSpec {
        partitions: 1,
        durability: Durability::Persisted,
        message_expiry: Expiry::ServerDefault,
        max_topic_size: TopicSize::ServerDefault,
    },
};

/// Why a target cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// It is not there and must not be made.
    #[error(
        "{rule}: {target} does not exist in Iggy and auto_create is false; create it, or set auto_create = true"
    )]
    Missing {
        /// The rule that leads there.
        rule: RuleId,
        /// The missing topic.
        target: Target,
    },
    /// It is a topic of other producers, and not there.
    #[error(
        "{rule}: {target} does not exist in Iggy, and topics of other producers are theirs to create; create it, or remove the [[foreign]] table"
    )]
    ForeignMissing {
        /// The `[[foreign]]` table.
        rule: RuleId,
        /// The missing topic.
        target: Target,
    },
    /// The map's bound on streams that come from captures is reached.
    #[error(
        "{rule}: {target} would be one stream more than max_streams = {bound} allows; raise it, or narrow the rule"
    )]
    TooManyStreams {
        /// The rule that leads there.
        rule: RuleId,
        /// The topic that is not made.
        target: Target,
        /// The bound.
        bound: u32,
    },
    /// The map's bound on topics that come from captures is reached.
    #[error(
        "{rule}: {target} would be one topic more than max_topics = {bound} allows; raise it, or narrow the rule"
    )]
    TooManyTopics {
        /// The rule that leads there.
        rule: RuleId,
        /// The topic that is not made.
        target: Target,
        /// The bound.
        bound: u32,
    },
    /// It promises less than the rule asks for.
    #[error(
        "{rule}: the durability of {target} in Iggy is {found}, and the rule asks for persisted: a PUBACK would not mean stable storage; create the topic anew with durability = persisted, or set durability = \"commit\" if that is enough"
    )]
    WeakDurability {
        /// The rule that leads there.
        rule: RuleId,
        /// The weak topic.
        target: Target,
        /// What it promises.
        found: &'static str,
    },
    /// Iggy was asked and did not do it.
    #[error("{rule}: {target}: {error}")]
    Log {
        /// The rule that leads there.
        rule: RuleId,
        /// The topic that was asked for.
        target: Target,
        /// What Iggy said.
        error: LogError,
    },
}

impl TargetError {
    /// Whether asking again may succeed without anyone changing anything.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Log { error, .. } if error.is_transient())
    }
}

/// How many targets a map allows beside those that it names.
struct Bounded {
    bounds: Bounds,
    /// Those that the map or the configuration names itself: they do not count against the bounds.
    constant: HashSet<Target>,
}

impl Bounded {
    fn by(map: &TopicMap, dead_letter: &Target) -> Self {
        let of_map = map.constant_targets().map(|(_, target, _)| target);
        Self {
            bounds: map.bounds(),
            constant: of_map.chain([dead_letter.clone()]).collect(),
        }
    }
}

/// The topics that are known to exist.
pub struct Targets {
    log: Arc<dyn Log>,
    counters: Arc<Counters>,
    on_weak_durability: OnWeakDurability,
    /// Those that promise less than their rules ask for.
    weak: Mutex<BTreeSet<Target>>,
    /// Log lines about them: devices can cause them in numbers where their topics name targets.
    weak_lines: Limited,
    dead_letter: Target,
    /// What the map in force says.
    bounded: ArcSwap<Bounded>,
    known: RwLock<HashMap<Target, TopicInfo>>,
    /// What was known of topics that were forgotten since.
    forgotten: Mutex<HashMap<Target, TopicInfo>>,
    /// What Iggy has said something new about, for whoever has to act on it.
    news: Mutex<HashSet<Target>>,
    told: Notify,
    /// One creation at a time, so that the bounds hold and Iggy is asked once for a topic that many devices want.
    making: tokio::sync::Mutex<()>,
}

impl Targets {
    /// Knows nothing of Iggy yet.
    pub fn new(
        log: Arc<dyn Log>,
        map: &TopicMap,
        config: &IngestConfig,
        counters: Arc<Counters>,
    ) -> Self {
        Self {
            log,
            counters,
            bounded: ArcSwap::from_pointee(Bounded::by(map, &config.dead_letter)),
            dead_letter: config.dead_letter.clone(),
            on_weak_durability: config.on_weak_durability,
            weak: Mutex::default(),
            weak_lines: Limited::with_burst(10),
            known: RwLock::default(),
            forgotten: Mutex::default(),
            news: Mutex::default(),
            told: Notify::new(),
            making: tokio::sync::Mutex::default(),
        }
    }

    /// What is known of `target` without asking Iggy.
    pub fn known(&self, target: &Target) -> Option<TopicInfo> {
        self.known.read().get(target).copied()
    }

    /// Forgets what is known of `target`: the next [`Targets::ensure`] asks Iggy again.
    pub fn forget(&self, target: &Target) {
        if let Some(info) = self.known.write().remove(target) {
            self.forgotten.lock().insert(target.clone(), info);
        }
    }

    /// Another map is in force: its bounds count, and only what it names itself counts not. As after a restart, topics with
    /// other names count again from when they are used again; until then Iggy is not taken at its earlier word for them.
    pub fn follow(&self, map: &TopicMap) {
        let bounded = Bounded::by(map, &self.dead_letter);
        let is_dynamic = |known: &Target| !bounded.constant.contains(known);
        let dynamic: Vec<_> = self.all_known().into_iter().filter(is_dynamic).collect();
        self.bounded.store(Arc::new(bounded));
        dynamic.iter().for_each(|target| self.forget(target));
    }

    /// Makes sure that `target` exists, making it if `plan` says so.
    pub async fn ensure(
        &self,
        rule: RuleId,
        target: &Target,
        plan: &TopicPlan,
    ) -> Result<TopicInfo, TargetError> {
        if let Some(info) = self.known(target) {
            return Ok(info);
        }
        self.ask(rule, target, plan, &self.bounded.load_full())
            .await
    }

    /// As [`Targets::ensure`], for `map`, which is not in force yet: by its bounds, and by what its rules ask of a topic that
    /// is known already.
    pub async fn ensure_for(
        &self,
        map: &TopicMap,
        rule: RuleId,
        target: &Target,
        plan: &TopicPlan,
    ) -> Result<TopicInfo, TargetError> {
        if let Some(info) = self.known(target) {
            self.check_durability(rule, target, plan, info)?;
            return Ok(info);
        }
        let bounded = Bounded::by(map, &self.dead_letter);
        self.ask(rule, target, plan, &bounded).await
    }

    async fn ask(
        &self,
        rule: RuleId,
        target: &Target,
        plan: &TopicPlan,
        bounded: &Bounded,
    ) -> Result<TopicInfo, TargetError> {
        let _one_at_a_time = self.making.lock().await;
        if let Some(info) = self.known(target) {
            return Ok(info);
        }
        let failed = |error| TargetError::Log {
            rule,
            target: target.clone(),
            error,
        };
        let info = match self.log.topic(target).await.map_err(failed)? {
            Some(info) => {
                self.check_bounds(rule, target, bounded)?;
                info
            }
            None if plan.auto_create => {
                self.check_bounds(rule, target, bounded)?;
                let info = self.log.create(target, &plan.spec).await.map_err(failed)?;
                tracing::info!(stream = %target.stream, topic = %target.topic, %rule, partitions = info.partitions, "topic created in Iggy");
                info
            }
            None => {
                let target = target.clone();
                return Err(match rule {
                    RuleId::Foreign(_) => TargetError::ForeignMissing { rule, target },
                    RuleId::Rule(_) | RuleId::Fallback | RuleId::DeadLetter => {
                        TargetError::Missing { rule, target }
                    }
                });
            }
        };
        self.check_durability(rule, target, plan, info)?;
        self.known.write().insert(target.clone(), info);
        let before = self.forgotten.lock().remove(target);
        if before.is_some_and(|before| before != info) {
            self.tell(target);
        }
        Ok(info)
    }

    /// What Iggy says of `target` now. If that is new, [`Targets::news`] tells it.
    pub fn learn(&self, target: &Target, info: TopicInfo) {
        if self.note(target, info) {
            self.tell(target);
        }
    }

    /// As [`Targets::learn`], by one who acts on it; says whether it is new.
    pub fn note(&self, target: &Target, info: TopicInfo) -> bool {
        self.known.write().insert(target.clone(), info) != Some(info)
    }

    fn tell(&self, target: &Target) {
        self.news.lock().insert(target.clone());
        self.told.notify_one();
    }

    /// Waits until something new was said of topics, and says of which.
    pub async fn news(&self) -> HashSet<Target> {
        loop {
            let news = std::mem::take(&mut *self.news.lock());
            if !news.is_empty() {
                return news;
            }
            self.told.notified().await;
        }
    }

    /// Topics that are used although they promise less than their rules ask for.
    pub fn weak(&self) -> Vec<Target> {
        self.weak.lock().iter().cloned().collect()
    }

    /// All topics that are known to exist.
    pub fn all_known(&self) -> Vec<Target> {
        self.known.read().keys().cloned().collect()
    }

    fn check_durability(
        &self,
        rule: RuleId,
        target: &Target,
        plan: &TopicPlan,
        info: TopicInfo,
    ) -> Result<(), TargetError> {
        let found = match (plan.spec.durability, info.durability) {
            (Durability::Commit, _) | (Durability::Persisted, Some(Durability::Persisted)) => {
                self.weak.lock().remove(target);
                return Ok(());
            }
            (Durability::Persisted, Some(Durability::Commit)) => "commit",
            (Durability::Persisted, None) => "unknown",
        };
        let weak = TargetError::WeakDurability {
            rule,
            target: target.clone(),
            found,
        };
        match self.on_weak_durability {
            OnWeakDurability::Refuse => Err(weak),
            OnWeakDurability::Warn => {
                self.weak.lock().insert(target.clone());
                self.counters.weak_targets.increment();
                if let Some(left_out) = self.weak_lines.allow(Instant::now()) {
                    tracing::warn!(stream = %target.stream, topic = %target.topic, left_out, "{weak}");
                }
                Ok(())
            }
        }
    }

    fn check_bounds(
        &self,
        rule: RuleId,
        target: &Target,
        Bounded { bounds, constant }: &Bounded,
    ) -> Result<(), TargetError> {
        if constant.contains(target) {
            return Ok(());
        }
        let Bounds {
            max_streams,
            max_topics,
        } = *bounds;
        let known = self.known.read();
        let dynamic = || known.keys().filter(|known| !constant.contains(known));
        if dynamic().count() >= max_topics as usize {
            return Err(TargetError::TooManyTopics {
                rule,
                target: target.clone(),
                bound: max_topics,
            });
        }
        let is_constant_stream =
            |stream: &Name| constant.iter().any(|target| target.stream == *stream);
        let streams: HashSet<&Name> = dynamic()
            .map(|known| &known.stream)
            .filter(|stream| !is_constant_stream(stream))
            .collect();
        let is_new = !streams.contains(&target.stream) && !is_constant_stream(&target.stream);
        if is_new && streams.len() >= max_streams as usize {
            return Err(TargetError::TooManyStreams {
                rule,
                target: target.clone(),
                bound: max_streams,
            });
        }
        Ok(())
    }
}
