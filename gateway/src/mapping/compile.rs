//! From the file as written to rules that resolve: checks C2 to C6, and the warnings C8.
//!
//! What always holds: a map that compiles has no pattern or template that could fail later for a reason visible here;
//! all problems are found, not the first only.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::file::{Entry, MapText, OnUnmatched, RuleText, Settings, Text};
use super::key::PartitionKey;
use super::pattern::{Facts, Groups, Pattern};
use super::report::{Located, Problem, Source, Warning};
use super::template::Template;
use super::{Bounds, Fallback, KeyTemplate, NameTemplate, Rule, RuleId, TopicMap, TopicPlan};
use crate::log::{MAX_NAME_BYTES, Name, TopicSpec};

/// How many streams, and how many topics, dynamic names may make if the file does not say.
const DEFAULT_BOUND: u32 = 1000;

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
        seen: Vec::new(),
    };
    let mut rules = Vec::with_capacity(map.rules.len());
    for (number, rule) in (1..).zip(&map.rules) {
        rules.extend(compiler.rule(number, rule, &map.settings));
    }
    let fallback = compiler.fallback(map);
    compiler.disputed(map, &rules, fallback.as_ref());
    let Compiler { mut warnings, .. } = compiler;
    warnings.sort_by_key(|warning| warning.span().start);
    problems.is_empty().then(|| TopicMap {
        rules,
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
    /// The patterns so far, with their rules' numbers.
    seen: Vec<(usize, Pattern, Facts)>,
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
        Some(Rule {
            id: RuleId::Rule(number),
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
        let unreachable = self.seen.iter().find_map(|(earlier, before, seen)| {
            let earlier = *earlier;
            if seen.same_form(&facts) {
                Some(Problem::SameAsEarlier { earlier })
            } else if seen.is_catch_all()
                && !before.begins_with_dollar()
                && !pattern.begins_with_dollar()
            {
                Some(Problem::AfterCatchAll { earlier })
            } else {
                None
            }
        });
        if let Some(problem) = unreachable {
            self.problem(text.span(), key, problem);
        }
        let groups = Arc::clone(&facts.groups);
        self.seen.push((number, pattern.clone(), facts));
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
            target: crate::log::Target { stream, topic },
            plan,
        })
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
                        let rule = number.checked_sub(1).and_then(|at| map.rules.get(at));
                        let span = rule.map(|rule| rule.span.clone());
                        (span.unwrap_or_default(), id.to_string())
                    }
                    RuleId::Fallback => {
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
