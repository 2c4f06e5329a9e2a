//! What the gateway wants stored as a batch of the connectors runtime.
//!
//! What always holds: ids, order, headers and payloads are the gateway's; payloads are bytes without a meaning to the
//! runtime, so that none of them can make it refuse a batch.

use std::collections::BTreeMap;

use iggy_common::{HeaderKey, HeaderValue, IggyError};
use iggy_connector_sdk::{Error, ProducedMessage, ProducedMessages, Schema};
use mqtt_gateway::log::{self, Record};

/// The batch that stores `records`.
///
/// # Errors
/// A header is over Iggy's limits, which the gateway keeps.
pub(crate) fn produced(records: &[Record]) -> Result<ProducedMessages, Error> {
    let messages = records
        .iter()
        .map(|record| {
            message(record).map_err(|error| {
                Error::Serialization(format!("a header of the message {}: {error}", record.id))
            })
        })
        .collect::<Result<_, _>>()?;
    Ok(ProducedMessages {
        schema: Schema::Raw,
        messages,
        state: None,
    })
}

fn message(record: &Record) -> Result<ProducedMessage, IggyError> {
    let headers = record
        .headers
        .iter()
        .map(|(key, value)| Ok((HeaderKey::try_from(key)?, header(value)?)))
        .collect::<Result<BTreeMap<_, _>, IggyError>>()?;
    Ok(ProducedMessage {
        id: Some(record.id),
        checksum: None,
        timestamp: None,
        origin_timestamp: None,
        headers: (!headers.is_empty()).then_some(headers),
        payload: record.payload.to_vec(),
    })
}

fn header(value: &log::HeaderValue) -> Result<HeaderValue, IggyError> {
    Ok(match value {
        log::HeaderValue::Text(text) => HeaderValue::try_from(&**text)?,
        log::HeaderValue::U8(number) => (*number).into(),
        log::HeaderValue::U16(number) => (*number).into(),
        log::HeaderValue::Bool(truth) => (*truth).into(),
        log::HeaderValue::Other(bytes) => HeaderValue::try_from(&**bytes)?,
    })
}

#[cfg(test)]
mod tests {
    use mqtt_gateway::log::Headers;

    use super::*;

    fn record(id: u128, payload: &'static [u8]) -> Record {
        Record {
            id,
            headers: Headers::default(),
            payload: payload.into(),
        }
    }

    #[test]
    fn ids_order_headers_and_payloads_are_kept() {
        let mut full = record(u128::MAX, &[0xff, 0]);
        for (key, value) in [
            ("mqtt.topic", log::HeaderValue::Text("a/b".into())),
            ("mqtt.qos", log::HeaderValue::U8(1)),
            ("mqtt.packet_id", log::HeaderValue::U16(0x0102)),
            ("mqtt.dup", log::HeaderValue::Bool(true)),
            ("other", log::HeaderValue::Other(vec![0xff].into())),
        ] {
            full.headers.insert(key.into(), value);
        }
        let batch = produced(&[full, record(7, b"second")]).unwrap();
        assert_eq!(batch.schema, Schema::Raw);
        assert!(batch.state.is_none());
        let [first, second] = &batch.messages[..] else {
            panic!("not two");
        };
        assert_eq!((first.id, second.id), (Some(u128::MAX), Some(7)));
        assert_eq!(first.payload, [0xff, 0]);
        assert_eq!(second.payload, b"second");
        assert!(second.headers.is_none());
        let headers = first.headers.as_ref().unwrap();
        let value = |key: &str| &headers[&HeaderKey::try_from(key).unwrap()];
        assert_eq!(headers.len(), 5);
        assert_eq!(value("mqtt.topic").as_str().unwrap(), "a/b");
        assert_eq!(value("mqtt.qos").as_uint8().unwrap(), 1);
        assert_eq!(value("mqtt.packet_id").as_uint16().unwrap(), 0x0102);
        assert!(value("mqtt.dup").as_bool().unwrap());
        assert_eq!(value("other").as_raw().unwrap(), [0xff]);
    }

    #[test]
    fn a_header_that_iggy_does_not_take_is_an_error_and_no_panic() {
        let mut bad = record(1, b"x");
        let long = log::HeaderValue::Text("x".repeat(256).into());
        bad.headers.insert("mqtt.topic".into(), long);
        assert!(matches!(produced(&[bad]), Err(Error::Serialization(_))));
    }
}
