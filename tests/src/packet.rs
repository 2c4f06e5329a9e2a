//! MQTT 3.1.1 packets as bytes, written by hand from the standard so that wrong ones can be made as easily as right ones.
//!
//! Always holds: a function makes exactly the bytes it is asked for and checks nothing.

use std::ops::BitOr;

/// PINGREQ.
pub const PINGREQ: [u8; 2] = [0xC0, 0];
/// PINGRESP.
pub const PINGRESP: [u8; 2] = [0xD0, 0];
/// DISCONNECT.
pub const DISCONNECT: [u8; 2] = [0xE0, 0];
/// CONNACK with code 0 and Session Present 0.
pub const CONNECTED: [u8; 4] = [0x20, 2, 0, 0];

/// The CONNECT flags (3.1.2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectFlags(pub u8);

impl ConnectFlags {
    /// Nothing set: a persistent session.
    pub const NONE: Self = Self(0);
    /// The bit that must be 0.
    pub const RESERVED: Self = Self(0x01);
    /// CleanSession.
    pub const CLEAN: Self = Self(0x02);
    /// A will follows.
    pub const WILL: Self = Self(0x04);
    /// The will's QoS 1.
    pub const WILL_QOS_1: Self = Self(0x08);
    /// The will's QoS 3, which does not exist.
    pub const WILL_QOS_3: Self = Self(0x18);
    /// The will is to be retained.
    pub const WILL_RETAIN: Self = Self(0x20);
    /// A password follows.
    pub const PASSWORD: Self = Self(0x40);
    /// A user name follows.
    pub const USER_NAME: Self = Self(0x80);
}

impl BitOr for ConnectFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// A packet with the given first byte and the given rest, whose length is filled in (2.2.3).
///
/// # Panics
/// When `body` is longer than MQTT can say.
pub fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    bytes.extend(remaining_length(body.len()));
    bytes.extend_from_slice(body);
    bytes
}

/// A length as MQTT writes it: seven bits a byte, the lowest first.
///
/// # Panics
/// When `length` is over 268,435,455.
pub fn remaining_length(length: usize) -> Vec<u8> {
    assert!(length <= 268_435_455, "MQTT cannot say {length}");
    let mut bytes = Vec::new();
    let mut rest = length;
    loop {
        let digit = u8::try_from(rest % 128).unwrap_or_default();
        rest /= 128;
        if rest == 0 {
            bytes.push(digit);
            return bytes;
        }
        bytes.push(digit | 0x80);
    }
}

/// Bytes with their length in two bytes before them (1.5.3).
///
/// # Panics
/// When `text` is longer than 65,535 bytes.
pub fn string(text: impl AsRef<[u8]>) -> Vec<u8> {
    let text = text.as_ref();
    let length = u16::try_from(text.len()).expect("a string has at most 65,535 bytes");
    [&length.to_be_bytes()[..], text].concat()
}

/// The body of a CONNECT with the given protocol name, level and flags; `payload` follows as it is.
pub fn connect_body(
    protocol: &str,
    level: u8,
    flags: ConnectFlags,
    keep_alive: u16,
    payload: &[u8],
) -> Vec<u8> {
    let mut body = string(protocol);
    body.push(level);
    body.push(flags.0);
    body.extend(keep_alive.to_be_bytes());
    body.extend_from_slice(payload);
    body
}

/// A CONNECT with a clean session.
pub fn connect(client_id: impl AsRef<[u8]>, keep_alive: u16) -> Vec<u8> {
    connect_with(ConnectFlags::CLEAN, keep_alive, &string(client_id))
}

/// A CONNECT of MQTT 3.1.1 with the given flags and payload.
pub fn connect_with(flags: ConnectFlags, keep_alive: u16, payload: &[u8]) -> Vec<u8> {
    packet(0x10, &connect_body("MQTT", 4, flags, keep_alive, payload))
}

/// CONNACK with that code.
pub fn connack(code: u8) -> [u8; 4] {
    [0x20, 2, 0, code]
}

/// CONNECT with a clean session, without keep-alive, with user name and password.
pub fn connect_as(client_id: &str, user: &str, password: impl AsRef<[u8]>) -> Vec<u8> {
    let payload = [string(client_id), string(user), string(password)].concat();
    let flags = ConnectFlags::CLEAN | ConnectFlags::USER_NAME | ConnectFlags::PASSWORD;
    connect_with(flags, 0, &payload)
}

/// A PUBLISH with QoS 0.
pub fn publish_qos0(topic: impl AsRef<[u8]>, payload: impl AsRef<[u8]>) -> Vec<u8> {
    packet(0x30, &[&string(topic)[..], payload.as_ref()].concat())
}

/// A PUBLISH with QoS 1.
pub fn publish(topic: impl AsRef<[u8]>, id: u16, payload: impl AsRef<[u8]>) -> Vec<u8> {
    publish_flags(0x32, topic, id, payload)
}

/// A PUBLISH with a packet id and the given first byte.
pub fn publish_flags(
    first: u8,
    topic: impl AsRef<[u8]>,
    id: u16,
    payload: impl AsRef<[u8]>,
) -> Vec<u8> {
    let body = [&string(topic)[..], &id.to_be_bytes(), payload.as_ref()].concat();
    packet(first, &body)
}

/// A PUBACK.
pub fn puback(id: u16) -> Vec<u8> {
    packet(0x40, &id.to_be_bytes())
}

/// A SUBSCRIBE to filters with the byte that asks for the QoS of each.
pub fn subscribe(id: u16, filters: &[(&str, u8)]) -> Vec<u8> {
    let filters: Vec<(&[u8], u8)> = filters
        .iter()
        .map(|(filter, qos)| (filter.as_bytes(), *qos))
        .collect();
    subscribe_bytes(id, &filters)
}

/// A SUBSCRIBE to filters that need not be UTF-8.
pub fn subscribe_bytes(id: u16, filters: &[(&[u8], u8)]) -> Vec<u8> {
    let mut body = id.to_be_bytes().to_vec();
    for (filter, qos) in filters {
        body.extend(string(filter));
        body.push(*qos);
    }
    packet(0x82, &body)
}

/// A SUBACK with one code a filter.
pub fn suback(id: u16, codes: &[u8]) -> Vec<u8> {
    packet(0x90, &[&id.to_be_bytes()[..], codes].concat())
}

/// An UNSUBSCRIBE.
pub fn unsubscribe(id: u16, filters: &[&str]) -> Vec<u8> {
    let mut body = id.to_be_bytes().to_vec();
    for filter in filters {
        body.extend(string(filter));
    }
    packet(0xA2, &body)
}

/// An UNSUBACK.
pub fn unsuback(id: u16) -> Vec<u8> {
    packet(0xB0, &id.to_be_bytes())
}

/// What a received PUBLISH says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publish {
    /// The topic.
    pub topic: String,
    /// The payload.
    pub payload: Vec<u8>,
    /// The QoS.
    pub qos: u8,
    /// The packet id, 0 with QoS 0.
    pub id: u16,
    /// Whether DUP is set.
    pub dup: bool,
    /// Whether RETAIN is set.
    pub retain: bool,
}

/// Reads a whole packet as a PUBLISH; nothing when it is another kind or is cut short.
pub fn read_publish(packet: &[u8]) -> Option<Publish> {
    let first = *packet.first()?;
    if first >> 4 != 3 {
        return None;
    }
    let length_bytes = packet.iter().skip(1).position(|byte| byte & 0x80 == 0)? + 1;
    let body = packet.get(1 + length_bytes..)?;
    let (length, rest) = body.split_first_chunk::<2>()?;
    let (topic, mut rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
    let qos = (first >> 1) & 3;
    let mut id = 0;
    if qos > 0 {
        let (bytes, payload) = rest.split_first_chunk::<2>()?;
        id = u16::from_be_bytes(*bytes);
        rest = payload;
    }
    Some(Publish {
        topic: String::from_utf8(topic.to_vec()).ok()?,
        payload: rest.to_vec(),
        qos,
        id,
        dup: first & 0x08 != 0,
        retain: first & 0x01 != 0,
    })
}
