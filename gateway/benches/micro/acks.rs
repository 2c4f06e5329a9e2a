//! A publisher's acknowledgements, in the order of its messages whatever the order of the appends.
//!
//! Only a lane can make the evidence of an append, so the messages here are those that an operator wants acknowledged and
//! forgotten: they take the same places and leave in the same order, but are not remembered for the case that they come again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use gungraun::{library_benchmark, library_benchmark_group};
use mqtt_gateway::config::OnDenied;
use mqtt_gateway::ingest::history::History;
use mqtt_gateway::ingest::{AckWriter, Publisher, Reason, Received, Ticket, Why};
use mqtt_gateway::mqtt::{PacketId, QoS};
use mqtt_gateway::recent::Origin;
use mqtt_gateway::wire::Publish;

use crate::prepare::{PAYLOAD, client_id, packet_id, shuffled, topic};

const COUNT: usize = 100;

#[derive(Default)]
struct Counting(AtomicU64);

impl AckWriter for Counting {
    fn puback(&self, id: PacketId) {
        self.0.fetch_add(id.get().into(), Ordering::Relaxed);
    }

    fn close(&self, _: Why) {}
}

fn publisher() -> (Arc<Publisher>, Vec<Publish>) {
    let publisher = Publisher::new(
        client_id(),
        Origin::default(),
        Arc::default(),
        History::new(COUNT, Duration::from_secs(60)),
        Box::<Counting>::default(),
    );
    let topic = topic("plant/site-7/press/42/temperature");
    let publishes = (0..COUNT)
        .map(|number| Publish {
            dup: false,
            qos: QoS::AtLeastOnce,
            retain: false,
            topic: topic.clone(),
            packet_id: Some(packet_id(number)),
            payload: Bytes::from(vec![b'x'; PAYLOAD]),
        })
        .collect();
    (publisher, publishes)
}

fn expect(publisher: &Arc<Publisher>, publish: &Publish) -> Ticket {
    match publisher.receive(publish) {
        Received::New(ticket) => ticket,
        other => panic!("{other:?}"),
    }
}

/// The tickets of all messages, in the order in which they end.
fn waiting(order: Vec<usize>) -> (Arc<Publisher>, Vec<Ticket>) {
    let (publisher, publishes) = publisher();
    let tickets = publishes.iter().map(|publish| expect(&publisher, publish));
    let mut numbered: Vec<Option<Ticket>> = tickets.map(Some).collect();
    let tickets = order
        .into_iter()
        .filter_map(|at| numbered.get_mut(at)?.take())
        .collect();
    (publisher, tickets)
}

fn in_order() -> (Arc<Publisher>, Vec<Ticket>) {
    waiting((0..COUNT).collect())
}

fn in_reverse() -> (Arc<Publisher>, Vec<Ticket>) {
    waiting((0..COUNT).rev().collect())
}

fn in_any_order() -> (Arc<Publisher>, Vec<Ticket>) {
    waiting(shuffled(COUNT))
}

type Expected = (Arc<Publisher>, Vec<Publish>, Vec<Ticket>);

fn expecting() -> Expected {
    let (publisher, publishes) = publisher();
    (publisher, publishes, Vec::with_capacity(COUNT))
}

#[library_benchmark]
#[bench::new_of_100(setup = expecting)]
fn receive((publisher, publishes, mut tickets): Expected) -> Expected {
    for publish in &publishes {
        tickets.push(expect(&publisher, publish));
    }
    (publisher, publishes, tickets)
}

#[library_benchmark]
#[bench::in_order_of_100(setup = in_order)]
#[bench::in_reverse_of_100(setup = in_reverse)]
#[bench::in_any_order_of_100(setup = in_any_order)]
fn settle((publisher, tickets): (Arc<Publisher>, Vec<Ticket>)) -> Arc<Publisher> {
    for ticket in tickets {
        ticket.denied(Reason::NoIngestRole, OnDenied::Acknowledge);
    }
    publisher
}

library_benchmark_group!(name = acknowledging, benchmarks = [receive, settle]);
