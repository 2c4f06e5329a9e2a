//! The envelope: which headers a record carries, and that a message comes back as it was.

use bytes::Bytes;
use bytestring::ByteString;
use proptest::prelude::*;

use super::envelope::{EnvelopeError, HeaderSet, Opened, Published, open, seal};
use super::topic;
use crate::log::{HeaderValue, Headers, MAX_HEADER_VALUE_BYTES, Record, StoredRecord};
use crate::mqtt::{ClientId, PacketId, QoS, TopicError};

fn stored(record: Record) -> StoredRecord {
    StoredRecord {
        offset: 0,
        id: record.id,
        timestamp_micros: 0,
        headers: record.headers,
        payload: record.payload,
    }
}

/// Seals a QoS 1 message.
fn sealed(name: &str, payload: &[u8]) -> Record {
    let published = Published {
        topic: &topic(name),
        qos: QoS::AtLeastOnce,
        packet_id: PacketId::new(7),
        retain: false,
        dup: false,
        client_id: &ClientId::new("c").unwrap(),
        payload: &Bytes::copy_from_slice(payload),
    };
    seal(&published, 1, HeaderSet::ALL)
}

fn with_headers(headers: &[(&'static str, HeaderValue)]) -> StoredRecord {
    let mut all = Headers::default();
    for (key, value) in headers {
        all.insert(ByteString::from_static(key), value.clone());
    }
    stored(Record {
        id: 1,
        headers: all,
        payload: Bytes::from_static(b"p"),
    })
}

fn text(text: &str) -> HeaderValue {
    HeaderValue::Text(text.into())
}

#[test]
fn a_record_carries_the_documented_headers_and_the_payload_as_it_is() {
    let payload = Bytes::from_static(b"\x00\xff binary");
    let published = Published {
        topic: &topic("a/b"),
        qos: QoS::AtLeastOnce,
        packet_id: PacketId::new(513),
        retain: true,
        dup: true,
        client_id: &ClientId::new("dev-7").unwrap(),
        payload: &payload,
    };
    let record = seal(&published, u128::MAX, HeaderSet::ALL);
    assert_eq!(record.id, u128::MAX);
    assert_eq!(record.payload.as_ptr(), payload.as_ptr());
    let headers: Vec<_> = record
        .headers
        .iter()
        .map(|(key, value)| (key, value.clone()))
        .collect();
    assert_eq!(
        headers,
        [
            ("mqtt.client_id", text("dev-7")),
            ("mqtt.dup", HeaderValue::Bool(true)),
            ("mqtt.packet_id", HeaderValue::U16(513)),
            ("mqtt.qos", HeaderValue::U8(1)),
            ("mqtt.retain", HeaderValue::Bool(true)),
            ("mqtt.topic", text("a/b")),
        ]
    );
    // Flags that are not set and the packet id of QoS 0 are left out.
    let record = seal(
        &Published {
            qos: QoS::AtMostOnce,
            retain: false,
            dup: false,
            ..published
        },
        1,
        HeaderSet::ALL,
    );
    let keys: Vec<&str> = record.headers.iter().map(|(key, _)| key).collect();
    assert_eq!(keys, ["mqtt.client_id", "mqtt.qos", "mqtt.topic"]);
}

#[test]
fn an_empty_payload_is_one_marked_zero_byte_and_a_zero_byte_is_itself() {
    let record = sealed("a", b"");
    assert_eq!(&record.payload[..], [0]);
    assert_eq!(
        record.headers.get("mqtt.empty"),
        Some(&HeaderValue::Bool(true))
    );
    assert!(open(&stored(record)).unwrap().payload.is_empty());
    let record = sealed("a", &[0]);
    assert_eq!(record.headers.get("mqtt.empty"), None);
    assert_eq!(&open(&stored(record)).unwrap().payload[..], [0]);
}

#[test]
fn a_long_topic_goes_on_in_further_headers_cut_between_characters() {
    let record = sealed(&format!("{}ü{}", "x".repeat(254), "y".repeat(254)), b"p");
    assert_eq!(
        record.headers.get("mqtt.topic"),
        Some(&text(&"x".repeat(254)))
    );
    assert_eq!(
        record.headers.get("mqtt.topic.1"),
        Some(&text(&format!("ü{}", "y".repeat(253))))
    );
    assert_eq!(record.headers.get("mqtt.topic.2"), Some(&text("y")));
    assert_eq!(record.headers.get("mqtt.topic.3"), None);
    let record = sealed(&"x".repeat(255), b"p");
    assert_eq!(record.headers.get("mqtt.topic.1"), None);
}

#[test]
fn the_longest_topic_fits_the_headers_of_one_record_and_comes_back() {
    // Iggy 0.9: 100,000 bytes of headers, of which a text takes about 10 more than key and value.
    for unit in ["x", "ü", "東", "🚀"] {
        let name = unit.repeat(65_535 / unit.len());
        let record = sealed(&name, b"p");
        let size = |(key, value): (&str, &HeaderValue)| match value {
            HeaderValue::Text(text) => {
                assert!((1..=MAX_HEADER_VALUE_BYTES).contains(&text.len()));
                key.len() + text.len() + 10
            }
            _ => key.len() + 12,
        };
        assert!(record.headers.iter().map(size).sum::<usize>() < 100_000);
        assert_eq!(open(&stored(record)).unwrap().topic.as_str(), name);
    }
}

#[test]
fn what_is_no_mqtt_message_is_refused_with_the_reason() {
    assert_eq!(open(&with_headers(&[])), Err(EnvelopeError::NoTopic));
    let raw = HeaderValue::Other(Bytes::from_static(b"\xff"));
    let refused = open(&with_headers(&[("mqtt.topic", raw.clone())]));
    assert_eq!(
        refused,
        Err(EnvelopeError::NotText("mqtt.topic".to_owned()))
    );
    let refused = open(&with_headers(&[
        ("mqtt.topic", text("a")),
        ("mqtt.topic.1", raw),
    ]));
    assert_eq!(
        refused,
        Err(EnvelopeError::NotText("mqtt.topic.1".to_owned()))
    );
    for (name, error) in [
        ("", TopicError::Empty),
        ("a/#", TopicError::WildcardInName),
        ("a\0", TopicError::Nul),
    ] {
        let refused = open(&with_headers(&[("mqtt.topic", text(name))]));
        assert_eq!(refused, Err(EnvelopeError::IllegalTopic(error)));
    }
    let long = text(&"x".repeat(65_535));
    let refused = open(&with_headers(&[
        ("mqtt.topic", long),
        ("mqtt.topic.1", text("y")),
    ]));
    assert_eq!(
        refused,
        Err(EnvelopeError::IllegalTopic(TopicError::TooLong))
    );
}

#[test]
fn a_record_that_says_no_qos_counts_as_qos_1() {
    for headers in [
        &[("mqtt.topic", text("a"))][..],
        &[("mqtt.topic", text("a")), ("mqtt.qos", HeaderValue::U8(3))],
        &[("mqtt.topic", text("a")), ("mqtt.qos", text("0"))],
    ] {
        assert_eq!(open(&with_headers(headers)).unwrap().qos, QoS::AtLeastOnce);
    }
}

proptest! {
    #[test]
    fn m5_topic_qos_and_payload_come_back_byte_for_byte(
        name in "[^\0+#]{1,40}",
        times in prop_oneof![Just(1_usize), 1..400_usize],
        payload in proptest::collection::vec(any::<u8>(), 0..40),
        qos in prop_oneof![Just(QoS::AtMostOnce), Just(QoS::AtLeastOnce)],
        packet_id in 1..=u16::MAX,
        retain: bool,
        dup: bool,
        client_id in "[^\0]{1,60}",
    ) {
        let name = topic(&name.repeat(times));
        let payload = Bytes::from(payload);
        let published = Published {
            topic: &name,
            qos,
            packet_id: PacketId::new(packet_id),
            retain,
            dup,
            client_id: &ClientId::new(&client_id).unwrap(),
            payload: &payload,
        };
        let record = seal(&published, 3, HeaderSet::ALL);
        prop_assert!(!record.payload.is_empty());
        let flag = |key: &str| record.headers.get(key) == Some(&HeaderValue::Bool(true));
        prop_assert_eq!((flag("mqtt.retain"), flag("mqtt.dup")), (retain, dup));
        for (key, value) in record.headers.iter() {
            prop_assert!((1..=MAX_HEADER_VALUE_BYTES).contains(&key.len()));
            if let HeaderValue::Text(text) = value {
                prop_assert!((1..=MAX_HEADER_VALUE_BYTES).contains(&text.len()));
            }
        }
        prop_assert_eq!(open(&stored(record)).unwrap(), Opened { topic: name, qos, payload });
    }
}
