//! From a whole, pre-checked packet to a [`Packet`]. The only file that names the codec crate, so that it can be exchanged.
//!
//! What always holds: payloads, topics and filters share the memory of the packet; all limits of a topic are kept.

use bytes::BytesMut;
use bytestring::ByteString;
use rmqtt_codec::error::DecodeError;
use rmqtt_codec::v3;
use tokio_util::codec::Decoder as _;

use crate::mqtt::{ClientId, PacketId, QoS, TopicFilter, TopicName};
use crate::wire::{
    Connect, Packet, Password, Publish, Subscribe, Unsubscribe, Violation, WireLimits,
};

/// Takes the packet that `buf` begins with out of it. The caller has seen that `buf` holds the whole of it, checked its
/// length, and passed its body through [`super::checks`].
///
/// `buf` goes to the codec as it is, not as a buffer cut to the packet: the codec reserves two bytes after each packet. In
/// a read buffer they are nearly always there; if it was filled to its last byte, what follows the packet moves once into a
/// new allocation, which the next read needs anyway. In a cut buffer they would be an allocation for every packet.
pub(super) fn take_packet(buf: &mut BytesMut, limits: &WireLimits) -> Result<Packet, Violation> {
    // Without a state and a cap of its own: whole packets only, below our cap.
    let (packet, _) = v3::Codec::new(0)
        .decode(buf)
        .map_err(violation)?
        .ok_or(Violation::Malformed)?;
    match packet {
        v3::Packet::Connect(connect) => connect_packet(*connect, limits),
        v3::Packet::Publish(publish) => {
            let topic = TopicName::new(publish.topic).map_err(Violation::Topic)?;
            limits.check_topic(topic.as_str())?;
            Ok(Packet::Publish(Publish {
                dup: publish.dup,
                qos: qos(publish.qos),
                retain: publish.retain,
                topic,
                packet_id: publish.packet_id.map(PacketId::from),
                payload: publish.payload,
            }))
        }
        v3::Packet::PublishAck { packet_id } => Ok(Packet::PubAck(packet_id.into())),
        v3::Packet::Subscribe {
            packet_id,
            topic_filters,
        } => Ok(Packet::Subscribe(Subscribe {
            packet_id: packet_id.into(),
            filters: topic_filters
                .into_iter()
                .map(|(filter, asked)| Ok((topic_filter(filter, limits)?, qos(asked))))
                .collect::<Result<_, _>>()?,
        })),
        v3::Packet::Unsubscribe {
            packet_id,
            topic_filters,
        } => Ok(Packet::Unsubscribe(Unsubscribe {
            packet_id: packet_id.into(),
            filters: topic_filters
                .into_iter()
                .map(|filter| topic_filter(filter, limits))
                .collect::<Result<_, _>>()?,
        })),
        v3::Packet::PingRequest => Ok(Packet::PingReq),
        v3::Packet::Disconnect => Ok(Packet::Disconnect),
        // The types that end in `header`.
        v3::Packet::ConnectAck(_)
        | v3::Packet::PublishReceived { .. }
        | v3::Packet::PublishRelease { .. }
        | v3::Packet::PublishComplete { .. }
        | v3::Packet::SubscribeAck { .. }
        | v3::Packet::UnsubscribeAck { .. }
        | v3::Packet::PingResponse => Err(Violation::Malformed),
    }
}

fn connect_packet(connect: v3::Connect, limits: &WireLimits) -> Result<Packet, Violation> {
    let will = match connect.last_will {
        Some(will) => {
            let topic = TopicName::new(will.topic).map_err(Violation::WillTopic)?;
            limits.check_topic(topic.as_str())?;
            true
        }
        None => false,
    };
    let client_id = match &*connect.client_id {
        "" => None,
        // U+0000 was refused before, so only the length is left to be wrong.
        text => Some(ClientId::new(text).ok_or(Violation::ClientIdTooLong { length: text.len() })?),
    };
    if client_id.is_none() && !connect.clean_session {
        return Err(Violation::EmptyClientId);
    }
    Ok(Packet::Connect(Box::new(Connect {
        client_id,
        clean_session: connect.clean_session,
        keep_alive: connect.keep_alive,
        will,
        username: connect.username.map(|name| ByteString::from(&*name)),
        password: connect.password.map(Password::new),
    })))
}

fn topic_filter(text: ByteString, limits: &WireLimits) -> Result<TopicFilter, Violation> {
    let filter = TopicFilter::new(text).map_err(Violation::Filter)?;
    limits.check_topic(filter.as_str())?;
    Ok(filter)
}

fn qos(qos: v3::QoS) -> QoS {
    match qos {
        v3::QoS::AtMostOnce => QoS::AtMostOnce,
        v3::QoS::AtLeastOnce => QoS::AtLeastOnce,
        v3::QoS::ExactlyOnce => QoS::ExactlyOnce,
    }
}

/// What the codec's reasons can still mean in a packet that passed our checks.
fn violation(error: DecodeError) -> Violation {
    use crate::mqtt::TopicError;
    match error {
        DecodeError::InvalidLength => Violation::Truncated,
        DecodeError::Utf8Error => Violation::InvalidUtf8,
        // Also a QoS of 3, but all of them were refused before.
        DecodeError::MalformedPacket => Violation::PacketIdZero,
        DecodeError::InvalidTopicName => Violation::Topic(TopicError::Empty),
        DecodeError::InvalidTopicFilter => Violation::Filter(TopicError::Empty),
        // Said of one thing only: empty, with CleanSession 0.
        DecodeError::InvalidClientId => Violation::EmptyClientId,
        DecodeError::InvalidProtocol
        | DecodeError::UnsupportedProtocolLevel
        | DecodeError::ConnectReservedFlagSet
        | DecodeError::InvalidConnectFlags
        | DecodeError::ConnAckReservedFlagSet
        | DecodeError::UnsupportedPacketType
        | DecodeError::PacketIdRequired
        | DecodeError::MaxSizeExceeded { .. }
        | DecodeError::Io(_) => Violation::Malformed,
    }
}
