//! The decoder of one connection: where packets begin and end, which one comes first, and how long it may be.
//!
//! What always holds: CONNECT is the first packet and only the first. After a violation the decoder gives nothing but that
//! violation. It holds no bytes itself; those of a packet that is not complete stay in the caller's buffer, which needs no
//! more than the longest legal packet.

use bytes::BytesMut;

use crate::mqtt;
use crate::wire::header::{self, Kind};
use crate::wire::{Packet, Violation, checks, codec};

/// What one packet may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WireLimits {
    /// Of a whole packet with its fixed header, in bytes.
    pub max_packet_size: usize,
    /// The same for CONNECT, which comes from someone unknown. Has no effect above `max_packet_size`.
    pub max_connect_size: usize,
    /// Of a topic name or filter, in bytes.
    pub max_topic_length: usize,
    /// Of a topic name or filter; empty levels count.
    pub max_topic_levels: usize,
}

impl WireLimits {
    /// Whether a topic name or filter is within the limits.
    ///
    /// # Errors
    /// The limit that it exceeds. Its connection is closed for it.
    pub fn check_topic(&self, topic: &str) -> Result<(), Violation> {
        let (length, max) = (topic.len(), self.max_topic_length);
        if length > max {
            return Err(Violation::TopicTooLong { length, max });
        }
        let (levels, max) = (mqtt::levels(topic), self.max_topic_levels);
        if levels > max {
            return Err(Violation::TooManyLevels { levels, max });
        }
        Ok(())
    }
}

/// The longest SUBSCRIBE or UNSUBSCRIBE, in bytes, whatever `max_packet_size` says: a filter of one byte takes four bytes
/// on the wire and many times that in memory, so a limit that was raised for large payloads must not raise this one.
pub const MAX_FILTER_LIST_SIZE: usize = 256 * 1024;

#[derive(Debug, Clone, Copy)]
enum State {
    AwaitConnect,
    Connected,
    Refused(Violation),
}

/// Cuts the byte stream of one client into packets and checks them.
#[derive(Debug)]
pub struct Decoder {
    limits: WireLimits,
    state: State,
    /// Whether the packet that broke the protocol is a PUBLISH.
    broken_publish: bool,
}

impl Decoder {
    /// A decoder for a connection on which nothing was read yet.
    pub fn new(limits: WireLimits) -> Self {
        Self {
            limits,
            state: State::AwaitConnect,
            broken_publish: false,
        }
    }

    /// Takes the next packet from the front of `buf`; `None` if more bytes must be read first.
    ///
    /// To be called until it gives `None`, since one read may bring several packets. It does not reserve room for the rest
    /// of a packet, whose length is only announced yet.
    ///
    /// # Errors
    /// The connection must be closed, after [`Violation::answer`] if there is one. What is left in `buf` has no meaning, and
    /// each further call gives the same violation.
    pub fn decode(&mut self, buf: &mut BytesMut) -> Result<Option<Packet>, Violation> {
        let connected = match self.state {
            State::AwaitConnect => false,
            State::Connected => true,
            State::Refused(violation) => return Err(violation),
        };
        let first = buf.first().copied();
        let result = self.next_packet(buf, connected);
        match &result {
            Ok(Some(_)) => self.state = State::Connected,
            Ok(None) => {}
            Err(violation) => {
                self.state = State::Refused(*violation);
                self.broken_publish = connected && first.is_some_and(|first| first >> 4 == 3);
            }
        }
        result
    }

    /// Whether the protocol was broken by a PUBLISH.
    pub fn is_broken_by_publish(&self) -> bool {
        self.broken_publish
    }

    fn next_packet(
        &self,
        buf: &mut BytesMut,
        connected: bool,
    ) -> Result<Option<Packet>, Violation> {
        let Some((&first, rest)) = buf.split_first() else {
            return Ok(None);
        };
        let kind = Kind::from_first_byte(first, connected)?;
        let Some((length, length_bytes)) = header::remaining_length(rest)? else {
            return Ok(None);
        };
        let size = 1 + length_bytes + length;
        self.check_size(kind, size)?;
        if let Some(expected) = kind.fixed_length()
            && length != expected
        {
            return Err(Violation::BodyLength {
                packet: kind.name(),
                length,
                expected,
            });
        }
        let Some(body) = buf.get(1 + length_bytes..size) else {
            return Ok(None);
        };
        match kind {
            Kind::Connect => checks::connect(body)?,
            Kind::Subscribe => checks::subscribe(body)?,
            Kind::Unsubscribe => checks::unsubscribe(body)?,
            Kind::Publish | Kind::PubAck | Kind::PingReq | Kind::Disconnect => {}
        }
        codec::take_packet(buf, &self.limits).map(Some)
    }

    fn check_size(&self, kind: Kind, size: usize) -> Result<(), Violation> {
        let max = self.limits.max_packet_size;
        if size > max {
            return Err(Violation::PacketTooLarge { size, max });
        }
        match kind {
            Kind::Connect if size > self.limits.max_connect_size => {
                Err(Violation::ConnectTooLarge {
                    size,
                    max: self.limits.max_connect_size,
                })
            }
            Kind::Subscribe | Kind::Unsubscribe if size > MAX_FILTER_LIST_SIZE => {
                Err(Violation::FilterListTooLarge {
                    packet: kind.name(),
                    size,
                    max: MAX_FILTER_LIST_SIZE,
                })
            }
            _ => Ok(()),
        }
    }
}
