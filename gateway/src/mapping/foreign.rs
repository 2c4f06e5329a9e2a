//! Topics that other producers write: which MQTT topic a record without one belongs to, and where a subscriber to an
//! MQTT topic finds such records.
//!
//! What always holds: if a record gets the MQTT topic T here, then the partitions that T is looked for in
//! ([`ForeignTopic::partitions_of`]) hold the record's (M4). A record whose topic would not be legal gets none.

use std::ops::Range;

use bytestring::ByteString;
use regex_automata::meta::Regex;
use regex_syntax::escape;

use super::problem::Problem;
use super::template::{Piece, pieces};
use super::{Partitions, RuleId};
use crate::log::{HeaderValue, StoredRecord, Target};
use crate::mqtt::{TopicError, TopicName};

/// The variables that a template may use.
const VARIABLES: &[&str] = &["stream", "topic", "partition", "key"];

/// A topic of Iggy whose records get an MQTT topic from a template.
#[derive(Debug, Clone)]
pub struct ForeignTopic {
    /// Its number in the file.
    pub id: RuleId,
    /// The Iggy stream and topic.
    pub target: Target,
    /// The user header that carries what `$key` stands for.
    pub key_header: Option<ByteString>,
    parts: Vec<Part>,
    /// Matches every MQTT topic that the template can give, and perhaps some more.
    gives: Regex,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Partition,
    Key,
}

/// Why a record of another producer gets no MQTT topic.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ForeignError {
    /// The header is not there, or not text.
    #[error(
        "the record has no text in the header {0:?}, which key_header names; whoever writes it must set it"
    )]
    NoKey(ByteString),
    /// The template gives no topic.
    #[error("the record's MQTT topic would not be legal: {0}")]
    IllegalTopic(#[from] TopicError),
    /// The record's own data would make a topic of the kind that is set apart (MQTT 4.7.2).
    #[error(
        "the record's MQTT topic would begin with $, and only mqtt_topic itself may make it so; put text before the variable"
    )]
    DollarTopic,
}

/// The template of a [`ForeignTopic`], read and checked.
#[derive(Debug)]
pub(super) struct ForeignTemplate {
    parts: Vec<Part>,
    gives: Regex,
    /// Whether `$key` is in it.
    pub(super) uses_key: bool,
}

impl ForeignTemplate {
    /// Reads `text` for the records of `target`. All problems are found at once.
    pub(super) fn bind(text: &str, target: &Target) -> Result<Self, Vec<(Range<usize>, Problem)>> {
        let mut found = Vec::new();
        let mut parts = Vec::new();
        for (at, piece) in pieces(text, |c| c.is_ascii_alphanumeric() || c == '_') {
            let part = match piece {
                Piece::Text(text) => Part::Text(text.to_owned()),
                Piece::Reference("stream") => Part::Text(target.stream.as_str().to_owned()),
                Piece::Reference("topic") => Part::Text(target.topic.as_str().to_owned()),
                Piece::Reference("partition") => Part::Partition,
                Piece::Reference("key") => Part::Key,
                Piece::Reference(_) => {
                    let reference = text[at.clone()].to_owned();
                    let known = VARIABLES;
                    found.push((at, Problem::UnknownVariable { reference, known }));
                    continue;
                }
                Piece::Malformed => {
                    found.push((at, Problem::MalformedVariable));
                    continue;
                }
            };
            parts.push(part);
        }
        if !found.is_empty() {
            return Err(found);
        }
        let whole = |problem| vec![(0..text.len(), problem)];
        // The shortest that the template can give: if that is no topic, then nothing else it gives is one.
        let shortest: String = parts
            .iter()
            .map(|part| match part {
                Part::Text(text) => text.as_str(),
                Part::Partition => "0",
                Part::Key => "k",
            })
            .collect();
        if let Err(error) = TopicName::new(shortest) {
            return Err(whole(Problem::IllegalForeignTopic(error)));
        }
        let pattern: String = parts
            .iter()
            .map(|part| match part {
                Part::Text(text) => escape(text),
                Part::Partition => "(0|[1-9][0-9]{0,9})".to_owned(),
                Part::Key => "(?s:.+)".to_owned(),
            })
            .collect();
        let gives = Regex::new(&format!(r"\A{pattern}\z"))
            .map_err(|_| whole(Problem::PatternTooLarge { limit: 10 << 20 }))?;
        Ok(Self {
            uses_key: parts.contains(&Part::Key),
            parts,
            gives,
        })
    }
}

impl ForeignTopic {
    pub(super) fn new(
        id: RuleId,
        target: Target,
        key_header: Option<ByteString>,
        template: ForeignTemplate,
    ) -> Self {
        Self {
            id,
            target,
            key_header,
            parts: template.parts,
            gives: template.gives,
        }
    }

    /// The MQTT topic of `record`, which stands in `partition` and names none itself.
    ///
    /// # Errors
    /// Why it has none, and is to be skipped.
    pub fn topic_of(
        &self,
        partition: u32,
        record: &StoredRecord,
    ) -> Result<TopicName, ForeignError> {
        let mut topic = String::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => topic.push_str(text),
                Part::Partition => topic.push_str(&partition.to_string()),
                Part::Key => topic.push_str(self.key_of(record)?),
            }
        }
        let topic = TopicName::new(topic)?;
        if self.may_give(&topic) {
            Ok(topic)
        } else {
            Err(ForeignError::DollarTopic)
        }
    }

    /// Whether `topic` is not set apart, or the template itself sets all its topics apart.
    fn may_give(&self, topic: &TopicName) -> bool {
        let dollar = |part: &Part| matches!(part, Part::Text(text) if text.starts_with('$'));
        !topic.is_dollar() || self.parts.first().is_some_and(dollar)
    }

    fn key_of<'r>(&self, record: &'r StoredRecord) -> Result<&'r str, ForeignError> {
        let header = self.key_header.clone().unwrap_or_default();
        match record.headers.get(&header) {
            Some(HeaderValue::Text(key)) => Ok(key),
            _ => Err(ForeignError::NoKey(header)),
        }
    }

    /// Where records that get the MQTT topic `topic` may be; `None` if there are none.
    pub fn partitions_of(&self, topic: &TopicName) -> Option<Partitions> {
        let mut found = self.gives.create_captures();
        self.gives.captures(topic.as_str(), &mut found);
        if !found.is_match() || !self.may_give(topic) {
            return None;
        }
        let mut variables = self
            .parts
            .iter()
            .filter(|part| !matches!(part, Part::Text(_)));
        match (variables.next(), variables.next()) {
            // Nothing else is variable, so the number is the partition's. Beyond 32 bits there is none.
            (Some(Part::Partition), None) => {
                let number = &topic.as_str()[found.get_group(1)?.range()];
                number.parse().ok().map(Partitions::One)
            }
            // With several variables the same topic can come about in several ways.
            _ => Some(Partitions::All),
        }
    }
}
