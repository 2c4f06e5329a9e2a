//! One client that floods, and what its neighbours notice of it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use e2e::deployment::{Builder, Deployment};
use e2e::packet;
use e2e::raw::Answer;

const FLOODED: &str = "device/1/x";
/// Another partition than [`FLOODED`], and the same one.
const OTHERS: [&str; 2] = ["device/2/x", "device/1/y"];

/// With room for some hundred messages.
fn narrow() -> Builder {
    Deployment::builder()
        .proxied()
        .limit("max_packet_size", "16KiB")
        .limit("ingest_bytes", "256KiB")
        .limit("receive_window", 10_000)
}

#[test]
fn a_flood_while_iggy_hangs_sheds_no_message_of_another_client_and_blocks_none() {
    let deployment = narrow().start();
    let mut flood = deployment.client("flood");
    flood.publish(FLOODED, 1, "warm");
    let mut others: Vec<_> = OTHERS
        .iter()
        .map(|topic| {
            let mut other = deployment.client(&format!("publisher of {topic}"));
            other.publish(topic, 1, "warm");
            (other, *topic)
        })
        .collect();
    deployment.proxy().hold_requests();
    // QoS 0: what finds no room is dropped, so all of it is read.
    let payload = "f".repeat(1_000);
    for _ in 0..1_000 {
        flood.send(&packet::publish_qos0(FLOODED, &payload));
    }
    flood.ping();
    for (other, topic) in &mut others {
        for n in 0..5 {
            other.send(&packet::publish_qos0(*topic, format!("QoS 0 {n}")));
        }
        other.send(&packet::publish(*topic, 7, "QoS 1"));
        other.ping();
    }
    deployment.proxy().release();
    for (other, topic) in &mut others {
        other.expect(&packet::puback(7));
        let stored: Vec<String> = deployment
            .device_records()
            .iter()
            .filter(|record| record.text("mqtt.client_id") == format!("publisher of {topic}"))
            .map(|record| record.payload_text())
            .collect();
        let expected = [
            "warm", "QoS 0 0", "QoS 0 1", "QoS 0 2", "QoS 0 3", "QoS 0 4", "QoS 1",
        ];
        assert_eq!(stored, expected, "{topic}");
    }
    let flooded = deployment.device_records().len();
    assert!(flooded < 500, "{flooded}: nothing was shed");
}

#[test]
fn a_flood_while_iggy_is_slow_delays_no_puback_of_another_client_for_long() {
    const DELAY: Duration = Duration::from_millis(100);
    /// A round trip for what is in flight, one for its own, and what two busy cores take.
    const BEARABLE: Duration = Duration::from_secs(3);

    let deployment = narrow().start();
    let mut flood = deployment.client("flood");
    flood.publish(FLOODED, 1, "warm");
    let mut other = deployment.client("other");
    other.publish(OTHERS[0], 1, "warm");
    deployment.proxy().delay_replies(DELAY);

    let done = AtomicBool::new(false);
    let payload = "f".repeat(1_000);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut sent: u16 = 0;
            let mut acknowledged: u16 = 0;
            while !done.load(Ordering::SeqCst) || acknowledged < sent {
                while !done.load(Ordering::SeqCst) && sent < acknowledged + 2_000 {
                    sent += 1;
                    flood.send(&packet::publish(FLOODED, sent, &payload));
                }
                match flood.answer(Duration::from_millis(100)) {
                    Answer::Packet(bytes) => {
                        acknowledged += 1;
                        assert_eq!(bytes, packet::puback(acknowledged));
                    }
                    Answer::Silence => {}
                    Answer::Closed => panic!("the flood was disconnected"),
                }
            }
        });
        for id in 2..=12 {
            for topic in OTHERS {
                let sent = Instant::now();
                other.send(&packet::publish(topic, id, "mine"));
                other.expect(&packet::puback(id));
                let took = sent.elapsed();
                assert!(took < BEARABLE, "the PUBACK for {topic} took {took:?}");
            }
        }
        done.store(true, Ordering::SeqCst);
    });
}
