//! More than the gateway can store: its memory stays within its limits, nobody is disconnected, and what was sent is stored
//! when Iggy is back.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use e2e::binaries;
use e2e::deployment::Deployment;
use e2e::device::{Device, all_publish};
use e2e::packet;
use e2e::promise;
use e2e::raw::RawClient;
use e2e::wait::PATIENCE;

const MIB: u64 = 1024 * 1024;

/// Looks at the host's memory again and again.
fn watch_memory(deployment: &mut Deployment, duration: Duration) -> u64 {
    let end = Instant::now() + duration;
    let mut most = 0;
    while Instant::now() < end {
        most = most.max(deployment.host.process().resident_bytes());
        thread::sleep(Duration::from_millis(100));
    }
    most
}

#[test]
fn n4_n5_an_outage_under_two_hundred_publishing_clients_stays_within_ingest_bytes_and_loses_nothing()
 {
    const CLIENTS: usize = 200;
    const INGEST: u64 = 2 * MIB;
    /// 128 KiB for each connection, of which a read at once takes 64 KiB, and what the allocator keeps for itself.
    const SLACK: u64 = CLIENTS as u64 * 128 * 1024 + 4 * MIB;
    /// Of each client; all together are far more than the gateway may hold.
    const WINDOW: usize = 40;
    const PAYLOAD: usize = 4_000;

    let mut deployment = Deployment::builder()
        .limit("ingest_bytes", i64::try_from(INGEST).unwrap())
        .start();
    if !deployment.iggy.may_be_killed("an outage under load") {
        return;
    }
    let outage = Duration::from_secs(if binaries::long() { 300 } else { 10 });
    let mut devices: Vec<Device> = (0..CLIENTS)
        .map(|n| {
            let own = format!("device/{n}/x");
            let common = format!("device/common/{n}");
            Device::new(deployment.mqtt(), &format!("d{n}"), &[&own, &common])
                .window(WINDOW)
                .payload_bytes(PAYLOAD)
        })
        .collect();
    let before = deployment.host.process().resident_bytes();
    let growth = all_publish(&mut devices, |progress| {
        progress.wait_for_more(CLIENTS * 5);
        deployment.iggy.kill();
        let during = watch_memory(&mut deployment, outage);
        deployment.iggy.start_again();
        during.saturating_sub(before)
    });
    println!("the memory has grown by {} KiB", growth / 1024);
    for device in &devices {
        assert_eq!(device.connects(), 1, "{} had to reconnect", device.id());
    }
    promise::check_stored(&devices, &deployment.device_records());
    assert!(
        growth <= INGEST + SLACK,
        "the memory has grown by {growth} bytes"
    );
}

#[test]
fn n4_a_client_that_publishes_and_never_reads_costs_little_and_others_are_served_meanwhile() {
    const MESSAGES: u32 = 70_000;
    const INGEST: u64 = 4 * MIB;
    const SLACK: u64 = 12 * MIB;

    let mut deployment = Deployment::builder()
        .limit("ingest_bytes", i64::try_from(INGEST).unwrap())
        .start();
    let id = |number: u32| u16::try_from(number % 65_535 + 1).unwrap();
    let payload = "x".repeat(100);
    let all: Vec<u8> = (0..MESSAGES)
        .flat_map(|number| packet::publish("device/1/x", id(number), &payload))
        .collect();
    let mut other = deployment.client("other");
    other.publish("device/2/x", 1, "warm");
    let mut deaf = deployment.client("deaf");
    let before = deployment.host.process().resident_bytes();
    let most = AtomicU64::new(before);
    let mut slowest = Duration::ZERO;
    let mut deaf = thread::scope(|scope| {
        let sending = scope.spawn(move || {
            deaf.send(&all);
            deaf
        });
        let mut number = 1;
        while !sending.is_finished() {
            number += 1;
            let sent = Instant::now();
            other.publish("device/2/x", number, "mine");
            slowest = slowest.max(sent.elapsed());
            most.fetch_max(deployment.host.process().resident_bytes(), Ordering::SeqCst);
        }
        sending.join()
    })
    .expect("everything is taken in the end");
    let growth = most.into_inner() - before;
    println!(
        "the memory has grown by {} KiB, the slowest PUBACK took {slowest:?}",
        growth / 1024
    );
    assert!(growth <= INGEST + SLACK, "{growth} bytes");
    assert!(slowest < Duration::from_secs(5), "{slowest:?}");

    // Late, but in order and complete.
    for number in 0..MESSAGES {
        deaf.expect_within(&packet::puback(id(number)), PATIENCE);
    }
    let stored = deployment.device_records();
    let of_deaf = stored
        .iter()
        .filter(|record| record.text("mqtt.client_id") == "deaf");
    assert_eq!(of_deaf.count(), MESSAGES as usize);
}

#[test]
fn n4_a_client_that_publishes_into_an_outage_and_never_reads_is_not_read_further() {
    const INGEST: u64 = 4 * MIB;
    const SLACK: u64 = 12 * MIB;

    let mut deployment = Deployment::builder()
        .proxied()
        .limit("ingest_bytes", i64::try_from(INGEST).unwrap())
        .limit("receive_window", 65_535)
        .start();
    let mut other = deployment.client("other");
    other.publish("device/2/x", 1, "warm");
    deployment.proxy().hold_requests();
    let before = deployment.host.process().resident_bytes();
    let mut flood = deployment.client("flood");
    let payload = "x".repeat(50_000);
    let gateway = deployment.mqtt();
    let growth = thread::scope(|scope| {
        // 50 MB: far more than the room and what both kernels' buffers take.
        let sending = scope.spawn(move || {
            for id in 1..=1_000 {
                flood.send(&packet::publish("device/1/x", id, &payload));
            }
            flood
        });
        let during = watch_memory(&mut deployment, Duration::from_secs(5));
        assert!(!sending.is_finished(), "all of it was taken");
        // Others come in, and their messages wait like those before them.
        let mut newcomer = RawClient::connect(gateway, "newcomer");
        newcomer.send(&packet::publish("device/3/x", 7, "mine"));
        newcomer.ping();
        deployment.proxy().release();
        newcomer.expect(&packet::puback(7));
        let mut flood = sending.join().expect("everything is taken in the end");
        for id in 1..=1_000 {
            flood.expect_within(&packet::puback(id), PATIENCE);
        }
        during.saturating_sub(before)
    });
    println!("the memory has grown by {} KiB", growth / 1024);
    assert!(growth <= INGEST + SLACK, "{growth} bytes");
    other.ping();
}
