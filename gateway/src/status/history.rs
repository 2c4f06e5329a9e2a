//! The rates of the last minutes.
//!
//! What always holds: as many values as [`LENGTH`] at most, one each [`INTERVAL`]; keeping them costs a look at the counters
//! in that time, and one at delivery each [`LOOK`], which all who ask are shown.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until};

use super::History;
use crate::observe::Counters;
use crate::session::Context;

/// One value in this time.
const INTERVAL: Duration = Duration::from_secs(2);
/// Five minutes.
const LENGTH: usize = 150;
/// How old what is shown of delivery may be; for how long an offset has been held is seen as precisely.
const LOOK: Duration = Duration::from_millis(500);

/// What is remembered of one interval.
#[derive(Debug, Clone, Copy, Default)]
struct Sample {
    received: f64,
    stored: f64,
    not_stored: f64,
    delivered: f64,
    bytes_in: f64,
    bytes_out: f64,
    clients: f64,
    oldest_unacknowledged: f64,
}

/// The counters that rates are made of.
#[derive(Debug, Clone, Copy, Default)]
struct Totals {
    received: u64,
    stored: u64,
    not_stored: u64,
    delivered: u64,
    bytes_in: u64,
    bytes_out: u64,
}

impl Totals {
    fn of(counters: &Counters) -> Self {
        let not_stored = [
            &counters.publishes_protocol_error,
            &counters.publishes_refused,
            &counters.publishes_shed,
            &counters.publishes_failed,
        ];
        Self {
            received: counters.publishes_received.get(),
            stored: counters.publishes_stored.get(),
            not_stored: not_stored.into_iter().map(|counter| counter.get()).sum(),
            delivered: counters.copies_sent.get(),
            bytes_in: counters.bytes_received.get(),
            bytes_out: counters.bytes_sent.get(),
        }
    }

    /// What came between `before` and this, a second.
    fn since(self, before: Self, time: Duration) -> Sample {
        let rate = |now: u64, then: u64| {
            let rate = now.saturating_sub(then) as f64 / time.as_secs_f64().max(f64::EPSILON);
            (rate * 10.0).round() / 10.0
        };
        Sample {
            received: rate(self.received, before.received),
            stored: rate(self.stored, before.stored),
            not_stored: rate(self.not_stored, before.not_stored),
            delivered: rate(self.delivered, before.delivered),
            bytes_in: rate(self.bytes_in, before.bytes_in),
            bytes_out: rate(self.bytes_out, before.bytes_out),
            ..Sample::default()
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Recorder(Mutex<VecDeque<Sample>>);

impl Recorder {
    /// Records for as long as it is polled.
    pub(super) async fn record(&self, context: &Context) {
        let mut before = Totals::of(&context.counters);
        let mut begun = Instant::now();
        let mut next = begun + LOOK;
        loop {
            sleep_until(next).await;
            let now = Instant::now();
            // After a pause of the whole machine nothing is made up for.
            next = now.max(next) + LOOK;
            let delivery = context.delivery.load_full();
            // With thousands of subscribers it takes milliseconds, in which others are to be served.
            let look = spawn_blocking(move || delivery.map(|delivery| delivery.look(now)));
            let seen = look.await.ok().flatten();
            if now - begun < INTERVAL {
                continue;
            }
            let totals = Totals::of(&context.counters);
            let sample = Sample {
                clients: context.sessions.len() as f64,
                oldest_unacknowledged: seen.map_or(0.0, |seen| seen.held_for().as_secs_f64()),
                ..totals.since(before, now - begun)
            };
            (before, begun) = (totals, now);
            self.keep(sample);
        }
    }

    fn keep(&self, sample: Sample) {
        let mut samples = self.0.lock();
        if samples.len() == LENGTH {
            samples.pop_front();
        }
        samples.push_back(sample);
    }

    /// All of it.
    pub(super) fn history(&self) -> History {
        let samples = self.0.lock();
        let list = |value: fn(&Sample) -> f64| samples.iter().map(value).collect();
        History {
            interval_seconds: INTERVAL.as_secs_f64(),
            received: list(|sample| sample.received),
            stored: list(|sample| sample.stored),
            not_stored: list(|sample| sample.not_stored),
            delivered: list(|sample| sample.delivered),
            bytes_in: list(|sample| sample.bytes_in),
            bytes_out: list(|sample| sample.bytes_out),
            clients: list(|sample| sample.clients),
            oldest_unacknowledged: list(|sample| sample.oldest_unacknowledged),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_minutes_are_kept_and_no_more() {
        let recorder = Recorder::default();
        for number in 0..LENGTH + 5 {
            recorder.keep(Sample {
                clients: number as f64,
                ..Sample::default()
            });
        }
        let clients = recorder.history().clients;
        assert_eq!(clients.len(), LENGTH);
        assert_eq!(clients.first(), Some(&5.0));
        assert_eq!(clients.last(), Some(&((LENGTH + 4) as f64)));
    }

    #[test]
    fn a_rate_is_what_came_in_the_time_by_the_second() {
        let counters = Counters::default();
        let before = Totals::of(&counters);
        counters.publishes_received.add(100);
        counters.publishes_refused.add(6);
        counters.publishes_shed.add(4);
        let sample = Totals::of(&counters).since(before, Duration::from_secs(4));
        assert_eq!(
            (sample.received, sample.not_stored, sample.stored),
            (25.0, 2.5, 0.0)
        );
    }
}
