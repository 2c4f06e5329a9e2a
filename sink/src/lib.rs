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
