//! The topic map as a file: TOML to typed values (check C1), nothing decided about patterns and templates yet.
//!
//! What always holds: reading goes on after a problem, so that all of them are reported together; every text remembers
//! its place.

use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use bytesize::ByteSize;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::report::{Located, Problem, Source, nearest};
use crate::log::Durability;

/// The most partitions of one topic (Iggy 0.9).
const MAX_PARTITIONS: u32 = 1000;

const FILE_KEYS: &[&str] = &[
    "default_stream",
    "default_topic",
    "on_unmatched",
    "max_streams",
    "max_topics",
    "auto_create",
    "partitions",
    "message_expiry",
    "max_topic_size",
    "durability",
    "rule",
];
const RULE_KEYS: &[&str] = &[
    "mqtt_topic",
    "stream",
    "topic",
    "partition_key",
    "auto_create",
    "partitions",
    "message_expiry",
    "max_topic_size",
    "durability",
];
/// For an expiry or size that the server decides.
const SERVER_DEFAULT: &str = "server_default";

type Value<'t> = Spanned<DeValue<'t>>;

/// A text and where it stands.
#[derive(Debug)]
pub(super) struct Text {
    /// The text without quotes and escapes.
    pub(super) value: String,
    span: Range<usize>,
    /// Where the first byte of `value` stands, if the file has it byte for byte.
    begin: Option<usize>,
}

impl Text {
    fn new(source: &str, span: Range<usize>, value: &str) -> Self {
        let raw = source.get(span.clone()).unwrap_or_default();
        // One or three quotes, and after three a line break that does not count.
        let begin = [1, 3, 4, 5].into_iter().find(|quotes| {
            let quoted = raw.get(*quotes..).unwrap_or_default();
            quoted.strip_prefix(value).is_some_and(|rest| {
                !rest.is_empty() && rest.bytes().all(|byte| byte == b'\'' || byte == b'"')
            })
        });
        Self {
            value: value.to_owned(),
            begin: begin.map(|quotes| span.start + quotes),
            span,
        }
    }

    /// Where it stands, quotes included.
    pub(super) fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// Where `part` of the text stands; the whole of it if escapes make that unclear.
    pub(super) fn at(&self, part: &Range<usize>) -> Range<usize> {
        match self.begin {
            Some(begin) => begin + part.start..begin + part.end,
            None => self.span(),
        }
    }
}

/// The value of a key that must or may hold a text.
#[derive(Debug, Default)]
pub(super) enum Entry {
    /// The key is not there.
    #[default]
    Missing,
    /// The key is there, but its value is no text; that is reported already.
    Unusable,
    /// A text.
    Text(Text),
}

impl Entry {
    /// The text, if there is one.
    pub(super) fn text(&self) -> Option<&Text> {
        match self {
            Self::Text(text) => Some(text),
            Self::Missing | Self::Unusable => None,
        }
    }

    /// Whether the key is not there at all.
    pub(super) fn is_missing(&self) -> bool {
        matches!(self, Self::Missing)
    }
}

/// Where unmatched topics go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum OnUnmatched {
    /// To the default stream and topic.
    #[default]
    Fallback,
    /// Nowhere.
    Refuse,
}

/// How topics are made, as far as a rule or the file says so.
#[derive(Debug, Default)]
pub(super) struct Settings {
    pub(super) auto_create: Option<bool>,
    pub(super) partitions: Option<u32>,
    /// `Some(None)`: what the server does by default.
    pub(super) message_expiry: Option<Option<Duration>>,
    /// `Some(None)`: what the server does by default.
    pub(super) max_topic_size: Option<Option<u64>>,
    pub(super) durability: Option<Durability>,
}

/// A rule as written.
#[derive(Debug, Default)]
pub(super) struct RuleText {
    /// Where the rule stands.
    pub(super) span: Range<usize>,
    pub(super) mqtt_topic: Entry,
    pub(super) stream: Entry,
    pub(super) topic: Entry,
    pub(super) partition_key: Entry,
    pub(super) settings: Settings,
}

/// The file as written.
#[derive(Debug, Default)]
pub(super) struct MapText {
    pub(super) default_stream: Entry,
    pub(super) default_topic: Entry,
    /// `None` if it is written but means nothing.
    pub(super) on_unmatched: Option<OnUnmatched>,
    pub(super) max_streams: Option<u32>,
    pub(super) max_topics: Option<u32>,
    pub(super) settings: Settings,
    pub(super) rules: Vec<RuleText>,
}

/// Reads `source`; what cannot be read is left out and becomes a problem.
pub(super) fn read(source: &Arc<Source>, problems: &mut Vec<Located<Problem>>) -> MapText {
    let (table, errors) = DeTable::parse_recoverable(&source.text);
    let mut reader = Reader {
        source,
        problems,
        prefix: String::new(),
    };
    for error in &errors {
        let span = error.span().unwrap_or_default();
        let problem = Problem::Syntax(error.message().to_owned());
        reader.problem(span, "", problem);
    }
    if errors.is_empty() {
        reader.file(table.get_ref())
    } else {
        // What was recovered is a guess, and problems in it may be none.
        MapText::default()
    }
}

struct Reader<'a> {
    source: &'a Arc<Source>,
    problems: &'a mut Vec<Located<Problem>>,
    /// Goes before keys in messages: `rule 2 `.
    prefix: String,
}

impl Reader<'_> {
    fn problem(&mut self, span: Range<usize>, key: &str, problem: Problem) {
        let key = format!("{}{key}", self.prefix);
        let located = Located::new(self.source, span, key, problem);
        self.problems.push(located);
    }

    fn file(&mut self, table: &DeTable<'_>) -> MapText {
        let mut map = MapText {
            on_unmatched: Some(OnUnmatched::default()),
            ..MapText::default()
        };
        for (key, value) in table {
            let name: &str = key.get_ref();
            match name {
                "default_stream" => map.default_stream = self.entry(name, value),
                "default_topic" => map.default_topic = self.entry(name, value),
                "on_unmatched" => {
                    let words = [
                        ("fallback", OnUnmatched::Fallback),
                        ("refuse", OnUnmatched::Refuse),
                    ];
                    map.on_unmatched = self.word(name, value, &["fallback", "refuse"], words);
                }
                "max_streams" => map.max_streams = self.number(name, value, u32::MAX),
                "max_topics" => map.max_topics = self.number(name, value, u32::MAX),
                "rule" => map.rules = self.rules(value),
                _ if self.setting(name, value, &mut map.settings) => {}
                _ => self.unknown(key, FILE_KEYS),
            }
        }
        map
    }

    fn rules(&mut self, value: &Value<'_>) -> Vec<RuleText> {
        const EXPECTED: &str = "tables, each under a [[rule]] line";
        let DeValue::Array(rules) = value.get_ref() else {
            self.wrong_type("rule", value, EXPECTED);
            return Vec::new();
        };
        let mut read = Vec::with_capacity(rules.len());
        for (number, rule) in (1..).zip(rules.iter()) {
            self.prefix = format!("rule {number} ");
            read.push(match rule.get_ref() {
                DeValue::Table(table) => self.rule(rule.span(), table),
                _ => {
                    self.prefix.clear();
                    self.wrong_type("rule", rule, EXPECTED);
                    RuleText {
                        mqtt_topic: Entry::Unusable,
                        stream: Entry::Unusable,
                        topic: Entry::Unusable,
                        ..RuleText::default()
                    }
                }
            });
        }
        self.prefix.clear();
        read
    }

    fn rule(&mut self, span: Range<usize>, table: &DeTable<'_>) -> RuleText {
        let mut rule = RuleText {
            span,
            ..RuleText::default()
        };
        for (key, value) in table {
            let name: &str = key.get_ref();
            match name {
                "mqtt_topic" => rule.mqtt_topic = self.entry(name, value),
                "stream" => rule.stream = self.entry(name, value),
                "topic" => rule.topic = self.entry(name, value),
                "partition_key" => rule.partition_key = self.entry(name, value),
                _ if self.setting(name, value, &mut rule.settings) => {}
                _ => self.unknown(key, RULE_KEYS),
            }
        }
        rule
    }

    /// Whether `key` is a setting; if so, it is read.
    fn setting(&mut self, key: &str, value: &Value<'_>, settings: &mut Settings) -> bool {
        match key {
            "auto_create" => match value.get_ref() {
                DeValue::Boolean(yes) => settings.auto_create = Some(*yes),
                _ => self.wrong_type(key, value, "true or false"),
            },
            "partitions" => settings.partitions = self.number(key, value, MAX_PARTITIONS),
            "message_expiry" => settings.message_expiry = self.expiry(key, value),
            "max_topic_size" => settings.max_topic_size = self.size(key, value),
            "durability" => {
                let words = [
                    ("persisted", Durability::Persisted),
                    ("commit", Durability::Commit),
                ];
                settings.durability = self.word(key, value, &["persisted", "commit"], words);
            }
            _ => return false,
        }
        true
    }

    fn unknown(&mut self, key: &Spanned<DeString<'_>>, known: &'static [&'static str]) {
        let name: &str = key.get_ref();
        let nearest = nearest(name, known);
        self.problem(key.span(), name, Problem::UnknownKey { nearest, known });
    }

    fn wrong_type(&mut self, key: &str, value: &Value<'_>, expected: &'static str) {
        let found = match value.get_ref() {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) => "a whole number",
            DeValue::Float(_) => "a fraction",
            DeValue::Boolean(_) => "a truth value",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "an array",
            DeValue::Table(_) => "a table",
        };
        self.problem(value.span(), key, Problem::WrongType { expected, found });
    }

    fn text(&mut self, key: &str, value: &Value<'_>) -> Option<Text> {
        match value.get_ref() {
            DeValue::String(text) => Some(Text::new(&self.source.text, value.span(), text)),
            _ => {
                self.wrong_type(key, value, "a string");
                None
            }
        }
    }

    fn entry(&mut self, key: &str, value: &Value<'_>) -> Entry {
        self.text(key, value).map_or(Entry::Unusable, Entry::Text)
    }

    fn word<T, const N: usize>(
        &mut self,
        key: &str,
        value: &Value<'_>,
        known: &'static [&'static str; N],
        meanings: [(&str, T); N],
    ) -> Option<T> {
        let text = self.text(key, value)?;
        let meaning = meanings.into_iter().find(|(word, _)| *word == text.value);
        if meaning.is_none() {
            let problem = Problem::UnknownWord {
                nearest: nearest(&text.value, known),
                found: text.value,
                known,
            };
            self.problem(value.span(), key, problem);
        }
        meaning.map(|(_, meaning)| meaning)
    }

    /// A number from 1 to `max`.
    fn number(&mut self, key: &str, value: &Value<'_>, max: u32) -> Option<u32> {
        let DeValue::Integer(written) = value.get_ref() else {
            self.wrong_type(key, value, "a whole number");
            return None;
        };
        let number = i64::from_str_radix(written.as_str(), written.radix()).ok();
        let number = number.and_then(|number| u32::try_from(number).ok());
        let number = number.filter(|number| (1..=max).contains(number));
        if number.is_none() {
            let problem = Problem::OutOfRange {
                found: self.source.text[value.span()].to_owned(),
                min: 1,
                max,
            };
            self.problem(value.span(), key, problem);
        }
        number
    }

    fn expiry(&mut self, key: &str, value: &Value<'_>) -> Option<Option<Duration>> {
        let text = self.text(key, value)?;
        if text.value == SERVER_DEFAULT {
            return Some(None);
        }
        let reason = match humantime::parse_duration(&text.value) {
            // Iggy counts in microseconds, in 64 bits whose smallest and largest value mean other things.
            Ok(duration) if duration.as_micros() == 0 => "it is less than a microsecond".to_owned(),
            Ok(duration) if duration.as_micros() >= u128::from(u64::MAX) => {
                "it is too long".to_owned()
            }
            Ok(duration) => return Some(Some(duration)),
            Err(error) => error.to_string(),
        };
        let found = text.value;
        self.problem(value.span(), key, Problem::BadDuration { found, reason });
        None
    }

    fn size(&mut self, key: &str, value: &Value<'_>) -> Option<Option<u64>> {
        let text = match value.get_ref() {
            DeValue::Integer(_) => self.source.text[value.span()].to_owned(),
            _ => self.text(key, value)?.value,
        };
        if text == SERVER_DEFAULT {
            return Some(None);
        }
        let reason = match ByteSize::from_str(&text.replace('_', "")) {
            // Iggy's smallest and largest value mean other things.
            Ok(ByteSize(0)) => "it is nothing".to_owned(),
            Ok(ByteSize(u64::MAX)) => "it is too large".to_owned(),
            Ok(ByteSize(bytes)) => return Some(Some(bytes)),
            Err(error) => error,
        };
        let found = text;
        self.problem(value.span(), key, Problem::BadSize { found, reason });
        None
    }
}
