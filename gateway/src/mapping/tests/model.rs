//! Generated maps with an independent, simple idea of what they mean: patterns are lists of levels, matched by splitting
//! the topic at slashes; templates are lists of parts. No regular expressions here.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::{Refusal, Resolution, RuleId};

/// One level of a pattern. All but `Literal` are groups.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Level {
    Literal(&'static str),
    /// Any text of at least one character.
    Some,
    /// Any text.
    Any,
    /// ASCII digits.
    Digits,
}

/// A part of a template.
#[derive(Debug, Clone)]
pub(super) enum Piece {
    Text(&'static str),
    /// The group with this number, modulo the groups that there are; 0 is the whole topic.
    Group(usize),
}

#[derive(Debug, Clone)]
pub(super) struct ModelRule {
    pub(super) levels: Vec<Level>,
    /// Whether any number of further levels, at least one, may follow; they are the last group.
    pub(super) open: bool,
    pub(super) stream: Vec<Piece>,
    pub(super) topic: Vec<Piece>,
    pub(super) key: Option<Vec<Piece>>,
}

/// A map; `fallback` is `None` if unmatched topics are refused.
#[derive(Debug, Clone)]
pub(super) struct ModelMap {
    pub(super) rules: Vec<ModelRule>,
    pub(super) fallback: Option<(&'static str, &'static str)>,
}

/// What a topic resolves to, without what the model does not know.
pub(super) type Outcome = Result<(RuleId, String, String, Option<String>), &'static str>;

pub(super) fn outcome(result: Result<Resolution, Refusal>) -> Outcome {
    let text = |name: &str| name.to_owned();
    result
        .map(|found| {
            let key = found.key.as_ref().map(|key| text(key.as_str()));
            (
                found.rule,
                text(found.target.stream.as_str()),
                text(found.target.topic.as_str()),
                key,
            )
        })
        .map_err(|refusal| refusal.reason())
}

impl ModelRule {
    /// The groups of a match, the whole topic first.
    pub(super) fn groups(&self, topic: &str) -> Option<Vec<String>> {
        let found: Vec<&str> = topic.split('/').collect();
        let fits = if self.open {
            found.len() > self.levels.len()
        } else {
            found.len() == self.levels.len()
        };
        if !fits {
            return None;
        }
        let mut groups = vec![topic.to_owned()];
        for (level, text) in self.levels.iter().zip(&found) {
            let matches = match level {
                Level::Literal(literal) => text == literal,
                Level::Some => !text.is_empty(),
                Level::Any => true,
                Level::Digits => !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()),
            };
            if !matches {
                return None;
            }
            if !matches!(level, Level::Literal(_)) {
                groups.push((*text).to_owned());
            }
        }
        if self.open {
            groups.push(found[self.levels.len()..].join("/"));
        }
        Some(groups)
    }

    fn group_count(&self) -> usize {
        1 + self
            .levels
            .iter()
            .filter(|level| !matches!(level, Level::Literal(_)))
            .count()
            + usize::from(self.open)
    }

    fn for_dollar(&self) -> bool {
        matches!(self.levels.first(), Some(Level::Literal(literal)) if literal.starts_with('$'))
    }

    fn resolve(&self, id: RuleId, topic: &str) -> Option<Outcome> {
        if self.for_dollar() != topic.starts_with('$') {
            return None;
        }
        let groups = self.groups(topic)?;
        let expand = |pieces: &[Piece]| -> String {
            let piece = |piece: &Piece| match piece {
                Piece::Text(text) => (*text).to_owned(),
                Piece::Group(number) => groups[number % groups.len()].clone(),
            };
            pieces.iter().map(piece).collect()
        };
        let (stream, name) = (expand(&self.stream), expand(&self.topic));
        if stream.len() > 255 || name.len() > 255 {
            return Some(Err("invalid_name"));
        }
        Some(Ok((id, stream, name, self.key.as_deref().map(expand))))
    }

    /// The rule as it is written.
    fn to_toml(&self) -> String {
        let level = |level: &Level| match level {
            Level::Literal(literal) => regex::escape(literal),
            Level::Some => "([^/]+)".to_owned(),
            Level::Any => "([^/]*)".to_owned(),
            Level::Digits => "([0-9]+)".to_owned(),
        };
        let mut pattern = self.levels.iter().map(level).collect::<Vec<_>>().join("/");
        if self.open {
            pattern.push_str("/(.*)");
        }
        let template = |pieces: &[Piece]| -> String {
            let piece = |piece: &Piece| match piece {
                Piece::Text(text) => text.replace('$', "$$"),
                Piece::Group(number) => format!("${{{}}}", number % self.group_count()),
            };
            pieces.iter().map(piece).collect()
        };
        let mut text = format!(
            "[[rule]]\nmqtt_topic = '''\n{pattern}'''\nstream = '''{}'''\ntopic = '''{}'''\n",
            template(&self.stream),
            template(&self.topic)
        );
        if let Some(key) = &self.key {
            text += &format!("partition_key = '''{}'''\n", template(key));
        }
        text
    }
}

impl ModelMap {
    pub(super) fn resolve(&self, topic: &str) -> Outcome {
        let mut rules = (1..).zip(&self.rules);
        let matched = rules.find_map(|(number, rule)| rule.resolve(RuleId::Rule(number), topic));
        matched.unwrap_or_else(|| match self.fallback {
            _ if topic.starts_with('$') => Err("dollar_topic"),
            None => Err("no_rule"),
            Some((stream, name)) => {
                Ok((RuleId::Fallback, stream.to_owned(), name.to_owned(), None))
            }
        })
    }

    pub(super) fn to_toml(&self) -> String {
        let mut text = match self.fallback {
            Some((stream, topic)) => {
                format!("default_stream = '{stream}'\ndefault_topic = '{topic}'\n")
            }
            None => "on_unmatched = 'refuse'\n".to_owned(),
        };
        text.extend(self.rules.iter().map(ModelRule::to_toml));
        text
    }
}

/// Levels that generated patterns and topics share, so that they meet often; some are full of metacharacters.
const LITERALS: &[&str] = &[
    "a", "b", "", "42", "ü", "x.y", "(a|b)*", "[a]", "\\d", "$a", "$", "^a$", "{1}", "🚀 x", "a\nb",
];

fn levels() -> impl Strategy<Value = Vec<Level>> {
    let level = prop_oneof![
        3 => select(LITERALS).prop_map(Level::Literal),
        2 => Just(Level::Some),
        1 => Just(Level::Any),
        1 => Just(Level::Digits),
    ];
    // The pattern of one empty level is empty, and refused.
    vec(level, 1..5).prop_filter("no topic", |levels| *levels != [Level::Literal("")])
}

/// A template that is never empty.
fn template() -> impl Strategy<Value = Vec<Piece>> {
    let piece = prop_oneof![
        select(&["x", "_", "$", "$$", "1", "{1}", "ü", " "][..]).prop_map(Piece::Text),
        (0..5_usize).prop_map(Piece::Group),
    ];
    (select(&["s", "$", "0"][..]), vec(piece, 0..4)).prop_map(|(first, mut pieces)| {
        pieces.insert(0, Piece::Text(first));
        pieces
    })
}

fn rule() -> impl Strategy<Value = ModelRule> {
    (
        levels(),
        any::<bool>(),
        template(),
        template(),
        proptest::option::of(template()),
    )
        .prop_map(|(levels, open, stream, topic, key)| ModelRule {
            levels,
            open,
            stream,
            topic,
            key,
        })
}

/// Maps of any number of rules.
pub(super) fn map() -> impl Strategy<Value = ModelMap> {
    map_of(0)
}

/// Maps that compile, most of them with at least `least` rules: of rules with the same pattern only one stays.
pub(super) fn map_of(least: usize) -> impl Strategy<Value = ModelMap> {
    let fallback = prop_oneof![Just(None), Just(Some(("def", "ault")))];
    (vec(rule(), least..6), fallback).prop_map(|(rules, fallback)| {
        let mut distinct: Vec<ModelRule> = Vec::new();
        for rule in rules {
            if !distinct
                .iter()
                .any(|other| other.levels == rule.levels && other.open == rule.open)
            {
                distinct.push(rule);
            }
        }
        ModelMap {
            rules: distinct,
            fallback,
        }
    })
}

/// Topics that generated patterns may match, and hostile ones.
pub(super) fn name() -> impl Strategy<Value = String> {
    let level = prop_oneof![
        6 => select(LITERALS).prop_map(str::to_owned),
        1 => "[0-9]{1,3}",
        1 => "[^\0+#/]{0,3}",
        1 => (0..300_usize).prop_map(|length| "y".repeat(length)),
    ];
    let joined = vec(level, 1..7).prop_map(|levels| levels.join("/"));
    let planes = (0..17_u32, 0..0x1_0000_u32).prop_filter_map("not a character", |(plane, low)| {
        let character = char::from_u32(plane << 16 | low)?;
        (!"\0+#".contains(character)).then(|| format!("a/{character}"))
    });
    prop_oneof![
        8 => joined,
        1 => "/{1,9}",
        1 => planes,
        1 => r"[a$^*.?()\[\]{}|\\/-]{1,9}",
        1 => select(&["a/", "/", "$", "ü"][..]).prop_map(|unit| unit.repeat(65_535 / unit.len())),
    ]
    .prop_filter("no topic", |name| !name.is_empty())
}
