//! What happened in a run, in the order in which it happened, for whoever has to find out why one failed.
//!
//! What always holds: only the newest events are kept, each with the time since the run began.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

/// How many events are kept.
const KEPT: usize = 300;

/// See the module. Cloning shares the events.
#[derive(Debug, Clone, Default)]
pub(in crate::sim) struct Trace(Arc<Mutex<Events>>);

#[derive(Debug, Default)]
struct Events {
    began: Option<Instant>,
    newest: VecDeque<String>,
    left_out: usize,
}

impl Trace {
    /// Notes that `who` did or saw `what` now.
    pub(in crate::sim) fn note(&self, who: &str, what: impl fmt::Display) {
        let now = Instant::now();
        let mut events = self.0.lock();
        let began = *events.began.get_or_insert(now);
        let at = now.duration_since(began).as_secs_f64();
        if events.newest.len() == KEPT {
            events.newest.pop_front();
            events.left_out += 1;
        }
        events
            .newest
            .push_back(format!("{at:>10.3}s {who:<8} {what}"));
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let events = self.0.lock();
        if events.left_out > 0 {
            writeln!(f, "({} earlier events are left out)", events.left_out)?;
        }
        events
            .newest
            .iter()
            .try_for_each(|line| writeln!(f, "{line}"))
    }
}
