//! Which counter is shown as which metric.
//!
//! What always holds: every counter of the gateway is in exactly one family, but for those that are the sum of one
//! ([`SUMS`]).

use crate::observe::Counters;

/// A family of counters: one metric, with a label that tells its samples apart if there are several.
pub(super) struct CounterFamily {
    /// Its name, without the prefix, the unit and `_total`.
    pub(super) name: &'static str,
    /// `bytes`, if it counts something else than events.
    pub(super) is_bytes: bool,
    pub(super) help: &'static str,
    /// The label, and for each value the counter.
    pub(super) label: &'static str,
    pub(super) samples: &'static [Sample],
}

/// The value of the label (empty: there is no label), and the counter's name and number.
pub(super) struct Sample {
    pub(super) value: &'static str,
    #[cfg(test)]
    pub(super) counter: &'static str,
    pub(super) get: fn(&Counters) -> u64,
}

macro_rules! families {
    ($($name:literal $(in $unit:ident)? ($help:literal) $($label:literal)? { $($value:literal => $counter:ident),+ $(,)? })+) => {
        &[$(CounterFamily {
            name: $name,
            is_bytes: families!(@unit $($unit)?),
            help: $help,
            label: families!(@label $($label)?),
            samples: &[$(Sample {
                value: $value,
                #[cfg(test)]
                counter: stringify!($counter),
                get: |counters| counters.$counter.get(),
            }),+],
        }),+]
    };
    (@unit bytes) => { true };
    (@unit) => { false };
    (@label $label:literal) => { $label };
    (@label) => { "" };
}

/// All of them.
pub(super) const COUNTERS: &[CounterFamily] = families! {
    "connections_opened" ("Sockets accepted") { "" => connections_opened }
    "connections_closed" ("Sockets closed again") { "" => connections_closed }
    "connects_accepted" ("CONNECTs answered with CONNACK 0x00") { "" => connects_accepted }
    "connects_refused" ("CONNECTs refused, by the code of the CONNACK; none if there was no answer") "code" {
        "0x01" => connects_refused_0x01,
        "0x02" => connects_refused_0x02,
        "0x03" => connects_refused_0x03,
        "0x04" => connects_refused_0x04,
        "0x05" => connects_refused_0x05,
        "none" => connects_refused_silently,
    }
    "connects_over_rate" ("CONNECTs refused because of connect_rate or connect_rate_per_address") { "" => connects_over_rate }
    "connects_unauthenticated" ("CONNECTs refused because user name, password, certificate or token were missing or wrong") { "" => connects_unauthenticated }
    "connects_flapping" ("CONNECTs refused because the client was closed for the same reason again and again") { "" => connects_flapping }
    "connects_unfinished" ("Sockets closed before a whole CONNECT had come") { "" => connects_unfinished }
    "handshakes_failed" ("Handshakes of TLS or WebSocket that failed") { "" => handshakes_failed }
    "connections_revoked" ("Connections closed because what had let them in no longer holds") { "" => connections_revoked }
    "takeovers" ("Connections that another with the same client id replaced") { "" => takeovers }
    "protocol_errors" ("Connections closed because the client broke the protocol after CONNECT") { "" => violations }
    "keep_alive_timeouts" ("Connections closed because nothing was heard for 1.5 times the keep-alive") { "" => keep_alive_timeouts }
    "connection_panics" ("Tasks of connections that ended by a panic; each is a bug") { "" => connection_panics }
    "reloads" ("Files read anew while the gateway ran") "result" { "ok" => reloads, "failed" => reloads_failed }
    "received" in bytes ("Bytes that came from clients, after TLS and WebSocket") { "" => bytes_received }
    "sent" in bytes ("Bytes written to clients, before TLS and WebSocket") { "" => bytes_sent }

    "publishes_received" ("PUBLISH packets from clients, by QoS; invalid is what broke the protocol before that was known") "qos" {
        "0" => publishes_received_qos0,
        "1" => publishes_received_qos1,
        "invalid" => publishes_received_invalid,
    }
    "publish_payload_received" in bytes ("Bytes of the payloads of PUBLISHes from clients") "qos" {
        "0" => payload_bytes_received_qos0,
        "1" => payload_bytes_received_qos1,
    }
    "publishes" ("What became of PUBLISHes: each has one outcome") "outcome" {
        "stored" => publishes_stored,
        "protocol_error" => publishes_protocol_error,
        "refused" => publishes_refused,
        "shed" => publishes_shed,
        "failed" => publishes_failed,
    }
    "publishes_refused" ("PUBLISHes refused, by reason") "reason" {
        "no_rule" => refused_no_rule,
        "dollar_topic" => refused_dollar_topic,
        "invalid_name" => refused_invalid_name,
        "no_target" => refused_no_target,
        "too_many_targets" => refused_too_many_targets,
        "weak_durability" => refused_weak_durability,
        "not_permitted" => refused_not_permitted,
        "too_large" => refused_too_large,
        "rejected" => refused_rejected,
        "no_ingest_role" => refused_no_ingest_role,
        "not_allowed" => refused_not_allowed,
    }
    "dead_letters" ("Refused PUBLISHes and the dead-letter topic: stored there, dropped because of dead_letter_rate, or not taken there either") "result" {
        "stored" => dead_letters,
        "dropped" => dead_letters_dropped,
        "failed" => dead_letters_failed,
    }
    "publishes_deduplicated" ("PUBLISHes sent again that were stored without a second append; among the stored") { "" => publishes_deduplicated }
    "publishes_slowed" ("PUBLISHes that waited because of publish_rate or publish_rate_per_address") { "" => publishes_slowed }
    "pubacks_sent" ("PUBACKs sent to publishers") { "" => pubacks_sent }
    "appends" ("Batches appended to Iggy") { "" => appends }
    "append_retries" ("Appends tried again after an error that may pass") { "" => append_retries }
    "runtime_nacks" ("Batches that the connectors runtime did not store (produce = runtime)") { "" => runtime_nacks }
    "repartitions" ("Topics whose number of partitions was found to be another") { "" => repartitions }
    "weak_targets_seen" ("Times that a topic was found whose durability is weaker than its rule asks for") { "" => weak_targets }

    "subscriptions" ("Filters in SUBSCRIBEs") "result" { "granted" => subscriptions_granted, "refused" => subscriptions_refused }
    "subscriptions_moved" ("Subscriptions that moved because a topic had another number of partitions") { "" => subscriptions_moved }
    "polls" ("Polls sent to Iggy by readers") { "" => polls }
    "polls_empty" ("Polls that brought nothing") { "" => polls_empty }
    "polls_failed" ("Polls that failed") { "" => polls_failed }
    "records_read" ("Records that readers got") { "" => records_read }
    "records_skipped" ("Records without a legal MQTT topic") { "" => records_skipped }
    "records_missed" ("Records that retention had removed before they were read: gaps") { "" => records_missed }
    "log_regressions" ("Logs whose end was found to have moved back") { "" => log_regressions }
    "copies_queued" ("Copies put into outboxes") { "" => copies_queued }
    "copies_sent" ("Copies handed to sockets, by QoS") "qos" { "0" => copies_sent_qos0, "1" => copies_sent_qos1 }
    "copies_payload_sent" in bytes ("Bytes of the payloads of copies handed to sockets") "qos" {
        "0" => payload_bytes_sent_qos0,
        "1" => payload_bytes_sent_qos1,
    }
    "copies_dropped" ("QoS 0 copies dropped because an outbox was full") { "" => copies_dropped }
    "copies_acknowledged" ("QoS 1 copies acknowledged by their subscribers") { "" => copies_acknowledged }
    "copies_sent_again" ("Copies sent again after retransmit_interval") { "" => copies_sent_again }
    "unknown_pubacks" ("PUBACKs from subscribers for packet ids that were not out") { "" => unknown_pubacks }
    "cursors_lagged" ("Times that a subscriber left its reader because its outbox was full") { "" => cursors_lagged }
    "cursors_rejoined" ("Times that such a subscriber met its reader again") { "" => cursors_rejoined }
    "catchup_reads" ("Reads for subscribers that were behind") { "" => catchup_reads }
    "evictions" ("Subscribers closed because they cost the others too much, by reason") "reason" {
        "silent" => evictions_silent,
        "too_far_behind" => evictions_too_far_behind,
        "largest_outbox" => evictions_largest_outbox,
        "unanswered" => evictions_unanswered,
    }
    "commits" ("Offsets committed") "result" { "ok" => commits, "failed" => commits_failed }
};

/// Counters that are the sum of a family's samples.
#[cfg(test)]
pub(super) const SUMS: &[&str] = &[
    "connects_refused",
    "publishes_received",
    "copies_sent",
    "evictions",
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_counter_is_in_exactly_one_family_and_shows_its_own_number() {
        let samples: Vec<_> = COUNTERS.iter().flat_map(|family| family.samples).collect();
        let names: BTreeSet<_> = samples.iter().map(|sample| sample.counter).collect();
        assert_eq!(names.len(), samples.len(), "a counter is in two families");
        let counters = Counters::default();
        let all: BTreeSet<_> = counters
            .snapshot()
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        let all: BTreeSet<_> = all
            .difference(&SUMS.iter().copied().collect())
            .copied()
            .collect();
        assert_eq!(names, all);
    }

    #[test]
    fn a_family_has_a_label_if_it_has_several_samples() {
        for family in COUNTERS {
            let has_label = !family.label.is_empty();
            assert_eq!(has_label, family.samples.len() > 1, "{}", family.name);
            assert!(
                family
                    .samples
                    .iter()
                    .all(|sample| sample.value.is_empty() != has_label)
            );
        }
    }
}
