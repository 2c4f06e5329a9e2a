//! The messages of a run: where each belongs, and how a stored record is recognised as one of them.
//!
//! What always holds: publisher and number make a message, and its payload names both.

use std::fmt;

use crate::log::{HeaderValue, Name, Record, StoredRecord, Target};

/// The topic map of all runs. What matches no rule begins with `$`, and has no place.
pub(super) const MAP: &str = r#"
default_stream = "s"
default_topic = "rest"

[[rule]]
mqtt_topic = 'p/([^/]+)/x'
stream = 's'
topic = 'persisted'
partition_key = '$1'
partitions = 3

[[rule]]
mqtt_topic = 'c/([^/]+)/x'
stream = 's'
topic = 'committed'
partition_key = '$1'
partitions = 2
durability = 'commit'

[[rule]]
mqtt_topic = 'g/([^/]+)/x'
stream = 's'
topic = 'guarded'
partition_key = '$1'
auto_create = false

[[rule]]
mqtt_topic = 'n/([^/]+)/x'
stream = 's'
topic = 'new_$1'
partition_key = '$1'
"#;

/// Where a message belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// In a topic with several partitions that the gateway makes.
    Persisted,
    /// In one whose newest records a restart of the log may lose.
    Committed,
    /// In one that the gateway must not make.
    Guarded,
    /// In one that is made when the first message comes.
    New,
    /// Nowhere.
    Dollar,
}

impl Kind {
    pub(super) const ALL: [Self; 5] = [
        Self::Persisted,
        Self::Committed,
        Self::Guarded,
        Self::New,
        Self::Dollar,
    ];

    pub(super) fn mqtt_topic(self, key: &str) -> String {
        let first = match self {
            Self::Persisted => "p",
            Self::Committed => "c",
            Self::Guarded => "g",
            Self::New => "n",
            Self::Dollar => "$",
        };
        format!("{first}/{key}/x")
    }

    /// The Iggy topic; for [`Kind::New`] the one of key `a`.
    pub(super) fn target(self) -> Option<Target> {
        let topic = match self {
            Self::Persisted => "persisted",
            Self::Committed => "committed",
            Self::Guarded => "guarded",
            Self::New => "new_a",
            Self::Dollar => return None,
        };
        Some(Target {
            stream: Name::new("s")?,
            topic: Name::new(topic)?,
        })
    }
}

/// Who published a message, and as which of its messages. The numbers of a publisher begin with 1.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Label {
    pub(super) publisher: String,
    pub(super) number: u16,
}

impl Label {
    /// The label of the message with this payload.
    pub(super) fn of(payload: &[u8]) -> Self {
        let text = std::str::from_utf8(payload).unwrap();
        let mut parts = text.split(' ');
        let mut part = || parts.next().unwrap_or_else(|| panic!("not ours: {text:?}"));
        Self {
            publisher: part().to_owned(),
            number: part().parse().unwrap(),
        }
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.publisher, self.number)
    }
}

/// A message as its publisher sends it.
#[derive(Debug, Clone)]
pub(super) struct Message {
    pub(super) label: Label,
    pub(super) kind: Kind,
    pub(super) topic: String,
    pub(super) qos_1: bool,
    /// The log takes no batch with it.
    pub(super) poisoned: bool,
    pub(super) payload: String,
}

impl Message {
    /// With `padding` more bytes than needed.
    pub(super) fn new(
        label: Label,
        kind: Kind,
        key: &str,
        qos_1: bool,
        poisoned: bool,
        padding: usize,
    ) -> Self {
        let poison = if poisoned { POISON } else { "" };
        let Label { publisher, number } = &label;
        let payload = format!("{publisher} {number} {poison}{}", ".".repeat(padding));
        Self {
            topic: kind.mqtt_topic(key),
            label,
            kind,
            qos_1,
            poisoned,
            payload,
        }
    }

    /// Its packet id: numbers are few enough.
    pub(super) fn id(&self) -> u16 {
        self.label.number
    }
}

const POISON: &str = "poison";

/// Whether the log refuses every batch with `record`.
pub(super) fn is_poisoned(record: &Record) -> bool {
    record
        .payload
        .windows(POISON.len())
        .any(|part| part == POISON.as_bytes())
}

/// The text of a header.
pub(super) fn header<'a>(record: &'a StoredRecord, key: &str) -> Option<&'a str> {
    match record.headers.get(key)? {
        HeaderValue::Text(text) => Some(text),
        other => panic!("{key} is {other:?}"),
    }
}
