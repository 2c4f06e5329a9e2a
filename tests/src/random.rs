//! Random choices that a failing test can be repeated with.
//!
//! Always holds: the same seed gives the same numbers; the seed is printed, which a failing test shows.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::binaries;

/// Numbers that follow from a seed (SplitMix64).
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// From `E2E_SEED`, or else from the clock.
    ///
    /// # Panics
    /// When `E2E_SEED` is no number.
    pub fn new() -> Self {
        let seed = match binaries::variable("E2E_SEED") {
            Some(seed) => seed.parse().expect("E2E_SEED must be a number"),
            None => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since_epoch| since_epoch.as_millis() as u64),
        };
        println!("E2E_SEED={seed}");
        Self(seed)
    }

    /// A number below `bound`, which must not be 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % bound
    }

    /// A duration of less than `most`.
    pub fn duration(&mut self, most: Duration) -> Duration {
        Duration::from_millis(self.below(most.as_millis().max(1) as u64))
    }

    /// The same things in another order.
    pub fn shuffled<T>(&mut self, mut things: Vec<T>) -> Vec<T> {
        let mut shuffled = Vec::with_capacity(things.len());
        while !things.is_empty() {
            let at = self.below(things.len() as u64) as usize;
            shuffled.push(things.swap_remove(at));
        }
        shuffled
    }
}

impl Default for Random {
    fn default() -> Self {
        Self::new()
    }
}
