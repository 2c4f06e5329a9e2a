//! The ledger of one partition: which offsets still wait for whom, and how far it is safe to commit.
//!
//! What always holds (D4): `safe` is the largest offset such that every copy of every record up to it is done; it never
//! moves back while the log does not, and never skips an offset that waits. A copy is entered before it is queued (L1)
//! and done exactly once (L2): the owner of a copy is the one [`Entry`] made for it. Pure: no sockets, clocks or tasks.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// What is open on one partition.
#[derive(Debug, Default)]
pub struct Ledger {
    /// Copies not done, by offset. An offset without open copies has no entry.
    open: BTreeMap<u64, usize>,
    /// The first offset that has not been routed: every copy of what lies before has been entered.
    position: u64,
}

impl Ledger {
    /// Nothing open; records from `position` on are still to come.
    pub fn starting_at(position: u64) -> Self {
        Self {
            open: BTreeMap::new(),
            position,
        }
    }

    fn enter(&mut self, offset: u64) {
        *self.open.entry(offset).or_insert(0) += 1;
    }

    fn done(&mut self, offset: u64) {
        if let Some(copies) = self.open.get_mut(&offset) {
            *copies -= 1;
            if *copies == 0 {
                self.open.remove(&offset);
            }
        }
    }

    /// All records before `position` have been routed. A position before the present one means that the log itself
    /// has become shorter.
    pub fn advance(&mut self, position: u64) {
        self.position = position;
    }

    /// How far it is safe to commit, if a cursor that lags still needs everything from `lagging` on: the largest offset
    /// that is done with all before it, or `None` if there is none.
    pub fn safe(&self, lagging: Option<u64>) -> Option<u64> {
        let open = self.open.keys().next().copied();
        [open, lagging]
            .into_iter()
            .flatten()
            .fold(self.position, u64::min)
            .checked_sub(1)
    }

    /// How many copies are open.
    pub fn open_copies(&self) -> usize {
        self.open.values().sum()
    }
}

/// A partition's ledger, shared between its reader and the outboxes that hold its copies.
///
/// The lock is taken once per record by the reader and once per copy by whoever ends it; it is never held over anything
/// but the few map operations of [`Ledger`].
#[derive(Debug, Clone)]
pub struct SharedLedger(Arc<Mutex<Ledger>>);

impl SharedLedger {
    /// See [`Ledger::starting_at`].
    pub fn starting_at(position: u64) -> Self {
        Self(Arc::new(Mutex::new(Ledger::starting_at(position))))
    }

    /// Enters a copy of the record at `offset`; dropping the entry is what makes it done.
    pub fn enter(&self, offset: u64) -> Entry {
        self.0.lock().enter(offset);
        Entry {
            ledger: self.clone(),
            offset,
        }
    }

    /// See [`Ledger::advance`].
    pub fn advance(&self, position: u64) {
        self.0.lock().advance(position);
    }

    /// See [`Ledger::safe`].
    pub fn safe(&self, lagging: Option<u64>) -> Option<u64> {
        self.0.lock().safe(lagging)
    }

    /// See [`Ledger::open_copies`].
    pub fn open_copies(&self) -> usize {
        self.0.lock().open_copies()
    }
}

/// One open copy. It is done when this is dropped, whoever holds it then: the outbox after an acknowledgement, the
/// outbox of a client that left, the writer after a QoS 0 copy was handed to the socket, or the reader whose copy found
/// no room. That there is one owner is what makes a copy done exactly once.
#[derive(Debug)]
pub struct Entry {
    ledger: SharedLedger,
    offset: u64,
}

impl Entry {
    /// The record's offset.
    pub fn offset(&self) -> u64 {
        self.offset
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.ledger.0.lock().done(self.offset);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nothing_is_safe_in_an_empty_partition() {
        assert_eq!(SharedLedger::starting_at(0).safe(None), None);
    }

    #[test]
    fn safe_stays_before_the_oldest_open_copy_and_jumps_when_it_is_done() {
        let ledger = SharedLedger::starting_at(10);
        let first = ledger.enter(10);
        let others: Vec<Entry> = (11..20).map(|offset| ledger.enter(offset)).collect();
        ledger.advance(20);
        drop(others);
        assert_eq!(ledger.safe(None), Some(9));
        drop(first);
        assert_eq!(ledger.safe(None), Some(19));
        assert_eq!(ledger.open_copies(), 0);
    }

    #[test]
    fn safe_waits_for_every_copy_of_a_record() {
        let ledger = SharedLedger::starting_at(0);
        let copies = [ledger.enter(0), ledger.enter(0)];
        ledger.advance(1);
        let [one, two] = copies;
        drop(one);
        assert_eq!(ledger.safe(None), None);
        drop(two);
        assert_eq!(ledger.safe(None), Some(0));
    }

    #[test]
    fn safe_stays_before_what_a_lagging_cursor_needs() {
        let ledger = SharedLedger::starting_at(5);
        ledger.advance(100);
        assert_eq!(ledger.safe(Some(40)), Some(39));
        assert_eq!(ledger.safe(None), Some(99));
    }

    proptest! {
        /// D4, against a model that keeps every copy: contiguous and monotonic, whatever the order of endings.
        #[test]
        fn d4_safe_is_contiguous_and_monotonic(steps in prop::collection::vec((0u8..4, any::<prop::sample::Index>()), 1..200)) {
            let ledger = SharedLedger::starting_at(0);
            let mut open: Vec<Entry> = Vec::new();
            let mut position = 0;
            let mut last = None;
            for (step, index) in steps {
                match step {
                    0 | 1 => {
                        for _ in 0..step + 1 {
                            open.push(ledger.enter(position));
                        }
                        position += 1;
                        ledger.advance(position);
                    }
                    _ if !open.is_empty() => {
                        open.swap_remove(index.index(open.len()));
                    }
                    _ => {}
                }
                let model = open.iter().map(Entry::offset).min().unwrap_or(position).checked_sub(1);
                let safe = ledger.safe(None);
                prop_assert_eq!(safe, model);
                prop_assert!(safe >= last);
                last = safe;
            }
        }
    }
}
