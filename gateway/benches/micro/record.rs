//! From a PUBLISH to the record that stores it, and back.

use std::hint::black_box;

use bytes::Bytes;
use gungraun::{library_benchmark, library_benchmark_group};
use mqtt_gateway::log::StoredRecord;
use mqtt_gateway::mapping::envelope::{self, HeaderSet, Published};
use mqtt_gateway::mqtt::{ClientId, QoS, TopicName};

use crate::prepare::{PAYLOAD, client_id, packet_id, stored, topic};

const COUNT: u64 = 100;

fn message() -> (TopicName, ClientId, Bytes) {
    let topic = topic("plant/site-7/press/42/temperature");
    (topic, client_id(), Bytes::from(vec![b'x'; PAYLOAD]))
}

fn records() -> Vec<StoredRecord> {
    let (topic, ..) = message();
    (0..COUNT)
        .map(|offset| stored(offset, &topic, QoS::AtLeastOnce))
        .collect()
}

#[library_benchmark]
#[bench::all_headers_of_100(setup = message)]
fn seal(message: (TopicName, ClientId, Bytes)) -> (TopicName, ClientId, Bytes) {
    let (topic, client_id, payload) = &message;
    for id in 0..COUNT {
        let published = Published {
            topic,
            qos: QoS::AtLeastOnce,
            packet_id: Some(packet_id(0)),
            retain: false,
            dup: false,
            client_id,
            payload,
        };
        let sealed = envelope::seal(black_box(&published), id.into(), HeaderSet::ALL);
        drop(black_box(sealed));
    }
    message
}

#[library_benchmark]
#[bench::all_headers_of_100(setup = records)]
fn open(records: Vec<StoredRecord>) -> Vec<StoredRecord> {
    for record in &records {
        let _ = black_box(envelope::open(black_box(record)));
    }
    records
}

library_benchmark_group!(name = storing, benchmarks = [seal, open]);
