//! What the gateway counts and measures. Every packet and every record ends in exactly one counted outcome.
//!
//! What always holds: `publishes_received = stored + protocol_errors + refused + shed + failed` at any quiet moment
//! (invariant N7); a counter only grows. Exposing the counters is left to whoever asks for a [`Counters::snapshot`].

use std::sync::atomic::{AtomicU64, Ordering};

mod histogram;

pub use histogram::{Histogram, HistogramState};

/// One number that only grows. Counting is a relaxed atomic addition: no order with other memory is promised.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Counts one.
    pub fn increment(&self) {
        self.add(1);
    }

    /// Counts `n`.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// The number now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The bounds of [`Counters::append_micros`]: 0.25 ms to 10 s.
const APPEND_MICROS: &[u64] = &[
    250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 10_000_000,
];
/// The bounds of [`Counters::append_messages`]; `max_batch_messages` is 1,000 unless it is configured.
const APPEND_MESSAGES: &[u64] = &[1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 10_000];

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// All counters of one gateway.
        #[derive(Debug)]
        pub struct Counters {
            $($(#[$doc])* pub $name: Counter,)*
            /// How long appends took that were confirmed, from when they were first tried, in microseconds.
            pub append_micros: Histogram,
            /// How many messages were in the batches that were appended.
            pub append_messages: Histogram,
        }

        impl Default for Counters {
            fn default() -> Self {
                Self {
                    $($name: Counter::default(),)*
                    append_micros: Histogram::new(APPEND_MICROS),
                    append_messages: Histogram::new(APPEND_MESSAGES),
                }
            }
        }

        impl Counters {
            /// Every counter's name and its number now.
            pub fn snapshot(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.get()),)*]
            }
        }
    };
}

counters! {
    /// Sockets accepted.
    connections_opened,
    /// Sockets closed again.
    connections_closed,
    /// CONNECTs answered with CONNACK 0x00.
    connects_accepted,
    /// CONNECTs answered with another code, or closed without an answer.
    connects_refused,
    /// Refused with CONNACK 0x01: another version of the protocol.
    connects_refused_0x01,
    /// Refused with CONNACK 0x02: the client id is not legal.
    connects_refused_0x02,
    /// Refused with CONNACK 0x03: Iggy is away, a limit is reached, or the client has to wait.
    connects_refused_0x03,
    /// Refused with CONNACK 0x04: user name or password are not right.
    connects_refused_0x04,
    /// Refused with CONNACK 0x05: not allowed, or something is asked for that is not served.
    connects_refused_0x05,
    /// Refused without a CONNACK: what came is no CONNECT of any version, or its address connects too often.
    connects_refused_silently,
    /// CONNECTs refused because of `connect_rate` or `connect_rate_per_address`; among the refused.
    connects_over_rate,
    /// Sockets that were closed before a whole CONNECT had come.
    connects_unfinished,
    /// Handshakes of TLS or WebSocket that failed; among the sockets closed before a whole CONNECT had come.
    handshakes_failed,
    /// CONNECTs refused because user name, password, certificate or token were missing or wrong; among the refused.
    connects_unauthenticated,
    /// Connections closed because what had let them in no longer holds: the user was removed or changed, the token expired.
    connections_revoked,
    /// Files of certificates, users, permissions or keys that were read anew.
    reloads,
    /// Files that could not be read anew; what they held before stays in use.
    reloads_failed,
    /// Connections that another with the same client id replaced.
    takeovers,
    /// Packets, or frames around them, that broke the protocol after CONNECT; their connection was closed.
    violations,
    /// Connections closed because nothing was heard for 1.5 times their keep-alive.
    keep_alive_timeouts,
    /// Tasks of connections that ended by a panic; each is a bug, and cost that connection only.
    connection_panics,

    /// Bytes that came from clients, after TLS and WebSocket.
    bytes_received,
    /// Bytes that were written to clients, before TLS and WebSocket.
    bytes_sent,

    /// PUBLISH packets that came from clients, whatever became of them.
    publishes_received,
    /// Of these the whole packets with QoS 0.
    publishes_received_qos0,
    /// Of these the whole packets with QoS 1.
    publishes_received_qos1,
    /// Of these those that broke the protocol before their QoS was of use.
    publishes_received_invalid,
    /// Bytes of the payloads of PUBLISHes with QoS 0.
    payload_bytes_received_qos0,
    /// Bytes of the payloads of PUBLISHes with QoS 1.
    payload_bytes_received_qos1,
    /// PUBLISHes that waited because of `publish_rate` or `publish_rate_per_address`.
    publishes_slowed,
    /// PUBLISHes whose append was confirmed.
    publishes_stored,
    /// PUBLISHes that broke the protocol.
    publishes_protocol_error,
    /// PUBLISHes that can never be stored, or are not allowed.
    publishes_refused,
    /// QoS 0 PUBLISHes dropped because Iggy was slow or away and the buffers were full.
    publishes_shed,
    /// PUBLISHes whose append failed for good or was given up, or whose client left before it was queued.
    publishes_failed,
    /// PUBLISHes that were stored without an append, because they are the same message as one that was; among the stored.
    publishes_deduplicated,
    /// Refused: no rule matches.
    refused_no_rule,
    /// Refused: the topic begins with `$`, and no rule is for it.
    refused_dollar_topic,
    /// Refused: the rule makes a name that Iggy does not allow.
    refused_invalid_name,
    /// Refused: the Iggy topic is missing and must not be made.
    refused_no_target,
    /// Refused: the map's bounds are reached.
    refused_too_many_targets,
    /// Refused: the Iggy topic promises less than its rule asks for.
    refused_weak_durability,
    /// Refused: Iggy does not permit it to the gateway's user.
    refused_not_permitted,
    /// Refused: over Iggy's limits.
    refused_too_large,
    /// Refused: Iggy does not take it for another reason.
    refused_rejected,
    /// Refused: no source connector is attached.
    refused_no_ingest_role,
    /// Refused: the permissions of the client do not allow it.
    refused_not_allowed,
    /// Refused PUBLISHes that were stored in the dead-letter topic.
    dead_letters,
    /// Refused QoS 0 PUBLISHes that were dropped because of `dead_letter_rate`.
    dead_letters_dropped,
    /// Refused PUBLISHes that the dead-letter topic did not take either.
    dead_letters_failed,
    /// Topics whose number of partitions was found to be another.
    repartitions,
    /// Topics in use whose durability is weaker than their rules ask for; counted when Iggy is asked.
    weak_targets,
    /// CONNECTs of clients that were closed for the same reason again and again.
    connects_flapping,
    /// PUBACKs sent to publishers.
    pubacks_sent,
    /// Batches that were appended.
    appends,
    /// Appends tried again after a transient error.
    append_retries,
    /// Batches that the connectors runtime took and did not store (`produce = "runtime"`); they are handed over again.
    runtime_nacks,

    /// Filters granted in SUBACKs.
    subscriptions_granted,
    /// Filters answered with 0x80.
    subscriptions_refused,
    /// Polls sent to Iggy by readers.
    polls,
    /// Polls that brought nothing.
    polls_empty,
    /// Polls that failed.
    polls_failed,
    /// Records that readers got.
    records_read,
    /// Records that were skipped because they carry no legal MQTT topic.
    records_skipped,
    /// Copies put into outboxes.
    copies_queued,
    /// Copies handed to sockets.
    copies_sent,
    /// Of these those with QoS 0.
    copies_sent_qos0,
    /// Of these those with QoS 1.
    copies_sent_qos1,
    /// Bytes of the payloads of copies with QoS 0.
    payload_bytes_sent_qos0,
    /// Bytes of the payloads of copies with QoS 1.
    payload_bytes_sent_qos1,
    /// QoS 0 copies dropped because an outbox was full.
    copies_dropped,
    /// PUBACKs from subscribers that ended a copy.
    copies_acknowledged,
    /// PUBACKs from subscribers for packet ids that were not out.
    unknown_pubacks,
    /// Cursors that left their reader because their outbox was full.
    cursors_lagged,
    /// Cursors that met their reader again.
    cursors_rejoined,
    /// Subscribers closed because they cost the others too much; each has one of the reasons below.
    evictions,
    /// Evicted: the acknowledgement of the oldest message was owed for `ack_timeout`.
    evictions_silent,
    /// Evicted: further behind than `max_lag_messages` or `max_lag_time`.
    evictions_too_far_behind,
    /// Evicted: all outboxes together were full, and theirs was the largest.
    evictions_largest_outbox,
    /// Evicted: a message was sent again `retransmit_max` times in vain.
    evictions_unanswered,
    /// Reads for subscribers that were behind.
    catchup_reads,
    /// Copies sent again after `retransmit_interval`.
    copies_sent_again,
    /// Subscriptions that moved because a topic had another number of partitions.
    subscriptions_moved,
    /// Records that retention had removed before they were read.
    records_missed,
    /// Logs whose end was found to have moved back.
    log_regressions,
    /// Offsets committed.
    commits,
    /// Commits that failed; they are tried again.
    commits_failed,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_names_every_counter_with_its_number() {
        let counters = Counters::default();
        counters.appends.add(3);
        counters.takeovers.increment();
        let snapshot = counters.snapshot();
        assert!(snapshot.contains(&("appends", 3)));
        assert!(snapshot.contains(&("takeovers", 1)));
        assert!(
            snapshot
                .iter()
                .all(|(name, n)| ["appends", "takeovers"].contains(name) || *n == 0)
        );
    }
}
