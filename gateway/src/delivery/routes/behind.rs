//! The cursors that are behind the reader: what they have to read, and what becomes of what was read for them.
//!
//! What always holds: a cursor gets what its topics brought from the offset that it needs on, in order, and rides the
//! reader again when it has met its position; what was read for an older turn, in an older epoch or from another offset
//! than it needs now is of no use to it.

use std::sync::Arc;

use tokio::time::Instant;

use super::super::cursor::{Cursor, Turn};
use super::super::outbox::{Offered, Outbox};
use super::{Context, Routes, Wanted};
use crate::log::StoredRecord;

/// What became of records that were read for a cursor that is behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaughtUp {
    /// It rides the reader again, or has left.
    Over,
    /// It has not met the reader yet.
    Behind,
}

impl Routes {
    /// The outbox of a cursor whose turn is still this one.
    pub fn outbox_of(&self, turn: &Turn) -> Option<Arc<Outbox>> {
        let key = *self.by_connection.get(&turn.connection)?;
        let subscriber = &self.subscribers[key];
        let is_behind = matches!(&subscriber.cursor, Cursor::Behind(behind) if behind.is(turn));
        is_behind.then(|| subscriber.outbox.clone())
    }

    /// What a cursor whose turn is still this one has to read: from which offset, in which epoch.
    pub fn to_read(&self, turn: &Turn) -> Option<(u64, u64)> {
        let key = *self.by_connection.get(&turn.connection)?;
        match &self.subscribers[key].cursor {
            Cursor::Behind(behind) if behind.is(turn) => Some((behind.next, self.epoch)),
            _ => None,
        }
    }

    /// Gives a cursor that is behind what was read at `from`, the offset it needed, in `epoch`. Nothing read means that
    /// the log has nothing left between there and the reader's position.
    pub fn catch_up(
        &mut self,
        turn: &Turn,
        (from, epoch): (u64, u64),
        records: &[StoredRecord],
        context: &Context,
    ) -> CaughtUp {
        let position = self.position;
        let newest_micros = self.newest_micros;
        let Some(&key) = self.by_connection.get(&turn.connection) else {
            return CaughtUp::Over;
        };
        let subscriber = &mut self.subscribers[key];
        let Cursor::Behind(behind) = &mut subscriber.cursor else {
            return CaughtUp::Over;
        };
        if !behind.is(turn) {
            return CaughtUp::Over;
        }
        if epoch != self.epoch || from != behind.next {
            // The log is another, or the cursor has gone back meanwhile.
            return CaughtUp::Behind;
        }
        let mut missed = 0;
        let mut end = from;
        for record in records.iter().filter(|record| record.offset < position) {
            if record.offset < end {
                continue;
            }
            missed += record.offset - end;
            end = record.offset + 1;
            // Skipped records were counted when the reader met them.
            if let Ok(opened) = context.open(record)
                && let Some(want) = subscriber.topics.get(&opened.topic)
                && record.offset >= want.since
            {
                let qos = want.qos.min(opened.qos);
                subscriber.planned.push((self.batch.len(), qos));
                self.batch.push(Wanted::new(record, opened, context));
            }
        }
        let has_met = records
            .last()
            .is_none_or(|last| last.offset + 1 >= position);
        if has_met {
            missed += position.saturating_sub(end);
        }
        if missed > 0 {
            context.counters.records_missed.add(missed);
            if let Some(left_out) = context.lines.gaps.allow(Instant::now()) {
                tracing::warn!(
                    stream = %context.triple.target.stream, topic = %context.triple.target.topic,
                    partition = context.triple.partition,
                    connection = turn.connection.0,
                    from,
                    missed,
                    left_out,
                    "records were gone before a subscriber that was behind had got them"
                );
            }
        }
        let batch = &self.batch;
        let copies = subscriber
            .planned
            .iter()
            .map(|&(at, qos)| batch[at].copy(qos));
        let stopped_at = match subscriber.outbox.offer(copies) {
            Offered::Full(taken) => subscriber.planned.get(taken).map(|&(at, _)| &batch[at]),
            Offered::Taken | Offered::Closed => None,
        };
        let outcome = match stopped_at {
            Some(wanted) => {
                behind.go_on(wanted.offset, wanted.stored_micros);
                CaughtUp::Behind
            }
            None if has_met => {
                subscriber.cursor = Cursor::Live;
                context.counters.cursors_rejoined.increment();
                CaughtUp::Over
            }
            None => {
                let last = records.last();
                behind.go_on(
                    end,
                    last.map_or(newest_micros, |last| last.timestamp_micros),
                );
                CaughtUp::Behind
            }
        };
        subscriber.planned.clear();
        self.batch.clear();
        outcome
    }
}
