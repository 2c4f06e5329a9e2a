//! Those who come uninvited, or too often: what they send costs little, fills no log, and keeps nobody from being served.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use e2e::deployment::Deployment;
use e2e::packet;
use e2e::raw::{Answer, PROMPT, RawClient};
use e2e::wait::{self, PATIENCE};

use crate::connection_life::{allow_open_files, descriptors};

const TOPIC: &str = "device/1/x";
const REFUSED: [u8; 4] = [0x20, 2, 0, 3];
const OTHER_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 9));

/// What a stranger sends, of many kinds.
fn garbage(number: usize) -> Vec<u8> {
    let id = format!("stranger-{number}");
    match number % 8 {
        0 => b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        // A TLS ClientHello begins like this.
        1 => [&[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3][..], &[7; 500]].concat(),
        2 => vec![0x10, 0xff, 0xff, 0xff, 0x7f],
        3 => [packet::connect(&id, 0), vec![0x30, 0xff, 0xff, 0xff, 0x7f]].concat(),
        4 => [packet::connect(&id, 0), vec![0xf0; 64]].concat(),
        5 => packet::packet(0x10, &[b'x'; 8_000]),
        6 => (0..60_000_usize).map(|n| (n * 31 + number) as u8).collect(),
        _ => [packet::connect(&id, 0), packet::publish_qos0("a/+/#", "x")].concat(),
    }
}

/// Sends garbage over `count` connections, fifty open at a time, and waits until all are closed.
fn flood(gateway: SocketAddr, first: usize, count: usize) {
    let numbers: Vec<usize> = (first..first + count).collect();
    for batch in numbers.chunks(50) {
        let mut open: Vec<RawClient> = batch
            .iter()
            .map(|number| {
                let mut client = RawClient::open(gateway);
                // Who is closed early does not take everything.
                let _ = client.try_send(&garbage(*number));
                client
            })
            .collect();
        for client in &mut open {
            while let Answer::Packet(_) = client.answer(PATIENCE) {}
        }
    }
}

#[test]
fn ten_thousand_connections_with_garbage_cost_little_and_a_client_that_publishes_is_served_meanwhile()
 {
    const CONNECTIONS: usize = 10_000;
    const AT_ONCE: usize = 4;
    const SLACK: u64 = 32 * 1024 * 1024;

    let mut deployment = Deployment::start();
    allow_open_files(4_096);
    let mut good = deployment.client("good");
    good.publish(TOPIC, 1, "warm");
    let gateway = deployment.mqtt();
    let id = deployment.host.process().id();
    let (open, mark) = (descriptors(id), deployment.host.process().mark());
    let before = deployment.host.process().peak_resident_bytes();
    let is_over = AtomicBool::new(false);
    let start = Instant::now();
    let published = thread::scope(|scope| {
        let publishing = scope.spawn(|| {
            let mut number = 1;
            while !is_over.load(Ordering::SeqCst) && number < u16::MAX {
                number += 1;
                let sent = Instant::now();
                good.publish(TOPIC, number, "mine");
                assert!(sent.elapsed() < PROMPT, "{:?}", sent.elapsed());
            }
            number
        });
        let share = CONNECTIONS / AT_ONCE;
        let floods: Vec<_> = (0..AT_ONCE)
            .map(|n| scope.spawn(move || flood(gateway, n * share, share)))
            .collect();
        for flood in floods {
            flood.join().unwrap();
        }
        is_over.store(true, Ordering::SeqCst);
        publishing.join().unwrap()
    });
    let seconds = start.elapsed().as_secs() as usize;
    let growth = deployment.host.process().peak_resident_bytes() - before;
    println!(
        "{seconds} s, {published} messages, {} KiB more",
        growth / 1024
    );
    assert!(growth < SLACK, "the memory has grown by {growth} bytes");
    good.ping();
    assert_eq!(deployment.device_records().len(), usize::from(published));
    wait::until("the descriptors are free again", PATIENCE, || {
        descriptors(id) <= open + 2
    });
    // Of each kind of line some at once, and one a second; the others are counted.
    let log = deployment.host.process().output_since(mark);
    for kind in ["protocol error", "CONNECT refused"] {
        let lines = log.lines().filter(|line| line.contains(kind)).count();
        assert!((1..=20 + seconds + 1).contains(&lines), "{lines} of {kind}");
    }
    assert!(!log.contains("ERROR") && !log.contains("panicked"), "{log}");
    wait::until("a line that says how many were left out", PATIENCE, || {
        // The next one that is written says it.
        let mut next = RawClient::open(gateway);
        next.send(&packet::packet(0x10, b"x"));
        next.expect_closed(PROMPT);
        let log = deployment.host.process().output_since(mark);
        let left_out = |line: &str| line.contains("left_out=") && !line.contains("left_out=0");
        log.lines().any(left_out)
    });
}

#[test]
fn connections_of_one_address_over_its_limit_get_connack_3_and_other_addresses_come_in() {
    let deployment = Deployment::builder()
        .limit("max_connections_per_address", 2)
        .start();
    let _first = deployment.client("first");
    let second = deployment.client("second");
    let mut third = RawClient::open(deployment.mqtt());
    third.send(&packet::connect("third", 0));
    third.expect(&REFUSED);
    third.expect_closed(PROMPT);
    let mut elsewhere = RawClient::open_from(OTHER_ADDRESS, deployment.mqtt());
    elsewhere.send(&packet::connect("elsewhere", 0));
    elsewhere.expect(&packet::CONNECTED);
    deployment
        .host
        .wait_for_log(&["CONNECT refused", "max_connections_per_address"]);
    drop(second);
    RawClient::connect_within(deployment.mqtt(), "third", PATIENCE).ping();
}

#[test]
fn an_address_over_connect_rate_per_address_gets_connack_3_and_others_come_in() {
    const RATE: usize = 5;
    let deployment = Deployment::builder()
        .limit("connect_rate_per_address", RATE as i64)
        .start();
    let mut waiting: Vec<RawClient> = Vec::new();
    let start = Instant::now();
    for number in 0..RATE * 6 {
        let mut client = RawClient::open(deployment.mqtt());
        client.send(&packet::connect(format!("c{number}"), 0));
        waiting.push(client);
    }
    let mut elsewhere = RawClient::open_from(OTHER_ADDRESS, deployment.mqtt());
    elsewhere.send(&packet::connect("elsewhere", 0));
    elsewhere.expect(&packet::CONNECTED);
    let answers: Vec<Answer> = waiting
        .iter_mut()
        .map(|client| client.answer(PATIENCE))
        .collect();
    let count = |packet: &[u8; 4]| {
        let packet = Answer::Packet(packet.to_vec());
        answers.iter().filter(|answer| **answer == packet).count()
    };
    let accepted = count(&packet::CONNECTED);
    let later = start.elapsed().as_secs() as usize * RATE + RATE;
    assert!((RATE..=RATE + later).contains(&accepted), "{accepted}");
    assert_eq!(count(&REFUSED), answers.len() - accepted);
    assert!(accepted < answers.len());
    deployment
        .host
        .wait_for_log(&["CONNECT refused", "connect_rate_per_address"]);
    RawClient::connect_within(deployment.mqtt(), "patient", PATIENCE).ping();
}

#[test]
fn a_client_over_publish_rate_is_slowed_and_everything_it_sends_is_stored_in_order() {
    const RATE: u16 = 20;
    const MESSAGES: u16 = 80;
    let deployment = Deployment::builder()
        .limit("publish_rate", i64::from(RATE))
        .start();
    let mut fast = deployment.client("fast");
    let start = Instant::now();
    for number in 1..=MESSAGES {
        fast.send(&packet::publish(TOPIC, number, number.to_string()));
        fast.send(&packet::publish_qos0(TOPIC, format!("{number} again")));
    }
    let mut other = deployment.client("other");
    other.publish("device/2/x", 1, "quick");
    // As many as a second's at once, and the others one after the other.
    let least = Duration::from_secs(u64::from((2 * MESSAGES - RATE) / RATE));
    assert!(start.elapsed() < least, "others do not wait");
    for number in 1..=MESSAGES {
        fast.expect(&packet::puback(number));
    }
    fast.ping();
    let took = start.elapsed();
    assert!(took > least - Duration::from_millis(200), "{took:?}");
    let stored = || -> Vec<String> {
        let records = deployment.device_records();
        let own = records
            .iter()
            .filter(|record| record.text("mqtt.client_id") == "fast");
        own.map(|record| record.payload_text()).collect()
    };
    let expected: Vec<String> = (1..=MESSAGES)
        .flat_map(|number| [number.to_string(), format!("{number} again")])
        .collect();
    // The last has QoS 0: nothing says when it is stored.
    wait::until("everything is stored", PATIENCE, || {
        stored().len() >= expected.len()
    });
    assert_eq!(stored(), expected);
}
