//! Rules and places in Iggy, as programs read them.

use std::collections::BTreeMap;

use mqtt_gateway::log::{Durability, Expiry, Target, TopicSize};
use mqtt_gateway::mapping::{PartitionKey, RuleId, RuleView, TopicMap, TopicPlan};
use serde::Serialize;
use serde_json::Value;

/// Part of a map that decides.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct RuleReport {
    /// Which kind of part.
    pub(crate) kind: RuleKind,
    /// Its number in the file, from 1; the fallback has none.
    pub(crate) number: Option<usize>,
    /// What it says.
    #[serde(flatten)]
    pub(crate) text: Option<RuleText>,
}

/// Kinds of parts of a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RuleKind {
    /// A `[[rule]]`.
    Rule,
    /// `default_stream` and `default_topic`.
    Fallback,
    /// A `[[foreign]]` entry.
    Foreign,
}

/// What a part of a map says.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct RuleText {
    /// Its line, from 1.
    pub(crate) line: usize,
    /// The pattern.
    pub(crate) mqtt_topic: String,
    /// The template of the stream.
    pub(crate) stream: String,
    /// The template of the topic.
    pub(crate) topic: String,
    /// The template of the key.
    pub(crate) partition_key: Option<String>,
}

impl RuleReport {
    /// `2 (line 17)` or `fallback`, to stand after what the number counts.
    pub(crate) fn name(&self) -> String {
        let kind = match self.kind {
            RuleKind::Rule => "rule",
            RuleKind::Fallback => "the fallback",
            RuleKind::Foreign => "foreign entry",
        };
        let mut name = kind.to_owned();
        if let Some(number) = self.number {
            name.push_str(&format!(" {number}"));
        }
        if let Some(text) = &self.text {
            name.push_str(&format!(" (line {})", text.line));
        }
        name
    }
}

/// Finds the rules of a map by what identifies them.
#[derive(Debug)]
pub(crate) struct Rules<'m>(BTreeMap<RuleId, RuleView<'m>>);

impl<'m> Rules<'m> {
    /// Those of `map`.
    pub(crate) fn of(map: &'m TopicMap) -> Self {
        Self(map.rules().map(|rule| (rule.id, rule)).collect())
    }

    /// One of them.
    pub(crate) fn report(&self, id: RuleId) -> RuleReport {
        let (kind, number) = match id {
            RuleId::Rule(number) => (RuleKind::Rule, Some(number)),
            // The map itself never says that it is the dead-letter topic.
            RuleId::Fallback | RuleId::DeadLetter => (RuleKind::Fallback, None),
            RuleId::Foreign(number) => (RuleKind::Foreign, Some(number)),
        };
        RuleReport {
            kind,
            number,
            text: self.0.get(&id).map(|rule| RuleText {
                line: rule.line,
                mqtt_topic: rule.mqtt_topic.to_owned(),
                stream: rule.stream.to_owned(),
                topic: rule.topic.to_owned(),
                partition_key: rule.partition_key.map(str::to_owned),
            }),
        }
    }

    /// All `[[rule]]`s in the order of the file.
    pub(crate) fn ids(&self) -> impl Iterator<Item = RuleId> {
        self.0
            .keys()
            .copied()
            .filter(|id| matches!(id, RuleId::Rule(_)))
    }
}

/// How many partitions a topic is taken to have, and who says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct PartitionCount {
    /// How many.
    pub(crate) partitions: u32,
    /// Who says so.
    pub(crate) partitions_from: CountFrom,
}

/// Who says how many partitions there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum CountFrom {
    /// The topic map, for topics that the gateway makes.
    Map,
    /// The option `--partitions`.
    Option,
}

impl PartitionCount {
    /// The option, or else what the map says.
    pub(crate) fn of(option: Option<u32>, plan: &TopicPlan) -> Self {
        match option {
            Some(partitions) => Self {
                partitions,
                partitions_from: CountFrom::Option,
            },
            None => Self {
                partitions: plan.spec.partitions,
                partitions_from: CountFrom::Map,
            },
        }
    }
}

/// Where messages are stored.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct TargetReport {
    /// The Iggy stream.
    pub(crate) stream: String,
    /// The Iggy topic.
    pub(crate) topic: String,
    /// The key; `None` uses all partitions in turn.
    pub(crate) key: Option<String>,
    /// The key's partition, from 0.
    pub(crate) partition: Option<u32>,
    /// Of how many.
    #[serde(flatten)]
    pub(crate) count: PartitionCount,
}

impl TargetReport {
    /// `key`'s place in `target`.
    pub(crate) fn new(target: &Target, key: Option<&PartitionKey>, count: PartitionCount) -> Self {
        Self {
            stream: target.stream.to_string(),
            topic: target.topic.to_string(),
            key: key.map(|key| key.as_str().to_owned()),
            partition: key.map(|key| key.partition(count.partitions)),
            count,
        }
    }
}

/// The map's word for what the server decides.
const SERVER_DEFAULT: &str = "server_default";

/// How a topic is made if it is missing.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct PlanReport {
    /// Whether the gateway makes it.
    pub(crate) auto_create: bool,
    /// With so many partitions.
    pub(crate) partitions: u32,
    /// How long messages are kept, in the words of the map: `12h`, `never`, `server_default`.
    pub(crate) message_expiry: String,
    /// How large it may become, in bytes, or in a word of the map: `unlimited`, `server_default`.
    pub(crate) max_topic_size: Value,
    /// What its confirmations promise.
    pub(crate) durability: Durability,
}

impl PlanReport {
    /// `plan` as it is read.
    pub(crate) fn new(plan: &TopicPlan) -> Self {
        Self {
            auto_create: plan.auto_create,
            partitions: plan.spec.partitions,
            message_expiry: match plan.spec.message_expiry {
                Expiry::ServerDefault => SERVER_DEFAULT.to_owned(),
                Expiry::Never => "never".to_owned(),
                Expiry::After(time) => humantime::format_duration(time).to_string(),
            },
            max_topic_size: match plan.spec.max_topic_size {
                TopicSize::ServerDefault => SERVER_DEFAULT.into(),
                TopicSize::Unlimited => "unlimited".into(),
                TopicSize::Bytes(bytes) => bytes.into(),
            },
            durability: plan.spec.durability,
        }
    }
}
