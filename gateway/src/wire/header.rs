//! The fixed header (2.2): packet type, flags and remaining length.
//!
//! What always holds: the first byte is judged as soon as it is there, the length as soon as it is complete; nothing here
//! looks at the body. Packet types that a client must not send, or that are not served, end here.

use crate::wire::Violation;

/// The packet types that are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Connect,
    Publish,
    PubAck,
    Subscribe,
    Unsubscribe,
    PingReq,
    Disconnect,
}

impl Kind {
    /// Reads the first byte of a packet, which also tells whether it has its place before or after CONNECT.
    pub(super) fn from_first_byte(byte: u8, connected: bool) -> Result<Self, Violation> {
        let (packet_type, flags) = (byte >> 4, byte & 0x0f);
        let packet = packet_name(packet_type);
        match (connected, packet_type == 1) {
            (false, false) => return Err(Violation::NotConnect { packet }),
            (true, true) => return Err(Violation::SecondConnect),
            _ => {}
        }
        let kind = match packet_type {
            1 => Self::Connect,
            3 => {
                check_publish_flags(flags)?;
                return Ok(Self::Publish);
            }
            4 => Self::PubAck,
            8 => Self::Subscribe,
            10 => Self::Unsubscribe,
            12 => Self::PingReq,
            14 => Self::Disconnect,
            2 | 9 | 11 | 13 => return Err(Violation::ServerOnlyPacket { packet }),
            5..=7 => return Err(Violation::Qos2Handshake { packet }),
            _ => return Err(Violation::ReservedPacketType { packet_type }),
        };
        if flags != kind.flags() {
            return Err(Violation::HeaderFlags { packet, flags });
        }
        Ok(kind)
    }

    /// The only legal lower half of the first byte (2.2.2); of PUBLISH, whose flags have a meaning, the one without any.
    fn flags(self) -> u8 {
        match self {
            Self::Subscribe | Self::Unsubscribe => 0b0010,
            _ => 0,
        }
    }

    /// The only legal remaining length in bytes, where there is only one.
    pub(super) fn fixed_length(self) -> Option<usize> {
        match self {
            Self::PubAck => Some(2),
            Self::PingReq | Self::Disconnect => Some(0),
            Self::Connect | Self::Publish | Self::Subscribe | Self::Unsubscribe => None,
        }
    }

    /// As the standard writes it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Connect => "CONNECT",
            Self::Publish => "PUBLISH",
            Self::PubAck => "PUBACK",
            Self::Subscribe => "SUBSCRIBE",
            Self::Unsubscribe => "UNSUBSCRIBE",
            Self::PingReq => "PINGREQ",
            Self::Disconnect => "DISCONNECT",
        }
    }
}

/// DUP, QoS and RETAIN share the four bits (3.3.1).
fn check_publish_flags(flags: u8) -> Result<(), Violation> {
    let dup = flags & 0b1000 != 0;
    match (flags >> 1) & 0b11 {
        0 if dup => Err(Violation::DupWithQos0),
        0 | 1 => Ok(()),
        2 => Err(Violation::PublishQos2),
        _ => Err(Violation::PublishQos3),
    }
}

fn packet_name(packet_type: u8) -> &'static str {
    match packet_type {
        1 => "CONNECT",
        2 => "CONNACK",
        3 => "PUBLISH",
        4 => "PUBACK",
        5 => "PUBREC",
        6 => "PUBREL",
        7 => "PUBCOMP",
        8 => "SUBSCRIBE",
        9 => "SUBACK",
        10 => "UNSUBSCRIBE",
        11 => "UNSUBACK",
        12 => "PINGREQ",
        13 => "PINGRESP",
        14 => "DISCONNECT",
        _ => "of a reserved type",
    }
}

/// Reads the remaining length from the bytes after the first: its value and how many bytes it took, or `None` if more
/// must come. A length that is written longer than needed is legal in 3.1.1.
pub(super) fn remaining_length(bytes: &[u8]) -> Result<Option<(usize, usize)>, Violation> {
    let mut value = 0;
    for (index, &byte) in bytes.iter().take(4).enumerate() {
        value |= usize::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Ok(Some((value, index + 1)));
        }
    }
    if bytes.len() < 4 {
        Ok(None)
    } else {
        Err(Violation::RemainingLength)
    }
}
