//! A plugin for the tests of the connector host: a source and a sink in one library, which write everything that
//! happens to them into a file.
//!
//! Always holds: a line is in the file before the call that it tells of returns.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;

use async_trait::async_trait;
use iggy_connector_sdk::source::SourceBatchResult;
use iggy_connector_sdk::{
    ConnectorState, ConsumedMessage, Error, MessagesMetadata, ProducedMessage, ProducedMessages,
    Schema, Sink, Source, TopicMetadata, sink_connector, source_connector,
};
use serde::Deserialize;
use tokio::sync::Mutex;

source_connector!(FixtureSource);
sink_connector!(FixtureSink);

/// The `plugin_config` of both.
#[derive(Debug, Clone, Deserialize)]
struct Config {
    /// How the connector calls itself in the journal.
    name: String,
    /// The file that gets one line for each thing that happens.
    journal: PathBuf,
    /// Whether `open` fails.
    #[serde(default)]
    fail_open: bool,
    /// The source's batches: each a list of payloads.
    #[serde(default)]
    batches: Vec<Vec<String>>,
    /// The batches' schema.
    #[serde(default = "raw")]
    schema: Schema,
    /// What an environment variable set, if one did.
    marker: Option<serde_json::Value>,
}

fn raw() -> Schema {
    Schema::Raw
}

impl Config {
    fn note(&self, what: &str) {
        let line = format!("{} {what}\n", self.name);
        let written = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.journal)
            .and_then(|mut file| file.write_all(line.as_bytes()));
        if let Err(reason) = written {
            tracing::error!("cannot write the journal: {reason}");
        }
    }

    fn opened(&self, id: u32) -> Result<(), Error> {
        if self.fail_open {
            return Err(Error::InitError(format!("{} was told to fail", self.name)));
        }
        tracing::info!("{} is opened", self.name);
        self.note(&format!("open {id}"));
        if let Some(marker) = &self.marker {
            self.note(&format!("marker {marker}"));
        }
        Ok(())
    }
}

/// Produces the configured batches one after the other, each until it is acknowledged.
#[derive(Debug)]
struct FixtureSource {
    id: u32,
    config: Config,
    /// How many batches are acknowledged; it is the source's state too.
    done: Mutex<usize>,
}

impl FixtureSource {
    fn new(id: u32, config: Config, state: Option<ConnectorState>) -> Self {
        let done = state.map_or(0, |state| {
            usize::from(state.0.first().copied().unwrap_or(0))
        });
        Self {
            id,
            config,
            done: Mutex::new(done),
        }
    }
}

#[async_trait]
impl Source for FixtureSource {
    async fn open(&mut self) -> Result<(), Error> {
        self.config.opened(self.id)
    }

    async fn poll(&self) -> Result<ProducedMessages, Error> {
        let done = *self.done.lock().await;
        let Some(batch) = self.config.batches.get(done) else {
            return std::future::pending().await;
        };
        let messages = batch
            .iter()
            .map(|payload| ProducedMessage {
                id: None,
                checksum: None,
                timestamp: None,
                origin_timestamp: None,
                headers: None,
                payload: payload.clone().into_bytes(),
            })
            .collect();
        Ok(ProducedMessages {
            schema: self.config.schema,
            messages,
            state: Some(ConnectorState(vec![
                u8::try_from(done + 1).unwrap_or(u8::MAX),
            ])),
        })
    }

    async fn on_batch_result(&self, result: SourceBatchResult) -> Result<(), Error> {
        if result == SourceBatchResult::Ack {
            *self.done.lock().await += 1;
        }
        self.config.note(match result {
            SourceBatchResult::Ack => "ack",
            SourceBatchResult::Nack => "nack",
        });
        Ok(())
    }

    async fn close(&mut self) -> Result<(), Error> {
        self.config.note("close");
        Ok(())
    }
}

/// Writes down what it is given.
#[derive(Debug)]
struct FixtureSink {
    id: u32,
    config: Config,
}

impl FixtureSink {
    fn new(id: u32, config: Config) -> Self {
        Self { id, config }
    }
}

#[async_trait]
impl Sink for FixtureSink {
    async fn open(&mut self) -> Result<(), Error> {
        self.config.opened(self.id)
    }

    async fn consume(
        &self,
        topic: &TopicMetadata,
        metadata: MessagesMetadata,
        messages: Vec<ConsumedMessage>,
    ) -> Result<(), Error> {
        for message in messages {
            let payload = message.payload.try_into_vec()?;
            self.config.note(&format!(
                "consume {}/{} partition {} offset {} headers {} payload {}",
                topic.stream,
                topic.topic,
                metadata.partition_id,
                message.offset,
                message.headers.map_or(0, |headers| headers.len()),
                String::from_utf8_lossy(&payload),
            ));
        }
        Ok(())
    }

    async fn close(&mut self) -> Result<(), Error> {
        self.config.note("close");
        Ok(())
    }
}
