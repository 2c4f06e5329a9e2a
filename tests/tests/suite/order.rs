//! Order: the messages of one publisher on one topic are stored and delivered in the order of publishing, whatever happens
//! between the gateway and Iggy (MQTT 3.1.1, 4.6).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use e2e::binaries;
use e2e::deployment::Deployment;
use e2e::device::{Device, all_publish};
use e2e::packet::{self, Publish};
use e2e::promise;
use e2e::raw::{Answer, RawClient};
use e2e::wait::PATIENCE;

const PUBLISHERS: usize = 10;

/// How much is published, and how often Iggy is cut off meanwhile.
struct Load {
    /// Messages of each publisher at least.
    messages: usize,
    cuts: usize,
    every: Duration,
}

fn load() -> Load {
    if binaries::long() {
        Load {
            messages: 2_000,
            cuts: 10,
            every: Duration::from_secs(3),
        }
    } else {
        Load {
            messages: 100,
            cuts: 4,
            every: Duration::from_secs(1),
        }
    }
}

/// Three topics of its own, and two that all publish to; each with a key of its own.
fn topics(publisher: usize) -> Vec<String> {
    let own = (0..3).map(|n| format!("device/{publisher}-{n}/x"));
    own.chain((0..2).map(|n| format!("device/common-{n}/x")))
        .collect()
}

/// Reads and acknowledges everything until `stop`, and then what still comes.
fn receive(mut client: RawClient, expected: &AtomicBool) -> Vec<Publish> {
    let mut received = Vec::new();
    let mut quiet_since = Instant::now();
    loop {
        match client.answer(Duration::from_millis(100)) {
            Answer::Packet(bytes) => {
                let publish = packet::read_publish(&bytes)
                    .unwrap_or_else(|| panic!("the subscriber got {bytes:02x?}"));
                client.send(&packet::puback(publish.id));
                received.push(publish);
                quiet_since = Instant::now();
            }
            Answer::Closed => panic!("the subscriber was disconnected"),
            Answer::Silence => {}
        }
        let patience = Duration::from_secs(5);
        if expected.load(Ordering::SeqCst) && quiet_since.elapsed() > patience {
            return received;
        }
    }
}

#[test]
fn b24_each_topic_of_a_publisher_keeps_its_order_in_iggy_and_at_a_subscriber_although_iggy_is_cut_off()
 {
    let deployment = Deployment::builder().proxied().start();
    let load = load();
    let mut devices: Vec<Device> = (0..PUBLISHERS)
        .map(|n| {
            let topics = topics(n);
            let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
            Device::new(deployment.mqtt(), &format!("p{n}"), &topics)
        })
        .collect();
    let filters: BTreeSet<String> = (0..PUBLISHERS).flat_map(topics).collect();
    let mut subscriber = deployment.client("subscriber");
    for (id, filter) in (1..).zip(&filters) {
        subscriber.send(&packet::subscribe(id, &[(filter, 1)]));
        subscriber.expect(&packet::suback(id, &[1]));
    }

    let published = AtomicBool::new(false);
    let received = thread::scope(|scope| {
        let receiving = scope.spawn(|| receive(subscriber, &published));
        all_publish(&mut devices, |progress| {
            for _ in 0..load.cuts {
                let cut = Instant::now();
                deployment.proxy().cut();
                progress.wait_for_more(PUBLISHERS * load.messages / load.cuts);
                thread::sleep(load.every.saturating_sub(cut.elapsed()));
            }
        });
        published.store(true, Ordering::SeqCst);
        receiving.join()
    })
    .expect("the subscriber is served to the end");

    for device in &devices {
        assert_eq!(device.connects(), 1, "{} had to reconnect", device.id());
    }
    let stored = deployment.device_records();
    promise::check_stored(&devices, &stored);
    check_received(&devices, &received);
    let delivered: BTreeSet<&[u8]> = received
        .iter()
        .map(|publish| publish.payload.as_slice())
        .collect();
    for record in &stored {
        assert!(
            delivered.contains(record.payload.as_slice()),
            "not delivered: {record:?}"
        );
    }
}

/// First occurrences are in the order of publishing, for each topic of each publisher.
fn check_received(devices: &[Device], received: &[Publish]) {
    let mut seen: BTreeSet<(&str, u32)> = BTreeSet::new();
    let mut newest: BTreeMap<(&str, &str), u32> = BTreeMap::new();
    for publish in received {
        let payload = String::from_utf8_lossy(&publish.payload);
        let (device, number) = devices
            .iter()
            .filter(|device| payload.split(' ').next() == Some(device.id()))
            .find_map(|device| Some((device, promise::number_of(device, &payload)?)))
            .unwrap_or_else(|| panic!("nobody has published {publish:?}"));
        assert_eq!(publish.topic, device.topic(number));
        if seen.insert((device.id(), number)) {
            let newest = newest
                .entry((device.id(), device.topic(number)))
                .or_default();
            assert!(
                number > *newest,
                "{number} of {} on {} was received after {newest}",
                device.id(),
                publish.topic
            );
            *newest = number;
        }
    }
}

#[test]
fn a_device_that_reconnects_in_the_middle_keeps_its_order_and_no_message_is_stored_twice() {
    let deployment = Deployment::builder().proxied().start();
    let mut devices = vec![Device::new(deployment.mqtt(), "device", &["device/1/x"])];
    for _ in 0..10 {
        // What is sent is in flight when its connection ends.
        deployment.proxy().hold_replies();
        devices[0].work(true);
        devices[0].disconnect();
        devices[0].work(true);
        deployment.proxy().release();
        let end = Instant::now() + PATIENCE;
        while !devices[0].is_done() {
            assert!(Instant::now() < end, "some messages wait for their PUBACK");
            devices[0].work(false);
        }
    }
    let stored = deployment.device_records();
    promise::check_stored(&devices, &stored);
    assert_eq!(stored.len(), devices[0].published() as usize);
}
