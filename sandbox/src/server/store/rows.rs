//! The rows which the writer changes, within one write transaction.

use std::sync::Arc;

use redb::{Table, WriteTransaction};

use super::StoreError;
use super::tables::{
    BATCHES, KEY_NEXT_STREAM, KEY_NEXT_UID, NUMBERS, OFFSETS, PROGRESS, STREAMS, StreamRecord,
    TOPICS, TopicRecord, encode,
};
use crate::server::catalog::{Catalog, ConsumerKey, Progress};
use crate::server::record::{Batch, Stamp};

/// The tables of messages and offsets, open for writing.
pub(super) struct Rows<'transaction> {
    batches: Table<'transaction, (u64, u64), &'static [u8]>,
    offsets: Table<'transaction, (u64, u8, u32), u64>,
    progress: Table<'transaction, u64, (u64, u64, u64)>,
}

impl<'transaction> Rows<'transaction> {
    pub(super) fn open(transaction: &'transaction WriteTransaction) -> Result<Self, StoreError> {
        Ok(Self {
            batches: transaction.open_table(BATCHES).map_err(StoreError::io)?,
            offsets: transaction.open_table(OFFSETS).map_err(StoreError::io)?,
            progress: transaction.open_table(PROGRESS).map_err(StoreError::io)?,
        })
    }

    pub(super) fn write_batch(
        &mut self,
        uid: u64,
        batch: &Batch,
        stamp: Stamp,
    ) -> Result<(), StoreError> {
        let size = u32::try_from(batch.len()).map_err(|_| StoreError::Record {
            what: "a batch is too large",
        })?;
        let mut slot = self
            .batches
            .insert_reserve((uid, stamp.base_offset), size)
            .map_err(StoreError::io)?;
        batch.write_stamped(stamp, slot.as_mut());
        Ok(())
    }

    pub(super) fn write_progress(
        &mut self,
        uid: u64,
        progress: Progress,
    ) -> Result<(), StoreError> {
        let row = <(u64, u64, u64)>::from(progress);
        self.progress.insert(uid, row).map_err(StoreError::io)?;
        Ok(())
    }

    /// Stores an offset, or deletes it with `None`.
    pub(super) fn write_offset(
        &mut self,
        uid: u64,
        key: ConsumerKey,
        offset: Option<u64>,
    ) -> Result<(), StoreError> {
        let row = (uid, key.kind as u8, key.id);
        match offset {
            Some(offset) => self.offsets.insert(row, offset).map_err(StoreError::io)?,
            None => self.offsets.remove(row).map_err(StoreError::io)?,
        };
        Ok(())
    }

    /// Deletes everything of a partition.
    pub(super) fn forget(&mut self, uid: u64) -> Result<(), StoreError> {
        self.batches
            .retain_in((uid, 0)..=(uid, u64::MAX), |_, _| false)
            .map_err(StoreError::io)?;
        self.offsets
            .retain_in((uid, 0, 0)..=(uid, u8::MAX, u32::MAX), |_, _| false)
            .map_err(StoreError::io)?;
        self.progress.remove(uid).map_err(StoreError::io)?;
        Ok(())
    }
}

/// Writes what differs between two catalogs. Entries that did not change are the same allocation in both.
pub(super) fn write_catalog(
    transaction: &WriteTransaction,
    old: &Catalog,
    new: &Catalog,
) -> Result<(), StoreError> {
    let mut numbers = transaction.open_table(NUMBERS).map_err(StoreError::io)?;
    let mut streams = transaction.open_table(STREAMS).map_err(StoreError::io)?;
    let mut topics = transaction.open_table(TOPICS).map_err(StoreError::io)?;
    for (key, number) in [
        (KEY_NEXT_STREAM, u64::from(new.next_stream)),
        (KEY_NEXT_UID, new.next_uid),
    ] {
        numbers.insert(key, number).map_err(StoreError::io)?;
    }
    for (id, stream) in &new.streams {
        let before = old.streams.get(id);
        if before.is_some_and(|before| Arc::ptr_eq(before, stream)) {
            continue;
        }
        let record = encode(&StreamRecord::from(stream.as_ref()))?;
        streams
            .insert(id, record.as_slice())
            .map_err(StoreError::io)?;
        for (topic_id, topic) in &stream.topics {
            let before = before.and_then(|before| before.topics.get(topic_id));
            if !before.is_some_and(|before| Arc::ptr_eq(before, topic)) {
                let record = encode(&TopicRecord::from(topic.as_ref()))?;
                topics
                    .insert((*id, *topic_id), record.as_slice())
                    .map_err(StoreError::io)?;
            }
        }
    }
    for (id, stream) in &old.streams {
        let after = new.streams.get(id);
        if after.is_none() {
            streams.remove(id).map_err(StoreError::io)?;
        }
        for topic_id in stream.topics.keys() {
            if !after.is_some_and(|after| after.topics.contains_key(topic_id)) {
                topics.remove((*id, *topic_id)).map_err(StoreError::io)?;
            }
        }
    }
    Ok(())
}
