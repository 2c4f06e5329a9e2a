//! How long to wait before trying again: doubling pauses with jitter, capped. Pure; the caller sleeps.

use std::time::Duration;

/// Pauses that grow from `first` to `most`.
#[derive(Debug, Clone)]
pub struct Backoff {
    first: Duration,
    most: Duration,
    next: Duration,
}

impl Backoff {
    /// Begins with `first` and never exceeds `most`.
    pub fn new(first: Duration, most: Duration) -> Self {
        Self {
            first,
            most,
            next: first,
        }
    }

    /// Whether no pause has been taken since the start or the last [`Backoff::reset`].
    pub fn is_fresh(&self) -> bool {
        self.next == self.first
    }

    /// The next pause: between half and all of the present step, so that many who failed together do not come back
    /// together.
    pub fn next_pause(&mut self) -> Duration {
        let step = self.next;
        self.next = (self.next * 2).min(self.most);
        step.mul_f64(rand::random_range(0.5..=1.0))
    }

    /// It worked: the next pause is the first again.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_the_cap_and_start_over_after_success() {
        let mut backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(40));
        assert!(backoff.is_fresh());
        for most in [10, 20, 40, 40] {
            let pause = backoff.next_pause();
            assert!(
                pause <= Duration::from_millis(most) && pause >= Duration::from_millis(most / 2)
            );
        }
        assert!(!backoff.is_fresh());
        backoff.reset();
        assert!(backoff.is_fresh());
    }
}
