//! What many sample topics have in common: which rules they use and how evenly they fill the partitions.
//!
//! What always holds: memory grows with the number of rules, of Iggy topics and of their used partitions, never with the
//! number of samples alone.

use std::collections::{BTreeMap, HashMap, HashSet};

use mqtt_gateway::log::Target;
use mqtt_gateway::mapping::{Bounds, Refusal, Resolution, RuleId, TopicMap};
use serde::Serialize;

use super::place::{PartitionCount, RuleReport, Rules};

/// How many lines that are not stored are kept as examples.
const EXAMPLES: usize = 10;

/// Counts of samples.
#[derive(Debug)]
pub(super) struct Balance<'m> {
    rules: Rules<'m>,
    bounds: Bounds,
    constant: HashSet<Target>,
    hits: HashMap<RuleId, u64>,
    topics: u64,
    stored: u64,
    not_stored: BTreeMap<&'static str, u64>,
    examples: Vec<Example>,
    targets: HashMap<Target, Tally>,
}

/// Counts of the samples that are stored in one Iggy topic.
#[derive(Debug)]
struct Tally {
    count: PartitionCount,
    topics: u64,
    in_turn: u64,
    /// Of those whose partition is known, by partition; without the partitions that have none.
    by_partition: BTreeMap<u32, u64>,
}

/// A sample that is not stored.
#[derive(Debug)]
pub(super) struct Example {
    /// Its line, from 1.
    pub(super) line: u64,
    /// Its text.
    pub(super) topic: String,
    /// Why not.
    pub(super) message: String,
}

impl<'m> Balance<'m> {
    /// Nothing counted yet.
    pub(super) fn new(map: &'m TopicMap) -> Self {
        Self {
            rules: Rules::of(map),
            bounds: map.bounds(),
            constant: map
                .constant_targets()
                .map(|(_, target, _)| target)
                .collect(),
            hits: HashMap::new(),
            topics: 0,
            stored: 0,
            not_stored: BTreeMap::new(),
            examples: Vec::new(),
            targets: HashMap::new(),
        }
    }

    /// A sample that is stored, in a topic with so many partitions.
    pub(super) fn stored(&mut self, resolution: &Resolution, count: PartitionCount) {
        self.topics += 1;
        self.stored += 1;
        *self.hits.entry(resolution.rule).or_default() += 1;
        // Cloned only when it is new.
        let tally = match self.targets.get_mut(&resolution.target) {
            Some(tally) => tally,
            None => self
                .targets
                .entry(resolution.target.clone())
                .or_insert(Tally {
                    count,
                    topics: 0,
                    in_turn: 0,
                    by_partition: BTreeMap::new(),
                }),
        };
        tally.topics += 1;
        let partition = match (&resolution.key, tally.count.partitions) {
            (Some(key), partitions) => Some(key.partition(partitions)),
            (None, 1) => Some(0),
            (None, _) => None,
        };
        match partition {
            Some(partition) => *tally.by_partition.entry(partition).or_default() += 1,
            None => tally.in_turn += 1,
        }
    }

    /// A sample that the map refuses.
    pub(super) fn refused(&mut self, refusal: &Refusal, example: impl FnOnce() -> Example) {
        if let Some(rule) = super::report::refusing_rule(refusal) {
            *self.hits.entry(rule).or_default() += 1;
        }
        self.not_stored(refusal.reason(), example);
    }

    /// A sample that is not stored for that reason.
    pub(super) fn not_stored(&mut self, reason: &'static str, example: impl FnOnce() -> Example) {
        self.topics += 1;
        *self.not_stored.entry(reason).or_default() += 1;
        if self.examples.len() < EXAMPLES {
            self.examples.push(example());
        }
    }

    /// The sum.
    pub(super) fn summary(self) -> Summary {
        let hits = |rule: &RuleId| self.hits.get(rule).copied().unwrap_or_default();
        let dynamic: Vec<&Target> = self
            .targets
            .keys()
            .filter(|target| !self.constant.contains(target))
            .collect();
        let constant_streams: HashSet<_> =
            self.constant.iter().map(|target| &target.stream).collect();
        let dynamic_streams: HashSet<_> = dynamic
            .iter()
            .map(|target| &target.stream)
            .filter(|stream| !constant_streams.contains(stream))
            .collect();
        let names_from_topics = NamesFromTopics {
            streams: dynamic_streams.len(),
            max_streams: self.bounds.max_streams,
            topics: dynamic.len(),
            max_topics: self.bounds.max_topics,
        };
        let mut targets: Vec<TargetSummary> = self
            .targets
            .into_iter()
            .map(|(target, tally)| TargetSummary::new(&target, tally))
            .collect();
        targets.sort_by(|a, b| {
            let by_name = || (&a.stream, &a.topic).cmp(&(&b.stream, &b.topic));
            b.topics.cmp(&a.topics).then_with(by_name)
        });
        let (used, unused): (Vec<RuleId>, Vec<RuleId>) =
            self.rules.ids().partition(|rule| hits(rule) > 0);
        Summary {
            topics: self.topics,
            stored: self.stored,
            fallback: hits(&RuleId::Fallback),
            not_stored: self.not_stored,
            examples: self.examples,
            rules_hit: used
                .into_iter()
                .map(|rule| RuleHits {
                    topics: hits(&rule),
                    rule: self.rules.report(rule),
                })
                .collect(),
            rules_never_hit: unused
                .into_iter()
                .map(|rule| self.rules.report(rule))
                .collect(),
            names_from_topics,
            targets,
        }
    }
}

/// The sum of all samples.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    /// All samples.
    pub(super) topics: u64,
    /// Those that are stored.
    pub(super) stored: u64,
    /// Of those, the ones that no rule matches.
    pub(super) fallback: u64,
    /// The others, by reason.
    pub(super) not_stored: BTreeMap<&'static str, u64>,
    /// The first of those, cut to a line; a program finds all of them among the topics.
    #[serde(skip)]
    pub(super) examples: Vec<Example>,
    /// The rules that decided, with how often.
    pub(super) rules_hit: Vec<RuleHits>,
    /// The rules that did not.
    pub(super) rules_never_hit: Vec<RuleReport>,
    /// How many Iggy names come from topics.
    pub(super) names_from_topics: NamesFromTopics,
    /// Where samples are stored, those with the most first.
    pub(super) targets: Vec<TargetSummary>,
}

/// How often a rule decided.
#[derive(Debug, Serialize)]
pub(super) struct RuleHits {
    /// How often.
    pub(super) topics: u64,
    /// The rule.
    #[serde(flatten)]
    pub(super) rule: RuleReport,
}

/// How many Iggy names come from topics, and how many may.
#[derive(Debug, Serialize)]
pub(super) struct NamesFromTopics {
    /// Streams.
    pub(super) streams: usize,
    /// As many as there may be.
    pub(super) max_streams: u32,
    /// Topics.
    pub(super) topics: usize,
    /// As many as there may be.
    pub(super) max_topics: u32,
}

/// The samples that are stored in one Iggy topic.
#[derive(Debug, Serialize)]
pub(super) struct TargetSummary {
    /// The Iggy stream.
    pub(super) stream: String,
    /// The Iggy topic.
    pub(super) topic: String,
    /// How many partitions it has.
    #[serde(flatten)]
    pub(super) count: PartitionCount,
    /// The samples.
    pub(super) topics: u64,
    /// Of those, the ones that go to several partitions in turn, because they have no key.
    pub(super) in_turn: u64,
    /// The others, by partition; a partition that is left out has none.
    pub(super) by_partition: BTreeMap<u32, u64>,
    /// The least that a partition has of those.
    pub(super) smallest: u64,
    /// The most that a partition has of those.
    pub(super) largest: u64,
}

impl TargetSummary {
    fn new(target: &Target, tally: Tally) -> Self {
        let used = tally.by_partition.values().copied();
        let all_used = tally.by_partition.len() as u64 >= u64::from(tally.count.partitions);
        Self {
            stream: target.stream.to_string(),
            topic: target.topic.to_string(),
            count: tally.count,
            topics: tally.topics,
            in_turn: tally.in_turn,
            smallest: if all_used {
                used.clone().min().unwrap_or(0)
            } else {
                0
            },
            largest: used.max().unwrap_or(0),
            by_partition: tally.by_partition,
        }
    }
}
