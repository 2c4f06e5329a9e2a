//! No more than so many messages per second: a bucket of tokens. Pure; time is passed in.

use std::time::Duration;

use tokio::time::Instant;

/// Allows `rate` messages per second, and as many at once after a quiet second.
#[derive(Debug)]
pub struct Pace {
    rate: u32,
    /// How many may go now; a fraction of one is on its way.
    tokens: f64,
    filled: Instant,
}

impl Pace {
    /// All of a second's messages may go at once.
    pub fn new(rate: u32, now: Instant) -> Self {
        Self {
            rate,
            tokens: f64::from(rate),
            filled: now,
        }
    }

    /// How many may go now; if none, when one may.
    pub fn allowed(&mut self, now: Instant) -> Result<usize, Instant> {
        let rate = f64::from(self.rate);
        self.fill(now);
        if self.tokens >= 1.0 {
            return Ok(self.tokens as usize);
        }
        // A little more than needed, so that rounding never makes a busy loop.
        let wait = Duration::from_secs_f64((1.0 - self.tokens) / rate) + Duration::from_millis(1);
        Err(now + wait)
    }

    /// A place for one message behind those that have theirs: when it may go.
    pub fn reserve(&mut self, now: Instant) -> Instant {
        let rate = f64::from(self.rate);
        self.fill(now);
        self.tokens -= 1.0;
        if self.tokens >= 0.0 {
            return now;
        }
        now + Duration::from_secs_f64(-self.tokens / rate)
    }

    /// Whether as many may go at once as ever.
    pub fn is_full(&mut self, now: Instant) -> bool {
        self.fill(now);
        self.tokens >= f64::from(self.rate)
    }

    /// A place that was reserved is not needed. Those behind it keep theirs.
    pub fn give_back(&mut self) {
        self.tokens = (self.tokens + 1.0).min(f64::from(self.rate));
    }

    fn fill(&mut self, now: Instant) {
        let rate = f64::from(self.rate);
        let passed = now.duration_since(self.filled).as_secs_f64();
        self.tokens = (self.tokens + passed * rate).min(rate);
        self.filled = now;
    }

    /// So many have gone.
    pub fn spend(&mut self, count: usize) {
        self.tokens -= count as f64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_allowed_and_then_the_rate() {
        let start = Instant::now();
        let mut pace = Pace::new(10, start);
        assert_eq!(pace.allowed(start), Ok(10));
        pace.spend(10);
        let next = pace.allowed(start).unwrap_err();
        assert!(next > start && next <= start + Duration::from_millis(102));
        assert_eq!(pace.allowed(next), Ok(1));
        let mut sent = 0;
        let mut now = start;
        while now < start + Duration::from_secs(10) {
            match pace.allowed(now) {
                Ok(count) => {
                    pace.spend(count);
                    sent += count;
                }
                Err(until) => now = until,
            }
        }
        assert!((98..=101).contains(&sent), "{sent}");
    }

    #[tokio::test(start_paused = true)]
    async fn places_are_in_a_row_and_one_that_is_given_back_is_there_again() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut pace = Pace::new(10, start);
        for _ in 0..10 {
            assert_eq!(pace.reserve(start), start);
        }
        let near = |a: Instant, b: Instant| a.max(b) - a.min(b) < Duration::from_millis(1);
        for n in 1..=5 {
            assert!(near(pace.reserve(start), at(n * 100)));
        }
        pace.give_back();
        pace.give_back();
        assert!(near(pace.reserve(start), at(400)));
        assert!(!pace.is_full(at(1_300)));
        assert!(pace.is_full(at(1_500)));
        pace.give_back();
        assert_eq!(pace.allowed(at(1_500)), Ok(10));
    }
}
