//! What crosses the interface, byte for byte. The bytes below were put together by hand from postcard's specification
//! (integers as LEB128 varints; lengths before contents; `00`/`01` before an optional value; variants by position) and
//! the encoding of `iggy_common`'s headers (kind by position, value as Base64 text). The runtime was built with the
//! official crate, so a change here is a change of the interface.

// Clippy takes only the `#[test]` functions themselves for tests.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fmt::Debug;

use iggy_common::{HeaderKey, HeaderValue};
use iggy_connector_sdk::{
    ConnectorState, MessagesMetadata, ProducedMessage, ProducedMessages, RawMessage, RawMessages,
    Schema, TopicMetadata,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Bytes from hexadecimal digits; blanks are layout.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    assert_eq!(digits.len() % 2, 0);
    digits
        .chunks(2)
        .map(|pair| (pair[0] * 16 + pair[1]) as u8)
        .collect()
}

/// The value encodes to the golden bytes, and they decode to a value that prints the same.
fn assert_golden<T: Serialize + DeserializeOwned + Debug>(value: &T, golden: &str) {
    let golden = hex(golden);
    let encoded = postcard::to_allocvec(value).unwrap();
    assert_eq!(
        encoded, golden,
        "encoded {encoded:02x?}, expected {golden:02x?}"
    );
    let (decoded, rest) = postcard::take_from_bytes::<T>(&golden).unwrap();
    assert!(rest.is_empty());
    assert_eq!(format!("{decoded:?}"), format!("{value:?}"));
}

fn headers() -> BTreeMap<HeaderKey, HeaderValue> {
    BTreeMap::from([
        (HeaderKey::try_from("qos").unwrap(), HeaderValue::from(1_u8)),
        (
            HeaderKey::try_from("client").unwrap(),
            HeaderValue::try_from("c1").unwrap(),
        ),
        (
            HeaderKey::from(7_u32),
            HeaderValue::try_from([0xff, 0x00].as_slice()).unwrap(),
        ),
    ])
}

/// The map above: ordered by kind, then by bytes. String is kind 1, Uint8 is 8, Uint32 is 10, Raw is 0.
const HEADERS: &str = "03 \
    01 08 59327870 5a573530  01 04 597a453d \
    01 04 6357397a           08 04 41513d3d \
    0a 08 42774141 41413d3d  00 04 2f77413d";

#[test]
fn a_schema_is_its_position() {
    let schemas = [
        Schema::Json,
        Schema::Raw,
        Schema::Text,
        Schema::Proto,
        Schema::FlatBuffer,
        Schema::Avro,
    ];
    for (position, schema) in schemas.iter().enumerate() {
        assert_golden(schema, &format!("{position:02x}"));
    }
    assert!(postcard::from_bytes::<Schema>(&[6]).is_err());
}

#[test]
fn user_headers_are_a_map_of_kinds_and_base64() {
    assert_golden(&headers(), HEADERS);
    assert_golden(&BTreeMap::<HeaderKey, HeaderValue>::new(), "00");
}

#[test]
fn a_state_is_its_bytes() {
    assert_golden(&ConnectorState(vec![]), "00");
    assert_golden(&ConnectorState(vec![0xde, 0xad]), "02 dead");
}

#[test]
fn a_produced_message_has_a_mark_before_each_optional_field() {
    let bare = ProducedMessage {
        id: None,
        checksum: None,
        timestamp: None,
        origin_timestamp: None,
        headers: None,
        payload: vec![0x2a],
    };
    assert_golden(&bare, "00 00 00 00 00 01 2a");
    let full = ProducedMessage {
        id: Some(u128::MAX),
        checksum: Some(u64::MAX),
        timestamp: Some(1_700_000_000_000_000),
        origin_timestamp: Some(0),
        headers: Some(headers()),
        payload: vec![0x00, 0xff],
    };
    let golden = format!(
        "01 ffffffffffffffffffffffffffffffffffff03 \
         01 ffffffffffffffffff01 \
         01 8080f9c0c1c48203 \
         01 00 \
         01 {HEADERS} \
         02 00ff"
    );
    assert_golden(&full, &golden);
}

#[test]
fn produced_messages_end_with_the_state() {
    let message = |id| ProducedMessage {
        id: Some(id),
        checksum: None,
        timestamp: None,
        origin_timestamp: None,
        headers: None,
        payload: b"ab".to_vec(),
    };
    let with_state = ProducedMessages {
        schema: Schema::Raw,
        messages: vec![message(1), message(300)],
        state: Some(ConnectorState(vec![7])),
    };
    assert_golden(
        &with_state,
        "01 02 0101 00000000 026162 01ac02 00000000 026162 01 01 07",
    );
    let empty = ProducedMessages {
        schema: Schema::Avro,
        messages: vec![],
        state: None,
    };
    assert_golden(&empty, "05 00 00");
}

#[test]
fn topic_metadata_is_two_texts() {
    let topic = TopicMetadata {
        stream: "building_north".to_owned(),
        topic: "t\u{e4}".to_owned(),
    };
    assert_golden(&topic, "0e 6275696c64696e675f6e6f727468 03 74c3a4");
}

#[test]
fn messages_metadata_ends_with_the_schema() {
    let metadata = MessagesMetadata {
        partition_id: u32::MAX,
        current_offset: 300,
        schema: Schema::Text,
    };
    assert_golden(&metadata, "ffffffff0f ac02 02");
}

#[test]
fn raw_messages_carry_their_headers_as_bytes() {
    let encoded_headers = hex(HEADERS);
    let messages = RawMessages {
        schema: Schema::Json,
        messages: vec![
            RawMessage {
                id: 258,
                offset: 42,
                checksum: u64::MAX,
                timestamp: 1_700_000_000_000_000,
                origin_timestamp: 1_699_999_999_999_999,
                headers: encoded_headers.clone(),
                payload: b"{}".to_vec(),
            },
            RawMessage {
                id: 0,
                offset: 43,
                checksum: 0,
                timestamp: 0,
                origin_timestamp: 0,
                headers: vec![],
                payload: vec![],
            },
        ],
    };
    let golden = format!(
        "00 02 \
         8202 2a ffffffffffffffffff01 8080f9c0c1c48203 fffff8c0c1c48203 {:02x} {HEADERS} 02 7b7d \
         00 2b 00 00 00 00 00",
        encoded_headers.len()
    );
    assert_golden(&messages, &golden);
}

#[test]
fn bytes_that_are_cut_off_are_an_error() {
    let whole = hex("01 02 0101 00000000 026162 01ac02 00000000 026162 01 01 07");
    for len in 0..whole.len() {
        assert!(
            postcard::from_bytes::<ProducedMessages>(&whole[..len]).is_err(),
            "{len}"
        );
    }
}
