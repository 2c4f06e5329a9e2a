//! How long a connection lives: keep-alive, takeover, empty client ids, and sockets that never become clients.

use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use e2e::deployment::Deployment;
use e2e::mosquitto::Subscriber;
use e2e::packet;
use e2e::raw::{PROMPT, RawClient};
use e2e::wait::{self, PATIENCE};
use rustix::process::{Resource, getrlimit, setrlimit};

const TOPIC: &str = "device/1/x";

fn with_keep_alive(gateway: SocketAddr, client_id: &str, seconds: u16) -> RawClient {
    let mut client = RawClient::open(gateway);
    client.send(&packet::connect(client_id, seconds));
    client.expect(&packet::CONNECTED);
    client
}

#[test]
fn a_client_that_is_silent_for_one_and_a_half_keep_alives_is_closed() {
    let deployment = Deployment::start();
    let start = Instant::now();
    let mut client = with_keep_alive(deployment.mqtt(), "silent", 2);
    client.expect_closed(PROMPT);
    let after = start.elapsed();
    assert!(
        after >= Duration::from_millis(2_900) && after < Duration::from_secs(6),
        "closed after {after:?}"
    );
}

#[test]
fn a_client_without_keep_alive_or_with_a_long_one_is_treated_as_if_it_had_asked_for_the_cap() {
    let deployment = Deployment::builder().limit("max_keep_alive", "2s").start();
    for keep_alive in [0, 3, u16::MAX] {
        let start = Instant::now();
        let mut client = with_keep_alive(deployment.mqtt(), "silent", keep_alive);
        client.expect_closed(PROMPT);
        let after = start.elapsed();
        assert!(
            after >= Duration::from_millis(2_900) && after < Duration::from_secs(6),
            "keep-alive {keep_alive} closed after {after:?}"
        );
    }
}

#[test]
fn b67_a_client_that_is_not_read_from_because_iggy_hangs_is_not_taken_for_silent() {
    let deployment = Deployment::builder()
        .proxied()
        .limit("receive_window", 4)
        .start();
    let mut waiting = with_keep_alive(deployment.mqtt(), "waiting", 1);
    let mut pinging = with_keep_alive(deployment.mqtt(), "pinging", 1);
    waiting.publish(TOPIC, 1, "before");
    deployment.proxy().hold_requests();
    for id in 2..=7 {
        waiting.send(&packet::publish(TOPIC, id, "held"));
    }
    // Far over one and a half keep-alives, in which its PINGREQs are not even read.
    for _ in 0..8 {
        waiting.send(&packet::PINGREQ);
        waiting.expect_silence(Duration::from_millis(500));
        pinging.ping();
    }
    deployment.proxy().release();
    let mut pubacks = Vec::new();
    let mut pings = 0;
    while pubacks.len() < 6 || pings < 8 {
        match waiting.answer(PATIENCE) {
            e2e::raw::Answer::Packet(bytes) if bytes == packet::PINGRESP => pings += 1,
            e2e::raw::Answer::Packet(bytes) => pubacks.push(bytes),
            other => panic!("{other:?} after {pubacks:02x?} and {pings} PINGRESPs"),
        }
    }
    assert_eq!(pubacks, (2..=7).map(packet::puback).collect::<Vec<_>>());
    // Then it is silent.
    waiting.expect_closed(PROMPT);
}

#[test]
fn half_a_packet_does_not_count_as_a_sign_of_life() {
    let deployment = Deployment::start();
    let start = Instant::now();
    let mut client = with_keep_alive(deployment.mqtt(), "half", 2);
    let bytes = packet::publish(TOPIC, 1, "payload");
    for byte in &bytes[..6] {
        client.send(&[*byte]);
        client.expect_silence(Duration::from_millis(300));
    }
    client.expect_closed(PROMPT);
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn what_the_gateway_sends_does_not_keep_a_silent_client_alive_and_a_ping_does() {
    let deployment = Deployment::start();
    let mut silent = with_keep_alive(deployment.mqtt(), "silent", 2);
    silent.subscribe(TOPIC, 0);
    let mut pinging = with_keep_alive(deployment.mqtt(), "pinging", 2);
    let mut publisher = deployment.client("publisher");
    let start = Instant::now();
    let mut id = 0;
    let closed_after = loop {
        id += 1;
        publisher.publish(TOPIC, id, "tick");
        match silent.answer(Duration::from_millis(300)) {
            e2e::raw::Answer::Closed => break start.elapsed(),
            _ => assert!(
                start.elapsed() < Duration::from_secs(8),
                "the silent client is still connected"
            ),
        }
        pinging.ping();
    };
    assert!(
        closed_after >= Duration::from_millis(2_500),
        "{closed_after:?}"
    );
    // Far over one and a half keep-alives by now, with pauses shorter than one.
    while start.elapsed() < Duration::from_secs(6) {
        pinging.expect_silence(Duration::from_millis(1_900));
        pinging.ping();
    }
}

#[test]
fn the_same_client_id_again_closes_the_old_connection_and_serves_the_new_one() {
    let deployment = Deployment::start();
    let mut publisher = deployment.client("publisher");
    let mut current = deployment.client("device");
    current.subscribe(TOPIC, 1);
    for round in 1..=10 {
        let mut newer = deployment.client("device");
        current.expect_closed(PROMPT);
        newer.subscribe(TOPIC, 1);
        publisher.publish(TOPIC, round, round.to_string());
        let message = newer.expect_publish();
        assert_eq!(message.payload, round.to_string().as_bytes());
        newer.send(&packet::puback(message.id));
        newer.ping();
        current = newer;
    }
}

#[test]
fn b42_clients_with_an_empty_client_id_do_not_disturb_each_other() {
    let deployment = Deployment::start();
    let folder = deployment.files.working_directory();
    let mut raw: Vec<RawClient> = (0..20).map(|_| deployment.client("")).collect();
    for client in &mut raw {
        client.subscribe(TOPIC, 0);
    }
    let mut mosquitto: Vec<Subscriber> = (0..3)
        .map(|_| Subscriber::start(deployment.mqtt(), folder, "", TOPIC, 1))
        .collect();
    deployment.client("publisher").publish(TOPIC, 1, "to all");
    for client in &mut raw {
        assert_eq!(client.expect_publish().payload, b"to all");
        client.ping();
    }
    for subscriber in &mut mosquitto {
        assert_eq!(subscriber.wait_for(1).len(), 1);
        assert!(subscriber.runs());
    }
}

#[test]
fn b68_sockets_that_never_connect_are_closed_and_cost_nobody_anything() {
    let deployment = Deployment::builder()
        .limit("connect_timeout", "3s")
        .limit("max_connections_per_address", 5_000)
        .start();
    let mut deployment = deployment;
    allow_open_files(4_096);
    deployment.client("warm").publish(TOPIC, 1, "warm");
    let id = deployment.host.process().id();
    let start_descriptors = descriptors(id);
    let mark = deployment.host.process().mark();

    let connect = packet::connect("half", 0);
    let start = Instant::now();
    let mut sockets: Vec<TcpStream> = Vec::new();
    for number in 0..1_000 {
        let mut socket = TcpStream::connect_timeout(&deployment.mqtt(), PATIENCE).unwrap();
        if number % 2 == 0 {
            socket.write_all(&connect[..connect.len() / 2]).unwrap();
        }
        sockets.push(socket);
    }
    let mut good = deployment.client("good");
    good.publish(TOPIC, 1, "meanwhile");
    for socket in &mut sockets {
        let mut byte = [0];
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        // Closed: the end of the stream, or a reset.
        match std::io::Read::read(socket, &mut byte) {
            Ok(0) => {}
            Ok(_) => panic!("the gateway sent something"),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
        }
    }
    assert!(start.elapsed() < PATIENCE, "{:?}", start.elapsed());
    drop(sockets);
    good.ping();
    drop(good);

    for _ in 0..100 {
        drop(TcpStream::connect_timeout(&deployment.mqtt(), PATIENCE).unwrap());
    }
    wait::until("the descriptors are free again", PATIENCE, || {
        descriptors(id) <= start_descriptors + 2
    });
    let log = deployment.host.process().output_since(mark);
    let noise: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("WARN") || line.contains("ERROR"))
        .collect();
    assert!(noise.is_empty(), "{noise:?}");
}

/// How many files and sockets a process has open.
pub(crate) fn descriptors(process: u32) -> usize {
    fs::read_dir(format!("/proc/{process}/fd"))
        .map(|entries| entries.count())
        .unwrap_or_default()
}

/// Whether this process may have so many files and sockets open.
pub(crate) fn may_open_files(count: u64) -> bool {
    let limit = getrlimit(Resource::Nofile);
    limit.maximum.is_none_or(|maximum| maximum >= count)
}

/// Lets this process have as many files and sockets open as the test needs.
pub(crate) fn allow_open_files(count: u64) {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < count) {
        limit.current = Some(count);
        setrlimit(Resource::Nofile, limit).expect("the test needs more open files: ulimit -n 4096");
    }
}
