//! The few MQTT 3.1.1 packets that a publisher or a subscriber sends and gets.
//!
//! Always holds: what comes in is cut into packets whatever the pieces in which it was read, and a packet that a publisher
//! does not expect is an error, never skipped.

use super::DriverError;

/// PINGREQ.
pub(super) const PINGREQ: [u8; 2] = [0xC0, 0];
/// DISCONNECT.
pub(super) const DISCONNECT: [u8; 2] = [0xE0, 0];

/// The longest packet that a server sends to a publisher: none of them has more than two bytes after the length.
const LONGEST_REST: usize = 2;

/// What becomes of a client's subscriptions when it leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Session {
    /// They end, and what an earlier session left is forgotten.
    Clean,
    /// They stay, and what comes meanwhile waits for the client.
    Kept,
}

/// CONNECT with the longest keep-alive, 18 hours, since some servers refuse none. The client id must be below 65,536 bytes.
pub(super) fn connect(client_id: &str, session: Session) -> Vec<u8> {
    let mut rest = vec![0, 4];
    rest.extend(b"MQTT");
    // Level 4 is MQTT 3.1.1; the flag is CleanSession; the rest is the keep-alive.
    rest.extend([
        4,
        if session == Session::Clean { 0x02 } else { 0 },
        0xFF,
        0xFF,
    ]);
    put_text(&mut rest, client_id);
    packet(0x10, &rest)
}

/// SUBSCRIBE to one topic, with packet id 1.
pub(super) fn subscribe(topic: &str, qos: u8) -> Vec<u8> {
    let mut rest = vec![0, 1];
    put_text(&mut rest, topic);
    rest.push(qos);
    packet(0x82, &rest)
}

/// The packet id, if there is one, and the payload of a PUBLISH.
pub(super) type Copy<'a> = (Option<u16>, &'a [u8]);

/// The PUBLISH that `bytes` begin with, and its length; nothing as long as it is not whole.
///
/// # Errors
/// [`DriverError::Unexpected`] when they begin with something else.
pub(super) fn read_publish(bytes: &[u8]) -> Result<Option<(Copy<'_>, usize)>, DriverError> {
    let Some(first) = bytes.first() else {
        return Ok(None);
    };
    let unexpected = || DriverError::Unexpected(first_bytes(bytes));
    if first >> 4 != 3 {
        return Err(unexpected());
    }
    let (mut length, mut at) = (0_usize, 1);
    loop {
        let Some(digit) = bytes.get(at) else {
            return Ok(None);
        };
        length |= usize::from(digit & 0x7F) << (7 * (at - 1));
        at += 1;
        if digit & 0x80 == 0 {
            break;
        }
        if at > 4 {
            return Err(unexpected());
        }
    }
    let Some(body) = bytes.get(at..at + length) else {
        return Ok(None);
    };
    let number = |at: usize| {
        let bytes = body.get(at..at + 2)?;
        Some(u16::from_be_bytes(bytes.try_into().ok()?))
    };
    let topic_end = 2 + usize::from(number(0).ok_or_else(unexpected)?);
    let (id, payload_at) = match first >> 1 & 3 {
        0 => (None, topic_end),
        _ => (
            Some(number(topic_end).ok_or_else(unexpected)?),
            topic_end + 2,
        ),
    };
    let payload = body.get(payload_at..).ok_or_else(unexpected)?;
    Ok(Some(((id, payload), at + length)))
}

/// A PUBLISH whose packet id is filled in for each copy.
#[derive(Debug)]
pub(super) struct PublishTemplate {
    bytes: Vec<u8>,
    /// Where the packet id stands; nowhere with QoS 0.
    id_at: Option<usize>,
    payload_at: usize,
}

impl PublishTemplate {
    /// A PUBLISH to `topic` (below 65,536 bytes), with a packet id if `acknowledged`, which is QoS 1.
    pub(super) fn new(topic: &str, acknowledged: bool, payload: &[u8]) -> Self {
        let mut rest = Vec::with_capacity(topic.len() + payload.len() + 4);
        put_text(&mut rest, topic);
        if acknowledged {
            rest.extend([0, 0]);
        }
        rest.extend(payload);
        let bytes = packet(if acknowledged { 0x32 } else { 0x30 }, &rest);
        let payload_at = bytes.len() - payload.len();
        Self {
            bytes,
            id_at: acknowledged.then(|| payload_at - 2),
            payload_at,
        }
    }

    /// Appends a copy with the packet id `id` to `out`. The payload begins with `head`, or as much of it as fits.
    pub(super) fn write(&self, id: u16, head: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.bytes);
        let place = self
            .id_at
            .and_then(|at| out.get_mut(start + at..start + at + 2));
        if let Some(place) = place {
            place.copy_from_slice(&id.to_be_bytes());
        }
        let payload = out.get_mut(start + self.payload_at..).unwrap_or_default();
        for (place, byte) in payload.iter_mut().zip(head) {
            *place = *byte;
        }
    }
}

/// What a publisher gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// CONNACK with this return code.
    ConnAck(u8),
    /// PUBACK of this packet id.
    PubAck(u16),
    /// PINGRESP.
    PingResp,
}

/// Cuts what was read into packets.
#[derive(Debug, Default)]
pub(super) struct Answers {
    bytes: Vec<u8>,
    at: usize,
}

impl Answers {
    /// Adds bytes that were read.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.at);
        self.at = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole packet, if there is one.
    ///
    /// # Errors
    /// [`DriverError::Unexpected`] when it is none that a publisher gets.
    pub(super) fn next(&mut self) -> Result<Option<Answer>, DriverError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let (answer, length) = match *rest {
            [] | [_] => return Ok(None),
            [_, length, ..] if usize::from(length) > LONGEST_REST => {
                return Err(DriverError::Unexpected(first_bytes(rest)));
            }
            [_, length, ..] if rest.len() < 2 + usize::from(length) => return Ok(None),
            [0x20, 2, _, code, ..] => (Answer::ConnAck(code), 4),
            [0x40, 2, high, low, ..] => (Answer::PubAck(u16::from_be_bytes([high, low])), 4),
            [0xD0, 0, ..] => (Answer::PingResp, 2),
            _ => return Err(DriverError::Unexpected(first_bytes(rest))),
        };
        self.at += length;
        Ok(Some(answer))
    }
}

fn first_bytes(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().copied().take(8).collect()
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
    out.extend(length.to_be_bytes());
    out.extend(text.bytes().take(usize::from(length)));
}

/// A packet with its length filled in (2.2.3).
fn packet(first: u8, rest: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(rest.len() + 5);
    out.push(first);
    let mut left = rest.len();
    loop {
        let digit = u8::try_from(left % 128).unwrap_or_default();
        left /= 128;
        out.push(if left > 0 { digit | 0x80 } else { digit });
        if left == 0 {
            break;
        }
    }
    out.extend(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connect_has_the_bytes_of_the_standard() {
        assert_eq!(
            connect("ab", Session::Clean),
            [
                0x10, 14, 0, 4, b'M', b'Q', b'T', b'T', 4, 2, 255, 255, 0, 2, b'a', b'b'
            ]
        );
        assert_eq!(connect("ab", Session::Kept)[9], 0);
    }

    #[test]
    fn a_publish_carries_topic_packet_id_and_payload() {
        let mut out = vec![0xFF];
        PublishTemplate::new("a/b", true, b"xyz").write(0x1234, b"X", &mut out);
        assert_eq!(
            out,
            [
                0xFF, 0x32, 10, 0, 3, b'a', b'/', b'b', 0x12, 0x34, b'X', b'y', b'z'
            ]
        );
        let mut out = Vec::new();
        PublishTemplate::new("a/b", false, b"xyz").write(0x1234, b"longer", &mut out);
        assert_eq!(out, [0x30, 8, 0, 3, b'a', b'/', b'b', b'l', b'o', b'n']);
    }

    #[test]
    fn the_length_of_a_packet_takes_as_many_bytes_as_it_needs() {
        // The bounds of the standard's table 2.4.
        for (length, digits) in [
            (0, vec![0]),
            (127, vec![0x7F]),
            (128, vec![0x80, 0x01]),
            (16_383, vec![0xFF, 0x7F]),
            (16_384, vec![0x80, 0x80, 0x01]),
            (2_097_151, vec![0xFF, 0xFF, 0x7F]),
            (2_097_152, vec![0x80, 0x80, 0x80, 0x01]),
        ] {
            let packet = packet(0x30, &vec![7; length]);
            assert_eq!(packet[1..=digits.len()], digits);
            assert_eq!(packet.len(), 1 + digits.len() + length);
        }
    }

    #[test]
    fn answers_are_the_same_in_whatever_pieces_they_come() {
        let bytes = [0x20, 2, 0, 5, 0x40, 2, 1, 2, 0xD0, 0, 0x40, 2, 0, 9];
        let expected = [
            Answer::ConnAck(5),
            Answer::PubAck(0x0102),
            Answer::PingResp,
            Answer::PubAck(9),
        ];
        for piece in 1..=bytes.len() {
            let mut answers = Answers::default();
            let mut seen = Vec::new();
            for bytes in bytes.chunks(piece) {
                answers.add(bytes);
                while let Some(answer) = answers.next().unwrap() {
                    seen.push(answer);
                }
            }
            assert_eq!(seen, expected, "in pieces of {piece}");
        }
    }

    #[test]
    fn a_publish_is_read_back_when_it_is_whole_and_not_before() {
        let payload = vec![b'x'; 300];
        let mut bytes = Vec::new();
        PublishTemplate::new("a/b", true, &payload).write(0x1234, &[], &mut bytes);
        let length = bytes.len();
        bytes.extend([0x30, 4, 0, 1, b't', b'y']);
        for end in 0..length {
            assert!(read_publish(&bytes[..end]).unwrap().is_none());
        }
        let (copy, used) = read_publish(&bytes).unwrap().unwrap();
        assert_eq!((copy, used), ((Some(0x1234), &payload[..]), length));
        let (copy, used) = read_publish(&bytes[length..]).unwrap().unwrap();
        assert_eq!((copy, used), ((None, &b"y"[..]), 6));
        assert!(read_publish(&[0x90, 3]).is_err());
        assert!(read_publish(&[0x30, 1, 0]).is_err());
        assert_eq!(subscribe("a", 1), [0x82, 6, 0, 1, 0, 1, b'a', 1]);
    }

    #[test]
    fn what_a_publisher_does_not_expect_is_an_error() {
        for bytes in [
            &[0x30, 5, 0, 1, b't', b'x', b'y'][..],
            &[0x40, 3],
            &[0x50, 2, 0, 1],
            &[0xD0, 2, 0, 0],
        ] {
            let mut answers = Answers::default();
            answers.add(bytes);
            assert!(
                matches!(answers.next(), Err(DriverError::Unexpected(_))),
                "{bytes:02x?}"
            );
        }
    }
}
