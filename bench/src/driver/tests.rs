//! The driver against servers of a few lines.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use super::*;

/// How a server treats its clients.
#[derive(Clone, Copy)]
enum Manner {
    /// Acknowledges as soon as a client has nothing more to say, newest first.
    Backwards,
    /// Refuses every CONNECT.
    Refusing,
    /// Closes with the first PUBLISH.
    Closing,
    /// Acknowledges with a wrong packet id.
    Lying,
    /// Takes 300 ms before it acknowledges for the first time.
    Pausing,
}

/// What a server saw.
#[derive(Default)]
struct Seen {
    publishes: AtomicU64,
    /// The most publishes of one client that were unacknowledged at once.
    deepest: AtomicUsize,
    /// How many publishes each topic got.
    topics: Mutex<BTreeMap<String, u64>>,
}

fn serve(manner: Manner) -> (SocketAddr, Arc<Seen>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let seen = Arc::new(Seen::default());
    let shared = seen.clone();
    thread::spawn(move || {
        for socket in listener.incoming() {
            let (socket, seen) = (socket.unwrap(), shared.clone());
            thread::spawn(move || converse(socket, manner, &seen));
        }
    });
    (address, seen)
}

fn converse(mut socket: TcpStream, manner: Manner, seen: &Seen) {
    let mut waiting: Vec<[u8; 2]> = Vec::new();
    let mut pause = Duration::from_millis(300);
    loop {
        let mut head = [0; 2];
        if socket.read_exact(&mut head).is_err() {
            return;
        }
        // The tests' packets are shorter than 128 bytes.
        let mut rest = vec![0; usize::from(head[1])];
        socket.read_exact(&mut rest).unwrap();
        match head[0] {
            0x10 => {
                let code = if matches!(manner, Manner::Refusing) {
                    5
                } else {
                    0
                };
                socket.write_all(&[0x20, 2, 0, code]).unwrap();
            }
            0x30 => {
                seen.publishes.fetch_add(1, Ordering::SeqCst);
            }
            0x32 => {
                if matches!(manner, Manner::Closing) {
                    return;
                }
                seen.publishes.fetch_add(1, Ordering::SeqCst);
                let topic = usize::from(rest[1]);
                let name = String::from_utf8(rest[2..2 + topic].to_vec()).unwrap();
                *seen.topics.lock().unwrap().entry(name).or_default() += 1;
                waiting.push([rest[2 + topic], rest[3 + topic]]);
                seen.deepest.fetch_max(waiting.len(), Ordering::SeqCst);
            }
            0xC0 => socket.write_all(&[0xD0, 0]).unwrap(),
            0xE0 => return,
            other => panic!("a publisher sent {other:02x}"),
        }
        if nothing_more_to_read(&socket) {
            if matches!(manner, Manner::Pausing) && !waiting.is_empty() {
                thread::sleep(std::mem::take(&mut pause));
            }
            for id in waiting.drain(..).rev() {
                let low = id[1] ^ u8::from(matches!(manner, Manner::Lying));
                // The driver may be gone: it leaves at the first wrong id.
                let _ = socket.write_all(&[0x40, 2, id[0], low]);
            }
        }
    }
}

fn nothing_more_to_read(socket: &TcpStream) -> bool {
    socket.set_nonblocking(true).unwrap();
    let peeked = socket.peek(&mut [0]);
    socket.set_nonblocking(false).unwrap();
    peeked.is_err()
}

fn workload(address: SocketAddr, qos: QoS) -> Workload {
    Workload {
        address,
        topic: "t".to_owned(),
        topics: 1,
        qos,
        clients: 3,
        window: 7,
        payload: 10,
        rate: None,
        limit: Limit {
            messages: 200_000,
            duration: Duration::from_secs(60),
        },
    }
}

#[test]
fn every_message_is_confirmed_and_no_client_exceeds_its_window() {
    let (address, seen) = serve(Manner::Backwards);
    // More messages per client than there are packet ids.
    let outcome = publish(&workload(address, QoS::AtLeastOnce)).unwrap();
    assert_eq!(outcome.messages, 200_000);
    assert_eq!(seen.publishes.load(Ordering::SeqCst), 200_000);
    assert_eq!(outcome.latencies.summary().count, 200_000);
    let deepest = seen.deepest.load(Ordering::SeqCst);
    assert!((1..=7).contains(&deepest), "{deepest}");
    assert!(outcome.elapsed > Duration::ZERO);
}

#[test]
fn qos_0_is_confirmed_a_window_at_a_time() {
    let (address, seen) = serve(Manner::Backwards);
    let mut workload = workload(address, QoS::AtMostOnce);
    workload.limit.messages = 3 * 7 * 100 + 1;
    let outcome = publish(&workload).unwrap();
    assert_eq!(outcome.messages, 2_101);
    assert_eq!(seen.publishes.load(Ordering::SeqCst), 2_101);
    assert_eq!(outcome.latencies.summary().count, 301);
}

#[test]
fn a_run_ends_when_its_time_is_over() {
    let (address, seen) = serve(Manner::Backwards);
    let mut workload = workload(address, QoS::AtLeastOnce);
    workload.limit = Limit {
        messages: u64::MAX,
        duration: Duration::from_millis(50),
    };
    let outcome = publish(&workload).unwrap();
    assert!(outcome.messages > 0);
    assert_eq!(seen.publishes.load(Ordering::SeqCst), outcome.messages);
}

#[test]
fn the_topics_of_a_client_take_turns() {
    let (address, seen) = serve(Manner::Backwards);
    let mut workload = workload(address, QoS::AtLeastOnce);
    workload.clients = 2;
    workload.topics = 3;
    let mut publishers = Publishers::connect(&workload).unwrap();
    let limit = |messages| Limit {
        messages,
        ..workload.limit
    };
    // Less than a window of one client: the other one has nothing to send.
    publishers.run(limit(4)).unwrap();
    let named = |topics: &[(&str, u64)]| -> BTreeMap<String, u64> {
        let owned = |&(name, count): &(&str, u64)| (name.to_owned(), count);
        topics.iter().map(owned).collect()
    };
    let first = named(&[("t/0/1", 2), ("t/0/2", 1), ("t/0/3", 1)]);
    assert_eq!(*seen.topics.lock().unwrap(), first);
    // And go on where they were.
    publishers.run(limit(2)).unwrap();
    let then = named(&[("t/0/1", 2), ("t/0/2", 2), ("t/0/3", 2)]);
    assert_eq!(*seen.topics.lock().unwrap(), then);
    publishers.disconnect();
}

#[test]
fn a_server_that_refuses_closes_or_lies_is_an_error() {
    let run = |manner| publish(&workload(serve(manner).0, QoS::AtLeastOnce));
    assert!(matches!(
        run(Manner::Refusing),
        Err(DriverError::Refused(5))
    ));
    assert!(matches!(run(Manner::Closing), Err(DriverError::Closed(_))));
    assert!(matches!(
        run(Manner::Lying),
        Err(DriverError::NotInFlight(_))
    ));
}

#[test]
fn at_a_fixed_rate_messages_that_wait_for_the_window_count_from_when_they_were_to_be_sent() {
    let (address, seen) = serve(Manner::Pausing);
    let mut workload = workload(address, QoS::AtLeastOnce);
    (workload.clients, workload.window) = (1, 1);
    workload.rate = Some(1_000.0);
    workload.limit.messages = 200;
    let outcome = publish(&workload).unwrap();
    assert_eq!((outcome.messages, outcome.unsent), (200, 0));
    assert_eq!(seen.publishes.load(Ordering::SeqCst), 200);
    // All 200 messages were to be sent within the pause; the last one 100 ms before its end.
    let latencies = outcome.latencies.summary();
    assert!(latencies.min > 90_000.0, "{latencies:?}");
    assert!(latencies.p50 > 150_000.0, "{latencies:?}");
}

#[test]
fn what_a_fixed_rate_did_not_get_rid_of_is_said() {
    let (address, seen) = serve(Manner::Pausing);
    let mut workload = workload(address, QoS::AtLeastOnce);
    (workload.clients, workload.window) = (1, 10);
    workload.rate = Some(1_000.0);
    workload.limit.duration = Duration::from_millis(100);
    let outcome = publish(&workload).unwrap();
    assert_eq!(outcome.messages + outcome.unsent, 100);
    assert!((1..=10).contains(&outcome.messages), "{outcome:?}");
    assert_eq!(seen.publishes.load(Ordering::SeqCst), outcome.messages);
}

#[test]
fn a_fixed_rate_is_shared_by_all_clients() {
    let (address, seen) = serve(Manner::Backwards);
    let mut workload = workload(address, QoS::AtLeastOnce);
    workload.rate = Some(2_000.0);
    workload.limit.messages = 400;
    let outcome = publish(&workload).unwrap();
    assert_eq!((outcome.messages, outcome.unsent), (400, 0));
    assert_eq!(seen.publishes.load(Ordering::SeqCst), 400);
    let rate = outcome.rate();
    assert!(rate < 2_100.0, "{rate}");
}

#[test]
fn idle_clients_are_accepted_and_alive() {
    let (address, _) = serve(Manner::Backwards);
    let plan = Idle {
        address,
        connections: 100,
        at_once: 7,
    };
    let mut herd = Herd::gather(plan).unwrap();
    assert_eq!(herd.accepted().messages, 100);
    assert_eq!(herd.accepted().latencies.summary().count, 100);
    herd.rest(Duration::from_millis(10), || ()).unwrap();
    assert_eq!(herd.ping().unwrap().summary().count, 100);
    let refused = Herd::gather(Idle {
        address: serve(Manner::Refusing).0,
        ..plan
    });
    assert!(matches!(refused, Err(DriverError::Refused(5))));
}

#[test]
fn a_cycle_is_a_connection_with_one_acknowledged_message() {
    let (address, seen) = serve(Manner::Backwards);
    let plan = Churn {
        address,
        topic: "t".to_owned(),
        at_once: 5,
        payload: 10,
        limit: Limit {
            messages: 103,
            duration: Duration::from_secs(60),
        },
    };
    let outcome = churn(&plan).unwrap();
    assert_eq!(outcome.messages, 103);
    assert_eq!(outcome.latencies.summary().count, 103);
    assert_eq!(seen.publishes.load(Ordering::SeqCst), 103);
    let address = serve(Manner::Closing).0;
    let closed = churn(&Churn { address, ..plan });
    assert!(matches!(closed, Err(DriverError::Closed(_))));
}
