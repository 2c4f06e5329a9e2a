//! The writer: one thread that takes everything queued, commits it in one transaction and answers.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Instant;

use parking_lot::RwLock;
use redb::{Database, Durability, WriteTransaction};

use super::rows::{self, Rows};
use super::turn::{Command, Turn};
use super::{SYNC_WITHIN, StoreError};
use crate::server::catalog::Catalog;

/// A turn ends here even if more is queued, so that the first in it does not wait for ever. Bytes.
const TURN_BYTES: usize = 64 * 1024 * 1024;

pub(super) struct Writer {
    database: Arc<Database>,
    published: Arc<RwLock<Arc<Catalog>>>,
    commands: Receiver<Command>,
    /// When the first append that is not on disk yet was committed.
    unsynced: Option<Instant>,
}

impl Writer {
    pub(super) fn new(
        database: Arc<Database>,
        published: Arc<RwLock<Arc<Catalog>>>,
        commands: Receiver<Command>,
    ) -> Self {
        Self {
            database,
            published,
            commands,
            unsynced: None,
        }
    }

    /// Works until the queue is closed, then brings everything to the disk.
    ///
    /// # Errors
    /// When the file cannot be written; the requests of that turn were answered with an error then.
    pub(super) fn run(mut self) -> Result<(), StoreError> {
        loop {
            let received = match self.unsynced {
                None => self
                    .commands
                    .recv()
                    .map_err(|_| RecvTimeoutError::Disconnected),
                Some(since) => self
                    .commands
                    .recv_timeout(SYNC_WITHIN.saturating_sub(since.elapsed())),
            };
            match received {
                Ok(first) => self.turn(first)?,
                Err(RecvTimeoutError::Timeout) => self.sync()?,
                Err(RecvTimeoutError::Disconnected) => return self.sync(),
            }
        }
    }

    fn turn(&mut self, first: Command) -> Result<(), StoreError> {
        let mut bytes = first.bytes();
        let mut commands = vec![first];
        while bytes < TURN_BYTES
            && let Ok(next) = self.commands.try_recv()
        {
            bytes += next.bytes();
            commands.push(next);
        }
        let overdue = self
            .unsynced
            .is_some_and(|since| since.elapsed() >= SYNC_WITHIN);
        let mut turn = Turn::new(Arc::clone(&self.published.read()), overdue);
        // On an error the replies are dropped with `turn` and `commands`, which the waiting side sees as a failure.
        let transaction = self.database.begin_write().map_err(StoreError::io)?;
        fill(&transaction, commands, &mut turn)?;
        self.commit(transaction, turn)
    }

    fn commit(&mut self, mut transaction: WriteTransaction, turn: Turn) -> Result<(), StoreError> {
        if turn.is_written() || (turn.wants_sync() && self.unsynced.is_some()) {
            transaction.set_durability(match turn.is_durable() {
                true => Durability::Immediate,
                false => Durability::None,
            });
            transaction.commit().map_err(StoreError::io)?;
            match turn.is_durable() {
                true => self.unsynced = None,
                false => drop(self.unsynced.get_or_insert_with(Instant::now)),
            }
        } else {
            transaction.abort().map_err(StoreError::io)?;
        }
        turn.publish(&self.published);
        Ok(())
    }

    /// Brings what was committed in memory to the disk: an fsynced commit carries all commits before it.
    fn sync(&mut self) -> Result<(), StoreError> {
        if self.unsynced.take().is_some() {
            let mut transaction = self.database.begin_write().map_err(StoreError::io)?;
            transaction.set_durability(Durability::Immediate);
            transaction.commit().map_err(StoreError::io)?;
        }
        Ok(())
    }
}

/// Writes the rows of a turn into its transaction.
fn fill(
    transaction: &WriteTransaction,
    commands: Vec<Command>,
    turn: &mut Turn,
) -> Result<(), StoreError> {
    let mut rows = Rows::open(transaction)?;
    // Changes to the catalog first: what they delete must refuse appends of the same turn.
    let (changes, data): (Vec<_>, Vec<_>) = commands.into_iter().partition(Command::is_change);
    for command in changes {
        turn.take(command, &mut rows)?;
    }
    if let Some((old, new)) = turn.changed() {
        rows::write_catalog(transaction, &old, new)?;
        turn.remove(&mut rows)?;
    }
    for command in data {
        turn.take(command, &mut rows)?;
    }
    turn.finish(&mut rows)
}
