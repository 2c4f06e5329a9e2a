//! The data that crosses between the runtime and a plugin. What crosses is postcard: the fields in the order of their
//! declaration and the variants by their position, so order is part of the format and must not change.
//!
//! [`ConsumedMessage`] and [`Payload`] do not cross; they are what a sink is given after decoding.

use std::collections::BTreeMap;
use std::fmt;

use iggy_common::{HeaderKey, HeaderValue};
use serde::{Deserialize, Serialize};

use crate::Error;

/// What a source wants to find again after a restart: the runtime stores it with each acknowledged batch and passes it
/// when the source is opened.
#[derive(Debug, Serialize, Deserialize)]
pub struct ConnectorState(pub Vec<u8>);

/// One batch of a source.
#[derive(Debug, Serialize, Deserialize)]
pub struct ProducedMessages {
    /// How the runtime has to read the payloads.
    pub schema: Schema,
    /// The messages in the order in which they have to be stored.
    pub messages: Vec<ProducedMessage>,
    /// The state to store once the batch was sent, if it changed.
    pub state: Option<ConnectorState>,
}

/// One message of a source. Iggy chooses what is `None`.
#[derive(Debug, Serialize, Deserialize)]
pub struct ProducedMessage {
    /// The message id, the same in every retry.
    pub id: Option<u128>,
    /// A checksum of the payload.
    pub checksum: Option<u64>,
    /// Microseconds since the Unix epoch.
    pub timestamp: Option<u64>,
    /// When the message came to be at its origin, in microseconds since the Unix epoch.
    pub origin_timestamp: Option<u64>,
    /// User headers.
    pub headers: Option<BTreeMap<HeaderKey, HeaderValue>>,
    /// 1 byte to 64,000,000 bytes.
    pub payload: Vec<u8>,
}

/// Where a sink's batch comes from.
#[derive(Debug, Serialize, Deserialize)]
pub struct TopicMetadata {
    /// The stream's name.
    pub stream: String,
    /// The topic's name.
    pub topic: String,
}

/// What is common to a sink's batch.
#[derive(Debug, Serialize, Deserialize)]
pub struct MessagesMetadata {
    /// The partition, numbered from 0.
    pub partition_id: u32,
    /// The partition's newest offset when the batch was polled.
    pub current_offset: u64,
    /// How the payloads have to be read.
    pub schema: Schema,
}

/// A sink's batch as it crosses.
#[derive(Debug, Serialize, Deserialize)]
pub struct RawMessages {
    /// How the payloads have to be read.
    pub schema: Schema,
    /// The messages by rising offset.
    pub messages: Vec<RawMessage>,
}

/// One message of a sink's batch as it crosses.
#[derive(Debug, Serialize, Deserialize)]
pub struct RawMessage {
    /// The message id.
    pub id: u128,
    /// The message's offset in its partition.
    pub offset: u64,
    /// The checksum that the server keeps.
    pub checksum: u64,
    /// When the server stored it, in microseconds since the Unix epoch.
    pub timestamp: u64,
    /// When the message came to be at its origin, in microseconds since the Unix epoch.
    pub origin_timestamp: u64,
    /// Postcard of the map of user headers; empty if there are none.
    pub headers: Vec<u8>,
    /// The payload.
    pub payload: Vec<u8>,
}

/// One message as a sink is given it.
#[derive(Debug)]
pub struct ConsumedMessage {
    /// The message id.
    pub id: u128,
    /// The message's offset in its partition.
    pub offset: u64,
    /// The checksum that the server keeps.
    pub checksum: u64,
    /// When the server stored it, in microseconds since the Unix epoch.
    pub timestamp: u64,
    /// When the message came to be at its origin, in microseconds since the Unix epoch.
    pub origin_timestamp: u64,
    /// User headers.
    pub headers: Option<BTreeMap<HeaderKey, HeaderValue>>,
    /// The payload, read as the schema says.
    pub payload: Payload,
}

/// How payloads have to be read.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Schema {
    /// JSON text.
    #[default]
    Json,
    /// Bytes without a meaning to the runtime.
    Raw,
    /// UTF-8 text.
    Text,
    /// Protocol Buffers.
    Proto,
    /// FlatBuffers.
    FlatBuffer,
    /// Apache Avro.
    Avro,
}

impl Schema {
    /// Reads a payload as this schema says. Only JSON and text are decoded; Protocol Buffers stay raw bytes, because
    /// this crate has no decoder for them, and FlatBuffers and Avro are handed on undecoded.
    pub fn try_into_payload(self, value: Vec<u8>) -> Result<Payload, Error> {
        match self {
            Schema::Json => serde_json::from_slice(&value)
                .map(Payload::Json)
                .map_err(|_| Error::InvalidJsonPayload),
            Schema::Text => String::from_utf8(value)
                .map(Payload::Text)
                .map_err(|_| Error::InvalidTextPayload),
            Schema::Raw | Schema::Proto => Ok(Payload::Raw(value)),
            Schema::FlatBuffer => Ok(Payload::FlatBuffer(value)),
            Schema::Avro => Ok(Payload::Avro(value)),
        }
    }
}

impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Schema::Json => "json",
            Schema::Raw => "raw",
            Schema::Text => "text",
            Schema::Proto => "proto",
            Schema::FlatBuffer => "flatbuffer",
            Schema::Avro => "avro",
        })
    }
}

/// A payload, read as its schema says. (The official crate's JSON is `simd_json`'s.)
#[derive(Debug, Clone)]
pub enum Payload {
    /// JSON.
    Json(serde_json::Value),
    /// Bytes.
    Raw(Vec<u8>),
    /// Text.
    Text(String),
    /// Protocol Buffers in their text form; [`Schema::try_into_payload`] never returns it.
    Proto(String),
    /// A FlatBuffer, undecoded.
    FlatBuffer(Vec<u8>),
    /// Avro, undecoded.
    Avro(Vec<u8>),
}

impl Payload {
    /// The payload's bytes.
    pub fn try_into_vec(self) -> Result<Vec<u8>, Error> {
        match self {
            Payload::Json(value) => {
                serde_json::to_vec(&value).map_err(|_| Error::InvalidJsonPayload)
            }
            Payload::Text(text) | Payload::Proto(text) => Ok(text.into_bytes()),
            Payload::Raw(bytes) | Payload::FlatBuffer(bytes) | Payload::Avro(bytes) => Ok(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_read_as_its_schema_says_and_keeps_its_bytes() {
        for (schema, bytes) in [
            (Schema::Json, br#"{"t":21.5}"#.as_slice()),
            (Schema::Raw, &[0, 159, 146, 150]),
            (Schema::Text, "grün".as_bytes()),
            (Schema::Proto, &[8, 1]),
            (Schema::FlatBuffer, &[1, 2, 3]),
            (Schema::Avro, &[4, 5, 6]),
        ] {
            let payload = schema.try_into_payload(bytes.to_vec()).unwrap();
            assert_eq!(payload.try_into_vec().unwrap(), bytes, "{schema}");
        }
    }

    #[test]
    fn a_payload_that_contradicts_its_schema_is_refused() {
        let not_utf8 = vec![0xff, 0xfe];
        assert_eq!(
            Schema::Text.try_into_payload(not_utf8.clone()).unwrap_err(),
            Error::InvalidTextPayload
        );
        assert_eq!(
            Schema::Json.try_into_payload(not_utf8).unwrap_err(),
            Error::InvalidJsonPayload
        );
    }

    #[test]
    fn a_schema_is_written_in_snake_case_in_configurations() {
        let read: Schema = serde_json::from_str("\"flat_buffer\"").unwrap();
        assert_eq!(read, Schema::FlatBuffer);
        assert_eq!(Schema::FlatBuffer.to_string(), "flatbuffer");
    }
}
