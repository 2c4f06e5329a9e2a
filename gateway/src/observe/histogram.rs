//! How often something had which size.
//!
//! What always holds: observing is three relaxed atomic additions and no lock; a picture of it counts each value in one bucket,
//! though not all values that were observed while it was made.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts values by buckets.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [u64],
    /// One for each bound, and one for what lies above all of them.
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

/// A histogram at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistogramState {
    /// Upper bounds, each belonging to its bucket, with how many values are in it; the last one has no bound.
    pub buckets: Vec<(Option<u64>, u64)>,
    /// The sum of all values.
    pub sum: u64,
}

impl HistogramState {
    /// How many values there are.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }
}

impl Histogram {
    /// Nothing observed. `bounds` grow.
    pub fn new(bounds: &'static [u64]) -> Self {
        Self {
            bounds,
            counts: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(),
            sum: AtomicU64::new(0),
        }
    }

    /// Counts `value`.
    pub fn observe(&self, value: u64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        if let Some(count) = self.counts.get(bucket) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// What was observed.
    pub fn state(&self) -> HistogramState {
        let bounds = self.bounds.iter().copied().map(Some).chain([None]);
        let counts = self
            .counts
            .iter()
            .map(|count| count.load(Ordering::Relaxed));
        HistogramState {
            buckets: bounds.zip(counts).collect(),
            sum: self.sum.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_counted_in_the_first_bucket_whose_bound_it_does_not_exceed() {
        let histogram = Histogram::new(&[1, 10]);
        for value in [0, 1, 2, 10, 11, 1_000] {
            histogram.observe(value);
        }
        let state = histogram.state();
        assert_eq!(state.buckets, [(Some(1), 2), (Some(10), 2), (None, 2)]);
        assert_eq!((state.sum, state.count()), (1_024, 6));
    }
}
