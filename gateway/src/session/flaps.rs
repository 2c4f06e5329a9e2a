//! Clients that are closed for the same reason again and again: they would send the same message, be closed for it, come
//! back, for ever.
//!
//! What always holds: a client is kept out only after `flap_limit` closes for one reason within a minute, and for no
//! longer than `flap_pause`; the memory for it is bounded, and what is forgotten is the oldest.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::config::Limits;
use crate::mqtt::ClientId;

/// Within this time closes count together.
const WITHIN: Duration = Duration::from_secs(60);
/// The most clients that are remembered. One that makes up new client ids is none that this is for.
const MOST: usize = 10_000;

/// See the module.
#[derive(Debug)]
pub struct Flaps {
    limit: usize,
    pause: Duration,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    closes: HashMap<ClientId, Closes>,
    /// In the order in which they became known.
    order: VecDeque<ClientId>,
}

#[derive(Debug)]
struct Closes {
    reason: &'static str,
    /// The last closes for that reason, oldest first; at most as many as the limit.
    times: VecDeque<Instant>,
}

/// A client that is kept out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flapping {
    /// Why it was closed.
    pub reason: &'static str,
    /// For how long it is still kept out.
    pub remaining: Duration,
}

impl Flaps {
    /// Nobody was closed yet.
    pub fn new(limits: &Limits) -> Self {
        Self {
            limit: limits.flap_limit,
            pause: limits.flap_pause,
            known: Mutex::default(),
        }
    }

    /// The client was closed for `reason`, which it will give again.
    pub fn closed(&self, client: &ClientId, reason: &'static str, now: Instant) {
        if self.limit == 0 {
            return;
        }
        let mut known = self.known.lock();
        let Known { closes, order } = &mut *known;
        let entry = closes.entry(client.clone()).or_insert_with(|| {
            order.push_back(client.clone());
            Closes {
                reason,
                times: VecDeque::new(),
            }
        });
        if entry.reason != reason {
            entry.reason = reason;
            entry.times.clear();
        }
        if entry.times.len() == self.limit {
            entry.times.pop_front();
        }
        entry.times.push_back(now);
        if order.len() > MOST
            && let Some(oldest) = order.pop_front()
        {
            closes.remove(&oldest);
        }
    }

    /// Why the client is kept out, if it is.
    pub fn check(&self, client: &ClientId, now: Instant) -> Option<Flapping> {
        let known = self.known.lock();
        let closes = known.closes.get(client)?;
        let (first, last) = (closes.times.front()?, closes.times.back()?);
        if closes.times.len() < self.limit || last.duration_since(*first) > WITHIN {
            return None;
        }
        let remaining = self.pause.checked_sub(now.duration_since(*last))?;
        (!remaining.is_zero()).then_some(Flapping {
            reason: closes.reason,
            remaining,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(n: usize) -> ClientId {
        ClientId::new(&format!("c{n}")).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn as_many_closes_for_one_reason_within_a_minute_keep_a_client_out_for_the_pause() {
        let limits = Limits::default();
        let flaps = Flaps::new(&limits);
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        for n in 0..4 {
            flaps.closed(&client(1), "no_rule", at(n * 10));
            assert_eq!(flaps.check(&client(1), at(n * 10)), None);
        }
        flaps.closed(&client(1), "no_rule", at(40));
        let kept_out = flaps.check(&client(1), at(45)).unwrap();
        assert_eq!(
            (kept_out.reason, kept_out.remaining.as_secs()),
            ("no_rule", 25)
        );
        assert_eq!(flaps.check(&client(2), at(45)), None);
        assert_eq!(flaps.check(&client(1), at(70)), None);
        // It has learnt nothing: one more is enough, as long as the minute lasts.
        flaps.closed(&client(1), "no_rule", at(70));
        assert!(flaps.check(&client(1), at(71)).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn other_reasons_and_rare_closes_do_not_add_up() {
        let flaps = Flaps::new(&Limits::default());
        let start = Instant::now();
        for n in 0..20 {
            let now = start + Duration::from_secs(n * 16);
            flaps.closed(&client(1), "no_rule", now);
            assert_eq!(flaps.check(&client(1), now), None);
            flaps.closed(
                &client(2),
                if n % 2 == 0 { "no_rule" } else { "failed" },
                start,
            );
            assert_eq!(flaps.check(&client(2), start), None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_memory_is_bounded() {
        let flaps = Flaps::new(&Limits::default());
        for n in 0..MOST + 50 {
            flaps.closed(&client(n), "no_rule", Instant::now());
        }
        let known = flaps.known.lock();
        assert_eq!((known.closes.len(), known.order.len()), (MOST, MOST));
    }
}
