//! Log lines that anyone can cause: one a second at most, and a few at once, with the number of those left out.

use parking_lot::Mutex;
use tokio::time::{Duration, Instant};

/// The least time between two lines.
const INTERVAL: Duration = Duration::from_secs(1);

/// Decides which of many like lines are written.
#[derive(Debug)]
pub struct Limited {
    /// How many may be written at once after a quiet time.
    burst: u32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// When as many may be written at once as ever.
    rested: Option<Instant>,
    left_out: u64,
}

impl Default for Limited {
    fn default() -> Self {
        Self::with_burst(1)
    }
}

impl Limited {
    /// One a second, and after a quiet time `burst` at once.
    pub fn with_burst(burst: u32) -> Self {
        Self {
            burst,
            state: Mutex::default(),
        }
    }

    /// Whether a line may be written now; if so, how many were left out since the last.
    pub fn allow(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock();
        let rested = state.rested.map_or(now, |rested| rested.max(now)) + INTERVAL;
        if rested > now + INTERVAL * self.burst {
            state.left_out += 1;
            return None;
        }
        state.rested = Some(rested);
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

    #[tokio::test(start_paused = true)]
    async fn after_a_quiet_time_a_few_lines_may_come_at_once() {
        let limited = Limited::with_burst(3);
        let start = Instant::now();
        let written = |now| {
            (0..10)
                .filter_map(|_| limited.allow(now))
                .collect::<Vec<_>>()
        };
        assert_eq!(written(start), [0, 0, 0]);
        assert_eq!(written(start + INTERVAL), [7]);
        assert_eq!(written(start + INTERVAL * 60), [9, 0, 0]);
    }
}
