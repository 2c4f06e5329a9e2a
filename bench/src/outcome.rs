//! What one measurement of one subject gave.
//!
//! Always holds: times are nanoseconds inside and microseconds in what is printed; a latency is recorded once for every
//! confirmation, never thinned out, and one above [`LONGEST`] counts as [`LONGEST`].

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// The longest latency that is told apart.
const LONGEST: Duration = Duration::from_secs(120);
/// Latencies that differ by less than one part in a thousand count as equal.
const DIGITS: u8 = 3;

/// The latencies of one measurement.
#[derive(Debug, Clone)]
pub(crate) struct Latencies(Histogram<u64>);

impl Latencies {
    /// None yet.
    pub(crate) fn new() -> Self {
        let longest = u64::try_from(LONGEST.as_nanos()).unwrap_or(u64::MAX);
        match Histogram::new_with_bounds(1, longest, DIGITS) {
            Ok(histogram) => Self(histogram),
            Err(error) => unreachable!("the bounds are constants: {error}"),
        }
    }

    /// Adds one.
    pub(crate) fn record(&mut self, latency: Duration) {
        self.0
            .saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Adds all of `other`.
    pub(crate) fn merge(&mut self, other: &Self) {
        // All have the same bounds, so none is lost.
        let _ = self.0.add(&other.0);
    }

    /// The figures that are printed.
    pub(crate) fn summary(&self) -> LatencySummary {
        let at = |quantile| micros(self.0.value_at_quantile(quantile));
        LatencySummary {
            count: self.0.len(),
            mean: self.0.mean() / 1_000.0,
            min: micros(self.0.min()),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: micros(self.0.max()),
        }
    }
}

fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1_000.0
}

/// The distribution of the latencies, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct LatencySummary {
    /// How many there were.
    pub(crate) count: u64,
    /// Their mean.
    pub(crate) mean: f64,
    /// The shortest.
    pub(crate) min: f64,
    /// Half of them were at most so long.
    pub(crate) p50: f64,
    /// Of ten, nine.
    pub(crate) p90: f64,
    /// Of a hundred, all but one.
    pub(crate) p99: f64,
    /// Of a thousand, all but one.
    pub(crate) p999: f64,
    /// The longest.
    pub(crate) max: f64,
}

/// What a subject did in one measurement.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    /// Messages that were confirmed; with QoS 0, that were taken.
    pub(crate) messages: u64,
    /// From the first message to the last confirmation.
    pub(crate) elapsed: Duration,
    /// At a fixed rate, messages whose time had come and that were not sent before the end.
    pub(crate) unsent: u64,
    /// From the moment at which a message is handed to the operating system, or, at a fixed rate, at which it was to be, to
    /// its confirmation.
    pub(crate) latencies: Latencies,
}

impl Outcome {
    /// Messages in a second.
    pub(crate) fn rate(&self) -> f64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds > 0.0 {
            self.messages as f64 / seconds
        } else {
            0.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_in_microseconds_and_within_one_part_in_a_thousand() {
        let mut latencies = Latencies::new();
        for micros in 1..=1_000 {
            latencies.record(Duration::from_micros(micros));
        }
        let summary = latencies.summary();
        assert_eq!(summary.count, 1_000);
        for (figure, exact) in [
            (summary.min, 1.0),
            (summary.p50, 500.0),
            (summary.p90, 900.0),
            (summary.p99, 990.0),
            (summary.p999, 999.0),
            (summary.max, 1_000.0),
            (summary.mean, 500.5),
        ] {
            assert!(
                (figure / exact - 1.0).abs() < 0.001,
                "{figure} is not {exact}"
            );
        }
    }

    #[test]
    fn a_latency_beyond_the_longest_is_counted_as_the_longest() {
        let mut latencies = Latencies::new();
        latencies.record(Duration::from_secs(3_600));
        let summary = latencies.summary();
        assert_eq!(summary.count, 1);
        assert!((summary.max / 120e6 - 1.0).abs() < 0.001, "{}", summary.max);
    }

    #[test]
    fn the_rate_is_messages_in_a_second_and_0_when_nothing_happened() {
        let outcome = |messages, millis| Outcome {
            messages,
            elapsed: Duration::from_millis(millis),
            unsent: 0,
            latencies: Latencies::new(),
        };
        assert!((outcome(500, 250).rate() - 2_000.0).abs() < 1e-6);
        assert_eq!(outcome(0, 0).rate(), 0.0);
    }
}
