//! Log lines that anyone can cause: one a second at most, with the number of those left out.

use parking_lot::Mutex;
use tokio::time::{Duration, Instant};

/// The least time between two lines.
const INTERVAL: Duration = Duration::from_secs(1);

/// Decides which of many like lines are written.
#[derive(Debug, Default)]
pub struct Limited(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    last: Option<Instant>,
    left_out: u64,
}

impl Limited {
    /// Whether a line may be written now; if so, how many were left out since the last.
    pub fn allow(&self, now: Instant) -> Option<u64> {
        let mut state = self.0.lock();
        if state
            .last
            .is_some_and(|last| now.duration_since(last) < INTERVAL)
        {
            state.left_out += 1;
            return None;
        }
        state.last = Some(now);
        Some(std::mem::take(&mut state.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_line_a_second_tells_how_many_were_left_out() {
        let limited = Limited::default();
        let start = Instant::now();
        assert_eq!(limited.allow(start), Some(0));
        for _ in 0..7 {
            assert_eq!(limited.allow(start + INTERVAL / 2), None);
        }
        assert_eq!(limited.allow(start + INTERVAL), Some(7));
        assert_eq!(limited.allow(start + INTERVAL * 3), Some(0));
    }
}
