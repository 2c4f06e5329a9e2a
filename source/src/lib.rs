//! The MQTT gateway's source connector: contributes the ingest role to a gateway, for as long as it is open.
//!
//! What always holds: the connector itself produces nothing. A batch of the runtime carries no stream, topic or partition,
//! so the gateway appends through its own Iggy client; [`MqttSource::poll`] waits until it is dropped, which also
//! means that no outage of Iggy can make the runtime count failed batches and stop the source.

use std::fmt;

use async_trait::async_trait;
use iggy_connector_sdk::{ConnectorState, Error, ProducedMessages, Source};
use mqtt_gateway::{Attachment, Role, attach};
use serde_json::Value;

/// See the module.
pub struct MqttSource {
    id: u32,
    config: Value,
    attachment: Option<Attachment>,
}

impl MqttSource {
    /// The connector with the runtime's `id` and `plugin_config`. It keeps no state: Iggy is the only store.
    pub fn new(id: u32, config: Value, _state: Option<ConnectorState>) -> Self {
        Self {
            id,
            config,
            attachment: None,
        }
    }
}

impl fmt::Debug for MqttSource {
    /// Without the configuration, in which someone may have put a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MqttSource")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Source for MqttSource {
    async fn open(&mut self) -> Result<(), Error> {
        let attached = attach(Role::Ingest, &self.config).await;
        self.attachment = Some(attached.map_err(|error| Error::InitError(error.to_string()))?);
        Ok(())
    }

    async fn poll(&self) -> Result<ProducedMessages, Error> {
        std::future::pending().await
    }

    async fn close(&mut self) -> Result<(), Error> {
        if let Some(attachment) = self.attachment.take() {
            attachment.detach().await;
        }
        Ok(())
    }
}
