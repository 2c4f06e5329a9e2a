//! Routing alone: what lags, what is safe meanwhile, what a new subscription begins with.

use bytes::Bytes;
use tokio::time::Instant;

use super::*;
use crate::config::Limits;
use crate::mapping::envelope::{HeaderSet, Published, seal};
use crate::mqtt::{ClientId, PacketId};

fn records(range: std::ops::Range<u64>) -> Vec<StoredRecord> {
    range
        .map(|offset| {
            let published = Published {
                topic: &topic(),
                qos: QoS::AtLeastOnce,
                packet_id: PacketId::new(1),
                retain: false,
                dup: false,
                client_id: &ClientId::new("p").unwrap(),
                payload: &Bytes::from_static(&[b'x'; 100]),
            };
            let record = seal(&published, offset.into(), HeaderSet::ALL);
            StoredRecord {
                offset,
                id: record.id,
                timestamp_micros: 0,
                headers: record.headers,
                payload: record.payload,
            }
        })
        .collect()
}

fn topic() -> TopicName {
    TopicName::new("t").unwrap()
}

fn context() -> Context {
    Context {
        ledger: SharedLedger::starting_at(0),
        wake: Arc::default(),
        counters: Arc::default(),
        partition: 0,
        foreign: None,
    }
}

fn outbox(bytes: usize) -> Arc<Outbox> {
    let limits = Limits {
        outbox_bytes: bytes,
        send_window: 1_000,
        ..Limits::default()
    };
    let now = Instant::now();
    Arc::new(Outbox::new(
        ConnectionId(1),
        &limits,
        Arc::default(),
        Arc::default(),
        now,
    ))
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
    let (context, outbox) = (context(), outbox(1_000));
    let mut routes = Routes::starting_at(0);
    routes.subscribe(&outbox, &topic(), QoS::AtLeastOnce);
    routes.route(&records(0..50), &context);
    let mut acknowledged = 0;
    let first = take_all(&outbox, &mut acknowledged) as u64;
    assert!(first > 0 && first < 50);
    assert_eq!(context.ledger.open_copies(), 0);
    assert_eq!(routes.safe(&context), Some(first - 1));
    // It catches up in steps, and only then all is safe.
    while let Some((connection, from)) = routes.next_to_catch_up() {
        assert_eq!(from, u64::from(acknowledged), "no gap, nothing twice");
        routes.catch_up(connection, &records(from..50), &context);
        assert_eq!(
            routes.safe(&context),
            u64::from(acknowledged).checked_sub(1)
        );
        take_all(&outbox, &mut acknowledged);
    }
    assert_eq!(acknowledged, 50);
    assert_eq!(routes.safe(&context), Some(49));
}

#[test]
fn a_topic_subscribed_to_while_lagging_brings_nothing_from_before() {
    let (context, outbox) = (context(), outbox(1_000));
    let mut routes = Routes::starting_at(0);
    routes.subscribe(&outbox, &TopicName::new("other").unwrap(), QoS::AtLeastOnce);
    routes.subscribers[0].lagging = Some(0);
    routes.position = 5;
    routes.subscribe(&outbox, &topic(), QoS::AtLeastOnce);
    routes.catch_up(outbox.id(), &records(0..5), &context);
    assert_eq!(outbox.take(usize::MAX, Instant::now()).copies, 0);
    routes.route(&records(5..6), &context);
    assert_eq!(outbox.take(usize::MAX, Instant::now()).copies, 1);
}
