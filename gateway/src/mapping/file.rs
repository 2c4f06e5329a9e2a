//! The topic map as written: typed values and where they stand, nothing decided about patterns and templates yet.
//!
//! What always holds: every text remembers its place in the file, to the byte as far as escapes allow.

use std::ops::Range;

use crate::log::{Durability, Expiry, TopicSize};
use crate::report::Text;

mod read;

pub(super) use read::read;
#[cfg(test)]
pub(super) use read::{MAX_FOREIGN, MAX_RULES};

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
