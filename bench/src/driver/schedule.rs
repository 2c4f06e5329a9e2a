//! When the messages of a fixed rate are to be sent.
//!
//! Always holds: the times are those of the rate and of nothing else; a publisher that falls behind does not move them. A
//! latency that counts from them therefore holds the time that a message has waited for its turn, which a measurement that
//! only begins when the server has room would leave out (coordinated omission).

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use mio::event::Source;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use super::Limit;

/// How long after the end messages are still sent whose time came just before it.
pub(super) const GRACE: Duration = Duration::from_millis(100);

/// A number of messages at a fixed rate.
#[derive(Debug, Clone, Copy)]
pub(super) struct Schedule {
    rate: f64,
    planned: u64,
}

impl Schedule {
    /// `rate` messages in a second, from the first at time zero on, within the limit.
    pub(super) fn new(rate: f64, limit: Limit) -> Self {
        let in_time = (rate * limit.duration.as_secs_f64()).ceil() as u64;
        Self {
            rate,
            planned: limit.messages.min(in_time),
        }
    }

    /// How many messages there are.
    pub(super) fn planned(&self) -> u64 {
        self.planned
    }

    /// When message `number` is to be sent; the first one is number 0.
    pub(super) fn intended(&self, number: u64) -> Duration {
        Duration::from_secs_f64(number as f64 / self.rate)
    }

    /// How many messages are to be sent until `elapsed`.
    pub(super) fn due(&self, elapsed: Duration) -> u64 {
        let passed = (elapsed.as_secs_f64() * self.rate) as u64;
        passed.saturating_add(1).min(self.planned)
    }

    /// How long it is from `elapsed` until more are due; nothing when all are.
    pub(super) fn pause(&self, elapsed: Duration) -> Option<Duration> {
        let next = self.due(elapsed);
        (next < self.planned).then(|| self.intended(next).saturating_sub(elapsed))
    }
}

/// Wakes the thread that waits for sockets, to within some 50 µs; the wait itself only knows milliseconds.
#[derive(Debug)]
pub(super) struct Alarm(OwnedFd);

impl Alarm {
    /// One that `registry` tells of as `token`.
    pub(super) fn new(registry: &Registry, token: Token) -> io::Result<Self> {
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
        )?;
        SourceFd(&timer.as_raw_fd()).register(registry, token, Interest::READABLE)?;
        Ok(Self(timer))
    }

    /// It goes off after `pause`, once; what was set before does not count any more.
    pub(super) fn set(&self, pause: Duration) -> io::Result<()> {
        let time = |time: Duration| Timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: time.subsec_nanos().into(),
        };
        let once = Itimerspec {
            it_interval: time(Duration::ZERO),
            // Zero would switch it off.
            it_value: time(pause.max(Duration::from_nanos(1))),
        };
        timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &once)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(rate: f64, messages: u64, millis: u64) -> Schedule {
        let duration = Duration::from_millis(millis);
        Schedule::new(rate, Limit { messages, duration })
    }

    #[test]
    fn messages_are_due_at_the_times_of_the_rate() {
        let schedule = schedule(200.0, u64::MAX, 1_000);
        assert_eq!(schedule.planned(), 200);
        assert_eq!(schedule.intended(0), Duration::ZERO);
        assert_eq!(schedule.intended(3), Duration::from_millis(15));
        for (millis, due) in [
            (0, 1),
            (4, 1),
            (6, 2),
            (501, 101),
            (998, 200),
            (60_000, 200),
        ] {
            assert_eq!(schedule.due(Duration::from_millis(millis)), due, "{millis}");
        }
    }

    #[test]
    fn the_limit_of_messages_ends_a_schedule_before_its_time() {
        assert_eq!(schedule(200.0, 7, 1_000).planned(), 7);
        assert_eq!(schedule(200.0, 7, 1_000).due(Duration::from_secs(9)), 7);
        assert_eq!(schedule(3.0, u64::MAX, 500).planned(), 2);
    }

    #[test]
    fn the_pause_ends_when_the_next_message_is_due_and_there_is_none_after_the_last() {
        let schedule = schedule(200.0, 3, 1_000);
        let pause = |millis| schedule.pause(Duration::from_millis(millis));
        assert_eq!(pause(0), Some(Duration::from_millis(5)));
        assert_eq!(pause(6), Some(Duration::from_millis(4)));
        assert_eq!(pause(11), None);
    }
}
