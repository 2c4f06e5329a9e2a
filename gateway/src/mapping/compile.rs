//! From the file as written to rules that resolve: checks C2 to C6, and the warnings C8.
//!
//! What always holds: a map that compiles has no pattern or template that could fail later for a reason visible here;
//! all problems are found, not the first only.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::file::{Entry, ForeignText, MapText, OnUnmatched, RuleText, Settings};
use super::foreign::{ForeignTemplate, ForeignTopic};
use super::key::PartitionKey;
use super::matcher::{self, Matcher};
use super::pattern::{Facts, Groups, Pattern};
use super::problem::{Problem, Warning};
use super::template::Template;
use super::{
    Bounds, Fallback, KeyTemplate, NameTemplate, Rule, RuleId, TopicMap, TopicPlan, Written,
};
use crate::log::{MAX_HEADER_VALUE_BYTES, MAX_NAME_BYTES, Name, Target, TopicSpec};
use crate::report::{Located, Source, Text};

/// How many streams, and how many topics, dynamic names may make if the file does not say.
const DEFAULT_BOUND: u32 = 1000;
/// The most that all compiled patterns may take, each on its own, in bytes. A usual rule takes 15 KiB, one with `\w` or
/// `\d` 60 KiB.
const PATTERNS_LIMIT: usize = 256 << 20;

/// Compiles what was read from `source`, adding to `problems`; `None` if there are any then.
pub(super) fn compile(
    source: &Arc<Source>,
    map: &MapText,
    problems: &mut Vec<Located<Problem>>,
) -> Option<TopicMap> {
    let mut compiler = Compiler {
        source,
        problems,
        warnings: Vec::new(),
        seen: Seen::default(),
        patterns_bytes: 0,
    };
    let mut rules = Vec::with_capacity(map.rules.len());
    for (number, rule) in &map.rules {
        rules.extend(compiler.rule(*number, rule, &map.settings));
        if compiler.patterns_bytes > PATTERNS_LIMIT {
            let problem = Problem::PatternsTooLarge {
                limit: PATTERNS_LIMIT,
            };
            compiler.problem(rule.span.clone(), format!("rule {number}"), problem);
            return None;
        }
    }
    let fallback = compiler.fallback(map);
    let foreign = compiler.foreign(map);
    compiler.disputed(map, &rules, fallback.as_ref());
    let Compiler {
        mut warnings, seen, ..
    } = compiler;
    warnings.sort_by_key(|warning| warning.span().start);
    if !problems.is_empty() {
        return None;
    }
    let mut matcher = |dollar: bool| {
        let patterns = rules.iter().zip(&seen.facts).enumerate();
        let patterns = patterns
            .filter(|(_, (rule, _))| rule.pattern.begins_with_dollar() == dollar)
            .map(|(at, (_, facts))| (at, facts.whole_topic()))
            .collect();
        Matcher::new(patterns)
            .map_err(|_: matcher::TooLarge| {
                let problem = Problem::PatternsTooLarge {
                    limit: matcher::SIZE_LIMIT,
                };
                problems.push(Located::new(source, 0..0, "rule".to_owned(), problem));
            })
            .ok()
    };
    let (dollar, ordinary) = (matcher(true)?, matcher(false)?);
    Some(TopicMap {
        text: blake3::hash(source.text.as_bytes()),
        rules,
        dollar,
        ordinary,
        foreign,
        fallback,
        bounds: Bounds {
            max_streams: map.max_streams.unwrap_or(DEFAULT_BOUND),
            max_topics: map.max_topics.unwrap_or(DEFAULT_BOUND),
        },
        warnings,
    })
}

struct Compiler<'a> {
    source: &'a Arc<Source>,
    problems: &'a mut Vec<Located<Problem>>,
    warnings: Vec<Located<Warning>>,
    seen: Seen,
    /// What the patterns so far take.
    patterns_bytes: usize,
}

/// The patterns so far, for finding rules that are never reached.
#[derive(Default)]
struct Seen {
    /// In the order of the rules.
    facts: Vec<Facts>,
    /// Fingerprint to places in `facts`, with the numbers of their rules.
    by_form: HashMap<u64, Vec<(usize, usize)>>,
    /// The first rule that takes every topic without a `$` at its beginning.
    catch_all: Option<usize>,
}

impl Seen {
    /// Why the rule with that number is never reached, if it is not.
    fn add(&mut self, number: usize, begins_with_dollar: bool, facts: Facts) -> Option<Problem> {
        let alike = self.by_form.entry(facts.fingerprint()).or_default();
        let same = alike
            .iter()
            .find(|(at, _)| {
                self.facts
                    .get(*at)
                    .is_some_and(|seen| seen.same_form(&facts))
            })
            .map(|(_, earlier)| Problem::SameAsEarlier { earlier: *earlier });
        let shadowed = self
            .catch_all
            .filter(|_| !begins_with_dollar)
            .map(|earlier| Problem::AfterCatchAll { earlier });
        alike.push((self.facts.len(), number));
        if self.catch_all.is_none() && facts.is_catch_all() {
            self.catch_all = Some(number);
        }
        self.facts.push(facts);
        same.or(shadowed)
    }
}

impl Compiler<'_> {
    fn problem(&mut self, span: Range<usize>, key: String, problem: Problem) {
        self.problems
            .push(Located::new(self.source, span, key, problem));
    }

    fn warning(&mut self, span: Range<usize>, key: String, warning: Warning) {
        self.warnings
            .push(Located::new(self.source, span, key, warning));
    }

    fn rule(&mut self, number: usize, text: &RuleText, defaults: &Settings) -> Option<Rule> {
        let key = |key: &str| format!("rule {number} {key}");
        let needed = [
            ("mqtt_topic", &text.mqtt_topic),
            ("stream", &text.stream),
            ("topic", &text.topic),
        ];
        for (needed, entry) in needed {
            if entry.is_missing() {
                let problem = Problem::MissingKey { key: needed };
                self.problem(text.span.clone(), key(needed), problem);
            }
        }
        // Without a pattern nothing can be said about references to its groups.
        let (pattern, groups) = self.pattern(number, text.mqtt_topic.text()?)?;
        let stream = self.name(key("stream"), text.stream.text(), Some(&groups));
        let topic = self.name(key("topic"), text.topic.text(), Some(&groups));
        let partition_key = match &text.partition_key {
            Entry::Missing => None,
            entry => Some(self.key(key("partition_key"), entry.text()?, &groups)?),
        };
        let plan = plan(&text.settings, defaults);
        if partition_key.is_none() && plan.spec.partitions > 1 {
            let partitions = plan.spec.partitions;
            self.warning(
                text.span.clone(),
                format!("rule {number}"),
                Warning::Balanced { partitions },
            );
        }
        let written = |entry: &Entry| entry.text().map(|text| text.value.clone());
        Some(Rule {
            id: RuleId::Rule(number),
            written: Written {
                line: self.source.line(text.span.start),
                mqtt_topic: written(&text.mqtt_topic)?,
                stream: written(&text.stream)?,
                topic: written(&text.topic)?,
                partition_key: written(&text.partition_key),
            },
            pattern,
            stream: stream?,
            topic: topic?,
            key: partition_key,
            plan,
        })
    }

    fn pattern(&mut self, number: usize, text: &Text) -> Option<(Pattern, Arc<Groups>)> {
        let key = format!("rule {number} mqtt_topic");
        let (pattern, facts) = match Pattern::compile(&text.value) {
            Ok(compiled) => compiled,
            Err((part, problem)) => {
                self.problem(text.at(&part), key, problem);
                return None;
            }
        };
        for (part, warning) in &facts.warnings {
            self.warning(text.at(part), key.clone(), warning.clone());
        }
        let groups = Arc::clone(&facts.groups);
        self.patterns_bytes += pattern.size();
        if let Some(problem) = self.seen.add(number, pattern.begins_with_dollar(), facts) {
            self.problem(text.span(), key, problem);
        }
        Some((pattern, groups))
    }

    fn template(&mut self, key: &str, text: &Text, groups: Option<&Groups>) -> Option<Template> {
        match Template::bind(&text.value, groups) {
            Ok(template) => Some(template),
            Err(found) => {
                for (part, problem) in found {
                    self.problem(text.at(&part), key.to_owned(), problem);
                }
                None
            }
        }
    }

    fn name(
        &mut self,
        key: String,
        text: Option<&Text>,
        groups: Option<&Groups>,
    ) -> Option<NameTemplate> {
        let text = text?;
        let template = self.template(&key, text, groups)?;
        let at_least = template.minimum();
        let constant = template.constant().map(str::to_owned);
        let problem = match (constant, at_least) {
            (Some(_), 0) => Problem::EmptyName,
            (None, 0) => Problem::MayBeEmpty,
            (_, at_least) if at_least > MAX_NAME_BYTES => Problem::NameTooLong { at_least },
            (None, _) => return Some(NameTemplate::Dynamic(template)),
            (Some(constant), at_least) => match Name::new(&constant) {
                Some(name) => return Some(NameTemplate::Constant(name)),
                None => Problem::NameTooLong { at_least },
            },
        };
        self.problem(text.span(), key, problem);
        None
    }

    fn key(&mut self, key: String, text: &Text, groups: &Groups) -> Option<KeyTemplate> {
        let template = self.template(&key, text, Some(groups))?;
        match template.constant() {
            None => Some(KeyTemplate::Dynamic(template)),
            Some("") => {
                self.problem(text.span(), key, Problem::EmptyKey);
                None
            }
            Some(constant) => Some(KeyTemplate::Constant(PartitionKey::new(constant))),
        }
    }

    fn fallback(&mut self, map: &MapText) -> Option<Fallback> {
        let mut name = |key: &'static str, entry: &Entry| {
            let text = entry.text();
            match map.on_unmatched {
                Some(OnUnmatched::Fallback) if entry.is_missing() => {
                    self.problem(0..0, key.to_owned(), Problem::MissingDefault { key });
                }
                Some(OnUnmatched::Refuse) => {
                    if let Some(text) = text {
                        self.warning(text.span(), key.to_owned(), Warning::UnusedDefault);
                    }
                }
                _ => {}
            }
            match self.name(key.to_owned(), text, None)? {
                NameTemplate::Constant(name) => Some((name, text?.span())),
                // There are no groups to refer to.
                NameTemplate::Dynamic(_) => None,
            }
        };
        let stream = name("default_stream", &map.default_stream);
        let topic = name("default_topic", &map.default_topic);
        if map.on_unmatched != Some(OnUnmatched::Fallback) {
            return None;
        }
        let ((stream, _), (topic, span)) = (stream?, topic?);
        let plan = plan(&Settings::default(), &map.settings);
        let partitions = plan.spec.partitions;
        if partitions > 1 {
            let key = "default_topic".to_owned();
            self.warning(span, key, Warning::Balanced { partitions });
        }
        Some(Fallback {
            target: Target { stream, topic },
            plan,
        })
    }

    fn foreign(&mut self, map: &MapText) -> Vec<Arc<ForeignTopic>> {
        let mut topics: Vec<Arc<ForeignTopic>> = Vec::with_capacity(map.foreign.len());
        let mut places: HashMap<Target, usize> = HashMap::new();
        for (number, text) in &map.foreign {
            let Some(topic) = self.foreign_topic(*number, text) else {
                continue;
            };
            if let Some(earlier) = places.insert(topic.target.clone(), *number) {
                let problem = Problem::SameForeign { earlier };
                self.problem(text.span.clone(), format!("foreign {number}"), problem);
            }
            topics.push(Arc::new(topic));
        }
        topics
    }

    fn foreign_topic(&mut self, number: usize, text: &ForeignText) -> Option<ForeignTopic> {
        let key = |key: &str| format!("foreign {number} {key}");
        let needed = [
            ("stream", &text.stream),
            ("topic", &text.topic),
            ("mqtt_topic", &text.mqtt_topic),
        ];
        for (needed, entry) in needed {
            if entry.is_missing() {
                let problem = Problem::MissingForeignKey { key: needed };
                self.problem(text.span.clone(), key(needed), problem);
            }
        }
        let stream = self.name(key("stream"), text.stream.text(), None);
        let topic = self.name(key("topic"), text.topic.text(), None);
        let constant = |name| match name {
            Some(NameTemplate::Constant(name)) => Some(name),
            // Without groups there is nothing to refer to.
            Some(NameTemplate::Dynamic(_)) | None => None,
        };
        let key_header = match &text.key_header {
            Entry::Text(header) if !(1..=MAX_HEADER_VALUE_BYTES).contains(&header.value.len()) => {
                let problem = Problem::BadHeaderName {
                    bytes: header.value.len(),
                };
                self.problem(header.span(), key("key_header"), problem);
                return None;
            }
            Entry::Text(header) => Some(header),
            Entry::Missing => None,
            Entry::Unusable => return None,
        };
        let target = Target {
            stream: constant(stream)?,
            topic: constant(topic)?,
        };
        let written = text.mqtt_topic.text()?;
        let template = match ForeignTemplate::bind(&written.value, &target) {
            Ok(template) => template,
            Err(found) => {
                for (part, problem) in found {
                    let place = match problem {
                        Problem::IllegalForeignTopic(_) => written.span(),
                        _ => written.at(&part),
                    };
                    self.problem(place, key("mqtt_topic"), problem);
                }
                return None;
            }
        };
        match key_header {
            None if template.uses_key => {
                self.problem(written.span(), key("mqtt_topic"), Problem::NoKeyHeader);
            }
            Some(header) if !template.uses_key => {
                self.warning(header.span(), key("key_header"), Warning::UnusedKeyHeader);
            }
            _ => {}
        }
        let key_header = key_header.map(|header| header.value.as_str().into());
        let id = RuleId::Foreign(number);
        Some(ForeignTopic::new(id, target, key_header, template))
    }

    /// Warns of constant targets that two rules would make differently.
    fn disputed(&mut self, map: &MapText, rules: &[Rule], fallback: Option<&Fallback>) {
        let mut plans = HashMap::new();
        for (id, target, plan) in super::constant_targets(rules, fallback) {
            let (earlier, earlier_plan) = plans
                .entry(target.clone())
                .or_insert_with(|| (id, plan.clone()));
            if *earlier_plan != plan {
                let (span, key) = match id {
                    RuleId::Rule(number) => {
                        let rule = map.rules.iter().find(|(other, _)| *other == number);
                        let span = rule.map(|(_, rule)| rule.span.clone());
                        (span.unwrap_or_default(), id.to_string())
                    }
                    RuleId::Fallback | RuleId::DeadLetter | RuleId::Foreign(_) => {
                        let span = map.default_topic.text().map(Text::span);
                        (span.unwrap_or_default(), "default_topic".to_owned())
                    }
                };
                let earlier = *earlier;
                self.warning(span, key, Warning::DisputedTarget { earlier, target });
            }
        }
    }
}

/// What a rule says, else what the file says, else what is built in.
fn plan(rule: &Settings, file: &Settings) -> TopicPlan {
    let built_in = TopicSpec::default();
    TopicPlan {
        auto_create: rule.auto_create.or(file.auto_create).unwrap_or(true),
        spec: TopicSpec {
            partitions: rule
                .partitions
                .or(file.partitions)
                .unwrap_or(built_in.partitions),
            durability: rule
                .durability
                .or(file.durability)
                .unwrap_or(built_in.durability),
            message_expiry: rule
                .message_expiry
                .or(file.message_expiry)
                .unwrap_or(built_in.message_expiry),
            max_topic_size: rule
                .max_topic_size
                .or(file.max_topic_size)
                .unwrap_or(built_in.max_topic_size),
        },
    }
}
