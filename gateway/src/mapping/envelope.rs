//! The envelope: how an MQTT message is stored as an Iggy record, and how it is read back.
//!
//! What always holds: the payload is stored unchanged, except that an empty one is stored as one zero byte (Iggy stores
//! no empty payload) and marked; topic and payload come back byte for byte. The header names are a contract with every
//! reader of the Iggy topics: they may be added to, never changed.

use bytes::Bytes;
use bytestring::ByteString;

use super::foreign::{ForeignError, ForeignTopic};
use crate::log::{HeaderValue, Headers, MAX_HEADER_VALUE_BYTES, Record, StoredRecord};
use crate::mqtt::{ClientId, MAX_STRING_BYTES, PacketId, QoS, TopicError, TopicName};

/// Text: the topic, or its first 255 bytes at most; the rest is in `mqtt.topic.1`, `mqtt.topic.2` and so on.
pub const TOPIC: &str = "mqtt.topic";
/// The first of those. Every record that is read is asked for it, and has it if its topic is long.
const TOPIC_1: &str = "mqtt.topic.1";
/// Number of one byte: the publisher's QoS.
pub const QOS: &str = "mqtt.qos";
/// Text: the publisher's client id.
pub const CLIENT_ID: &str = "mqtt.client_id";
/// Number of two bytes: the publisher's packet id, QoS 1 only.
pub const PACKET_ID: &str = "mqtt.packet_id";
/// Truth value, only when true: the publisher set RETAIN.
pub const RETAIN: &str = "mqtt.retain";
/// Truth value, only when true: the publisher set DUP.
pub const DUP: &str = "mqtt.dup";
/// Truth value, only when true: the payload was empty.
pub const EMPTY: &str = "mqtt.empty";

/// Text, in the dead-letter topic only: why the message could not be stored where it should.
pub const REFUSED: &str = "mqtt.refused";
/// Text, in the dead-letter topic only: the rule of the topic map that took the message, if one did.
pub const REFUSED_RULE: &str = "mqtt.refused.rule";

/// What stands for an empty payload.
const EMPTY_PAYLOAD: &[u8] = &[0];

/// Which of the headers that nobody needs for reading back a message carries. Topic and emptiness are always there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeaderSet(u8);

impl HeaderSet {
    /// The headers that can be left out, by their names without `mqtt.`, in the order of the keys.
    pub const NAMES: [&str; 5] = ["client_id", "dup", "packet_id", "qos", "retain"];

    /// All of them.
    pub const ALL: Self = Self((1 << Self::NAMES.len()) - 1);
    /// None of them.
    pub const NONE: Self = Self(0);

    /// With the header of that name too; `None` if there is no such name.
    pub fn with(self, name: &str) -> Option<Self> {
        let at = Self::NAMES.iter().position(|known| *known == name)?;
        Some(Self(self.0 | 1 << at))
    }

    /// The names of its headers.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let bits = self.0;
        let named = Self::NAMES.into_iter().enumerate();
        named.filter_map(move |(at, name)| (bits & (1 << at) != 0).then_some(name))
    }

    fn has(self, header: Optional) -> bool {
        self.0 & (1 << header as u8) != 0
    }
}

/// Places in [`HeaderSet::NAMES`].
#[derive(Clone, Copy)]
enum Optional {
    ClientId,
    Dup,
    PacketId,
    QoS,
    Retain,
}

impl Default for HeaderSet {
    fn default() -> Self {
        Self::ALL
    }
}

/// A PUBLISH as it came from its client.
#[derive(Debug, Clone, Copy)]
pub struct Published<'a> {
    /// Its topic.
    pub topic: &'a TopicName,
    /// Its QoS.
    pub qos: QoS,
    /// Its packet id; not stored for QoS 0.
    pub packet_id: Option<PacketId>,
    /// Whether RETAIN was set.
    pub retain: bool,
    /// Whether DUP was set.
    pub dup: bool,
    /// Who published it.
    pub client_id: &'a ClientId,
    /// Its payload, which may be empty.
    pub payload: &'a Bytes,
}

/// A message as it is delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// Its topic.
    pub topic: TopicName,
    /// The QoS that it was published with; QoS 1 if the record does not say, so that the subscriber's QoS decides.
    pub qos: QoS,
    /// Its payload; shares the record's memory.
    pub payload: Bytes,
}

/// Why a stored record is not an MQTT message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    /// Another kind of producer wrote it.
    #[error("the record has no header {TOPIC}; it was not written by an MQTT gateway")]
    NoTopic,
    /// The header is of another kind than text.
    #[error("the record's header {0} is not text; whoever writes it must write a UTF-8 string")]
    NotText(String),
    /// The text is no topic.
    #[error("the record's header {TOPIC} is not a legal topic: {0}")]
    IllegalTopic(#[from] TopicError),
    /// The topic is one of other producers, and this record has no MQTT topic in it.
    #[error("{0}")]
    Foreign(#[from] ForeignError),
}

/// The record that stores `publish` under `id`, which is unique per publish and the same in every retry, with the
/// headers of `wanted`.
pub fn seal(publish: &Published<'_>, id: u128, wanted: HeaderSet) -> Record {
    // One header for each constant above, in the order of the keys.
    let mut headers = Headers::with_capacity(7);
    let mut set = |key: &'static str, value| headers.insert(ByteString::from_static(key), value);
    if wanted.has(Optional::ClientId) {
        set(CLIENT_ID, HeaderValue::Text(publish.client_id.text()));
    }
    if publish.dup && wanted.has(Optional::Dup) {
        set(DUP, HeaderValue::Bool(true));
    }
    let payload = if publish.payload.is_empty() {
        set(EMPTY, HeaderValue::Bool(true));
        Bytes::from_static(EMPTY_PAYLOAD)
    } else {
        publish.payload.clone()
    };
    if let (Some(packet_id), QoS::AtLeastOnce | QoS::ExactlyOnce) = (publish.packet_id, publish.qos)
        && wanted.has(Optional::PacketId)
    {
        set(PACKET_ID, HeaderValue::U16(packet_id.get()));
    }
    if wanted.has(Optional::QoS) {
        set(QOS, HeaderValue::U8(publish.qos as u8));
    }
    if publish.retain && wanted.has(Optional::Retain) {
        set(RETAIN, HeaderValue::Bool(true));
    }
    let (first, mut rest) = cut(publish.topic.as_str());
    set(TOPIC, text(first));
    for number in 1.. {
        if rest.is_empty() {
            break;
        }
        let (part, after) = cut(rest);
        headers.insert(continuation(number), text(part));
        rest = after;
    }
    Record {
        id,
        headers,
        payload,
    }
}

/// Makes a sealed record one for the dead-letter topic. Its publisher is in it however headers are narrowed.
pub fn mark_refused(record: &mut Record, reason: &'static str, rule: Option<&str>, by: &ClientId) {
    let headers = &mut record.headers;
    let mut set = |key: &'static str, value| headers.insert(ByteString::from_static(key), value);
    set(REFUSED, text(reason));
    if let Some(rule) = rule {
        set(REFUSED_RULE, text(rule));
    }
    set(CLIENT_ID, HeaderValue::Text(by.text()));
}

/// The beginning of the topic of a sealed record, for log lines.
pub fn topic_text(record: &Record) -> &str {
    match record.headers.get(TOPIC) {
        Some(HeaderValue::Text(topic)) => topic,
        _ => "",
    }
}

/// The message in `record`.
///
/// # Errors
/// Why the record is not an MQTT message, and is to be skipped.
pub fn open(record: &StoredRecord) -> Result<Opened, EnvelopeError> {
    open_in(record, 0, None)
}

/// The message in `record`, which stands in `partition` of a topic that other producers may write too.
///
/// # Errors
/// Why the record is not an MQTT message, and is to be skipped.
pub fn open_in(
    record: &StoredRecord,
    partition: u32,
    foreign: Option<&ForeignTopic>,
) -> Result<Opened, EnvelopeError> {
    let headers = &record.headers;
    let topic = match (topic_of(headers)?, foreign) {
        (Some(topic), _) => topic,
        (None, Some(foreign)) => foreign.topic_of(partition, record)?,
        (None, None) => return Err(EnvelopeError::NoTopic),
    };
    let qos = match headers.get(QOS) {
        Some(HeaderValue::U8(bits)) => QoS::from_bits(*bits),
        _ => None,
    };
    let payload = match headers.get(EMPTY) {
        Some(HeaderValue::Bool(true)) => Bytes::new(),
        _ => record.payload.clone(),
    };
    Ok(Opened {
        topic,
        qos: qos.unwrap_or(QoS::AtLeastOnce),
        payload,
    })
}

/// The topic that the headers name, if they name one.
fn topic_of(headers: &Headers) -> Result<Option<TopicName>, EnvelopeError> {
    let Some(first) = text_of(headers, TOPIC)? else {
        return Ok(None);
    };
    let topic = match text_of(headers, TOPIC_1)? {
        None => first.clone(),
        Some(second) => {
            let mut topic = first.to_string();
            let mut part = Some(second);
            // A topic that is too long already is refused below.
            for number in 2.. {
                match part {
                    Some(text) if topic.len() <= MAX_STRING_BYTES => topic.push_str(text),
                    _ => break,
                }
                part = text_of(headers, &continuation(number))?;
            }
            topic.into()
        }
    };
    Ok(Some(TopicName::new(topic)?))
}

/// The key of the part with that number of a long topic.
fn continuation(number: usize) -> ByteString {
    format!("{TOPIC}.{number}").into()
}

fn text(text: &str) -> HeaderValue {
    HeaderValue::Text(text.into())
}

fn text_of<'h>(headers: &'h Headers, key: &str) -> Result<Option<&'h ByteString>, EnvelopeError> {
    match headers.get(key) {
        None => Ok(None),
        Some(HeaderValue::Text(text)) => Ok(Some(text)),
        Some(_) => Err(EnvelopeError::NotText(key.to_owned())),
    }
}

/// As much of `text` as one header value holds, cut between characters, and the rest.
fn cut(text: &str) -> (&str, &str) {
    text.split_at(text.floor_char_boundary(MAX_HEADER_VALUE_BYTES))
}
