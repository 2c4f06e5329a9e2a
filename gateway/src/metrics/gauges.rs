//! What is now, as gauges.
//!
//! What always holds: a gauge whose parts are not there has its name and no value, so that the list of names is always whole.

use std::time::{Duration, SystemTime};

use prometheus_client::registry::Unit;
use tokio::time::Instant;

use super::{Gauge, MAX_PARTITIONS, unix_seconds};
use crate::delivery::state::ReaderState;
use crate::ingest::board::LaneState;
use crate::listener::door::Phase;
use crate::log::Triple;
use crate::session::Context;
use crate::status::{Observer, readiness};

/// All of them.
pub(super) fn all(observer: &Observer) -> Vec<Gauge> {
    let (context, now) = (&**observer.context(), Instant::now());
    let mut gauges = gateway(observer, context);
    gauges.extend(listeners(context));
    gauges.extend(ingest(context, now));
    gauges.extend(delivery(context));
    gauges
}

fn gateway(observer: &Observer, context: &Context) -> Vec<Gauge> {
    let readiness = readiness::check(context);
    let mut checks = Gauge::new("ready_check", "Whether a check of readiness passes, 1 or 0");
    for check in &readiness.checks {
        checks.with(&[("check", &check.name)], f64::from(u8::from(check.ok)));
    }
    let mut build = Gauge::new("build_info", "The version that runs; always 1");
    build.with(&[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    let mut roles = Gauge::new("role_attached", "Whether a role is attached, 1 or 0");
    let attached = [
        ("ingest", context.ingest.load().is_some()),
        ("delivery", context.delivery.load().is_some()),
    ];
    for (role, is_there) in attached {
        roles.with(&[("role", role)], f64::from(u8::from(is_there)));
    }
    let away = context.health.away_for();
    vec![
        build,
        Gauge::new(
            "start_time",
            "When the gateway was started, seconds since 1970",
        )
        .in_unit(Unit::Seconds)
        .value(unix_seconds(SystemTime::now() - observer.uptime())),
        Gauge::new("ready", "Whether all checks of readiness pass, 1 or 0")
            .value(f64::from(u8::from(readiness.ready))),
        checks,
        roles,
        Gauge::new(
            "iggy_up",
            "Whether Iggy answered when it was asked last, 1 or 0",
        )
        .value(f64::from(u8::from(away.is_none()))),
        Gauge::new(
            "iggy_away",
            "For how long Iggy has not answered, 0 while it does",
        )
        .in_unit(Unit::Seconds)
        .value(away.unwrap_or_default().as_secs_f64()),
        Gauge::new("alarms", "Conditions that somebody has to see to")
            .value(context.alarms.standing().len() as f64),
        Gauge::new("clients_connected", "Clients that are connected")
            .value(context.sessions.len() as f64),
        Gauge::new(
            "topic_map_generation",
            "How often the topic map in force was replaced, counted from 1",
        )
        .value(context.map.generation() as f64),
        Gauge::new("topic_map_rules", "Rules of the topic map in force")
            .value(context.map.map().rules().count() as f64),
        Gauge::new(
            "topic_map_loaded_timestamp",
            "When the topic map in force was read, seconds since 1970",
        )
        .in_unit(Unit::Seconds)
        .value(unix_seconds(context.map.loaded_at())),
        Gauge::new(
            "weak_targets",
            "Topics in use whose durability is weaker than their rules ask for",
        )
        .value(context.targets.weak().len() as f64),
    ]
}

fn listeners(context: &Context) -> Vec<Gauge> {
    let mut connections = Gauge::new(
        "connections",
        "Sockets by listener: handshaking until their CONNECT is accepted, then connected",
    );
    let mut accepting = Gauge::new("listener_accepting", "Whether a listener accepts, 1 or 0");
    let mut accepted = Gauge::new("listener_accepted", "Sockets accepted by a listener").counter();
    let mut expiry = Gauge::new(
        "certificate_expiry_timestamp",
        "When the certificate of a listener ends to be valid, seconds since 1970",
    )
    .in_unit(Unit::Seconds);
    for door in &context.doors {
        let address = &*door.address.to_string();
        let listener = ("listener", address);
        let states = [
            ("handshaking", door.handshaking()),
            ("connected", door.connected()),
        ];
        for (state, count) in states {
            connections.with(&[listener, ("state", state)], count as f64);
        }
        let accepts = door.phase() == Phase::Accepting;
        accepting.with(&[listener], f64::from(u8::from(accepts)));
        accepted.with(&[listener], door.accepted.get() as f64);
        if let Some(end) = door.certificate_ends() {
            expiry.with(&[listener], unix_seconds(end));
        }
    }
    vec![connections, accepting, accepted, expiry]
}

/// The first of what is sorted by partition, and how many are left out.
fn cut<T>(mut all: Vec<T>, triple: impl Fn(&T) -> &Triple) -> (Vec<T>, usize) {
    all.sort_by(|a, b| triple(a).cmp(triple(b)));
    let left_out = all.len().saturating_sub(MAX_PARTITIONS);
    all.truncate(MAX_PARTITIONS);
    (all, left_out)
}

/// One gauge for all partitions.
fn by_partition<T>(
    mut gauge: Gauge,
    all: &[T],
    triple: impl Fn(&T) -> &Triple,
    value: impl Fn(&T) -> Option<f64>,
) -> Gauge {
    for one in all {
        let Some(value) = value(one) else { continue };
        let triple = triple(one);
        let labels = [
            ("stream", &*triple.target.stream.to_string()),
            ("topic", &*triple.target.topic.to_string()),
            ("partition", &*triple.partition.to_string()),
        ];
        gauge.with(&labels, value);
    }
    gauge
}

fn ingest(context: &Context, now: Instant) -> Vec<Gauge> {
    let state = context.ingest.load_full().map(|ingest| ingest.state(now));
    let mut waiting =
        Gauge::new("ingest_waiting", "Bytes that wait to be stored").in_unit(Unit::Bytes);
    let mut looking_up = Gauge::new(
        "ingest_lookup_messages",
        "Messages that wait until Iggy has said whether their topic exists",
    );
    let mut count = Gauge::new("lanes", "Lanes that have something to do");
    let mut oldest = Gauge::new(
        "ingest_oldest_message_age",
        "How long the oldest message in a lane has waited",
    )
    .in_unit(Unit::Seconds);
    let mut lanes: Vec<LaneState> = Vec::new();
    let mut not_shown = 0;
    if let Some(state) = state {
        waiting = waiting.value(state.waiting_bytes as f64);
        looking_up = looking_up.value(state.looking_up as f64);
        not_shown = state.lanes_not_shown;
        count = count.value((state.lanes.len() + not_shown) as f64);
        let longest = state.lanes.iter().map(|lane| lane.oldest).max();
        oldest = oldest.value(longest.unwrap_or_default().as_secs_f64());
        lanes = state.lanes;
    }
    let (lanes, left_out) = cut(lanes, |lane| &lane.triple);
    let of = |gauge, value: fn(&LaneState) -> Option<f64>| {
        by_partition(gauge, &lanes, |lane| &lane.triple, value)
    };
    vec![
        waiting,
        Gauge::new(
            "ingest_waiting_limit",
            "The most bytes that may wait (ingest_bytes)",
        )
        .in_unit(Unit::Bytes)
        .value(context.config.limits.ingest_bytes as f64),
        looking_up,
        count,
        oldest,
        Gauge::new(
            "lanes_not_shown",
            "Lanes without metrics of their own, because there are too many",
        )
        .value((left_out + not_shown) as f64),
        of(
            Gauge::new(
                "lane_messages",
                "Messages that wait in a lane or are being appended",
            ),
            |lane| Some((lane.queued + lane.in_flight) as f64),
        ),
        of(
            Gauge::new(
                "lane_oldest_message_age",
                "How long the oldest message in a lane has waited",
            )
            .in_unit(Unit::Seconds),
            |lane| Some(lane.oldest.as_secs_f64()),
        ),
        of(
            Gauge::new(
                "lane_failing",
                "For how long the append of a lane has failed and been tried again",
            )
            .in_unit(Unit::Seconds),
            |lane| {
                lane.failing
                    .as_ref()
                    .map(|(failing, _)| failing.as_secs_f64())
            },
        ),
    ]
}

fn delivery(context: &Context) -> Vec<Gauge> {
    let state = context.delivery.load_full().map(|delivery| delivery.seen());
    let limits = &context.config.limits;
    let mut readers_total = Gauge::new("readers", "Partitions that are read");
    let mut subscribers_total = Gauge::new("subscribers", "Clients that have subscriptions");
    let mut behind = Gauge::new(
        "subscribers_behind",
        "Subscribers that are behind a reader, once for each partition",
    );
    let mut full = Gauge::new("outboxes_full", "Outboxes that have no room");
    let mut owed = Gauge::new(
        "oldest_unacknowledged_age",
        "For how long a subscriber has owed an acknowledgement, of the one that has owed it for the longest time",
    )
    .in_unit(Unit::Seconds);
    let mut readers: Vec<&ReaderState> = Vec::new();
    if let Some(state) = &state {
        readers_total = readers_total.value(state.readers.len() as f64);
        subscribers_total = subscribers_total.value(state.subscribers.len() as f64);
        let cursors = state.readers.iter().flat_map(|reader| &reader.cursors);
        behind = behind.value(cursors.filter(|cursor| cursor.lag > 0).count() as f64);
        let outboxes = || state.subscribers.iter().map(|one| &one.outbox);
        full = full.value(outboxes().filter(|outbox| outbox.is_full).count() as f64);
        let longest = outboxes()
            .filter_map(|outbox| outbox.oldest_unacknowledged)
            .max();
        owed = owed.value(longest.unwrap_or_default().as_secs_f64());
        readers = state.readers.iter().collect();
    }
    let (readers, left_out) = cut(readers, |reader| &reader.triple);
    let of = |gauge, value: fn(&&ReaderState) -> Option<f64>| {
        by_partition(gauge, &readers, |reader| &reader.triple, value)
    };
    let offset = |offset: u64| offset as f64;
    vec![
        readers_total,
        subscribers_total,
        behind,
        Gauge::new("outbox", "Bytes queued in all outboxes")
            .in_unit(Unit::Bytes)
            .value(context.outbox_total.bytes() as f64),
        Gauge::new("outbox_limit", "The most bytes that may be queued (outbox_bytes_total)")
            .in_unit(Unit::Bytes)
            .value(limits.outbox_bytes_total as f64),
        full,
        owed,
        Gauge::new("readers_not_shown", "Readers without metrics of their own, because there are too many")
            .value(left_out as f64),
        of(
            Gauge::new("reader_position", "The next offset that a reader reads"),
            |reader| Some(reader.position as f64),
        ),
        of(
            Gauge::new("reader_end", "The offset behind the newest record of a partition, as Iggy said last"),
            |reader| Some(reader.end as f64),
        ),
        of(
            Gauge::new("reader_lag_records", "Records that are stored and not read yet"),
            |reader| Some(reader.end.saturating_sub(reader.position) as f64),
        ),
        of(
            Gauge::new("reader_failing", "For how long a reader has not been able to read")
                .in_unit(Unit::Seconds),
            |reader| reader.failing_for.as_ref().map(Duration::as_secs_f64),
        ),
        of(
            Gauge::new("reader_subscribers", "Clients that read with a reader"),
            |reader| Some(reader.cursors.len() as f64),
        ),
        by_partition(
            Gauge::new("ledger_safe_offset", "The largest offset up to which everything is done"),
            &readers,
            |reader| &reader.triple,
            |reader| reader.safe.map(offset),
        ),
        by_partition(
            Gauge::new("ledger_committed_offset", "The largest offset that is committed in Iggy"),
            &readers,
            |reader| &reader.triple,
            |reader| reader.committed.map(offset),
        ),
        of(
            Gauge::new("ledger_open_records", "Records that wait for an acknowledgement or to be written"),
            |reader| Some(reader.open_records as f64),
        ),
        of(
            Gauge::new(
                "ledger_oldest_unacknowledged_age",
                "For how long the oldest open record of a partition has held what is safe to commit",
            )
            .in_unit(Unit::Seconds),
            |reader| Some(reader.held.map_or(0.0, |(_, held_for)| held_for.as_secs_f64())),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::triple;

    #[test]
    fn of_many_partitions_the_first_are_shown_and_the_others_counted() {
        let all = (0..1_003).rev().map(|partition| triple("t", partition));
        let (shown, left_out) = cut(all.collect(), |triple| triple);
        assert_eq!((shown.len(), left_out), (MAX_PARTITIONS, 3));
        assert_eq!((shown[0].partition, shown[999].partition), (0, 999));
    }
}
