//! The MQTT gateway's sink connector: contributes the delivery role to a gateway, for as long as it is open.
//!
//! What always holds: the connector consumes nothing. The runtime commits what it polls before a sink has dealt with it,
//! so the gateway reads Iggy itself; the connector's file says `streams = []`.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use iggy_connector_sdk::{ConsumedMessage, Error, MessagesMetadata, Sink, TopicMetadata};
use mqtt_gateway::{Attachment, Role, attach};
use serde_json::Value;

/// See the module.
pub struct MqttSink {
    id: u32,
    config: Value,
    attachment: Option<Attachment>,
    /// Whether the batches that should not come were reported.
    reported: AtomicBool,
}

impl MqttSink {
    /// The connector with the runtime's `id` and `plugin_config`.
    pub fn new(id: u32, config: Value) -> Self {
        Self {
            id,
            config,
            attachment: None,
            reported: AtomicBool::new(false),
        }
    }
}

impl fmt::Debug for MqttSink {
    /// Without the configuration, in which someone may have put a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MqttSink")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Sink for MqttSink {
    async fn open(&mut self) -> Result<(), Error> {
        let attached = attach(Role::Delivery, &self.config).await;
        self.attachment = Some(attached.map_err(|error| Error::InitError(error.to_string()))?);
        Ok(())
    }

    async fn consume(
        &self,
        topic_metadata: &TopicMetadata,
        _messages_metadata: MessagesMetadata,
        _messages: Vec<ConsumedMessage>,
    ) -> Result<(), Error> {
        if !self.reported.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                connector = self.id,
                stream = topic_metadata.stream,
                topic = topic_metadata.topic,
                "the runtime reads messages for the MQTT sink, which reads Iggy itself and drops these; \
                 set streams = [] in the connector's file"
            );
        }
        Ok(())
    }

    async fn close(&mut self) -> Result<(), Error> {
        if let Some(attachment) = self.attachment.take() {
            attachment.detach().await;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

    use iggy_connector_sdk::Schema;
    use serde_json::json;

    use super::*;

    /// Keeps what is logged.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn batches_that_should_not_come_are_dropped_and_reported_once() {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .with_ansi(false);
        let _logging = tracing::subscriber::set_default(subscriber.finish());

        let sink = MqttSink::new(1, json!({}));
        let topic = TopicMetadata {
            stream: "building_north".to_owned(),
            topic: "telemetry".to_owned(),
        };
        for _ in 0..3 {
            let metadata = MessagesMetadata {
                partition_id: 0,
                current_offset: 0,
                schema: Schema::Raw,
            };
            sink.consume(&topic, metadata, Vec::new()).await.unwrap();
        }
        let logged = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        assert_eq!(logged.lines().count(), 1, "{logged}");
        for text in ["WARN", "streams = []", "building_north", "telemetry"] {
            assert!(logged.contains(text), "{text} is not in {logged}");
        }
    }

    #[tokio::test]
    async fn a_configuration_that_cannot_be_used_fails_to_open_with_the_reason_in_one_line() {
        let mut sink = MqttSink::new(1, json!({"no_such_key": 1}));
        let Err(Error::InitError(reason)) = sink.open().await else {
            panic!("opened")
        };
        assert!(reason.contains("no_such_key"), "{reason}");
        assert!(!reason.contains('\n'), "{reason}");
        sink.close().await.unwrap();
    }
}
