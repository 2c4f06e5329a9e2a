//! Routing alone: what lags, what is safe meanwhile, what a new subscription begins with; and in `model` all of it together.

use bytes::Bytes;
use parking_lot::Mutex;

use super::*;
use crate::config::Limits;
use crate::mapping::envelope::{HeaderSet, Published, seal};
use crate::mqtt::{ClientId, PacketId};

mod model;

fn record(offset: u64, topic: &TopicName, qos: QoS) -> StoredRecord {
    let published = Published {
        topic,
        qos,
        packet_id: PacketId::new(1),
        retain: false,
        dup: false,
        client_id: &ClientId::new("p").unwrap(),
        payload: &Bytes::from(format!("{offset:050}")),
    };
    let record = seal(&published, offset.into(), HeaderSet::ALL);
    StoredRecord {
        offset,
        id: record.id,
        timestamp_micros: offset * 1_000_000,
        headers: record.headers,
        payload: record.payload,
    }
}

fn records(range: std::ops::Range<u64>) -> Vec<StoredRecord> {
    range
        .map(|offset| record(offset, &topic(), QoS::AtLeastOnce))
        .collect()
}

fn topic() -> TopicName {
    TopicName::new("t").unwrap()
}

fn context() -> Context {
    Context {
        ledger: SharedLedger::starting_at(0),
        counters: Arc::default(),
        triple: crate::sim::triple("t", 0),
        lines: Arc::default(),
        foreign: None.into(),
    }
}

fn outbox(id: u64, bytes: usize) -> Arc<Outbox> {
    let limits = Limits {
        outbox_bytes: bytes,
        send_window: 1_000,
        ..Limits::default()
    };
    let now = Instant::now();
    Arc::new(Outbox::new(
        ConnectionId(id),
        &limits,
        Arc::default(),
        Arc::default(),
        now,
    ))
}

fn routes() -> Routes {
    Routes::starting_at(0, None, Instant::now())
}

/// Writes and acknowledges all that is queued; says how many copies that were.
fn take_all(outbox: &Outbox, acknowledged: &mut u16) -> usize {
    let copies = outbox.take(usize::MAX, Instant::now()).copies;
    for _ in 0..copies {
        *acknowledged += 1;
        outbox.acknowledge(PacketId::new(*acknowledged).unwrap(), Instant::now());
    }
    copies
}

#[test]
fn d4_what_a_lagging_subscriber_still_needs_is_not_safe_though_all_its_copies_are_done() {
    let (context, outbox, now) = (context(), outbox(1, 1_000), Instant::now());
    let mut routes = routes();
    routes.subscribe(&outbox, &topic(), QoS::AtLeastOnce, None, now);
    let turns = routes.route(0, &records(0..50), &context);
    let [turn] = &turns[..] else {
        panic!("it does not lag")
    };
    let mut acknowledged = 0;
    let first = take_all(&outbox, &mut acknowledged) as u64;
    assert!(first > 0 && first < 50);
    assert_eq!(context.ledger.open_records(), 0);
    assert_eq!(routes.safe(&context, now), Some(first - 1));
    // It catches up in steps, and only then all is safe.
    while let Some(reading) = routes.to_read(turn) {
        assert_eq!(reading.0, u64::from(acknowledged), "no gap, nothing twice");
        routes.catch_up(turn, reading, &records(reading.0..50), &context);
        assert_eq!(
            routes.safe(&context, now),
            u64::from(acknowledged).checked_sub(1)
        );
        take_all(&outbox, &mut acknowledged);
    }
    assert_eq!(acknowledged, 50);
    assert_eq!(routes.safe(&context, now), Some(49));
}

#[test]
fn a_topic_subscribed_to_while_lagging_brings_nothing_from_before() {
    let (context, outbox, now) = (context(), outbox(1, 1_000), Instant::now());
    let other = TopicName::new("other").unwrap();
    let mut routes = routes();
    routes.subscribe(&outbox, &other, QoS::AtLeastOnce, None, now);
    let of_other: Vec<_> = (0..20)
        .map(|n| record(n, &other, QoS::AtLeastOnce))
        .collect();
    let turns = routes.route(0, &of_other, &context);
    assert_eq!(turns.len(), 1);
    routes.subscribe(&outbox, &topic(), QoS::AtLeastOnce, None, now);
    routes.unsubscribe(outbox.id(), &other, now);
    let mut acknowledged = 0;
    take_all(&outbox, &mut acknowledged);
    let reading = routes.to_read(&turns[0]).unwrap();
    let outcome = routes.catch_up(&turns[0], reading, &records(reading.0..20), &context);
    assert_eq!(outcome, CaughtUp::Over);
    assert_eq!(outbox.take(usize::MAX, Instant::now()).copies, 0);
    routes.route(0, &records(20..21), &context);
    assert_eq!(outbox.take(usize::MAX, Instant::now()).copies, 1);
}

#[test]
fn a_subscription_that_begins_earlier_brings_its_own_records_only() {
    let (context, outbox, now) = (context(), outbox(1, 100_000), Instant::now());
    let other = TopicName::new("other").unwrap();
    let mut routes = routes();
    routes.subscribe(&outbox, &other, QoS::AtLeastOnce, None, now);
    let log: Vec<_> = (0..10)
        .map(|n| {
            let name = if n % 2 == 0 { other.clone() } else { topic() };
            record(n, &name, QoS::AtLeastOnce)
        })
        .collect();
    routes.route(0, &log, &context);
    assert_eq!(outbox.take(usize::MAX, now).copies, 5);
    let turn = routes
        .subscribe(&outbox, &topic(), QoS::AtLeastOnce, Some(4), now)
        .unwrap();
    let reading = routes.to_read(&turn).unwrap();
    assert_eq!(reading.0, 4);
    routes.catch_up(&turn, reading, &log[4..], &context);
    assert_eq!(outbox.take(usize::MAX, now).copies, 3, "5, 7 and 9");
}

#[test]
fn what_was_read_before_the_log_changed_is_not_delivered_after() {
    let (context, outbox, now) = (context(), outbox(1, 300), Instant::now());
    let mut routes = routes();
    routes.subscribe(&outbox, &topic(), QoS::AtLeastOnce, None, now);
    let turns = routes.route(0, &records(0..10), &context);
    let reading = routes.to_read(&turns[0]).unwrap();
    routes.regress(9, &context);
    let outcome = routes.catch_up(&turns[0], reading, &records(reading.0..10), &context);
    assert_eq!(outcome, CaughtUp::Behind, "it reads again");
    assert!(routes.route(0, &records(10..20), &context).is_empty());
    assert_eq!(routes.position(), (9, 1));
}

#[test]
fn who_is_too_far_behind_is_told_by_records_and_by_time() {
    let (context, outbox, now) = (context(), outbox(1, 300), Instant::now());
    let mut routes = routes();
    routes.subscribe(&outbox, &topic(), QoS::AtLeastOnce, None, now);
    routes.route(0, &records(0..100), &context);
    let [cursor] = &routes.cursors()[..] else {
        panic!("no cursor")
    };
    assert_eq!(cursor.pace, CursorPace::Lagging);
    assert_eq!(cursor.lag, 100 - cursor.next);
    assert_eq!(cursor.lag_time, Duration::from_secs(99 - cursor.next));
    let (lag, time) = (cursor.lag, cursor.lag_time);
    let second = Duration::from_secs(1);
    assert!(routes.too_far_behind(lag, time).is_empty());
    assert_eq!(routes.too_far_behind(lag - 1, time), [outbox.id()]);
    assert_eq!(routes.too_far_behind(lag, time - second), [outbox.id()]);
}

#[test]
fn what_is_resumed_is_not_committed_until_nobody_can_come_for_it_any_more() {
    let (context, outbox, now) = (context(), outbox(1, 100_000), Instant::now());
    context.ledger.advance(10);
    let until = now + Duration::from_secs(60);
    let mut routes = Routes::starting_at(10, Some(Resume { from: 4, until }), now);
    let turn = routes
        .subscribe(&outbox, &topic(), QoS::AtLeastOnce, None, now)
        .unwrap();
    let reading = routes.to_read(&turn).unwrap();
    assert_eq!(reading.0, 4);
    routes.catch_up(&turn, reading, &records(4..10), &context);
    take_all(&outbox, &mut 0);
    assert_eq!(routes.safe(&context, now), Some(3));
    assert_eq!(routes.safe(&context, until), Some(9));
    let other = self::outbox(2, 100_000);
    assert!(
        routes
            .subscribe(&other, &topic(), QoS::AtLeastOnce, None, now)
            .is_some()
    );
    let late = self::outbox(3, 100_000);
    assert!(
        routes
            .subscribe(&late, &topic(), QoS::AtLeastOnce, None, until)
            .is_none()
    );
}

#[tokio::test(start_paused = true)]
async fn records_that_are_gone_in_numbers_are_all_counted_and_said_a_few_times() {
    let context = context();
    let mut routes = routes();
    let every_second: Vec<_> = records(0..1_000).into_iter().skip(1).step_by(2).collect();
    let lines = Arc::new(Mutex::new(Vec::new()));
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(move || Lines(writer.clone()))
        .finish();
    tracing::subscriber::with_default(subscriber, || routes.route(0, &every_second, &context));
    assert_eq!(context.counters.records_missed.get(), 500);
    let lines = String::from_utf8(lines.lock().clone()).unwrap();
    let said = |lines: &str| lines.matches("records were gone").count();
    assert_eq!(said(&lines), 10, "{lines}");
}

/// Takes log lines.
struct Lines(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
