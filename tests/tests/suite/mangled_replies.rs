//! Replies of Iggy that are not what Iggy sent: the gateway survives them, believes none of them to a client's harm, and goes
//! on when they end.
//!
//! What is mangled, and what is not because nobody could tell it from the truth, says `e2e::mangler`. Iggy itself does
//! everything that it is asked, so whatever a mangled reply says, what was acknowledged has to be in Iggy.

use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use e2e::binaries;
use e2e::deployment::Deployment;
use e2e::device::{Device, all_publish};
use e2e::mangler::Mangling;
use e2e::packet;
use e2e::promise;
use e2e::raw::{Answer, RawClient};
use e2e::wait;

const DEVICES: usize = 6;
/// A reply that never comes is given up after 30 s.
const PATIENCE: Duration = Duration::from_secs(120);
/// The host's memory may grow by so much; a single reply says that it has up to 4 GiB.
const SLACK: u64 = 48 * 1024 * 1024;

/// Reads and acknowledges everything until all that is `wanted` has come, which is known when everybody is done.
fn receive(mut client: RawClient, wanted: &OnceLock<BTreeSet<Vec<u8>>>) -> BTreeSet<Vec<u8>> {
    let mut received = BTreeSet::new();
    let mut end = None;
    loop {
        match client.answer(Duration::from_millis(100)) {
            Answer::Packet(bytes) => {
                let publish = packet::read_publish(&bytes)
                    .unwrap_or_else(|| panic!("the subscriber got {bytes:02x?}"));
                client.send(&packet::puback(publish.id));
                received.insert(publish.payload);
            }
            Answer::Closed => panic!("the subscriber was disconnected"),
            Answer::Silence => {}
        }
        if let Some(wanted) = wanted.get() {
            let end = *end.get_or_insert_with(|| Instant::now() + PATIENCE);
            if wanted.is_subset(&received) {
                return received;
            }
            assert!(
                Instant::now() < end,
                "{} of {} messages were not delivered",
                wanted.difference(&received).count(),
                wanted.len()
            );
        }
    }
}

#[test]
fn n1_n4_n5_mangled_replies_of_iggy_lose_nothing_and_everything_goes_on_when_they_end() {
    let mut deployment = Deployment::builder().mangled().start();
    let mut devices: Vec<Device> = (0..DEVICES)
        .map(|n| {
            let own = format!("device/{n}/x");
            let common = format!("device/common/{n}");
            Device::new(deployment.mqtt(), &format!("d{n}"), &[&own, &common])
        })
        .collect();
    let mut subscriber = deployment.client("subscriber");
    subscriber.subscribe("device/0/x", 1);
    let before = deployment.host.process().resident_bytes();
    let of_each_kind = if binaries::long() { 100 } else { 8 };

    let stored_of_0 = OnceLock::new();
    let received = thread::scope(|scope| {
        let receiving = scope.spawn(|| receive(subscriber, &stored_of_0));
        all_publish(&mut devices, |progress| {
            progress.wait_for_more(200);
            let mangler = deployment.mangler();
            mangler.mangle(true);
            wait::until("every kind of mangling has happened", PATIENCE, || {
                let done = mangler.done();
                let times = |kind| done.get(&kind).copied().unwrap_or_default();
                Mangling::ALL
                    .into_iter()
                    .all(|kind| times(kind) >= of_each_kind)
            });
            mangler.mangle(false);
            println!("{:?}", mangler.done());
            progress.wait_for_more(1_000);
        });
        // Read once: nothing is published any more, and each look at all that is stored takes long.
        let records = deployment.device_records().into_iter();
        let of_0 = records.filter(|record| record.text("mqtt.topic") == "device/0/x");
        stored_of_0.get_or_init(|| of_0.map(|record| record.payload).collect());
        receiving.join()
    })
    .expect("the subscriber is served to the end");

    assert_eq!(deployment.source_status(), "running");
    assert_eq!(deployment.sink_status(), "running");
    let growth = deployment
        .host
        .process()
        .resident_bytes()
        .saturating_sub(before);
    assert!(growth <= SLACK, "the memory has grown by {growth} bytes");
    let log = deployment.host.log();
    assert!(!log.contains("panicked"), "something has panicked");

    for payload in received {
        let payload = String::from_utf8_lossy(&payload);
        let number = promise::number_of(&devices[0], &payload);
        assert!(number.is_some(), "nobody has published {payload}");
    }
    // A refusal that Iggy never made may close a client, which then comes again.
    for device in &devices {
        let closed = log.lines().filter(|line| {
            line.contains("WARN") && line.contains("closed") && line.contains(device.id())
        });
        println!("{} was connected {} times", device.id(), device.connects());
        assert!(
            device.connects() as usize <= 1 + closed.count(),
            "{}",
            device.id()
        );
    }
    // Every outcome of a QoS 1 message is there to see: what was published was acknowledged, and that is stored.
    for device in &devices {
        assert!(device.is_done(), "{}", device.id());
        assert_eq!(device.acknowledged().len(), device.published() as usize);
    }
    promise::check_stored(&devices, &deployment.device_records());
}
