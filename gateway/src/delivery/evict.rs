//! Which clients are closed because they cost the others too much, and why.
//!
//! What always holds: a client is closed only for one of the reasons of [`Eviction`], each counted; what it had not
//! acknowledged no longer holds back the committed offset (D7), and what was queued for it is free (D6).

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::Delivery;
use super::outbox::{ConnectionId, Outbox, OutboxTotal};
use crate::config::Limits;
use crate::observe::Counters;

/// Why a subscriber is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Eviction {
    /// It has owed the acknowledgement of its oldest message for `ack_timeout`.
    Silent,
    /// It is further behind than `max_lag_messages` or `max_lag_time`.
    TooFarBehind,
    /// All outboxes together are full, and its is the largest.
    LargestOutbox,
    /// A message was sent again `retransmit_max` times in vain.
    Unanswered,
}

impl Eviction {
    /// For log lines.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Silent => "it has owed the acknowledgement of its oldest message for ack_timeout",
            Self::TooFarBehind => "it is further behind than max_lag_messages or max_lag_time",
            Self::LargestOutbox => {
                "all outboxes together have reached outbox_bytes_total, and its is the largest"
            }
            Self::Unanswered => "a message was sent again retransmit_max times in vain",
        }
    }

    /// Counts it.
    pub fn count(self, counters: &Counters) {
        counters.evictions.increment();
        let reason = match self {
            Self::Silent => &counters.evictions_silent,
            Self::TooFarBehind => &counters.evictions_too_far_behind,
            Self::LargestOutbox => &counters.evictions_largest_outbox,
            Self::Unanswered => &counters.evictions_unanswered,
        };
        reason.increment();
    }
}

/// The clients that live now.
pub trait Clients: Send + Sync {
    /// Calls `look` for the outbox of each, and closes those for which it gives a reason.
    fn close_if(&self, look: &mut dyn FnMut(&Outbox) -> Option<Eviction>);

    /// The delivery role, if there is one.
    fn delivery(&self) -> Option<Arc<Delivery>>;
}

/// Closes the clients that cost the others too much. Runs until it is dropped.
pub async fn evict(limits: Limits, total: Arc<OutboxTotal>, clients: impl Clients) {
    let mut interval = limits.ack_timeout / 10;
    if !limits.retransmit_interval.is_zero() {
        interval = interval.min(limits.retransmit_interval / 4);
    }
    let interval = interval.clamp(Duration::from_millis(10), Duration::from_secs(1));
    let mut next = Instant::now() + interval;
    loop {
        let pause = next.saturating_duration_since(Instant::now());
        if timeout(pause, total.pressed()).await.is_ok() {
            close_largest(&clients);
            // Its room is free when its connection has ended.
            sleep(Duration::from_millis(5)).await;
            continue;
        }
        let now = Instant::now();
        next = now + interval;
        let behind = too_far_behind(&limits, &clients);
        clients.close_if(&mut |outbox| {
            let owes = outbox.owes_since().map(|since| now.duration_since(since));
            if owes.is_some_and(|owes| owes >= limits.ack_timeout) {
                Some(Eviction::Silent)
            } else if outbox.check_retransmission(now) {
                Some(Eviction::Unanswered)
            } else if behind.contains(&outbox.id()) {
                Some(Eviction::TooFarBehind)
            } else {
                None
            }
        });
    }
}

fn too_far_behind(limits: &Limits, clients: &impl Clients) -> HashSet<ConnectionId> {
    let Some(delivery) = clients.delivery() else {
        return HashSet::new();
    };
    delivery.too_far_behind(limits.max_lag_messages as u64, limits.max_lag_time)
}

fn close_largest(clients: &impl Clients) {
    let mut largest: Option<(usize, ConnectionId)> = None;
    clients.close_if(&mut |outbox| {
        let bytes = outbox.bytes();
        if largest.is_none_or(|(most, _)| bytes > most) {
            largest = Some((bytes, outbox.id()));
        }
        None
    });
    if let Some((_, id)) = largest {
        clients.close_if(&mut |outbox| (outbox.id() == id).then_some(Eviction::LargestOutbox));
    }
}
