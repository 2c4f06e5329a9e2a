//! How many records a reader asks for at once, so that a poll brings about as many bytes as wanted however large the
//! records are. Iggy's poll is bounded by a count only. Pure.

use crate::log::StoredRecord;

/// A poll for all should bring about this many bytes: enough for full batches of small records, little enough for large
/// ones.
const WANTED_BYTES: usize = 4 << 20;
/// The first poll knows nothing of the records' size.
const FIRST: u32 = 64;

/// See the module.
#[derive(Debug, Clone)]
pub struct PollSize {
    count: u32,
    most: u32,
    wanted_bytes: usize,
}

impl PollSize {
    /// Never more than `most` records, never fewer than one; about `wanted_bytes`.
    pub fn new(most: u32, wanted_bytes: usize) -> Self {
        Self {
            count: FIRST.min(most).max(1),
            most: most.max(1),
            wanted_bytes,
        }
    }

    /// As a reader that reads for many wants it.
    pub fn for_all(most: u32) -> Self {
        Self::new(most, WANTED_BYTES)
    }

    /// How many records to ask for now.
    pub fn get(&self) -> u32 {
        self.count
    }

    /// A poll has brought these.
    pub fn learn_from(&mut self, records: &[StoredRecord]) {
        let bytes = records.iter().map(|record| record.payload.len()).sum();
        self.learn(records.len(), bytes);
    }

    /// A poll has brought `records` records of `bytes` bytes together. Grows at most fourfold at a time, because the
    /// next records may be larger; shrinks at once.
    pub fn learn(&mut self, records: usize, bytes: usize) {
        if records == 0 {
            return;
        }
        let fitting = self.wanted_bytes / (bytes / records).max(1);
        let fitting = u32::try_from(fitting).unwrap_or(u32::MAX);
        self.count = fitting
            .min(self.count.saturating_mul(4))
            .clamp(1, self.most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_records_are_soon_polled_by_the_most_and_large_ones_by_few() {
        let mut size = PollSize::for_all(1_000);
        assert_eq!(size.get(), 64);
        for _ in 0..3 {
            size.learn(size.get() as usize, size.get() as usize * 100);
        }
        assert_eq!(size.get(), 1_000);
        size.learn(1_000, 1_000 * 256 * 1_024);
        assert_eq!(size.get(), 16);
        size.learn(1, 64_000_000);
        assert_eq!(size.get(), 1);
        size.learn(0, 0);
        assert_eq!(size.get(), 1);
    }

    #[test]
    fn the_most_is_never_exceeded_and_never_less_than_one() {
        assert_eq!(PollSize::for_all(0).get(), 1);
        let mut size = PollSize::for_all(5);
        size.learn(5, 5);
        assert_eq!(size.get(), 5);
    }
}
