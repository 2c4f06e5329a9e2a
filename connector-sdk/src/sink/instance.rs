//! One open sink: decodes the messages of a batch and hands them over. The sink sits behind a read-write lock: consuming
//! holds it for reading (batches may come at the same time), closing needs it for writing.

use tokio::sync::RwLock;
use tracing::{error, info, warn};

use crate::boundary::{FAILED, MISUSE, OK};
use crate::runtime::get_runtime;
use crate::{
    ConsumedMessage, MessagesMetadata, RawMessage, RawMessages, Schema, Sink, TopicMetadata,
};

/// A sink that was opened.
pub(crate) struct SinkInstance<T> {
    id: u32,
    /// `None` once it is closed.
    sink: RwLock<Option<T>>,
}

/// A batch as it came over the interface.
pub(crate) struct Batch {
    pub(crate) topic: TopicMetadata,
    pub(crate) metadata: MessagesMetadata,
    pub(crate) messages: RawMessages,
}

/// Why one message cannot be handed over.
#[derive(Debug, thiserror::Error)]
enum MessageError {
    #[error("its headers cannot be decoded: {0}")]
    Headers(postcard::Error),
    #[error("{0}")]
    Payload(crate::Error),
}

impl<T: Sink> SinkInstance<T> {
    /// Builds and opens a sink; the error is the code for the host. Blocks.
    pub(crate) fn open(id: u32, new: impl FnOnce() -> T) -> Result<Self, i32> {
        let runtime = get_runtime();
        // Also for a sink that is built or dropped here and expects to find a runtime then.
        let _entered = runtime.enter();
        let mut sink = new();
        if let Err(error) = runtime.block_on(sink.open()) {
            error!(id, "sink connector cannot be opened: {error}");
            return Err(FAILED);
        }
        Ok(Self {
            id,
            sink: RwLock::new(Some(sink)),
        })
    }

    /// Hands a batch over. A message that cannot be decoded is left out and said in the log. Blocks.
    pub(crate) fn consume(&self, batch: Batch) -> i32 {
        let id = self.id;
        let Batch {
            topic,
            metadata,
            messages,
        } = batch;
        let messages = self.decode(&topic, metadata.schema, messages.messages);
        get_runtime().block_on(async {
            let slot = self.sink.read().await;
            let Some(sink) = slot.as_ref() else {
                warn!(id, "sink connector: a batch came after it was closed");
                return MISUSE;
            };
            match sink.consume(&topic, metadata, messages).await {
                Ok(()) => OK,
                Err(error) => {
                    error!(
                        id,
                        stream = topic.stream,
                        topic = topic.topic,
                        "sink connector cannot take a batch: {error}"
                    );
                    FAILED
                }
            }
        })
    }

    /// Waits for what is being consumed, then closes the sink. Blocks.
    pub(crate) fn close(&self) -> i32 {
        let id = self.id;
        get_runtime().block_on(async {
            let Some(mut sink) = self.sink.write().await.take() else {
                error!(id, "sink connector: it is closed already");
                return MISUSE;
            };
            match sink.close().await {
                Ok(()) => info!(id, "sink connector closed"),
                Err(error) => error!(id, "sink connector closed with an error: {error}"),
            }
            OK
        })
    }

    fn decode(
        &self,
        topic: &TopicMetadata,
        schema: Schema,
        raw: Vec<RawMessage>,
    ) -> Vec<ConsumedMessage> {
        let mut messages = Vec::with_capacity(raw.len());
        let mut left_out = 0_usize;
        for message in raw {
            let offset = message.offset;
            match decode_message(schema, message) {
                Ok(message) => messages.push(message),
                Err(error) => {
                    left_out += 1;
                    // The first one of a batch says the reason; the others would say the same.
                    if left_out == 1 {
                        error!(
                            id = self.id,
                            stream = topic.stream,
                            topic = topic.topic,
                            offset,
                            "sink connector: a message is left out: {error}"
                        );
                    }
                }
            }
        }
        if left_out > 1 {
            error!(
                id = self.id,
                stream = topic.stream,
                topic = topic.topic,
                "sink connector: {left_out} messages of this batch are left out"
            );
        }
        messages
    }
}

fn decode_message(schema: Schema, raw: RawMessage) -> Result<ConsumedMessage, MessageError> {
    let headers = if raw.headers.is_empty() {
        None
    } else {
        Some(postcard::from_bytes(&raw.headers).map_err(MessageError::Headers)?)
    };
    Ok(ConsumedMessage {
        id: raw.id,
        offset: raw.offset,
        checksum: raw.checksum,
        timestamp: raw.timestamp,
        origin_timestamp: raw.origin_timestamp,
        headers,
        payload: schema
            .try_into_payload(raw.payload)
            .map_err(MessageError::Payload)?,
    })
}
