//! What several groups measure with.

use bytes::Bytes;
use mqtt_gateway::log::StoredRecord;
use mqtt_gateway::mapping::envelope::{HeaderSet, Published, seal};
use mqtt_gateway::mqtt::{ClientId, PacketId, QoS, TopicName};

/// Bytes of a payload.
pub(crate) const PAYLOAD: usize = 100;

/// What must be, because the benchmark itself has made it.
pub(crate) fn made<T, E: std::fmt::Debug>(made: Result<T, E>) -> T {
    match made {
        Ok(made) => made,
        Err(error) => panic!("{error:?}"),
    }
}

/// The packet id for the message with this number.
pub(crate) fn packet_id(number: usize) -> PacketId {
    let id = u16::try_from(number % 65_535 + 1);
    made(id.ok().and_then(PacketId::new).ok_or(number))
}

/// A topic.
pub(crate) fn topic(text: &str) -> TopicName {
    made(TopicName::new(text.to_owned()))
}

/// A client id.
pub(crate) fn client_id() -> ClientId {
    made(ClientId::new("press-42").ok_or("a client id"))
}

/// What a PUBLISH with QoS 1 was stored as.
pub(crate) fn stored(offset: u64, topic: &TopicName, qos: QoS) -> StoredRecord {
    let published = Published {
        topic,
        qos,
        packet_id: (qos == QoS::AtLeastOnce).then(|| packet_id(0)),
        retain: false,
        dup: false,
        client_id: &client_id(),
        payload: &Bytes::from(vec![b'x'; PAYLOAD]),
    };
    let record = seal(&published, offset.into(), HeaderSet::ALL);
    StoredRecord {
        offset,
        id: record.id,
        timestamp_micros: offset,
        headers: record.headers,
        payload: record.payload,
    }
}

/// A shuffle that is the same in every run: multiplication by a prime that does not divide `count`.
pub(crate) fn shuffled(count: usize) -> Vec<usize> {
    (0..count).map(|at| at * 7_919 % count).collect()
}
