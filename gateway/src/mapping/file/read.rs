//! Reading the file: TOML to typed values (check C1).
//!
//! What always holds: reading goes on after a problem, so that all of them are reported together; what cannot be read is
//! left out, and what is left out is reported.

use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;

use bytesize::ByteSize;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::super::problem::Problem;
use super::{Entry, ForeignText, MapText, OnUnmatched, RuleText, Settings};
use crate::log::{Durability, Expiry, MAX_PARTITIONS, TopicSize};
use crate::report::{Located, Source, Text, nearest};

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
    "foreign",
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
const FOREIGN_KEYS: &[&str] = &["stream", "topic", "mqtt_topic", "key_header"];
/// The most `[[rule]]` tables. A map that needs more wants captures in its templates; the check for rules that are never
/// reached and the compiled patterns grow with it.
pub(in super::super) const MAX_RULES: usize = 10_000;
/// The most `[[foreign]]` tables: each topic of other producers is looked at for each SUBSCRIBE.
pub(in super::super) const MAX_FOREIGN: usize = 1_000;
/// For an expiry or size that the server decides.
const SERVER_DEFAULT: &str = "server_default";

type Value<'t> = Spanned<DeValue<'t>>;

/// Reads `source`; what cannot be read is left out and becomes a problem.
pub(in super::super) fn read(
    source: &Arc<Source>,
    problems: &mut Vec<Located<Problem>>,
) -> MapText {
    let (table, errors) = DeTable::parse_recoverable(&source.text);
    let mut reader = Reader {
        source,
        problems,
        prefix: String::new(),
    };
    for error in &errors {
        let span = error.span().unwrap_or_default();
        let message = error.message().to_owned();
        let problem = match message.contains("escape") {
            true => Problem::BrokenEscape(message),
            false => Problem::Syntax(message),
        };
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
                "rule" => map.rules = self.tables("rule", value, MAX_RULES, Self::rule),
                "foreign" => {
                    map.foreign = self.tables("foreign", value, MAX_FOREIGN, Self::foreign);
                }
                _ if self.setting(name, value, &mut map.settings) => {}
                _ => self.unknown(key, FILE_KEYS),
            }
        }
        map
    }

    /// The tables under `[[name]]` lines. One that is no table is reported and left out; what follows keeps its number.
    fn tables<T>(
        &mut self,
        name: &'static str,
        value: &Value<'_>,
        max: usize,
        one: impl Fn(&mut Self, Range<usize>, &DeTable<'_>) -> T,
    ) -> Vec<(usize, T)> {
        let expected = match name {
            "rule" => "tables, each under a [[rule]] line",
            _ => "tables, each under a [[foreign]] line",
        };
        let DeValue::Array(tables) = value.get_ref() else {
            self.wrong_type(name, value, expected);
            return Vec::new();
        };
        if let Some(beyond) = tables.get(max) {
            let count = tables.len();
            self.problem(beyond.span(), name, Problem::TooMany { name, count, max });
            return Vec::new();
        }
        let mut read = Vec::with_capacity(tables.len());
        for (number, table) in (1..).zip(tables.iter()) {
            match table.get_ref() {
                DeValue::Table(keys) => {
                    self.prefix = format!("{name} {number} ");
                    read.push((number, one(self, table.span(), keys)));
                    self.prefix.clear();
                }
                _ => self.wrong_type(name, table, expected),
            }
        }
        read
    }

    fn foreign(&mut self, span: Range<usize>, table: &DeTable<'_>) -> ForeignText {
        let mut foreign = ForeignText {
            span,
            ..ForeignText::default()
        };
        for (key, value) in table {
            let name: &str = key.get_ref();
            match name {
                "stream" => foreign.stream = self.entry(name, value),
                "topic" => foreign.topic = self.entry(name, value),
                "mqtt_topic" => foreign.mqtt_topic = self.entry(name, value),
                "key_header" => foreign.key_header = self.entry(name, value),
                _ => self.unknown(key, FOREIGN_KEYS),
            }
        }
        foreign
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

    fn expiry(&mut self, key: &str, value: &Value<'_>) -> Option<Expiry> {
        let text = self.text(key, value)?;
        match text.value.as_str() {
            SERVER_DEFAULT => return Some(Expiry::ServerDefault),
            "never" => return Some(Expiry::Never),
            _ => {}
        }
        let reason = match humantime::parse_duration(&text.value) {
            // Iggy counts in microseconds, in 64 bits whose smallest and largest value mean other things.
            Ok(duration) if duration.as_micros() == 0 => "it is less than a microsecond".to_owned(),
            Ok(duration) if duration.as_micros() >= u128::from(u64::MAX) => {
                "it is too long".to_owned()
            }
            Ok(duration) => return Some(Expiry::After(duration)),
            Err(error) => error.to_string(),
        };
        let found = text.value;
        self.problem(value.span(), key, Problem::BadDuration { found, reason });
        None
    }

    fn size(&mut self, key: &str, value: &Value<'_>) -> Option<TopicSize> {
        let text = match value.get_ref() {
            DeValue::Integer(_) => self.source.text[value.span()].to_owned(),
            _ => self.text(key, value)?.value,
        };
        match text.as_str() {
            SERVER_DEFAULT => return Some(TopicSize::ServerDefault),
            "unlimited" => return Some(TopicSize::Unlimited),
            _ => {}
        }
        let reason = match ByteSize::from_str(&text.replace('_', "")) {
            // Iggy's smallest and largest value mean other things.
            Ok(ByteSize(0)) => "it is nothing".to_owned(),
            Ok(ByteSize(u64::MAX)) => "it is too large".to_owned(),
            Ok(ByteSize(bytes)) => return Some(TopicSize::Bytes(bytes)),
            Err(error) => error,
        };
        let found = text;
        self.problem(value.span(), key, Problem::BadSize { found, reason });
        None
    }
}
