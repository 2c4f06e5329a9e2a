//! Records as Iggy messages and back.
//!
//! What always holds: order and ids are kept; what Iggy would refuse is refused before it is sent, with a reason; a message
//! that another producer wrote in any shape is decoded without an error and without copying its payload or its texts.
//!
//! User headers are a sequence of entries (Iggy 0.9): key kind (1 byte), key length (4 bytes, little-endian), key, value kind,
//! value length, value; kinds are `HeaderKind` codes, both lengths are 1 to 255, and the entries are sorted by key.

use ::iggy::prelude::{
    HeaderKind, IggyMessage, IggyMessageHeader, IggyTimestamp, MAX_PAYLOAD_SIZE,
    MAX_USER_HEADERS_SIZE,
};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use bytestring::ByteString;

use crate::log::{HeaderValue, Headers, LogError, MAX_HEADER_VALUE_BYTES, Record, StoredRecord};

/// The largest request that a server accepts by default (`message_bus.max_message_size`), in bytes. It closes the connection
/// on a larger one, which would look like an outage.
const MAX_REQUEST_BYTES: usize = 64 * 1024 * 1024;
/// An upper bound of what a request has besides its messages: two headers of 256 bytes, and the names of stream and topic.
const REQUEST_FRAME_BYTES: usize = 2 * 256 + 2 * 258 + 64;
/// What a message has besides payload and user headers.
const MESSAGE_FRAME_BYTES: usize = 48;
/// Kind and length before each key and each value.
const FIELD_FRAME_BYTES: usize = 1 + 4;

/// The messages for `records`, all or none.
pub(super) fn encode(records: &[Record]) -> Result<Vec<IggyMessage>, LogError> {
    let mut headers_bytes = 0;
    let mut request_bytes = REQUEST_FRAME_BYTES;
    for record in records {
        let bytes = check(record)?;
        headers_bytes += bytes;
        request_bytes += MESSAGE_FRAME_BYTES + record.payload.len() + bytes;
    }
    if request_bytes > MAX_REQUEST_BYTES {
        let count = records.len();
        return Err(LogError::TooLarge(format!(
            "{count} records make a request of {request_bytes} bytes; at most {MAX_REQUEST_BYTES} fit"
        )));
    }
    let origin_timestamp = IggyTimestamp::now().as_micros();
    // One allocation holds the user headers of the whole batch.
    let mut buffer = BytesMut::with_capacity(headers_bytes);
    Ok(records
        .iter()
        .map(|record| message(record, origin_timestamp, &mut buffer))
        .collect())
}

fn message(record: &Record, origin_timestamp: u64, buffer: &mut BytesMut) -> IggyMessage {
    encode_headers(&record.headers, buffer);
    let user_headers = buffer.split().freeze();
    let header = IggyMessageHeader {
        id: record.id,
        origin_timestamp,
        user_headers_length: length(user_headers.len()),
        payload_length: length(record.payload.len()),
        ..IggyMessageHeader::default()
    };
    let user_headers = (!user_headers.is_empty()).then_some(user_headers);
    IggyMessage {
        header,
        payload: record.payload.clone(),
        user_headers,
    }
}

/// Says how many bytes the record's headers take.
fn check(record: &Record) -> Result<usize, LogError> {
    if record.id == 0 {
        return Err(LogError::Refused(
            "a record has the id 0, which Iggy replaces by one of its own".into(),
        ));
    }
    if record.payload.is_empty() {
        return Err(LogError::Refused(
            "a record has no payload, and Iggy stores none that is empty".into(),
        ));
    }
    if record.payload.len() > MAX_PAYLOAD_SIZE as usize {
        return Err(LogError::TooLarge(format!(
            "a payload has {} bytes; at most {MAX_PAYLOAD_SIZE} fit",
            record.payload.len()
        )));
    }
    let mut total = 0;
    for (key, value) in record.headers.iter() {
        let value_bytes = value_length(value);
        for (what, bytes) in [("key", key.len()), ("value", value_bytes)] {
            if bytes == 0 {
                return Err(LogError::Refused(format!(
                    "the {what} of the header {key:?} is empty"
                )));
            }
            if bytes > MAX_HEADER_VALUE_BYTES {
                return Err(LogError::TooLarge(format!(
                    "the {what} of the header {key:?} has {bytes} bytes; at most {MAX_HEADER_VALUE_BYTES} fit"
                )));
            }
        }
        total += 2 * FIELD_FRAME_BYTES + key.len() + value_bytes;
    }
    if total > MAX_USER_HEADERS_SIZE as usize {
        return Err(LogError::TooLarge(format!(
            "the headers of a record have {total} bytes; at most {MAX_USER_HEADERS_SIZE} fit"
        )));
    }
    Ok(total)
}

fn value_length(value: &HeaderValue) -> usize {
    match value {
        HeaderValue::Text(text) => text.len(),
        HeaderValue::U8(_) | HeaderValue::Bool(_) => 1,
        HeaderValue::U16(_) => 2,
        HeaderValue::Other(bytes) => bytes.len(),
    }
}

fn encode_headers(headers: &Headers, buffer: &mut BytesMut) {
    for (key, value) in headers.iter() {
        encode_field(HeaderKind::String, key.as_bytes(), buffer);
        match value {
            HeaderValue::Text(text) => encode_field(HeaderKind::String, text.as_bytes(), buffer),
            HeaderValue::U8(number) => encode_field(HeaderKind::Uint8, &[*number], buffer),
            HeaderValue::U16(number) => {
                encode_field(HeaderKind::Uint16, &number.to_le_bytes(), buffer)
            }
            HeaderValue::Bool(truth) => encode_field(HeaderKind::Bool, &[u8::from(*truth)], buffer),
            HeaderValue::Other(bytes) => encode_field(HeaderKind::Raw, bytes, buffer),
        }
    }
}

fn encode_field(kind: HeaderKind, bytes: &[u8], buffer: &mut BytesMut) {
    buffer.put_u8(kind.as_code());
    buffer.put_u32_le(length(bytes.len()));
    buffer.put_slice(bytes);
}

/// A length that was checked to be far below `u32::MAX`.
fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// A polled message as a record. Payload and texts share the memory of the reply.
pub(super) fn decode(message: IggyMessage) -> StoredRecord {
    let IggyMessage {
        header,
        payload,
        user_headers,
    } = message;
    StoredRecord {
        offset: header.offset,
        id: header.id,
        timestamp_micros: header.timestamp,
        headers: user_headers.map(decode_headers).unwrap_or_default(),
        payload,
    }
}

/// Nothing if the bytes are not a sequence of entries. A key that is not text is left out: nobody could ask for it.
fn decode_headers(mut bytes: Bytes) -> Headers {
    let mut entries = Vec::new();
    while bytes.has_remaining() {
        let (Some((key_kind, key)), Some((value_kind, value))) =
            (decode_field(&mut bytes), decode_field(&mut bytes))
        else {
            return Headers::default();
        };
        if key_kind == HeaderKind::String.as_code()
            && let Ok(key) = ByteString::try_from(key)
        {
            entries.push((key, decode_value(value_kind, value)));
        }
    }
    // Sorting once keeps a record with very many headers cheap. Of equal keys the last counts.
    entries.sort_by(|(a, _), (b, _)| a.cmp(b));
    entries.reverse();
    entries.dedup_by(|(a, _), (b, _)| a == b);
    entries.reverse();
    Headers(entries)
}

fn decode_field(bytes: &mut Bytes) -> Option<(u8, Bytes)> {
    if bytes.remaining() < FIELD_FRAME_BYTES {
        return None;
    }
    let kind = bytes.get_u8();
    let length = bytes.get_u32_le() as usize;
    (bytes.remaining() >= length).then(|| (kind, bytes.split_to(length)))
}

fn decode_value(kind: u8, bytes: Bytes) -> HeaderValue {
    match (HeaderKind::from_code(kind), &bytes[..]) {
        (Ok(HeaderKind::String), _) => {
            ByteString::try_from(bytes.clone()).map_or(HeaderValue::Other(bytes), HeaderValue::Text)
        }
        (Ok(HeaderKind::Uint8), [number]) => HeaderValue::U8(*number),
        (Ok(HeaderKind::Uint16), [low, high]) => {
            HeaderValue::U16(u16::from_le_bytes([*low, *high]))
        }
        (Ok(HeaderKind::Bool), [0]) => HeaderValue::Bool(false),
        (Ok(HeaderKind::Bool), [1]) => HeaderValue::Bool(true),
        _ => HeaderValue::Other(bytes),
    }
}

#[cfg(test)]
mod tests;
