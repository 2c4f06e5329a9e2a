//! The MQTT gateway's source connector: contributes the ingest role to a gateway, for as long as it is open.
//!
//! What always holds: with `produce = "client"`, the default, the connector itself produces nothing. A batch of the runtime
//! carries no stream, topic or partition, so the gateway appends through its own Iggy client; [`MqttSource::poll`] waits
//! until it is dropped, which also means that no outage of Iggy can make the runtime count failed batches and stop the
//! source. With `produce = "runtime"` the gateway's batches go out through [`MqttSource::poll`], and each batch result is
//! passed on to it; a batch without a result is never acknowledged.

mod batch;

use std::fmt;

use async_trait::async_trait;
use iggy_connector_sdk::source::SourceBatchResult;
use iggy_connector_sdk::{ConnectorState, Error, ProducedMessages, Source};
use mqtt_gateway::ingest::runtime::Batches;
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

    /// What the runtime is to store; `None` if it is to store nothing.
    fn batches(&self) -> Option<&Batches> {
        self.attachment.as_ref()?.batches()
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
        match self.batches() {
            Some(batches) => batch::produced(&batches.next().await),
            None => std::future::pending().await,
        }
    }

    async fn on_batch_result(&self, result: SourceBatchResult) -> Result<(), Error> {
        if let Some(batches) = self.batches() {
            match result {
                SourceBatchResult::Ack => batches.acknowledge(),
                SourceBatchResult::Nack => batches.refuse(),
            }
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
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn a_configuration_that_cannot_be_used_fails_to_open_with_the_reason_in_one_line() {
        let mut source = MqttSource::new(1, json!({"no_such_key": 1}), None);
        let Err(Error::InitError(reason)) = source.open().await else {
            panic!("opened")
        };
        assert!(reason.contains("no_such_key"), "{reason}");
        assert!(!reason.contains('\n'), "{reason}");
        source.close().await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_ever_polled_by_default() {
        let source = MqttSource::new(1, json!({}), None);
        let a_year = Duration::from_secs(365 * 24 * 3600);
        assert!(tokio::time::timeout(a_year, source.poll()).await.is_err());
    }

    #[test]
    fn a_debug_line_shows_no_configuration() {
        let source = MqttSource::new(1, json!({"password": "hush"}), None);
        assert!(!format!("{source:?}").contains("hush"));
    }
}
