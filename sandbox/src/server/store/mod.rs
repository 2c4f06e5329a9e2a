//! The data on disk: one redb file, one thread that writes it, any number of readers.
//!
//! What always holds:
//! - Every change goes through the writer's queue; the writer takes all that is queued, commits once, publishes the
//!   result in memory and only then answers. A reader therefore never sees what is not committed.
//! - A turn with an append under `durability = persisted`, a consumer offset or a change to the catalog is fsynced before
//!   any of its answers. A turn with appends under `durability = replicated` only is committed in memory and reaches the
//!   disk with the next fsynced turn, at the latest after [`SYNC_WITHIN`].
//! - When the file cannot be written, nothing of that turn is published, its requests get an error, and the
//!   store stops for good: [`Store::failed`].

mod load;
mod read;
mod rows;
mod tables;
#[cfg(test)]
mod tests;
mod turn;
mod write;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use iggy_common::IggyError;
use parking_lot::{Mutex, RwLock};
use redb::{Builder, Database, DatabaseError};
use tokio::sync::{oneshot, watch};
use tracing::{error, info};

use super::catalog::{Catalog, ConsumerKey, Partition};
use super::change::Change;
use super::record::Batch;
pub(crate) use read::{PREFIX, Polled};
use turn::Command;
use write::Writer;

/// The longest time for which an append under `durability = replicated` may be lost by a crash of the process.
pub(crate) const SYNC_WITHIN: Duration = Duration::from_secs(1);

/// The name of the database file in the data folder.
const FILE: &str = "sandbox.redb";

/// redb's own page cache. Its default of 1 GiB is more than a tool for trying things should take.
const CACHE_BYTES: usize = 128 * 1024 * 1024;

/// Why the store cannot be opened or stopped working.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The folder cannot be made.
    #[error("the data folder {} cannot be created: {source}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Another process has the file open.
    #[error("{} is in use by another process; stop it or choose another data folder", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// redb cannot open the file.
    #[error("{} cannot be opened: {source}; if it is damaged, move it away to start empty", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What redb said.
        source: Box<DatabaseError>,
    },
    /// The file was written by another version.
    #[error("{} has data format {found}, this version reads format {expected}; move it away to start empty", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The format in the file.
        found: u64,
        /// The format of this version.
        expected: u64,
    },
    /// A record in the file makes no sense.
    #[error("the data file is damaged: {what}; move it away to start empty")]
    Record {
        /// What was found.
        what: &'static str,
    },
    /// Reading or writing failed.
    #[error(
        "the data file cannot be read or written: {0}; check the disk's space and health, then start again"
    )]
    Io(#[source] Box<redb::Error>),
    /// A thread for the store cannot be started, or it is gone.
    #[error("the store's thread is not running")]
    Thread,
}

impl StoreError {
    fn io(error: impl Into<redb::Error>) -> Self {
        Self::Io(Box::new(error.into()))
    }
}

/// The catalog after a change, and the id of what was created or changed.
#[derive(Debug)]
pub(crate) struct Changed {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) id: u32,
}

/// Access to the data, shared by all connections.
#[derive(Debug)]
pub(crate) struct Store {
    database: Arc<Database>,
    catalog: Arc<RwLock<Arc<Catalog>>>,
    /// Unbounded, but bounded in fact: each connection has at most one command in it.
    queue: Mutex<Option<mpsc::Sender<Command>>>,
    writer: Mutex<Option<JoinHandle<()>>>,
    failure: watch::Receiver<Option<Arc<StoreError>>>,
}

impl Store {
    /// Opens or creates the data in `folder`. Blocks: after a crash redb reads the whole file.
    ///
    /// # Errors
    /// See [`StoreError`].
    pub(crate) fn open(folder: &Path) -> Result<Self, StoreError> {
        std::fs::create_dir_all(folder).map_err(|source| StoreError::Folder {
            path: folder.to_path_buf(),
            source,
        })?;
        let path = folder.join(FILE);
        let database = Builder::new()
            .set_cache_size(CACHE_BYTES)
            .set_repair_callback(|session| {
                info!(
                    "the data file was not closed properly, checking it: {:.0} %",
                    session.progress() * 100.0
                );
            })
            .create(&path)
            .map_err(|source| match source {
                DatabaseError::DatabaseAlreadyOpen => StoreError::InUse { path: path.clone() },
                source => StoreError::Open {
                    path: path.clone(),
                    source: Box::new(source),
                },
            })?;
        Self::start(database, &path)
    }

    /// Starts the store on an open database; `path` is for messages.
    fn start(database: Database, path: &Path) -> Result<Self, StoreError> {
        let database = Arc::new(database);
        let catalog = Arc::new(RwLock::new(Arc::new(load::load(&database, path)?)));

        let (queue, commands) = mpsc::channel();
        let (failed, failure) = watch::channel(None);
        let writer = Writer::new(Arc::clone(&database), Arc::clone(&catalog), commands);
        let thread = std::thread::Builder::new()
            .name("sandbox-store".to_owned())
            .spawn(move || {
                if let Err(error) = writer.run() {
                    error!("the store has stopped: {error}");
                    failed.send_replace(Some(Arc::new(error)));
                }
            })
            .map_err(|_| StoreError::Thread)?;
        Ok(Self {
            database,
            catalog,
            queue: Mutex::new(Some(queue)),
            writer: Mutex::new(Some(thread)),
            failure,
        })
    }

    /// What exists now.
    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.catalog.read())
    }

    /// The catalog's cell, for a reader that outlives a borrow of the store.
    pub(crate) fn catalog_cell(&self) -> Arc<RwLock<Arc<Catalog>>> {
        Arc::clone(&self.catalog)
    }

    /// Appends a batch; returns the offset of its first message once it is committed as `durable` asks.
    ///
    /// # Errors
    /// `ResourceNotFound` when the partition was deleted meanwhile, `CannotAppendToFile` when the store failed.
    pub(crate) async fn append(
        &self,
        partition: Arc<Partition>,
        batch: Batch,
        durable: bool,
    ) -> Result<u64, IggyError> {
        let (reply, answer) = oneshot::channel();
        self.enqueue(Command::Append {
            partition,
            batch,
            durable,
            reply,
        })?;
        answer.await.map_err(|_| IggyError::CannotAppendToFile)?
    }

    /// Stores a consumer's offset, or deletes it with `None`; returns once that is on disk.
    ///
    /// # Errors
    /// As [`Store::append`].
    pub(crate) async fn set_offset(
        &self,
        partition: Arc<Partition>,
        key: ConsumerKey,
        offset: Option<u64>,
    ) -> Result<(), IggyError> {
        let (reply, answer) = oneshot::channel();
        self.enqueue(Command::Offset {
            partition,
            key,
            offset,
            reply,
        })?;
        answer.await.map_err(|_| IggyError::CannotWriteToFile)?
    }

    /// Changes the catalog; returns once the change is on disk.
    ///
    /// # Errors
    /// What [`Change::apply`] says, or `CannotWriteToFile` when the store failed.
    pub(crate) async fn change(&self, change: Change) -> Result<Changed, IggyError> {
        let (reply, answer) = oneshot::channel();
        self.enqueue(Command::Change { change, reply })?;
        answer.await.map_err(|_| IggyError::CannotWriteToFile)?
    }

    /// Brings everything that was appended so far to the disk.
    ///
    /// # Errors
    /// `CannotSyncFile` when the store failed.
    pub(crate) async fn sync(&self) -> Result<(), IggyError> {
        let (reply, answer) = oneshot::channel();
        self.enqueue(Command::Sync { reply })?;
        answer.await.map_err(|_| IggyError::CannotSyncFile)?
    }

    /// Reads from `from` (below the partition's end): at most `count` messages and about `bytes` bytes, but at least
    /// one message.
    ///
    /// # Errors
    /// `CannotReadMessage`.
    pub(crate) async fn read(
        &self,
        partition: Arc<Partition>,
        from: u64,
        count: u32,
        bytes: usize,
    ) -> Result<Polled, IggyError> {
        self.reading(move |database| read::read(database, &partition, from, count, bytes))
            .await
    }

    /// The first offset of the first batch that was appended at `timestamp` or later; the partition's end when there is
    /// none.
    ///
    /// # Errors
    /// `CannotReadMessage`.
    pub(crate) async fn offset_at(
        &self,
        partition: Arc<Partition>,
        timestamp: u64,
    ) -> Result<u64, IggyError> {
        self.reading(move |database| read::offset_at(database, &partition, timestamp))
            .await
    }

    /// Resolves when the writer has ended without being asked to.
    pub(crate) async fn failed(&self) -> Arc<StoreError> {
        let mut failure = self.failure.clone();
        match failure.wait_for(Option::is_some).await {
            Ok(error) => error
                .clone()
                .unwrap_or_else(|| Arc::new(StoreError::Thread)),
            Err(_) => Arc::new(StoreError::Thread),
        }
    }

    /// Writes out what is queued and stops the writer. Blocks. Later requests get an error.
    pub(crate) fn close(&self) {
        drop(self.queue.lock().take());
        if let Some(writer) = self.writer.lock().take()
            && writer.join().is_err()
        {
            error!("the store's thread panicked");
        }
    }

    fn enqueue(&self, command: Command) -> Result<(), IggyError> {
        let queue = self.queue.lock();
        let queue = queue.as_ref().ok_or(IggyError::CannotWriteToFile)?;
        queue
            .send(command)
            .map_err(|_| IggyError::CannotWriteToFile)
    }

    async fn reading<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Database) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, IggyError> {
        let database = Arc::clone(&self.database);
        tokio::task::spawn_blocking(move || read(&database))
            .await
            .map_err(|_| IggyError::CannotReadMessage)?
            .map_err(|error| {
                error!("a read failed: {error}");
                IggyError::CannotReadMessage
            })
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.close();
    }
}
