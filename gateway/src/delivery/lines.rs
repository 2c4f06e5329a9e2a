//! Log lines about partitions. One cause can concern all partitions, records or subscribers at once, so each kind is limited
//! for itself.

use crate::limited::Limited;

/// How many lines of a kind may be written at once after a quiet time.
const BURST: u32 = 10;

/// See the module.
#[derive(Debug)]
pub struct Lines {
    /// What cannot be read.
    pub failures: Limited,
    /// Records that were gone before they were read or delivered.
    pub gaps: Limited,
    /// Logs that are shorter than they were, or others under the same name.
    pub changes: Limited,
    /// Partitions whose reading begins before their end.
    pub resumed: Limited,
}

impl Default for Lines {
    fn default() -> Self {
        let lines = || Limited::with_burst(BURST);
        Self {
            failures: lines(),
            gaps: lines(),
            changes: lines(),
            resumed: lines(),
        }
    }
}
