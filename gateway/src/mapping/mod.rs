//! The topic map: from an MQTT topic to the Iggy stream, topic and partition key where its messages are stored, and the
//! envelope in which they are stored.
//!
//! What always holds: compiling reports everything that is wrong at once, or gives a [`TopicMap`] that never changes;
//! [`TopicMap::resolve`] is a pure function of map and topic, gives exactly one resolution or one named refusal for every
//! topic, and takes time linear in the topic. The first rule in file order that matches the whole topic wins. What is
//! published to a topic is stored where [`TopicMap::reads`] looks for it (M4). Whether a target exists, and how many a
//! dynamic name may make ([`Bounds`]), is for others to see to.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use regex_automata::util::captures::Captures;

use crate::log::{Durability, Expiry, MAX_NAME_BYTES, Name, Target, TopicSize, TopicSpec};
use crate::mqtt::TopicName;

mod cache;
mod compile;
pub mod envelope;
mod explain;
mod file;
mod foreign;
mod key;
mod live;
mod load;
mod matcher;
mod one_target;
mod pattern;
mod problem;
mod template;

#[cfg(test)]
mod tests;

pub use cache::{Destination, Placement, Resolver};
pub use explain::{Capture, Explanation, Miss, RuleView, WhyNot};
pub use foreign::{ForeignError, ForeignTopic};
pub use key::{KeyHash, PartitionKey};
pub use live::{Change, InUse, LiveMap, Loaded};
pub use load::{LoadError, MAX_FILE_BYTES, load};
pub use one_target::{NotOneTarget, Unfit};
pub use problem::{Problem, Warning};

pub use crate::report::{Located, Source, render};

/// All that is wrong with a topic map.
pub type MapReport = crate::report::Report<Problem>;

use matcher::Matcher;
use pattern::Pattern;
use template::Template;

/// A compiled topic map.
#[derive(Debug)]
pub struct TopicMap {
    /// What it was compiled from.
    text: blake3::Hash,
    rules: Vec<Rule>,
    /// Of the rules for topics that begin with `$`, and of all others.
    dollar: Matcher,
    ordinary: Matcher,
    /// `None` if unmatched topics are refused.
    fallback: Option<Fallback>,
    foreign: Vec<Arc<ForeignTopic>>,
    bounds: Bounds,
    warnings: Vec<Located<Warning>>,
}

/// Which part of the map decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RuleId {
    /// The rule with this number in the file, counted from 1.
    Rule(usize),
    /// `default_stream` and `default_topic`.
    Fallback,
    /// Not the map: the topic for messages that cannot be stored where they should.
    DeadLetter,
    /// The `[[foreign]]` table with this number in the file, counted from 1.
    Foreign(usize),
}

impl fmt::Display for RuleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule(number) => write!(f, "rule {number}"),
            Self::Fallback => f.write_str("the fallback"),
            Self::DeadLetter => f.write_str("the dead-letter topic"),
            Self::Foreign(number) => write!(f, "foreign {number}"),
        }
    }
}

/// How the Iggy topic of a resolution is made if it is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicPlan {
    /// Whether the gateway makes it.
    pub auto_create: bool,
    /// What it is like then. The durability is also what a message's acknowledgement promises.
    pub spec: TopicSpec,
}

/// Topics of other producers are theirs to make.
const FOREIGN_PLAN: TopicPlan = TopicPlan {
    auto_create: false,
    spec: TopicSpec {
        partitions: 1,
        durability: Durability::Commit,
        message_expiry: Expiry::ServerDefault,
        max_topic_size: TopicSize::ServerDefault,
    },
};

/// How many streams and topics dynamic names may make; at the bound a publish is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Streams with names that depend on the topic.
    pub max_streams: u32,
    /// Topics with names that depend on the topic, or in such streams.
    pub max_topics: u32,
}

/// Where the messages of one MQTT topic are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolution {
    /// What decided.
    pub rule: RuleId,
    /// The Iggy stream and topic.
    pub target: Target,
    /// What the partition is computed from; `None` uses all partitions in turn.
    pub key: Option<PartitionKey>,
    /// How the Iggy topic is made.
    pub plan: TopicPlan,
}

/// Where a subscriber to one MQTT topic reads, as far as the map knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read {
    /// What says so.
    pub rule: RuleId,
    /// The Iggy stream and topic.
    pub target: Target,
    /// How the Iggy topic is made.
    pub plan: TopicPlan,
    /// Which of its partitions.
    pub partitions: Partitions,
}

/// Some partitions of a topic, before it is known how many there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Partitions {
    /// All of them.
    All,
    /// The one that a key leads to.
    OfKey(PartitionKey),
    /// The one with this number, if there is one.
    One(u32),
}

impl Partitions {
    /// Which they are among `count`.
    pub fn of(&self, count: u32) -> Range<u32> {
        let one = |number| {
            if number < count {
                number..number + 1
            } else {
                0..0
            }
        };
        match self {
            Self::All => 0..count,
            Self::OfKey(key) => one(key.partition(count)),
            Self::One(number) => one(*number),
        }
    }
}

/// Why the messages of one MQTT topic cannot be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No rule matches, and the map refuses such topics.
    #[error(
        "no rule of the topic map matches, and on_unmatched = \"refuse\"; add a rule, or set on_unmatched = \"fallback\""
    )]
    NoRule,
    /// The topic begins with `$`, and no rule is for it.
    #[error(
        "a topic that begins with $ is stored only by a rule whose mqtt_topic begins with \\$, and none matches; add one"
    )]
    DollarTopic,
    /// The rule makes a name that Iggy does not allow.
    #[error(
        "{rule} makes a {part} name of {bytes} bytes, but Iggy names have 1 to {MAX_NAME_BYTES}; let the rule take a shorter part of the topic"
    )]
    InvalidName {
        /// The rule.
        rule: RuleId,
        /// Which name.
        part: NamePart,
        /// How long the name is.
        bytes: usize,
    },
}

impl Refusal {
    /// A short name that stays the same, for counters and for headers.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoRule => "no_rule",
            Self::DollarTopic => "dollar_topic",
            Self::InvalidName { .. } => "invalid_name",
        }
    }
}

/// Which name of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamePart {
    /// The stream's.
    Stream,
    /// The topic's.
    Topic,
}

impl fmt::Display for NamePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stream => "stream",
            Self::Topic => "topic",
        })
    }
}

#[derive(Debug)]
struct Rule {
    id: RuleId,
    written: Written,
    pattern: Pattern,
    stream: NameTemplate,
    topic: NameTemplate,
    key: Option<KeyTemplate>,
    plan: TopicPlan,
}

/// A rule as the file has it, for explanations.
#[derive(Debug)]
struct Written {
    line: usize,
    mqtt_topic: String,
    stream: String,
    topic: String,
    partition_key: Option<String>,
}

#[derive(Debug)]
struct Fallback {
    target: Target,
    plan: TopicPlan,
}

#[derive(Debug)]
enum NameTemplate {
    Constant(Name),
    Dynamic(Template),
}

#[derive(Debug)]
enum KeyTemplate {
    Constant(PartitionKey),
    Dynamic(Template),
}

impl TopicMap {
    /// Compiles the topic map `text`; `file` is its name in messages.
    ///
    /// # Errors
    /// Everything that is wrong with it, at once.
    pub fn compile(file: &str, text: &str) -> Result<Self, MapReport> {
        let source = Arc::new(Source {
            file: file.to_owned(),
            text: text.to_owned(),
        });
        let mut problems = Vec::new();
        let map = file::read(&source, &mut problems);
        if problems.iter().any(|problem| {
            matches!(
                problem.what(),
                Problem::Syntax(_) | Problem::BrokenEscape(_)
            )
        }) {
            return Err(MapReport::new(problems));
        }
        compile::compile(&source, &map, &mut problems).ok_or_else(|| MapReport::new(problems))
    }

    /// Where messages of `topic` are stored.
    ///
    /// # Errors
    /// Why they cannot be stored.
    pub fn resolve(&self, topic: &TopicName) -> Result<Resolution, Refusal> {
        if let Some(rule) = self.first(topic)
            && let Some(outcome) = rule.resolve(topic.as_str())
        {
            return outcome;
        }
        match &self.fallback {
            _ if topic.is_dollar() => Err(Refusal::DollarTopic),
            None => Err(Refusal::NoRule),
            Some(fallback) => Ok(Resolution {
                rule: RuleId::Fallback,
                target: fallback.target.clone(),
                key: None,
                plan: fallback.plan.clone(),
            }),
        }
    }

    /// The rule for `topic`.
    fn first(&self, topic: &TopicName) -> Option<&Rule> {
        let matcher = match topic.is_dollar() {
            true => &self.dollar,
            false => &self.ordinary,
        };
        self.rules.get(matcher.first(topic.as_str())?)
    }

    /// Where a subscriber to `topic` reads: where messages of the topic are stored, and the topics of other producers
    /// that may hold records of it.
    ///
    /// # Errors
    /// Why messages of the topic cannot be stored, if other producers have none either.
    pub fn reads(&self, topic: &TopicName) -> Result<Vec<Read>, Refusal> {
        let foreign = self.foreign.iter().filter_map(|foreign| {
            Some(Read {
                rule: foreign.id,
                target: foreign.target.clone(),
                plan: FOREIGN_PLAN,
                partitions: foreign.partitions_of(topic)?,
            })
        });
        match self.resolve(topic) {
            Ok(resolution) => {
                let stored = Read {
                    rule: resolution.rule,
                    target: resolution.target,
                    plan: resolution.plan,
                    partitions: resolution.key.map_or(Partitions::All, Partitions::OfKey),
                };
                Ok(std::iter::once(stored).chain(foreign).collect())
            }
            Err(refusal) => {
                let foreign: Vec<Read> = foreign.collect();
                match foreign.is_empty() {
                    true => Err(refusal),
                    false => Ok(foreign),
                }
            }
        }
    }

    /// What the map says of records of `target` that name no MQTT topic.
    pub fn foreign(&self, target: &Target) -> Option<&Arc<ForeignTopic>> {
        self.foreign
            .iter()
            .find(|foreign| foreign.target == *target)
    }

    /// Whether both were compiled from the same text, and so say the same of everything.
    pub fn is_same(&self, other: &Self) -> bool {
        self.text == other.text
    }

    /// What is doubtful in the map, in the order of the file.
    pub fn warnings(&self) -> &[Located<Warning>] {
        &self.warnings
    }

    /// The targets that are known before the first message: those of all rules whose stream and topic are constant, in
    /// file order, of the fallback, and of other producers.
    pub fn constant_targets(&self) -> impl Iterator<Item = (RuleId, Target, TopicPlan)> {
        let foreign = self
            .foreign
            .iter()
            .map(|foreign| (foreign.id, foreign.target.clone(), FOREIGN_PLAN));
        constant_targets(&self.rules, self.fallback.as_ref()).chain(foreign)
    }

    /// How many streams and topics dynamic names may make.
    pub fn bounds(&self) -> Bounds {
        self.bounds
    }
}

fn constant_targets<'a>(
    rules: &'a [Rule],
    fallback: Option<&'a Fallback>,
) -> impl Iterator<Item = (RuleId, Target, TopicPlan)> + use<'a> {
    let of_rules = rules
        .iter()
        .filter_map(|rule| match (&rule.stream, &rule.topic) {
            (NameTemplate::Constant(stream), NameTemplate::Constant(topic)) => {
                let (stream, topic) = (stream.clone(), topic.clone());
                Some((rule.id, Target { stream, topic }, rule.plan.clone()))
            }
            _ => None,
        });
    let of_fallback = fallback.into_iter().map(|fallback| {
        (
            RuleId::Fallback,
            fallback.target.clone(),
            fallback.plan.clone(),
        )
    });
    of_rules.chain(of_fallback)
}

impl Rule {
    /// The pattern must match `topic`. `None` if it does not and groups are asked for.
    fn resolve(&self, topic: &str) -> Option<Result<Resolution, Refusal>> {
        let (stream, name, key) = match (&self.stream, &self.topic, &self.key) {
            (NameTemplate::Constant(stream), NameTemplate::Constant(name), None) => {
                (Ok(stream.clone()), Ok(name.clone()), None)
            }
            (stream, name, key) => {
                let captures = self.pattern.captures(topic)?;
                let key = key.as_ref().map(|key| match key {
                    KeyTemplate::Constant(key) => key.clone(),
                    KeyTemplate::Dynamic(template) => {
                        PartitionKey::new(template.expand(topic, &captures))
                    }
                });
                (
                    self.name(NamePart::Stream, stream, topic, &captures),
                    self.name(NamePart::Topic, name, topic, &captures),
                    key,
                )
            }
        };
        Some(stream.and_then(|stream| {
            Ok(Resolution {
                rule: self.id,
                target: Target {
                    stream,
                    topic: name?,
                },
                key,
                plan: self.plan.clone(),
            })
        }))
    }

    fn name(
        &self,
        part: NamePart,
        template: &NameTemplate,
        topic: &str,
        captures: &Captures,
    ) -> Result<Name, Refusal> {
        let template = match template {
            NameTemplate::Constant(name) => return Ok(name.clone()),
            NameTemplate::Dynamic(template) => template,
        };
        let bytes = template.length(topic, captures);
        let refusal = Refusal::InvalidName {
            rule: self.id,
            part,
            bytes,
        };
        if bytes > MAX_NAME_BYTES {
            return Err(refusal);
        }
        Name::new(&template.expand(topic, captures)).ok_or(refusal)
    }
}
