//! One source connector: opening it, sending its batches to Iggy, telling it what became of them, closing it.
//!
//! Always holds: a batch is acknowledged only after Iggy confirmed it and its state was saved; every batch gets exactly
//! one result, from a host thread and never from within the plugin's own call.

use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use iggy::prelude::{DirectConfig, IggyClient, IggyDuration, IggyError, IggyMessage, IggyProducer};
use iggy_connector_sdk::{ProducedMessage, ProducedMessages, Schema};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, spawn_blocking};
use tracing::{debug, error, info, warn};

use super::connector::{
    Connector, ConnectorError, Info, Status, check_supported, fits, next_id, plugin_config_json,
};
use super::connector_files::SourceConfig;
use super::library_path;
use super::loader::{BatchOutcome, SourceLibrary};
use super::plugin_calls::{self, Batch};
use super::state_file::StateFile;

/// How often the unsent rest of a batch is sent again before the batch is given back to the plugin.
const SEND_RETRIES: u32 = 3;

/// How long the tasks of a closed source may take to end.
const TASK_END: Duration = Duration::from_secs(5);

/// A source connector.
pub(super) struct Source {
    /// Its public state.
    pub(super) connector: Connector,
    /// Held while it is started or stopped.
    pub(super) exclusive: tokio::sync::Mutex<()>,
    library: Option<Arc<SourceLibrary>>,
    config: Mutex<SourceConfig>,
    opened: Mutex<Option<Opened>>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

/// A source that was opened and does not poll yet.
struct Opened {
    id: u32,
    target: Target,
    state_file: StateFile,
}

/// Where a source's messages go.
struct Target {
    producer: IggyProducer,
    schema: Schema,
    name: String,
}

impl Source {
    /// Loads the plugin and opens the source. When that fails the source exists all the same, and shows why.
    pub(super) async fn open(
        config: SourceConfig,
        client: &IggyClient,
        state_folder: &Path,
    ) -> Arc<Self> {
        let id = next_id();
        let connector = Connector::starting(id, &config);
        let library = load(&connector, &config.path);
        let mut source = Self {
            connector,
            exclusive: tokio::sync::Mutex::new(()),
            library: None,
            config: Mutex::new(config.clone()),
            opened: Mutex::new(None),
            tasks: Mutex::new(Vec::new()),
        };
        let opened = match library {
            Ok(library) => {
                let library = Arc::new(library);
                source.library = Some(Arc::clone(&library));
                open(&library, id, &config, client, state_folder).await
            }
            Err(reason) => Err(reason),
        };
        match opened {
            Ok(opened) => {
                info!("opened the source {} with id {id}", config.key);
                source.opened = Mutex::new(Some(opened));
            }
            Err(reason) => {
                error!("the source {} failed: {reason}", config.key);
                source.connector.set_error(&reason.to_string());
            }
        }
        Arc::new(source)
    }

    /// Its public state.
    pub(super) fn info(&self) -> Info {
        self.connector.info()
    }

    /// The configuration it was last opened with.
    pub(super) fn config(&self) -> SourceConfig {
        self.config.lock().clone()
    }

    /// The plugin's version.
    pub(super) fn version(&self) -> String {
        match &self.library {
            Some(library) => library.version(),
            None => "unknown".to_owned(),
        }
    }

    /// Lets an opened source poll; one that failed stays as it is.
    pub(super) fn start(self: &Arc<Self>) {
        let Some(opened) = self.opened.lock().take() else {
            return;
        };
        let Some(library) = self.library.clone() else {
            return;
        };
        let id = opened.id;
        let batches = plugin_calls::connect(id);
        let polling = {
            let (source, library) = (Arc::clone(self), Arc::clone(&library));
            spawn_blocking(move || {
                let code = library.handle(id);
                if code != 0 {
                    let message = format!("The plugin did not start to poll, it returned {code}");
                    error!("source with id {id}: {message}");
                    source.connector.set_error(&message);
                }
            })
        };
        self.connector.set_status(Status::Running);
        let forwarding = tokio::spawn(Arc::clone(self).forward(opened, library, batches));
        self.tasks.lock().extend([polling, forwarding]);
    }

    /// Closes the source and waits for its tasks. The caller holds [`Self::exclusive`].
    pub(super) async fn stop(&self) {
        let id = self.info().id;
        self.connector.set_status(Status::Stopping);
        if let Some(library) = self.library.clone() {
            let closed = spawn_blocking(move || library.close(id)).await;
            info!("closed the source with id {id}: {closed:?}");
        }
        plugin_calls::disconnect(id);
        let tasks = std::mem::take(&mut *self.tasks.lock());
        for mut task in tasks {
            if tokio::time::timeout(TASK_END, &mut task).await.is_err() {
                warn!("a task of the source with id {id} does not end, breaking it off");
                task.abort();
            }
        }
        self.connector.set_status(Status::Stopped);
    }

    /// Stops the source and opens it again under a new id. The caller holds [`Self::exclusive`].
    ///
    /// # Errors
    /// Says why it could not be opened again; it is stopped then.
    pub(super) async fn restart(
        self: &Arc<Self>,
        config: SourceConfig,
        client: &IggyClient,
        state_folder: &Path,
    ) -> Result<(), ConnectorError> {
        self.stop().await;
        let Some(library) = &self.library else {
            return Err(ConnectorError::NotLoaded(config.key));
        };
        let id = next_id();
        let opened = open(library, id, &config, client, state_folder).await?;
        info!("opened the source {} again, with id {id}", config.key);
        self.connector.set_id(id);
        *self.config.lock() = config;
        *self.opened.lock() = Some(opened);
        self.start();
        Ok(())
    }

    async fn forward(
        self: Arc<Self>,
        opened: Opened,
        library: Arc<SourceLibrary>,
        mut batches: mpsc::UnboundedReceiver<Batch>,
    ) {
        let id = opened.id;
        while let Some(Batch {
            id: batch_id,
            messages,
        }) = batches.recv().await
        {
            let count = messages.messages.len();
            let counters = &self.connector.counters;
            counters.received.fetch_add(count as u64, Ordering::Relaxed);
            let outcome = match store(&opened, messages).await {
                Ok(()) => {
                    counters
                        .passed_on
                        .fetch_add(count as u64, Ordering::Relaxed);
                    debug!(
                        "sent {count} messages of the source with id {id} to {}",
                        opened.target.name
                    );
                    BatchOutcome::Ack
                }
                Err(reason) => {
                    error!("batch {batch_id} of the source with id {id} failed: {reason}");
                    self.connector.set_error(&reason);
                    BatchOutcome::Nack
                }
            };
            let told = {
                let library = Arc::clone(&library);
                spawn_blocking(move || library.batch_result(id, batch_id, outcome)).await
            };
            if !matches!(told, Ok(0)) && !self.connector.is_stopping() {
                let message =
                    format!("The plugin refused the {outcome:?} of batch {batch_id}: {told:?}");
                error!("source with id {id}: {message}");
                self.connector.set_error(&message);
            }
        }
        self.connector.set_status(Status::Stopped);
        info!("the source with id {id} has stopped");
    }
}

fn load(connector: &Connector, path: &str) -> Result<SourceLibrary, ConnectorError> {
    let path = library_path::find(path)?;
    connector.set_path(path.display().to_string());
    Ok(SourceLibrary::load(&path)?)
}

async fn open(
    library: &Arc<SourceLibrary>,
    id: u32,
    config: &SourceConfig,
    client: &IggyClient,
    state_folder: &Path,
) -> Result<Opened, ConnectorError> {
    check_supported(config, config.streams.iter().map(|stream| stream.schema))?;
    let state_file = StateFile::of_source(state_folder, &config.key);
    let state = state_file.load().map_err(ConnectorError::State)?;
    let plugin_config = plugin_config_json(config)?;
    let code = {
        let library = Arc::clone(library);
        spawn_blocking(move || library.open(id, &plugin_config, state.as_deref()))
            .await
            .map_err(ConnectorError::Call)?
    };
    if code != 0 {
        return Err(ConnectorError::OpenFailed { id, code });
    }
    match target(config, client).await {
        Ok(target) => Ok(Opened {
            id,
            target,
            state_file,
        }),
        Err(reason) => {
            let library = Arc::clone(library);
            let closed = spawn_blocking(move || library.close(id)).await;
            debug!("closed the source with id {id} again: {closed:?}");
            Err(reason)
        }
    }
}

/// Opens a producer for every `[[streams]]` entry, which creates what is missing; messages go to the last one.
async fn target(config: &SourceConfig, client: &IggyClient) -> Result<Target, ConnectorError> {
    let mut target = None;
    for entry in &config.streams {
        let name = format!("{}/{}", entry.stream, entry.topic);
        let refused = |reason| ConnectorError::Iggy {
            what: format!("a producer for {name}"),
            reason,
        };
        let linger_time = entry.linger_time.as_deref().unwrap_or("5ms");
        let linger_time = IggyDuration::from_str(linger_time)
            .map_err(|_| ConnectorError::Duration(linger_time.to_owned(), "linger_time"))?;
        let producer = client
            .producer(&entry.stream, &entry.topic)
            .map_err(refused)?
            .direct(
                DirectConfig::builder()
                    .batch_length(entry.batch_length.unwrap_or(1000))
                    .linger_time(linger_time)
                    .build(),
            )
            .build();
        producer.init().await.map_err(refused)?;
        target = Some(Target {
            producer,
            schema: entry.schema,
            name,
        });
    }
    target.ok_or(ConnectorError::NoStreams)
}

async fn store(opened: &Opened, batch: ProducedMessages) -> Result<(), String> {
    let Target {
        producer,
        schema,
        name,
    } = &opened.target;
    if !matches!(batch.schema, Schema::Raw | Schema::Text | Schema::Json) {
        return Err(ConnectorError::Schema(batch.schema).to_string());
    }
    let mut messages = Vec::with_capacity(batch.messages.len());
    for message in batch.messages {
        if !fits(batch.schema, &message.payload) || !fits(*schema, &message.payload) {
            return Err(format!("a payload is not {} or not {schema}", batch.schema));
        }
        messages.push(
            iggy_message(message).map_err(|reason| format!("a message is refused: {reason}"))?,
        );
    }
    send(producer, messages)
        .await
        .map_err(|reason| format!("sending to {name} failed: {reason}"))?;
    match batch.state {
        Some(state) => opened
            .state_file
            .save(&state.0)
            .map_err(|reason| format!("saving the source's state failed: {reason}")),
        None => Ok(()),
    }
}

fn iggy_message(message: ProducedMessage) -> Result<IggyMessage, IggyError> {
    IggyMessage::builder()
        .payload(message.payload.into())
        .maybe_id(message.id)
        .maybe_user_headers(message.headers)
        .build()
}

/// Sends a batch; what is left of one that was stored in part is sent again.
async fn send(producer: &IggyProducer, mut messages: Vec<IggyMessage>) -> Result<(), IggyError> {
    let mut retries = 0;
    loop {
        match producer.send(messages).await {
            Ok(_) => return Ok(()),
            Err(IggyError::ProducerSendFailed {
                cause,
                failed,
                committed,
                stream_name,
                topic_name,
            }) => {
                let given_up = |failed| IggyError::ProducerSendFailed {
                    cause,
                    failed,
                    committed,
                    stream_name,
                    topic_name,
                };
                if retries >= SEND_RETRIES || failed.is_empty() {
                    return Err(given_up(failed));
                }
                messages = Arc::try_unwrap(failed).map_err(given_up)?;
                retries += 1;
            }
            Err(reason) => return Err(reason),
        }
    }
}
