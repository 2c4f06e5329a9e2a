//! Reading messages from the database file, in a read transaction of its own and without the writer.

use std::ops::Bound;
use std::sync::Arc;

use redb::{Database, ReadOnlyTable};

use super::StoreError;
use super::tables::{BATCHES, batch_header};
use crate::server::catalog::Partition;
use crate::server::record::{self, Allowance};

/// The bytes that [`Polled::reply`] leaves free at its start.
pub(crate) const PREFIX: usize = 16;

/// Messages as a poll reply carries them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Polled {
    /// [`PREFIX`] bytes for the reply's own numbers, then batch records one after another, the first and last possibly
    /// cut.
    pub(crate) reply: Vec<u8>,
    /// The number of messages in them.
    pub(crate) count: u32,
    /// The offset of the last of them; 0 when there is none.
    pub(crate) last_offset: u64,
}

impl Default for Polled {
    fn default() -> Self {
        Self {
            reply: vec![0; PREFIX],
            count: 0,
            last_offset: 0,
        }
    }
}

type Batches = ReadOnlyTable<(u64, u64), &'static [u8]>;

pub(super) fn read(
    database: &Database,
    partition: &Arc<Partition>,
    from: u64,
    count: u32,
    bytes: usize,
) -> Result<Polled, StoreError> {
    let mut polled = Polled::default();
    let batches = open(database)?;
    let Some((first, _)) = batch_at(&batches, partition.uid, from)? else {
        return Ok(polled);
    };
    let range = batches
        .range((partition.uid, first)..=(partition.uid, u64::MAX))
        .map_err(StoreError::io)?;
    for entry in range {
        let (_, value) = entry.map_err(StoreError::io)?;
        let allowed = Allowance {
            count: count.saturating_sub(polled.count),
            bytes: bytes.saturating_sub(polled.reply.len() - PREFIX),
            // One message always goes out, or a message larger than the cap would block its partition for good.
            at_least_one: polled.count == 0,
        };
        if allowed.count == 0 {
            break;
        }
        let cut = record::cut(value.value(), from, allowed, &mut polled.reply).map_err(|_| {
            StoreError::Record {
                what: "a stored batch cannot be decoded",
            }
        })?;
        let Some(cut) = cut else { break };
        polled.count += cut.count;
        polled.last_offset = cut.last_offset;
        if !cut.to_end {
            break;
        }
    }
    Ok(polled)
}

pub(super) fn offset_at(
    database: &Database,
    partition: &Arc<Partition>,
    timestamp: u64,
) -> Result<u64, StoreError> {
    let batches = open(database)?;
    let end = partition.progress().next_offset;
    // Append times never go back, so the batches are sorted by them too.
    let (mut low, mut high) = (0, end);
    while low < high {
        let middle = low + (high - low) / 2;
        let Some((first, header)) = batch_at(&batches, partition.uid, middle)? else {
            return Ok(end);
        };
        if header.base_timestamp >= timestamp {
            high = first;
        } else {
            // The second operand only matters for a damaged file: the search must end all the same.
            low = (first + u64::from(header.message_count)).max(middle + 1);
        }
    }
    Ok(low)
}

/// The batch that holds `offset`: its first offset and its header.
fn batch_at(
    batches: &Batches,
    uid: u64,
    offset: u64,
) -> Result<Option<(u64, iggy_binary_protocol::batch::BatchHeader)>, StoreError> {
    let mut range = batches
        .range::<(u64, u64)>((Bound::Included((uid, 0)), Bound::Included((uid, offset))))
        .map_err(StoreError::io)?;
    let Some(entry) = range.next_back() else {
        return Ok(None);
    };
    let (key, value) = entry.map_err(StoreError::io)?;
    Ok(Some((key.value().1, batch_header(value.value())?)))
}

fn open(database: &Database) -> Result<Batches, StoreError> {
    let transaction = database.begin_read().map_err(StoreError::io)?;
    transaction.open_table(BATCHES).map_err(StoreError::io)
}
