//! From a batch of records to the outboxes of all who want them, from an outbox to the bytes for its socket, and the
//! acknowledgement of a copy.

use std::hint::black_box;
use std::sync::Arc;

use gungraun::{library_benchmark, library_benchmark_group};
use mqtt_gateway::config::Limits;
use mqtt_gateway::delivery::ledger::SharedLedger;
use mqtt_gateway::delivery::outbox::{Copy, Message};
use mqtt_gateway::delivery::routes::{Context, Routes};
use mqtt_gateway::delivery::{ConnectionId, Outbox, OutboxTotal, Pieces};
use mqtt_gateway::log::{Name, StoredRecord, Target, Triple};
use mqtt_gateway::mqtt::QoS;
use tokio::time::Instant;

use crate::prepare::{PAYLOAD, packet_id, stored, topic};

/// Records of a batch, and copies in an outbox.
const COUNT: usize = 100;
const TOPIC: &str = "plant/site-7/press/42/temperature";

fn outbox(number: u64, total: &Arc<OutboxTotal>) -> Arc<Outbox> {
    let limits = Limits {
        send_window: COUNT,
        ..Limits::default()
    };
    let id = ConnectionId(number);
    Arc::new(Outbox::new(
        id,
        &limits,
        total.clone(),
        Arc::default(),
        Instant::now(),
    ))
}

fn triple() -> Triple {
    let name = |text| Name::new(text).unwrap_or_else(|| panic!("{text} is a name"));
    let target = Target {
        stream: name("plant"),
        topic: name("telemetry"),
    };
    Triple {
        target,
        partition: 0,
    }
}

struct Crowd {
    routes: Routes,
    context: Context,
    records: Vec<StoredRecord>,
}

/// So many subscribers of one topic, and a batch of records for all of them.
fn crowd(subscribers: u64) -> Crowd {
    let now = Instant::now();
    let topic = topic(TOPIC);
    let total = Arc::default();
    let context = Context {
        ledger: SharedLedger::starting_at(0),
        counters: Arc::default(),
        triple: triple(),
        lines: Arc::default(),
        foreign: None.into(),
    };
    let mut routes = Routes::starting_at(0, None, now);
    for number in 0..subscribers {
        let outbox = outbox(number, &total);
        routes.subscribe(&outbox, &topic, QoS::AtLeastOnce, None, now);
    }
    let records = (0..COUNT as u64)
        .map(|offset| stored(offset, &topic, QoS::AtLeastOnce))
        .collect();
    Crowd {
        routes,
        context,
        records,
    }
}

/// An outbox with copies that wait to be written.
fn queued(qos: QoS) -> (Arc<Outbox>, Instant) {
    let outbox = outbox(0, &Arc::default());
    let ledger = SharedLedger::starting_at(0);
    let topic = topic(TOPIC);
    let copies = (0..COUNT as u64).map(|offset| Copy {
        message: Arc::new(Message {
            topic: topic.clone(),
            payload: vec![b'x'; PAYLOAD].into(),
        }),
        qos,
        entry: Arc::new(ledger.enter(offset)),
    });
    outbox.offer(copies);
    (outbox, Instant::now())
}

/// An outbox with copies that wait to be acknowledged.
fn written() -> (Arc<Outbox>, Instant) {
    let (outbox, now) = queued(QoS::AtLeastOnce);
    drop(outbox.take(usize::MAX, now));
    (outbox, now)
}

#[library_benchmark]
#[bench::subscribers_1_of_100(args = (1), setup = crowd)]
#[bench::subscribers_50_of_5000(args = (50), setup = crowd)]
#[bench::subscribers_200_of_20000(args = (200), setup = crowd)]
fn route(mut crowd: Crowd) -> Crowd {
    let turns = crowd.routes.route(0, &crowd.records, &crowd.context);
    black_box(turns);
    crowd
}

#[library_benchmark]
#[bench::qos_0_of_100(args = (QoS::AtMostOnce), setup = queued)]
#[bench::qos_1_of_100(args = (QoS::AtLeastOnce), setup = queued)]
fn write((outbox, now): (Arc<Outbox>, Instant)) -> (Arc<Outbox>, Pieces) {
    let pieces = outbox.take(usize::MAX, now);
    (outbox, pieces)
}

#[library_benchmark]
#[bench::in_order_of_100(setup = written)]
fn acknowledge((outbox, now): (Arc<Outbox>, Instant)) -> Arc<Outbox> {
    for number in 0..COUNT {
        outbox.acknowledge(packet_id(number), now);
    }
    outbox
}

library_benchmark_group!(name = delivering, benchmarks = [route, write, acknowledge]);
