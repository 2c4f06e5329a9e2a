//! Subscribers that take less than comes: they hurt nobody, cost bounded memory, and lose nothing (B17, B23, B26, B27).

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use e2e::binaries;
use e2e::deployment::Deployment;
use e2e::packet;
use e2e::raw::{Answer, RawClient};
use e2e::wait::{self, PATIENCE};

const TOPIC: &str = "device/1/x";
const MIB: u64 = 1024 * 1024;
/// How many publishes are sent before their PUBACKs are read.
const WINDOW: u32 = 100;

/// A payload that says its number.
fn payload(number: u32, bytes: usize) -> String {
    format!("{number:0bytes$}")
}

/// Publishes so many messages, numbered from 0, as fast as it goes.
fn publish(gateway: SocketAddr, messages: u32, bytes: usize) {
    publish_paced(gateway, messages, bytes, u32::MAX);
}

/// Publishes so many messages, numbered from 0, at most `rate` a second.
fn publish_paced(gateway: SocketAddr, messages: u32, bytes: usize, rate: u32) {
    let mut client = RawClient::connect(gateway, "publisher");
    let begin = Instant::now();
    for first in (0..messages).step_by(WINDOW as usize) {
        let due = Duration::from_secs_f64(f64::from(first) / f64::from(rate));
        thread::sleep(due.saturating_sub(begin.elapsed()));
        let numbers = first..messages.min(first + WINDOW);
        let mut burst = Vec::new();
        for number in numbers.clone() {
            let id = u16::try_from(number % WINDOW + 1).unwrap_or(1);
            burst.extend(packet::publish(TOPIC, id, payload(number, bytes)));
        }
        client.send(&burst);
        for number in numbers {
            let id = u16::try_from(number % WINDOW + 1).unwrap_or(1);
            client.expect(&packet::puback(id));
        }
    }
}

/// Takes and acknowledges the messages of `numbers`, which must come in their order.
fn take(client: &mut RawClient, numbers: std::ops::Range<u32>, bytes: usize) {
    for number in numbers {
        let message = client.expect_publish();
        assert_eq!(message.payload, payload(number, bytes).as_bytes());
        client.send(&packet::puback(message.id));
    }
}

#[test]
fn b26_d7_one_subscriber_with_a_closed_tcp_window_stops_none_of_the_others_and_gets_the_rest_later()
{
    const OTHERS: usize = 49;
    /// Enough that the sockets' buffers and the outbox are full long before the end.
    const BYTES: usize = 4_000;
    let messages = if binaries::long() { 10_000 } else { 2_500 };
    let mut deployment = Deployment::builder()
        .limit("outbox_bytes", "256KiB")
        .limit("send_window", 65_535)
        .limit("ack_timeout", "10m")
        .start();
    let gateway = deployment.mqtt();
    let mut stuck = deployment.client("stuck");
    stuck.subscribe(TOPIC, 1);
    let others: Vec<_> = (0..OTHERS)
        .map(|n| {
            let mut client = deployment.client(&format!("other-{n}"));
            client.subscribe(TOPIC, 1);
            thread::spawn(move || take(&mut client, 0..messages, BYTES))
        })
        .collect();
    let before = deployment.host.process().resident_bytes();
    let publishing = thread::spawn(move || publish(gateway, messages, BYTES));
    for other in others {
        other.join().expect("another subscriber got everything");
    }
    publishing.join().expect("everything was published");
    let growth = deployment
        .host
        .process()
        .resident_bytes()
        .saturating_sub(before);
    // Outboxes of all, batches that are read, and what the allocator keeps; far less than all messages for all.
    assert!(growth < 100 * MIB, "D6: it grew by {} MiB", growth / MIB);
    take(&mut stuck, 0..messages, BYTES);
    stuck.ping();
}

#[test]
fn b27_d6_a_throttled_subscriber_costs_bounded_memory_and_loses_nothing() {
    const BYTES: usize = 200;
    /// Messages a second that come.
    const RATE: u32 = 20_000;
    /// Bytes a second that the subscriber takes while it is throttled.
    const PACE: u32 = 100_000;
    let seconds = if binaries::long() { 300 } else { 10 };
    let (throttled, messages) = (Duration::from_secs(seconds.into()), seconds * RATE);
    let mut deployment = Deployment::builder()
        .limit("outbox_bytes", "256KiB")
        .start();
    let gateway = deployment.mqtt();
    let mut client = deployment.client("throttled");
    client.subscribe(TOPIC, 1);
    let before = deployment.host.process().resident_bytes();
    let publishing = thread::spawn(move || publish_paced(gateway, messages, BYTES, RATE));
    let begin = Instant::now();
    let mut taken = 0;
    let mut most = 0;
    while begin.elapsed() < throttled && taken < messages {
        take(&mut client, taken..taken + 1, BYTES);
        taken += 1;
        thread::sleep(Duration::from_secs(1) * BYTES as u32 / PACE);
        if taken % 20 == 0 {
            most = most.max(deployment.host.process().resident_bytes());
        }
    }
    let growth = most.saturating_sub(before);
    println!("{taken} taken while throttled; memory grew by {growth} bytes");
    assert!(growth < 48 * MIB, "D6: it grew by {} MiB", growth / MIB);
    take(&mut client, taken..messages, BYTES);
    publishing.join().expect("everything was published");
    client.expect_silence(Duration::from_millis(500));
}

#[test]
fn b17_one_message_without_puback_stops_no_other_and_holds_the_offset_until_its_puback_comes() {
    let deployment = Deployment::start();
    let mut careless = deployment.client("careless");
    careless.subscribe(TOPIC, 1);
    let mut other = deployment.client("other");
    other.subscribe(TOPIC, 1);
    let gateway = deployment.mqtt();
    let publishing = thread::spawn(move || publish(gateway, 1_001, 100));
    let first = careless.expect_publish();
    take(&mut careless, 1..1_001, 100);
    take(&mut other, 0..1_001, 100);
    publishing.join().expect("everything was published");
    let committed = || deployment.committed();
    // Longer than commit_interval, twice.
    thread::sleep(Duration::from_millis(2_500));
    assert_eq!(committed(), None, "the first message is at offset 0");
    careless.send(&packet::puback(first.id));
    wait::until("the offset jumps to the end", PATIENCE, || {
        committed() == Some(1_000)
    });
}

#[test]
fn b23_a_silent_subscriber_gets_one_copy_and_no_second() {
    let quiet = Duration::from_secs(if binaries::long() { 180 } else { 25 });
    let deployment = Deployment::builder().limit("ack_timeout", "10m").start();
    let mut silent = deployment.client("silent");
    silent.subscribe(TOPIC, 1);
    publish(deployment.mqtt(), 1, 100);
    let message = silent.expect_publish();
    assert!(!message.dup, "DUP is 0");
    silent.expect_silence(quiet);
    silent.ping();
}

#[test]
fn d7_a_subscriber_that_acknowledges_nothing_is_disconnected_and_the_log_says_why() {
    let deployment = Deployment::builder().limit("ack_timeout", "2s").start();
    let mut silent = deployment.client("silent");
    silent.subscribe(TOPIC, 1);
    publish(deployment.mqtt(), 1, 100);
    silent.expect_publish();
    silent.expect_closed(PATIENCE);
    deployment.host.wait_for_log(&["silent", "ack_timeout"]);
}

#[test]
fn with_retransmit_interval_the_same_packet_comes_again_with_dup() {
    let deployment = Deployment::builder()
        .limit("retransmit_interval", "1s")
        .limit("retransmit_max", 2)
        .start();
    let mut silent = deployment.client("silent");
    silent.subscribe(TOPIC, 1);
    publish(deployment.mqtt(), 1, 100);
    let first = silent.expect_publish();
    assert!(!first.dup);
    for _ in 0..2 {
        let again = silent.expect_publish();
        assert!(again.dup);
        assert_eq!((again.id, &again.payload), (first.id, &first.payload));
    }
    assert_eq!(silent.answer(PATIENCE), Answer::Closed);
}

#[test]
fn pubacks_for_foreign_unknown_and_repeated_ids_are_ignored() {
    let deployment = Deployment::start();
    let mut client = deployment.client("subscriber");
    client.subscribe(TOPIC, 1);
    for id in [1, 77, 65_535] {
        client.send(&packet::puback(id));
    }
    publish(deployment.mqtt(), 3, 100);
    for number in 0..3 {
        let message = client.expect_publish();
        assert_eq!(message.payload, payload(number, 100).as_bytes());
        for id in [message.id, message.id, message.id + 1] {
            client.send(&packet::puback(id));
        }
    }
    client.ping();
}
