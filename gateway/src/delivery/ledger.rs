//! The ledger of one partition: which offsets still wait for whom, and how far it is safe to commit.
//!
//! What always holds (D4): `safe` is the largest offset such that every copy of every record up to it is done; it never
//! moves back while the log does not, and never skips an offset that waits. A record is entered before a copy of it is
//! queued (L1); its copies share one [`Entry`], and the record is done exactly once, when the last copy lets go of it
//! (L2). Pure: no sockets, clocks or tasks.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// What is open on one partition.
#[derive(Debug, Default)]
pub struct Ledger {
    /// Entries that are not done, by offset. An offset without open entries is not in it. It has more than one if
    /// subscribers that lag have read it anew.
    open: BTreeMap<u64, usize>,
    /// The first offset that has not been routed: everything that lies before has been entered.
    position: u64,
    /// The first offset that has to be delivered again after this role has ended.
    owed: Option<u64>,
}

impl Ledger {
    /// Nothing open; records from `position` on are still to come.
    pub fn starting_at(position: u64) -> Self {
        Self {
            open: BTreeMap::new(),
            position,
            owed: None,
        }
    }

    fn enter(&mut self, offset: u64) {
        *self.open.entry(offset).or_insert(0) += 1;
    }

    fn done(&mut self, offset: u64) {
        if let Some(entries) = self.open.get_mut(&offset) {
            *entries -= 1;
            if *entries == 0 {
                self.open.remove(&offset);
            }
        }
    }

    /// All records before `position` have been routed. A position before the present one means that the log itself
    /// has become shorter.
    pub fn advance(&mut self, position: u64) {
        self.position = position;
    }

    /// The record at `offset` is not to be committed by this role, whatever becomes of its copies.
    pub fn owe(&mut self, offset: u64) {
        self.owed = Some(self.owed.map_or(offset, |owed| owed.min(offset)));
    }

    /// How far it is safe to commit, if what begins at `needed` is still needed: the largest offset that is done with all
    /// before it, or `None` if there is none.
    pub fn safe(&self, needed: Option<u64>) -> Option<u64> {
        let open = self.open.keys().next().copied();
        [open, needed, self.owed]
            .into_iter()
            .flatten()
            .fold(self.position, u64::min)
            .checked_sub(1)
    }

    /// The first offset that is open.
    pub fn oldest_open(&self) -> Option<u64> {
        self.open.keys().next().copied()
    }

    /// How many records are open.
    pub fn open_records(&self) -> usize {
        self.open.values().sum()
    }
}

/// A partition's ledger, shared between its reader and the outboxes that hold its copies.
///
/// The lock is taken once when a record is entered and once when it is done, however many copies there are of it; it is
/// never held over anything but the few map operations of [`Ledger`].
#[derive(Debug, Clone)]
pub struct SharedLedger(Arc<Mutex<Ledger>>);

impl SharedLedger {
    /// See [`Ledger::starting_at`].
    pub fn starting_at(position: u64) -> Self {
        Self(Arc::new(Mutex::new(Ledger::starting_at(position))))
    }

    /// Enters the record at `offset`; dropping the entry is what makes it done.
    pub fn enter(&self, offset: u64) -> Entry {
        self.0.lock().enter(offset);
        Entry {
            ledger: self.clone(),
            offset,
        }
    }

    /// Holds the ledger's lock.
    #[cfg(test)]
    pub(super) fn lock(&self) -> impl Sized + '_ {
        self.0.lock()
    }

    /// See [`Ledger::advance`].
    pub fn advance(&self, position: u64) {
        self.0.lock().advance(position);
    }

    /// See [`Ledger::owe`].
    pub fn owe(&self, offset: u64) {
        self.0.lock().owe(offset);
    }

    /// See [`Ledger::safe`].
    pub fn safe(&self, needed: Option<u64>) -> Option<u64> {
        self.0.lock().safe(needed)
    }

    /// See [`Ledger::oldest_open`].
    pub fn oldest_open(&self) -> Option<u64> {
        self.0.lock().oldest_open()
    }

    /// See [`Ledger::open_records`].
    pub fn open_records(&self) -> usize {
        self.0.lock().open_records()
    }
}

/// An open record. Its copies share it; it is done when the last of them lets go, whoever that is: the outbox after an
/// acknowledgement, the outbox of a client that left, the writer after a QoS 0 copy was handed to the socket, or the
/// reader whose copy found no room. That dropping is the only way makes it done exactly once.
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

    /// Whether it is that of `offset` in `ledger`.
    pub fn is(&self, ledger: &SharedLedger, offset: u64) -> bool {
        self.offset == offset && Arc::ptr_eq(&self.ledger.0, &ledger.0)
    }

    /// See [`Ledger::owe`].
    pub fn owe(&self) {
        self.ledger.owe(self.offset);
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
    fn safe_stays_before_the_oldest_open_record_and_jumps_when_it_is_done() {
        let ledger = SharedLedger::starting_at(10);
        let first = ledger.enter(10);
        let others: Vec<Entry> = (11..20).map(|offset| ledger.enter(offset)).collect();
        ledger.advance(20);
        drop(others);
        assert_eq!(ledger.safe(None), Some(9));
        drop(first);
        assert_eq!(ledger.safe(None), Some(19));
        assert_eq!(ledger.open_records(), 0);
    }

    #[test]
    fn l2_a_record_is_done_when_its_last_copy_is_and_not_before() {
        let ledger = SharedLedger::starting_at(0);
        let copies = [Arc::new(ledger.enter(0)), Arc::new(ledger.enter(0))];
        ledger.advance(1);
        let [one, two] = copies;
        let of_one = one.clone();
        drop(one);
        drop(two);
        assert_eq!(ledger.safe(None), None);
        drop(of_one);
        assert_eq!(ledger.safe(None), Some(0));
    }

    #[test]
    fn safe_stays_before_what_a_lagging_cursor_needs() {
        let ledger = SharedLedger::starting_at(5);
        ledger.advance(100);
        assert_eq!(ledger.safe(Some(40)), Some(39));
        assert_eq!(ledger.safe(None), Some(99));
    }

    #[test]
    fn what_is_owed_is_never_safe_though_its_copies_end() {
        let ledger = SharedLedger::starting_at(5);
        let [later, earlier] = [ledger.enter(7), ledger.enter(6)];
        ledger.advance(10);
        later.owe();
        earlier.owe();
        drop((later, earlier));
        assert_eq!(ledger.safe(None), Some(5));
    }

    proptest! {
        /// D4, against a model that keeps every entry: contiguous and monotonic, whatever the order of endings.
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
