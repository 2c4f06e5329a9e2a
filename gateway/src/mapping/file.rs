//! The topic map as written: typed values and where they stand, nothing decided about patterns and templates yet.
//!
//! What always holds: every text remembers its place in the file, to the byte as far as escapes allow.

use std::ops::Range;

use crate::log::{Durability, Expiry, TopicSize};

mod read;

pub(super) use read::read;
#[cfg(test)]
pub(super) use read::{MAX_FOREIGN, MAX_RULES};

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
    pub(super) message_expiry: Option<Expiry>,
    pub(super) max_topic_size: Option<TopicSize>,
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

/// A topic of other producers as written.
#[derive(Debug, Default)]
pub(super) struct ForeignText {
    /// Where it stands.
    pub(super) span: Range<usize>,
    pub(super) stream: Entry,
    pub(super) topic: Entry,
    pub(super) mqtt_topic: Entry,
    pub(super) key_header: Entry,
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
    /// With their numbers in the file, from 1.
    pub(super) rules: Vec<(usize, RuleText)>,
    /// With their numbers in the file, from 1.
    pub(super) foreign: Vec<(usize, ForeignText)>,
}
