//! Why a topic is stored where it is: the deciding rule and its groups, and why the other rules do not match.
//!
//! What always holds: the outcome is [`TopicMap::resolve`]'s (M7); what is said of the other rules is true of their
//! patterns, and as precise as their outermost sequence of parts allows. Meant for people, not for every message.

use std::fmt;

use regex_automata::meta::Regex;
use regex_automata::{Anchored, Input, MatchKind};
use regex_syntax::ast::Ast;
use regex_syntax::hir::{Hir, Look};

use super::pattern::{Pattern, parse};
use super::{Refusal, Resolution, RuleId, TopicMap};
use crate::mqtt::TopicName;

/// The longest piece of a topic or pattern that an explanation repeats, in characters.
const MAX_QUOTED: usize = 60;

/// What the map does with one topic, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// What the running gateway does.
    pub outcome: Result<Resolution, Refusal>,
    /// The groups of the deciding rule's pattern, in their order, without the whole topic.
    pub captures: Vec<Capture>,
    /// The rules before the deciding one, or all if none decided.
    pub missed: Vec<Miss>,
    /// The rules after the deciding one that match too, and never get this topic.
    pub also: Vec<RuleId>,
}

/// What a group of a pattern matched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capture {
    /// The group's number.
    pub index: usize,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// What it matched.
    pub text: String,
}

/// A rule that does not match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Miss {
    /// The rule.
    pub rule: RuleId,
    /// Why it does not match.
    pub why: WhyNot,
}

/// Why a pattern does not match a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WhyNot {
    /// The topic begins with `$`, and not every match of the pattern does.
    DollarTopic,
    /// The topic is other than the pattern from here on.
    Differs {
        /// As much of the topic as the pattern takes.
        after: String,
        /// The part of the pattern that comes next.
        wants: String,
        /// The rest of the topic; empty if it ends here.
        found: String,
    },
    /// The pattern ends before the topic does.
    GoesOn {
        /// As much of the topic as the pattern takes.
        after: String,
        /// The rest of the topic.
        found: String,
    },
    /// Nothing more precise can be said.
    DoesNotMatch,
}

impl fmt::Display for WhyNot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DollarTopic => f.write_str(
                "the topic begins with $, and such topics are only for rules whose mqtt_topic begins with \\$",
            ),
            Self::Differs {
                after,
                wants,
                found,
            } => {
                match after.as_str() {
                    "" => f.write_str("at the beginning ")?,
                    after => write!(f, "after {} ", quoted(after, End::Last))?,
                }
                write!(f, "it wants {}, but the topic ", cut(wants, End::First))?;
                match (found.as_str(), after.as_str()) {
                    ("", _) => f.write_str("ends"),
                    (found, "") => write!(f, "begins with {}", quoted(found, End::First)),
                    (found, _) => write!(f, "goes on with {}", quoted(found, End::First)),
                }
            }
            Self::GoesOn { after, found } => write!(
                f,
                "it ends after {}, but the topic goes on with {}",
                quoted(after, End::Last),
                quoted(found, End::First)
            ),
            Self::DoesNotMatch => f.write_str("it does not match the whole topic"),
        }
    }
}

/// Which end of a long text matters.
#[derive(Clone, Copy)]
enum End {
    First,
    Last,
}

fn quoted(text: &str, keep: End) -> String {
    format!("\"{}\"", cut(text, keep))
}

/// `text` without control characters, and shortened.
fn cut(text: &str, keep: End) -> String {
    let length = text.chars().count();
    let shown: String = match keep {
        _ if length <= MAX_QUOTED => text.to_owned(),
        End::First => text.chars().take(MAX_QUOTED).chain(['…']).collect(),
        End::Last => {
            let rest = text.chars().skip(length - MAX_QUOTED);
            std::iter::once('…').chain(rest).collect()
        }
    };
    shown
        .chars()
        .flat_map(|c| match c.is_control() {
            true => c.escape_debug().collect::<Vec<_>>(),
            false => vec![c],
        })
        .collect()
}

/// A rule of the map as the file has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RuleView<'m> {
    /// Which rule.
    pub id: RuleId,
    /// The line of its table, counted from 1.
    pub line: usize,
    /// Its pattern.
    pub mqtt_topic: &'m str,
    /// The template of the stream's name.
    pub stream: &'m str,
    /// The template of the topic's name.
    pub topic: &'m str,
    /// The template of the key.
    pub partition_key: Option<&'m str>,
}

impl TopicMap {
    /// The rules in file order.
    pub fn rules(&self) -> impl Iterator<Item = RuleView<'_>> {
        self.rules.iter().map(|rule| RuleView {
            id: rule.id,
            line: rule.written.line,
            mqtt_topic: &rule.written.mqtt_topic,
            stream: &rule.written.stream,
            topic: &rule.written.topic,
            partition_key: rule.written.partition_key.as_deref(),
        })
    }

    /// What the map does with `topic`, and why.
    pub fn explain(&self, topic: &TopicName) -> Explanation {
        let deciding = self.first(topic);
        let is_for = |pattern: &Pattern| pattern.begins_with_dollar() == topic.is_dollar();
        let before = self
            .rules
            .iter()
            .take_while(|rule| deciding.is_none_or(|deciding| rule.id != deciding.id));
        let missed = before.map(|rule| Miss {
            rule: rule.id,
            why: match topic.is_dollar() && !is_for(&rule.pattern) {
                true => WhyNot::DollarTopic,
                false => why_not(&rule.written.mqtt_topic, topic.as_str()),
            },
        });
        let after = self
            .rules
            .iter()
            .skip_while(|rule| deciding.is_none_or(|deciding| rule.id != deciding.id))
            .skip(1)
            .filter(|rule| is_for(&rule.pattern) && rule.pattern.matches(topic.as_str()));
        Explanation {
            outcome: self.resolve(topic),
            captures: deciding.map_or_else(Vec::new, |rule| {
                rule.pattern
                    .named_captures(topic.as_str())
                    .map(|(index, name, text)| Capture {
                        index,
                        name: name.map(str::to_owned),
                        text: text.to_owned(),
                    })
                    .collect()
            }),
            missed: missed.collect(),
            also: after.map(|rule| rule.id).collect(),
        }
    }
}

/// Why `pattern`, which compiles, does not match `topic`.
fn why_not(pattern: &str, topic: &str) -> WhyNot {
    let Ok((ast, _)) = parse(pattern) else {
        return WhyNot::DoesNotMatch;
    };
    let ends = parts(&ast);
    // If the pattern up to the end of one part matches the beginning of the topic, so does it up to any earlier one.
    let taken = ends.partition_point(|end| longest(&pattern[..*end], topic).is_some());
    let begin = match taken.checked_sub(1).and_then(|last| ends.get(last)) {
        Some(end) => *end,
        None => 0,
    };
    let Some(at) = longest(&pattern[..begin], topic) else {
        return WhyNot::DoesNotMatch;
    };
    let (after, found) = (topic[..at].to_owned(), topic[at..].to_owned());
    match ends.get(taken) {
        Some(end) => WhyNot::Differs {
            after,
            wants: pattern[begin..*end].trim().to_owned(),
            found,
        },
        None if found.is_empty() => WhyNot::DoesNotMatch,
        None => WhyNot::GoesOn { after, found },
    }
}

/// Where in the pattern's text the parts of its outermost sequence end; a run of plain characters is one part.
fn parts(ast: &Ast) -> Vec<usize> {
    let asts = match ast {
        Ast::Concat(concat) => concat.asts.as_slice(),
        other => std::slice::from_ref(other),
    };
    let mut ends: Vec<usize> = Vec::new();
    let mut in_run = false;
    for ast in asts {
        let is_plain = matches!(ast, Ast::Literal(_));
        if in_run && is_plain {
            ends.pop();
        }
        in_run = is_plain;
        ends.push(ast.span().end.offset);
    }
    ends
}

/// How many bytes at the beginning of `topic` the beginning of a pattern takes at most; `None` if it does not match there.
fn longest(pattern: &str, topic: &str) -> Option<usize> {
    let (_, hir) = parse(pattern).ok()?;
    let regex = Regex::builder()
        .configure(Regex::config().match_kind(MatchKind::All))
        .build_from_hir(&Hir::concat(vec![Hir::look(Look::Start), hir]))
        .ok()?;
    let input = Input::new(topic).anchored(Anchored::Yes);
    regex.search_half(&input).map(|found| found.offset())
}
