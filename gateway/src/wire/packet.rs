//! The packets that a client sends and the codes that it is answered with, as the gateway's own types.
//!
//! What always holds: all fields are already checked, see [`super`]. Debug output shows neither payloads nor passwords.

use std::fmt;

use bytes::Bytes;
use bytestring::ByteString;

use crate::mqtt::{ClientId, PacketId, QoS, TopicFilter, TopicName};

/// A packet from a client (3.1 to 3.14). The packets of the QoS 2 handshake are not served, so they are not here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Packet {
    /// The first packet of every connection, and only the first.
    Connect(Box<Connect>),
    /// A message for the server.
    Publish(Publish),
    /// The answer to a QoS 1 PUBLISH that the client got.
    PubAck(PacketId),
    /// Asks for messages.
    Subscribe(Subscribe),
    /// Asks for no more of them.
    Unsubscribe(Unsubscribe),
    /// Asks for a PINGRESP.
    PingReq,
    /// The client is about to close the connection; nothing that follows on the stream counts.
    Disconnect,
}

/// A well-formed CONNECT of level 4 (3.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connect {
    /// `None` if the client sent an empty id, which it does only with [`Connect::clean_session`] set (3.1.3.1).
    pub client_id: Option<ClientId>,
    /// False if the client asks for a session that outlives its connection.
    pub clean_session: bool,
    /// The longest time between two packets of the client, in seconds; 0 means no limit (3.1.2.10).
    pub keep_alive: u16,
    /// Whether the client left a Will, which is well-formed.
    pub will: bool,
    /// In memory of its own: keeping it does not keep the packet that it came in.
    pub username: Option<ByteString>,
    /// Present only together with a user name (3.1.2-22).
    pub password: Option<Password>,
}

/// What a client proves its identity with: 0 to 65,535 bytes of any kind. Never shown by Debug.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(Bytes);

impl Password {
    /// Takes `bytes` over without a copy.
    pub fn new(bytes: impl Into<Bytes>) -> Self {
        Self(bytes.into())
    }

    /// The password itself. Not to be logged, and not to be compared with `==` to a secret: that takes longer the more
    /// bytes are right.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<redacted>")
    }
}

/// A message for the server (3.3).
#[derive(Clone, PartialEq, Eq)]
pub struct Publish {
    /// The client says that it sent this packet before. Never set with QoS 0.
    pub dup: bool,
    /// QoS 0 or 1, never [`QoS::ExactlyOnce`].
    pub qos: QoS,
    /// The client asks for the message to be kept for later subscribers.
    pub retain: bool,
    /// Shares the memory of the packet; [`TopicName::detached`] before it is kept for long.
    pub topic: TopicName,
    /// Present exactly with QoS 1.
    pub packet_id: Option<PacketId>,
    /// May be empty. Shares the memory of the packet, and with it that of the read buffer which the packet came in: while
    /// it is kept, the whole allocation is.
    pub payload: Bytes,
}

impl fmt::Debug for Publish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publish")
            .field("dup", &self.dup)
            .field("qos", &self.qos)
            .field("retain", &self.retain)
            .field("topic", &self.topic)
            .field("packet_id", &self.packet_id)
            .field("payload", &format_args!("{} bytes", self.payload.len()))
            .finish()
    }
}

/// Asks for messages (3.8).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscribe {
    /// Repeated in the SUBACK.
    pub packet_id: PacketId,
    /// At least one, in the order of the packet, with the QoS asked for (0 to 2). They share the memory of the packet;
    /// [`TopicFilter::detached`] before they are kept.
    pub filters: Vec<(TopicFilter, QoS)>,
}

/// Asks for no more messages (3.10).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsubscribe {
    /// Repeated in the UNSUBACK.
    pub packet_id: PacketId,
    /// At least one, in the order of the packet.
    pub filters: Vec<TopicFilter>,
}

/// What a CONNACK says (3.2.2.3). Everything but [`ConnectReturnCode::Accepted`] is followed by a close.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ConnectReturnCode {
    /// The connection is open.
    Accepted = 0,
    /// The level of the protocol is not served.
    UnacceptableProtocolVersion = 1,
    /// The client id is legal UTF-8 but not served.
    IdentifierRejected = 2,
    /// The connection is in order but cannot be served now.
    ServerUnavailable = 3,
    /// The credentials are wrong.
    BadUserNameOrPassword = 4,
    /// The client may not connect, or asks for something that is not served.
    NotAuthorized = 5,
}

/// What a SUBACK says of one filter (3.9.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SubscribeReturnCode {
    /// Messages will come with at most this QoS.
    Granted(QoS),
    /// No messages will come.
    Failure,
}

impl SubscribeReturnCode {
    /// The byte on the wire.
    pub fn as_byte(self) -> u8 {
        match self {
            Self::Granted(qos) => qos as u8,
            Self::Failure => 0x80,
        }
    }
}
