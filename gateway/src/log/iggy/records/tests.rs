//! Records against the SDK's own encoding, and against what other producers write.

use std::collections::BTreeMap;
use std::str::FromStr;

use ::iggy::prelude as sdk;
use proptest::prelude::*;

use super::*;
use crate::log::MAX_PAYLOAD_BYTES;

fn record(headers: &[(&str, HeaderValue)]) -> Record {
    let mut all = Headers::default();
    for (key, value) in headers {
        all.insert(ByteString::from(*key), value.clone());
    }
    Record {
        id: 7,
        headers: all,
        payload: Bytes::from_static(b"21.5"),
    }
}

fn text(value: &str) -> HeaderValue {
    HeaderValue::Text(ByteString::from(value))
}

/// The SDK's own encoding of the same headers.
fn by_sdk(headers: &Headers) -> Option<Bytes> {
    let headers = headers.iter().map(|(key, value)| {
        let value = match value {
            HeaderValue::Text(text) => sdk::HeaderValue::from_str(text).unwrap(),
            HeaderValue::U8(number) => sdk::HeaderValue::from(*number),
            HeaderValue::U16(number) => sdk::HeaderValue::from(*number),
            HeaderValue::Bool(truth) => sdk::HeaderValue::from(*truth),
            HeaderValue::Other(bytes) => sdk::HeaderValue::try_from(&bytes[..]).unwrap(),
        };
        (sdk::HeaderKey::from_str(key).unwrap(), value)
    });
    let headers: BTreeMap<_, _> = headers.collect();
    let message = IggyMessage::builder().payload(Bytes::from_static(b"x"));
    if headers.is_empty() {
        message.build()
    } else {
        message.user_headers(headers).build()
    }
    .unwrap()
    .user_headers
}

#[test]
fn headers_are_encoded_as_the_sdk_encodes_them() {
    let headers = [
        ("mqtt.topic", text("plant/7/température")),
        ("mqtt.qos", HeaderValue::U8(1)),
        ("mqtt.packet", HeaderValue::U16(0x1234)),
        ("mqtt.dup", HeaderValue::Bool(true)),
        ("mqtt.retain", HeaderValue::Bool(false)),
        ("raw", HeaderValue::Other(Bytes::from_static(&[0, 255]))),
    ];
    let record = record(&headers);
    let messages = encode(std::slice::from_ref(&record)).unwrap();
    assert_eq!(messages[0].user_headers, by_sdk(&record.headers));
    assert_eq!(
        messages[0].header.user_headers_length as usize,
        messages[0].user_headers.as_ref().unwrap().len()
    );
    assert_eq!(
        decode(messages.into_iter().next().unwrap()).headers,
        record.headers
    );
}

#[test]
fn a_batch_keeps_order_ids_payloads_and_each_records_own_headers() {
    let records: Vec<_> = (1..=100)
        .map(|id| Record {
            id,
            payload: Bytes::from(vec![1; id as usize]),
            ..record(&[("n", HeaderValue::U8(id as u8))])
        })
        .collect();
    let messages = encode(&records).unwrap();
    for (message, record) in messages.into_iter().zip(&records) {
        assert_eq!(message.header.payload_length as usize, record.payload.len());
        assert_eq!(
            message.payload.as_ptr(),
            record.payload.as_ptr(),
            "the payload was copied"
        );
        assert_eq!(message.user_headers, by_sdk(&record.headers));
        let stored = decode(message);
        assert_eq!(
            (stored.id, &stored.headers, &stored.payload),
            (record.id, &record.headers, &record.payload)
        );
    }
}

#[test]
fn a_record_without_headers_has_none() {
    let messages = encode(&[record(&[])]).unwrap();
    assert_eq!(messages[0].user_headers, None);
    assert_eq!(by_sdk(&Headers::default()), None);
}

#[test]
fn what_iggy_would_refuse_is_not_sent() {
    let long = "x".repeat(256);
    let too_large = |record| matches!(encode(&[record]), Err(LogError::TooLarge(_)));
    let refused = |record| matches!(encode(&[record]), Err(LogError::Refused(_)));
    assert!(too_large(Record {
        payload: Bytes::from(vec![0; MAX_PAYLOAD_BYTES + 1]),
        ..record(&[])
    }));
    assert!(too_large(record(&[("k", text(&long))])));
    assert!(too_large(record(&[(&long, text("v"))])));
    assert!(refused(Record {
        payload: Bytes::new(),
        ..record(&[])
    }));
    assert!(refused(Record {
        id: 0,
        ..record(&[])
    }));
    assert!(refused(record(&[("k", text(""))])));
    assert!(
        encode(&[Record {
            payload: Bytes::from(vec![0; MAX_PAYLOAD_BYTES]),
            ..record(&[("k", text(&long[1..]))])
        }])
        .is_ok()
    );
    let mut many = record(&[]);
    for n in 0..400 {
        many.headers
            .insert(ByteString::from(format!("{n:03}")), text(&long[1..]));
    }
    assert!(too_large(many));
}

#[test]
fn a_batch_over_the_servers_request_limit_is_not_sent() {
    let half = Record {
        payload: Bytes::from(vec![0; MAX_REQUEST_BYTES / 2]),
        ..record(&[])
    };
    assert!(encode(std::slice::from_ref(&half)).is_ok());
    assert!(matches!(
        encode(&[half.clone(), half]),
        Err(LogError::TooLarge(_))
    ));
}

fn decoded(bytes: &[u8]) -> Headers {
    decode_headers(Bytes::copy_from_slice(bytes))
}

fn entry(key_kind: HeaderKind, key: &[u8], value_kind: u8, value: &[u8]) -> Vec<u8> {
    let mut buffer = BytesMut::new();
    encode_field(key_kind, key, &mut buffer);
    encode_field(HeaderKind::Raw, value, &mut buffer);
    buffer[FIELD_FRAME_BYTES + key.len()] = value_kind;
    buffer.to_vec()
}

#[test]
fn headers_of_other_producers_are_decoded_as_far_as_they_can_be() {
    let other = |bytes: &[u8]| Some(HeaderValue::Other(Bytes::copy_from_slice(bytes)));
    let of = |kind: u8, value: &[u8]| {
        decoded(&entry(HeaderKind::String, b"k", kind, value))
            .get("k")
            .cloned()
    };
    assert_eq!(of(HeaderKind::String.as_code(), b"v"), Some(text("v")));
    assert_eq!(of(HeaderKind::String.as_code(), b"\xff"), other(b"\xff"));
    assert_eq!(of(HeaderKind::Uint8.as_code(), &[1, 2]), other(&[1, 2]));
    assert_eq!(of(HeaderKind::Bool.as_code(), &[2]), other(&[2]));
    assert_eq!(of(HeaderKind::Int64.as_code(), &[1; 8]), other(&[1; 8]));
    assert_eq!(of(200, b"future"), other(b"future"));
    assert!(decoded(&entry(HeaderKind::Int8, &[1], 2, b"v")).is_empty());
    assert!(decoded(&entry(HeaderKind::String, b"\xff", 2, b"v")).is_empty());
}

#[test]
fn headers_in_any_order_are_found_and_of_equal_keys_the_last_counts() {
    let string = HeaderKind::String;
    let bytes = [("b", "1"), ("a", "2"), ("b", "3")]
        .map(|(key, value)| entry(string, key.as_bytes(), string.as_code(), value.as_bytes()));
    let headers = decoded(&bytes.concat());
    assert_eq!(
        headers.iter().collect::<Vec<_>>(),
        [("a", &text("2")), ("b", &text("3"))]
    );
    assert_eq!(headers.get("b"), Some(&text("3")));
}

#[test]
fn broken_headers_are_no_headers() {
    let whole = entry(
        HeaderKind::String,
        b"key",
        HeaderKind::String.as_code(),
        b"value",
    );
    for length in 1..whole.len() {
        assert!(decoded(&whole[..length]).is_empty(), "{length} bytes");
    }
    assert!(decoded(&[whole.clone(), vec![2]].concat()).is_empty());
    assert!(decoded(&[2, 255, 255, 255, 255, 0]).is_empty());
}

proptest! {
    #[test]
    fn any_bytes_can_stand_where_headers_should(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        decoded(&bytes);
    }

    #[test]
    fn any_headers_survive_and_match_the_sdk(entries in proptest::collection::vec(("\\PC{1,20}", value()), 0..8)) {
        let mut headers = Headers::default();
        for (key, value) in entries {
            headers.insert(ByteString::from(key), value);
        }
        let record = Record { headers: headers.clone(), ..record(&[]) };
        let message = encode(&[record]).unwrap().remove(0);
        prop_assert_eq!(&message.user_headers, &by_sdk(&headers));
        prop_assert_eq!(decode(message).headers, headers);
    }
}

fn value() -> impl Strategy<Value = HeaderValue> {
    prop_oneof![
        "\\PC{1,60}".prop_map(|text| HeaderValue::Text(ByteString::from(text))),
        any::<u8>().prop_map(HeaderValue::U8),
        any::<u16>().prop_map(HeaderValue::U16),
        any::<bool>().prop_map(HeaderValue::Bool),
        proptest::collection::vec(any::<u8>(), 1..60)
            .prop_map(|bytes| HeaderValue::Other(Bytes::from(bytes))),
    ]
}
