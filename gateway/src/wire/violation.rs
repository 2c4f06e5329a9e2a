//! Every way in which a client can break MQTT 3.1.1, or ask for a packet that is not served, within one packet.
//!
//! What always holds: one reason a variant; each ends the connection. [`Violation::answer`] is what the client is told,
//! [`Violation::reason`] what is counted, `Display` what is logged (with the clause of the standard, without anything that
//! the client could have put secrets in).

use crate::mqtt::{MAX_CLIENT_ID_BYTES, PacketId, TopicError};
use crate::wire::ConnectReturnCode;

/// Why a packet was refused. The connection cannot go on after any of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    // Order of packets.
    /// The first packet is something else.
    #[error(
        "the first packet is {packet}, not CONNECT [MQTT-3.1.0-1]; is this an MQTT client, and without TLS?"
    )]
    NotConnect {
        /// The name of its type.
        packet: &'static str,
    },
    /// CONNECT on a connection that had one.
    #[error("a second CONNECT on one connection [MQTT-3.1.0-2]")]
    SecondConnect,

    // Fixed header.
    /// Packet type 0 or 15.
    #[error("packet type {packet_type} is reserved (2.2.1)")]
    ReservedPacketType {
        /// 0 or 15.
        packet_type: u8,
    },
    /// CONNACK, SUBACK, UNSUBACK or PINGRESP.
    #[error("{packet} is for servers to send, not for clients (2.2.1)")]
    ServerOnlyPacket {
        /// The name of its type.
        packet: &'static str,
    },
    /// PUBREC, PUBREL or PUBCOMP.
    #[error("{packet} belongs to QoS 2, which is not served: set the client to QoS 0 or 1")]
    Qos2Handshake {
        /// The name of its type.
        packet: &'static str,
    },
    /// PUBLISH with QoS 2.
    #[error("PUBLISH with QoS 2, which is not served: set the client to QoS 0 or 1")]
    PublishQos2,
    /// PUBLISH with both QoS bits set.
    #[error("PUBLISH with both QoS bits set [MQTT-3.3.1-4]")]
    PublishQos3,
    /// PUBLISH with DUP and QoS 0.
    #[error("PUBLISH with DUP set and QoS 0 [MQTT-3.3.1-2]")]
    DupWithQos0,
    /// The lower four bits of the first byte are not those of its packet type.
    #[error("{packet} with the header flags {flags:#06b} [MQTT-2.2.2-2]")]
    HeaderFlags {
        /// The name of the packet's type.
        packet: &'static str,
        /// The four bits.
        flags: u8,
    },
    /// The fourth byte of the remaining length announces a fifth.
    #[error("the remaining length has more than four bytes (2.2.3)")]
    RemainingLength,
    /// Longer than [`max_packet_size`](crate::wire::WireLimits::max_packet_size).
    #[error("a packet of {size} bytes, more than max_packet_size ({max} bytes)")]
    PacketTooLarge {
        /// Of the whole packet as announced, in bytes.
        size: usize,
        /// The limit, in bytes.
        max: usize,
    },
    /// Longer than [`max_connect_size`](crate::wire::WireLimits::max_connect_size).
    #[error("a CONNECT of {size} bytes, more than max_connect_size ({max} bytes)")]
    ConnectTooLarge {
        /// Of the whole packet as announced, in bytes.
        size: usize,
        /// The limit, in bytes.
        max: usize,
    },
    /// SUBSCRIBE or UNSUBSCRIBE longer than [`MAX_FILTER_LIST_SIZE`](crate::wire::MAX_FILTER_LIST_SIZE).
    #[error(
        "{packet} of {size} bytes, more than {max} bytes: let the client spread its filters over several packets"
    )]
    FilterListTooLarge {
        /// The name of the packet's type.
        packet: &'static str,
        /// Of the whole packet as announced, in bytes.
        size: usize,
        /// The limit, in bytes.
        max: usize,
    },
    /// A packet of a fixed length has another.
    #[error("{packet} with a remaining length of {length}, not {expected} (2.2.3)")]
    BodyLength {
        /// The name of the packet's type.
        packet: &'static str,
        /// As announced, in bytes.
        length: usize,
        /// The only legal length, in bytes.
        expected: usize,
    },

    // Any body.
    /// A field reaches over the end of its packet.
    #[error("a field is longer than what is left of its packet (2.2.3) [MQTT-4.8.0-1]")]
    Truncated,
    /// Bytes after the last field.
    #[error("{count} bytes are left over after the last field (2.2.3) [MQTT-4.8.0-1]")]
    TrailingBytes {
        /// How many.
        count: usize,
    },
    /// Text that is not UTF-8.
    #[error("text that is not well-formed UTF-8 [MQTT-1.5.3-1]")]
    InvalidUtf8,
    /// U+0000 in a client id or a user name.
    #[error("text with U+0000 [MQTT-1.5.3-2]")]
    Nul,
    /// Packet id 0.
    #[error("packet id 0 [MQTT-2.3.1-1]")]
    PacketIdZero,
    /// What the codec refuses although it passed all checks above.
    #[error("a packet that cannot be decoded [MQTT-4.8.0-1]")]
    Malformed,

    // CONNECT.
    /// Level 4 of a protocol that is not called `MQTT`.
    #[error("the protocol name is not MQTT [MQTT-3.1.2-1]")]
    ProtocolName,
    /// Any level but 4.
    #[error(
        "protocol level {level} is not served: set the client to MQTT 3.1.1 (level 4) [MQTT-3.1.2-2]"
    )]
    ProtocolLevel {
        /// 3 for MQTT 3.1, 5 for MQTT 5.
        level: u8,
    },
    /// The lowest bit of the connect flags.
    #[error("the reserved connect flag is set [MQTT-3.1.2-3]")]
    ReservedConnectFlag,
    /// Will QoS or Will Retain without a Will.
    #[error("Will QoS or Will Retain is set without the Will flag [MQTT-3.1.2-13] [MQTT-3.1.2-15]")]
    WillFlags,
    /// Will QoS 3.
    #[error("Will QoS 3 [MQTT-3.1.2-14]")]
    WillQos3,
    /// A password alone.
    #[error("a password without a user name [MQTT-3.1.2-22]")]
    PasswordWithoutUserName,
    /// An empty client id with CleanSession 0.
    #[error(
        "an empty client id with CleanSession 0 [MQTT-3.1.3-8]: give the client an id or set CleanSession"
    )]
    EmptyClientId,
    /// A client id that does not fit an Iggy header.
    #[error("a client id of {length} bytes, more than {max} (3.1.3.1)", max = MAX_CLIENT_ID_BYTES)]
    ClientIdTooLong {
        /// In bytes.
        length: usize,
    },
    /// The topic of a Will is not a topic name.
    #[error("the Will topic: {0}")]
    WillTopic(TopicError),

    // PUBLISH, SUBSCRIBE, UNSUBSCRIBE.
    /// The topic of a PUBLISH is not a topic name.
    #[error("PUBLISH: {0}")]
    Topic(TopicError),
    /// Not a topic filter.
    #[error("topic filter: {0}")]
    Filter(TopicError),
    /// A list of filters without any.
    #[error("{packet} without a topic filter {clause}")]
    NoFilters {
        /// The name of the packet's type.
        packet: &'static str,
        /// Of the standard.
        clause: &'static str,
    },
    /// A requested QoS that is not 0, 1 or 2, or has reserved bits set.
    #[error("SUBSCRIBE with the requested QoS byte {byte:#04x} [MQTT-3-8.3-4]")]
    RequestedQos {
        /// As sent.
        byte: u8,
    },
    /// 2.3.1
    #[error(
        "packet id {0} again while it waits for its PUBACK, with another message [MQTT-2.3.1-2]"
    )]
    PacketIdInUse(PacketId),
    /// Longer than [`max_topic_length`](crate::wire::WireLimits::max_topic_length).
    #[error("a topic of {length} bytes, more than max_topic_length ({max} bytes)")]
    TopicTooLong {
        /// In bytes.
        length: usize,
        /// The limit, in bytes.
        max: usize,
    },
    /// More levels than [`max_topic_levels`](crate::wire::WireLimits::max_topic_levels).
    #[error("a topic of {levels} levels, more than max_topic_levels ({max})")]
    TooManyLevels {
        /// Empty levels count.
        levels: usize,
        /// The limit.
        max: usize,
    },
}

impl Violation {
    /// The CONNACK that the client gets before the close; `None` means that the connection is closed without a word, as
    /// 3.1.4-1 and 4.8 demand for malformed packets.
    pub fn answer(&self) -> Option<ConnectReturnCode> {
        match self {
            Self::ProtocolLevel { .. } => Some(ConnectReturnCode::UnacceptableProtocolVersion),
            Self::EmptyClientId | Self::ClientIdTooLong { .. } => {
                Some(ConnectReturnCode::IdentifierRejected)
            }
            _ => None,
        }
    }

    /// A name for counters; it stays the same between releases.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NotConnect { .. } => "not_connect",
            Self::SecondConnect => "second_connect",
            Self::ReservedPacketType { .. } => "reserved_packet_type",
            Self::ServerOnlyPacket { .. } => "server_only_packet",
            Self::Qos2Handshake { .. } => "qos2_handshake",
            Self::PublishQos2 => "publish_qos2",
            Self::PublishQos3 => "publish_qos3",
            Self::DupWithQos0 => "dup_with_qos0",
            Self::HeaderFlags { .. } => "header_flags",
            Self::RemainingLength => "remaining_length",
            Self::PacketTooLarge { .. } => "packet_too_large",
            Self::ConnectTooLarge { .. } => "connect_too_large",
            Self::FilterListTooLarge { .. } => "filter_list_too_large",
            Self::BodyLength { .. } => "body_length",
            Self::Truncated => "truncated",
            Self::TrailingBytes { .. } => "trailing_bytes",
            Self::InvalidUtf8 => "invalid_utf8",
            Self::Nul => "nul",
            Self::PacketIdZero => "packet_id_zero",
            Self::Malformed => "malformed",
            Self::ProtocolName => "protocol_name",
            Self::ProtocolLevel { .. } => "protocol_level",
            Self::ReservedConnectFlag => "reserved_connect_flag",
            Self::WillFlags => "will_flags",
            Self::WillQos3 => "will_qos3",
            Self::PasswordWithoutUserName => "password_without_user_name",
            Self::EmptyClientId => "empty_client_id",
            Self::ClientIdTooLong { .. } => "client_id_too_long",
            Self::WillTopic(_) => "will_topic",
            Self::Topic(_) => "topic",
            Self::Filter(_) => "filter",
            Self::NoFilters { .. } => "no_filters",
            Self::RequestedQos { .. } => "requested_qos",
            Self::PacketIdInUse(_) => "packet_id_in_use",
            Self::TopicTooLong { .. } => "topic_too_long",
            Self::TooManyLevels { .. } => "too_many_levels",
        }
    }
}
