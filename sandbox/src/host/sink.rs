//! One sink connector: opening it, giving it what is polled from Iggy, closing it.
//!
//! Always holds: offsets are committed when messages are polled, and the plugin's result of a batch changes nothing,
//! as in the connectors runtime 0.5.0. A sink without streams runs and is given nothing.

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt;
use iggy::prelude::{
    AutoCommit, AutoCommitWhen, IggyClient, IggyConsumer, IggyDuration, IggyMessage,
    PollingStrategy,
};
use iggy_connector_sdk::{MessagesMetadata, RawMessage, RawMessages, Schema, TopicMetadata};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_blocking};
use tracing::{debug, error, info, warn};

use super::connector::{
    Connector, ConnectorError, Info, Status, check_supported, fits, next_id, plugin_config_json,
};
use super::connector_files::SinkConfig;
use super::library_path;
use super::loader::SinkLibrary;

/// How long a task that consumes may take to end.
const TASK_END: Duration = Duration::from_secs(5);

/// A sink connector.
pub(super) struct Sink {
    /// Its public state.
    pub(super) connector: Connector,
    /// Held while it is started or stopped.
    pub(super) exclusive: tokio::sync::Mutex<()>,
    library: Option<Arc<SinkLibrary>>,
    config: Mutex<SinkConfig>,
    opened: Mutex<Option<Opened>>,
    running: Mutex<Running>,
}

/// A sink that was opened and consumes nothing yet.
struct Opened {
    id: u32,
    feeds: Vec<Feed>,
}

/// One topic that a sink reads.
struct Feed {
    consumer: IggyConsumer,
    schema: Schema,
    batch_length: usize,
    topic: TopicMetadata,
}

#[derive(Default)]
struct Running {
    /// Dropped to end the tasks.
    stop: Option<watch::Sender<()>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Sink {
    /// Loads the plugin and opens the sink. When that fails the sink exists all the same, and shows why.
    pub(super) async fn open(config: SinkConfig, client: &IggyClient) -> Arc<Self> {
        let id = next_id();
        let connector = Connector::starting(id, &config);
        let library = load(&connector, &config.path);
        let mut sink = Self {
            connector,
            exclusive: tokio::sync::Mutex::new(()),
            library: None,
            config: Mutex::new(config.clone()),
            opened: Mutex::new(None),
            running: Mutex::new(Running::default()),
        };
        let opened = match library {
            Ok(library) => {
                let library = Arc::new(library);
                sink.library = Some(Arc::clone(&library));
                open(&library, id, &config, client).await
            }
            Err(reason) => Err(reason),
        };
        match opened {
            Ok(opened) => {
                info!("opened the sink {} with id {id}", config.key);
                sink.opened = Mutex::new(Some(opened));
            }
            Err(reason) => {
                error!("the sink {} failed: {reason}", config.key);
                sink.connector.set_error(&reason.to_string());
            }
        }
        Arc::new(sink)
    }

    /// Its public state.
    pub(super) fn info(&self) -> Info {
        self.connector.info()
    }

    /// The configuration it was last opened with.
    pub(super) fn config(&self) -> SinkConfig {
        self.config.lock().clone()
    }

    /// The plugin's version.
    pub(super) fn version(&self) -> String {
        match &self.library {
            Some(library) => library.version(),
            None => "unknown".to_owned(),
        }
    }

    /// Lets an opened sink consume; one that failed stays as it is.
    pub(super) fn start(self: &Arc<Self>) {
        let Some(Opened { id, feeds }) = self.opened.lock().take() else {
            return;
        };
        let Some(library) = self.library.clone() else {
            return;
        };
        let (stop, stopped) = watch::channel(());
        let tasks = feeds
            .into_iter()
            .map(|feed| {
                let (sink, library, stopped) =
                    (Arc::clone(self), Arc::clone(&library), stopped.clone());
                tokio::spawn(sink.consume(id, feed, library, stopped))
            })
            .collect();
        *self.running.lock() = Running {
            stop: Some(stop),
            tasks,
        };
        self.connector.set_status(Status::Running);
    }

    /// Ends the sink's tasks and then closes it. The caller holds [`Self::exclusive`].
    pub(super) async fn stop(&self) {
        let id = self.info().id;
        let Running { stop, tasks } = std::mem::take(&mut *self.running.lock());
        drop(stop);
        for mut task in tasks {
            if tokio::time::timeout(TASK_END, &mut task).await.is_err() {
                warn!("a task of the sink with id {id} does not end, breaking it off");
                task.abort();
            }
        }
        if let Some(library) = self.library.clone() {
            let closed = spawn_blocking(move || library.close(id)).await;
            info!("closed the sink with id {id}: {closed:?}");
        }
        self.connector.set_status(Status::Stopped);
    }

    /// Stops the sink and opens it again under a new id. The caller holds [`Self::exclusive`].
    ///
    /// # Errors
    /// Says why it could not be opened again; it is stopped then.
    pub(super) async fn restart(
        self: &Arc<Self>,
        config: SinkConfig,
        client: &IggyClient,
    ) -> Result<(), ConnectorError> {
        self.stop().await;
        let Some(library) = &self.library else {
            return Err(ConnectorError::NotLoaded(config.key));
        };
        let id = next_id();
        let opened = open(library, id, &config, client).await?;
        info!("opened the sink {} again, with id {id}", config.key);
        self.connector.set_id(id);
        *self.config.lock() = config;
        *self.opened.lock() = Some(opened);
        self.start();
        Ok(())
    }

    async fn consume(
        self: Arc<Self>,
        id: u32,
        mut feed: Feed,
        library: Arc<SinkLibrary>,
        mut stopped: watch::Receiver<()>,
    ) {
        let mut batch: Vec<IggyMessage> = Vec::new();
        loop {
            let next = tokio::select! {
                _ = stopped.changed() => break,
                next = feed.consumer.next() => next,
            };
            let received = match next {
                Some(Ok(received)) => received,
                Some(Err(reason)) => {
                    error!("polling for the sink with id {id} failed: {reason}");
                    self.connector
                        .counters
                        .errors
                        .fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                None => break,
            };
            let is_newest = received.current_offset == received.message.header.offset;
            batch.push(received.message);
            if !is_newest && batch.len() < feed.batch_length {
                continue;
            }
            let metadata = MessagesMetadata {
                partition_id: received.partition_id,
                current_offset: received.current_offset,
                schema: feed.schema,
            };
            let messages = std::mem::take(&mut batch);
            if let Err(reason) = self.give(id, &feed, &library, &metadata, messages).await {
                error!("the sink with id {id} stops: {reason}");
                self.connector.set_error(&reason);
                break;
            }
        }
    }

    /// Gives the plugin one batch. Only a batch that cannot be passed at all is an error.
    async fn give(
        &self,
        id: u32,
        feed: &Feed,
        library: &Arc<SinkLibrary>,
        metadata: &MessagesMetadata,
        messages: Vec<IggyMessage>,
    ) -> Result<(), String> {
        let counters = &self.connector.counters;
        counters
            .received
            .fetch_add(messages.len() as u64, Ordering::Relaxed);
        let mut raw = Vec::with_capacity(messages.len());
        for message in messages {
            if fits(feed.schema, &message.payload) {
                raw.push(raw_message(&message)?);
            } else {
                warn!(
                    "skipping offset {}: not {}",
                    message.header.offset, feed.schema
                );
                counters.errors.fetch_add(1, Ordering::Relaxed);
            }
        }
        let count = raw.len();
        let messages = RawMessages {
            schema: feed.schema,
            messages: raw,
        };
        let (topic, metadata, messages) =
            (encode(&feed.topic)?, encode(metadata)?, encode(&messages)?);
        let library = Arc::clone(library);
        let code = spawn_blocking(move || library.consume(id, &topic, &metadata, &messages))
            .await
            .map_err(|reason| format!("the plugin's consume was broken off: {reason}"))?;
        if code != 0 {
            warn!(
                "the sink with id {id} failed on {count} messages, which are committed all the same"
            );
            counters.errors.fetch_add(1, Ordering::Relaxed);
        }
        counters
            .passed_on
            .fetch_add(count as u64, Ordering::Relaxed);
        debug!("gave {count} messages to the sink with id {id}");
        Ok(())
    }
}

fn load(connector: &Connector, path: &str) -> Result<SinkLibrary, ConnectorError> {
    let path = library_path::find(path)?;
    connector.set_path(path.display().to_string());
    Ok(SinkLibrary::load(&path)?)
}

async fn open(
    library: &Arc<SinkLibrary>,
    id: u32,
    config: &SinkConfig,
    client: &IggyClient,
) -> Result<Opened, ConnectorError> {
    check_supported(config, config.streams.iter().map(|stream| stream.schema))?;
    let plugin_config = plugin_config_json(config)?;
    let code = {
        let library = Arc::clone(library);
        spawn_blocking(move || library.open(id, &plugin_config))
            .await
            .map_err(ConnectorError::Call)?
    };
    if code != 0 {
        return Err(ConnectorError::OpenFailed { id, code });
    }
    match feeds(config, client).await {
        Ok(feeds) => Ok(Opened { id, feeds }),
        Err(reason) => {
            let library = Arc::clone(library);
            let closed = spawn_blocking(move || library.close(id)).await;
            debug!("closed the sink with id {id} again: {closed:?}");
            Err(reason)
        }
    }
}

async fn feeds(config: &SinkConfig, client: &IggyClient) -> Result<Vec<Feed>, ConnectorError> {
    let mut feeds = Vec::new();
    for entry in &config.streams {
        let poll_interval = entry.poll_interval.as_deref().unwrap_or("5ms");
        let poll_interval = IggyDuration::from_str(poll_interval)
            .map_err(|_| ConnectorError::Duration(poll_interval.to_owned(), "poll_interval"))?;
        let default_group = format!("iggy-connect-sink-{}", config.key);
        let group = entry.consumer_group.as_deref().unwrap_or(&default_group);
        let batch_length = entry.batch_length.unwrap_or(1000);
        for topic in &entry.topics {
            let refused = |reason| ConnectorError::Iggy {
                what: format!("a consumer for {}/{topic}", entry.stream),
                reason,
            };
            let mut consumer = client
                .consumer_group(group, &entry.stream, topic)
                .map_err(refused)?
                .auto_commit(AutoCommit::When(AutoCommitWhen::PollingMessages))
                .create_consumer_group_if_not_exists()
                .auto_join_consumer_group()
                .polling_strategy(PollingStrategy::next())
                .poll_interval(poll_interval)
                .batch_length(batch_length)
                .build();
            consumer.init().await.map_err(refused)?;
            feeds.push(Feed {
                consumer,
                schema: entry.schema,
                batch_length: batch_length as usize,
                topic: TopicMetadata {
                    stream: entry.stream.clone(),
                    topic: topic.clone(),
                },
            });
        }
    }
    Ok(feeds)
}

fn raw_message(message: &IggyMessage) -> Result<RawMessage, String> {
    let headers = match message.user_headers_map() {
        Ok(Some(headers)) => encode(&headers)?,
        // Headers that another producer broke must not stop the sink.
        Ok(None) | Err(_) => Vec::new(),
    };
    Ok(RawMessage {
        id: message.header.id,
        offset: message.header.offset,
        checksum: message.header.checksum,
        timestamp: message.header.timestamp,
        origin_timestamp: message.header.origin_timestamp,
        headers,
        payload: message.payload.to_vec(),
    })
}

fn encode<T: serde::Serialize>(value: &T) -> Result<Vec<u8>, String> {
    postcard::to_allocvec(value).map_err(|reason| format!("cannot write a batch: {reason}"))
}
