//! The words of MQTT 3.1.1 as types: each is parsed once, at the edge, and carries its validity from there on.
//!
//! What always holds: a [`TopicName`] is a legal topic to publish to, a [`TopicFilter`] a legal filter to subscribe with,
//! a [`PacketId`] is not zero, a [`ClientId`] is not empty. No I/O and no knowledge of Iggy here.

use std::borrow::Borrow;
use std::fmt;
use std::num::NonZeroU16;

use bytestring::ByteString;

/// The longest topic name, topic filter or client id that fits its two length bytes (1.5.3), in bytes.
pub const MAX_STRING_BYTES: usize = 65_535;

/// Why a string is not a topic name or a topic filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TopicError {
    /// 4.7.3-1
    #[error("a topic must have at least one character [MQTT-4.7.3-1]")]
    Empty,
    /// 4.7.3-3
    #[error("a topic must not be longer than 65,535 bytes [MQTT-4.7.3-3]")]
    TooLong,
    /// 4.7.3-2
    #[error("a topic must not contain U+0000 [MQTT-4.7.3-2]")]
    Nul,
    /// 3.3.2-2
    #[error("a topic name must not contain the wildcards + and # [MQTT-3.3.2-2]")]
    WildcardInName,
    /// 4.7.1-2
    #[error("# must be the last level of a filter and stand alone in it [MQTT-4.7.1-2]")]
    MisplacedHash,
    /// 4.7.1-3
    #[error("+ must stand alone in its level [MQTT-4.7.1-3]")]
    MisplacedPlus,
}

fn check_common(text: &str) -> Result<(), TopicError> {
    if text.is_empty() {
        Err(TopicError::Empty)
    } else if text.len() > MAX_STRING_BYTES {
        Err(TopicError::TooLong)
    } else if has_any(text, *b"\0") {
        Err(TopicError::Nul)
    } else {
        Ok(())
    }
}

/// Whether `text` has one of these characters, which are ASCII. Each PUBLISH asks, and bytes are compared many at a time,
/// characters are not.
fn has_any<const N: usize>(text: &str, characters: [u8; N]) -> bool {
    let found = |byte: &u8| characters.contains(byte);
    text.as_bytes()
        .iter()
        .fold(false, |any, byte| any | found(byte))
}

/// How many levels a topic name or filter has; empty levels count.
pub(crate) fn levels(topic: &str) -> usize {
    1 + topic.bytes().filter(|byte| *byte == b'/').count()
}

/// A topic that can be published to: 1 to 65,535 bytes of UTF-8 without U+0000, `+` and `#` (4.7).
///
/// Compared byte for byte: no normalisation, case matters, levels may be empty. Cloning shares the text.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopicName(ByteString);

impl TopicName {
    /// Checks `text` and takes it over without a copy.
    pub fn new(text: impl Into<ByteString>) -> Result<Self, TopicError> {
        let text = text.into();
        check_common(&text)?;
        if has_any(&text, *b"+#") {
            return Err(TopicError::WildcardInName);
        }
        Ok(Self(text))
    }

    /// The topic as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Topics that begin with `$` are set apart from all others (4.7.2).
    pub fn is_dollar(&self) -> bool {
        self.0.starts_with('$')
    }

    /// How many levels the topic has; empty levels count.
    pub fn levels(&self) -> usize {
        levels(&self.0)
    }

    /// The same topic in memory of its own, so that keeping it does not keep the packet that it came in.
    pub fn detached(&self) -> Self {
        Self(ByteString::from(self.0.to_string()))
    }
}

impl Borrow<str> for TopicName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A filter that can be subscribed with (4.7.1): a topic name, or one with whole levels replaced by `+`, or ended by `#`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopicFilter(ByteString);

impl TopicFilter {
    /// Checks `text` and takes it over without a copy.
    pub fn new(text: impl Into<ByteString>) -> Result<Self, TopicError> {
        let text = text.into();
        check_common(&text)?;
        let mut levels = text.split('/').peekable();
        while let Some(level) = levels.next() {
            if level.contains('#') && (level != "#" || levels.peek().is_some()) {
                return Err(TopicError::MisplacedHash);
            }
            if level.contains('+') && level != "+" {
                return Err(TopicError::MisplacedPlus);
            }
        }
        Ok(Self(text))
    }

    /// The filter as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The one topic that this filter matches, or `None` if it has a wildcard.
    pub fn concrete(&self) -> Option<TopicName> {
        (!self.0.contains(['+', '#'])).then(|| TopicName(self.0.clone()))
    }

    /// The same filter in memory of its own, so that keeping it does not keep the packet that it came in.
    pub fn detached(&self) -> Self {
        Self(ByteString::from(self.0.to_string()))
    }
}

impl fmt::Display for TopicFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Quality of service (4.3). `ExactlyOnce` exists as a request only: the gateway serves the first two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum QoS {
    /// QoS 0
    AtMostOnce = 0,
    /// QoS 1
    AtLeastOnce = 1,
    /// QoS 2
    ExactlyOnce = 2,
}

impl QoS {
    /// The two bits of the wire; `None` for 3, which is reserved.
    pub fn from_bits(bits: u8) -> Option<Self> {
        match bits {
            0 => Some(Self::AtMostOnce),
            1 => Some(Self::AtLeastOnce),
            2 => Some(Self::ExactlyOnce),
            _ => None,
        }
    }
}

/// The label that ties a PUBLISH, SUBSCRIBE or UNSUBSCRIBE to its answer: 1 to 65,535 (2.3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PacketId(NonZeroU16);

impl PacketId {
    /// The largest id; 1 comes after it.
    pub const LAST: Self = Self(NonZeroU16::MAX);

    /// `None` for 0, which is not a packet id (2.3.1-1).
    pub fn new(id: u16) -> Option<Self> {
        NonZeroU16::new(id).map(Self)
    }

    /// The number on the wire.
    pub fn get(self) -> u16 {
        self.0.get()
    }

    /// The id after this one; 65,535 is followed by 1.
    pub fn next(self) -> Self {
        Self(self.0.checked_add(1).unwrap_or(NonZeroU16::MIN))
    }
}

impl From<NonZeroU16> for PacketId {
    fn from(id: NonZeroU16) -> Self {
        Self(id)
    }
}

impl fmt::Display for PacketId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The longest client id that is served, in bytes: an Iggy header value holds no more, and every message carries its
/// publisher's.
pub const MAX_CLIENT_ID_BYTES: usize = 255;

/// Who a client says it is (3.1.3.1): 1 to 255 bytes of UTF-8. An empty id on the wire is replaced before it gets here.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientId(ByteString);

impl ClientId {
    /// `None` if `text` is empty, longer than [`MAX_CLIENT_ID_BYTES`] or contains U+0000.
    pub fn new(text: &str) -> Option<Self> {
        (!text.is_empty() && text.len() <= MAX_CLIENT_ID_BYTES && !text.contains('\0'))
            .then(|| Self(ByteString::from(text)))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The id as text that shares its memory.
    pub fn text(&self) -> ByteString {
        self.0.clone()
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_name_may_have_empty_levels_spaces_and_any_unicode_but_nul_and_wildcards() {
        for topic in [
            "a",
            "/",
            "//",
            "a//b",
            "/a",
            "a/",
            "Living Room/Lamp 1",
            "ü/東京/🚀",
            "*",
            "a>b",
            "%2F",
            "\"q\"",
            "a ",
            "\u{feff}x",
        ] {
            assert_eq!(TopicName::new(topic).unwrap().as_str(), topic);
        }
        assert_eq!(TopicName::new(""), Err(TopicError::Empty));
        assert_eq!(TopicName::new("a\0"), Err(TopicError::Nul));
        assert_eq!(TopicName::new("a/+"), Err(TopicError::WildcardInName));
        assert_eq!(TopicName::new("#"), Err(TopicError::WildcardInName));
        assert!(TopicName::new("x".repeat(65_535)).is_ok());
        assert_eq!(TopicName::new("x".repeat(65_536)), Err(TopicError::TooLong));
    }

    #[test]
    fn a_wildcard_of_a_filter_fills_its_whole_level_and_hash_is_last() {
        for filter in ["#", "+", "a/#", "+/b/#", "a/+/c", "/+", "+/"] {
            assert_eq!(
                TopicFilter::new(filter).unwrap().concrete(),
                None,
                "{filter}"
            );
        }
        for filter in ["a/#/b", "a#", "#a", "##"] {
            assert_eq!(
                TopicFilter::new(filter),
                Err(TopicError::MisplacedHash),
                "{filter}"
            );
        }
        for filter in ["a+", "+a/b", "a/b+"] {
            assert_eq!(
                TopicFilter::new(filter),
                Err(TopicError::MisplacedPlus),
                "{filter}"
            );
        }
        assert_eq!(
            TopicFilter::new("a//b")
                .unwrap()
                .concrete()
                .unwrap()
                .as_str(),
            "a//b"
        );
    }

    #[test]
    fn packet_ids_go_round_without_zero() {
        assert_eq!(PacketId::new(0), None);
        assert_eq!(PacketId::new(1).unwrap().next().get(), 2);
        assert_eq!(PacketId::new(65_535).unwrap().next().get(), 1);
    }

    #[test]
    fn a_client_id_has_one_to_255_bytes() {
        assert!(ClientId::new("").is_none());
        assert!(ClientId::new(&"x".repeat(255)).is_some());
        assert!(ClientId::new(&"x".repeat(256)).is_none());
    }
}
